"""Registers each shipped kernel as a torch operation, ledger::NAME, and returns the function that calls it.

On a GPU a call runs the kernel's GPU implementation with the configuration of its launch rule; on a CPU, torch-cpu. The
operation has a fake implementation and no backward. Imports torch, only when called.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.device.facts import import_torch, target_of
from ledger.errors import InputError
from ledger.kernel import CPU_IMPLEMENTATION, GPU_IMPLEMENTATIONS, Config, Kernel
from ledger.kernel_files import load_kernel
from ledger.library.launch_cache import LaunchCache, keep
from ledger.library.signature import Signature, signature_of
from ledger.measure.inputs import torch_dtype
from ledger.operations import Shape
from ledger.records import Dtype

if TYPE_CHECKING:
    import torch

NAMESPACE = "ledger"
_ALIGNMENT = 16
_MOST_SHAPES = 1024

# Kernels that read an operand before the launch ahead has ended, where that launch must not have written it. A caller
# promises nothing, so their launches wait.
_READS_EARLY = ("rmsnorm_matmul",)


@dataclass(frozen=True)
class _Plan:
    """Hold what calls with inputs of some sizes, dtype and device share: the result's size, and how it is launched."""

    dims: tuple[int, ...]
    dtype: torch.dtype
    config: Config
    cache: LaunchCache


