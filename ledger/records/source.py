"""Defines the manifest of a kernel's sources: every file that is executed when the kernel runs, and what it imports."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from ledger.records.base import Digest, Line, Stored

KERNEL_SOURCE_SCHEMA: Literal["ledger/kernel-source/1"] = "ledger/kernel-source/1"
KERNEL_CONTRACT = "kernel-contract/1"
"""Rises when `prepare` or a launch of a kernel file changes its meaning."""

ModuleName = Annotated[
    str, StringConstraints(max_length=400, pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")
]
SOURCE_PATH = r"^[A-Za-z0-9_][A-Za-z0-9_. +-]*(/[A-Za-z0-9_][A-Za-z0-9_. +-]*)*$"
MAX_SOURCE_PATH = 400
FilePath = Annotated[str, StringConstraints(max_length=MAX_SOURCE_PATH, pattern=SOURCE_PATH)]


class SourceFile(Stored):
    """Name one file by its path and its bytes, line ends normalised to LF.

    module: its dotted name when it is a Python module; None for CUDA C++. path: below the repository, or
    ledger/kernels/… for what ships with the package.
    """

    path: FilePath
    module: ModuleName | None
    sha256: Digest


class Distribution(Stored):
    """Name an installed distribution that is imported.

    record_sha256: digest over the sorted RECORD rows of a pure-Python wheel; None for a wheel with compiled code, whose
    files differ from platform to platform.
    """

    name: Line
    version: Line
    record_sha256: Digest | None


def _paths(module: str) -> set[str]:
    """Return the paths that a module of this name may have; below ledger only kernels are sources."""
    path = module.replace(".", "/")
    if module.partition(".")[0] == "ledger" and not module.startswith("ledger.kernels."):
        return set()
    roots = ("",) if module.startswith("ledger.") else ("", "src/")
    return {f"{root}{path}{end}" for root in roots for end in (".py", "/__init__.py")}


class KernelSource(Stored):
    """List what a kernel executes: the entry module, its files, the distributions it imports.

    contract: the version of the interface between a kernel and ledger. absent: modules imported only inside
    try … except ImportError that were not there.
    """

    schema_: Literal["ledger/kernel-source/1"] = Field(alias="schema")
    contract: Annotated[str, StringConstraints(pattern=r"^kernel-contract/[1-9][0-9]{0,3}$")]
    entry: ModuleName
    files: Annotated[tuple[SourceFile, ...], Field(min_length=1, max_length=2000)]
    distributions: Annotated[tuple[Distribution, ...], Field(max_length=200)]
    absent: Annotated[tuple[ModuleName, ...], Field(max_length=200)]

    @model_validator(mode="after")
    def _lists_once(self) -> Self:
        paths, modules = [file.path for file in self.files], [file.module for file in self.files if file.module]
        if paths != sorted(set(paths)) or len(modules) != len(set(modules)):
            raise ValueError("files are not sorted by path, or one is duplicated; expected each file and module once")
        if any(part in ("", ".", "..") for path in paths for part in path.split("/")):
            raise ValueError("a path has an empty part or dots; expected a path below the repository")
        for file in self.files:
            if file.module is not None and file.path not in _paths(file.module):
                raise ValueError(f"module {file.module} is at {file.path}; expected the path of its name")
            if file.module is None and file.path.endswith(".py"):
                raise ValueError(f"{file.path} has no module; expected the name of its path")
        names = [one.name for one in self.distributions]
        if names != sorted(set(names)) or list(self.absent) != sorted(set(self.absent)):
            raise ValueError("distributions or absent modules are not sorted, or one is duplicated")
        if self.entry not in modules:
            raise ValueError(f"entry {self.entry} is not among the files; expected it there")
        return self
