"""Binds the names of Triton and Gluon that device code uses, and holds device functions that several kernels call.

A module of device code imports the names from here: a @gluon.jit function may use a global that is a module, a constant
or a function of Triton, and nothing else. Needs triton, except while only a kernel's model is loaded.
"""

# mypy: ignore-errors

from __future__ import annotations

from ledger.kernel import import_triton

from .gluon import import_gluon

triton, tl = import_triton()

_gluon = import_gluon()
gluon, gl, hopper, grid = _gluon.gluon, _gluon.language, _gluon.hopper, _gluon.grid
async_load, async_store = _gluon.async_load, _gluon.async_store


@triton.jit
def wait_for_previous_launch(PDL: tl.constexpr):
    """Let the next launch begin, and wait until the one before has ended and its writes are visible."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@gluon.jit
def new_barrier():
    """Return an mbarrier in shared memory, still to be initialised."""
    return gl.allocate_shared_memory(gl.int64, [1], hopper.mbarrier.MBarrierLayout())


@gluon.jit
def new_barriers(COUNT: gl.constexpr):
    """Return mbarriers in shared memory, still to be initialised."""
    return gl.allocate_shared_memory(gl.int64, [COUNT, 1], hopper.mbarrier.MBarrierLayout())
