"""Checks the objects that records name, and returns them: check 5 of judge. Pure."""

from __future__ import annotations

from typing import TypeVar

from ledger.budgets import MAX_OBJECT_BYTES, MAX_PASSING_BYTES, MAX_PROFILE_BYTES, MAX_PROFILES_BYTES, weight_bytes
from ledger.canonical import decode, object_id, object_path
from ledger.errors import BudgetExceeded, LedgerError
from ledger.evidence.record_checks import GatheredRecords, ReadBlob
from ledger.records import Hardware, KernelSource, Record
from ledger.sources.closure import MAX_SOURCE_BYTES

R = TypeVar("R", bound=Record)


class Objects:
    """Return content-addressed objects, each read and checked once."""

    def __init__(self, gathered: GatheredRecords, read: ReadBlob) -> None:
        """Remember the records whose objects are wanted."""
        self._tree = gathered.history.tree
        self._findings = gathered.findings
        self._read = read
        self._hardware: dict[str, Hardware | None] = {}
        self._sources: dict[str, KernelSource | None] = {}
        self._sound: dict[str, bool] = {}
        self._weight = {True: 0, False: 0}

    def sound(self, folder: str, digest: str, named_by: str, *, limit: int | None = None) -> bool:
        """Tell whether an object is there and its bytes give its name; a finding says what is wrong."""
        path = object_path(folder, digest)
        if path not in self._sound:
            self._sound[path] = self._bytes(path, digest, named_by, limit=limit) is not None
        return self._sound[path]

    def hardware(self, digest: str, named_by: str) -> Hardware | None:
        """Return a sealed hardware profile, or None with a finding."""
        if digest not in self._hardware:
            self._hardware[digest] = self.decoded(Hardware, digest, named_by, kept=True)
        return self._hardware[digest]

    def kernel_source(self, digest: str, named_by: str) -> KernelSource | None:
        """Return the sealed manifest of a kernel's sources, each file checked, or None with a finding."""
        if digest not in self._sources:
            self._sources[digest] = manifest = self.decoded(KernelSource, digest, named_by, kept=True)
            for listed in manifest.files if manifest is not None else ():
                named_by = object_path("predictions", digest)
                self.sound("predictions", listed.sha256, named_by, limit=MAX_SOURCE_BYTES)
        return self._sources[digest]

    def decoded(
        self, kind: type[R], digest: str, named_by: str, *, limit: int = MAX_PROFILE_BYTES, kept: bool = False
    ) -> R | None:
        """Return an object of a seal as a record, or None with a finding. kept: it stays in memory.

        Raises: BudgetExceeded.
        """
        path = object_path("predictions", digest)
        data = self._bytes(path, digest, named_by, limit=limit)
        self._sound[path] = data is not None
        self._weight[kept] += weight_bytes(data or b"")
        most, what = (MAX_PROFILES_BYTES, "profiles and manifests") if kept else (MAX_PASSING_BYTES, "answers")
        if self._weight[kept] > most:
            raise BudgetExceeded(f"{what} need more than {most} bytes of memory, all together; expected less")
        try:
            return None if data is None else decode(kind, data, what=path)
        except LedgerError as error:
            self._findings.refuse("bad-record", path, str(error))
            return None

    def _bytes(self, path: str, digest: str, named_by: str, *, limit: int | None = None) -> bytes | None:
        held = self._tree.get(path)
        if held is None:
            self._findings.refuse("object-missing", path, f"named by {named_by} and not there at the head")
            return None
        limit = limit or MAX_OBJECT_BYTES
        data = self._read(held[1], limit)
        if data is None:
            self._findings.refuse("object-too-large", path, f"larger than {limit} bytes; named by {named_by}")
            return None
        if object_id(data) != digest:
            self._findings.refuse("object-altered", path, "the SHA-256 of its bytes is not its name")
            return None
        return data
