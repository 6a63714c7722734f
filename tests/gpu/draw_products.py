"""Draw matrix products by SHA-256 from a declared domain, compare each with float64 and time it beside torch.matmul.

Usage: python tests/gpu/draw_products.py --first 0 --count 50 -o FILE
       python tests/gpu/draw_products.py --summary FILE

The domain: dtype fp16 or bf16, evenly; M from 1 to 8192, log-uniform; each of N and K, of three draws two, a width of
a published model, the third a log-uniform number from 64 to 16384, mostly no multiple of 8. Draw i is a function of
SEED and i. A row that FILE has is skipped, so that a run can be resumed.

Contexts: `chain`, in which another kernel runs between two calls, and `boost`, back to back after a pause that lets
the clock rise. Contestants are interleaved round by round. --compile-ahead THREADS compiles the CUDA C++ first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

SEED = "matmul-draw-1"
MOST_ROWS, LEAST_WIDTH, MOST_WIDTH = 8192, 64, 16384
WIDTHS = (
    512, 768, 1024, 1536, 2048, 2560, 2880, 3072, 3584, 4096, 5120, 5632, 6144, 6912, 7168, 8192, 8960, 9216, 10240,
    11008, 12288, 13696, 13824, 14336, 16384, 18944, 20480, 22016, 24576, 28672,
)  # fmt: skip
"""Hidden, projection and feed-forward widths of published models."""
OURS, LIBRARY = "ours", "torch_matmul"
LEVEL = 0.97
"""Least ratio of torch.matmul's time to ours that counts as level."""
PAUSE_S, ROUNDS, MOST_SETS, CACHES = 0.01, 5, 40, 5
Cell = tuple[dict[str, int], str]


def drawn(index: int) -> Cell:
    """Return the shape and dtype of a draw."""
    digest = hashlib.sha256(f"{SEED}:{index}".encode()).digest()
    parts = [int.from_bytes(digest[i : i + 4], "big") / 2**32 for i in range(0, 24, 4)]

    def width(kind: float, share: float) -> int:
        if kind < 2 / 3:
            return WIDTHS[int(share * len(WIDTHS))]
        return round(LEAST_WIDTH * (MOST_WIDTH / LEAST_WIDTH) ** share)

    shape = {
        "M": round(MOST_ROWS ** parts[0]),
        "N": width(parts[1], parts[2]),
        "K": width(parts[3], parts[4]),
    }
    return shape, "fp16" if parts[5] < 0.5 else "bf16"


def input_sets(cell: Cell, l2_bytes: int) -> list[tuple[dict[str, Any], Any]]:
    """Return inputs of normal deviates with an output, as many sets as exceed the caches."""
    import torch

    (m, n, k), kind = cell[0].values(), {"fp16": torch.float16, "bf16": torch.bfloat16}[cell[1]]
    generator = torch.Generator(device="cuda").manual_seed(m * 1_000_003 + n * 1009 + k)

    def random(*dims: int) -> Any:
        return torch.randn(dims, generator=generator, device="cuda", dtype=kind)

    count = min(MOST_SETS, max(2, math.ceil(CACHES * l2_bytes / (2 * (m * k + k * n + m * n)))))
    return [({"a": random(m, k), "b": random(k, n) / k**0.5}, random(m, n)) for _ in range(count)]


def worst_error(kernel: Any, cell: Cell, given: dict[str, Any], out: Any) -> float:
    """Return the largest error of a result over the tolerance of its dtype, against float64: wrong above 1."""
    tolerance, exact = kernel.tolerances[cell[1]], kernel.reference(given)
    return float(((out.double() - exact).abs() / (tolerance.atol + tolerance.rtol * exact.abs())).max())


def timed(launches: dict[str, list[Any]]) -> dict[str, dict[str, float]]:
    """Return microseconds a call by context and contestant, medians of interleaved rounds."""
    import torch

    from ledger.measure.cuda_graphs import GraphRounds
    from ledger.measure.launch_contexts import ChainRounds, between_launch

    between = between_launch()
    found: dict[str, dict[str, float]] = {}
    for context in ("boost", "chain"):
        made = {
            name: GraphRounds(own, watch=False) if context == "boost" else ChainRounds(own, between, watch=False)
            for name, own in launches.items()
        }
        samples: dict[str, list[int]] = {name: [] for name in made}
        for _ in range(ROUNDS):
            for name, rounds in made.items():
                if context == "boost":
                    torch.cuda.synchronize()
                    time.sleep(PAUSE_S)
                samples[name] += rounds.take(1)
        found[context] = {name: round(statistics.median(taken) / 1e6, 3) for name, taken in samples.items()}
    return found


