"""Executes the sources of a closure, and nothing else of the repository, in a package of its own.

Every module of a closure gets an __import__ of its own: names inside the closure lead to the sealed bytes, names of the
platform and of sealed distributions to what is installed, all others fail. Triton and debuggers read source lines
through linecache, which is given the same bytes.
"""

from __future__ import annotations

import builtins
import functools
import io
import linecache
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

import ledger
from ledger.errors import InputError
from ledger.sources.closure import SHIPPED, Closure, Source
from ledger.sources.distributions import distributions_of, owns
from ledger.sources.platform import is_platform, is_platform_module, normalized


def load(closure: Closure, *, variant: str = "", module: str | None = None) -> ModuleType:
    """Return the entry module of a closure, executed once for each variant (with triton, or the model alone).

    module: another module of the closure.

    Raises: whatever its code raises; ImportError for an import outside the closure.
    """
    package = f"ledger_sealed_{closure.sha256[:16]}{variant}"
    loader = _Loader(closure, package)
    if package not in sys.modules:
        sys.modules[package] = loader.new(package, None)
    return loader.load(module or closure.entry)


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
        self.distributions = frozenset(one.name for one in closure.distributions)

    # What `inspect`, `linecache` and ledger.kernel.source_text ask of a loader

    def get_source(self, fullname: str) -> str | None:
        """Return a module's text."""
        source = self.modules.get(fullname.removeprefix(f"{self.package}."))
        return None if source is None else source.data.decode("utf-8-sig")

    def get_data(self, path: str) -> bytes:
        """Return a file of the closure by its path. Raises: OSError for any other file."""
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
        module = self.new(private, source)
        sys.modules[private] = module
        if source is not None:
            try:
                # One text for the compiler, for Triton and for readers: a coding line has no effect, and lines end as
                # Python ends them.
                text = source.data.decode("utf-8-sig")
                lines = io.StringIO(text, newline=None).readlines()
                linecache.cache[str(source.file)] = (len(text), None, lines, str(source.file))
                exec(compile(text, str(source.file), "exec", dont_inherit=True), module.__dict__)
            except BaseException:
                del sys.modules[private]
                raise
        if above is not None:
            setattr(above, name.rpartition(".")[2], module)
        return module

    def new(self, private: str, source: Source | None) -> ModuleType:
        """Return an empty module for a source, or a package for a folder without one."""
        is_package = source is None or source.is_package
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
            package = str((globals or {}).get("__package__") or "").removeprefix(f"{self.package}.")
            name = resolve_name("." * level + name, package)
        inside = name in self.modules or name in self.folders
        if not inside:
            self._check_outside(name)
            found = builtins.__import__(name, globals, locals, fromlist or (), 0)
            for imported in (name, *(f"{name}.{attribute}" for attribute in fromlist or ())):
                if imported in sys.modules:
                    self._check_origin(imported)
            return found
        module = self.load(name)
        if not fromlist:
            return self.load(name.partition(".")[0])
        for attribute in fromlist:
            below = f"{name}.{attribute}"
            if not hasattr(module, attribute) and (below in self.modules or below in self.folders):
                self.load(below)
        return module

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

    def _check_origin(self, name: str) -> None:
        """Check that a module came from Python, from ledger, or from a distribution, and not from a path put before."""
        module = sys.modules[name]
        spec = getattr(module, "__spec__", None)
        origin = getattr(spec, "origin", None) or getattr(module, "__file__", None)
        if origin in (None, "built-in", "frozen"):
            return
        if not _is_trusted(name.partition(".")[0], origin, self.distributions):
            raise ImportError(
                f"{name} was found at {origin}, which belongs neither to Python nor to the package of that name; "
                "expected no other module before it on PYTHONPATH",
                name=name,
            )


@functools.cache
def _is_trusted(top: str, origin: str, sealed: frozenset[str]) -> bool:
    file = Path(origin).resolve()
    if top == "ledger":
        return file.is_relative_to(Path(ledger.__file__).resolve().parent)
    if top in sys.stdlib_module_names:
        folders = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
        inside = any(file.is_relative_to(folder) for folder in folders)
        return inside and not {"site-packages", "dist-packages"} & set(file.parts)
    # An editable installation may not list its modules; torch, triton and numpy have the module of their name.
    names = [name for name in (*distributions_of(top), top) if is_platform(name) or normalized(name) in sealed]
    return any(owns(name, file) for name in names)


def read_text(module: str, name: str) -> str:
    """Return the text of a file beside a module of a closure, such as its CUDA C++. Raises: InputError."""
    held = sys.modules[module]
    loader = held.__loader__
    if not isinstance(loader, _Loader):
        raise InputError(
            f"{module}: was imported from its file; expected one loaded by ledger.kernel_files, so that {name} is "
            "among the sealed sources"
        )
    try:
        return loader.get_data(str(Path(held.__file__ or "").parent / name)).decode()
    except OSError as error:
        raise InputError(f"{error}; expected a file that {module} names by a literal") from error
