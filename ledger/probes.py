"""Defines small Triton kernels that probe a device. Imports triton, only when called.

Triton reads a kernel's source from its file and its names from this module, so they are defined inside functions and
triton.language is bound here on the first call.
"""

from __future__ import annotations

import functools
from typing import Any

from ledger.kernel import Launch, import_triton

tl: Any = None


@functools.cache
def _empty_kernel() -> Any:
    triton, _ = import_triton()

    @triton.jit
    def ledger_empty():  # type: ignore[no-untyped-def]
        pass

    return ledger_empty


def empty_launch() -> Launch:
    """Return the launch of a kernel that does nothing."""
    kernel = _empty_kernel()

    def launch() -> None:
        kernel[(1,)]()

    return launch
