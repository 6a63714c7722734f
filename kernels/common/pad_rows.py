"""Copies matrices whose rows TMA cannot address into ones whose rows it can. Imports torch, only when called.

TMA needs matrices whose address and row pitch are multiples of 16 bytes. A copy costs its bytes once read and once
written. Rows of a copy are a multiple of 128 bytes apart: 128 bytes of a row then lie in one line of L2, not in two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ledger.kernel import Launch

from .cuda import Argument, cuda_source, prepare_cuda
from .targets import TMA_ALIGNMENT, ceil_div, is_tma_aligned

if TYPE_CHECKING:
    from torch import Tensor

ENTRY = "pad_rows"
TARGETS = ("sm_90",)
"""Where kernels copy."""
PITCH_BYTES = 128
"""Bytes of which the row pitch of a copy is a multiple."""

_THREADS = 256
_CTA_VECTORS = 4 * _THREADS


def padded(columns: int, size: int) -> int:
    """Return the row pitch, in elements of `size` bytes, that TMA sees: a copy's where rows are unaligned."""
    if columns * size % TMA_ALIGNMENT == 0:
        return columns
    return ceil_div(columns * size, PITCH_BYTES) * PITCH_BYTES // size


def pad_rows(matrices: Sequence[Tensor], *, overlap: bool) -> tuple[list[Tensor], Launch | None]:
    """Return one or two matrices as TMA can read them, and the launch that copies those that it cannot, if any.

    overlap: whether that launch begins before the one ahead of it has ended (programmatic dependent launch).
    Shapes: (rows, columns), contiguous; the results have the same shapes, copies with a wider row pitch.
    Assumes: the launch has run before a copy is read; one prepared launch runs on one stream at a time.
    """
    results: list[Tensor] = []
    copied: list[tuple[Tensor, Tensor]] = []
    for matrix in matrices:
        rows, columns = matrix.shape
        if columns * matrix.element_size() % TMA_ALIGNMENT == 0 and is_tma_aligned(matrix):
            results.append(matrix)
            continue
        pitch = ceil_div(columns * matrix.element_size(), PITCH_BYTES) * PITCH_BYTES // matrix.element_size()
        copy = matrix.new_empty((rows, pitch))
        copied.append((matrix, copy))
        results.append(copy[:, :columns])
    return results, _copy(copied, overlap=overlap) if copied else None


def _copy(pairs: Sequence[tuple[Tensor, Tensor]], *, overlap: bool) -> Launch:
    arguments: list[Argument] = []
    ctas: list[int] = []
    for matrix, copy in pairs:
        row_bytes = matrix.shape[1] * matrix.element_size()
        ctas.append(ceil_div(matrix.shape[0] * ceil_div(row_bytes, 16), _CTA_VECTORS))
        arguments += [matrix, copy, matrix.shape[0], row_bytes, copy.shape[1] * copy.element_size() // 16]
        if len(ctas) == 1:
            arguments.append(ctas[0])
    if len(ctas) == 1:
        # No CTA copies a second matrix.
        arguments += arguments[:5]
    return prepare_cuda(
        cuda_source(__name__, "pad_rows.cu", entry=ENTRY, defines={}),
        programs=sum(ctas),
        threads=_THREADS,
        shared_bytes=0,
        arguments=arguments,
        overlap=overlap,
    )
