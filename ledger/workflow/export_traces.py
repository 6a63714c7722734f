"""Exports a ledger's cells and the problems that were imported into its repository as a folder of flashinfer-trace.

Imported documents are written with the bytes they were read with; a measured run of one becomes a trace of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.book import Book, CellView
from ledger.callables.argument_list import parse_arguments, with_keys
from ledger.callables.subject import is_callable
from ledger.canonical import decode, object_id, object_path
from ledger.errors import InputError, LedgerError
from ledger.kernel_files import load_kernel
from ledger.operations import OPERATIONS, Operation
from ledger.problems.axes import slug
from ledger.problems.cells import Cell, Skipped
from ledger.problems.exported import (
    SealedSource,
    definition_of,
    evaluation_of,
    reference_solution,
    solution_of,
    workload_of,
)
from ledger.problems.exported_tensors import tensors_of
from ledger.problems.problem_set import MODELS, ProblemSet, read_problems
from ledger.record_files import read_bytes
from ledger.records import CaseV2, ForecastV2, KernelSource
from ledger.sources.closure import MAX_SOURCE_BYTES
from ledger.workflow.import_problems import FOLDER, planned, write_files

FORMAT = "flashinfer-trace"


@dataclass
class Exported:
    """Hold what an export wrote, by kind, and what it left out."""

    definitions: int = 0
    solutions: int = 0
    workloads: int = 0
    traces: int = 0
    skipped: list[Skipped] = field(default_factory=list)


@dataclass
class _Folder:
    """Gather the files of a trace set; lines and documents that are there already are not repeated."""

    documents: dict[str, bytes] = field(default_factory=dict)
    solutions: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: dict[str, dict[bytes, None]] = field(default_factory=dict)

    def add_document(self, path: str, data: bytes) -> None:
        """Add a document. Raises: InputError where another one has its name."""
        if self.documents.setdefault(path, data) != data:
            raise InputError(f"{path}: is there with other content; expected one document of each name")

    def add_solution(self, path: str, made: dict[str, Any]) -> None:
        """Add a cell's solution. Of the same sources the first author stays, and every device is a target.

        Raises: InputError where another one has its name.
        """
        first = self.solutions.get(path, made)
        targets = sorted({*_targets(first), *_targets(made)})
        merged, found = (
            {**one, "author": first["author"], "spec": {**one["spec"], "target_hardware": targets}}
            for one in (made, first)
        )
        if path in self.documents or merged != found:
            raise InputError(f"{path}: is there with other content; expected one document of each name")
        self.solutions[path] = merged

    def add_line(self, kind: str, op_type: str, name: str, line: bytes) -> None:
        self.lines.setdefault(f"{kind}/{_folder(op_type)}/{_file(name)}.jsonl", {}).setdefault(line)

    def files(self) -> dict[str, bytes]:
        """Return every file by its path."""
        return {
            **self.documents,
            **{path: _document(made) for path, made in self.solutions.items()},
            **{path: b"".join(one + b"\n" for one in lines) for path, lines in self.lines.items()},
        }


def export_traces(root: FilePath, book: Book, out: FilePath, *, problems: str = FOLDER) -> Exported:
    """Write the problems and the measured cells of a repository into a folder.

    Raises: InputError where the folder has other files of these names; EvidenceRefused is the caller's to raise.
    """
    folder, done = _Folder(), Exported()
    written: dict[str, bytes] = {}
    imported: list[Cell] = []
    found = ProblemSet(root / problems)
    if (root / problems).is_dir():
        found = read_problems(root / problems, stored=True)
        done.skipped += [Skipped(name, reason) for name, reason in found.invalid]
        written, imported = planned(found, problems, [])
        _add_imported(folder, found)
    matched = _Matched(found, imported, written)
    for cell in book.cells:
        if cell.runs:
            try:
                _add_cell(folder, cell, root, matched)
            except LedgerError as error:
                done.skipped.append(Skipped(cell.short_name, str(error)))
    files = folder.files()
    out.mkdir(parents=True, exist_ok=True)
    write_files(out, files)
    for path in files:
        kind = path.partition("/")[0]
        if kind in ("definitions", "solutions"):
            setattr(done, kind, getattr(done, kind) + 1)
        elif kind in ("workloads", "traces"):
            setattr(done, kind, getattr(done, kind) + files[path].count(b"\n"))
    return done


def _add_imported(folder: _Folder, found: ProblemSet) -> None:
    for name in found.names:
        op_type = found.definitions[name].op_type if name in found.definitions else "unknown"
        if name in found.definitions:
            folder.add_document(f"definitions/{_folder(op_type)}/{_file(name)}.json", found.definitions[name].data)
        for solution in found.solutions.get(name, {}).values():
            path = f"solutions/{_folder(op_type)}/{_file(name)}/{_file(solution.name)}.json"
            folder.add_document(path, solution.data)
        for trace in found.traces.get(name, {}).values():
            folder.add_line("workloads" if trace.is_workload else "traces", op_type, name, trace.data)
            for given in trace.inputs.values():
                _add_stored(folder, found, given.path)
    for name, data in found.models.items():
        folder.add_document(f"{MODELS}/{name}.py", data)


def _add_stored(folder: _Folder, found: ProblemSet, path: str) -> None:
    try:
        file = found.stored_file(path) if path else None
    except InputError:
        return
    if file is not None:
        folder.add_document(file.relative_to(found.folder.resolve()).as_posix(), file.read_bytes())


@dataclass
class _Matched:
    """Find the problem that a cell was imported from, by its callable, arguments, shape and sealed sources.

    written: the files that an import writes, by path.
    """

    found: ProblemSet
    cells: Sequence[Cell]
    written: Mapping[str, bytes]

    def __post_init__(self) -> None:
        self.known: dict[Any, Cell] = {}
        for one in self.cells:
            arguments, shape = with_keys(parse_arguments(one.args), one.shape)
            self.known[self._key(one.kernel, arguments, shape)] = one

    def of(self, case: Any, source: SealedSource) -> Cell | None:
        """Return the imported cell of a case, None for one of one's own, and for one whose code was edited since."""
        if any(self.written.get(path, text.encode()) != text.encode() for path, text in source.files.items()):
            return None
        arguments = case.arguments if isinstance(case, CaseV2) else None
        return None if arguments is None else self.known.get(self._key(case.kernel, arguments, case.shape))

    @staticmethod
    def _key(kernel: str, arguments: Any, shape: Any) -> Any:
        return kernel, tuple(arguments), tuple(sorted(shape.items()))


