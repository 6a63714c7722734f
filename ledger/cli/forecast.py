"""The command forecast: what forecasters say of cells, grids and models; seals nothing."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli.cells import cells_of
from ledger.cli.open_ledger import find_root
from ledger.cli.options import (
    ArgsOption,
    BytesOption,
    FlopsOption,
    JsonOption,
    PassOption,
    ProgramOption,
    ReferenceOption,
    parse_dtype,
    parse_pass,
    parse_shape,
)
from ledger.cli.output import emit, err, out, say
from ledger.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ledger.analysis.campaign import CellRequest
    from ledger.forecasters.answer import Answer, Measured, NoAnswer, Question
    from ledger.forecasters.registry import Participating
    from ledger.records import CeilingKind, Dtype, Hardware
    from ledger.render.forecast_map import MapCell

_ASKED_OF_THE_LEDGER = ("persistence", "learned")
_BATCHES = "1,8,32,128,512"


def forecast(
    subject: Annotated[
        str | None,
        typer.Argument(metavar="SUBJECT", help="Kernel, module:name or config.json.", show_default=False),
    ] = None,
    hw: Annotated[
        list[str] | None, typer.Option("--hw", help="Hardware profiles; see: ledger hardware list.", show_default=False)
    ] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help="Data types (default: the config.json's, or the kernel's first).")
    ] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Shapes, as B=32,H=4096 (default: the kernel's).")] = None,
    grid: Annotated[str | None, typer.Option(help="A grid: 'B=1,8,32 H=2048,4096 O=H'.")] = None,
    batch: Annotated[
        str | None, typer.Option(help=f"Batches of a config.json (default: {_BATCHES}).", show_default=False)
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="GPUs that share a config.json's weights (default: 1).", show_default=False),
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="Forecasters, comma-separated (default: all; of a grid analytic).")
    ] = None,
    args: ArgsOption = None,
    run: PassOption = None,
    reference: ReferenceOption = None,
    flops: FlopsOption = None,
    moved: BytesOption = None,
    program: ProgramOption = None,
    source: Annotated[
        FilePath | None, typer.Option("--from", help="Campaign file: its cells, of callables too.")
    ] = None,
    output: Annotated[FilePath | None, typer.Option("-o", "--output", help="Write the heat map as SVG.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what forecasters say of cells. Also what binds and what would move it; seals nothing."""
    from ledger.callables.subject import is_callable
    from ledger.forecasters.command import participant
    from ledger.forecasters.registry import answers_of, participants_named
    from ledger.record_files import load_hardware

    called = {"args": args, "pass": parse_pass(run), "reference": reference, "flops": flops, "bytes": moved}
    given = [f"--{name}" for name, value in called.items() if value is not None]
    if source is not None:
        if subject or hw or dtype or shape or grid or batch or gpus or output or given:
            raise InputError("--from: given together with cells of its own; expected one or the other")
        programs = [participant(text) for text in program or ()]
        chosen = participants_named(by, programs)
        asked = list(_campaign(source, _earlier(chosen)))
        _show([(question, answers_of(question, chosen)) for question in asked], as_json=as_json)
        return
    if subject is None or not hw:
        missing = "SUBJECT" if subject is None else "--hw"
        raise InputError(f"{missing}: not given; expected a kernel or a config.json, with --hw; or --from FILE")
    if given and not is_callable(subject):
        raise InputError(f"{given[0]}: given for {subject[:60]!r}; expected it for a callable, module:name")
    if grid is not None and is_callable(subject):
        raise InputError(f"--grid: given for the callable {subject[:60]!r}; expected --shape, once for each case")
    model = subject.endswith(".json")
    many = model or grid is not None
    if model and grid is not None:
        raise InputError("--grid: given together with a config.json; expected --batch")
    if not model and (batch is not None or gpus is not None):
        option = "--batch" if batch is not None else "--gpus"
        raise InputError(f"{option}: given for the kernel {subject[:60]!r}; expected it with a config.json alone")
    if many and shape:
        raise InputError("--shape: given together with a grid or a config.json; expected one of them")
    programs = [participant(text) for text in program or ()]
    chosen = participants_named(by if by or programs else "analytic" if many else None, programs)
    root = find_root()
    profiles = [load_hardware(name.strip(), root) for names in hw for name in names.split(",")]
    earlier = _earlier(chosen)
    if many:
        _map(
            list(_places(subject, grid, batch or _BATCHES, gpus or 1, dtype, profiles, earlier)),
            chosen,
            output,
            as_json=as_json,
        )
        return
    if output is not None:
        raise InputError("--output: a heat map needs a grid or a config.json; expected --grid")
    if is_callable(subject):
        questions = list(_calls(subject, shape, dtype, called, profiles, earlier))
    else:
        questions = list(_cells(subject, shape, dtype, profiles, earlier))
    _show([(question, answers_of(question, chosen)) for question in questions], as_json=as_json)


