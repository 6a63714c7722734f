"""Makes subjects of a problem: the modules that a repository needs, and a cell for each workload and solution. Pure.

A cell names its callable, its arguments and its shape as a campaign file does. What cannot be a subject is listed with
the reason. Nothing of a problem is executed.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from ledger.callables.argument_list import MAX_KEYS, parse_arguments, with_keys
from ledger.errors import InputError
from ledger.problems.adapters import ADAPTER, CPP, Held, function_adapter, held_adapter, module_of, parameters
from ledger.problems.axes import axis_size, shape_keys, slug
from ledger.problems.cells import DTYPES, MAX_CELL, MAX_SUBJECT, Cell, Problem, ReadStored, Skipped, Subjects
from ledger.problems.documents import Given, Solution, Tensor, Trace
from ledger.problems.entry_points import check_run, outputs_passed

_BELOW = {"bool": 2, "int8": 128, "uint8": 256}
_KINDS = ("random", "scalar", "safetensors", "custom")
_PYTHON = frozenset({"python", "pytorch"})
_BUILT = frozenset({"cuda", "cpp", "cuda_cpp", "cutlass", "cudnn", "cublas"})


def subjects_of(problem: Problem, read_stored: ReadStored) -> Subjects:
    """Return the modules and the cells of a problem. Raises: InputError for sources that cannot be written."""
    found = Subjects()
    definition = problem.definition
    found.files["reference.py"] = definition.reference.encode()
    workloads = list(_distinct_workloads(problem.traces))
    names = solution_folders(problem.solutions)
    for solution in problem.solutions:
        found.files.update({f"{names[solution.name]}/{path}": one.encode() for path, one in solution.sources.items()})
    try:
        check_run(definition.reference, "run")
        _check_imports(definition.reference)
    except InputError as error:
        found.skipped.append(Skipped(definition.name, str(error)))
        return found
    makers = []
    for one in problem.solutions:
        maker = _Maker(problem, one, names[one.name], read_stored, found)
        try:
            maker.check()
        except InputError as error:
            found.skipped.append(Skipped(one.name, str(error)))
        else:
            makers.append(maker)
    for maker in makers:
        maker.make(workloads)
    _Maker(problem, None, "", read_stored, found).make(workloads, instead=bool(makers))
    if not workloads:
        found.skipped.append(Skipped(definition.name, "has no workload; expected one, which gives its sizes"))
    return found


def solution_folders(solutions: Sequence[Solution]) -> dict[str, str]:
    """Return the folder of each solution by its name."""
    found: dict[str, str] = {}
    for one in solutions:
        found[one.name] = slug(one.name, limit=24, taken=(*found.values(), "reference", ADAPTER))
    return found


def _distinct_workloads(traces: Sequence[Trace]) -> Iterator[Trace]:
    """Yield one trace for each workload: traces of several solutions repeat it."""
    seen: set[str] = set()
    for one in traces:
        key = repr((sorted(one.axes.items()), [(name, given) for name, given in sorted(one.inputs.items())]))
        if key not in seen:
            seen.add(key)
            yield one


def _check_imports(source: str) -> None:
    """Check that a source does not use the ledger, which can load files that no seal covers. Raises: InputError."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"source is not Python ({error}); expected a module") from error
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    if used := [name for name in names if name.partition(".")[0] == "ledger"]:
        raise InputError(f"imports {used[0]}; expected code that does not use the ledger: forecast its kernel by name")