def _add_cell(folder: _Folder, cell: CellView, root: FilePath, matched: _Matched) -> None:
    case, source = cell.forecast.case, _sealed_source(cell, root)
    one = matched.of(case, source)
    if one is not None and one.definition in matched.found.definitions:
        op_type, name, solution = matched.found.definitions[one.definition].op_type, one.definition, one.solution
        workload = json.loads(one.workload)["workload"]
        if solution is None:
            made = reference_solution(matched.found.definitions[name])
            solution = made["name"]
            path = f"solutions/{_folder(op_type)}/{_file(name)}/{_file(solution)}.json"
            folder.add_document(path, _document(made))
    else:
        tensors = tensors_of(case, _operation(cell, root))
        definition, workload = definition_of(case, tensors, source), workload_of(case, tensors)
        device = cell.runs[0].recorded.measurement.device.name
        made = solution_of(cell.forecast, tensors, source, author=cell.sealed.commit.author, device=device)
        op_type, name, solution = definition["op_type"], definition["name"], made["name"]
        folder.add_document(f"definitions/{op_type}/{_file(name)}.json", _document(definition))
        folder.add_solution(f"solutions/{op_type}/{_file(name)}/{_file(solution)}.json", made)
        line = {"definition": name, "solution": None, "workload": workload, "evaluation": None}
        folder.add_line("workloads", op_type, name, _line(line))
    for run in cell.runs:
        trace = {
            "definition": name,
            "solution": solution,
            "workload": workload,
            "evaluation": evaluation_of(run.recorded.measurement, record=run.recorded.id),
        }
        folder.add_line("traces", op_type, name, _line(trace))


def _operation(cell: CellView, root: FilePath) -> Operation | None:
    if is_callable(cell.forecast.case.kernel):
        return None
    known = OPERATIONS.get(cell.forecast.operation)
    return known if known is not None else load_kernel(cell.forecast.case.kernel, root).kernel.operation


def _sealed_source(cell: CellView, root: FilePath) -> SealedSource:
    """Return the sealed sources of a cell, as the ledger's objects hold them. Raises: LedgerError."""
    if not isinstance(cell.forecast, ForecastV2):
        text = _object(root, cell.forecast.kernel_sha256).decode("utf-8", "replace")
        return SealedSource(None, {f"kernels/{cell.forecast.case.kernel}.py": text})
    manifest = decode(KernelSource, _object(root, cell.forecast.kernel_sha256), what="manifest")
    files = {}
    for one in manifest.files:
        try:
            files[one.path] = _object(root, one.sha256).decode()
        except UnicodeDecodeError as error:
            raise InputError(f"source {one.path}: is not UTF-8; expected text") from error
    return SealedSource(manifest, files)


def _object(root: FilePath, digest: str) -> bytes:
    data = read_bytes(root / object_path("predictions", digest), limit=MAX_SOURCE_BYTES)
    if object_id(data) != digest:
        raise InputError(f"object {digest[:12]}: has other bytes; expected those of its name")
    return data


def _targets(solution: dict[str, Any]) -> list[str]:
    return list(solution["spec"]["target_hardware"])


def _file(name: str) -> str:
    return slug(name, limit=100)


def _folder(op_type: str) -> str:
    return slug(op_type, limit=60)


def _document(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
