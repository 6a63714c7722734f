"""Identifies the installed distributions that a kernel imports, by name, version and the files of their RECORD."""

from __future__ import annotations

import base64
import csv
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from ledger.errors import InputError
from ledger.records import Distribution
from ledger.sources.platform import is_platform, normalized

_MAX_FILES = 50_000


@functools.cache
def _by_module() -> dict[str, list[str]]:
    """Return the distributions that provide each top-level module here."""
    return {top: sorted(set(names)) for top, names in importlib.metadata.packages_distributions().items()}


def distributions_of(top: str) -> tuple[str, ...]:
    """Return the names of the installed distributions that provide a top-level module."""
    return tuple(_by_module().get(top, ()))


def is_importable(top: str) -> bool:
    """Tell whether Python finds a top-level module at all, without importing it."""
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


@functools.cache
def identify(name: str) -> Distribution:
    """Return name, version and RECORD digest of an installed distribution, its files checked against RECORD.

    Raises: InputError when it is not installed, has no RECORD, or a file is not what RECORD says.
    """
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError as error:
        raise InputError(f"distribution {name} is not installed; expected it, as the kernel imports it") from error
    version = found.version
    record = found.read_text("RECORD")
    if record is None:
        raise InputError(f"distribution {name} {version} has no RECORD; expected it installed by pip from a wheel")
    if _is_editable(found, record):
        raise InputError(
            f"distribution {name} {version} is installed in editable mode; expected its files in RECORD: install it "
            "without -e, or put its code into this work tree"
        )
    pure = "root-is-purelib: true" in (found.read_text("WHEEL") or "").lower()
    if not pure:
        return Distribution(name=normalized(name), version=version, record_sha256=None)
    rows = sorted(row for row in csv.reader(record.splitlines()) if len(row) == 3 and _counts(row[0]))
    if not rows or len(rows) > _MAX_FILES:
        raise InputError(
            f"distribution {name} {version}: its RECORD lists {len(rows)} files; expected its modules there"
        )
    for path, digest, _size in rows:
        _check(found, path, digest, f"distribution {name} {version}")
    text = "".join(f"{path},{digest},{size}\n" for path, digest, size in rows)
    return Distribution(name=normalized(name), version=version, record_sha256=hashlib.sha256(text.encode()).hexdigest())


def _is_editable(found: importlib.metadata.Distribution, record: str) -> bool:
    listed = [line.partition(",")[0] for line in record.splitlines()]
    return _editable_folder(found) is not None or any(
        path.endswith(".pth") or "__editable__" in path for path in listed
    )


def _editable_folder(found: importlib.metadata.Distribution) -> Path | None:
    """Return the source folder of a distribution that is installed in editable mode (PEP 610), else None."""
    try:
        direct = json.loads(found.read_text("direct_url.json") or "{}")
        url = urlsplit(direct["url"] if direct["dir_info"]["editable"] is True else "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Path(unquote(url.path)).resolve() if url.scheme == "file" else None


@functools.cache
def owns(name: str, file: Path) -> bool:
    """Tell whether a file belongs to an installed distribution: its RECORD lists it.

    A platform package is not sealed, so it may also be an editable installation, or one without RECORD: then the file
    is in its source folder, or beside it.
    """
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    folder = _editable_folder(found)
    if is_platform(name) and folder is not None:
        return file.is_relative_to(folder)
    home = Path(str(found.locate_file(""))).resolve()
    if not file.is_relative_to(home):
        return False
    record = found.read_text("RECORD")
    if record is None:
        return is_platform(name)
    return f"\n{file.relative_to(home).as_posix()}," in f"\n{record}"


def _counts(path: str) -> bool:
    """Tell whether a row of RECORD is of the distribution's own code or data."""
    parts = PurePosixPath(path).parts
    return not (parts[0].endswith(".dist-info") or parts[0] in ("..", "/") or path.endswith(".pyc"))


def _check(found: importlib.metadata.Distribution, path: str, digest: str, what: str) -> None:
    algorithm, _, expected = digest.partition("=")
    if algorithm != "sha256":
        raise InputError(f"{what}: RECORD gives {path} no SHA-256; expected one for each file")
    try:
        data = Path(str(found.locate_file(path))).read_bytes()
    except OSError as error:
        raise InputError(f"{what}: {path} cannot be read ({error.strerror}); install it again") from error
    if base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() != expected:
        raise InputError(f"{what}: {path} is not what RECORD says; expected the files as installed: install it again")
