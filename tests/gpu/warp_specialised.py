"""Holds the least warp-specialised Gluon kernels, for racecheck: partitions that share nothing but what is named."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper


@gluon.jit
def _store_one(out_ptr):
    # An empty partition would be left out by the compiler.
    gl.store(out_ptr + gl.num_warps(), 1.0)


@gluon.jit
def _store_and_arrive(out_ptr, ready):
    gl.store(out_ptr + gl.num_warps(), 1.0)
    hopper.mbarrier.arrive(ready, count=1)


@gluon.jit
def _wait_and_store(out_ptr, ready):
    hopper.mbarrier.wait(ready, 0)
    gl.store(out_ptr, 1.0)


@gluon.jit
def nothing_shared(out_ptr):
    gl.warp_specialize([(_store_one, (out_ptr,)), (_store_one, (out_ptr,))], [4], [24])


@gluon.jit
def nothing_shared_by_three(out_ptr):
    gl.warp_specialize([(_store_one, (out_ptr,)), (_store_one, (out_ptr,)), (_store_one, (out_ptr,))], [4, 1], [24, 24])


@gluon.jit
def one_barrier_shared(out_ptr):
    ready = gl.allocate_shared_memory(gl.int64, [1], hopper.mbarrier.MBarrierLayout())
    hopper.mbarrier.init(ready, count=1)
    gl.warp_specialize([(_wait_and_store, (out_ptr, ready)), (_store_and_arrive, (out_ptr, ready))], [4], [24])


@gluon.jit
def one_barrier_shared_with_a_warp(out_ptr):
    ready = gl.allocate_shared_memory(gl.int64, [1], hopper.mbarrier.MBarrierLayout())
    hopper.mbarrier.init(ready, count=1)
    gl.warp_specialize([(_wait_and_store, (out_ptr, ready)), (_store_and_arrive, (out_ptr, ready))], [1], [24])


KERNELS = (nothing_shared, nothing_shared_by_three, one_barrier_shared, one_barrier_shared_with_a_warp)
