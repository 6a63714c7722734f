"""Runs every kernel under compute-sanitizer: memcheck and racecheck over small launches of each of its paths on sm_90.

Usage where a GPU and compute-sanitizer are: PYTHONPATH=. python tests/gpu/sanitize.py FOLDER [KERNEL …] prints one line
a kernel and tool and keeps what each run said in FOLDER; it exits with 1 when anything was found that is not known.
--tool memcheck runs one tool alone (synccheck only so), --variant few_rows the launches of one variant, --sanitizer
PATH takes another compute-sanitizer, --jobs N runs N at once, --limit S gives each S seconds, --budget S all of them. A
run whose output in FOLDER is whole is not run again. `--launch KERNEL …` is what the tool watches: each result is
compared with the reference, so that a run in which nothing was computed is no clean run.

Nothing is cached between allocations (PYTORCH_NO_CUDA_MEMORY_CACHING), so that a read or write outside a tensor is
outside an allocation, and only the kernel's own launches are watched.

Two orders are known that racecheck does not follow (docs/measurement.md names both, racecheck.py has minimal kernels).
Their reports are told apart by their place, counted and printed, never hidden.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "support")]

from kernel_suite import KERNELS, gpu_variants
from mutants import attention, few_rows, fp8_blocks, gemv, products, residues, row_ragged, rowwise, split_k, trials
from mutants.checker import Trial, fill_inputs, source_file

from ledger.kernel_files import kernel_names, load_kernel

TOOLS = ("racecheck", "memcheck")
OTHER_TOOLS = ("synccheck",)
# Starting a process takes longer than these kernels' launches: they share one.
TOGETHER = ("gemv", "vector_add")
# Of residues racecheck reports a race between sums and their readers, behind a barrier of all threads, in some runs of
# a launch and not in others: often after launches with other clusters in its process, seldom where each has its own.
VARIANT_SHARES = {"residues": 19}
SHARES = {"rmsnorm_matmul": 2, "mla_decode": 3, "layernorm": 3, "rmsnorm": 3, "softmax": 3}
# The first release that follows barriers of a group of warps beside those of the block.
FOLLOWS_GROUPS = (2026, 1)
# What all threads of a group store, and one of them, behind a barrier of the group, arrives for: the lines that store.
ARRIVED_FOR = {
    "flash_attention": ("blocks.index(slot).store(",),
    "flash_attention_causal": ("blocks.index(slot).store(",),
    "mla_decode": ("correction_ring.index(stage).store(", "stats.index(0).store(", "stats.index(1).store("),
}
# The same in a kernel's CUDA C++, where a lane arrives for what its warp has stored, or has read before a copy to
# there.
ARRIVED_FOR_IN_CUDA = {
    "mla_decode": ('asm volatile("st.shared.f32',),
    "flash_attention": ("DEVICE void store_word(",),
    "flash_attention_causal": ("DEVICE void store_word(",),
    "matmul_fp8_blocks": ('asm volatile("cp.async.ca.shared.global',),
}
# That CUDA C++ by its entry, as a report names the file, and the file; with the header that its accesses are in.
CUDA_FILES = {
    "mla_decode": {"mla_decode_cluster": KERNELS / "mla_decode" / "cluster.cu"},
    "flash_attention": {"attention_cuda": KERNELS / "common" / "attention.cu"},
    "flash_attention_causal": {"attention_cuda": KERNELS / "common" / "attention.cu"},
    "matmul_fp8_blocks": {"matmul_fp8_blocks_cluster": KERNELS / "matmul_fp8_blocks" / "cluster.cu"},
}
HOPPER = {"hopper": KERNELS / "common" / "hopper.cuh"}
# Kernels whose Gluon function is a shared one, or is named for its variant.
SHARED_FUNCTION = {
    **dict.fromkeys(("flash_attention", "flash_attention_causal"), "attention_warp_specialised"),
    **dict.fromkeys(("matmul", "matmul_bias_relu", "matmul_fp8", "matmul_int8"), "gemm_pipelined"),
    "decode_attention": "decode_attention_software_pipelined",
    "mla_decode": "mla_decode_warp_specialised",
    "rmsnorm_matmul": "rmsnorm_matmul_warp_specialised",
}
# Where the compiler puts the end of the dispatch when it is not at `gl.warp_specialize(`: at what follows.
DISPATCHED_AT = {"rmsnorm_matmul": ("    _epilogue(",)}
TARGET = "sm_90"


def _of_few_tiles(name: str, dtype: str) -> tuple[trials.Trial, ...]:
    few = (few_rows.few_rows_trials, residues.residues_trials, split_k.split_k_trials)
    return tuple(trial for listed in few for trial in listed(name, dtype))


def _of_clusters(name: str, dtype: Any) -> tuple[trials.Trial, ...]:
    return (*rowwise.cluster_trials(name, dtype), *row_ragged.ragged_trials(name, dtype))


LISTED = {**trials.TRIALS, **products.TRIALS, **attention.TRIALS, **rowwise.TRIALS, **gemv.TRIALS, **fp8_blocks.TRIALS}
IN_CUDA = {
    **trials.CLUSTER_TRIALS,
    fp8_blocks.NAME: fp8_blocks.cuda_trials,
    "matmul": lambda dtype: (*trials.CLUSTER_TRIALS["matmul"](dtype), *_of_few_tiles("matmul", dtype)),
    "matmul_bias_relu": lambda dtype: _of_few_tiles("matmul_bias_relu", dtype),
    **{name: partial(split_k.split_k_trials, name) for name in split_k.ONE_BYTE},
    "decode_attention": attention.cuda_trials,
    **{name: partial(_of_clusters, name) for name in ("rmsnorm", "layernorm", "softmax")},
}
PIPELINED = {**trials.PIPELINED_TRIALS, **products.PIPELINED_TRIALS}
# Shapes that the launch rule configures, chosen so that all of its paths are taken, whole and ragged.
OWN: dict[str, tuple[dict[str, int], ...]] = {
    "rmsnorm_matmul": ({"B": 8, "H": 1024, "O": 512}, {"B": 32, "H": 1024, "O": 512}, {"B": 128, "H": 512, "O": 264}),
    "matmul": ({"M": 384, "N": 264, "K": 192},),
    "decode_attention": attention._heads(
        (1, 17, 1, 70, 16), (2, 8, 2, 515, 128), (2, 8, 8, 256, 64), (1, 16, 1, 600, 64)
    ),
    **dict.fromkeys(
        ("flash_attention", "flash_attention_causal"),
        # Few blocks, some of whose keys are divided, and more than SMs.
        attention._heads(
            (1, 2, 1, 257, 128),
            (1, 1, 1, 1030, 64),
            (1, 3, 1, 133, 40),
            (1, 136, 1, 65, 128),
            (1, 136, 8, 66, 256),
            (1, 136, 8, 65, 160),
            (1, 15, 5, 1025, 192),
        ),
    ),
    "mla_decode": (
        {"B": 1, "H": 64, "S": 64},
        {"B": 1, "H": 64, "S": 321},
        {"B": 1, "H": 16, "S": 130},
        {"B": 1, "H": 128, "S": 2049},
    ),
    "gemv": ({"N": 512, "K": 1024}, {"N": 131, "K": 1031}, {"N": 8200, "K": 131}),
    "rmsnorm": ({"M": 33, "N": 1024}, {"M": 5, "N": 4001}, {"M": 5, "N": 9001}),
    "layernorm": ({"M": 33, "N": 1024}, {"M": 5, "N": 4001}, {"M": 5, "N": 9001}),
    "softmax": ({"M": 33, "N": 1024}, {"M": 5, "N": 4001}, {"M": 5, "N": 9001}),
    "vector_add": ({"N": 100_003},),
}


def _dtype(kernel: Any) -> str:
    # The splits of its CUDA C++ are for bf16 alone.
    return "bf16" if kernel.name == "mla_decode" else str(kernel.dtypes[0])


def launches(name: str) -> Iterator[Trial]:
    """Yield the small launches of a kernel: its trials in its first dtype, and its own rule's choices."""
    kernel = load_kernel(name, launch=True).kernel
    dtype = _dtype(kernel)
    listed = LISTED[name](dtype, tma=True) if name in trials.TRIALS else LISTED[name](dtype)
    pipelined = PIPELINED[name](dtype) if name in PIPELINED else ()
    in_cuda = IN_CUDA[name](dtype) if name in IN_CUDA else ()
    own = [Trial(shape, dtype, kernel.config(shape, dtype, TARGET)) for shape in OWN.get(name, ())]  # type: ignore[arg-type]
    for trial in (*listed, *pipelined, *in_cuda, *own):
        if trial.scale == 1.0:
            # The products' trials name each of their ways in full; what one way knows another may refuse.
            in_full = name in trials.TRIALS or name in (*products.TRIALS, fp8_blocks.NAME) or _is_cuda(trial.config)
            yield trial if in_full else gpu_variants(trial, TARGET)[-1]


