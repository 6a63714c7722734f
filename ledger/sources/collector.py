"""Collects every source file that a kernel executes: its own, those it imports, and the CUDA files they name.

Files come from two places: the work tree of the repository (module names below its root or its src/ folder) and the
kernels that ship with the package (ledger.kernels…). Everything else that is imported must be the platform or an
installed distribution. Reads files; runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path, PurePosixPath

from ledger.errors import InputError
from ledger.records import MAX_SOURCE_PATH, SOURCE_PATH, Distribution
from ledger.sources.closure import MAX_SOURCE_BYTES, SHIPPED, SHIPPED_PATH, Closure, Source, normalised
from ledger.sources.distributions import distributions_of, identify, is_importable
from ledger.sources.platform import is_platform, is_platform_module
from ledger.sources.scan import MAX_FILE_NAME, Import, imported_modules, included_files, scan_python

MAX_FILES = 2000


def collect(path: Path, *, root: Path | None, shipped: Path) -> Closure:
    """Return the closure of a kernel file.

    root: the work tree in which its imports are looked up; None: the file's own folder. shipped: the folder of the
    kernels that come with the package. Raises: InputError for a source that cannot be covered by a seal.
    """
    return _Collector(root=(root or path.parent).resolve(), shipped=shipped.resolve()).collect(path)


def collect_module(name: str, *, root: Path, shipped: Path, also: Sequence[str] = ()) -> Closure:
    """Return the closure of a module of the work tree, by its name below the root or src/, and of further modules.

    Raises: InputError for a module that is not there, and as `collect`.
    """
    return _Collector(root=root.resolve(), shipped=shipped.resolve()).collect_module(name, also)


@dataclass
class _Collector:
    root: Path
    shipped: Path
    sources: dict[str, Source] = field(default_factory=dict)
    pending: list[Source] = field(default_factory=list)
    distributions: dict[str, Distribution] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)

    def collect(self, path: Path) -> Closure:
        # A link keeps its own name; what it points to must be in the work tree (_add).
        where = path.parent.resolve() / path.name
        if where.is_relative_to(self.shipped):
            relative, prefix = where.relative_to(self.shipped), SHIPPED
        elif where.is_relative_to(self.root):
            relative, prefix = where.relative_to(self.root), ""
        else:
            raise InputError(f"{path}: is outside the work tree {self.root}; expected a file in it")
        parts = relative.parts[:-1] if relative.name == "__init__.py" else (*relative.parts[:-1], relative.stem)
        entry = ".".join((*filter(None, [prefix]), *parts))
        if not self._module(entry):
            raise InputError(f"{path}: its path is not that of a module ({entry}); expected letters, digits and _")
        return self._closure(entry)

    def collect_module(self, name: str, also: Sequence[str]) -> Closure:
        for module in (name, *also):
            if not self._module(module) or not any(source.module == module for source in self.sources.values()):
                raise InputError(
                    f"module {module!r} is not in the work tree {self.root} nor in its src folder; expected a module "
                    f"of this repository{self._from_here(module)}: import what a package offers in one of its own"
                )
        return self._closure(name)

    def _from_here(self, module: str) -> str:
        """Return a hint where a module was named from the current folder instead of the top."""
        with suppress(OSError, ValueError):
            path = Path.cwd().resolve().relative_to(self.root.resolve()).joinpath(*module.split("."))
            if (self.root / path).is_dir() or (self.root / path).with_suffix(".py").is_file():
                return f", named from its top (did you mean {'.'.join(path.parts)}?)"
        return ""

    def _closure(self, entry: str) -> Closure:
        while self.pending:
            self._follow(self.pending.pop())
        ordered = tuple(self.sources[name] for name in sorted(self.sources))
        distributions = tuple(self.distributions[name] for name in sorted(self.distributions))
        return Closure(entry, ordered, distributions, tuple(sorted(self.absent)))

    # Modules

    def _module(self, name: str) -> bool:
        """Add a module of the work tree or of the shipped kernels with its parents; tell whether it is one."""
        found = self._find(name)
        if found is None:
            return False
        parent = name.rpartition(".")[0]
        if parent and parent != SHIPPED:
            self._module(parent)
        path, file = found
        if file is not None:
            self._add(path, file, module=name)
        return True

    def _find(self, name: str) -> tuple[str, Path | None] | None:
        """Return a module's path in the manifest and its file; the file is None for a folder without __init__.py."""
        if name == SHIPPED or name.startswith(f"{SHIPPED}."):
            parts = name.split(".")[2:]
            return self._look(self.shipped, parts, SHIPPED_PATH)
        parts = name.split(".")
        for folder, prefix in ((self.root, ""), (self.root / "src", "src")):
            if (found := self._look(folder, parts, prefix)) is not None:
                return found
        return None

    def _look(self, folder: Path, parts: list[str], prefix: str) -> tuple[str, Path | None] | None:
        if not all(part.isidentifier() for part in parts):
            return None
        base = folder.joinpath(*parts)
        logical = "/".join((*filter(None, [prefix]), *parts))
        if (base / "__init__.py").is_file():
            return f"{logical}/__init__.py", base / "__init__.py"
        if parts and base.with_suffix(".py").is_file():
            return f"{logical}.py", base.with_suffix(".py")
        compiled = [base.with_name(base.name + suffix) for suffix in EXTENSION_SUFFIXES] if parts else []
        if any(file.is_file() for file in compiled):
            raise InputError(
                f"{logical}: is a compiled extension module; expected Python or CUDA source, which a seal can hold"
            )
        return (logical, None) if base.is_dir() else None

    def _add(self, path: str, file: Path, *, module: str | None) -> None:
        if path in self.sources:
            return
        if not re.fullmatch(SOURCE_PATH, path) or len(path) > MAX_SOURCE_PATH:
            raise InputError(
                f"{path[:200]}: is no name that a seal can hold; expected letters, digits and _ . + - in it"
            )
        if len(self.sources) >= MAX_FILES:
            raise InputError(f"{path}: more than {MAX_FILES} source files; expected a kernel that imports fewer")
        home = self.shipped if path.startswith(f"{SHIPPED_PATH}/") else self.root
        if not file.resolve().is_relative_to(home):
            raise InputError(f"{path}: is a link to outside the work tree; expected a file in it")
        try:
            with file.open("rb") as stream:
                data = stream.read(MAX_SOURCE_BYTES + 1)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); expected a source file") from error
        if len(data) > MAX_SOURCE_BYTES:
            raise InputError(f"{path}: larger than {MAX_SOURCE_BYTES} bytes; expected a source file")
        data = normalised(data)
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: is not UTF-8 text; expected a source file in UTF-8") from error
        self.sources[path] = source = Source(path, module, data, file)
        self.pending.append(source)

    # What a source needs

    def _follow(self, source: Source) -> None:
        if source.module is None:
            for name in included_files(source.data):
                self._cuda(source, name, required=False)
            return
        scan = scan_python(source.data, what=source.path)
        for name in scan.cuda_files:
            self._cuda(source, name, required=True)
        for one in scan.imports:
            for module, optional in _imported(source, one):
                if one.level:
                    self._relative(source, one, module, optional=optional)
                else:
                    self._import(source, one, module, optional=optional)

    def _cuda(self, source: Source, name: str, *, required: bool) -> None:
        """Add a file beside a source; an include that is not there comes with the compiler."""
        file = source.file.parent / name
        if len(name) > MAX_FILE_NAME or not file.is_file():
            if required:
                raise InputError(f"{source.path}: names the file {name!r}, which is not beside it; expected it there")
            return
        folder = PurePosixPath(source.path).parent
        path = (folder / name).as_posix()
        if ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute():
            raise InputError(f"{source.path}: names the file {name!r}; expected one in its own folder or below")
        self._add(path, file, module=None)

    def _relative(self, source: Source, one: Import, name: str, *, optional: bool) -> None:
        """Add a module that a relative import names: it is always beside its importer."""
        if not self._module(name) and not optional:
            raise InputError(f"{source.path}: line {one.line}: imports {name}, which is not there; expected a module")

    def _import(self, source: Source, one: Import, name: str, *, optional: bool) -> None:
        where = f"{source.path}: line {one.line}"
        top = name.partition(".")[0]
        if top == "ledger":
            self._ledger(where, one, name, optional=optional)
            return
        # A shipped kernel has the same sources in every repository.
        local = None if source.path.startswith(f"{SHIPPED_PATH}/") else self._find(top)
        if is_platform_module(top):
            for shadow in (local, self._find(name) if local is not None else None):
                if shadow is not None and shadow[1] is not None:
                    raise InputError(
                        f"{where}: imports {name}, and {shadow[0]} of this work tree has that name; expected no module "
                        "here that shadows Python's or the platform's: rename it"
                    )
            return
        # A folder without __init__.py gives way to an installed package, as in Python; not so the kernel's own folder.
        own = source.module is not None and source.module.partition(".")[0] == top
        if local is not None and (own or local[1] is not None or not distributions_of(top)):
            if not self._module(name) and not optional:
                raise InputError(f"{where}: imports {name}, which is not in this work tree; expected a module of it")
            return
        if not optional:
            self._distribution(where, top, guarded=one.guarded)

    def _ledger(self, where: str, one: Import, name: str, *, optional: bool) -> None:
        """Add a shipped kernel module; the rest of ledger is the contract."""
        within = name.startswith(f"{SHIPPED}.")
        if (within and not one.names) or (name == SHIPPED and (optional or not one.names)):
            raise InputError(f"{where}: imports {name}; expected the form: from {SHIPPED}.common import NAME")
        if within and not self._module(name) and not optional:
            raise InputError(f"{where}: imports {name}, which does not ship with this package; expected a module of it")

    def _distribution(self, where: str, top: str, *, guarded: bool) -> None:
        names = distributions_of(top)
        if not names:
            if guarded and not is_importable(top):
                self.absent.add(top)
                return
            got = "belongs to no installed distribution" if is_importable(top) else "is not installed"
            raise InputError(
                f"{where}: imports {top}, which {got} and is not in this work tree; expected a package installed from "
                "a wheel (pip install), whose version the seal can name, or a module of this repository"
            )
        for name in names:
            if not is_platform(name):
                self.distributions[name] = identify(name)


def _imported(source: Source, one: Import) -> list[tuple[str, bool]]:
    assert source.module is not None
    try:
        return list(imported_modules(one, module=source.module, is_package=source.is_package))
    except ImportError as error:
        got = f"{source.path}: line {one.line}: relative import goes above the top; expected fewer dots"
        raise InputError(got) from error
