"""Renders forecasts before they are sealed, each with the roof it is a percentage of."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from ledger.analysis.formatting import case_text, si
from ledger.records import Forecast, Roof, Work
from ledger.render.report_text import predicted_text
from ledger.render.tables import empty_table
from ledger.roofline import arithmetic_intensity, memory_side, ridge_point, time_lower_bound_s


def roof_sentence(work: Work, roof: Roof) -> str:
    """Return what a person needs to know before naming a percent: work, intensity, ridge, roof and floor."""
    side, what = ("memory", "memory traffic") if memory_side(work, roof) else ("compute", "arithmetic")
    return (
        f"{si(work.flops, 'FLOP')} over {si(work.bytes, 'B')} is {_digits(arithmetic_intensity(work))} FLOP/byte; "
        f"the ridge is at {_digits(ridge_point(roof))} ({roof.path}, {roof.ceilings}), so it is "
        f"on the {side}-bound side: {what} sets the lower bound of {_digits(time_lower_bound_s(work, roof) * 1e6)} µs"
    )


def drafts_table(forecasts: Sequence[Forecast]) -> RenderableType:
    """Return a table of forecasts with the roof each is a percentage of."""
    table = empty_table(("cell", "FLOP/byte", "ridge", "roof", "floor µs", "forecast"), folding=("cell", "forecast"))
    for forecast in forecasts:
        table.add_row(
            case_text(forecast.case),
            _digits(arithmetic_intensity(forecast.work)),
            _digits(ridge_point(forecast.roof)),
            forecast.roof.path,
            _digits(time_lower_bound_s(forecast.work, forecast.roof) * 1e6),
            predicted_text(forecast),
        )
    return table


def _digits(value: float) -> str:
    """Return a number with three significant digits and no exponent where it is above 1."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
