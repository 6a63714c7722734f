"""Compares a manifest with the sources that it lists: does it name every module and CUDA file that they load? Pure.

The machine that compares may lack the distributions that were installed at sealing. A module counts as listed when a
listed distribution has its name, or when a listed distribution remains whose modules are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from ledger.errors import InputError
from ledger.records import KernelSource, SourceFile
from ledger.sources.platform import is_platform_module, normalized
from ledger.sources.scan import Import, Scan, imported_modules

SHIPPED = "ledger.kernels"


def unlisted(manifest: KernelSource, scan_of: Callable[[SourceFile], Scan]) -> Iterator[str]:
    """Yield, as sentences, what the Python sources of a manifest load and the manifest does not list.

    scan_of: the scan of a listed Python file; what it raises as InputError is yielded.
    """
    listed = _Listed(manifest)
    unknown: dict[str, str] = {}
    used: set[str] = set()
    for file in manifest.files:
        if file.module is None:
            continue
        try:
            scan = scan_of(file)
        except InputError as error:
            yield str(error)
            continue
        for name in scan.cuda_files:
            if (PurePosixPath(file.path).parent / name).as_posix() not in listed.paths:
                yield f"{file.path}: names the file {name!r}, which the manifest does not list"
        for one in scan.imports:
            where = f"{file.path}: line {one.line}"
            for name in listed.missing(file, one):
                top = name.partition(".")[0]
                if one.level or top in (*listed.tops, "ledger"):
                    yield f"{where}: imports {name}, which the manifest does not list"
                elif normalized(top) in listed.distributions:
                    used.add(normalized(top))
                else:
                    unknown.setdefault(top, f"{where}: imports {top}, which the manifest does not list")
    if not listed.distributions - used:
        yield from unknown.values()


class _Listed:
    """Hold what a manifest lists, by the names under which sources load it."""

    def __init__(self, manifest: KernelSource) -> None:
        self.paths = {file.path for file in manifest.files}
        self.modules = {file.module for file in manifest.files if file.module is not None}
        self.folders = {
            name.rsplit(".", depth)[0] for name in self.modules for depth in range(1, name.count(".") + 1)
        } - self.modules
        self.tops = {name.partition(".")[0] for name in self.modules}
        self.distributions = {one.name for one in manifest.distributions}
        self.absent = set(manifest.absent)

    def missing(self, file: SourceFile, one: Import) -> Iterator[str]:
        """Yield the modules of an import statement that are neither listed nor of the platform."""
        assert file.module is not None
        is_package = PurePosixPath(file.path).name == "__init__.py"
        try:
            (name, _), *attributes = imported_modules(one, module=file.module, is_package=is_package)
        except ImportError:
            yield "." * one.level + one.module
            return
        top = name.partition(".")[0]
        within = name.startswith(f"{SHIPPED}.")
        if not one.level and not within and (is_platform_module(top) or top in self.absent):
            return
        if name in self.folders:
            # A folder without __init__.py has no attributes: what is imported from it is a module.
            yield from (below for below, _ in attributes if below not in self.modules | self.folders)
        elif name not in self.modules:
            yield name
