"""Counts the work of a callable without running it on a device: FLOP by torch's counter, bytes by its tensors.

FLOP are those of products, as torch's FlopCounterMode counts them; elementwise operations count none. Bytes are every
distinct input and parameter read once, every distinct result written once. Imports torch, only when called.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.callables.argument_list import FLOATING, parameter_spec, tensor_spec
from ledger.callables.calls import BUFFER, GRADIENT, PARAMETER, Call, module_tensors, tensors_in
from ledger.callables.flop_counter import product_counter
from ledger.callables.subject import Subject
from ledger.errors import CannotRun, InputError, explained
from ledger.operations import Shape, TensorSpec
from ledger.philox_inputs import Generated
from ledger.records import Work

if TYPE_CHECKING:
    import torch

MAX_CPU_BYTES = 2**30
GIVEN_WORK = "--flops N and --bytes N, the operations and the bytes of one call"
_NAMES = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float8_e4m3fn": "fp8_e4m3",
    "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "uint8": "uint8", "bool": "bool",
}  # fmt: skip


@dataclass(frozen=True)
class Counted:
    """Hold what one call does. operations: how many operations of torch it makes. elements: of its results.

    unseen: names of operations whose products torch cannot count, and of kernels of Triton, which were not launched.
    """

    work: Work
    operations: int
    elements: int
    results: tuple[tuple[tuple[int, ...], str], ...]
    unseen: tuple[str, ...] = ()


def dtype_name(dtype: torch.dtype) -> str:
    """Return the ledger's name of an element type. Raises: InputError for one without."""
    text = str(dtype).removeprefix("torch.")
    if text not in _NAMES:
        raise InputError(f"dtype {text} of a parameter or result; expected one of: {', '.join(_NAMES)}")
    return _NAMES[text]


def input_specs(
    function: Any, subject: Subject, shape: Shape, reference: Callable[[], Any] | None = None
) -> tuple[TensorSpec, ...]:
    """Return the tensors that a call reads, in the order that numbers them: arguments, parameters, buffers, gradients.

    Gradients of the results are inputs of a backward pass; their sizes are those of a forward pass on meta tensors, of
    the reference where the callable does not run on those. reference: loads it.
    Raises: InputError for a backward pass where neither runs on meta tensors.
    """
    given = [tensor_spec(one, shape) for one in subject.arguments if one.dims is not None]
    given += [
        parameter_spec(name, tuple(tensor.shape), dtype_name(tensor.dtype)) for name, tensor in module_tensors(function)
    ]
    if subject.run == "forward":
        return tuple(given)
    return (*given, *_gradients(function, subject, given, reference))


def _gradients(
    function: Any, subject: Subject, given: Sequence[TensorSpec], reference: Callable[[], Any] | None
) -> list[TensorSpec]:
    outputs = _differentiable(function, subject, given)
    if isinstance(outputs, BaseException) and reference is not None:
        outputs = _differentiable(reference(), subject, given)
    if isinstance(outputs, BaseException):
        raise InputError(
            f"{subject.name}: a forward pass on meta tensors fails, which gives the sizes of its gradients "
            f"({explained(outputs, 300)}); expected a callable of torch operations, a --reference of them, or --pass "
            "forward"
        ) from outputs
    return [
        TensorSpec(f"{GRADIENT}{number}", tuple(one.shape), Generated("bell", -6), dtype_name(one.dtype))
        for number, one in enumerate(outputs)
    ]


def _differentiable(function: Any, subject: Subject, given: Sequence[TensorSpec]) -> list[torch.Tensor] | BaseException:
    """Return the results that take a gradient, of a forward pass on meta tensors, or what it raised."""
    try:
        with eagerly(), unlaunched():
            return Call(function, subject, empty_inputs(given, "meta"), run="both").differentiable()
    # A callable may raise anything where it does not know meta tensors.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return error


def empty_inputs(specs: Iterable[TensorSpec], device: str) -> dict[str, torch.Tensor]:
    """Return tensors of the inputs' sizes and dtypes, all zero."""
    import torch

    types = {ours: getattr(torch, theirs) for theirs, ours in _NAMES.items()}
    return {spec.name: torch.zeros(spec.dims, dtype=types[spec.dtype or "fp32"], device=device) for spec in specs}


def count(function: Any, subject: Subject, specs: Sequence[TensorSpec]) -> Counted:
    """Return the work of one call, counted on meta tensors, or on the CPU where the callable does not know those.

    Raises: InputError where neither runs; CannotRun where it multiplies matrices of two dtypes.
    """
    try:
        return _counted(function, subject, empty_inputs(specs, "meta"))
    except _MixedOperands as error:
        raise CannotRun(
            f"{subject.name}: {error}, which torch refuses ({_dtypes_text(specs)}); expected one dtype: convert the "
            "module, as by half(), or change --args"
        ) from error
    # A callable may raise anything.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        first: BaseException = error
    size = sum(math.prod(spec.dims) for spec in specs) * 8
    if size <= MAX_CPU_BYTES:
        try:
            return _counted(function, subject, empty_inputs(specs, "cpu"))
        except (Exception, SystemExit) as error:  # noqa: BLE001
            first = error
    raise InputError(
        f"{subject.name}: its work cannot be counted ({explained(first, 300)}); expected arguments that it takes, and "
        f"of a kernel that torch does not see {GIVEN_WORK}"
    ) from first


