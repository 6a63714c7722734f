"""Records the phases of a kernel's warps with Proton, Triton's profiler. Imports torch and triton, only when called.

Proton's scopes are put into the source of the Triton or Gluon functions that a call launches, for this process alone:
the kernel file and what a seal names stay as they are. Scopes cost clocks and keep instructions in order, so that the
trace explains where warps wait, and no time of it is a measurement.
"""

from __future__ import annotations

import functools
import gzip
import importlib
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.inside_trace import Scope, scopes_of
from ledger.analysis.kernel_scopes import (
    MODULE,
    Kind,
    has_phases,
    instrumented,
    kinds_in,
    names_called,
    partitions,
)
from ledger.device.facts import facts_for, import_torch, require_profile
from ledger.errors import InputError, MachineError, explained
from ledger.kernel import AheadCuda, Config, Kernel
from ledger.kernel_files import KernelFile, build_case
from ledger.measure.compilation import launched_with
from ledger.measure.contestants import SEED, Cell, shape_list
from ledger.measure.correctness import compare, explain_failure
from ledger.measure.inputs import InputSet, input_sets
from ledger.measure.run_cell import release
from ledger.record_files import write_atomically
from ledger.records import Case, Correctness, Hardware, is_gpu

# 32-bit clocks and their own cost subtracted: fewer clocks are spent on the records themselves.
_OPTIMIZATIONS = "clock32,time_shift"


@dataclass(frozen=True)
class Inside:
    """Hold what a trace of the inside of a kernel shows, and how far the traced call was from float64."""

    path: FilePath
    device: str
    case: Case
    functions: tuple[str, ...]
    scopes: tuple[Scope, ...]
    correctness: Correctness

    def document(self) -> dict[str, Any]:
        """Return the trace as ledger timeline --inside prints it."""
        return {
            "path": str(self.path),
            "device": self.device,
            "kernel": self.case.kernel,
            "shape": dict(self.case.shape),
            "dtype": self.case.dtype,
            "config": dict(self.case.config),
            "functions": list(self.functions),
            "scopes": [asdict(one) for one in self.scopes],
            "relative_error": self.correctness.relative_error,
        }


def record_inside(
    file: KernelFile, cell: Cell, *, hardware: Hardware, path: FilePath, config: Config | None = None
) -> Inside:
    """Write the trace of one call of a cell to `path` and return what it shows.

    config: values that replace the kernel's own. Raises: InputError for CUDA C++, which Proton does not instrument;
    MachineError without an NVIDIA or AMD GPU, without Proton, or when the traced call is wrong.
    """
    if not is_gpu(hardware.target):
        raise MachineError(f"--inside: {hardware.name} ({hardware.target}) is no GPU; expected one, with Triton")
    facts = facts_for(hardware)
    require_profile(hardware, facts)
    shape, dtype = cell
    case = build_case(file.kernel, hardware, shape=shape, dtype=dtype)
    if config:
        case = case.model_copy(update={"config": {**case.config, **config}})
        file.kernel.check_config(case.config, shape, dtype, hardware.chip)
    entry, ctas = _entry(file.kernel, case, hardware.chip)
    (inputs,) = input_sets(
        file.kernel.operation, case.shape, case.dtype, seal=SEED, cell=f"{case.kernel}-{shape_list(case)}",
        run=0, anchor=None, count=1, device="cuda",
    )  # fmt: skip
    with with_scopes(entry) as (kinds, functions):
        document, correctness = _traced(file.kernel, case, inputs)
    release("cuda")
    data = (json.dumps(document) + "\n").encode()
    write_atomically(path, gzip.compress(data) if path.suffix == ".gz" else data)
    scopes = scopes_of(document, kinds, file.kernel.work(shape, dtype), ctas=ctas)
    return Inside(path, facts.name, case, functions, scopes, correctness)


def _entry(kernel: Kernel, case: Case, target: str) -> tuple[Any, int]:
    """Return the function that a call launches, and its CTAs. Raises: InputError for one that Proton cannot trace."""
    if kernel.ahead is None:
        raise InputError(f"{kernel.name}: --inside needs Kernel(ahead=…), which names the launched function")
    ahead = kernel.ahead(case.config, case.shape, case.dtype, target)
    if isinstance(ahead, AheadCuda):
        raise InputError(
            f"{kernel.name} {shape_list(case)} {case.dtype}: its variant is CUDA C++, in which Proton has no scopes; "
            "expected Triton or Gluon: --config variant=generic, or variant=warp_specialised where there is one"
        )
    launched = launched_with(kernel, ahead, case.config, shape=case.shape, dtype=case.dtype)
    ctas = 1 if launched is None else math.prod(launched.grid)
    return ahead.function, ctas


