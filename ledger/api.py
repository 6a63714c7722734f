"""Offers the ledger to Python: ledger.open(".", hw="h200") predicts and measures; report, cells and roofline show it.

What is measured is what was sealed: the source of the callable on disk, not the object in memory. Imports torch only
when a callable is predicted or measured.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path as FilePath
from tempfile import TemporaryDirectory
from types import ModuleType, TracebackType
from typing import Any, Literal, Self, get_args

from ledger.analysis.book import Book
from ledger.analysis.campaign import Request
from ledger.analysis.refusals import check_failures
from ledger.analysis.report_rows import document
from ledger.callables.recorded_arguments import Arguments, described
from ledger.canonical import encode, record_errors, record_id
from ledger.errors import EvidenceRefused, InputError, StateError
from ledger.evidence.judged_ledger import judged_ledger
from ledger.evidence.staleness import CurrentDigest
from ledger.git.commit import Repository
from ledger.git.history import read_history
from ledger.git.reader import Reader, quiet_environment
from ledger.measure.ordered_kernels import kernels_of
from ledger.measure.run_order import run_order
from ledger.notebook import Figure, Report, data_frame
from ledger.record_files import load_hardware
from ledger.records import Dtype, ForecastV2, Order, Regime, Sight
from ledger.render import roofline_svg, svg
from ledger.render.report_text import predicted_text, sentence_of, summary_text
from ledger.render.roofline_plot import only_kernels, plot_of
from ledger.suggestions import unknown
from ledger.workflow.ingest import Ingested, ingest, read_folder
from ledger.workflow.order import write_order
from ledger.workflow.seal import draft, seal
from ledger.workflow.select import current_digests, select
from ledger.workflow.sight import with_sights


@dataclass(frozen=True)
class SealedForecast:
    """Hold a forecast that is sealed. id: of the seal; cell: its name within it; commit: where it is."""

    id: str
    cell: str
    commit: str
    forecast: ForecastV2

    @property
    def name(self) -> str:
        """Return SEAL#CELL, as the commands take it."""
        return f"{self.id}#{self.cell}"

    def to_dict(self) -> dict[str, Any]:
        """Return the seal's id, commit, cell and the forecast, as plain types."""
        return {"id": self.id, "cell": self.cell, "commit": self.commit, **self.forecast.model_dump(mode="json")}

    def _repr_html_(self) -> str:
        return _table((("sealed", self.id[:10]), ("cell", self.cell), ("forecast", predicted_text(self.forecast))))


@dataclass(frozen=True)
class Result:
    """Hold a measured forecast as the report shows it. gap: measured less forecast percent, None where it failed."""

    row: Mapping[str, Any]
    why: str
    note: str | None

    @property
    def gap(self) -> float | None:
        """Return the gap in points of the roof."""
        found = self.row["gap"]
        return None if found is None else float(found["percent"])

    def to_dict(self) -> dict[str, Any]:
        """Return the row of `ledger report --json`."""
        return dict(self.row)

    def _repr_html_(self) -> str:
        return _table(
            (
                ("cell", self.row["cell"]),
                ("predicted", f"{self.row['predicted']['regime']} {self.row['predicted']['percent']:g}%"),
                ("measured", _measured_text(self.row["measured"])),
                ("why", self.why),
                ("evidence", f"levels {self.row['levels']}; {self.note or 'samples ' + str(self.row['samples'])}"),
            )
        )


def _measured_text(measured: Mapping[str, Any] | None) -> str:
    if measured is None:
        return "failed"
    percent = measured["percent"]
    return f"{measured['regime'] or 'not determined'}" + ("" if percent is None else f" {percent:.1f}%")