class KernelOperation:
    """Implement one kernel's operation for CPU, CUDA and fake tensors."""

    def __init__(self, name: str) -> None:
        """Take the name of a shipped kernel. Raises: MachineError without torch; UnknownName."""
        self._torch: Any = import_torch()
        self.kernel: Kernel = load_kernel(name).kernel
        self.signature: Signature = signature_of(name, self.kernel.operation)
        self.names = tuple(one for one, _ in self.signature.inputs)
        self._dtypes: dict[torch.dtype, Dtype] = {torch_dtype(dtype): dtype for dtype in self.kernel.dtypes}
        self._plans: dict[Any, _Plan] = {}
        self._results: dict[Any, tuple[tuple[int, ...], torch.dtype]] = {}

    @property
    def schema(self) -> str:
        """Return the operation's schema."""
        return f"{self.kernel.name}({', '.join(f'Tensor {name}' for name in self.names)}) -> Tensor"

    # Implementations

    def fake(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return an empty result, with checks, for tensors without storage."""
        dims, dtype = self._result(*self._checked(tensors))
        return tensors[0].new_empty(dims, dtype=dtype)

    def cpu(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the result of the implementation in torch."""
        key = _sizes(tensors)
        result = self._results.get(key)
        if result is None:
            result = keep(self._results, key, self._result(*self._checked(tensors)), most=_MOST_SHAPES)
        out: torch.Tensor = self._torch.empty(result[0], dtype=result[1])
        inputs = dict(zip(self.names, [tensor.contiguous() for tensor in tensors], strict=True))
        self.kernel.implementations[CPU_IMPLEMENTATION](inputs, out, {})()
        return out

    def cuda(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Return the result of the GPU implementation; launches come from the cache but while a graph is captured."""
        torch = self._torch
        ready = [tensor if _is_ready(tensor) else _copied(torch, tensor) for tensor in tensors]
        device = ready[0].device
        key = _sizes(ready)
        plan = self._plans.get(key)
        if plan is None:
            plan = keep(self._plans, key, self._plan(ready), most=_MOST_SHAPES)
        if device.index != torch.cuda.current_device():
            with torch.cuda.device(device):
                return self._run(ready, plan)
        return self._run(ready, plan)

    def _run(self, tensors: Sequence[torch.Tensor], plan: _Plan) -> torch.Tensor:
        torch = self._torch
        out: Any = torch.empty(plan.dims, dtype=plan.dtype, device=tensors[0].device)
        if torch.cuda.is_current_stream_capturing():
            # The workspace must come from the graph's own memory, and its first fill be part of the graph.
            self._on_gpu[1](dict(zip(self.names, tensors, strict=True)), out, plan.config)()
        else:
            plan.cache.launch(self.names, tensors, out, torch.cuda.current_stream().cuda_stream)
        return out

    # What a call needs

    @functools.cached_property
    def _on_gpu(self) -> tuple[Kernel, Any]:
        """Return the kernel with its launches and the GPU implementation. Raises: MachineError without triton."""
        kernel = load_kernel(self.kernel.name, launch=True).kernel
        return kernel, next(
            kernel.implementations[name] for name in GPU_IMPLEMENTATIONS if name in kernel.implementations
        )

    def _plan(self, tensors: Sequence[torch.Tensor]) -> _Plan:
        shape, dtype = self._checked(tensors)
        kernel, prepare = self._on_gpu
        config = _rule(kernel, shape, dtype, target_of(tensors[0].device))
        cache = LaunchCache(lambda inputs, out: prepare(inputs, out, config))
        return _Plan(*self._result(shape, dtype), config, cache)

    def _result(self, shape: Shape, dtype: Dtype) -> tuple[tuple[int, ...], torch.dtype]:
        """Return the dimensions and the dtype of the result."""
        operation = self.kernel.operation
        return tuple(operation.output_dims(shape)), torch_dtype(operation.output_dtype(dtype))

    def _checked(self, tensors: Sequence[torch.Tensor]) -> tuple[Shape, Dtype]:
        """Return shape and dtype of inputs. Raises: InputError for inputs that the operation does not take."""
        name, first = self.kernel.name, tensors[0]
        if first.dtype not in self._dtypes:
            wanted = ", ".join(str(dtype) for dtype in self._dtypes)
            raise InputError(f"{name}: {self.names[0]} has dtype {first.dtype}; expected one of: {wanted}")
        for one, own, tensor in zip(self.names, self.signature.dtypes, tensors, strict=True):
            if own is not None and tensor.dtype != torch_dtype(own):
                raise InputError(f"{name}: {one} has dtype {tensor.dtype}; expected {torch_dtype(own)}")
            kind = tensor.dtype if own is not None else first.dtype
            for what, got, expected in (("dtype", tensor.dtype, kind), ("device", tensor.device, first.device)):
                if got != expected:
                    raise InputError(f"{name}: {one} has {what} {got}; expected {expected}, as {self.names[0]} has")
        shape = self.signature.shape_of([tensor.shape for tensor in tensors])
        if "HQ" in shape and shape["HQ"] % shape["HKV"]:
            raise InputError(f"{name}: HQ is {shape['HQ']}; expected a multiple of HKV, {shape['HKV']}")
        return shape, self._dtypes[first.dtype]


def _rule(kernel: Kernel, shape: Shape, dtype: Dtype, target: str) -> Config:
    """Return the configuration of a kernel's launch rule, with which no operand is read early. Raises: InputError."""
    config = kernel.config(shape, dtype, target)
    if kernel.name in _READS_EARLY and config.get("pdl"):
        config = {**config, "pdl": 0}
    kernel.check_config(config, shape, dtype, target)
    return config


def _sizes(tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """Return what checks, the launch rule and the result follow from."""
    return tuple([(tensor.shape, tensor.dtype, tensor.device) for tensor in tensors])


def _is_ready(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_contiguous() and tensor.data_ptr() % _ALIGNMENT == 0)


def _copied(torch: Any, tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy, which the allocator aligns."""
    copy: torch.Tensor = tensor.clone(memory_format=torch.contiguous_format)
    return copy


# Registration


@functools.cache
def _library() -> Any:
    return import_torch().library.Library(NAMESPACE, "FRAGMENT")


@functools.cache
def callable_of(name: str) -> Callable[..., torch.Tensor]:
    """Return the function that calls a shipped kernel, registering its operation. Raises: UnknownName, MachineError."""
    torch, operation = import_torch(), KernelOperation(name)
    library = _library()
    library.define(operation.schema)
    library.impl(name, operation.cpu, "CPU")
    library.impl(name, operation.cuda, "CUDA")
    torch.library.register_fake(f"{NAMESPACE}::{name}", operation.fake, lib=library)
    _count_products(name, operation)
    return _documented(_caller(operation.signature, getattr(torch.ops.ledger, name).default), operation)


def _count_products(name: str, operation: KernelOperation) -> None:
    """Tell torch's FLOP counter the products of an operation."""
    from torch.utils.flop_counter import register_flop_formula

    def products(*dims: Any, **_: object) -> int:
        return 2 * operation.kernel.operation.products(operation.signature.shape_of(dims))

    register_flop_formula(getattr(import_torch().ops.ledger, name))(products)


def _caller(signature: Signature, call: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that torch.compile can trace: it flattens leading dimensions and refuses gradients."""
    import torch

    name, rows, flat = signature.name, signature.rows, signature.flat
    names = tuple(one for one, _ in signature.inputs)

    def kernel_call(*given: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        tensors = _in_order(name, names, given, named)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise InputError(
                f"{name}: an input requires a gradient, and the kernel has no backward; call it under torch.no_grad()"
            )
        first = tensors[0]
        if rows and first.ndim != 2 and first.ndim > 0:
            lead = first.shape[:-1]
            out = call(first.reshape(lead.numel(), first.shape[-1]), *tensors[1:])
            return out.view(*lead, out.shape[-1])
        if flat and first.ndim != 1:
            if any(tensor.shape != first.shape for tensor in tensors):
                raise InputError(
                    f"{name}: inputs have shapes {[tuple(one.shape) for one in tensors]}; expected one shape"
                )
            return call(*[tensor.reshape(-1) for tensor in tensors]).view(first.shape)
        return call(*tensors)

    return kernel_call


def _in_order(
    name: str, names: tuple[str, ...], given: tuple[torch.Tensor, ...], named: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Return the inputs in order. Raises: TypeError, as a function with these parameters would."""
    if not named and len(given) == len(names):
        return given
    rest = names[len(given) :]
    if len(given) > len(names) or set(named) != set(rest):
        got = ", ".join((*(["a tensor"] * len(given)), *named)) or "nothing"
        raise TypeError(f"{name} takes {', '.join(names)}; got {got}")
    return (*given, *[named[one] for one in rest])


def _documented(function: Callable[..., torch.Tensor], operation: KernelOperation) -> Callable[..., torch.Tensor]:
    """Give a function the name, the signature and the documentation of its kernel."""
    kernel, signature = operation.kernel, operation.signature
    shapes = [f"{name} ({', '.join(map(str, dims))})" for name, dims in signature.inputs]
    function.__name__ = function.__qualname__ = kernel.name
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in operation.names]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    leading = "\nThe first input may have more leading dimensions." if signature.rows else ""
    leading = "\nInputs may have any dimensions that are alike." if signature.flat else leading
    function.__doc__ = (
        f"Return the {kernel.summary}: {kernel.formula}.\n\n"
        f"Shapes: {', '.join(shapes)}; the result ({', '.join(map(str, signature.output))}).{leading}\n"
        f"Dtypes: {', '.join(kernel.dtypes)}. Inputs that are not contiguous or not aligned are copied. No backward.\n"
        "Raises: InputError for inputs that do not fit."
    )
    return function
