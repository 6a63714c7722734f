"""Selects cells, writes orders, and withdraws forecasts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path as FilePath
from typing import Literal

from ledger.analysis.book import Book, CellView
from ledger.canonical import encode, object_id, record_id, record_path
from ledger.errors import EvidenceRefused, InputError, UnknownName
from ledger.evidence.judge import CurrentDigest
from ledger.git.commit import Repository
from ledger.kernel import KernelFile, execute, kernel_closure, kernel_names, shipped_folder
from ledger.record_files import hardware_names, load_hardware
from ledger.records import (
    ORDER_SCHEMA,
    VOID_SCHEMA,
    Digest,
    ForecastV2,
    Hardware,
    KernelSource,
    Order,
    OrderedCell,
    Void,
)
from ledger.sources.closure import rebuild
from ledger.workflow.seal import TOOL


def current_digests(root: FilePath) -> CurrentDigest:
    """Return what tells the digest of a kernel or profile as it is now, for telling open cells from stale ones.

    Only what is asked for is read. None for a name that is not here; empty for what cannot be read any more, so that
    its open cells count as stale.
    """

    @cache
    def digest(kind: Literal["kernel", "hardware"], name: str) -> str | None:
        try:
            if kind == "kernel":
                return kernel_closure(name, root)[0].sha256 if name in kernel_names(root) else None
            return object_id(encode(load_hardware(name, root))) if name in hardware_names(root) else None
        except InputError:
            return ""

    return digest


def select(book: Book, wanted: Sequence[str]) -> tuple[CellView, ...]:
    """Return the cells that a user named, or every open one.

    wanted: seal ids, or SEAL#CELL names; a seal's id may be shortened to four digits or more. Raises: UnknownName for
    a name that fits nothing or several seals; EvidenceRefused for a named cell that is stale, void or refused.
    """
    if not wanted:
        return tuple(cell for cell in book.cells if cell.state == "open")
    chosen = {cell.name: cell for name in wanted for cell in named(book, name)}
    for cell in chosen.values():
        if not isinstance(cell.forecast, ForecastV2) and cell.state in ("open", "stale"):
            raise EvidenceRefused(f"{cell.short_name}: {other_format(cell)}")
        if cell.state in ("stale", "void", "refused"):
            raise EvidenceRefused(f"{cell.short_name} is {cell.state}; expected an open cell: seal a new forecast")
    return tuple(chosen.values())


def other_format(cell: CellView) -> str:
    """Return why a forecast of format 1 is not measured here, and what to do."""
    tool, commit = cell.sealed.prediction.tool, cell.sealed.commit.sha[:10]
    return (
        f"sealed in format 1 by {tool.name} {tool.version}, which this version reads and does not measure; measure it "
        f"with that version from a work tree of commit {commit} (git worktree add), then: ledger verify --from DIR"
    )


def named(book: Book, name: str) -> list[CellView]:
    """Return the cells of a seal, or the one cell, that a name fits, in any state. Raises: UnknownName."""
    prefix, _, key = name.partition("#")
    seals = {cell.sealed.id for cell in book.cells if cell.sealed.id.startswith(prefix)}
    if len(prefix) < 4 or len(seals) != 1:
        raise UnknownName(f"seal {prefix!r} names {len(seals)} seals; expected four or more digits that name one")
    found = [cell for cell in book.cells if cell.sealed.id in seals and key in ("", cell.forecast.cell)]
    if not found:
        raise UnknownName(f"cell {key!r} is not in seal {prefix}; see: ledger status")
    return found


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
            closure, _ = kernel_closure(forecast.case.kernel, root)
            if closure.sha256 != forecast.kernel_sha256:
                name = forecast.case.kernel
                raise EvidenceRefused(f"{cell.short_name}: kernel {name} has changed since it was sealed")
            kernels[closure.sha256] = closure.manifest
            files.update({object_id(source.data): source.data.decode() for source in closure.carried})
        ordered.append(
            OrderedCell(
                seal=cell.sealed.id,
                cell=forecast.cell,
                run=len(cell.runs),
                anchor=anchor,
                case=forecast.case,
                work=forecast.work,
                kernel_sha256=forecast.kernel_sha256,
                hardware_sha256=forecast.hardware_sha256,
                protocol=forecast.protocol,
                pins=forecast.pins,
            )
        )
    return Order(schema=ORDER_SCHEMA, tool=TOOL, cells=tuple(ordered), hardware=hardware, kernels=kernels, files=files)


def kernels_of(order: Order, *, folder: FilePath) -> Callable[[Digest], KernelFile]:
    """Return how to load an order's kernels, ready to launch: from its own files and those that ship with the package.

    folder: where carried sources are written, so that compilers and debuggers find them.
    """
    texts = {digest: text.encode() for digest, text in order.files.items()}

    @cache
    def find(digest: Digest) -> KernelFile:
        manifest = order.kernels[digest]
        if object_id(encode(manifest)) != digest:
            raise InputError(f"kernel {manifest.entry}: the order's manifest is not the one that {digest[:10]} names")
        closure = rebuild(manifest, texts, folder=folder / "sources" / digest[:16], shipped=shipped_folder("kernels"))
        return execute(closure, launch=True, shipped=not closure.carried)

    return find


def carried_names(order: Order) -> list[str]:
    """Return the modules whose source an order carries, which the measuring machine will execute."""
    return sorted(
        {
            file.module or file.path
            for manifest in order.kernels.values()
            for file in manifest.files
            if file.sha256 in order.files
        }
    )


def withdraw(repository: Repository, book: Book, name: str, why: str) -> tuple[str, str, str]:
    """Commit the withdrawal of an unmeasured seal, or of one cell of it; return its id, path and commit.

    Raises: UnknownName; EvidenceRefused for a cell that is already measured, withdrawn or refused; InputError.
    """
    if not why.strip():
        raise InputError("--why: empty; expected the reason, in words")
    cells = named(book, name)
    for cell in cells:
        if cell.state not in ("open", "stale", "failed"):
            raise EvidenceRefused(f"{cell.short_name} is {cell.state}; expected one that is not measured yet")
    record = Void(
        schema=VOID_SCHEMA,
        tool=TOOL,
        seal=cells[0].sealed.id,
        cell=cells[0].forecast.cell if "#" in name else None,
        why=why,
        extensions={},
    )
    data = encode(record)
    path = record_path("verifications", record_id(Void, data))
    message = f"Void {cells[0].short_name if record.cell else record.seal[:10]}\n\nSeal-Id: {record.seal}\n"
    written = repository.commit(lambda _parent: ({path: data}, message))
    return record_id(Void, data), path, written.commit
