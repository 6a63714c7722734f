"""Keeps prepared launches for calls that come again with memory at the same addresses. Imports torch, only when called.

A launch is prepared for tensors, and its descriptors hold their addresses. One that is kept must not keep their memory:
it is prepared with aliases, tensors over the same addresses that own nothing. So a launch may be used whenever the
caller's tensors lie at these addresses, on the stream for which its workspace was allocated.

A launch is kept when its addresses come a second time. torch.compile runs a function once before it captures it, in
memory of the graph, where nothing may stay behind.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ledger.kernel import Launch

if TYPE_CHECKING:
    import torch

MOST_LAUNCHES = 64
"""Launches kept of one shape: each holds its workspace."""

Kept = TypeVar("Kept")


def keep(store: dict[Any, Kept], key: object, value: Kept, *, most: int) -> Kept:
    """Put a value into a store that forgets the oldest, and return it."""
    while len(store) >= most:
        del store[next(iter(store))]
    store[key] = value
    return value


class LaunchCache:
    """Hold the launches of one shape, dtype and device by the addresses of their tensors and the stream."""

    def __init__(self, prepare: Callable[[Mapping[str, torch.Tensor], torch.Tensor], Launch]) -> None:
        """Take how a launch is prepared for inputs by name and an output."""
        self._prepare = prepare
        self._launches: dict[tuple[int, ...], Launch] = {}
        self._seen: dict[tuple[int, ...], None] = {}

    def __len__(self) -> int:
        """Return how many launches are kept."""
        return len(self._launches)

    def launch(self, names: Sequence[str], tensors: Sequence[torch.Tensor], out: torch.Tensor, stream: int) -> None:
        """Launch on inputs and an output, all contiguous, on the current stream."""
        key = (stream, out.data_ptr(), *[tensor.data_ptr() for tensor in tensors])
        found = self._launches.get(key)
        if found is None:
            found = self._prepared(key, names, tensors, out)
        found()

    def _prepared(
        self, key: tuple[int, ...], names: Sequence[str], tensors: Sequence[torch.Tensor], out: torch.Tensor
    ) -> Launch:
        if key not in self._seen:
            keep(self._seen, key, None, most=MOST_LAUNCHES)
            return self._prepare(dict(zip(names, tensors, strict=True)), out)
        aliases = dict(zip(names, map(alias, tensors), strict=True))
        return keep(self._launches, key, self._prepare(aliases, alias(out)), most=MOST_LAUNCHES)


class _Memory:
    """Describe device memory to torch (CUDA array interface, version 3)."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor over the same memory as a contiguous one that does not keep it alive."""
    import torch

    address, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    if tensor.is_cuda:
        raw = torch.as_tensor(_Memory(address, size), device=tensor.device)
    else:
        raw = torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)
    assert raw.data_ptr() == address and math.prod(tensor.shape) == tensor.numel()
    return raw.view(tensor.dtype).view(tensor.shape)
