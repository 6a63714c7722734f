"""Runs every kernel under compute-sanitizer: memcheck and racecheck over small launches of each of its paths on sm_90.

Usage where a GPU and compute-sanitizer are: PYTHONPATH=. python tests/gpu/sanitize.py FOLDER [KERNEL …] prints one line
a kernel and tool and keeps what each run said in FOLDER; it exits with 1 when anything was found. --tool memcheck runs
one tool alone, --sanitizer PATH takes another compute-sanitizer, --jobs N runs N at once, --limit S gives each S
seconds. `--launch KERNEL` is what the tool watches: each launch is compared with the reference, so that a run in which
nothing was computed is no clean run.

Nothing is cached between allocations (PYTORCH_NO_CUDA_MEMORY_CACHING), so that a read or write outside a tensor is
outside an allocation, and only the kernel's own launches are watched.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_suite import gpu_variants
from mutants import attention, gemv, products, rowwise, trials
from mutants.checker import Trial, fill_inputs

from ledger.kernel import load_kernel

TOOLS = ("memcheck", "racecheck")
LAUNCHES_A_RUN = 16
TARGET = "sm_90"
LISTED = {**trials.TRIALS, **products.TRIALS, **attention.TRIALS, **rowwise.TRIALS, **gemv.TRIALS}
PIPELINED = {**trials.PIPELINED_TRIALS, **products.PIPELINED_TRIALS}
# Shapes that the launch rule configures, chosen so that all of its paths are taken, whole and ragged.
OWN: dict[str, tuple[dict[str, int], ...]] = {
    "rmsnorm_matmul": ({"B": 8, "H": 1024, "O": 512}, {"B": 32, "H": 1024, "O": 512}, {"B": 128, "H": 512, "O": 264}),
    "matmul": ({"M": 384, "N": 264, "K": 192},),
    "decode_attention": attention._heads((1, 17, 1, 70, 16), (2, 8, 2, 515, 128), (2, 8, 8, 256, 64)),
    "flash_attention": attention._heads((1, 2, 1, 257, 128), (1, 2, 2, 256, 64), (1, 3, 1, 133, 40)),
    "flash_attention_causal": attention._heads((1, 2, 1, 257, 128), (1, 2, 2, 256, 64), (1, 3, 1, 133, 40)),
    "mla_decode": ({"B": 2, "H": 128, "S": 64}, {"B": 2, "H": 128, "S": 321}, {"B": 1, "H": 16, "S": 130}),
    "gemv": ({"N": 512, "K": 1024}, {"N": 131, "K": 1031}),
    "rmsnorm": ({"M": 33, "N": 1024}, {"M": 5, "N": 9001}),
    "layernorm": ({"M": 33, "N": 1024}, {"M": 5, "N": 9001}),
    "softmax": ({"M": 33, "N": 1024}, {"M": 5, "N": 9001}),
    "vector_add": ({"N": 100_003},),
}


def kernel_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (Path(__file__).parents[2] / "kernels").glob("*.py")))


def _dtype(kernel: Any) -> str:
    return str(kernel.dtypes[0])


def launches(name: str) -> Iterator[Trial]:
    """Yield the small launches of a kernel: its trials in its first dtype, and its own rule's choices."""
    kernel = load_kernel(name, launch=True).kernel
    dtype = _dtype(kernel)
    listed = LISTED[name](dtype, tma=True) if name in trials.TRIALS else LISTED[name](dtype)
    pipelined = PIPELINED[name](dtype) if name in PIPELINED else ()
    cluster = trials.cluster_trials(dtype) if name == "rmsnorm_matmul" else ()
    own = [Trial(shape, dtype, kernel.config(shape, dtype, TARGET)) for shape in OWN.get(name, ())]  # type: ignore[arg-type]
    for trial in (*listed, *pipelined, *cluster, *own):
        if trial.scale == 1.0:
            # The portable kernels of rmsnorm_matmul know the key pdl, and only 0 for it.
            yield trial if name == "rmsnorm_matmul" else gpu_variants(trial, TARGET)[-1]


# Under the tool


def launch_all(kernel: Any, chosen: Iterable[Trial]) -> int:
    """Launch a kernel on trials, twice each, print how many there were, and return how many went wrong."""
    import torch

    from ledger.measuring.inputs import torch_dtype

    wrong = count = 0
    for trial in chosen:
        kernel.check_config(trial.config, trial.shape, trial.dtype, TARGET)
        here = fill_inputs(kernel, trial, "cpu")
        inputs = {key: torch.empty(value.shape, dtype=value.dtype, device="cuda") for key, value in here.items()}
        for key, value in here.items():
            inputs[key].copy_(value)
        dims = kernel.operation.output_dims(trial.shape)
        written = torch_dtype(kernel.operation.output_dtype(trial.dtype))
        out = torch.empty(dims, dtype=written, device="cuda")
        out.copy_(torch.full(dims, float("nan"), dtype=written))
        launch = kernel.implementations["triton"](inputs, out, trial.config)
        launch()
        launch()
        torch.cuda.synchronize()
        expected, bound = kernel.reference(here), kernel.tolerances[trial.dtype]
        excess = (out.cpu().double() - expected).abs() - bound.atol - bound.rtol * expected.abs()
        count += 1
        if not (excess <= 0).all():
            wrong += 1
            print(f"WRONG {kernel.name} {dict(trial.shape)} {dict(trial.config)}", flush=True)
    print(f"LAUNCHED {count} WRONG {wrong}", flush=True)
    return wrong


