"""The commands bench and timeline: a kernel beside its library baselines, timed or traced."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.cli.open_ledger import find_root
from ledger.cli.options import parse_ceilings, parse_dtype, parse_shape
from ledger.cli.output import emit, out, say
from ledger.errors import InputError

if TYPE_CHECKING:
    from ledger.kernel_files import KernelFile
    from ledger.measure.bench import Cell
    from ledger.records import Hardware


def bench(
    kernel: Annotated[list[str] | None, typer.Argument(help="Kernels to time (default: all).")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Shape, as B=8,H=4096,O=4096; may be repeated.")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Data type; may be repeated (default: all).")] = None,
    hw: Annotated[str | None, typer.Option("--hw", help="Profile (default: the one that names this device).")] = None,
    ceilings: Annotated[str | None, typer.Option(help="Roof: datasheet, burst or sustained.")] = None,
    baseline: Annotated[list[str] | None, typer.Option(help="Baselines to run (default: all).")] = None,
    output: Annotated[FilePath | None, typer.Option("-o", "--output", help="JSON file to write.")] = None,
    against: Annotated[FilePath | None, typer.Option(help="Earlier bench to compare with, by ratios.")] = None,
    fail_on_regress: Annotated[str | None, typer.Option(help="Exit 1 when slower by more, as in 3%.")] = None,
    self_test: Annotated[
        int | None, typer.Option(help="Time the kernel against itself this often, and count the false alarms.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Time kernels beside what the library offers, interleaved in one run on the same cold inputs."""
    from ledger.device.local_profile import profile_of_this_machine
    from ledger.kernel_files import kernel_names, load_kernel
    from ledger.measure.bench import bench as run
    from ledger.records import is_gpu
    from ledger.render.bench_page import render_markdown

    root = find_root()
    if fail_on_regress is not None and against is None:
        raise InputError("--fail-on-regress: given without --against; expected an earlier bench to compare with")
    hardware = profile_of_this_machine(root, hw)
    if self_test is not None:
        _self_test(kernel, shape, dtype, hardware, trials=self_test, as_json=as_json)
        return
    document: dict[str, Any] = {}
    files = [load_kernel(name, root, launch=is_gpu(hardware.target)) for name in kernel or kernel_names(root)]
    only = None if baseline is None else baseline_set(baseline, files)
    for file in files:
        cells = cells_of(file, shape, dtype)
        part = run(file, cells, hardware=hardware, ceilings=parse_ceilings(ceilings), only=only, on_progress=say)
        document = _joined(document, part) if document else part
    if output is not None:
        _write(document, output)
    if as_json:
        emit(document)
    else:
        out().print(render_markdown(document), markup=False, soft_wrap=True)
    if against is not None:
        _compare(document, against, fail_on_regress)


def _self_test(
    kernels: list[str] | None,
    shapes: list[str] | None,
    dtypes: list[str] | None,
    hardware: Hardware,
    *,
    trials: int,
    as_json: bool,
) -> None:
    from ledger.kernel_files import load_kernel
    from ledger.measure.bench_self_test import render
    from ledger.measure.bench_self_test import self_test as run

    name = (kernels or ["rmsnorm_matmul"])[0]
    file = load_kernel(name, find_root(), launch=hardware.target.startswith("sm_"))
    found = run(file, cells_of(file, shapes, dtypes)[0], hardware=hardware, trials=trials, on_progress=say)
    if as_json:
        emit(found)
    else:
        out().print(render(found), markup=False, soft_wrap=True)


def cells_of(file: KernelFile, shapes: list[str] | None, dtypes: list[str] | None) -> list[Cell]:
    """Return the cells asked for; without shapes or dtypes, all that the kernel lists. Raises: InputError."""
    kernel = file.kernel
    sizes = [parse_shape(shape) for shape in shapes] if shapes else [dict(case) for case in kernel.cases]
    kinds = [parse_dtype(dtype) for dtype in dtypes] if dtypes else list(kernel.dtypes)
    return [(size, kind) for size in sizes for kind in kinds]


def baseline_set(asked: list[str], files: list[KernelFile]) -> frozenset[str]:
    """Return the baselines asked for as rows name them. Raises: InputError for one that no kernel here has."""
    from ledger.measure.bench import baseline_names

    names = frozenset[str]().union(*(baseline_names(file.kernel) for file in files))
    only = frozenset(name.replace("-", "_") for name in asked)
    if unknown := sorted(only - names):
        raise InputError(
            f"--baseline: {', '.join(unknown)} is no baseline of {', '.join(file.kernel.name for file in files)}; "
            f"expected some of: {', '.join(sorted(names))}"
        )
    return only


def _joined(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return two kernels' benches of one run as one; each kernel's digest and what it says of overlap stay."""
    first, second = document["conditions"], part["conditions"]
    overlap = [words for words in (first["overlap"], second["overlap"]) if words]
    conditions = {
        **first,
        "kernel_sha256": first["kernel_sha256"] | second["kernel_sha256"],
        "overlap": "; ".join(overlap) or None,
    }
    return {**document, "conditions": conditions, "rows": [*document["rows"], *part["rows"]]}


def _write(document: dict[str, Any], output: FilePath) -> None:
    import json

    from ledger.record_files import write_atomically

    write_atomically(output, (json.dumps(document, indent=1) + "\n").encode())
    say(f"wrote {output}")


def _compare(document: dict[str, Any], against: FilePath, limit: str | None) -> None:
    from ledger.analysis.bench_regression import check, compare
    from ledger.canonical import parse_json
    from ledger.record_files import read_bytes

    earlier = parse_json(read_bytes(against), what=str(against))
    changes = compare(document, earlier)
    for change in changes:
        say(change.sentence)
    if limit is not None:
        check(changes, limit)