# Under the tool


def launch_all(kernel: Any, chosen: Iterable[Trial]) -> int:
    """Launch a kernel on trials, once each, print how many there were, and return how many went wrong."""
    import torch

    from ledger.measure.inputs import torch_dtype

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
        torch.cuda.synchronize()
        expected, bound = kernel.reference(here), kernel.tolerances[trial.dtype]
        excess = (out.cpu().double() - expected).abs() - bound.atol - bound.rtol * expected.abs()
        count += 1
        if not (excess <= 0).all():
            wrong += 1
            print(f"WRONG {kernel.name} {dict(trial.shape)} {dict(trial.config)}", flush=True)
    print(f"LAUNCHED {kernel.name} {count} WRONG {wrong}", flush=True)
    return wrong


def launch_share(words: str) -> int:
    """Launch the share of a kernel's trials that NAME@VARIANT:SHARE/SHARES names; without a variant, of all."""
    name, _, share = words.partition(":")
    name, _, variant = name.partition("@")
    at, of = (int(number) for number in (share or "0/1").split("/"))
    chosen = [one for one in launches(name) if variant in ("", one.config.get("variant"))]
    return launch_all(load_kernel(name, launch=True).kernel, chosen[at::of])


def kernel_of(share: str) -> str:
    """Return the kernel that a share names."""
    return re.split("[@:]", share)[0]