def _table(rows: tuple[tuple[str, str], ...]) -> str:
    lines = (f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table>{''.join(lines)}</table>"


class OpenBook:
    """Predict and measure in the ledger of one repository, and show it. hw: the device of new forecasts."""

    def __init__(self, folder: FilePath, hw: str | None) -> None:
        """Open the repository around a folder. Raises: StateError where there is none."""
        self.repository = Repository(folder)
        self.hardware = hw

    def __enter__(self) -> Self:
        """Return the book itself; leaving it has nothing to close, since every seal and record is a commit."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Do nothing."""

    def predict(
        self,
        function: Any,
        *,
        regime: Regime,
        pct: float,
        args: Arguments | None = None,
        shape: Mapping[str, int] | None = None,
        low: float | None = None,
        high: float | None = None,
        why: str = "",
        dtype: Dtype | None = None,
        run: Literal["forward", "backward", "both"] | None = None,
        reference: str | None = None,
        tolerance: float | None = None,
        flops: int | None = None,
        bytes: int | None = None,
        sight: Sight | None = None,
        known: str = "",
    ) -> SealedForecast:
        """Seal a forecast of a callable of this repository, of module:name or of a kernel by name, and return it.

        args: as --args has it, or a function of a generator. The rest is as `ledger predict` has it.
        Raises: InputError, MachineError, RecordError, StateError.
        """
        if self.hardware is None:
            raise InputError("hw: not given; expected the device of the forecast: ledger.open('.', hw='h200')")
        if shape is not None and not isinstance(shape, Mapping):
            raise InputError(f"shape: got {shape!r:.60}; expected a size for each key, as in {{'N': 4096, 'K': 4096}}")
        if regime not in get_args(Regime):
            raise InputError(unknown("regime", regime, get_args(Regime)))
        name = function if isinstance(function, str) else subject_name(function, self.repository.root)
        given = None if args is None else described(args, None if isinstance(function, str) else function)
        with record_errors(f"forecast of {name}"):
            request = Request(
                kernel=name, hardware=self.hardware, dtype=dtype, shape=dict(shape or {}), regime=regime,
                pct=_number("pct", pct), low=None if low is None else _number("low", low),
                high=None if high is None else _number("high", high),
                why=why, sight=sight, known=known, run=run, reference=reference, tolerance=tolerance,
                flops=flops, bytes=bytes,
            )  # fmt: skip
        made = draft(request, root=self.repository.root, arguments=given)
        (item,), _ = with_sights(self.repository, [made])
        sealed = seal(self.repository, [item])
        return SealedForecast(sealed.id, item.forecast.cell, sealed.commit, item.forecast)

    def measure(self, forecast: SealedForecast, *, counters: Literal["auto", "full", "off"] = "auto") -> Result:
        """Measure a sealed forecast on this machine, commit the record and return what the report says of it.

        Raises: MachineError, InputError; EvidenceRefused for a ledger or a measurement that the judge refuses, and for
        a callable that interferes with its measurement.
        """
        if not isinstance(forecast, SealedForecast):
            raise InputError(f"forecast: got {forecast!r:.60}; expected what predict returns")
        with self.repository.locked("verify"), TemporaryDirectory() as name:
            reader = Reader(self.repository.git_dir, quiet_environment())
            current = current_digests(self.repository.root)
            book = self._book(reader, current)
            order = write_order(select(book, [forecast.name]), root=self.repository.root)
            folder = FilePath(name)
            _run(order, folder, counters)
            done = ingest(self.repository, reader, read_folder(folder), current=current)
        return _result(done, forecast)

    def report(self) -> Report:
        """Return what was forecast and measured, judged at HEAD. Raises: StateError, EvidenceRefused."""
        book = self._judged()
        return Report(summary_text(book), tuple(document(book)["rows"]))

    def cells(self) -> Any:
        """Return the rows of the report as a pandas.DataFrame. Raises: as report; MachineError without pandas."""
        return data_frame(self.report().rows)

    def roofline(self, *hw: str, kernels: Sequence[str] = ()) -> Figure:
        """Return the measured cells on the roofline. hw: profiles, by default those of the cells.

        Raises: InputError for a kernel without a dot, and without any cell or profile; UnknownName; as report.
        """
        book = self._judged()
        names = hw or sorted({view.forecast.case.hardware for view in book.cells if view.counted})
        if not names and self.hardware is None:
            raise InputError("no cell is measured; expected one, or a profile to draw: roofline('h200')")
        drawn = names or [self.hardware or ""]
        plot = plot_of([load_hardware(name, self.repository.root) for name in drawn], book)
        return Figure(svg.standalone(roofline_svg.draw(only_kernels(plot, kernels) if kernels else plot)))

    def _judged(self) -> Book:
        if self.repository.head() is None:
            raise StateError(f"{self.repository.root}: no commit yet; expected a sealed forecast")
        reader = Reader(self.repository.git_dir, quiet_environment())
        return self._book(reader, current_digests(self.repository.root))

    def _book(self, reader: Reader, current: CurrentDigest) -> Book:
        book = judged_ledger(reader, read_history(reader, wait=False), current=current)
        if book.refused:
            raise EvidenceRefused(f"the ledger is refused: {book.refused[0].path}: {book.refused[0].message}")
        return book


def open(folder: str | FilePath = ".", *, hw: str | None = None) -> OpenBook:
    """Open the ledger of a repository; a `with` block is allowed and not needed. hw: the device of new forecasts.

    >>> import ledger
    >>> ledger.open("/").report()
    Traceback (most recent call last):
        ...
    ledger.errors.StateError: ...

    Raises: StateError without a repository.
    """
    return OpenBook(FilePath(folder), hw)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: got {value!r:.60}; expected a percent of the roof, as 40") from error


def _run(order: Order, folder: FilePath, counters: Literal["auto", "full", "off"]) -> None:
    digest = record_id(type(order), encode(order))
    summary = run_order(
        order, order_sha256=digest, out=folder, kernels=kernels_of(order, folder=folder), counters=counters
    )
    if summary.interrupted:
        raise KeyboardInterrupt
    summary.check_loaded()


def _result(done: Ingested, forecast: SealedForecast) -> Result:
    taken = next(iter(done.taken), None)
    if taken is not None and taken.refused:
        raise EvidenceRefused(f"{taken.cell}: {taken.refused[0].code}: {taken.refused[0].message}")
    row = next(row for row in document(done.book)["rows"] if (row["seal"], row["cell"]) == (forecast.id, forecast.cell))
    check_failures([(forecast.name, row["failure"])])
    return Result(row, sentence_of(done.book, row["seal"], row["cell"]), taken.note if taken else None)


def subject_name(function: Any, root: FilePath) -> str:
    """Return module:name of a callable that stands in a module of the repository. Raises: InputError."""
    for module in _modules(function):
        file = getattr(module, "__file__", None)
        path = FilePath(file).resolve() if file else None
        if path is None or not path.is_relative_to(root.resolve()):
            continue
        for name in _names(module, function):
            return f"{_dotted(path, root.resolve(), main=module.__name__ == '__main__')}:{name}"
    raise InputError(
        f"{getattr(function, '__qualname__', type(function).__name__)}: has no name in a module of the repository; "
        "expected a function or module of torch at the top of a file there, not one of a notebook or of a console"
    )


def _modules(function: Any) -> Iterator[ModuleType]:
    own = sys.modules.get(getattr(function, "__module__", None) or "")
    if own is not None:
        yield own
    yield from (module for module in list(sys.modules.values()) if isinstance(module, ModuleType) and module is not own)


def _names(module: ModuleType, function: Any) -> Iterator[str]:
    yield from (name for name, value in list(vars(module).items()) if value is function)


def _dotted(path: FilePath, root: FilePath, *, main: bool) -> str:
    """Return the module of a file. Raises: InputError for a script whose import would run it."""
    if main:
        _check_guarded(path)
    folder = root / "src" if path.is_relative_to(root / "src") else root
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _check_guarded(path: FilePath) -> None:
    """Check that a script does its work under `if __name__ == "__main__"` alone: it is executed again from its seal."""
    allowed = (
        ast.Import,
        ast.ImportFrom,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.Assign,
        ast.AnnAssign,
    )
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        guard = isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
        if not (isinstance(node, allowed) or docstring or guard):
            raise InputError(
                f"{path.name}: line {node.lineno} runs when the file is imported, as it is to measure; expected such "
                "lines under: if __name__ == '__main__'"
            )
