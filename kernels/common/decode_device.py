"""Holds the device functions that the decode kernels share for the reduction of partial sums.

Decode kernels split the keys of a sequence among programs (Flash-Decoding). Each leaves a partial sum and, for each
row, the maximum of its scores and the sum of its exponentials; these are reduced in the order of the splits.
"""

# mypy: ignore-errors

from __future__ import annotations

from .device import gl, gluon, tl, triton


@triton.jit
def store_stats(stats_ptr, slot, rows, maximum, total, mask, ROWS: tl.constexpr):
    """Store the maxima of a split's rows, then the sums of their exponentials."""
    tl.store(stats_ptr + slot * (2 * ROWS) + rows, maximum, mask=mask)
    tl.store(stats_ptr + slot * (2 * ROWS) + ROWS + rows, total, mask=mask)


@triton.jit
def arrives_last(arrivals_ptr, tile, SPLITS: tl.constexpr):
    """Count this program at a tile; tell whether the partial sums of all its splits are now written."""
    # One thread executes the atomic: the partial sums of all threads must be written before it.
    tl.debug_barrier()
    return tl.atomic_add(arrivals_ptr + tile, 1, sem="acq_rel") == SPLITS - 1


@gluon.jit
def is_unwritten(values):
    """Tell for each word of a workspace whether it still has the value that marks it as unwritten."""
    UNWRITTEN: gl.constexpr = 0x7FFFDEAD  # decode.UNWRITTEN, which a kernel cannot read
    return values.to(gl.int32, bitcast=True) == UNWRITTEN


@gluon.jit
def any_of(flags):
    """Return the maximum of flags of 0 and 1, (splits, rows)."""
    return gl.max(gl.max(flags, axis=0), axis=0)


@gluon.jit
def split_weights(maxima):
    """Return the factors that refer the sums of each split to the common maximum. Shapes: maxima (splits, rows)."""
    return gl.exp2(maxima - gl.max(maxima, axis=0)[None, :])


@gluon.jit
def weighted_sum(values, weights):
    """Return the sum over splits. Shapes: values (splits, rows, columns), weights (splits, rows)."""
    return gl.sum(values * weights[:, :, None], axis=0)
