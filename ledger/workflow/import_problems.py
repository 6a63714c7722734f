"""Imports problems of benchmarks into a repository: modules that can be sealed, the documents, a campaign file.

Nothing of a problem is executed: its code runs when a cell is predicted or measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import yaml

from ledger.callables.subject import SELF
from ledger.callables.subject_files import closure_named
from ledger.errors import InputError, LedgerError
from ledger.problems.axes import slug
from ledger.problems.cells import Cell, Problem, Skipped, Subjects
from ledger.problems.kernelbench import model_subject
from ledger.problems.problem_set import ProblemSet, read_problems
from ledger.problems.subjects import solution_folders, subjects_of
from ledger.record_files import MAX_YAML_BYTES, load_hardware, write_atomically
from ledger.records import is_gpu

FOLDER = "problems"
_BYTES_A_FILE = MAX_YAML_BYTES // 4
_HEADER = """\
# Written by: ledger import. Each cell needs a regime and a percent of its roof; then: ledger predict --from {path}
"""


@dataclass
class Imported:
    """Hold what an import wrote and what it left out. paths: below the repository."""

    folder: str
    campaigns: list[str] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    problems: int = 0


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Hold how cells are written. hardware: a profile's name; regime, pct: a forecast for every cell, or None."""

    into: str = FOLDER
    hardware: str | None = None
    regime: str | None = None
    pct: float | None = None
    skip_invalid: bool = False


def import_problems(source: FilePath, root: FilePath, options: ImportOptions) -> Imported:
    """Write the problems of a folder or file into a repository. Raises: InputError; nothing is written then."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", options.into):
        raise InputError(f"--into: got {options.into!r}; expected small letters, digits and _, as in problems")
    cpu = options.hardware is not None and not is_gpu(load_hardware(options.hardware, root).target)
    found = read_problems(source)
    if found.invalid and not options.skip_invalid:
        name, reason = found.invalid[0]
        more = f"; {len(found.invalid) - 1} more" if len(found.invalid) > 1 else ""
        raise InputError(f"{source}: {name}: {reason}{more}; to import the others: --skip-invalid")
    if not (found.names or found.models):
        raise InputError(
            f"{source}: no problem there; expected definitions with workloads as JSON, or KernelBench's Python files"
        )
    result = Imported(options.into, problems=len(found.definitions) + len(found.models))
    result.skipped += [Skipped(name, reason) for name, reason in found.invalid]
    files, cells = planned(found, options.into, result.skipped)
    write_files(root, files)
    result.cells = list(_sealable([one for one in cells if not one.instead], root, result.skipped, cpu=cpu))
    done = {one.definition for one in result.cells}
    others = [one for one in cells if one.instead and one.definition not in done]
    result.cells += _sealable(others, root, result.skipped, cpu=cpu)
    title = slug(source.resolve().stem or "problems", limit=48)
    for number, part in enumerate(_parts(result.cells), 1):
        path = f"{options.into}/campaign{'' if number == 1 else f'_{number}'}.yaml"
        name = f"import_{title}{'' if number == 1 else f'_{number}'}"
        write_files(root, {path: _campaign(name, part, options, path)})
        result.campaigns.append(path)
    return result


def planned(found: ProblemSet, into: str, skipped: list[Skipped]) -> tuple[dict[str, bytes], list[Cell]]:
    """Return the files of a set of problems, by path below the repository, and its cells. Writes nothing."""
    files: dict[str, bytes] = {}
    cells: list[Cell] = []
    folders: dict[str, str] = {}
    for name in (*found.names, *found.models):
        folder = slug(name, limit=32, taken=folders.values())
        folders[name] = folder
        made = Subjects()
        if name in found.models:
            made = model_subject(found.models[name], name=name, package=f"{into}.{folder}")
        else:
            solutions = list(found.solutions.get(name, {}).values())
            traces = list(found.traces.get(name, {}).values())
            files.update(_documents(found, name, f"{into}/{folder}"))
            if name in found.definitions:
                problem = Problem(found.definitions[name], traces, solutions, f"{into}.{folder}")
                made = subjects_of(problem, found.stored)
            else:
                made.skipped.append(Skipped(name, "has no definition; expected one beside its traces or solutions"))
        files.update({f"{into}/{folder}/{path}": data for path, data in made.files.items()})
        cells += made.cells
        skipped += made.skipped
    files.update(_stored_files(found, into, skipped))
    return files, cells


def _documents(found: ProblemSet, name: str, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the documents of a problem with the bytes that they were read from."""
    if name in found.definitions:
        yield f"{folder}/definition.json", found.definitions[name].data
    if traces := found.traces.get(name):
        yield f"{folder}/traces.jsonl", b"".join(line + b"\n" for line in traces)
    solutions = found.solutions.get(name, {})
    folders = solution_folders(list(solutions.values()))
    for one in solutions.values():
        yield f"{folder}/{folders[one.name]}/solution.json", one.data


