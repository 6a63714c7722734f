"""Flags sealed manifests of version 2 that do not list all that their sources load. Runs nothing of the sources.

Sealing refuses such sources. It is a flag and no refusal, since a scan depends on the version of Python: on its grammar
and on its standard library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from ledger.analysis.book import Book
from ledger.budgets import MAX_IMPORTS_COMPARED, MAX_PROFILE_BYTES, MAX_SCANNED_BYTES
from ledger.canonical import decode, object_path
from ledger.errors import BudgetExceeded, InputError, LedgerError
from ledger.evidence.record_checks import ReadBlob
from ledger.records import Finding, ForecastV2, KernelSource, SourceFile
from ledger.sources.closure import MAX_SOURCE_BYTES
from ledger.sources.scan import Scan, scan_python
from ledger.sources.unlisted import unlisted

UNLISTED = "source-unlisted"
MAX_FLAGS = 20
"""Flags for one manifest."""


def with_unlisted_sources(book: Book, tree: Mapping[str, tuple[str, str]], read: ReadBlob) -> Book:
    """Return the book with a flag for each import, and each CUDA file, that a sealed manifest does not list."""
    named = {
        forecast.kernel_sha256: None
        for sealed in book.seals
        for forecast in sealed.prediction.cells
        if isinstance(forecast, ForecastV2)
    }
    sides = (side for view in book.claims for side in (view.claim.base, view.claim.head))
    named |= {side.kernel_sha256: None for side in sides}
    scans = _Scans(tree, read)
    findings = [finding for digest in named for finding in _flags(digest, scans)]
    return replace(book, findings=(*book.findings, *findings))


def _flags(digest: str, scans: _Scans) -> Iterator[Finding]:
    path = object_path("predictions", digest)
    try:
        manifest = decode(KernelSource, scans.object(digest, MAX_PROFILE_BYTES), what=path)
    except BudgetExceeded:
        raise
    except LedgerError:
        # The judge refuses a manifest that cannot be read.
        return
    for message in islice(unlisted(manifest, scans), MAX_FLAGS):
        yield Finding(code=UNLISTED, severity="flag", path=path, message=message)


class _Scans:
    """Scan sealed Python files, each once, up to a bound on their bytes."""

    def __init__(self, tree: Mapping[str, tuple[str, str]], read: ReadBlob) -> None:
        self._tree = tree
        self._read = read
        self._known: dict[tuple[str, str], Scan | str] = {}
        self._left = MAX_SCANNED_BYTES
        self._imports = MAX_IMPORTS_COMPARED

    def object(self, digest: str, limit: int) -> bytes:
        """Return an object of the ledger. Raises: InputError when it is missing or larger than `limit` bytes."""
        held = self._tree.get(object_path("predictions", digest))
        data = None if held is None else self._read(held[1], limit)
        if data is None:
            raise InputError(f"object {digest[:12]}: missing or too large")
        return data

    def __call__(self, file: SourceFile) -> Scan:
        """Return the scan of a listed file. Raises: InputError for one that cannot be scanned."""
        key = (file.sha256, file.path)
        if key not in self._known:
            try:
                self._known[key] = self._scan(file)
            except InputError as error:
                self._known[key] = str(error)
        found = self._known[key]
        if isinstance(found, str):
            raise InputError(found)
        self._imports -= 1 + len(found.imports) + len(found.cuda_files)
        if self._imports < 0:
            raise InputError(f"{file.path}: is not compared: more than {MAX_IMPORTS_COMPARED} imports")
        return found

    def _scan(self, file: SourceFile) -> Scan:
        data = self.object(file.sha256, MAX_SOURCE_BYTES)
        self._left -= len(data)
        if self._left < 0:
            raise InputError(f"{file.path}: is not scanned: more than {MAX_SCANNED_BYTES} bytes of sources")
        return scan_python(data, what=file.path)
