"""Turns YAML and JSON files into records and back, with hardened parsing. Reads and writes files; knows no git.

YAML is an input format only: the YAML 1.2 core scalars, no aliases, tags, merge keys or repeated keys, bounded size
and depth. What is sealed is always the canonical JSON of the record that a file describes.
"""

from __future__ import annotations

import functools
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import Any, ClassVar

import yaml

from ledger.canonical import R, decode, decode_any, encode, validate
from ledger.errors import InputError, ParseError, RecordError, UnknownName, shortened
from ledger.kernel_files import shipped_folder
from ledger.records import Hardware, Measurement, Record
from ledger.suggestions import unknown

MAX_YAML_BYTES = 1024 * 1024
MAX_YAML_DEPTH = 24
MAX_YAML_EVENTS = 100_000
"""Of a file within its bytes: some seconds of reading, and a campaign of thousands of cells."""
PARTIAL = ".ledger-partial-"
"""How the name of a file begins while it is being written."""

_RESULT_NAME = re.compile(r"[0-9a-f]{64}\.")


class _CoreLoader(yaml.SafeLoader):
    """Load the YAML 1.2 core schema only, so that `no`, `010` and `1:30` stay text; refuse what is not plain."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}  # type: ignore[misc]

    def __init__(self, text: str, what: str) -> None:
        super().__init__(text)
        self._what = what
        self._open = self._events = 0

    def get_event(self) -> yaml.Event:
        """Return the next event. Raises: ParseError for aliases, anchors, tags and deep nesting, before it is built."""
        event: yaml.Event = super().get_event()  # type: ignore[no-untyped-call]
        where = f"{self._what}: line {event.start_mark.line + 1 if event.start_mark else 0}"
        self._events += 1
        if self._events > MAX_YAML_EVENTS:
            raise ParseError(f"{where}: more than {MAX_YAML_EVENTS} values and brackets; expected a smaller document")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ParseError(f"{where}: anchors and aliases are not accepted; expected the value written out")
        if tag := getattr(event, "tag", None):
            raise ParseError(f"{where}: tag {tag!r} is not accepted; expected plain values")
        self._open += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if self._open > MAX_YAML_DEPTH:
            raise ParseError(f"{where}: nested deeper than {MAX_YAML_DEPTH} levels; expected a flat document")
        return event


_CoreLoader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_CoreLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:null|~|)$"), ["n", "~", ""])
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    # An integer with a leading zero is neither this nor the rule above: it stays text.
    re.compile(r"^[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$"),
    list("-+.0123456789"),
)


def _build(node: yaml.Node, loader: _CoreLoader, what: str) -> Any:
    where = f"{what}: line {node.start_mark.line + 1}"
    if isinstance(node, yaml.SequenceNode):
        return [_build(child, loader, what) for child in node.value]
    if isinstance(node, yaml.MappingNode):
        members: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _build(key_node, loader, what)
            if not isinstance(key, str):
                raise ParseError(f"{where}: key {key!r} is not text; expected text")
            if key == "<<":
                raise ParseError(f"{where}: merge keys are not accepted; expected the values written out")
            if key in members:
                line = key_node.start_mark.line + 1
                raise ParseError(f"{what}: line {line}: duplicate key {key!r}; expected each key once")
            members[key] = _build(value_node, loader, what)
        return members
    try:
        value = loader.construct_object(node)
    except (ValueError, OverflowError) as error:
        raise ParseError(f"{where}: {str(node.value)[:40]!r} cannot be read: {error}") from error
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        raise ParseError(f"{where}: number {node.value!r} is too large; expected a finite number")
    return value


def parse_yaml(data: bytes, *, what: str) -> Any:
    """Return the plain value (dicts, lists, text, numbers) of hardened YAML. Raises: ParseError with the line."""
    if len(data) > MAX_YAML_BYTES:
        raise ParseError(f"{what}: {len(data)} bytes; expected at most {MAX_YAML_BYTES}")
    try:
        text = data.decode("utf-8")
        if text.startswith("\ufeff"):
            raise ParseError(f"{what}: begins with a byte-order mark; expected UTF-8 without one")
        loader = _CoreLoader(text, what)
        try:
            node = loader.get_single_node()
            return None if node is None else _build(node, loader, what)
        finally:
            loader.dispose()
    except UnicodeDecodeError as error:
        raise ParseError(f"{what}: not UTF-8 text ({error.reason} at byte {error.start}); expected UTF-8") from error
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise ParseError(f"{what}: not YAML: {problem[:300]}") from error
    except RecursionError as error:
        raise ParseError(f"{what}: nested too deep; expected a flat document") from error


def read_bytes(path: FilePath, limit: int = MAX_YAML_BYTES) -> bytes:
    """Return a file's bytes. Raises: InputError when it is missing, unreadable, no regular file or larger than `limit`.

    A descriptor of this process may be a pipe: /dev/stdin, or what a shell puts for <(command).
    """
    try:
        with open(path, "rb", opener=_open_at_once) as stream:
            kind = os.fstat(stream.fileno()).st_mode
            if not stat.S_ISREG(kind) and not _names_descriptor(path):
                what = "a named pipe" if stat.S_ISFIFO(kind) else "a device"
                raise InputError(f"{path}: is {what}; expected a regular file, or /dev/stdin to read what is piped")
            os.set_blocking(stream.fileno(), True)
            data = stream.read(limit + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); expected a file") from error
    if len(data) > limit:
        raise ParseError(f"{path}: larger than {limit} bytes; expected a small file")
    return data


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting, as a named pipe would for somebody who writes to it."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _names_descriptor(path: FilePath) -> bool:
    named = path.parent / path.readlink() if path.is_symlink() else path
    descriptors = FilePath("/dev/fd").resolve()
    return descriptors in (path.parent.resolve(), named.parent.resolve())


def write_atomically(path: FilePath, data: bytes) -> None:
    """Write a file so that a crash leaves the old one or the new one, never a part. Raises: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=PARTIAL)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        FilePath(name).chmod(0o644)
        FilePath(name).replace(path)
    except BaseException:
        FilePath(name).unlink(missing_ok=True)
        raise


