"""Describes tensors and their blocks to the tensor memory accelerator (TMA), in Triton and in Gluon.

Gluon's descriptors name the layout of a block in shared memory; Triton chooses it by itself. Imports triton, only when
called. CUDA C++ has its own maps: cuda.tensor_map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .gluon import import_gluon

if TYPE_CHECKING:
    from torch import Tensor

gl = import_gluon().language


def layout(block: Sequence[int], size: int = 2) -> Any:
    """Return Gluon's swizzled layout of a block in shared memory. size: bytes of an element (1, 2 or 4)."""
    return gl.NVMMASharedLayout.get_default_for(list(block), {1: gl.int8, 2: gl.float16, 4: gl.float32}[size])


def triton_descriptor(tensor: Tensor, block: Sequence[int]) -> object:
    """Return the descriptor by which a Triton kernel loads or stores blocks of a tensor."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(tensor, list(block))


def gluon_descriptors(tensors: Mapping[str, Tensor], blocks: Mapping[str, Sequence[int]]) -> list[object]:
    """Return the descriptors by which a Gluon kernel moves blocks of tensors, in the order of `blocks`."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    return [
        TensorDescriptor.from_tensor(tensors[name], list(block), layout(block, tensors[name].element_size()))
        for name, block in blocks.items()
    ]


def triton_type(kind: str, block: Sequence[int]) -> str:
    """Return the type of triton_descriptor's result in a signature. kind: Triton's name of the dtype."""
    return f"tensordesc<{kind}[{','.join(map(str, block))}]>"


def gluon_types(kinds: Mapping[str, tuple[str, int]], blocks: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Return the types of gluon_descriptors' results. kinds: argument -> Triton's name of its dtype, and its bytes."""
    return {
        name: f"tensordesc<{kinds[name][0]}[{','.join(map(str, block))}],{layout(block, kinds[name][1])!r}>"
        for name, block in blocks.items()
    }


def gluon_types_of(dtype: str, blocks: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Return gluon_types where all tensors are of one dtype of 16 bits."""
    return gluon_types(dict.fromkeys(blocks, (dtype, 2)), blocks)
