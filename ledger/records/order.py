"""Defines an order: what to measure on a machine that has no copy of the repository."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ledger.records.base import CellKey, Count, Digest, Line, Record
from ledger.records.case import CaseV2, Protocol, Tool, Work
from ledger.records.hardware import Hardware
from ledger.records.source import KernelSource

ORDER_SCHEMA: Literal["ledger/order/2"] = "ledger/order/2"


class OrderedCell(Record):
    """Hold one cell of an order: the seal that binds it and what to run."""

    seal: Digest
    cell: CellKey
    run: Count
    anchor: Digest | None
    case: CaseV2
    work: Work
    kernel_sha256: Digest
    hardware_sha256: Digest
    protocol: Protocol
    pins: Annotated[dict[Line, Line], Field(max_length=64)]


class Order(Record):
    """Say what to measure; `kernels` holds each manifest, `files` the sources that the package does not ship."""

    schema_: Literal["ledger/order/2"] = Field(alias="schema")
    tool: Tool
    cells: Annotated[tuple[OrderedCell, ...], Field(min_length=1)]
    hardware: dict[Digest, Hardware]
    kernels: dict[Digest, KernelSource]
    files: dict[Digest, Annotated[str, StringConstraints(max_length=2_000_000)]]