def _dtypes_text(specs: Iterable[TensorSpec]) -> str:
    """Return the floating dtypes of parameters and arguments: parameters are fp32, x is fp16."""
    found: dict[str, dict[str, None]] = {}
    for spec in specs:
        if spec.dtype in FLOATING and not spec.name.startswith(GRADIENT):
            what = "parameters are" if spec.name.startswith((PARAMETER, BUFFER)) else f"{spec.name} is"
            found.setdefault(what, {})[spec.dtype] = None
    return ", ".join(f"{what} {' and '.join(dtypes)}" for what, dtypes in sorted(found.items()))


def _counted(function: Any, subject: Subject, inputs: Mapping[str, torch.Tensor]) -> Counted:
    with eagerly():
        call = Call(function, subject, inputs, run=subject.run)
        operations = _Operations()
        counter = product_counter()
        with _autocasts() as casts, counter, operations.mode(casts), unlaunched() as kernels:
            call()
    results = call.results()
    changed = {storage(tensor) for tensor in call.changed()}
    read = {storage(tensor): touched(tensor) for tensor in inputs.values()}
    written = {storage(tensor): touched(tensor) for tensor in results}
    # A result that is an input, or a view of one, was written only where that input was changed.
    moved = sum(size for key, size in written.items() if key not in read or key in changed)
    return Counted(
        work=Work(flops=int(counter.get_total_flops()), bytes_read=sum(read.values()), bytes_written=moved),
        operations=operations.count,
        elements=sum(tensor.numel() for tensor in results),
        results=tuple((tuple(tensor.shape), str(tensor.dtype)) for tensor in results),
        unseen=tuple(dict.fromkeys([*kernels, *operations.uncounted])),
    )


def storage(tensor: torch.Tensor) -> int:
    """Return what identifies the memory of a tensor."""
    return int(tensor.untyped_storage()._cdata)


def touched(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor; an expanded one holds fewer than its elements."""
    return min(int(tensor.numel() * tensor.element_size()), int(tensor.untyped_storage().nbytes()))


def eagerly() -> Any:
    """Return a context in which a compiled callable runs as it was written."""
    import torch

    return torch.compiler.set_stance("force_eager")


@contextmanager
def unlaunched() -> Iterator[list[str]]:
    """Keep kernels of Triton from being launched in the block, and yield the names of those that would have been.

    On meta tensors a kernel would read address 0, which ends the use of the device.
    """
    launched: list[str] = []
    classes = [
        getattr(module, name)
        for module, name in (
            (sys.modules.get("triton.runtime.jit"), "JITFunction"),
            (sys.modules.get("triton.runtime.autotuner"), "Autotuner"),
            (sys.modules.get("triton.runtime.autotuner"), "Heuristics"),
        )
        if hasattr(module, name)
    ]
    own = [found.run for found in classes]

    def run(kernel: Any, *_: object, **__: object) -> None:
        while hasattr(kernel, "fn") and not hasattr(kernel, "__name__"):
            kernel = kernel.fn
        launched.append(f"the kernel {getattr(kernel, '__name__', 'of Triton')}")

    for found in classes:
        found.run = run
    try:
        yield launched
    finally:
        for found, method in zip(classes, own, strict=True):
            found.run = method


@contextmanager
def _autocasts() -> Iterator[list[object]]:
    """Yield a list that holds what torch.autocast is entered with in the block; it casts nothing on meta tensors."""
    import torch

    entered: list[object] = []
    enter = torch.autocast.__enter__

    def noting(self: Any) -> Any:
        entered.append(self.device)
        return enter(self)

    torch.autocast.__enter__ = noting
    try:
        yield entered
    finally:
        torch.autocast.__enter__ = enter


class _MixedOperands(Exception):
    """Report a product of matrices of two dtypes, which fails on every device and passes on meta tensors."""


def _check_operands(function: Any, args: Sequence[Any]) -> None:
    """Check that two matrices that are multiplied have one dtype. Raises: _MixedOperands."""
    import torch

    name, _, overload = str(function).removeprefix("aten.").partition(".")
    if name in _PRODUCTS and overload == "default":
        first, second = [one for one in args if isinstance(one, torch.Tensor)][-2:]
        if first.dtype != second.dtype and first.is_floating_point() and second.is_floating_point():
            raise _MixedOperands(f"aten.{name} multiplies {dtype_name(first.dtype)} by {dtype_name(second.dtype)}")


class _Operations:
    """Count operations of torch, so that a callable that launches kernels by itself is noticed."""

    def __init__(self) -> None:
        self.count = 0
        self.uncounted: list[str] = []

    def mode(self, casts: Sequence[object]) -> Any:
        """Return the mode that counts. casts: not empty once autocast was entered, which changes dtypes."""
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils.flop_counter import flop_registry

        watcher = self

        class Mode(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                name = str(function)
                if not casts:
                    _check_operands(function, args)
                if not name.startswith(_BARE) and any(True for _ in tensors_in([*args, *(kwargs or {}).values()])):
                    watcher.count += 1
                if function.namespace not in _TORCH_NAMESPACES and function._overloadpacket not in flop_registry:
                    watcher.uncounted.append(name)
                return function(*args, **(kwargs or {}))

        return Mode()


_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot")
_TORCH_NAMESPACES = ("aten", "prim", "prims", "profiler", "torchvision")
_BARE = ("aten.empty", "aten.new_empty", "aten.detach", "aten.view", "aten._unsafe_view", "aten.zeros", "aten.alias")
