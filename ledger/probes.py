"""Defines small Triton kernels that probe a device. Imports triton, only when called.

Triton reads a kernel's source from its file and its names from this module, so they are defined inside functions and
triton.language is bound here on the first call.
"""

from __future__ import annotations

import functools
from typing import Any

from ledger.kernel import Launch, import_triton

tl: Any = None


def _triton() -> Any:
    global tl
    triton, tl = import_triton()
    return triton


@functools.cache
def _empty_kernel() -> Any:
    @_triton().jit
    def ledger_empty():  # type: ignore[no-untyped-def]
        pass

    return ledger_empty


@functools.cache
def _marker_kernel() -> Any:
    @_triton().jit
    def ledger_marker():  # type: ignore[no-untyped-def]
        pass

    return ledger_marker


def _one_program(kernel: Any) -> Launch:
    def launch() -> None:
        kernel[(1,)]()

    return launch


def empty_launch() -> Launch:
    """Return the launch of a kernel that does nothing."""
    return _one_program(_empty_kernel())


def marker_launch() -> Launch:
    """Return the launch of a kernel that does nothing, whose name separates the cells of a profile."""
    return _one_program(_marker_kernel())