@contextmanager
def with_scopes(entry: Any) -> Iterator[tuple[dict[str, Kind | None], tuple[str, ...]]]:
    """Put scopes into a function and the functions that its warps run, inside the block.

    Yields the scopes by name, and the functions. Raises: MachineError without Proton; InputError for a function without
    phases.
    """
    language = _proton("triton.profiler.language")
    gluon = bool(getattr(entry, "is_gluon", lambda: False)())
    if not gluon:
        language.enable_semantic("triton")
    functions = _with_phases(entry)
    before = [function.src for function in functions]
    written = [
        instrumented(
            function.src, first_line=_first_line(function), open_loops=gluon, kinds_of=_kinds_of(_globals(function))
        )
        for function in functions
    ]
    scopes = {name: kind for _, found in written for name, kind in found.items()}
    if not scopes:
        raise InputError(f"{entry.__name__}: no statement loads, waits, multiplies or stores; expected one at least")
    for function in functions:
        _globals(function)[MODULE] = language
    try:
        _replace(functions, [text for text, _ in written])
        yield scopes, tuple(function.__name__ for function in functions)
    finally:
        # Loaded kernels share their functions: another launch in this process must find the source as it was.
        _replace(functions, before)
        for function in functions:
            _globals(function).pop(MODULE, None)


def _replace(functions: Sequence[Any], texts: Sequence[str]) -> None:
    """Give functions other sources, and drop what was compiled of the earlier ones."""
    for function, text in zip(functions, texts, strict=True):
        function._unsafe_update_src(text)
    for function in functions:
        function.hash = None
        function.device_caches.clear()


def _with_phases(entry: Any) -> list[Any]:
    """Return a function, those that its warps run, and those that it calls which have phases of their own."""
    found, left = [], [entry]
    while left:
        function = left.pop(0)
        if function in found:
            continue
        found.append(function)
        space, kinds_of = _globals(function), _kinds_of(_globals(function))
        called = [name for name in sorted(names_called(function.src)) if has_phases(kinds_of(name))]
        left += [space[name] for name in (*partitions(function.src), *called) if hasattr(space.get(name), "src")]
    return found


def _proton(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MachineError(
            f"{module} cannot be imported ({explained(error, 200)}); expected a Triton with Proton"
        ) from error


def _globals(function: Any) -> dict[str, Any]:
    space: dict[str, Any] = function.fn.__globals__
    return space


def _first_line(function: Any) -> int:
    # Triton's source begins at "def"; the file's line count begins at the decorator.
    before = function.raw_src
    lines = [number for number, line in enumerate(before) if line.lstrip().startswith("def ")]
    return int(function.starting_line_number) + (lines[0] if lines else 0)


def _kinds_of(space: Mapping[str, Any], outer: frozenset[int] = frozenset()) -> Callable[[str], frozenset[Kind]]:
    """Return a function that says what a jitted function of a module does, by its name there.

    outer: the functions being read, which may call one another.
    """

    def kinds(name: str) -> frozenset[Kind]:
        function = space.get(name)
        source = getattr(function, "src", None)
        if id(function) in outer or not isinstance(source, str) or not source.startswith("def "):
            return frozenset()
        return kinds_in(source, _kinds_of(_globals(function), outer | {id(function)}))

    return functools.cache(kinds)


def _traced(kernel: Kernel, case: Case, inputs: InputSet) -> tuple[dict[str, Any], Correctness]:
    """Launch a case once under Proton; return its trace and how far the result is from float64."""
    torch, proton = import_torch(), _proton("triton.profiler")
    with tempfile.TemporaryDirectory(prefix="ledger-inside-") as folder:
        name = FilePath(folder) / "inside"
        mode = proton.mode.Default(optimizations=_OPTIMIZATIONS)
        session = proton.start(str(name), data="trace", backend="instrumentation", mode=mode)
        try:
            inputs.out.fill_(float("nan"))
            kernel.implementations[case.implementation](inputs.inputs, inputs.out, case.config)()
            torch.cuda.synchronize()
        finally:
            proton.finalize(session)
        written = sorted(FilePath(folder).glob("*.chrome_trace"))
        if len(written) != 1:
            raise MachineError(f"Proton wrote {len(written)} traces; expected 1: did the kernel launch?")
        document: dict[str, Any] = json.loads(written[0].read_bytes())
    reference = kernel.reference(inputs.inputs)
    found = compare(inputs.out, reference, kernel.tolerances[case.dtype], name=f"{kernel.operation.name} in float64")
    if not found.passed:
        raise MachineError(f"{kernel.name} with scopes: {explain_failure(found)}")
    return document, found
