"""Describes a launch once, for compiling ahead of time and for launching. Imports torch and triton, only when called.

A plan follows from a configuration, a shape and a dtype, and holds no tensors. Kernel arguments stand in this order:
operands, workspaces, sizes, constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ledger.kernel import Ahead, AheadCuda, Launch
from ledger.records import Dtype

from .cuda import Argument, CudaSource, prepare_cuda
from .launches import ahead_of
from .tensor_maps import gluon_descriptors, gluon_types_of, triton_descriptor, triton_type

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Operand:
    """Describe an argument that is a tensor of the caller, or a TMA descriptor of it.

    tensor: the name of an input, or "y" for the output. block: the block that a descriptor moves; None: a pointer.
    view: the shape under which a descriptor sees the tensor; None: its own.
    """

    tensor: str
    block: tuple[int, ...] | None = None
    view: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Workspace:
    """Describe memory of the launch: its elements' type, their number, and the 32-bit word they start with, if any."""

    kind: Literal["fp32", "i32"]
    elements: int
    word: int | None = None

    def allocate(self, device: Any) -> Tensor:
        """Return the memory on a device."""
        import torch

        kind = torch.float32 if self.kind == "fp32" else torch.int32
        if self.word is None:
            return torch.empty(self.elements, dtype=kind, device=device)
        return torch.full((self.elements,), self.word, dtype=torch.int32, device=device).view(kind)


@dataclass(frozen=True)
class Plan:
    """Describe the launch of a Triton or Gluon function.

    operands, workspaces, sizes: by argument name, in the order of the arguments; sizes are int (32 bits) or float.
    gluon: whether descriptors name a layout in shared memory.
    """

    function: Any
    grid: tuple[int, ...]
    operands: Mapping[str, Operand]
    workspaces: Mapping[str, Workspace]
    sizes: Mapping[str, int | float]
    constants: Mapping[str, int]
    options: Mapping[str, Any]
    gluon: bool = False

    def ahead(self, dtype: Dtype) -> Ahead:
        """Return how to compile the function ahead of time for operands of a dtype."""
        arguments = {
            **{name: self._type(operand, dtype) for name, operand in self.operands.items()},
            **{name: f"*{workspace.kind}" for name, workspace in self.workspaces.items()},
            **{name: "fp32" if isinstance(size, float) else "i32" for name, size in self.sizes.items()},
        }
        return ahead_of(self.function, arguments, constants=self.constants, options=self.options)

    def prepare(self, tensors: Mapping[str, Tensor]) -> Launch:
        """Allocate the workspaces and return the launch. tensors: the inputs by name, and "y"."""
        operands = [self._argument(operand, tensors[operand.tensor]) for operand in self.operands.values()]
        workspaces = [workspace.allocate(tensors["y"].device) for workspace in self.workspaces.values()]
        arguments = (*operands, *workspaces, *self.sizes.values())
        function, grid, options = self.function, self.grid, {**self.constants, **self.options}

        def launch() -> None:
            function[grid](*arguments, **options)

        return launch

    def _type(self, operand: Operand, dtype: Dtype) -> str:
        if operand.block is None:
            return f"*{dtype}"
        if self.gluon:
            return gluon_types_of(dtype, {"": operand.block})[""]
        return triton_type(dtype, operand.block)

    def _argument(self, operand: Operand, tensor: Tensor) -> object:
        if operand.block is None:
            return tensor
        seen = tensor if operand.view is None else tensor.view(operand.view)
        if self.gluon:
            return gluon_descriptors({"": seen}, {"": operand.block})[0]
        return triton_descriptor(seen, operand.block)


@dataclass(frozen=True)
class CudaPlan:
    """Describe the launch of CUDA C++ on a grid of one dimension.

    arguments: (tensors by name) -> what the kernel takes. overlap: programmatic dependent launch.
    """

    source: CudaSource
    ctas: int
    threads: int
    shared_bytes: int
    arguments: Callable[[Mapping[str, Tensor]], Sequence[Argument]]
    overlap: bool

    def ahead(self, dtype: Dtype) -> AheadCuda:
        """Return how to compile the source ahead of time; the dtype is among its macros."""
        return AheadCuda(self.source, self.ctas, self.threads, self.shared_bytes)

    def prepare(self, tensors: Mapping[str, Tensor]) -> Launch:
        """Allocate what the arguments need and return the launch. tensors: the inputs by name, and "y"."""
        return prepare_cuda(
            self.source,
            programs=self.ctas,
            threads=self.threads,
            shared_bytes=self.shared_bytes,
            arguments=self.arguments(tensors),
            overlap=self.overlap,
        )
