"""Measures a GPU's arithmetic ceilings: the library's matrix products of each dtype. Imports torch, only when called.

The operands are random: with zeros the chip needs less power and runs faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ledger.calibrate.rates import Rate, burst, sustained
from ledger.device.facts import import_torch
from ledger.errors import MachineError, shortened
from ledger.kernel import Launch
from ledger.measure.run_cell import release
from ledger.records import Hardware, Path, Peak

OnStep = Callable[[str], None]
Shape = tuple[int, int, int]

NAMED_SHAPE: Shape = (4096, 4096, 4096)
_SHAPES: tuple[Shape, ...] = (NAMED_SHAPE, (8192, 8192, 8192), (6144, 6144, 6144), (8192, 4096, 16384))
_SUSTAINED_SHAPE: Shape = (8192, 8192, 8192)
_SUSTAINED_S = 5.0


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
    return "GEMM {}x{}x{}".format(*shape)


def _peak(path: Path, rate: Rate, source: str) -> Peak:
    return Peak(
        value=float(f"{rate.per_s / 1e12:.4g}"),
        unit="TOP/s" if path == "int8_tensor" else "TFLOP/s",
        kind="measured",
        condition=rate.condition[:400],
        source=source,
    )


def burst_peaks(
    hardware: Hardware, source: str, *, quick: bool, on_step: OnStep
) -> tuple[dict[Path, Peak | None], list[str]]:
    """Return the best product of each path over several shapes, and a line about each at NAMED_SHAPE."""
    peaks: dict[Path, Peak | None] = {}
    lines: list[str] = []
    for path in _paths(hardware):
        best: Rate | None = None
        for shape in _SHAPES[:2] if quick else _SHAPES:
            on_step(f"{path} {_name(shape)}")
            try:
                rate = burst(gemm_launch(path, shape), _operations(shape), _name(shape))
            except RuntimeError as error:
                lines.append(f"{path} {_name(shape)}: not measured: {shortened(' '.join(str(error).split()), 200)}")
                continue
            finally:
                release("cuda")
            if shape == NAMED_SHAPE:
                lines.append(f"{path} {rate.per_s / 1e12:.4g} T/s: {rate.condition}"[:400])
            if best is None or rate.per_s > best.per_s:
                best = rate
        if best is not None:
            peaks[path] = _peak(path, best, source)
    return peaks, lines


def sustained_peaks(hardware: Hardware, source: str, *, on_step: OnStep) -> dict[Path, Peak | None]:
    """Return fp16 and bf16 products under seconds of load."""
    peaks: dict[Path, Peak | None] = {}
    for path in _paths(hardware):
        if path in ("fp16_tensor", "bf16_tensor"):
            on_step(f"{path} sustained")
            launch = gemm_launch(path, _SUSTAINED_SHAPE)
            rate = sustained(launch, _operations(_SUSTAINED_SHAPE), _name(_SUSTAINED_SHAPE), seconds=_SUSTAINED_S)
            peaks[path] = _peak(path, rate, source)
            release("cuda")
    return peaks
