"""Executes the sources of a closure, and nothing else of the repository, in a package of its own.

Every module of a closure gets an __import__ of its own: names inside the closure lead to the sealed bytes, names of the
platform and of sealed distributions to what is installed, all others fail. Triton and debuggers read source lines
through linecache, which is given the same bytes.
"""

from __future__ import annotations

import builtins
import linecache
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ledger.errors import InputError
from ledger.sources.closure import SHIPPED, Closure, Source
from ledger.sources.distributions import distributions_of
from ledger.sources.platform import is_platform, is_platform_module, normalized


def load(closure: Closure, *, variant: str = "") -> ModuleType:
    """Return the entry module of a closure, executed once for each variant (with triton, or the model alone).

    Raises: whatever its code raises; ImportError for an import outside the closure.
    """
    package = f"ledger_sealed_{closure.sha256[:16]}{variant}"
    loader = _Loader(closure, package)
    return loader.load(closure.entry)


class _Loader:
    """Serve the modules of one closure; also the __spec__.loader of each, so that `inspect` finds their text."""

    def __init__(self, closure: Closure, package: str) -> None:
        """Take a closure and the name of the package in which its modules live."""
        self.closure = closure
        self.package = package
        self.modules = {source.module: source for source in closure.files if source.module is not None}
        self.files = {str(source.file): source for source in closure.files}
        self.folders = {name.rsplit(".", depth)[0] for name in self.modules for depth in range(1, name.count(".") + 1)}
        self.folders -= {"ledger"}
        self.distributions = {one.name for one in closure.distributions}

    # What `inspect`, `linecache` and ledger.kernel.source_text ask of a loader

    def get_source(self, fullname: str) -> str | None:
        """Return a module's text."""
        source = self.modules.get(fullname.removeprefix(f"{self.package}."))
        return None if source is None else source.data.decode()

    def get_data(self, path: str) -> bytes:
        """Return a file of the closure by its place. Raises: OSError for any other file."""
        source = self.files.get(path)
        if source is None:
            raise OSError(f"{path}: is not among the sealed sources of {self.closure.entry}")
        return source.data

    # Execution

    def load(self, name: str) -> ModuleType:
        """Return a module of the closure, executing it and its parents if that was not done before."""
        private = f"{self.package}.{name}"
        if private in sys.modules:
            return sys.modules[private]
        parent = name.rpartition(".")[0]
        above = self.load(parent) if parent in self.modules or parent in self.folders else None
        source = self.modules.get(name)
        module = self._new(private, source, is_package=source is None or source.is_package)
        sys.modules[private] = module
        if source is not None:
            try:
                linecache.cache[str(source.file)] = (
                    len(source.data),
                    None,
                    source.data.decode().splitlines(keepends=True),
                    str(source.file),
                )
                code = compile(source.data, str(source.file), "exec", dont_inherit=True)
                exec(code, module.__dict__)
            except BaseException:
                del sys.modules[private]
                raise
        if above is not None:
            setattr(above, name.rpartition(".")[2], module)
        return module

    def _new(self, private: str, source: Source | None, *, is_package: bool) -> ModuleType:
        module = ModuleType(private)
        spec = ModuleSpec(private, self, is_package=is_package)  # type: ignore[arg-type]
        module.__spec__, module.__loader__ = spec, self  # type: ignore[assignment]
        module.__package__ = private if is_package else private.rpartition(".")[0]
        if is_package:
            module.__path__ = []
        if source is not None:
            module.__file__ = spec.origin = str(source.file)
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import}
        return module

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if level:
            name = self._absolute(name, globals or {}, level)
        inside = name in self.modules or name in self.folders
        if not inside:
            self._check_outside(name)
            return builtins.__import__(name, globals, locals, fromlist or (), 0)
        module = self.load(name)
        if not fromlist:
            return self.load(name.partition(".")[0])
        for attribute in fromlist:
            below = f"{name}.{attribute}"
            if not hasattr(module, attribute) and (below in self.modules or below in self.folders):
                self.load(below)
        return module

    def _absolute(self, name: str, names: Mapping[str, Any], level: int) -> str:
        package = str(names.get("__package__") or "").removeprefix(f"{self.package}.")
        parts = package.split(".")
        kept = parts[: len(parts) - (level - 1)]
        return ".".join((*kept, *filter(None, [name])))

    def _check_outside(self, name: str) -> None:
        top = name.partition(".")[0]
        if name == SHIPPED or name.startswith(f"{SHIPPED}.") or top in self.closure.absent:
            raise ModuleNotFoundError(f"{name} is not among the sealed sources of {self.closure.entry}", name=name)
        if is_platform_module(top):
            return
        provided = [distribution for distribution in distributions_of(top) if not is_platform(distribution)]
        if top in {module.partition(".")[0] for module in self.modules} or (not provided and not distributions_of(top)):
            raise ModuleNotFoundError(f"{name} is not among the sealed sources of {self.closure.entry}", name=name)
        if unknown := [one for one in provided if normalized(one) not in self.distributions]:
            raise ImportError(
                f"{name} belongs to {unknown[0]}, which {self.closure.entry} did not name when it was sealed", name=name
            )


def read_text(module: str, name: str) -> str:
    """Return the text of a file beside a module of a closure, such as its CUDA C++. Raises: InputError."""
    held = sys.modules[module]
    loader = held.__loader__
    if not isinstance(loader, _Loader):
        raise InputError(
            f"{module}: was imported from its file; expected a module loaded by ledger.kernel (load_kernel), so that "
            f"{name} is among the sealed sources"
        )
    try:
        return loader.get_data(str(Path(held.__file__ or "").parent / name)).decode()
    except OSError as error:
        raise InputError(f"{error}; expected a file that {module} names by a literal") from error
