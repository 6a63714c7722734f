"""Loads a callable with the sources that it imports, and gives it the form of a kernel file.

What executes are the bytes of its closure (ledger.sources). Imports torch only when a callable is loaded.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Any

from ledger.callables.argument_list import keys_of
from ledger.callables.calls import Call
from ledger.callables.counted_work import GIVEN_WORK, Counted, count, eagerly, input_specs
from ledger.callables.subject import SELF, Subject, is_callable, modules_of, sources_name, subject_of
from ledger.errors import CannotRun, InputError, LedgerError, MachineError, explained
from ledger.kernel import Config, Kernel, Launch, Tolerance, model_only
from ledger.kernel_files import KernelFile, execute, kernel_closure, load_kernel, shipped_folder
from ledger.operations import Operation, Shape
from ledger.records import Case, Dtype, Hardware, Path, Work, is_gpu
from ledger.roofline import ceilings_of
from ledger.sources.closure import Closure
from ledger.sources.collector import collect_module
from ledger.sources.loader import load
from ledger.suggestions import install_command

GPU, CPU = "torch", "torch-cpu"
_REASON = "relative to the root mean square of each output; the reference rounds no intermediate result"
_RELATIVE: dict[Dtype, float] = {
    "fp64": 1e-10, "fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2, "bf16": 6e-2, "fp8_e4m3": 0.25, "int8": 0.25,
}  # fmt: skip
TOLERANCES: dict[Dtype, Tolerance] = {dtype: Tolerance(size, size, _REASON) for dtype, size in _RELATIVE.items()}


def sources_of(case: Case, root: FilePath | None) -> tuple[Closure, bool]:
    """Return the sources of a case's kernel or callable as they are now, and whether they ship. Raises: InputError."""
    return closure_named(sources_name(case), root)


def closure_named(sources: str, root: FilePath | None) -> tuple[Closure, bool]:
    """Return the sources of a kernel, or of what `sources_name` names, and whether they ship; runs nothing.

    Raises: UnknownName, InputError.
    """
    if not is_callable(sources):
        return kernel_closure(sources, root)
    if root is None:
        raise InputError(f"{sources}: no repository here; expected one, from whose root modules are found")
    module, also = modules_of(sources)
    return collect_module(module, root=root, shipped=shipped_folder("kernels"), also=also), False


def load_case(case: Case, root: FilePath | None, *, launch: bool = False) -> KernelFile:
    """Load the kernel or callable of a case from the work tree. Raises: UnknownName, InputError, MachineError."""
    if not is_callable(case.kernel):
        return load_kernel(case.kernel, root, launch=launch)
    return load_subject(subject_of(case), closure_named(sources_name(case), root)[0])


def execute_case(closure: Closure, case: Case, *, shipped: bool, now: bool = True) -> KernelFile:
    """Load the kernel or callable of a case, ready to launch, from its sealed sources. Raises: as `execute`.

    now: execute the sources of a callable here, not where it is first called.
    """
    if not is_callable(case.kernel):
        return execute(closure, launch=True, shipped=shipped)
    return load_subject(subject_of(case), closure, now=now)


def load_subject(subject: Subject, closure: Closure, *, now: bool = True) -> KernelFile:
    """Return a callable in the form of a kernel file. now: execute its sources. Raises: InputError, MachineError."""

    @cache
    def function() -> Any:
        return attribute_of(subject.name, closure)

    if now:
        function()
        if subject.reference != SELF:
            attribute_of(subject.reference, closure, variant="_reference")
    return KernelFile(_kernel(subject, function, closure), closure, shipped=False)


def attribute_of(name: str, closure: Closure, *, variant: str = "") -> Any:
    """Return what module:name names, an instance where it is a class of modules.

    variant: the sources are executed once for each, so that what one keeps is not seen by another.
    Raises: InputError, MachineError.
    """
    import_torch_for(name)
    import torch

    module, _, attribute = name.partition(":")
    try:
        with model_only(False):
            found: Any = load(closure, variant=variant, module=module)
        for part in attribute.split("."):
            found = getattr(found, part)
        if isinstance(found, type) and issubclass(found, torch.nn.Module):
            found = found()
    except LedgerError:
        raise
    # A user's module may raise anything, SystemExit included.
    except (Exception, SystemExit) as error:
        # A sealed module's name here is that of its closure; the user knows its own.
        told = re.sub(r"ledger_sealed_\w+\.", "", str(error))
        raise InputError(f"{name}: cannot be loaded ({type(error).__name__}: {told}); expected a callable") from error
    if type(found).__module__.partition(".")[0] == "triton":
        raise InputError(
            f"{name}: is a kernel of Triton, which allocates no result and knows no grid; expected a function around "
            f"it: def call(x): y = torch.empty_like(x); {attribute}[grid](x, y, …); return y"
        )
    if not callable(found):
        raise InputError(f"{name}: is of type {type(found).__name__}; expected a function or module of torch")
    return found


