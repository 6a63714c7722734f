"""Measures a GPU's arithmetic ceilings: the best matrix product of each path. Imports torch, only when called.

Candidates are the library on random normal operands and, where there is one, this package's kernel and the library on
the operands of a record. Operands matter: with zeros the chip needs less power and runs faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ledger.calibrate.kernel_candidates import kernel_candidates
from ledger.calibrate.rates import Rate, burst, sustained
from ledger.device.facts import import_torch
from ledger.errors import MachineError, explained
from ledger.kernel import Launch
from ledger.measure.run_cell import release
from ledger.records import DeviceFacts, Dtype, Hardware, Path, Peak

OnStep = Callable[[str], None]
Shape = tuple[int, int, int]

NAMED_SHAPE: Shape = (4096, 4096, 4096)
_SHAPES: tuple[Shape, ...] = (NAMED_SHAPE, (8192, 8192, 8192), (8192, 4096, 16384))
_KERNELS: dict[Path, tuple[str, Dtype]] = {
    "fp16_tensor": ("matmul", "fp16"),
    "bf16_tensor": ("matmul", "bf16"),
    "fp8_tensor": ("matmul_fp8", "fp8_e4m3"),
    "int8_tensor": ("matmul_int8", "int8"),
}
_KERNEL_SHAPES = _SHAPES[:2]
_SUSTAINED_SHAPE: Shape = (8192, 8192, 8192)
_SUSTAINED_S = 3.0


def gemm_launch(path: Path, shape: Shape) -> Launch:
    """Return the library's matrix product on an instruction path. Raises: MachineError for a path it has none for."""
    torch = import_torch()
    m, n, k = shape

    def random(rows: int, columns: int, dtype: Any) -> Any:
        return torch.randn(rows, columns, device="cuda", dtype=torch.float32).to(dtype)

    if path == "fp8_tensor":
        kind = torch.float8_e4m3fn
        a, b, one = random(m, k, kind), random(n, k, kind).t(), torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
    if path == "int8_tensor":
        a, b = (torch.randint(-128, 128, size, device="cuda", dtype=torch.int8) for size in ((m, k), (n, k)))
        b = b.t()
        return lambda: torch._int_mm(a, b)
    types = {
        "fp64": torch.float64,
        "fp64_tensor": torch.float64,
        "fp32": torch.float32,
        "tf32_tensor": torch.float32,
        "fp16_tensor": torch.float16,
        "bf16_tensor": torch.bfloat16,
    }
    if path not in types:
        raise MachineError(f"path {path} has no library product to calibrate with; expected one of: {', '.join(types)}")
    a, b = random(m, k, types[path]), random(k, n, types[path])
    out = torch.empty(m, n, device="cuda", dtype=types[path])
    wanted = path == "tf32_tensor"

    def launch() -> None:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = wanted
        try:
            torch.matmul(a, b, out=out)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    return launch


def _paths(hardware: Hardware) -> Iterator[Path]:
    """Yield the paths that the datasheet lists and for which the library has a product.

    Where fp64 tensor cores exist the library uses them, so the CUDA cores' fp64 is not calibrated. fp16 outside tensor
    cores is not calibrated either.
    """
    known = hardware.ceilings["datasheet"].peaks if "datasheet" in hardware.ceilings else {}
    have = {path for path, peak in known.items() if peak is not None}
    for path in (
        "fp64_tensor",
        "fp64",
        "fp32",
        "tf32_tensor",
        "fp16_tensor",
        "bf16_tensor",
        "fp8_tensor",
        "int8_tensor",
    ):
        if path in have and not (path == "fp64" and "fp64_tensor" in have):
            yield path


def _operations(shape: Shape) -> float:
    return 2.0 * shape[0] * shape[1] * shape[2]


def _name(shape: Shape) -> str:
    return "library GEMM {}x{}x{}".format(*shape)


def _peak(path: Path, rate: Rate, source: str) -> Peak:
    clock = rate.state.sm_clock_mhz
    return Peak(
        value=float(f"{rate.per_s / 1e12:.4g}"),
        unit="TOP/s" if path == "int8_tensor" else "TFLOP/s",
        kind="measured",
        condition=rate.condition[:400],
        source=source,
        clock_mhz=None if clock is None else float(clock),
    )


Timed = Callable[[list[Launch], float, str], Rate]


def _rates(path: Path, shape: Shape, hardware: Hardware, facts: DeviceFacts, timed: Timed) -> Iterator[Rate | str]:
    """Yield the rate of each candidate for a path and shape, or why one was not measured."""
    try:
        yield timed([gemm_launch(path, shape)], _operations(shape), _name(shape))
    except RuntimeError as error:
        yield f"{_name(shape)}: not measured: {explained(error, 200)}"
    release("cuda")
    if path not in _KERNELS or shape not in _KERNEL_SHAPES:
        return
    name, dtype = _KERNELS[path]
    try:
        cell = dict(zip("MNK", shape, strict=True))
        found = kernel_candidates(name, cell, dtype, hardware=hardware, facts=facts, baselines=True)
        for one in found:
            yield timed(list(one.launches), one.work.flops, one.name)
    # Compilers and drivers raise errors of any type; the profile's notes say which.
    except Exception as error:  # noqa: BLE001
        yield f"{name} {dtype}: not measured: {explained(error, 200)}"
    found = []
    release("cuda")


def _best(path: Path, rates: Iterator[Rate | str], on_step: OnStep) -> tuple[Rate | None, list[str]]:
    """Return the highest of the rates, and a line about each."""
    best: Rate | None = None
    lines = []
    for rate in rates:
        text = rate if isinstance(rate, str) else f"{rate.per_s / 1e12:.4g} T/s: {rate.condition}"
        lines.append(f"{path} {text}"[:400])
        on_step(lines[-1])
        if isinstance(rate, Rate) and (best is None or rate.per_s > best.per_s):
            best = rate
    return best, lines


def burst_peaks(
    hardware: Hardware, facts: DeviceFacts, source: str, *, quick: bool, on_step: OnStep
) -> tuple[dict[Path, Peak | None], list[str]]:
    """Return the best product of each path over candidates and shapes, and a line about each product."""
    peaks: dict[Path, Peak | None] = {}
    lines: list[str] = []
    for path in _paths(hardware):
        shapes = _SHAPES[:1] if quick else _SHAPES
        rates = (rate for shape in shapes for rate in _rates(path, shape, hardware, facts, burst))
        best, said = _best(path, rates, on_step)
        lines += said
        if best is not None:
            peaks[path] = _peak(path, best, source)
    return peaks, lines


def sustained_peaks(hardware: Hardware, facts: DeviceFacts, source: str, *, on_step: OnStep) -> dict[Path, Peak | None]:
    """Return the best fp16 and bf16 products under seconds of load."""

    def timed(launches: list[Launch], amount: float, what: str) -> Rate:
        return sustained(launches, amount, what, seconds=_SUSTAINED_S)

    peaks: dict[Path, Peak | None] = {}
    for path in _paths(hardware):
        if path in ("fp16_tensor", "bf16_tensor"):
            best, _ = _best(path, _rates(path, _SUSTAINED_SHAPE, hardware, facts, timed), on_step)
            if best is not None:
                peaks[path] = _peak(path, best, source)
    return peaks
