"""Makes the input elements that a measurement's seal gives, as the measuring device held them, with NumPy. Pure.

A run of neighbouring elements is made sixteen elements a Philox block, and a byte becomes a number by a table, so that
the rows of a large tensor cost a fraction of what single elements do.
"""

from __future__ import annotations

import functools
from typing import Any

from ledger.evidence.seal_checks import Sampled
from ledger.operations import Operation, Shape
from ledger.philox_inputs import (
    BLOCK_BYTES,
    Generated,
    derive_key,
    element_integers,
    integers_of_bytes,
    philox,
)
from ledger.records import Dtype

_LOW = 0xFFFFFFFF
_BLOCKS_TOGETHER = 8192
"""Blocks that are made at a time: the arrays of one round then stay in a core's cache."""
_SHORTEST_RUN = 8


class SealInputs:
    """Return input elements of one measurement as float64.

    input_set: 0 is the set that the samples come from; another gives other inputs of the same run.
    """

    def __init__(self, operation: Operation, shape: Shape, measurement: Sampled, *, input_set: int = 0) -> None:
        """Derive the key of the measurement's run."""
        self._specs = {spec.name: (number, spec) for number, spec in enumerate(operation.inputs(shape))}
        self._dtype = measurement.case.dtype
        self._input_set = input_set
        self._key = derive_key(
            seal=measurement.seal, cell=measurement.cell, run=measurement.run, anchor=measurement.anchor
        )

    def __call__(self, name: str, index: Any) -> Any:
        """Return elements of a named input at flat positions."""
        import numpy as np

        number, spec = self._specs[name]
        values = values_of_bytes(spec.generated, spec.dtype or self._dtype)
        width = index.shape[-1]
        rows = index.reshape(-1, width)
        if width < _SHORTEST_RUN or not (np.diff(rows, axis=1) == 1).all():
            return self._scattered(number, index.reshape(-1), values).reshape(index.shape)
        return values[self._runs(number, rows[:, 0], width)].reshape(index.shape)

    def _scattered(self, number: int, index: Any, values: Any) -> Any:
        """Return the values of single elements, a few thousand at a time. Shapes: (N,) int64 to (N,) float64."""
        import numpy as np

        found = np.empty(len(index))
        for first in range(0, len(index), _BLOCKS_TOGETHER):
            some = index[first : first + _BLOCKS_TOGETHER]
            made = element_integers(some, key=self._key, tensor=number, input_set=self._input_set, how="byte")
            # `byte` is the random byte less 128.
            found[first : first + _BLOCKS_TOGETHER] = values[made + 128]
        return found

    def _runs(self, number: int, starts: Any, width: int) -> Any:
        """Return the random bytes of runs of `width` neighbours. Shapes: starts (N,) int64; result (N, width) uint8."""
        import numpy as np

        blocks = (width + 2 * BLOCK_BYTES - 2) // BLOCK_BYTES
        made = np.empty((len(starts), width), dtype=np.uint8)
        together = max(1, _BLOCKS_TOGETHER // blocks)
        for first in range(0, len(starts), together):
            some = starts[first : first + together]
            offsets = some % BLOCK_BYTES
            for offset in np.unique(offsets):
                chosen = np.flatnonzero(offsets == offset)
                random = self._blocks(number, some[chosen] // BLOCK_BYTES, blocks)
                made[first + chosen] = random[:, offset : offset + width]
        return made

    def _blocks(self, number: int, first: Any, count: int) -> Any:
        """Return the bytes of `count` blocks from each of `first` on. Shapes: (N,) int64 to (N, 16 · count) uint8."""
        import numpy as np

        random = np.empty((len(first), count, 4), dtype="<u4")
        for start in range(0, count, _BLOCKS_TOGETHER):
            stop = min(start + _BLOCKS_TOGETHER, count)
            block = first[:, None] + np.arange(start, stop, dtype=np.int64)
            high = block >> 32 if block.max() > _LOW else 0
            words = philox((block & _LOW, high, number, self._input_set), self._key)
            for place, word in enumerate(words):
                random[:, start:stop, place] = word
        return random.reshape(len(first), -1).view(np.uint8)


@functools.lru_cache(maxsize=256)
def values_of_bytes(generated: Generated, dtype: Dtype) -> Any:
    """Return the element that each of the 256 random bytes gives, as a dtype holds it. Shapes: (256,) float64."""
    import numpy as np

    exact = integers_of_bytes(np.arange(256, dtype=np.int64), generated.distribution) * 2.0**generated.exponent
    if dtype == "int8":
        # A conversion to an integer drops the fraction.
        return np.trunc(exact)
    if dtype == "fp8_e4m3":
        return _nearest(exact, fp8_values())
    return exact.astype({"fp16": np.float16, "bf16": np.float32, "fp64": np.float64}.get(dtype, np.float32)).astype(
        np.float64
    )


def _nearest(exact: Any, bits: Any) -> Any:
    """Round to the nearest finite value of an eight-bit float; of two as near the one whose bits are even."""
    import numpy as np

    def rounded(value: float) -> float:
        distances = np.abs(bits - value)
        nearest = np.flatnonzero(distances == np.nanmin(distances))
        return float(bits[min(nearest, key=lambda word: int(word) & 1)])

    return np.array([rounded(value) for value in exact])


@functools.cache
def fp8_values() -> Any:
    """Return what the 256 bytes of fp8 e4m3 stand for, NaN for two of them. Shapes: (256,) float64.

    Source: "FP8 Formats for Deep Learning" (Micikevicius et al., 2022): bias 7, no infinity, S.1111.111 is NaN.
    """
    import numpy as np

    word = np.arange(256)
    exponent, mantissa = word >> 3 & 15, word & 7
    size = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10))
    return np.where(word & 127 == 127, np.nan, np.where(word < 128, size, -size))