def _show(answered: Sequence[tuple[Question, tuple[Answer | NoAnswer, ...]]], *, as_json: bool) -> None:
    """Show what forecasters say of cells."""
    from ledger.render.answers_text import answers_document, render_answers

    if as_json:
        emit({"cells": answers_document(answered)})
    else:
        render_answers(answered, out())


def _campaign(source: FilePath, earlier: tuple[Measured, ...]) -> Iterator[Question]:
    """Yield the questions of a campaign file; what a person forecasts there is not used."""
    from ledger.analysis.campaign import parse_open_campaign
    from ledger.record_files import parse_yaml, read_bytes

    found, cells = parse_open_campaign(parse_yaml(read_bytes(source), what=str(source)), what=str(source))
    yield from _prepared(cells, earlier, ceilings=found.ceilings)


def _prepared(
    cells: Iterable[CellRequest], earlier: tuple[Measured, ...], *, ceilings: CeilingKind | None = None
) -> Iterator[Question]:
    """Yield the questions of cells, resolved as they would be for a seal."""
    from ledger.forecasters.answer import Question
    from ledger.workflow.seal import prepare

    root = find_root()
    for cell in cells:
        one = prepare(cell, root=root, ceilings=ceilings)
        yield Question(one.resolved.case, one.resolved.work, one.roof, one.hardware, earlier)


def _calls(
    subject: str,
    shapes: Sequence[str] | None,
    dtypes: Sequence[str] | None,
    called: Mapping[str, Any],
    profiles: Sequence[Hardware],
    earlier: tuple[Measured, ...],
) -> Iterator[Question]:
    """Yield the questions of a callable's cells on every profile; called: its options as a campaign names them."""
    from ledger.analysis.campaign import CellRequest
    from ledger.canonical import record_errors

    sizes = [parse_shape(text) for text in shapes or ()] or [{}]
    kinds: list[Dtype | None] = [parse_dtype(kind) for kind in dtypes or ()]
    with record_errors("cell"):
        cells = [
            CellRequest(kernel=subject, hardware=hardware.name, shape=size, dtype=kind, **called)
            for hardware in profiles
            for size in sizes
            for kind in kinds or [None]
        ]
    yield from _prepared(cells, earlier)


def _cells(
    subject: str,
    shape: Sequence[str] | None,
    dtype: Sequence[str] | None,
    profiles: Sequence[Hardware],
    earlier: tuple[Measured, ...],
) -> Iterator[Question]:
    """Yield the questions of a kernel's cells on every profile."""
    from ledger.kernel_files import load_kernel
    from ledger.workflow.question import make_question

    kernel = load_kernel(subject, find_root()).kernel
    cells = cells_of(kernel, shape, dtype or [kernel.dtypes[0]])
    for hardware in profiles:
        for sizes, kind in cells:
            yield make_question(kernel, hardware, shape=sizes, dtype=kind, earlier=earlier)