class _Maker:
    """Make the cells of one solution, or of the reference alone."""

    def __init__(
        self, problem: Problem, solution: Solution | None, folder: str, read_stored: ReadStored, found: Subjects
    ) -> None:
        self.definition, self.solution, self.folder = problem.definition, solution, folder
        self.package, self.read_stored, self.found = problem.package, read_stored, found
        self.outputs_passed = solution is not None and outputs_passed(solution, self.definition)
        self.cells: set[tuple[str, tuple[tuple[str, int], ...]]] = set()

    def check(self) -> None:
        """Check that a solution can be called. Raises: InputError."""
        one = self.solution
        if one is None:
            return
        for path, text in one.sources.items():
            if path.endswith(".py"):
                _check_imports(text)
        suffix = PurePosixPath(one.path).suffix
        if suffix == ".py":
            module_of(one.path)
            check_run(one.sources[one.path], one.function)
        elif suffix in CPP:
            if one.binding != "torch" or not set(one.languages) <= _BUILT:
                raise InputError(
                    f"is {', '.join(one.languages)} bound by {one.binding}; expected CUDA or C++ that torch binds: "
                    "other builds are not made here"
                )
        else:
            raise InputError(f"entry point is {one.path[:80]!r}; expected Python, or C++ and CUDA that torch binds")
        if any(PurePosixPath(path).stem.startswith(ADAPTER) for path in one.sources):
            raise InputError(f"has a source named {ADAPTER}; expected that name to be free")

    def make(self, workloads: Sequence[Trace], *, instead: bool = False) -> None:
        """Add a cell for each workload, or why it has none, once for each reason; of `instead`, cells alone."""
        reasons: dict[str, int] = {}
        for workload in workloads:
            try:
                self.found.cells.append(replace(self.cell(workload), instead=instead))
            except InputError as error:
                reasons[str(error)] = reasons.get(str(error), 0) + 1
        name = self.definition.name if self.solution is None else self.solution.name
        for reason, count in reasons.items() if not instead else ():
            self.found.skipped.append(Skipped(f"{name}, {count} of {len(workloads)} workloads", reason))

    @property
    def needs_gpu(self) -> bool:
        return self.solution is not None and not set(self.solution.languages) <= _PYTHON

    def cell(self, workload: Trace) -> Cell:
        """Return the cell of a workload. Raises: InputError where it is none."""
        held = self._held(workload)
        kernel, reference = self._subject(workload, held)
        args, shape, dtype = self._arguments(workload, held, kernel)
        key = (kernel, tuple(sorted(shape.items())))
        if key in self.cells:
            raise InputError("has the sizes of an earlier workload; expected other sizes: a cell is named by them")
        with_keys(parse_arguments(args), shape)
        if dtype is None:
            raise InputError("no input is floating or int8; expected one, whose dtype selects the roof")
        self.cells.add(key)
        return Cell(
            kernel=kernel, args=args, shape=shape, definition=self.definition.name,
            solution=None if self.solution is None else self.solution.name, uuid=workload.uuid,
            workload=workload.data, reference=reference,
            needs_gpu=self.needs_gpu,
        )  # fmt: skip

    def _subject(self, workload: Trace, held: Held) -> tuple[str, str | None]:
        """Return the names of the callable and of its reference, and write the module between them where needed."""
        one, base = self.solution, f"{self.package}.{self.folder}" if self.folder else self.package
        if held.inputs:
            module = f"{ADAPTER}_{hashlib.sha256((workload.uuid or repr(workload.axes)).encode()).hexdigest()[:8]}"
            text = held_adapter(self.definition, one, held, outputs_passed=self.outputs_passed)
            self._write(module, text)
            return f"{base}.{module}:Subject", None if one is None else f"{base}.{module}:Reference"
        if one is None:
            return f"{self.package}.reference:run", None
        reference = f"{self.package}.reference:run"
        direct = f"{base}.{module_of(one.path)}:{one.function}" if one.path.endswith(".py") else ""
        if direct and not self.outputs_passed and len(direct) <= MAX_SUBJECT:
            return direct, reference
        self._write(ADAPTER, function_adapter(self.definition, one, outputs_passed=self.outputs_passed))
        return f"{base}.{ADAPTER}:run", reference

    def _write(self, module: str, text: str) -> None:
        self.found.files["/".join((*filter(None, [self.folder]), f"{module}.py"))] = text.encode()

    def _held(self, workload: Trace) -> Held:
        """Return the inputs that a module holds: integers from files, and what the problem's own code makes."""
        inputs = self.definition.inputs
        kinds = {name: workload.inputs.get(name, Given("random")) for name in inputs}
        chosen = [
            (position, name)
            for position, (name, tensor) in enumerate(inputs.items())
            if kinds[name].kind in ("safetensors", "custom") and not (tensor.dims is not None and _is_floating(tensor))
        ]
        if other := [f"{name} is {one.kind[:40]}" for name, one in kinds.items() if one.kind not in _KINDS]:
            raise InputError(f"input {other[0]}; expected random, scalar, safetensors or custom")
        made_by = self.definition.inputs_from
        custom = [name for _, name in chosen if kinds[name].kind == "custom"]
        if custom and made_by is None:
            raise InputError(f"input {custom[0]} is custom; expected custom_inputs_entrypoint in the definition")
        if custom and len(custom) < len(chosen):
            raise InputError("has custom inputs beside those of files; expected one of both")
        if custom:
            sizes = {name: axis_size(name, self.definition.axes, workload.axes) for name in self.definition.axes}
            scalars = {name: one.value for name, one in kinds.items() if one.value is not None}
            return Held(tuple(chosen), made_by=made_by, sizes={**sizes, **scalars})
        values = {name: self._stored(inputs[name], kinds[name], workload) for _, name in chosen}
        return Held(tuple(chosen), values=values)

    def _stored(self, tensor: Tensor, given: Given, workload: Trace) -> tuple[str, tuple[int, ...], str]:
        stored = self.read_stored(given.path, given.key)
        dims = tuple(axis_size(dim, self.definition.axes, workload.axes) for dim in tensor.dims or ())
        if stored.dims != dims or stored.dtype != tensor.dtype:
            raise InputError(
                f"{given.path}: {given.key} is {stored.dtype}{list(stored.dims)}; expected {tensor.dtype}{list(dims)}"
            )
        return stored.dtype, stored.dims, stored.data.hex()

    def _arguments(self, workload: Trace, held: Held, kernel: str) -> tuple[str, dict[str, int], str | None]:
        """Return the list of arguments, the shape, and the dtype of the first floating or int8 tensor."""
        tensors = {
            name: tensor
            for name, tensor in self.definition.inputs.items()
            if name not in held.names and tensor.dims is not None and not _is_scalar(workload, name)
        }
        used = dict.fromkeys(dim for one in tensors.values() for dim in one.dims or ())
        sizes = {dim: axis_size(dim, self.definition.axes, workload.axes) for dim in used}
        if zero := [dim for dim, size in sizes.items() if size < 1]:
            raise InputError(f"axis {zero[0]} is {sizes[zero[0]]}; expected at least 1")
        keys = self._keys(sizes, kernel)
        bound = min(sizes.values(), default=2)
        names = parameters(self.definition)
        listed = []
        for name, tensor in self.definition.inputs.items():
            if name in tensors:
                dims = ",".join(keys.get(dim, str(sizes[dim])) for dim in tensor.dims or ())
                listed.append(f"{names[name]}={_typed(name, tensor, dims, bound)}")
            elif name not in held.names:
                listed.append(f"{names[name]}={_scalar(name, tensor, workload.inputs.get(name))}")
        floating = [one.dtype for one in tensors.values() if _is_floating(one)]
        kinds = [*floating, *(one.dtype for one in tensors.values() if one.dtype == "int8")]
        return " ".join(listed), {keys[dim]: sizes[dim] for dim in keys}, DTYPES[kinds[0]] if kinds else None

    def _keys(self, sizes: Mapping[str, int], kernel: str) -> dict[str, str]:
        """Return the keys of the axes, as many as the name of a cell can hold: constant axes first become numbers."""
        named = [dim for dim in sizes if dim in self.definition.axes]
        varying = [dim for dim in named if self.definition.axes[dim].value is None]
        for chosen, short in ((named, False), (named, True), (varying, False), (varying, True), (varying[:4], True)):
            keys = shape_keys(chosen, short=short)
            length = len(kernel) + 10 + sum(1 + len(key) + len(str(sizes[dim])) for dim, key in keys.items())
            if length <= MAX_CELL and len(keys) <= MAX_KEYS:
                return keys
        return {}


def _is_floating(tensor: Tensor) -> bool:
    return tensor.dtype.startswith(("float", "bfloat"))


def _is_scalar(workload: Trace, name: str) -> bool:
    return name in workload.inputs and workload.inputs[name].kind == "scalar"


def _typed(name: str, tensor: Tensor, dims: str, bound: int) -> str:
    if tensor.dtype not in DTYPES:
        raise InputError(
            f"input {name}: dtype {tensor.dtype[:40]} cannot be filled; expected one of: {', '.join(DTYPES)}"
        )
    below = "" if _is_floating(tensor) else f"<{_BELOW.get(tensor.dtype, max(bound, 1))}"
    return f"{DTYPES[tensor.dtype]}[{dims}]{below}"


def _scalar(name: str, tensor: Tensor, given: Given | None) -> str:
    if given is None or given.value is None:
        raise InputError(f"input {name}: is a scalar without a value; expected one in the workload")
    if isinstance(given.value, bool):
        return "true" if given.value else "false"
    if abs(given.value) > 2**63:
        raise InputError(f"input {name}: its value is too large; expected one of 64 bits")
    return repr(float(given.value)) if _is_floating(tensor) else repr(given.value)
