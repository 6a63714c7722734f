"""Shows a judged ledger in a notebook: its report, its rows as a data frame, its roofline. Pure but for `save`.

ledger.open(".") makes these (ledger.api). pandas is imported only when a data frame is asked for: extra `notebook`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.formatting import harmless
from ledger.errors import MachineError
from ledger.suggestions import install_command

_SHOWN = 40
_CASE = ("seal", "cell", "kernel", "dtype", "hardware", "forecaster", "campaign", "sight", "state", "run", "counts")


def flat_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `ledger report --json` without nesting. Units: percent of the roof, µs; None is unknown.

    >>> predicted = {"regime": "hbm-bound", "percent": 70.0, "low": 60.0, "high": 80.0}
    >>> row = flat_row({"kernel": "softmax", "shape": {"M": 8}, "predicted": predicted, "measured": None, "gap": None})
    >>> row["shape"], row["percent"], row["measured_percent"]
    ('M=8', 70.0, None)
    """
    predicted, measured, gap = row["predicted"], row["measured"] or {}, row["gap"] or {}
    return {
        **{name: row.get(name) for name in _CASE},
        "shape": ",".join(f"{key}={value}" for key, value in row["shape"].items()),
        "regime": predicted["regime"],
        "percent": predicted["percent"],
        "low": predicted["low"],
        "high": predicted["high"],
        "measured_regime": measured.get("regime"),
        "measured_percent": measured.get("percent"),
        "time_us": measured.get("duration_us"),
        "gap": gap.get("percent"),
        "grade": row.get("grade"),
    }


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return flat rows as a pandas.DataFrame. Raises: MachineError without pandas."""
    try:
        import pandas
    except ImportError as error:
        raise MachineError(
            f"pandas is not installed; expected it for a data frame: {install_command('notebook')}; "
            "report().rows has the same as dictionaries"
        ) from error
    return pandas.DataFrame([flat_row(row) for row in rows])


@dataclass(frozen=True)
class Report:
    """Hold a report. summary: its lines; rows: as `ledger report --json` has them."""

    summary: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]

    def __str__(self) -> str:
        """Return the summary."""
        return "\n".join(self.summary)

    def _repr_html_(self) -> str:
        """Return the summary and the first rows as a table.

        >>> Report(("1 seal, 1 cell: 1 <open>",), ())._repr_html_()
        '<p>1 seal, 1 cell: 1 &lt;open&gt;</p>'
        """
        head = f"<p>{'<br>'.join(map(_text, self.summary))}</p>"
        names = ("cell", "hardware", "regime", "percent", "measured_regime", "measured_percent", "time_us", "gap")
        shown = [flat_row(row) for row in self.rows[:_SHOWN]]
        if not shown:
            return head
        lines = ["".join(f"<th>{name.replace('_', ' ')}</th>" for name in names)]
        lines += ["".join(f"<td>{_text(row[name])}</td>" for name in names) for row in shown]
        more = len(self.rows) - len(shown)
        rest = f"<p>and {more} more: rows</p>" if more else ""
        return f"{head}<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>{rest}"


@dataclass(frozen=True)
class Figure:
    """Hold a picture that a notebook shows. svg: a file of its own, in light and dark."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | FilePath) -> FilePath:
        """Write the SVG and return its path. Raises: OSError."""
        target = FilePath(path)
        target.write_text(self.svg, encoding="utf-8")
        return target


def _text(value: object) -> str:
    if value is None:
        return "–"
    return escape(harmless(f"{value:.3g}" if isinstance(value, float) else str(value)))
