"""Defines the closure of a kernel: every source file that it executes, and the manifest that a seal names.

collector finds the files, rebuild restores them from a manifest, loader executes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from ledger.canonical import encode, object_id
from ledger.records import KERNEL_CONTRACT, KERNEL_SOURCE_SCHEMA, Digest, Distribution, KernelSource, SourceFile

SHIPPED = "ledger.kernels"
SHIPPED_PATH = "ledger/kernels"
MAX_SOURCE_BYTES = 2_000_000


@dataclass(frozen=True)
class Source:
    """Hold one file as it is executed: line ends normalised to LF. file: where it was read, for messages."""

    path: str
    module: str | None
    data: bytes
    file: Path

    @property
    def is_package(self) -> bool:
        """Tell whether this is the __init__.py of a package."""
        return PurePosixPath(self.path).name == "__init__.py"


@dataclass(frozen=True)
class Closure:
    """Hold all sources of a kernel, by path, with the distributions that they import."""

    entry: str
    files: tuple[Source, ...]
    distributions: tuple[Distribution, ...] = ()
    absent: tuple[str, ...] = ()
    contract: str = KERNEL_CONTRACT

    @cached_property
    def manifest(self) -> KernelSource:
        """Return the manifest that a seal names."""
        return KernelSource(
            schema=KERNEL_SOURCE_SCHEMA,
            contract=self.contract,
            entry=self.entry,
            files=tuple(
                SourceFile(path=source.path, module=source.module, sha256=object_id(source.data))
                for source in self.files
            ),
            distributions=self.distributions,
            absent=self.absent,
        )

    @cached_property
    def sha256(self) -> Digest:
        """Return the digest of the manifest: `kernel_sha256` of version 2."""
        return object_id(encode(self.manifest))

    @property
    def objects(self) -> dict[Digest, bytes]:
        """Return what a seal stores: the manifest and every file, by digest."""
        return {self.sha256: encode(self.manifest), **{object_id(source.data): source.data for source in self.files}}

    @property
    def source(self) -> Source:
        """Return the entry's own file."""
        return next(source for source in self.files if source.module == self.entry)

    @property
    def carried(self) -> tuple[Source, ...]:
        """Return the files that do not ship with the package."""
        return tuple(source for source in self.files if not source.path.startswith(f"{SHIPPED_PATH}/"))


def normalised(data: bytes) -> bytes:
    """Return a source with its line ends as LF."""
    return data.replace(b"\r\n", b"\n")