# Hardware profiles


def _hardware_paths(root: FilePath | None) -> dict[str, FilePath]:
    found: dict[str, FilePath] = {}
    for folder in (shipped_folder("hardware"), *(() if root is None else (root / "hardware",))):
        found.update({path.stem: path for path in sorted(folder.glob("*.yaml"))})
    return found


def hardware_names(root: FilePath | None = None) -> tuple[str, ...]:
    """Return the names of all profiles: the repository's and those shipped with the package."""
    return tuple(sorted(_hardware_paths(root)))


def read_hardware(path: FilePath) -> Hardware:
    """Return the profile in a YAML file. Raises: InputError, ParseError, RecordError."""
    record = _profile(read_bytes(path), str(path))
    if record.name != path.stem:
        raise RecordError(f"{path}: name is {record.name!r}; expected the file's stem {path.stem!r}")
    return record


@functools.lru_cache(maxsize=64)
def _profile(data: bytes, what: str) -> Hardware:
    return validate(Hardware, parse_yaml(data, what=what), what=what)


def load_hardware(name: str, root: FilePath | None = None) -> Hardware:
    """Return a profile by name, the repository's before the shipped one, with its measured ceilings added.

    Measured ceilings of a shipped profile are in hardware/measured/NAME.yaml; the datasheet's are never replaced.
    Raises: UnknownName, ParseError, RecordError.
    """
    paths = _hardware_paths(root)
    if name not in paths:
        remedy = "; run: ledger calibrate --device cpu" if name == "cpu" else ""
        raise UnknownName(f"{unknown('hardware', name, sorted(paths))}{remedy}")
    profile = read_hardware(paths[name])
    folders = [shipped_folder("hardware"), *([] if root is None else [root / "hardware"])]
    for folder in folders:
        measured = folder / "measured" / f"{name}.yaml"
        if measured.is_file():
            added = {kind: c for kind, c in read_hardware(measured).ceilings.items() if kind != "datasheet"}
            profile = profile.model_copy(update={"ceilings": {**profile.ceilings, **added}})
    return profile


def shipped_like(hardware: Hardware) -> tuple[Hardware, ...]:
    """Return the profiles shipped with the package that have a profile's name or one of its device names."""
    names = set(hardware.device_names)
    # Parsing every profile takes longer than judging a hundred cells: most name no such device anywhere.
    texts = [name.encode() for name in names]
    found = (
        _shipped_profile(stem)
        for stem, data in _shipped_texts().items()
        if stem == hardware.name or any(text in data for text in texts)
    )
    return tuple(item for item in found if item.name == hardware.name or names & set(item.device_names))


@functools.cache
def _shipped_texts() -> dict[str, bytes]:
    """Return the bytes of the shipped profiles, by name in order."""
    return {name: read_bytes(path) for name, path in sorted(_hardware_paths(None).items())}


@functools.cache
def _shipped_profile(name: str) -> Hardware:
    return load_hardware(name)


def hardware_yaml(hardware: Hardware) -> bytes:
    """Return a profile as YAML that `read_hardware` takes back unchanged."""
    value = hardware.model_dump(mode="json", by_alias=True, exclude_none=False)
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120).encode()


# Records in folders


def read_record(kind: type[R], path: FilePath) -> R:
    """Return the canonical record in a file. Raises: InputError, ParseError, RecordError, EvidenceRefused."""
    return decode(kind, read_bytes(path, limit=64 * 1024 * 1024), what=str(path))


def write_record(path: FilePath, record: Record) -> bytes:
    """Write a record in canonical form and return its bytes."""
    data = encode(record)
    write_atomically(path, data)
    return data


def read_measurement(path: FilePath) -> Measurement:
    """Return the measurement, of any version, in a file. Raises: as `read_record`."""
    record = decode_any(read_bytes(path, limit=64 * 1024 * 1024), what=str(path))
    if not isinstance(record, Measurement):
        raise RecordError(f"{path}: is {record.schema_}; expected a measurement")
    return record


def results(
    folder: FilePath, on_skip: Callable[[str], None] = lambda _told: None
) -> Iterator[tuple[FilePath, Measurement]]:
    """Yield the measurements that `ledger measure` left in a folder, in the order of their names.

    Other JSON files are left out, each named to `on_skip`; a file with the name of a measurement must hold one.
    Raises: InputError when the folder is missing or holds none; as `read_record` for a measurement that is damaged.
    """
    found = 0
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            measurement = read_measurement(path)
        except InputError as error:
            if _RESULT_NAME.match(path.name):
                raise
            on_skip(f"left out {path.name}: no measurement ({shortened(str(error), 200)})")
            continue
        found += 1
        yield path, measurement
    if not found:
        raise InputError(f"{folder}: no measurement (*.json) there; expected the folder written by: ledger measure")
