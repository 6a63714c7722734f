"""Renders a bench document as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    """Return a bench as Markdown: its conditions, one table row a cell, ours in bold where no baseline is faster."""
    lines = [f"# Bench: {document['device']}", "", "Microseconds a call, median of interleaved rounds.", ""]
    lines += condition_lines(document["conditions"])
    contexts = [name for name in _OTHER_CONTEXTS if any(name in row.get("contexts_us", {}) for row in document["rows"])]
    titles = " | ".join(title for title, _ in _COLUMNS)
    others = "".join(f" {_OTHER_CONTEXTS[name]}: ours, that baseline |" for name in contexts)
    lines += ["", f"| kernel | shape | dtype | {titles} | relative error | fastest baseline, ÷ ours |{others}"]
    lines.append("|---|---|---|" + "---:|" * (len(_COLUMNS) + 1) + "---|" * (1 + len(contexts)))
    lines += [_line(row) + "".join(f" {_in_context(row, name)} |" for name in contexts) for row in document["rows"]]
    return "\n".join(lines) + "\n"


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
            best = name == "ours_us" and row["baseline_us"] is not None and row["ours_us"] <= row["baseline_us"]
            yield f"**{text}**" if best else text
        yield f"{row['rel_error']:.1e}"
        yield _fastest(row)

    return "| " + " | ".join(cells()) + " |"


def _in_context(row: Mapping[str, Any], context: str) -> str:
    times = row.get("contexts_us", {}).get(context, {})
    if "ours" not in times:
        return "–"
    # The same baseline as in the headline: what computes less is no baseline.
    baseline = times.get(row["baseline"])
    return _number(times["ours"]) if baseline is None else f"{_number(times['ours'])}, {_number(baseline)}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _fastest(row: Mapping[str, Any]) -> str:
    if row["baseline_us"] is None:
        return "–"
    return f"{row['baseline']} {_number(row['baseline_us'])}, {row['baseline_us'] / row['ours_us']:.2f}"