def _stored_files(found: ProblemSet, into: str, skipped: list[Skipped]) -> Iterator[tuple[str, bytes]]:
    """Yield the safetensors files that workloads name, with their bytes."""
    paths = {
        given.path
        for traces in found.traces.values()
        for one in traces.values()
        for given in one.inputs.values()
        if given.path
    }
    for path in sorted(paths):
        try:
            file = found.stored_file(path)
            if file.stat().st_size > MAX_STORED_BYTES:
                raise InputError(f"{path}: {file.stat().st_size} bytes; expected at most {MAX_STORED_BYTES}")
            yield f"{into}/{file.relative_to(found.folder.resolve()).as_posix()}", file.read_bytes()
        except (InputError, OSError) as error:
            skipped.append(Skipped(path, f"is not copied ({error})"))


MAX_STORED_BYTES = 64 * 1024 * 1024


def write_files(root: FilePath, files: Mapping[str, bytes]) -> None:
    """Write files that are new; an equal one is left. Raises: InputError where one is there with other content."""
    new = {}
    for path, data in files.items():
        file = root / path
        if not file.resolve().is_relative_to(root.resolve()):
            raise InputError(f"{path[:200]}: leads out of the repository by a link; expected a folder of it")
        try:
            if file.is_file() and file.read_bytes() == data:
                continue
            if file.exists() or file.is_symlink():
                raise InputError(
                    f"{path[:200]}: is there with other content; expected it moved away, or another folder"
                )
        except OSError as error:
            raise InputError(f"{path[:200]}: cannot be read ({error.strerror}); expected a free path") from error
        new[file] = data
    for file, data in new.items():
        try:
            write_atomically(file, data)
        except OSError as error:
            raise InputError(f"{file}: cannot be written ({error.strerror}); expected a folder of one's own") from error


def _sealable(cells: Sequence[Cell], root: FilePath, skipped: list[Skipped], *, cpu: bool) -> Iterator[Cell]:
    """Yield the cells whose sources a seal can hold and that the hardware can run; the others are listed once."""
    reasons: dict[str, str | None] = {}
    for one in cells:
        name = one.kernel if one.reference in (None, SELF) else f"{one.kernel} {one.reference}"
        if name not in reasons:
            reasons[name] = _unsealable(name, root)
            if reasons[name] is None and cpu and one.needs_gpu:
                reasons[name] = "is no plain Python and needs a GPU; --hw names a CPU: it cannot be built or run there"
            if (reason := reasons[name]) is not None:
                skipped.append(Skipped(one.solution or one.definition, reason))
        if reasons[name] is None:
            yield one


def _unsealable(name: str, root: FilePath) -> str | None:
    try:
        closure_named(name, root)
    except LedgerError as error:
        return str(error)
    return None


def _parts(cells: Sequence[Cell]) -> Iterator[Sequence[Cell]]:
    """Yield the cells of each campaign file, so that none is larger than a campaign may be."""
    part: list[Cell] = []
    size = 0
    for one in cells:
        size += 400 + len(one.kernel) + len(one.args)
        if part and size > _BYTES_A_FILE:
            yield part
            part, size = [], 0
        part.append(one)
    if part:
        yield part


def _campaign(name: str, cells: Sequence[Cell], options: ImportOptions, path: str) -> bytes:
    document: dict[str, Any] = {"campaign": name}
    if options.hardware is not None:
        document["hardware"] = options.hardware
    document["cells"] = [_entry(one, options) for one in cells]
    return (
        _HEADER.format(path=path).encode()
        + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000, default_flow_style=None).encode()
    )


def _entry(one: Cell, options: ImportOptions) -> dict[str, Any]:
    entry: dict[str, Any] = {"kernel": one.kernel, "args": one.args}
    if one.shape:
        entry["shape"] = dict(one.shape)
    if one.reference is not None:
        entry["reference"] = one.reference
    if options.regime is not None and options.pct is not None:
        entry |= {"regime": options.regime, "pct": options.pct}
    return entry