# Around the tool


@dataclass(frozen=True)
class Part:
    """Name a share of a kernel's launches under a tool."""

    kernel: str
    tool: str
    launched: str
    shard: int
    shards: int


@dataclass(frozen=True)
class Run:
    """Hold what one tool said of one kernel. found: each report, shortened to its places, with how often it came."""

    kernel: str
    tool: str
    launched: int
    found: Counter[str]
    trouble: str
    seconds: float

    @property
    def line(self) -> str:
        words = self.trouble or ("clean" if not self.found else f"{sum(self.found.values())} reports")
        return f"{self.kernel:24}{self.tool:10}{self.launched:4} launches {self.seconds:5.0f} s  {words}"


_REPORT = re.compile(r"^========= (?:Error|Warning|ERROR|WARNING|Invalid|Program hit|Potential).*", re.MULTILINE)
_ADDRESS = re.compile(r"0x[0-9a-f]+|\([^()]*\)")


def reports(text: str) -> Counter[str]:
    """Return what a tool reported, joined line by line: the first line and the places that follow it."""
    found: Counter[str] = Counter()
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if not _REPORT.match(line):
            continue
        said = [line.removeprefix("========= ")]
        for more in lines[at + 1 : at + 4]:
            if not more.startswith("=========     ") or "Host Frame" in more:
                break
            said.append(more.removeprefix("=========").strip())
        found[" ".join(said)] += 1
    return found


def sanitized(part: Part, *, folder: Path, sanitizer: str, limit_s: float, port: int) -> Run:
    """Run a share of a kernel's launches under a tool and return what it said. Its output is kept in the folder."""
    name, tool = part.kernel, part.tool
    command = [sanitizer, "--tool", tool, "--target-processes", "application-only", "--port", str(port)]
    command += ["--kernel-name", f"regex={part.launched}", "--show-backtrace", "no", "--print-limit", "0"]
    command += [sys.executable, __file__, "--launch", name, str(part.shard), str(part.shards)]
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    start, log = time.monotonic(), folder / f"{name}-{tool}-{part.shard}.txt"
    trouble = ""
    with log.open("w") as file:
        try:
            subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, env=environment, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            trouble = f"not done after {limit_s:.0f} s"
    text = log.read_text(errors="replace")
    done = re.search(r"^LAUNCHED (\d+) WRONG (\d+)", text, re.MULTILINE)
    if done is None or done[2] != "0":
        trouble = trouble or ("a launch gave a wrong result" if done else "the launches did not end")
    if not trouble and "SUMMARY" not in text:
        trouble = f"{tool} gave no summary"
    return Run(name, tool, int(done[1]) if done else 0, reports(text), trouble, time.monotonic() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description="every kernel under memcheck and racecheck")
    parser.add_argument("folder", type=Path)
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--tool", choices=TOOLS, action="append")
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--jobs", type=int, default=min(14, os.cpu_count() or 1))
    parser.add_argument("--limit", type=float, default=120.0)
    chosen = parser.parse_intermixed_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    parts = [
        Part(name, tool, load_kernel(name).kernel.launched, shard, shards)
        for tool in chosen.tool or TOOLS
        for name in chosen.kernels or kernel_names()
        for shards in [-(-len(list(launches(name))) // LAUNCHES_A_RUN)]
        for shard in range(shards)
    ]
    ports = 20_000 + os.getpid() % 64 * 600

    def one(at: int) -> Run:
        made = {"folder": chosen.folder, "sanitizer": chosen.sanitizer, "limit_s": chosen.limit}
        return sanitized(parts[at], port=ports + 12 * at, **made)

    bad = 0
    with ThreadPoolExecutor(chosen.jobs) as pool:
        runs = pool.map(one, range(len(parts)))
        for (name, tool), shares in groupby(runs, key=lambda run: (run.kernel, run.tool)):
            run = together(name, tool, list(shares))
            print(run.line, flush=True)
            for words, count in run.found.most_common(6):
                print(f"    {count} × {words}", flush=True)
            bad += bool(run.trouble or run.found)
    return int(bad > 0)


def together(name: str, tool: str, shares: list[Run]) -> Run:
    """Return the shares of a kernel's launches as one."""
    found: Counter[str] = sum((share.found for share in shares), Counter())
    trouble = "; ".join(share.trouble for share in shares if share.trouble)
    return Run(name, tool, sum(one.launched for one in shares), found, trouble, max(one.seconds for one in shares))


if __name__ == "__main__":
    if sys.argv[1] == "--launch":
        share = list(launches(sys.argv[2]))[int(sys.argv[3]) :: int(sys.argv[4])]
        sys.exit(launch_all(load_kernel(sys.argv[2], launch=True).kernel, share) > 0)
    sys.exit(main())
