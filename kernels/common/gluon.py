"""Names what Triton's releases call differently in Gluon, its experimental language. Imports triton, only when called.

A kernel binds these names at module level: a @gluon.jit function may use a global that is a module, a constant or a
function of Triton, and nothing else. Each name is a function of the installed release itself, not a wrapper, so the
compiler sees what it would see if the kernel named it. ledger/releases.py says which releases are supported.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

from ledger.errors import MachineError
from ledger.kernel import import_triton


class Gluon(NamedTuple):
    """Hold Gluon's modules and the functions whose names differ between releases.

    gluon, language: `@gluon.jit` and what its functions use. hopper: barriers, TMA and wgmma. grid: the controls of
    programmatic dependent launch. async_load(descriptor, at, barrier, target, pred): TMA from global to shared memory.
    async_store(descriptor, at, source): TMA from shared to global memory. reinterpret(memory, dtype, shape, layout):
    the same shared memory as another type.
    """

    gluon: Any
    language: Any
    hopper: Any
    grid: Any
    async_load: Any
    async_store: Any
    reinterpret: Any


def import_gluon() -> Gluon:
    """Return Gluon as the installed release has it, or inert stand-ins while only a kernel's model is being loaded.

    Raises: MachineError when triton is missing, is no supported release, or lacks one of the names.
    """
    triton, _ = import_triton()
    if not isinstance(triton, ModuleType):
        return Gluon(*[triton] * len(Gluon._fields))
    from triton.experimental import gluon
    from triton.experimental.gluon import language
    from triton.experimental.gluon.language.nvidia import hopper
    from triton.language.extra import cuda

    return Gluon(
        gluon=gluon,
        language=language,
        hopper=hopper,
        grid=cuda,
        # 3.8 has both names; 3.9 keeps the old ones only to say that they were removed.
        async_load=_first(hopper.tma, "async_load", "async_copy_global_to_shared"),
        async_store=_first(hopper.tma, "async_store", "async_copy_shared_to_global"),
        # A public method since 3.9.
        reinterpret=_first(language.shared_memory_descriptor, "reinterpret", "_reinterpret"),
    )


def _first(holder: Any, *names: str) -> Any:
    """Return the first of some names that a module or a type has."""
    for name in names:
        if hasattr(holder, name):
            return getattr(holder, name)
    raise MachineError(
        f"triton: {holder.__name__} has none of {', '.join(names)}; expected one of them: install a supported release"
    )
