"""A judged ledger of four memory cells and a compute cell, for plots."""

from __future__ import annotations

from samples import COMPUTE_WORK, MS, make_book, make_forecast, make_measurement, make_sealed, make_timing, make_view

from ledger.analysis.book import Book

SHAPES = [{"B": b, "H": h, "O": h} for b in (1, 8) for h in (64, 128)]


def book(*, compute: bool = True) -> Book:
    """Return four memory cells forecast at 80% and measured at 50%, and a compute cell, 80% and 40%."""
    forecasts = [make_forecast(shape=shape) for shape in SHAPES]
    if compute:
        forecasts.append(make_forecast(shape={"B": 64, "H": 64, "O": 64}, work=COMPUTE_WORK))
    sealed = make_sealed(*forecasts)
    times = [2 * MS] * 4 + [25 * MS]
    views = [
        make_view(sealed, forecast, make_measurement(forecast, timing=make_timing(time)))
        for forecast, time in zip(forecasts, times, strict=False)
    ]
    unmeasured = make_forecast(shape={"B": 2, "H": 2, "O": 2})
    return make_book(*views, make_view(make_sealed(unmeasured, identity="dd" * 32), unmeasured))
