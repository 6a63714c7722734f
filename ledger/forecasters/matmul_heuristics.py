"""Asks nvidia-matmul-heuristics, NVIDIA's model of matrix products, for products in fp16 and bf16; an optional extra.

Two of its numbers are corrected: its products have 10 µs of static latency, and a clock of 1.92 GHz whatever the power.
With 1.2 µs and, where arithmetic limits, 1.55 GHz, its median error on 24 products measured on an H200 falls from 22%
to 9%; both were chosen after seeing measured times. It returns a time for any precision text, wrong ones too, so only
those of a table are passed on. Of rmsnorm_matmul it answers the product alone. Its time is of its own configuration,
not of the sealed one.
"""

from __future__ import annotations

from typing import Any

from ledger.forecasters.answer import Answer, NoAnswer, Question, Term, answer_of_time
from ledger.forecasters.calls import product_sizes
from ledger.records import Distribution, Dtype
from ledger.roofline import memory_side

NAME = "matmul-heuristics"
VERSION = "1"
PACKAGE = "nvidia-matmul-heuristics"

PRECISIONS: dict[Dtype, str] = {"fp16": "HSH", "bf16": "TST"}
"""Type of A and B, of the sums, of C, by the letters of the package."""
GPUS = {
    "h200": "H200_SXM", "h100_sxm": "H100_SXM", "h100_pcie": "H100_PCIE", "h100_nvl": "H100_NVL", "h20": "H20_SXM",
    "a100_sxm": "A100_SXM_80GB", "a10": "A10_PCIE", "l4": "L4", "l40s": "L40S", "b200": "B200",
    "rtx_4090": "RTX_4090", "rtx_5090": "RTX_5090",
}  # fmt: skip
"""Profile -> the package's name of the GPU."""
STATIC_S, STATIC_CORRECTED_S = 10e-6, 1.2e-6
CLOCK_RATIO = 1.92 / 1.55
_CANDIDATES = 8
_SIZES = {"matmul": ("M", "N", "K"), "matmul_bias_relu": ("M", "N", "K"), "rmsnorm_matmul": ("B", "O", "H")}


def forecast(question: Question) -> Answer | NoAnswer:
    """Return the corrected time of the package's best configuration; none for what it does not know."""
    case = question.case
    sizes = product_sizes(case, question.work, _SIZES)
    if sizes is None or case.dtype not in PRECISIONS:
        return NoAnswer(NAME, VERSION, f"{case.kernel} {case.dtype} is no product in {' or '.join(PRECISIONS)}")
    if question.hardware.name not in GPUS:
        return NoAnswer(NAME, VERSION, f"{PACKAGE} does not know {question.hardware.name}; expected: {', '.join(GPUS)}")
    try:
        found = _asked(GPUS[question.hardware.name])
    except ImportError:
        return NoAnswer(NAME, VERSION, f"{PACKAGE} is not installed; run: pip install 'roofline-ledger[heuristics]'")
    m, n, k = sizes
    raw_s, config = _best(found, (m, n, k), PRECISIONS[case.dtype])
    if not 0 < raw_s < 1e3:
        return NoAnswer(NAME, VERSION, f"{PACKAGE} gives {raw_s:g} s for M={m}, N={n}, K={k}")
    body = max(raw_s - STATIC_S, 0.0)
    slower = 1.0 if memory_side(question.work, question.roof) else CLOCK_RATIO
    return answer_of_time(
        question,
        forecaster=NAME,
        version=VERSION,
        time_s=body * slower + STATIC_CORRECTED_S,
        launch_s=STATIC_CORRECTED_S,
        terms=(
            Term("as the package says", raw_s, "s"),
            Term("its static latency", -STATIC_S, "s"),
            Term("static latency", STATIC_CORRECTED_S, "s"),
            Term("clock ratio", slower, "1"),
        ),
        assumes=(config, *(("the product alone",) if case.kernel == "rmsnorm_matmul" else ())),
    )


def _asked(gpu: str) -> Any:
    """Return the package's interface for a GPU: a new one, which fails if it lives to the end. Raises: ImportError."""
    import nvMatmulHeuristics as package  # noqa: N813

    return package.NvMatmulHeuristicsInterfaceEx(
        backend=package.NvMatmulHeuristicsTarget.GENERIC,
        flags=package.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=getattr(package.NvMatmulHeuristicsNvidiaGpu, gpu),
    )


def _best(found: Any, sizes: tuple[int, int, int], precision: str) -> tuple[float, str]:
    """Return the least time that the package estimates, in seconds, and that configuration as text."""
    import nvMatmulHeuristics as package  # noqa: N813

    layout = package.NvMatmulHeuristicsMatmulLayout.NN_ROW_MAJOR
    problem = found.makeNvMatmulHeuristicsProblem(*sizes, layout)
    given = found.get(problem, _CANDIDATES, precision=precision)
    if not given:
        return 0.0, ""
    best = min(given, key=lambda one: float(one["runtime"]))
    return float(best["runtime"]), " ".join(str(best["kernel"]).split())[:300]


def distributions() -> tuple[Distribution, ...]:
    """Return the package that is asked, with its version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return (Distribution(name=PACKAGE, version=version(PACKAGE), record_sha256=None),)
    except PackageNotFoundError:
        return ()