# What a tool said


@dataclass(frozen=True)
class Access:
    """Name one side of a report: the function that read or wrote, its source file without the ending, and the line."""

    kind: str
    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Report:
    """Hold one report of a tool. words: its lines as one, with places but no addresses."""

    words: str
    accesses: tuple[Access, ...]


_ACCESS = re.compile(r"(Read|Write) access at (.*?)\+0x[0-9a-f]+(?: in (\S+?)(?:\.(?:py|cuh?))?:(\d+))?")
_FIRST = re.compile(r"^========= (?:(?:Error|Warning): |Invalid |Program hit |Misaligned )")


def reports(text: str) -> list[Report]:
    """Return what a tool reported: a report is its first line and the indented ones that follow."""
    found, lines = [], text.splitlines()
    for at, line in enumerate(lines):
        if not _FIRST.match(line):
            continue
        said = [line]
        for more in lines[at + 1 :]:
            if not more.startswith("=========     "):
                break
            said.append(more)
        words = " ".join(part.removeprefix("=========").strip() for part in said)
        accesses = tuple(Access(kind, name, file, int(at or 0)) for kind, name, file, at in _ACCESS.findall(words))
        found.append(Report(re.sub(r"\+0x[0-9a-f]+| \[\d+ hazards\]", "", words), accesses))
    return found


def _is_cuda(config: Mapping[str, Any]) -> bool:
    """Tell whether a configuration is of CUDA C++."""
    return config.get("pipeline", 0) > 1 or str(config.get("variant", "")).startswith("cuda")


def gluon_function(kernel: str) -> str:
    """Return the name of a kernel's function in Gluon."""
    return SHARED_FUNCTION.get(kernel, f"{kernel}_pipelined")


def file_of(access: Access, kernel: str, *, in_cuda: bool) -> Path:
    """Return the source file of an access: the kernel's own, or one of those that kernels share."""
    if in_cuda:
        return {**CUDA_FILES[kernel], **HOPPER}[access.file]
    places = (KERNELS / kernel / f"{access.file}.py", KERNELS / "common" / f"{access.file}.py")
    found = (place for place in places if access.file != "__init__" and place.is_file())
    return next(found, source_file(kernel))


