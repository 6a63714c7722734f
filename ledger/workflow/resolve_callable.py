"""Resolves a forecast of a callable: loads it, describes its arguments, counts its work, makes its case."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.campaign import CellRequest
from ledger.callables.argument_list import first_dtype, with_keys
from ledger.callables.calls import check_signature
from ledger.callables.recorded_arguments import described
from ledger.callables.subject import SELF, Pass, Subject, cell_suffix, check_tolerance, checked
from ledger.callables.subject_files import CPU, GPU, attribute_of, closure_named, load_subject, path_on
from ledger.canonical import cell_key, record_errors
from ledger.device.facts import cpu_cores
from ledger.errors import InputError
from ledger.kernel import DEFAULTS
from ledger.kernel_files import KernelFile
from ledger.records import Argument, CaseV2, Dtype, Hardware, Path, Work, is_gpu


@dataclass(frozen=True)
class Resolved:
    """Hold what a forecast is made of: its case with a name, its work and the path of its roof."""

    file: KernelFile
    case: CaseV2
    cell: str
    work: Work
    path: Path


def resolve_callable(
    request: CellRequest, root: FilePath | None, hardware: Hardware, arguments: tuple[Argument, ...] | None = None
) -> Resolved:
    """Return a forecast of a callable, resolved. arguments: those of the request where they are not a text.

    Raises: InputError, with what is missing; MachineError without torch; RecordError.
    """
    name = checked(Subject(request.kernel, ())).name
    function = attribute_of(name, closure_named(name, root)[0])
    # What the decorator @ledger.kernel(...) gave to it.
    defaults = dict(getattr(function, DEFAULTS, {}))
    if arguments is None:
        wanted = request.args if request.args is not None else defaults.get("args")
        if wanted is None:
            raise InputError(
                f"{name}: no --args; expected its arguments, as in 'x=fp16[B,2*H] ids=i64[B]<32000 eps=1e-6'"
            )
        arguments = described(wanted, function)
    arguments, shape = with_keys(arguments, request.shape or dict(defaults.get("shape") or {}))
    run: Pass = request.run or defaults.get("run") or "forward"
    reference = request.reference or defaults.get("reference") or SELF
    dtype = request.dtype or defaults.get("dtype") or first_dtype(arguments)
    tolerance = _tolerance(request.tolerance if request.tolerance is not None else defaults.get("tolerance"), dtype)
    flops = request.flops if request.flops is not None else defaults.get("flops")
    moved = request.bytes if request.bytes is not None else defaults.get("bytes")
    subject = checked(Subject(name, arguments, run, reference, tolerance, counted=flops is None and moved is None))
    check_signature(function, subject)
    sources = name if reference == SELF else f"{name} {reference}"
    file = load_subject(subject, closure_named(sources, root)[0])
    work = _work(file, shape, dtype, flops=flops, moved=moved)
    with record_errors(f"{name}"):
        case = CaseV2(
            kernel=name,
            shape=shape,
            dtype=dtype,
            hardware=hardware.name,
            implementation=GPU if is_gpu(hardware.target) else CPU,
            config=subject.config("counted" if subject.counted else "given"),
            threads=_threads(request, hardware),
            arguments=arguments,
        )
    return Resolved(file, case, cell_key(case) + cell_suffix(case.config), work, path_on(dtype, hardware))


def _tolerance(given: float | None, dtype: Dtype) -> str | None:
    """Return a tolerance as it is sealed. Raises: InputError for one that is too wide."""
    if given is None:
        return None
    text = f"{given:g}"
    check_tolerance(text, dtype)
    return text


def _threads(request: CellRequest, hardware: Hardware) -> int | None:
    if request.threads is not None or is_gpu(hardware.target):
        return request.threads
    return cpu_cores()


def _work(file: KernelFile, shape: dict[str, int], dtype: Any, *, flops: int | None, moved: int | None) -> Work:
    """Return the work as it was given, and as it is counted where it was not. Bytes that are given count as read.

    Raises: InputError where it can neither be counted nor was given.
    """
    if flops is not None and moved is not None:
        return Work(flops=flops, bytes_read=moved, bytes_written=0)
    counted = file.kernel.work(shape, dtype)
    if flops is not None:
        return counted.model_copy(update={"flops": flops})
    return counted if moved is None else Work(flops=counted.flops, bytes_read=moved, bytes_written=0)
