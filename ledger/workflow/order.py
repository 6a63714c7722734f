"""Writes orders: what to measure on a machine that has no copy of the repository."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath

from ledger.analysis.book import CellView
from ledger.callables.subject_files import sources_of
from ledger.canonical import object_id
from ledger.errors import EvidenceRefused, InputError
from ledger.records import (
    ORDER_SCHEMA,
    Digest,
    ForecastV2,
    Hardware,
    KernelSource,
    Order,
    OrderedCell,
)
from ledger.workflow.seal import TOOL
from ledger.workflow.select import other_format


def write_order(cells: Sequence[CellView], *, root: FilePath, anchor: Digest | None = None) -> Order:
    """Return the order to measure cells; sources go along only for kernels that the package does not ship.

    anchor: the digest of a challenge, which then goes into the inputs.
    Raises: InputError when there is nothing to measure, EvidenceRefused when a kernel or profile has changed.
    """
    if not cells:
        raise InputError("nothing is open; expected a sealed forecast that is not measured yet: ledger predict")
    hardware: dict[str, Hardware] = {}
    kernels: dict[str, KernelSource] = {}
    files: dict[str, str] = {}
    ordered = []
    for cell in cells:
        forecast = cell.forecast
        if not isinstance(forecast, ForecastV2):
            raise EvidenceRefused(f"{cell.short_name}: {other_format(cell)}")
        assert cell.hardware is not None
        hardware[forecast.hardware_sha256] = cell.hardware
        if forecast.kernel_sha256 not in kernels:
            closure, _ = sources_of(forecast.case, root)
            if closure.sha256 != forecast.kernel_sha256:
                name = forecast.case.kernel
                raise EvidenceRefused(f"{cell.short_name}: kernel {name} has changed since it was sealed")
            kernels[closure.sha256] = closure.manifest
            files.update({object_id(source.data): source.data.decode() for source in closure.carried})
        draw = forecast.draw
        if draw is not None and anchor is not None:
            raise InputError(f"{cell.short_name}: was drawn, and its pulse is its anchor; expected no --challenge")
        ordered.append(
            OrderedCell(
                seal=cell.sealed.id,
                cell=forecast.cell,
                run=len(cell.runs),
                anchor=anchor if draw is None else draw.challenge,
                case=forecast.case,
                work=forecast.work,
                kernel_sha256=forecast.kernel_sha256,
                hardware_sha256=forecast.hardware_sha256,
                protocol=forecast.protocol,
                pins=forecast.pins,
            )
        )
    return Order(schema=ORDER_SCHEMA, tool=TOOL, cells=tuple(ordered), hardware=hardware, kernels=kernels, files=files)
