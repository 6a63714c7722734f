"""Makes the JSON document that the HTML page's script draws: rows, roofs, calibration, track record. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from ledger.analysis.book import Book
from ledger.analysis.formatting import harmless
from ledger.analysis.regime_probabilities import probabilities_of
from ledger.analysis.report_rows import ReportRow
from ledger.analysis.sight_names import sight_name
from ledger.analysis.track_record import SealRecord, track_record
from ledger.records import REGIMES, Forecast
from ledger.render import report_text as lines
from ledger.render.plot_layout import bounds, device_text, highest, push_apart
from ledger.render.plot_model import Ceiling, Dot, RooflinePlot, Slope

FILTERS = ("kernel", "dtype", "gpu", "campaign", "forecaster", "sight", "regime")
"""Keys of a row that the page filters by."""

Limits = tuple[tuple[float, float], tuple[float, float]]
# Height of a ceiling's name, as a share of the chart's.
_NAME_SHARE = 13 / 476


def row_value(row: ReportRow, dot: Dot | None, *, leads: bool) -> dict[str, Any]:
    """Return one forecast. Units: x FLOP/byte, rate FLOP/s, percents of the roof, us microseconds.

    leads: whether it stands for its case. again: whether another row shows an earlier run of it. named: the regimes
    that the verdict names; shares: the probabilities of REGIMES, None where none were stated; right: None where no
    regime was determined.
    """
    view, forecast = row.view, row.view.forecast
    run = row.result
    verdict = run.verification if run else None
    timing = run.recorded.measurement.timing if run else None
    regimes = verdict.regimes if verdict and verdict.gap else ()
    value: dict[str, Any] = {
        "n": row.number,
        "leads": leads,
        "again": row.run is not None and row.run is not view.runs[0],
        "cell": lines.cell_text(view),
        "kernel": forecast.case.kernel,
        "dtype": forecast.case.dtype,
        "gpu": forecast.case.hardware,
        "campaign": view.sealed.prediction.campaign or "none",
        "forecaster": view.sealed.prediction.forecaster,
        "seal": view.sealed.id[:10],
        "sight": sight_name(view.sight),
        "regime": verdict.measured_regime or "not determined" if verdict else view.state,
        "said": forecast.regime,
        "named": ",".join(str(REGIMES.index(regime)) for regime in regimes),
        "right": verdict.regime_is_right if verdict and regimes else None,
        "shares": _shares(forecast),
        "forecast": forecast.percent_milli / 1000,
        "low": None if forecast.low_milli is None else forecast.low_milli / 1000,
        "high": None if forecast.high_milli is None else forecast.high_milli / 1000,
        "percent": _rounded(verdict.measured_percent if verdict else None),
        "grade": verdict.grade if verdict else None,
        "time": lines.time_text(row),
        "us": _rounded(None if timing is None else timing.median_ps / 1e6, 4),
        "x": _rounded(dot.intensity_flop_per_byte if dot else None, 4),
        "rate": _rounded(dot.flop_per_s if dot else None, 4),
    }
    return {key: harmless(found, 200) if isinstance(found, str) else found for key, found in value.items()}


def _shares(forecast: Forecast) -> str | None:
    """Return the stated probabilities of REGIMES, with commas between; None without any."""
    if forecast.probabilities_ppm is None:
        return None
    return ",".join(f"{share:g}" for share in probabilities_of(forecast).values())


def page_document(plot: RooflinePlot, values: Sequence[dict[str, Any]], book: Book | None) -> str:
    """Return the document as JSON that may stand inside a script element. book: None on a page of some rows alone."""
    limits = bounds(plot) if plot.ceilings else None
    value = {
        "rows": _packed(values),
        "roofs": _roofs(plot, limits) if limits else [],
        "x": None if limits is None else [_rounded(edge) for edge in limits[0]],
        "y": None if limits is None else [_rounded(edge) for edge in limits[1]],
        "regimes": list(REGIMES),
        "seals": [_seal(record) for record in track_record(book)] if book else [],
    }
    written = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _packed(values: Sequence[dict[str, Any]]) -> dict[str, list[list[Any]]]:
    """Return rows by key, as the different values and the place of each row's value among them.

    Many rows hold the same: forecasts of one case all but what was forecast.
    """
    packed = {}
    for key in values[0]:
        column = [json.dumps(value[key]) for value in values]
        places = {text: number for number, text in enumerate(dict.fromkeys(column))}
        packed[key] = [[json.loads(text) for text in places], [places[text] for text in column]]
    return packed


def _rounded(value: float | None, digits: int = 6) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


def _seal(record: SealRecord) -> dict[str, Any]:
    return {"seal": record.seal[:10], "date": record.date[:10]}


def _roofs(plot: RooflinePlot, limits: Limits) -> list[dict[str, Any]]:
    """Return every roof as a line of two points, from the slope's left end or the ridge to the right.

    level: where a ceiling's name stands, from 0 at the foot of the chart to 1 at its top; None for a slope.
    """
    (left, right), (low, high) = limits
    found: list[tuple[Ceiling | Slope, list[tuple[float, float]], bool]] = []
    for slope in plot.slopes:
        top = highest(plot, slope.device, slope.kind)
        points = [(left, left * slope.bytes_per_s), (top / slope.bytes_per_s, top)]
        found.append((slope, points, slope.level != "DRAM"))
    for ceiling in plot.ceilings:
        own = [line.bytes_per_s for line in plot.slopes if (line.device, line.kind) == (ceiling.device, ceiling.kind)]
        start = ceiling.flop_per_s / max(own) if own else left
        found.append((ceiling, [(start, ceiling.flop_per_s), (right, ceiling.flop_per_s)], False))
    named = sorted(plot.ceilings, key=lambda line: line.flop_per_s)
    wanted = [math.log(line.flop_per_s / low) / math.log(high / low) for line in named]
    # What is above the chart is cut off.
    placed = push_apart(wanted, _NAME_SHARE, (-math.inf, 1.0))
    levels = {id(line): level for line, level in zip(named, placed, strict=True)}
    return [
        {
            "label": device_text(plot, line),
            "level": _rounded(levels.get(id(line))),
            "gpu": line.device,
            "kind": line.kind,
            "thin": thin,
            "points": [[_rounded(x), _rounded(y)] for x, y in points],
        }
        for line, points, thin in found
    ]
