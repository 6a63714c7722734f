"""Finds forecasts of one case, so that each is scored: none is dropped that was sealed before the case ran. Pure.

A case is what exactly runs: sources, shape, dtype, device, implementation, configuration and threads. Of many forecasts
of one case those without a run of their own are scored by the first run of the case, if they were sealed before it:
other cells of the same seal, and forecasts that a later one revised. One that was withdrawn stays missing, unless
its own seal forecasts the case again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ledger.analysis.book import CellView, Run
from ledger.analysis.formatting import harmless
from ledger.analysis.sight import Devices, shape_of
from ledger.records import Finding, ForecastV2

REPEATED = "case-repeated"
_SHOWN_NAMES = 4_000

Answer = Callable[[CellView, Run], Run | None]
"""Return what another forecast's run says of a cell, None where the cell was not sealed before it."""


def repeated_cells(cells: Iterable[CellView], devices: Devices) -> Iterator[Finding]:
    """Yield which cells of one seal are one case."""
    for group in _grouped(cells, devices, within_seal=True):
        if len(group) > 1:
            names = harmless(", ".join(view.forecast.cell for view in group), _SHOWN_NAMES)
            message = f"{len(group)} cells are one case, and each is scored: {names}"
            yield Finding(code=REPEATED, severity="flag", path=group[0].sealed.path, message=message)


def answering(cells: Sequence[CellView], devices: Devices, answer: Answer) -> tuple[CellView, ...]:
    """Return the cells; those without a run have the first run of their case that they were sealed before."""
    found: dict[str, Run] = {}
    for within_seal in (True, False):
        for group in _grouped(cells, devices, within_seal=within_seal):
            run = _first([view.counted for view in group]) if len(group) > 1 else None
            if run is None:
                continue
            for view in group:
                dropped = view.state == "refused" or (view.state == "void" and not within_seal)
                if view.counted is None and view.name not in found and not dropped and (said := answer(view, run)):
                    found[view.name] = said
    return tuple(replace(view, answer=found.get(view.name)) if view.name in found else view for view in cells)


def one_of_each_case(cells: Sequence[CellView], devices: Devices) -> tuple[CellView, ...]:
    """Return one forecast of each case, whose run will answer the others; drawn ones, which need a run of their own.

    Left out is what another forecast's run answers already.
    """
    chosen = {
        view.name
        for group in _grouped(cells, devices, within_seal=False)
        for view in _drawn(group) or [view for view in group if view.answer is None][:1]
    }
    return tuple(view for view in cells if view.name in chosen)


def _drawn(cells: Iterable[CellView]) -> list[CellView]:
    return [view for view in cells if isinstance(view.forecast, ForecastV2) and view.forecast.draw is not None]


def _first(runs: Iterable[Run | None]) -> Run | None:
    return min((run for run in runs if run is not None), key=lambda run: run.recorded.commit.position, default=None)


def _grouped(cells: Iterable[CellView], devices: Devices, *, within_seal: bool) -> Iterable[list[CellView]]:
    groups: dict[object, list[CellView]] = {}
    for view in cells:
        case = view.forecast.case
        what = (devices.of(case.hardware), shape_of(case.shape), case.dtype, view.forecast.kernel_sha256)
        how = (case.implementation, case.threads, tuple(sorted(case.config.items())))
        groups.setdefault((*what, *how, view.sealed.id if within_seal else None), []).append(view)
    return groups.values()