def known(report: Report, *, kernel: str, release: tuple[int, int]) -> str | None:
    """Return which known order a report of racecheck is about, by its place, or None for a finding."""
    files = {one.file for one in report.accesses}
    # A header alone does not say whose it is.
    in_cuda = bool(files & {*CUDA_FILES.get(kernel, ())}) and files <= {*CUDA_FILES[kernel], *HOPPER}
    in_gluon = all(one.function == gluon_function(kernel) for one in report.accesses)
    if not report.accesses or not (in_cuda or in_gluon):
        return None
    texts = {
        one: file_of(one, kernel, in_cuda=in_cuda).read_text(encoding="utf-8").splitlines()[one.line - 1]
        for one in report.accesses
        if one.line
    }
    writes = [texts.get(one, "") for one in report.accesses if one.kind == "Write"]
    arrived_for = (ARRIVED_FOR_IN_CUDA if in_cuda else ARRIVED_FOR).get(kernel, ())
    if writes and all(any(part in text for part in arrived_for) for text in writes):
        return "one lane arrives for its warp" if in_cuda else "one thread arrives for all"
    own = (f"def {gluon_function(kernel)}(", "gl.warp_specialize(", *DISPATCHED_AT.get(kernel, ()))
    places = [texts.get(one, "") for one in report.accesses]
    if release < FOLLOWS_GROUPS and all(any(part in text for part in own) for text in places):
        return "Triton's dispatch"
    return None


# Around the tool


@dataclass(frozen=True)
class Run:
    """Hold what one tool said of shares of kernels, and what went wrong with the run itself."""

    tool: str
    text: str
    trouble: str
    seconds: float


def sanitized(tool: str, shares: tuple[str, ...], *, folder: Path, sanitizer: str, limit_s: float, port: int) -> Run:
    """Run shares of kernels' launches under a tool and return what it said. Its output is kept in the folder.

    Where the folder has all that a run says, that is returned.
    """
    log = folder / f"{tool}-{re.sub('[:/@]', '-', shares[0])}.txt"
    earlier = log.read_text(errors="replace") if log.exists() else ""
    if "SUMMARY" in earlier and earlier.count("LAUNCHED ") == len(shares):
        return Run(tool, earlier, "", 0.0)
    if limit_s <= 0:
        return Run(tool, "", "out of time; run again to go on", 0.0)
    command = [sanitizer, "--tool", tool, "--target-processes", "application-only", "--port", str(port)]
    command += ["--launch-timeout", "60", "--show-backtrace", "no", "--print-limit", "0"]
    if tool == "memcheck":
        # cuda.bindings asks the driver for names that it may not have; that is no access to memory.
        command += ["--report-api-errors", "no"]
    for name in dict.fromkeys(map(kernel_of, shares)):
        command += ["--kernel-name", f"regex={load_kernel(name).kernel.launched}"]
    command += [sys.executable, __file__, "--launch", *shares]
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    start, trouble = time.monotonic(), ""
    with log.open("w") as file:
        try:
            subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, env=environment, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            trouble = f"not done after {limit_s:.0f} s"
    text = log.read_text(errors="replace")
    if not trouble and "SUMMARY" not in text:
        trouble = f"{tool} gave no summary"
    return Run(tool, text, trouble, time.monotonic() - start)


def kernels_of(report: Report) -> set[str]:
    """Return the kernels whose functions a report names."""
    endings = "kernel|pipelined|software_pipelined|warp_specialised|cuda|cluster|cooperative|ping_pong|normalise|copies"
    named = set(re.findall(rf"\b(\w+?)_(?:{endings})\b", report.words))
    return named & set(kernel_names())


def unread(text: str) -> str | None:
    """Return in words that a run's own count of errors is not that of the reports that were read, or None."""
    counts = [int(count) for count in re.findall(r"SUMMARY: (\d+) (?:errors?|hazards?)", text)]
    found = len(reports(text))
    return None if sum(counts) == found or not counts else f"{sum(counts)} errors, of which {found} were read"