def row_of(kernel: Any, index: int, l2_bytes: int) -> dict[str, Any]:
    """Compare one draw with float64, time it and return its row."""
    import torch

    shape, dtype = cell = drawn(index)
    config = kernel.config(shape, dtype, "sm_90")
    sets = input_sets(cell, l2_bytes)
    launches = {
        OURS: [kernel.implementations["triton"](given, out, config) for given, out in sets],
        LIBRARY: [kernel.baselines[LIBRARY](given, out, config) for given, out in sets],
    }
    given, out = sets[0]
    out.fill_(math.nan)
    launches[OURS][0]()
    worst = worst_error(kernel, cell, given, out)
    if not worst <= 1:
        raise SystemExit(f"draw {index}, {shape} {dtype}: error {worst:.3g} of the tolerance; expected at most 1")
    row = {
        "draw": index, "shape": shape, "dtype": dtype, "config": config, "error_over_tolerance": round(worst, 3),
        "us": timed(launches),
    }  # fmt: skip
    del sets, launches
    torch.cuda.empty_cache()
    return row


def compiled_ahead(kernel: Any, draws: Sequence[int], threads: int) -> None:
    """Compile the CUDA C++ of some draws in parallel, for this process."""

    def compile_one(index: int) -> None:
        shape, dtype = drawn(index)
        made = kernel.ahead(kernel.config(shape, dtype, "sm_90"), shape, dtype, "sm_90")
        if hasattr(made, "source"):
            made.source.cubin("sm_90")

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(compile_one, draws))


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return, by context, the ratios of torch.matmul's time to ours (above 1 ours is faster), and those below LEVEL."""
    found: dict[str, Any] = {"draws": len(rows)}
    for context in ("chain", "boost"):
        ratios = {row["draw"]: row["us"][context][LIBRARY] / row["us"][context][OURS] for row in rows}
        found[context] = {
            "geomean": round(statistics.geometric_mean(ratios.values()), 4),
            "at least 1": sum(ratio >= 1 for ratio in ratios.values()),
            f"at least {LEVEL}": sum(ratio >= LEVEL for ratio in ratios.values()),
            f"below {LEVEL}": {
                draw: round(ratio, 3)
                for draw, ratio in sorted(ratios.items(), key=lambda item: item[1])
                if ratio < LEVEL
            },
        }
    return found


def document(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the file's content: rows with their conditions and summary."""
    import torch
    import triton

    return {
        "schema": "ledger/matmul-draw/1",
        "domain": " ".join((__doc__ or "").split("\n\n")[2].split()),
        "seed": SEED,
        "conditions": {
            "device": torch.cuda.get_device_name(), "date": datetime.now(UTC).date().isoformat(),
            "torch": torch.__version__, "triton": triton.__version__, "rounds": ROUNDS, "pause_s": PAUSE_S,
            "inputs": "normal deviates, B divided by the root of K; sets exceed the caches",
        },
        "summary": summary(rows),
        "rows": list(rows),
    }  # fmt: skip


def main() -> None:
    """Time what the file lacks, or print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after this time")
    parser.add_argument("--compile-ahead", type=int, default=8, metavar="THREADS")
    parser.add_argument("--summary", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    path: Path = given.summary or given.output
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    if given.summary is not None:
        print(json.dumps(summary(rows), indent=1))
        return
    started = time.monotonic()
    import torch

    from ledger.kernel_files import load_kernel

    kernel = load_kernel("matmul", ROOT, launch=True).kernel
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    done = {row["draw"] for row in rows}
    left = [index for index in range(given.first, given.first + given.count) if index not in done]
    compiled_ahead(kernel, left, given.compile_ahead)
    for index in left:
        if time.monotonic() - started > given.seconds:
            print(f"out of time before draw {index}; run again to go on", file=sys.stderr)
            break
        rows = sorted([*rows, row_of(kernel, index, l2_bytes)], key=lambda row: int(row["draw"]))
        path.write_text(json.dumps(document(rows), indent=1) + "\n")
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()
