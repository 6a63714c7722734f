"""Fills input tensors from a seal, on the measuring device. Imports torch, only when called.

`ledger.philox_inputs` defines every element; this module fills whole tensors, sixteen elements a Philox block and many
input sets at a time. Each element equals that of `philox_inputs.element_integers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.operations import Operation, TensorSpec
from ledger.philox_inputs import (
    BLOCK_BYTES,
    WORD_DISTRIBUTIONS,
    derive_key,
    integers_of_bytes,
    integers_of_words,
    philox,
)
from ledger.records import Digest, Dtype
from ledger.roofline import DTYPE_BYTES, ELEMENT_BYTES

if TYPE_CHECKING:
    import torch

_CHUNK_BLOCKS = {"cpu": 1 << 15, "cuda": 1 << 21}
_LOW = 0xFFFFFFFF


@dataclass(frozen=True)
class InputSet:
    """Hold one input set and the output that a call on it writes."""

    inputs: Mapping[str, torch.Tensor]
    out: torch.Tensor

    @property
    def bytes(self) -> int:
        """Return the bytes of the inputs and the output."""
        return sum(tensor.nbytes for tensor in (*self.inputs.values(), self.out))


def torch_dtype(dtype: Dtype | str) -> torch.dtype:
    """Return the element type that holds generated inputs exactly. Raises: InputError where none does."""
    import torch

    types = {
        "fp64": torch.float64,
        "fp32": torch.float32,
        "tf32": torch.float32,
        "fp16": torch.float16,
        "bf16": torch.bfloat16,
        "fp8_e4m3": torch.float8_e4m3fn,
        "int8": torch.int8,
        "int16": torch.int16,
        "int32": torch.int32,
        "int64": torch.int64,
        "uint8": torch.uint8,
        "bool": torch.bool,
    }
    if dtype not in types:
        raise InputError(f"inputs of dtype {dtype} cannot be generated exactly; expected one of: {', '.join(types)}")
    return types[dtype]


@contextmanager
def _one_thread(device: str) -> Iterator[None]:
    """Use one thread of a CPU: a chunk is too small for threads to wait for each other on a busy machine."""
    import torch

    before = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fill(
    spec: TensorSpec, *, key: tuple[int, int], number: int, sets: range, dtype: torch.dtype, device: str
) -> torch.Tensor:
    """Return one input tensor of several consecutive input sets.

    Shapes: (len(sets), *spec.dims), row-major.
    """
    import torch

    if spec.generated.distribution in WORD_DISTRIBUTIONS:
        return _fill_by_words(spec, key=key, number=number, sets=sets, dtype=dtype, device=device)
    size = math.prod(spec.dims)
    blocks = -(-size // BLOCK_BYTES)
    result = torch.empty((len(sets), blocks * BLOCK_BYTES), dtype=dtype, device=device)
    flat = result.view(-1)
    scale = 2.0**spec.generated.exponent
    total = blocks * len(sets)
    chunk = _CHUNK_BLOCKS["cpu" if device == "cpu" else "cuda"]
    for start in range(0, total, chunk):
        stop = min(start + chunk, total)
        index = torch.arange(start, stop, dtype=torch.int64, device=device)
        block, input_set = index % blocks, index // blocks + sets.start
        words = philox((block & _LOW, block >> 32, block * 0 + number, input_set), key)
        # On little-endian hosts and devices byte i of block b is element 16·b + i.
        random = torch.stack(words, dim=-1).to(torch.int32).view(torch.uint8).view(-1)
        integers = integers_of_bytes(random.to(torch.int16), spec.generated.distribution)
        flat[start * BLOCK_BYTES : stop * BLOCK_BYTES] = (integers.to(torch.float32) * scale).to(dtype)
    return result[:, :size].reshape(len(sets), *spec.dims)


def _fill_by_words(
    spec: TensorSpec, *, key: tuple[int, int], number: int, sets: range, dtype: torch.dtype, device: str
) -> torch.Tensor:
    """Return what `fill` does where an element takes a word of Philox: four elements a block."""
    import torch

    size = math.prod(spec.dims)
    blocks = -(-size // 4)
    result = torch.empty((len(sets), blocks * 4), dtype=dtype, device=device)
    flat = result.view(-1)
    how, below, scale = spec.generated.distribution, spec.generated.below, 2.0**spec.generated.exponent
    total = blocks * len(sets)
    chunk = _CHUNK_BLOCKS["cpu" if device == "cpu" else "cuda"]
    for start in range(0, total, chunk):
        stop = min(start + chunk, total)
        index = torch.arange(start, stop, dtype=torch.int64, device=device)
        block, input_set = index % blocks, index // blocks + sets.start
        words = torch.stack(philox((block & _LOW, block >> 32, block * 0 + number, input_set), key), dim=-1).view(-1)
        # The sum of bytes is the same in 32 bits, and faster; the product of `below` needs 64.
        integers = integers_of_words(words.to(torch.int32) if how == "bell" else words, how, below=below)
        flat[start * 4 : stop * 4] = (integers if how == "below" else integers.to(torch.float32) * scale).to(dtype)
    return result[:, :size].reshape(len(sets), *spec.dims)


def input_sets(
    operation: Operation,
    shape: Mapping[str, int],
    dtype: Dtype,
    *,
    seal: Digest,
    cell: str,
    run: int,
    anchor: Digest | None,
    count: int,
    device: str,
    start: int = 0,
) -> Iterator[InputSet]:
    """Yield `count` input sets of a run of a sealed cell, each in separate memory, outputs NaN.

    start: number of the first; those from the count of a rotation on are in no rotation.
    """
    import torch

    key = derive_key(seal=seal, cell=cell, run=run, anchor=anchor)
    written = torch_dtype(operation.output_dtype(dtype))
    specs = operation.inputs(shape)
    elements = max(sum(math.prod(spec.dims) for spec in specs), 1)
    together = max(1, min(count, (1 << 25) // elements))
    for first in range(start, start + count, together):
        sets = range(first, min(first + together, start + count))
        with _one_thread(device):
            batches = {
                spec.name: fill(
                    spec, key=key, number=number, sets=sets, dtype=torch_dtype(spec.dtype or dtype), device=device
                )
                for number, spec in enumerate(specs)
            }
        for index in range(len(sets)):
            # A clone has the allocator's alignment, which a slice of the batch may lack.
            inputs = {name: batch[index].clone() for name, batch in batches.items()}
            dims = operation.output_dims(shape) if operation.result_bytes is None else (0,)
            out = torch.full(dims, float("nan"), dtype=written, device=device)
            yield InputSet(inputs, out)


def copied(one: InputSet) -> InputSet:
    """Return an input set of the same data in memory of its own."""
    return InputSet({name: tensor.clone() for name, tensor in one.inputs.items()}, one.out.clone())


def bytes_per_set(operation: Operation, shape: Mapping[str, int], dtype: Dtype) -> int:
    """Return the bytes of one input set and its output, without making it."""
    read = sum(math.prod(spec.dims) * ELEMENT_BYTES[spec.dtype or dtype] for spec in operation.inputs(shape))
    if operation.result_bytes is not None:
        return max(1, read + operation.result_bytes(shape))
    written = math.prod(operation.output_dims(shape))
    return read + DTYPE_BYTES[operation.output_dtype(dtype)] * written