def _places(
    subject: str,
    grid: str | None,
    batch: str,
    gpus: int,
    dtype: Sequence[str] | None,
    profiles: Sequence[Hardware],
    earlier: tuple[Measured, ...],
) -> Iterator[tuple[str, str, str, Question]]:
    """Yield block, row, column and question of every cell of a grid, or of a model's projections."""
    from ledger.analysis.formatting import shape_text
    from ledger.analysis.model_shapes import dtype_of_config, products_of_config, undivided
    from ledger.analysis.shape_grid import parse_grid
    from ledger.canonical import parse_json
    from ledger.kernel_files import load_kernel
    from ledger.record_files import read_bytes
    from ledger.workflow.question import make_question

    root, fixed = find_root(), {}
    kinds = [parse_dtype(kind) for kind in dtype or ()]
    if grid is None:
        config = parse_json(read_bytes(FilePath(subject)), what=subject)
        products = products_of_config(config, gpus, what=subject)
        batches = [shape["B"] for shape in parse_grid(f"B={batch}", what="--batch")]
        kernels = {one.kernel: load_kernel(one.kernel, root).kernel for one in products}
        kinds = kinds or [dtype_of_config(config)]
        if left_out := undivided(config, gpus, what=subject):
            say(f"left out: {', '.join(left_out)}, which {gpus} GPUs do not divide")
        listed = [(kernels[one.kernel], one.shape(rows), f"B={rows}", one.name) for rows in batches for one in products]
    else:
        kernel, shapes = load_kernel(subject, root).kernel, parse_grid(grid)
        varied = [key for key in shapes[0] if len({shape[key] for shape in shapes}) > 1] or list(shapes[0])
        first, rest = varied[0], varied[1:] or [key for key in shapes[0] if key != varied[0]]
        listed = [
            (kernel, shape, f"{first}={shape[first]}", shape_text({key: shape[key] for key in rest}))
            for shape in shapes
        ]
        fixed = {key: size for key, size in shapes[0].items() if key != first and key not in rest}
    kinds = kinds or [listed[0][0].dtypes[0]]
    name = f"{subject.rpartition('/')[2]} {shape_text(fixed)}".strip()
    for hardware in profiles:
        for kind in kinds:
            for kernel, shape, row, column in listed:
                question = make_question(kernel, hardware, shape=shape, dtype=kind, earlier=earlier)
                yield f"{name} {kind} on {hardware.name}", row, column, question


def _map(
    places: Sequence[tuple[str, str, str, Question]],
    chosen: Sequence[Participating],
    output: FilePath | None,
    *,
    as_json: bool,
) -> None:
    """Show the cells as a table and heat maps, of the first forecaster; as JSON of all of them."""
    from rich.text import Text

    from ledger.analysis.formatting import harmless
    from ledger.forecasters.levers import COMPARED, SPREAD, lever_of
    from ledger.forecasters.registry import answers_of
    from ledger.record_files import write_atomically
    from ledger.records import is_gpu
    from ledger.render.answers_text import answers_document
    from ledger.render.forecast_map import MapCell, map_document, map_svg, render_map

    answered = [(question, answers_of(question, chosen)) for *_, question in places]
    cells: list[MapCell] = []
    for (block, row, column, question), (_, given) in zip(places, answered, strict=True):
        lever = lever_of(question) if is_gpu(question.hardware.target) else None
        cells.append(MapCell(block, row, column, question, given[0], lever))
    if output is not None:
        write_atomically(output, map_svg(cells, f"{chosen[0].name}: percent of the roof").encode())
        say(f"wrote {output}")
    if as_json:
        rows = zip(answers_document(answered), map_document(cells), strict=True)
        emit({"cells": [{**answer, **place} for answer, place in rows]})
        return
    render_map(cells, out())
    for hardware in {id(question.hardware): question.hardware for *_, question in places}.values():
        if chosen[0].name == "analytic" and is_gpu(hardware.target):
            compared = "" if hardware.name in COMPARED else f"; nothing measured on {hardware.name} was compared"
            runs = "685 runs on an H200 and an H100"
            told = f"{hardware.name}: 80% of {runs} took {SPREAD[0]:g} to {SPREAD[1]:g} times that{compared}"
            err().print(Text(harmless(told)))


def _earlier(chosen: Sequence[Participating]) -> tuple[Measured, ...]:
    """Return what the ledger of this folder has measured, where a forecaster asks for it; nothing without a ledger."""
    from ledger.cli.named import known_now

    if not {one.name for one in chosen}.intersection(_ASKED_OF_THE_LEDGER):
        return ()
    return known_now().runs
