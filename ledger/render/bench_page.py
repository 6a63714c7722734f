"""Renders a bench document as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ledger.analysis.formatting import usual_order

_COLUMNS: tuple[tuple[str, str], ...] = (
    ("ours", "ours_us"),
    ("torch.compile", "torch_compile_us"),
    ("torch eager", "torch_eager_us"),
    ("torch.matmul alone", "torch_matmul_us"),
    ("floor", "floor_us"),
    ("% of roof", "pct_of_roof"),
)


_OTHER_CONTEXTS = {"back-to-back": "back to back", "idle": "after idle"}


def render_markdown(document: Mapping[str, Any]) -> str:
    """Return a bench as Markdown: its conditions, one table row a cell, and what was not timed.

    Ours is in bold where no baseline and no peer is faster.
    """
    lines = [f"# Bench: {document['device']}", "", "Microseconds a call, median of rounds.", ""]
    lines += condition_lines(document["conditions"])
    contexts = [name for name in _OTHER_CONTEXTS if any(name in row.get("contexts_us", {}) for row in document["rows"])]
    titles = " | ".join(title for title, _ in _COLUMNS)
    others = "".join(f" {_OTHER_CONTEXTS[name]}: ours, that baseline |" for name in contexts)
    lines += ["", f"| kernel | shape | dtype | {titles} | relative error | fastest other, ÷ ours |{others}"]
    lines.append("|---|---|---|" + "---:|" * (len(_COLUMNS) + 1) + "---|" * (1 + len(contexts)))
    lines += [_line(row) + "".join(f" {_in_context(row, name)} |" for name in contexts) for row in document["rows"]]
    lines += _missing_lines(document["rows"])
    return "\n".join(lines) + "\n"


def _missing_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what was not timed and why as a Markdown list, each reason of a kernel once."""
    told = {
        f"- {row['kernel']}: {name} not timed: {reason}": None
        for row in rows
        for name, reason in row.get("missing", {}).items()
    }
    return ["", *told] if told else []


def condition_lines(conditions: Mapping[str, Any]) -> list[str]:
    """Return the conditions of a bench as a Markdown list; those that are null are left out."""
    return [f"- {name}: {_condition(value)}" for name, value in conditions.items() if value is not None]


def _condition(value: Any) -> str:
    return ", ".join(f"{name} {text}" for name, text in value.items()) if isinstance(value, Mapping) else str(value)


def _line(row: Mapping[str, Any]) -> str:
    def cells() -> Iterator[str]:
        yield row["kernel"]
        yield " ".join(f"{key}={size}" for key, size in usual_order(row["shape"]))
        yield row["dtype"]
        for _, name in _COLUMNS:
            text = _number(row[name])
            best = name == "ours_us" and (rival := _rival(row)) is not None and row["ours_us"] <= rival[1]
            yield f"**{text}**" if best else text
        yield f"{row['rel_error']:.1e}"
        yield _fastest(row)

    return "| " + " | ".join(cells()) + " |"


def _rival(row: Mapping[str, Any]) -> tuple[str, float] | None:
    """Return the fastest baseline or peer with its time, None without one."""
    others = {name: row["all_us"][name] for name in row.get("peers", ())}
    if row["baseline"] is not None:
        others[row["baseline"]] = row["baseline_us"]
    return min(others.items(), key=lambda item: item[1], default=None)


def _in_context(row: Mapping[str, Any], context: str) -> str:
    times = row.get("contexts_us", {}).get(context, {})
    if "ours" not in times:
        return "–"
    # The same one as in the headline: what computes less is no baseline.
    rival = _rival(row)
    other = None if rival is None else times.get(rival[0])
    return _number(times["ours"]) if other is None else f"{_number(times['ours'])}, {_number(other)}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _fastest(row: Mapping[str, Any]) -> str:
    rival = _rival(row)
    return "–" if rival is None else f"{rival[0]} {_number(rival[1])}, {rival[1] / row['ours_us']:.2f}"