def import_torch_for(name: str) -> None:
    """Check that torch is installed. Raises: MachineError."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MachineError(
            f"{name}: torch is not installed; expected it for a callable: {install_command('torch')}"
        ) from error


def _kernel(subject: Subject, function: Callable[[], Any], closure: Closure) -> Kernel:
    # A callable may keep results or workspaces from call to call, on meta tensors and in float64 too.
    counter = itertools.count()

    @cache
    def counted(sizes: tuple[tuple[str, int], ...]) -> Counted:
        try:
            found = count(attribute_of(subject.name, closure, variant="_work"), subject, specs(sizes))
            if subject.reference != SELF:
                _work(found, subject)
        except CannotRun:
            raise
        except InputError:
            if subject.reference == SELF:
                raise
            # Kernels that a callable launches by itself are not seen: the reference computes the same result.
            return count(attribute_of(subject.reference, closure, variant="_work"), subject, specs(sizes))
        return found

    def reference(inputs: Mapping[str, Any]) -> list[Any]:
        name = subject.name if subject.reference == SELF else subject.reference
        own = attribute_of(name, closure, variant=f"_reference{next(counter)}")
        return reference_results(subject, own, inputs)

    def own_reference() -> Any:
        return attribute_of(subject.reference, closure, variant="_reference")

    @cache
    def specs(sizes: tuple[tuple[str, int], ...]) -> Any:
        function = attribute_of(subject.name, closure, variant="_work")
        return input_specs(function, subject, dict(sizes), None if subject.reference == SELF else own_reference)

    def elements(shape: Shape) -> tuple[int, ...]:
        found = known(shape)
        return (0,) if found is None else (found.elements,)

    def known(shape: Shape) -> Counted | None:
        if not subject.counted:
            return None
        try:
            return counted(tuple(shape.items()))
        except InputError:
            return None

    def result_bytes(shape: Shape) -> int:
        found = known(shape)
        return 0 if found is None else found.work.bytes_written

    def prepare(inputs: Mapping[str, Any], _out: Any, _config: Config) -> Launch:
        return Call(function(), subject, inputs, run=subject.run)

    operation = Operation(
        name=subject.operation,
        shape_keys=keys_of(subject.arguments) or ("N0",),
        inputs=lambda shape: specs(tuple(shape.items())),
        output_dims=elements,
        element=_no_element,
        products=lambda _shape: 0,
        output_dtype=lambda _dtype: "fp64",
        result_bytes=result_bytes,
    )
    return Kernel(
        name=subject.name,
        operation=operation,
        summary=f"callable {subject.name}, {subject.run}",
        formula=f"{subject.name}({', '.join(one.name for one in subject.arguments)})",
        dtypes=tuple(TOLERANCES),
        work=lambda shape, _dtype: _work(counted(tuple(shape.items())), subject),
        excludes="FLOP of elementwise operations; traffic of intermediate results",
        path=lambda dtype, _target, implementation: vector_path(dtype) if implementation == CPU else tensor_path(dtype),
        config=lambda _shape, _dtype, _target: {},
        check_config=lambda _config, _shape, _dtype, _target: None,
        tolerances=_tolerances(subject),
        cases=(),
        implementations={GPU: prepare, CPU: prepare},
        reference=reference,
        launched=".",
    )


def _tolerances(subject: Subject) -> Mapping[Dtype, Tolerance]:
    if subject.tolerance is None:
        return TOLERANCES
    bound = Tolerance(float(subject.tolerance), float(subject.tolerance), f"as its author sealed it, {_REASON}")
    return dict.fromkeys(TOLERANCES, bound)


def _no_element(_shape: Shape, _position: int, _read: Any) -> float:
    raise InputError("an element of a callable's output cannot be computed alone; expected --recompute --run-code")


def _work(counted: Counted, subject: Subject) -> Work:
    if counted.unseen:
        raise InputError(
            f"{subject.name}: torch cannot count what {', '.join(counted.unseen[:4])} does; expected {GIVEN_WORK}"
        )
    if counted.operations == 0:
        raise InputError(
            f"{subject.name}: no operation of torch was seen, as of a kernel that it launches by itself; expected "
            f"{GIVEN_WORK}"
        )
    return counted.work


def reference_results(subject: Subject, reference: Any, inputs: Mapping[str, Any]) -> list[Any]:
    """Return the results of a reference on copies of some inputs in float64. Raises: InputError where it fails."""
    copies = {
        name: tensor.double() if tensor.is_floating_point() else tensor.clone() for name, tensor in inputs.items()
    }
    copies = {name: tensor.clone() if tensor is inputs[name] else tensor for name, tensor in copies.items()}
    try:
        with eagerly():
            call = Call(reference, subject, copies, run=subject.run)
            call()
            call.note_written(_written(call, inputs))
    # A callable may raise anything where its inputs are float64.
    except (Exception, SystemExit) as error:
        name = subject.name if subject.reference == SELF else subject.reference
        raise InputError(
            f"{name} fails on inputs in float64 ({explained(error, 300)}); expected --reference module:name, one that "
            "takes them"
        ) from error
    return call.results()


def _written(call: Call, inputs: Mapping[str, Any]) -> frozenset[str]:
    """Return the inputs that a call in float64 has changed: of running statistics torch counts no change."""
    import torch

    found = {name: call.inputs[name].detach() for name in inputs}
    return frozenset(name for name, one in found.items() if not torch.equal(one, inputs[name].to(one.dtype)))


def vector_path(_dtype: Dtype) -> Path:
    """Return the path of a CPU, whose profile has one peak."""
    return "fp32"


def tensor_path(dtype: Dtype) -> Path:
    """Return the fastest instruction path of a dtype on a GPU: a higher roof makes no measurement impossible."""
    paths: dict[Dtype, Path] = {
        "fp64": "fp64_tensor", "fp32": "fp32", "tf32": "tf32_tensor", "fp16": "fp16_tensor", "bf16": "bf16_tensor",
        "fp8_e4m3": "fp8_tensor", "int8": "int8_tensor",
    }  # fmt: skip
    return paths[dtype]


def path_on(dtype: Dtype, hardware: Hardware) -> Path:
    """Return the instruction path of a callable's roof on a device; a chip without tensor cores has the vector one."""
    if not is_gpu(hardware.target):
        return vector_path(dtype)
    wanted = tensor_path(dtype)
    vector: dict[Dtype, Path] = {"fp64": "fp64", "fp16": "fp16"}
    peaks = ceilings_of(hardware, None)[1].peaks
    return wanted if wanted in peaks or dtype not in vector else vector[dtype]
