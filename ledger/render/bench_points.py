"""Makes points of a roofline plot from the rows of a bench: ours, and the fastest library with the same result.

A bench is not evidence: it has no forecast and no seal, so its dots have no forecast and no regime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from ledger.analysis.formatting import shape_text
from ledger.errors import InputError
from ledger.kernel import Kernel
from ledger.kernel_files import implementation_for
from ledger.records import CeilingKind, Dtype, Hardware, Roof, Work, is_gpu
from ledger.render.plot_model import Dot, RooflinePlot
from ledger.roofline import arithmetic_intensity, memory_side, percent_of_roof, roof_of

# What torch.matmul calls on a CUDA device.
_LIBRARIES = {"torch_matmul": "cuBLAS"}


def with_bench(
    plot: RooflinePlot,
    bench: Any,
    *,
    what: str,
    hardwares: Sequence[Hardware],
    kernel_of: Callable[[str], Kernel],
) -> RooflinePlot:
    """Return a plot with the points of a bench; a cell that is drawn already keeps the dot it has.

    Raises: as bench_dots.
    """
    drawn = {_cell(dot) for dot in plot.dots}
    dots = bench_dots(bench, what=what, hardwares=hardwares, kernel_of=kernel_of)
    return replace(plot, dots=(*plot.dots, *(dot for dot in dots if _cell(dot) not in drawn)))


def _cell(dot: Dot) -> tuple[object, ...]:
    """Return what tells one cell from another."""
    return dot.device, dot.kernel, tuple(sorted(dot.shape.items())), dot.dtype


def bench_dots(
    bench: Any,
    *,
    what: str,
    hardwares: Sequence[Hardware],
    kernel_of: Callable[[str], Kernel],
) -> list[Dot]:
    """Return the points of a bench document, as `ledger bench --output` writes it.

    what: the document's name in errors.
    Units: FLOP/s and FLOP/byte of the kernel's work model, percent of the roof that the bench names.
    Raises: InputError for a document that is no bench or of a device that is not drawn; UnknownName.
    """
    rows = bench.get("rows") if isinstance(bench, dict) else None
    if not isinstance(rows, list):
        raise InputError(f"{what} has no rows; expected the JSON that ledger bench --output writes")
    hardware = next((one for one in hardwares if bench.get("device") in one.device_names), None)
    if hardware is None:
        drawn = ", ".join(f"{name} ({one.name})" for one in hardwares for name in one.device_names)
        raise InputError(f"{what}: device is {bench.get('device')!r}; expected one that is drawn: {drawn}; see --hw")
    found: list[Dot] = []
    for number, row in enumerate(rows):
        try:
            found += _dots(row, hardware, kernel_of)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{what}: row {number} is no row of a bench ({type(error).__name__}: {error}); expected the JSON that "
                "ledger bench --output writes"
            ) from error
    return found


def _dots(row: Mapping[str, Any], hardware: Hardware, kernel_of: Callable[[str], Kernel]) -> Iterator[Dot]:
    kernel, shape, dtype = kernel_of(row["kernel"]), dict(row["shape"]), row["dtype"]
    if dtype not in kernel.dtypes or row["ceilings"] not in get_args(CeilingKind):
        raise ValueError(f"dtype {dtype!r}, ceilings {row['ceilings']!r}")
    kernel.check_shape(shape)
    path = kernel.path(dtype, hardware.target, implementation_for(kernel, hardware))
    work, roof = kernel.work(shape, dtype), roof_of(hardware, path, row["ceilings"])
    yield _dot(hardware, kernel.name, shape, dtype, work, roof, _positive(row["ours_us"]))
    if row["baseline"] is not None:
        name = _library(row["baseline"], hardware)
        yield _dot(hardware, f"{kernel.name}, {name}", shape, dtype, work, roof, _positive(row["baseline_us"]))


def _library(baseline: str, hardware: Hardware) -> str:
    return _LIBRARIES.get(baseline, baseline) if is_gpu(hardware.target) else baseline


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"time is {value!r}; expected microseconds")
    return float(value)


def _dot(
    hardware: Hardware, kernel: str, shape: dict[str, int], dtype: Dtype, work: Work, roof: Roof, time_us: float
) -> Dot:
    return Dot(
        device=hardware.name,
        label=f"{kernel} {shape_text(shape)} {dtype}",
        kernel=kernel,
        shape=shape,
        dtype=dtype,
        left_of_ridge=memory_side(work, roof),
        intensity_flop_per_byte=arithmetic_intensity(work),
        flop_per_s=work.flops / (time_us * 1e-6),
        percent=percent_of_roof(work, roof, time_us * 1e-6),
        regime=None,
        predicted_flop_per_s=None,
        predicted_percent=None,
        predicted_regime=None,
        blind=None,
        seal=None,
    )
