"""Holds the least warp-specialised Gluon kernel: two partitions that share nothing."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def _store_one(out_ptr):
    # An empty partition would be left out by the compiler.
    gl.store(out_ptr + gl.num_warps(), 1.0)


@gluon.jit
def nothing_shared(out_ptr):
    gl.warp_specialize([(_store_one, (out_ptr,)), (_store_one, (out_ptr,))], [4], [24])
