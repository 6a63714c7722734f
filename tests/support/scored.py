"""Makes cells with a forecast and a measured percent, for tests of scores."""

from __future__ import annotations

import dataclasses
from typing import Any

from samples import MS, make_forecast, make_measurement, make_sealed, make_timing, make_view

from ledger.analysis.book import CellView
from ledger.records import Regime


def view(
    *,
    percent: float,
    measured: float | None,
    regime: Regime | None = None,
    blind: bool = True,
    forecaster: str = "ada",
    **forecast: Any,
) -> CellView:
    """Return a cell forecast at `percent` and measured at `measured` percent of its 1 ms roof, in `regime`."""
    made = make_forecast(percent_milli=round(percent * 1000), **forecast)
    sealed = make_sealed(made, forecaster=forecaster)
    if measured is None:
        return make_view(sealed, made, blind=blind)
    timing = make_timing(round(MS * 100 / measured))
    shown = make_view(sealed, made, make_measurement(made, timing=timing), blind=blind)
    run = shown.runs[0]
    verdict = run.verification.model_copy(update={"measured_regime": regime})
    return dataclasses.replace(shown, runs=(dataclasses.replace(run, verification=verdict),))
