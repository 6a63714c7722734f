"""Makes the kernels that ship with the package importable, and callable: from ledger.kernels import rmsnorm_matmul.

`ledger.kernels.common` is kernels/common/. The same folder serves a checkout and a wheel, and a `kernels/` folder of
another repository never takes its place. Nothing here is part of what a kernel seals. torch is imported when a kernel
is asked for.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from ledger.kernel_files import kernel_names, shipped_folder

__path__ = [str(shipped_folder("kernels"))]


class _Kernels(ModuleType):
    """Give a kernel's function under its name, also once its module of that name has been imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in kernel_names():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from ledger.library.operations import callable_of

        function = callable_of(name)
        self.__dict__[name] = function
        return function

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in kernel_names()):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *kernel_names()})


sys.modules[__name__].__class__ = _Kernels
