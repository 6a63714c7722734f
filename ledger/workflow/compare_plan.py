"""Plans a comparison of two commits: which cases must be timed, and why the others need not be. Times nothing.

Equal manifests are skipped without being compiled, sources that differ in comments likewise. Where only GPU code
differs, cases whose machine code is equal are skipped; that needs a compiler and no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from ledger.analysis.campaign import Request
from ledger.analysis.formatting import shape_text
from ledger.callables.subject import is_callable
from ledger.errors import InputError, LedgerError
from ledger.kernel_files import KernelFile, build_case, execute, kernel_closure, kernels_shipped_from, own_kernel_names
from ledger.measure.compared_launches import Version
from ledger.measure.machine_code import machine_code
from ledger.operations import Shape
from ledger.records import Argument, CaseV2, Digest, Dtype, Hardware, is_gpu
from ledger.roofline import roof_of, time_lower_bound_s
from ledger.sources.closure import Closure
from ledger.sources.same_code import Difference, difference
from ledger.workflow.resolve_callable import Resolved, resolve_callable
from ledger.workflow.revisions import Side

Reason = Literal["unchanged", "comments", "gpu code on a CPU", "same machine code", "new", "removed", "failed"]
Listed = Literal["both", "base", "head"]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Skipped:
    """Hold a subject, or one case of it, that is not timed. side: whose failure the detail is, where it failed."""

    subject: str
    cell: str | None
    reason: Reason
    detail: str = ""
    side: str | None = None


@dataclass(frozen=True)
class Pair:
    """Hold one case on both sides. floor_s: the time lower bound of head's work, None where it is not known.

    listed: which sides have it among their own cases, or the user named it.
    """

    base: Version
    head: Version
    floor_s: float | None
    listed: Listed = "both"


@dataclass(frozen=True)
class Plan:
    """Hold what is to be timed, and what is not."""

    pairs: tuple[Pair, ...]
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True)
class Wanted:
    """Hold what the user asks for. requests: cells of a campaign file. everything: also what did not change.

    threads: on a CPU; None for all processors. arguments: of a callable, instead of the text of `args`. model_only: the
    kernels are not run here, so that neither triton nor a compiler is needed.
    """

    names: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[Dtype, ...] = ()
    args: str | None = None
    requests: tuple[Request, ...] = ()
    everything: bool = False
    threads: int | None = None
    arguments: tuple[Argument, ...] | None = None
    model_only: bool = False


def plan(base: Side, head: Side, hardware: Hardware, wanted: Wanted, *, on_progress: Progress) -> Plan:
    """Return what must be timed. Raises: InputError for a name that neither side has, or a cell that is not offered."""
    found: list[Pair | Skipped] = []
    for name in _names(base, head, wanted):
        on_progress(name)
        own = [one for one in wanted.requests if one.kernel == name]
        if is_callable(name):
            found += _callable(name, base, head, hardware, wanted, own)
        else:
            found += _kernel(name, base, head, hardware, wanted, own)
    return Plan(
        tuple(one for one in found if isinstance(one, Pair)), tuple(one for one in found if isinstance(one, Skipped))
    )


def _names(base: Side, head: Side, wanted: Wanted) -> Sequence[str]:
    if wanted.names:
        return wanted.names
    if wanted.requests:
        return sorted({one.kernel for one in wanted.requests})
    names: set[str] = set()
    for side in (base, head):
        with kernels_shipped_from(side.root):
            names |= set(own_kernel_names(side.root))
    if not names:
        raise InputError(
            "neither commit has a folder kernels/, whose kernels are taken where none is named (as ledger claim "
            "--unchanged does); expected one, or --suite FILE, or of ledger compare module:name"
        )
    return sorted(names)


# Kernels


def _closure(name: str, side: Side) -> tuple[Closure, bool] | None:
    with kernels_shipped_from(side.root):
        return kernel_closure(name, side.root) if name in own_kernel_names(side.root) else None


def _kernel(
    name: str, base: Side, head: Side, hardware: Hardware, wanted: Wanted, requests: Sequence[Request]
) -> Iterator[Pair | Skipped]:
    closures = {}
    for label, side in (("base", base), ("head", head)):
        try:
            closures[label] = _closure(name, side)
        except LedgerError as error:
            yield Skipped(name, None, "failed", str(error), label)
            return
    first, second = closures["base"], closures["head"]
    if first is None or second is None:
        if first is second is None:
            raise InputError(f"kernel {name!r}: in neither {base.name} nor {head.name}; expected it in one of them")
        yield Skipped(name, None, "new" if first is None else "removed")
        return
    apart = difference(first[0], second[0])
    if (skipped := _skipped(name, apart, hardware)) is not None and not wanted.everything:
        yield skipped
        return
    files: dict[str, KernelFile] = {}
    for label, (closure, shipped) in (("base", first), ("head", second)):
        try:
            launch = is_gpu(hardware.target) and not wanted.model_only
            files[label] = execute(closure, launch=launch, shipped=shipped)
        except LedgerError as error:
            yield Skipped(name, None, "failed", str(error), label)
            return
    compiled: tuple[dict[str, Digest], dict[str, Digest]] = ({}, {})
    cells = [list(_cells(files[label], wanted, requests)) for label in ("base", "head")]
    # Head does not choose what is timed: what only base lists is timed too.
    for shape, dtype in [*cells[1], *(cell for cell in cells[0] if cell not in cells[1])]:
        listed = _listed(*((shape, dtype) in known for known in cells))
        one = _pair(files["base"], files["head"], shape, dtype, hardware, wanted.threads, listed)
        compares = apart == "gpu-code" and not (wanted.everything or wanted.model_only)
        same = isinstance(one, Pair) and compares and _same_code(one, hardware, compiled)
        yield Skipped(name, f"{shape_text(shape)} {dtype}", "same machine code") if same else one


def _skipped(name: str, apart: Difference, hardware: Hardware) -> Skipped | None:
    """Return why a subject need not be timed, None where it must be or a compiler decides."""
    if apart == "gpu-code" and not is_gpu(hardware.target):
        return Skipped(name, None, "gpu code on a CPU")
    reasons: Mapping[Difference, Reason] = {"none": "unchanged", "comments": "comments"}
    return Skipped(name, None, reasons[apart]) if apart in reasons else None


def _cells(file: KernelFile, wanted: Wanted, requests: Sequence[Request]) -> Iterator[tuple[Shape, Dtype]]:
    kernel = file.kernel
    if requests:
        for one in requests:
            if one.dtype is not None:
                yield one.shape, one.dtype
        return
    for shape in wanted.shapes or kernel.cases:
        kernel.check_shape(shape)
        yield from ((shape, dtype) for dtype in wanted.dtypes or kernel.dtypes)


def _listed(base: bool, head: bool) -> Listed:
    return "both" if base == head else "base" if base else "head"


def _pair(
    base: KernelFile,
    head: KernelFile,
    shape: Shape,
    dtype: Dtype,
    hardware: Hardware,
    threads: int | None,
    listed: Listed,
) -> Pair | Skipped:
    cell = f"{shape_text(shape)} {dtype}"
    cases: dict[str, CaseV2] = {}
    problems: dict[str, str] = {}
    for label, file in (("head", head), ("base", base)):
        try:
            cases[label] = build_case(file.kernel, hardware, shape=shape, dtype=dtype, threads=threads)
        except LedgerError as error:
            problems[label] = str(error)
    if listed == "base" and len(problems) == 2:
        return Skipped(head.kernel.name, cell, "removed", problems["base"])
    if "head" in problems:
        return Skipped(head.kernel.name, cell, "failed", problems["head"], "head")
    if "base" in problems:
        return Skipped(head.kernel.name, cell, "new", problems["base"])
    case, kernel = cases["head"], head.kernel
    roof = roof_of(hardware, kernel.path(dtype, hardware.target, case.implementation), None)
    floor_s = time_lower_bound_s(kernel.work(shape, dtype), roof)
    return Pair(Version(base, cases["base"]), Version(head, case), floor_s, listed)


def _same_code(pair: Pair, hardware: Hardware, known: tuple[dict[str, Digest], dict[str, Digest]]) -> bool:
    """Tell whether a case has the same machine code on both sides; what does not compile is found when it is run."""
    try:
        base, head = (
            machine_code(side.kernel, side.case, hardware.chip, digests)
            for side, digests in zip((pair.base, pair.head), known, strict=True)
        )
    except LedgerError:
        return False
    return base is not None and base == head and pair.base.case == pair.head.case


# Callables


def _callable(
    name: str, base: Side, head: Side, hardware: Hardware, wanted: Wanted, requests: Sequence[Request]
) -> Iterator[Pair | Skipped]:
    for request in requests or [_request(name, hardware, shape, wanted) for shape in wanted.shapes or [{}]]:
        own, floor_s = _resolved(request, head, hardware, wanted.arguments)
        before = None
        with suppress(LedgerError):
            before, _ = _resolved(request, base, hardware, wanted.arguments)
        kept = before is None or _described(before) == _described(own)
        try:
            first, _ = _resolved(_like(request, own), base, hardware, own.case.arguments)
        except LedgerError as error:
            yield Skipped(name, shape_text(request.shape) or None, "new", str(error))
        else:
            skipped = _skipped(name, difference(first.file.closure, own.file.closure), hardware)
            if skipped is not None and skipped.reason != "gpu code on a CPU" and not wanted.everything:
                yield skipped
                return
            versions = Version(first.file, first.case), Version(own.file, own.case)
            yield Pair(*versions, floor_s, "both" if kept else "head")
        if before is not None and not kept:
            yield _as_before(name, request, before, head, hardware)


def _as_before(name: str, request: Request, before: Resolved, head: Side, hardware: Hardware) -> Pair | Skipped:
    """Return the case that a callable describes itself with in base, where it is another one in head."""
    try:
        now, floor_s = _resolved(_like(request, before), head, hardware, before.case.arguments)
    except LedgerError as error:
        return Skipped(name, shape_text(before.case.shape) or None, "failed", str(error), "head")
    return Pair(Version(before.file, before.case), Version(now.file, now.case), floor_s, "base")


def _like(request: Request, found: Resolved) -> Request:
    return request.model_copy(update={"shape": found.case.shape, "dtype": found.case.dtype, "args": None})


def _described(found: Resolved) -> tuple[object, ...]:
    return found.case.shape, found.case.dtype, found.case.arguments


def _request(name: str, hardware: Hardware, shape: Shape, wanted: Wanted) -> Request:
    dtype = wanted.dtypes[0] if wanted.dtypes else None
    # A request is a forecast: regime and percent are not used.
    return Request(
        kernel=name,
        hardware=hardware.name,
        dtype=dtype,
        shape=dict(shape),
        regime="hbm-bound",
        pct=50,
        args=wanted.args,
    )


def _resolved(
    request: Request, side: Side, hardware: Hardware, arguments: tuple[Argument, ...] | None
) -> tuple[Resolved, float | None]:
    """Return a callable with its time lower bound, None where its work is neither counted nor given."""
    with kernels_shipped_from(side.root):
        try:
            found = resolve_callable(request, side.root, hardware, arguments)
        except InputError:
            if request.flops is not None and request.bytes is not None:
                raise
            given = request.model_copy(update={"flops": 1, "bytes": 1})
            return resolve_callable(given, side.root, hardware, arguments), None
    return found, time_lower_bound_s(found.work, roof_of(hardware, found.path, None))
