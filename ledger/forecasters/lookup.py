"""Looks a product up among the times that aiconfigurator-core publishes, of exactly its shape; an optional extra.

The tables hold times of the matrix products of vLLM, SGLang and TensorRT-LLM, in milliseconds, measured by NVIDIA
(Apache-2.0, 82 MB with the package). A bf16 row answers fp16 too. Of several rows the median counts. Another shape has
no answer: nothing is interpolated. Of rmsnorm_matmul it answers the product alone.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from statistics import median
from typing import Any

from ledger.forecasters.answer import Answer, NoAnswer, Question, Term, answer_of_time
from ledger.forecasters.calls import product_sizes
from ledger.records import Distribution, Dtype

NAME = "lookup"
VERSION = "1"
PACKAGE = "aiconfigurator-core"

DTYPES: dict[Dtype, str] = {"fp16": "bfloat16", "bf16": "bfloat16", "fp8_e4m3": "fp8"}
TABLES = {
    "h200": "h200_sxm", "h100_sxm": "h100_sxm", "a100_sxm": "a100_sxm", "b200": "b200_sxm", "b300": "b300_sxm",
    "l40s": "l40s",
}  # fmt: skip
"""Profile -> the package's folder of the GPU."""
_SIZES = {
    "matmul": ("M", "N", "K"),
    "matmul_bias_relu": ("M", "N", "K"),
    "matmul_fp8": ("M", "N", "K"),
    "rmsnorm_matmul": ("B", "O", "H"),
}


def forecast(question: Question) -> Answer | NoAnswer:
    """Return the median published time of the shape."""
    case = question.case
    if question.hardware.name not in TABLES:
        return NoAnswer(NAME, VERSION, f"no published table of {question.hardware.name}; expected: {', '.join(TABLES)}")
    sizes = product_sizes(case, question.work, _SIZES)
    if sizes is None or case.dtype not in DTYPES:
        return NoAnswer(NAME, VERSION, f"{case.kernel} {case.dtype} is no product of the published tables")
    m, n, k = sizes
    try:
        rows = _rows(TABLES[question.hardware.name], (m, n, k), DTYPES[case.dtype])
    except ImportError:
        return NoAnswer(NAME, VERSION, f"{PACKAGE} is not installed; run: pip install 'roofline-ledger[lookup]'")
    times = [row["latency"] for row in rows if row["latency"] > 0]
    if not times:
        return NoAnswer(NAME, VERSION, f"no published row of M={m}, N={n}, K={k} in {DTYPES[case.dtype]}")
    time_s = median(times) * 1e-3
    alone = ("the product alone",) if case.kernel == "rmsnorm_matmul" else ()
    terms = (Term(f"{row['framework']} {row['kernel_source']}"[:200], row["latency"] * 1e-3, "s") for row in rows)
    return answer_of_time(
        question,
        forecaster=NAME,
        version=VERSION,
        time_s=time_s,
        launch_s=0.0,
        terms=(*tuple(terms)[:50], Term("rows", len(rows), "1")),
        assumes=(
            "the library's product in their protocol",
            *alone,
        ),
    )


def _rows(folder: str, sizes: tuple[int, int, int], dtype: str) -> list[dict[str, Any]]:
    """Return the rows of a GPU's tables with exactly these sizes, in milliseconds. Raises: ImportError."""
    from importlib.metadata import PackageNotFoundError, files

    from pyarrow import parquet

    try:
        listed = files(PACKAGE) or []
    except PackageNotFoundError as error:
        raise ImportError(PACKAGE) from error
    wanted = [("m", "=", sizes[0]), ("n", "=", sizes[1]), ("k", "=", sizes[2]), ("gemm_dtype", "=", dtype)]
    found: list[dict[str, Any]] = []
    for file in listed:
        if f"/{folder}/gemm/" in str(file) and file.name == "gemm_perf.parquet":
            found += parquet.read_table(FilePath(str(file.locate())), filters=wanted).to_pylist()
    return found


def distributions() -> tuple[Distribution, ...]:
    """Return the package whose tables are read, with its version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return (Distribution(name=PACKAGE, version=version(PACKAGE), record_sha256=None),)
    except PackageNotFoundError:
        return ()
