"""Checks an order against this package and this machine, and loads the kernel of each cell. Times nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ledger import __version__
from ledger.callables.subject import is_callable
from ledger.canonical import encode, record_id
from ledger.device.facts import facts_for, require_profile
from ledger.errors import InputError, MachineError
from ledger.kernel import Kernel
from ledger.kernel_files import KernelFile
from ledger.measure.inputs import torch_dtype
from ledger.measure.run_cell import device_of
from ledger.measure.timer import check_protocol
from ledger.records import DeviceFactsV2, Digest, Hardware, Order, OrderedCell, is_gpu
from ledger.sources.platform import contradicted_pins

Kernels = Callable[[OrderedCell], KernelFile]
Key = tuple[Digest, str, int]


@dataclass(frozen=True)
class Job:
    """Hold a cell of an order with the kernel file and the device that it runs on."""

    ordered: OrderedCell
    file: KernelFile
    facts: DeviceFactsV2

    @property
    def apart(self) -> bool:
        """Tell whether it is a callable, which is measured in a process of its own."""
        return is_callable(self.ordered.case.kernel)

    @property
    def on_gpu(self) -> bool:
        """Tell whether it is timed on a GPU."""
        return device_of(self.ordered) == "cuda"

    @property
    def key(self) -> Key:
        """Return the seal, the cell and the run: unique within an order."""
        return (self.ordered.seal, self.ordered.cell, self.ordered.run)

    @property
    def names(self) -> frozenset[str]:
        """Return the names by which a user may select this cell."""
        return frozenset({self.ordered.cell, f"{self.ordered.seal}#{self.ordered.cell}"})


def checked_jobs(order: Order, kernels: Kernels) -> list[Job]:
    """Return the cells of an order, each checked and with its kernel loaded. Raises: InputError, MachineError."""
    if order.tool.version != __version__:
        raise InputError(
            f"order was made by ledger {order.tool.version}; this is {__version__}: install the version of the order"
        )
    for digest, hardware in order.hardware.items():
        if record_id(type(hardware), encode(hardware)) != digest:
            raise InputError(f"profile {hardware.name} is not the one that the order names; expected {digest[:10]}")
    return [_checked_cell(cell, order, kernels) for cell in order.cells]


def order_of(order: Order, cell: OrderedCell) -> Order:
    """Return the order of one cell, with its profile and its sources alone."""
    manifest = order.kernels[cell.kernel_sha256]
    return order.model_copy(
        update={
            "cells": (cell,),
            "hardware": {cell.hardware_sha256: order.hardware[cell.hardware_sha256]},
            "kernels": {cell.kernel_sha256: manifest},
            "files": {file.sha256: order.files[file.sha256] for file in manifest.files if file.sha256 in order.files},
        }
    )


def require_names(wanted: frozenset[str], jobs: Sequence[Job]) -> None:
    """Check that every name selects a cell of the order. Raises: InputError."""
    known = frozenset[str]().union(*(job.names for job in jobs))
    if unknown := sorted(wanted - known):
        raise InputError(f"cell {unknown[0]!r} is not in the order; expected one of: {', '.join(sorted(known))[:600]}")


def _checked_cell(cell: OrderedCell, order: Order, kernels: Kernels) -> Job:
    if cell.hardware_sha256 not in order.hardware or cell.kernel_sha256 not in order.kernels:
        raise InputError(f"cell {cell.cell}: its profile or its kernel is not in the order; expected both")
    hardware = order.hardware[cell.hardware_sha256]
    facts = facts_for(hardware)
    require_profile(hardware, facts)
    for contradiction in contradicted_pins(cell.pins, facts.versions):
        raise MachineError(f"cell {cell.cell}: {contradiction}: install the pinned version")
    file = kernels(cell)
    if file.sha256 != cell.kernel_sha256:
        expected = f"{cell.kernel_sha256[:10]}, which was sealed"
        raise InputError(f"kernel {cell.case.kernel}: digest is {file.sha256[:10]}; expected {expected}")
    _check_case(cell, file.kernel, hardware)
    return Job(cell, file, facts)


def _check_case(cell: OrderedCell, kernel: Kernel, hardware: Hardware) -> None:
    case = cell.case
    if kernel.name != case.kernel:
        raise InputError(f"cell {cell.cell}: its sources are of kernel {kernel.name}; expected {case.kernel}")
    kernel.check_shape(case.shape)
    if case.implementation not in kernel.implementations:
        have = ", ".join(kernel.implementations)
        raise InputError(f"cell {cell.cell}: implementation is {case.implementation}; expected one of: {have}")
    # The work of a callable is as it was sealed: it may have been given, or counted by another version of torch.
    counted = not is_callable(case.kernel)
    if case.dtype not in kernel.tolerances or (counted and kernel.work(case.shape, case.dtype) != cell.work):
        raise InputError(
            f"cell {cell.cell}: dtype or work differs from kernel {case.kernel}; expected the kernel's own"
        )
    if (device_of(cell) == "cuda") != is_gpu(hardware.target):
        raise InputError(f"cell {cell.cell}: protocol {cell.protocol.name} does not fit {hardware.target}")
    torch_dtype(case.dtype)
    check_protocol(cell.protocol)