def summary(name: str, runs: list[Run], *, release: tuple[int, int]) -> tuple[str, list[str]]:
    """Return a kernel's line, and what was found beyond the known, each with how often."""
    text = "\n".join(run.text for run in runs)
    done = [(int(n), int(wrong)) for n, wrong in re.findall(rf"^LAUNCHED {name} (\d+) WRONG (\d+)", text, re.MULTILINE)]
    trouble = sorted({run.trouble for run in runs if run.trouble})
    if len(done) != len(runs):
        trouble.append("its launches did not end")
    if any(wrong for _, wrong in done):
        trouble.append("a launch gave a wrong result")
    trouble += sorted({said for run in runs if (said := unread(run.text))})
    told = [one for one in reports(text) if name in (of := kernels_of(one)) or not of]
    kinds = Counter(known(report, kernel=name, release=release) for report in told)
    found = Counter(report.words for report in told if known(report, kernel=name, release=release) is None)
    words = [f"{count} of {kind}" for kind, count in kinds.items() if kind is not None]
    words += [f"{kinds[None]} REPORTS"] if found else []
    seconds = max(run.seconds for run in runs)
    line = f"{name:24}{runs[0].tool:10}{sum(n for n, _ in done):4} launches {seconds:5.0f} s  "
    line += "; ".join([*trouble, *words]) or "clean"
    return line, [*trouble, *(f"{count} × {words}" for words, count in found.most_common())]


def release_of(sanitizer: str) -> tuple[int, int]:
    """Return year and number of a compute-sanitizer's release."""
    said = subprocess.run([sanitizer, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"Version (\d{4})\.(\d+)", said)
    assert version, said
    return int(version[1]), int(version[2])


def _shares(name: str, of: int) -> list[tuple[str, ...]]:
    """Return so many shares of some launches, each a process; the launches alone where it is one."""
    return [(f"{name}:{at}/{of}",) for at in range(of)] if of > 1 else [(name,)]


def jobs_of(names: Iterable[str], variant: str | None = None) -> list[tuple[str, ...]]:
    """Return which shares of the kernels' launches run in one process; the longest first. variant: of one alone."""
    names = tuple(names)
    if variant is not None:
        return [one for name in names for one in _shares(f"{name}@{variant}", VARIANT_SHARES.get(variant, 1))]
    alone = [name for name in names if name not in TOGETHER]
    split = [one for name in alone if name in SHARES for one in _shares(name, SHARES[name])]
    together = tuple(name for name in names if name in TOGETHER)
    return [*split, *((name,) for name in alone if name not in SHARES), *([together] if together else [])]


def main() -> int:
    parser = argparse.ArgumentParser(description="every kernel under memcheck and racecheck")
    parser.add_argument("folder", type=Path)
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--tool", choices=(*TOOLS, *OTHER_TOOLS), action="append")
    parser.add_argument("--variant")
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1))
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--budget", type=float, default=math.inf, metavar="SECONDS")
    chosen = parser.parse_intermixed_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    names, tools = chosen.kernels or kernel_names(), chosen.tool or TOOLS
    release = release_of(chosen.sanitizer)
    work = [(tool, shares) for tool in tools for shares in jobs_of(names, chosen.variant)]
    end = time.monotonic() + chosen.budget
    ports = 20_000 + os.getpid() % 64 * 600

    def one(at: int) -> Run:
        limit_s = min(chosen.limit, end - time.monotonic())
        made = {"folder": chosen.folder, "sanitizer": chosen.sanitizer, "limit_s": limit_s}
        return sanitized(*work[at], port=ports + 12 * at, **made)

    for name in names:
        load_kernel(name)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        pending = [pool.submit(one, at) for at in range(len(work))]
        bad = 0
        for tool in tools:
            for name in names:
                at = [i for i, (of, shares) in enumerate(work) if of == tool and name in _names(shares)]
                line, found = summary(name, [pending[i].result() for i in at], release=release)
                print("\n    ".join([line, *found[:6]]), flush=True)
                bad += bool(found)
    print(f"compute-sanitizer {release[0]}.{release[1]}: {len(names)} kernels, {bad} lines with findings")
    return int(bad > 0)


def _names(shares: tuple[str, ...]) -> set[str]:
    return set(map(kernel_of, shares))


if __name__ == "__main__":
    if sys.argv[1] == "--launch":
        sys.exit(sum(launch_share(words) for words in sys.argv[2:]) > 0)
    sys.exit(main())
