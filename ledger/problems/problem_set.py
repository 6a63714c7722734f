"""Reads a folder of problems into one set: definitions, traces, solutions, KernelBench files. Runs none of them.

Two layouts are known: flashinfer-trace (definitions/, solutions/, workloads/, traces/) and one folder for each problem
(definition.json, workload.jsonl, solution*.json). Files of other kinds are left alone.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from ledger.canonical import parse_json
from ledger.errors import InputError
from ledger.problems.cells import MAX_HELD_BYTES
from ledger.problems.documents import (
    MAX_DOCUMENT_BYTES,
    MAX_SOURCE_TEXT,
    Definition,
    Solution,
    Trace,
    kind_of_document,
    read_definition,
    read_solution,
    read_trace,
)
from ledger.problems.kernelbench import is_problem, parse_module
from ledger.problems.safetensors import StoredTensor, read_tensor

MODELS = "kernelbench"
"""The folder that an export writes KernelBench's files into."""
MAX_FILES = 50_000
MAX_DEPTH = 16
MAX_LINES = 200_000
MAX_TOTAL_BYTES = 512 * 1024 * 1024
_SUFFIXES = (".json", ".jsonl", ".py")


@dataclass
class ProblemSet:
    """Hold what a folder has. invalid: files that are documents and cannot be read, with the reason."""

    folder: FilePath
    definitions: dict[str, Definition] = field(default_factory=dict)
    traces: dict[str, dict[bytes, Trace]] = field(default_factory=dict)
    solutions: dict[str, dict[str, Solution]] = field(default_factory=dict)
    models: dict[str, bytes] = field(default_factory=dict)
    invalid: list[tuple[str, str]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Return the names of all definitions, those that only traces or solutions name included."""
        return sorted({*self.definitions, *self.traces, *self.solutions})

    def stored(self, path: str, key: str) -> StoredTensor:
        """Return a tensor of a safetensors file that a workload names. Raises: InputError."""
        return read_tensor(self.stored_file(path), key, most=MAX_HELD_BYTES)

    def stored_file(self, path: str) -> FilePath:
        """Return the file that a workload names, below the folder. Raises: InputError for any other."""
        if not path.isprintable():
            raise InputError(f"{path[:200]!r}: is no path; expected the file that the workload names")
        file = (self.folder / path).resolve()
        if not file.is_relative_to(self.folder.resolve()) or not file.is_file():
            raise InputError(f"{path[:200]}: is no file below {self.folder}; expected the file that the workload names")
        return file


def read_problems(folder: FilePath, *, stored: bool = False) -> ProblemSet:
    """Return the problems of a folder, or of one file. stored: only the documents that an import wrote.

    Raises: InputError for too many or too large files.
    """
    if not folder.exists():
        raise InputError(f"{folder}: is not there; expected a folder of problems")
    found = ProblemSet(folder if folder.is_dir() else folder.parent)
    files = [folder] if not folder.is_dir() else list(_files(folder))
    if stored:
        files = [path for path in files if _is_stored(path.relative_to(folder).parts)]
    reader = _Reader(found)
    for suffix, read in ((".json", reader.json), (".jsonl", reader.lines), (".py", reader.python)):
        for path in files:
            if path.suffix == suffix:
                reader.guarded(path, read)
    return found


def _is_stored(parts: tuple[str, ...]) -> bool:
    """Tell whether a file is a document of an import, and no source of a solution."""
    names = {2: ("definition.json", "traces.jsonl", "problem.py"), 3: ("solution.json",)}
    return parts[-1] in names.get(len(parts), ())


def _files(folder: FilePath) -> Iterator[FilePath]:
    """Yield the plain files of a folder in the order of their paths; links and hidden names are left out."""
    count, pending = 0, [(folder, 0)]
    while pending:
        current, depth = pending.pop()
        try:
            entries = sorted(os.scandir(current), key=lambda one: one.name, reverse=True)
        except OSError as error:
            raise InputError(f"{current}: cannot be read ({error.strerror}); expected a folder") from error
        count += len(entries)
        if count > MAX_FILES or depth > MAX_DEPTH:
            raise InputError(f"{folder}: more than {MAX_FILES} files or {MAX_DEPTH} levels; expected a smaller folder")
        files = []
        for entry in entries:
            if entry.name.startswith((".", "__pycache__")) or entry.is_symlink():
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append((FilePath(entry.path), depth + 1))
            elif entry.name.endswith(_SUFFIXES):
                files.append(FilePath(entry.path))
        yield from reversed(files)


class _Reader:
    def __init__(self, found: ProblemSet) -> None:
        self.found = found
        self.total = 0
        self.count = 0
        self.folders: dict[FilePath, list[str]] = {}

    def guarded(self, path: FilePath, read: Callable[[FilePath], None]) -> None:
        """Read a file; what is wrong with it is kept, not raised."""
        try:
            read(path)
        except InputError as error:
            self.found.invalid.append((self._name(path), str(error).removeprefix(f"{self._name(path)}: ")))

    def json(self, path: FilePath) -> None:
        data, what = self._bytes(path), self._name(path)
        kind = kind_of_document(parse_json(data, what=what))
        if kind == "definition":
            definition = read_definition(data, what=what)
            known = self.found.definitions.setdefault(definition.name, definition)
            _check_same(known.data, data, f"{what}: definition {definition.name[:80]!r}")
            self.folders.setdefault(path.parent, []).append(definition.name)
        elif kind == "solution":
            solution = read_solution(data, what=what)
            others = self.found.solutions.setdefault(solution.definition, {})
            _check_same(
                others.setdefault(solution.name, solution).data, data, f"{what}: solution {solution.name[:80]!r}"
            )

    def lines(self, path: FilePath) -> None:
        what, near, traces = self._name(path), self.folders.get(path.parent, []), 0
        for number, line in enumerate(self._bytes(path, limit=MAX_TOTAL_BYTES).split(b"\n"), 1):
            if not line.strip():
                continue
            where = f"{what}: line {number}"
            if len(line) > MAX_DOCUMENT_BYTES:
                raise InputError(f"{where}: {len(line)} bytes; expected at most {MAX_DOCUMENT_BYTES}")
            value = parse_json(line, what=where)
            if not isinstance(value, dict) or not ("workload" in value or {"axes", "inputs"} <= set(value)):
                if traces:
                    raise InputError(f"{where}: is no workload and no trace, as those before it; expected one a line")
                return
            traces += 1
            self.count += 1
            if self.count > MAX_LINES:
                raise InputError(f"{where}: more than {MAX_LINES} traces; expected fewer")
            trace = read_trace(line, what=where, definition=near[0] if len(near) == 1 else None)
            self.found.traces.setdefault(trace.definition, {}).setdefault(trace.data, trace)

    def python(self, path: FilePath) -> None:
        if not self._is_plain(path):
            return
        if (size := path.stat().st_size) > MAX_SOURCE_TEXT:
            raise InputError(f"{self._name(path)}: {size} bytes; expected at most {MAX_SOURCE_TEXT}")
        data = self._bytes(path)
        if b"class Model" not in data or b"def get_inputs" not in data:
            return
        what = self._name(path)
        if is_problem(parse_module(data, what=what)):
            name = what.removesuffix(".py").removesuffix("/problem").removeprefix(f"{MODELS}/")
            self.found.models[name] = data

    def _name(self, path: FilePath) -> str:
        return path.relative_to(self.found.folder).as_posix()

    def _is_plain(self, path: FilePath) -> bool:
        return stat.S_ISREG(path.lstat().st_mode)

    def _bytes(self, path: FilePath, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
        what = self._name(path)
        try:
            if not self._is_plain(path):
                raise InputError(f"{what}: is no plain file; expected one")
            with path.open("rb") as stream:
                data = stream.read(limit + 1)
        except OSError as error:
            raise InputError(f"{what}: cannot be read ({error.strerror}); expected a file") from error
        self.total += len(data)
        if len(data) > limit or self.total > MAX_TOTAL_BYTES:
            most = limit if len(data) > limit else MAX_TOTAL_BYTES
            raise InputError(f"{what}: with it more than {most} bytes; expected smaller files")
        return data


def _check_same(known: bytes, data: bytes, what: str) -> None:
    if known != data and json.loads(known) != json.loads(data):
        raise InputError(f"{what} is there twice with other content; expected each name once")
