"""Sets the timer beside CUPTI's and Nsight Compute's own durations, like beside like, for calls above 20 µs.

Usage where a GPU and ncu are: PYTHONPATH=. python tests/gpu/agreement.py FOLDER writes FOLDER/agreement.json and
prints its table; docs/timer.md says what the columns are. `--watch kernels|range` is what ncu watches, and
`--compile NUMBER` only compiles a case, so that many can be compiled at once.

Calls that overlap have no duration of their own, so programmatic dependent launch is off in every case here.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.errors import LedgerError
from ledger.kernel import build_case, load_kernel
from ledger.machine import ncu as profiler
from ledger.machine.device import cuda_facts
from ledger.machine.here import profile_of_this_machine
from ledger.machine.ncu_csv import parse_raw
from ledger.measuring.bench import OURS, line_up
from ledger.measuring.cell import release
from ledger.measuring.graphs import GraphRounds, capture, replay_ps, warm_up
from ledger.measuring.timeline import awake, trace
from ledger.measuring.timer import enough_rounds, parameters_of
from ledger.model.protocol import COLD_GRAPH

DURATION, CLOCK = "gpu__time_duration.sum", "sm__cycles_elapsed.avg.per_second"
METRICS = (DURATION, CLOCK)
PROFILED_CALLS = 12
RANGE_US = 8_000.0
TRACED_US = 30_000.0


@dataclass(frozen=True)
class Case:
    """Name a kernel, a shape, a dtype, and whose implementation runs."""

    kernel: str
    shape: dict[str, int]
    dtype: Any
    contestant: str = OURS

    @property
    def words(self) -> str:
        sizes = " ".join(f"{key}={size}" for key, size in self.shape.items())
        return f"{self.kernel} {sizes} {self.dtype}" + ("" if self.contestant == OURS else f", {self.contestant}")


def cube(size: int) -> dict[str, int]:
    return {"M": size, "N": size, "K": size}


CASES = (
    Case("vector_add", {"N": 20_000_000}, "fp32"),
    Case("vector_add", {"N": 100_000_000}, "fp32"),
    Case("rmsnorm", {"M": 16384, "N": 3072}, "fp16"),
    Case("layernorm", {"M": 12288, "N": 2560}, "bf16"),
    Case("softmax", {"M": 8192, "N": 5120}, "fp32"),
    Case("gemv", {"N": 12288, "K": 7168}, "fp16"),
    Case("rmsnorm_matmul", {"B": 2, "H": 7680, "O": 7680}, "fp16"),
    Case("rmsnorm_matmul", {"B": 48, "H": 7680, "O": 7680}, "bf16"),
    Case("decode_attention", {"B": 48, "HQ": 32, "HKV": 8, "S": 1536, "D": 128}, "fp16"),
    Case("matmul", cube(3584), "fp16"),
    Case("matmul", cube(3584), "fp16", "torch_matmul"),
    Case("matmul", cube(5120), "fp16"),
    Case("matmul", cube(5120), "fp16", "torch_matmul"),
)


def prepared(case: Case) -> list[Any]:
    """Return the launches of a case, one an input set of the timer's own rotation, ours proved right."""
    hardware, facts = profile_of_this_machine(None), cuda_facts()
    kernel = load_kernel(case.kernel, launch=True).kernel
    built = build_case(kernel, hardware, shape=case.shape, dtype=case.dtype)
    config = {**built.config, **({"pdl": 0} if "pdl" in built.config else {})}
    kernel.check_config(config, case.shape, case.dtype, hardware.target)
    built = built.model_copy(update={"config": config})
    only = frozenset() if case.contestant == OURS else frozenset({case.contestant})
    lined = line_up(kernel, built, facts, device="cuda", only=only)
    (one,) = [one for one in lined.contestants if one.name == case.contestant]
    return list(one.rounds.launches)


# What is compared


def timed(launches: list[Any]) -> dict[str, Any]:
    """Time a rotation by cold-graph/1."""
    rounds = GraphRounds(launches)
    samples, interval = enough_rounds(rounds, parameters_of(COLD_GRAPH))
    clocks = sorted(state.sm_clock_mhz or 0 for state in rounds.states)
    return {
        "us": interval.median / 1e6,
        "low_us": interval.low / 1e6,
        "high_us": interval.high / 1e6,
        "rounds": len(samples),
        "mhz": clocks[len(clocks) // 2],
    }


def traced(launches: list[Any], call_us: float) -> dict[str, Any]:
    """Trace replays of the same rotation as one graph after another, and return what CUPTI says of a call."""
    replays = max(2, min(round(TRACED_US / call_us / len(launches)), 1 + 2000 // len(launches)))
    _, (stream, graph) = trace({"way": launches}, device="cuda", replays=replays)
    return {
        "us": graph.busy_us,
        "stream_us": stream.busy_us,
        "span_us": graph.device_us,
        "gap_us": graph.gap_us,
        "calls": graph.calls,
        "kernels": [one.name for one in graph.ran],
    }


def measured() -> list[dict[str, Any]]:
    """Time each case, trace it, and time it again: tracing must leave no mark on the timer."""
    rows = []
    with awake("cuda"):
        for case in CASES:
            launches = prepared(case)
            first = timed(launches)
            rows.append(
                {
                    "case": case.words,
                    "input_sets": len(launches),
                    "timer": first,
                    "cupti": traced(launches, first["us"]),
                    "timer_again": timed(launches),
                }
            )
            print(case.words, json.dumps(rows[-1]), flush=True)
            del launches
            release("cuda")
    return rows


# Under ncu


def watch(mode: str) -> None:
    """Run every case for ncu: a rotation launch by launch, each a kernel; or replays of its graph as one range."""
    import torch

    from ledger.machine.probes import marker_launch

    marker = marker_launch()
    marker()
    for case in CASES:
        launches = prepared(case)
        warm_up(launches)
        graph = capture(launches)
        call_us = min(replay_ps(graph, 5, calls=len(launches))) / 1e6
        repeats = max(1, round(RANGE_US / call_us / len(launches)))
        whole = capture(launches * repeats)
        whole.replay()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        if mode == "range":
            whole.replay()
        else:
            marker()
            for number in range(PROFILED_CALLS):
                launches[number % len(launches)]()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        print(f"calls {len(launches) * repeats if mode == 'range' else PROFILED_CALLS}", flush=True)
        del launches, graph, whole
        release("cuda")


def under_ncu(mode: str, folder: Path) -> list[dict[str, Any] | None]:
    """Return what ncu says of a call of each case, None for all when it gave nothing."""
    found, report = profiler.find_ncu(), folder / f"{mode}.ncu-rep"
    replay = ["--replay-mode", "application-range"] if mode == "range" else []
    command = [found.path, "--target-processes", "application-only", "--profile-from-start", "off", *replay]
    command += ["--clock-control", "none", "--cache-control", "none", "--metrics", ",".join(METRICS)]
    command += ["-o", str(report), "--force-overwrite", sys.executable, __file__, "--watch", mode]
    done = profiler._run(command, timeout_s=150, folder=folder)
    calls = [int(line.split()[1]) for line in done.output.splitlines() if line.startswith("calls ")]
    if not report.is_file() or len(calls) != len(CASES):
        print(f"ncu, {mode}: {done.output[-1500:]}", flush=True)
        return [None] * len(CASES)
    raw = [found.path, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    kernels = parse_raw(profiler._run(raw, timeout_s=60, folder=folder).output, wanted=METRICS, what=mode)
    report.unlink()
    if mode == "range":
        return [_of_range(one, count) for one, count in zip(kernels, calls, strict=True)]
    groups: list[list[Any]] = []
    for one in kernels:
        if profiler.MARKER in one.name:
            groups.append([])
        else:
            groups[-1].append(one)
    return [_of_kernels(group, count) for group, count in zip(groups, calls, strict=True)]


def _number(kernel: Any, name: str) -> float:
    return float(kernel.metrics[name].value.replace(",", ""))


def _of_range(one: Any, calls: int) -> dict[str, Any]:
    return {"us": _number(one, DURATION) / 1e3 / calls, "mhz": round(_number(one, CLOCK) / 1e6), "calls": calls}


def _of_kernels(group: list[Any], calls: int) -> dict[str, Any]:
    """Return the median over calls of the sum of a call's kernels."""
    each = len(group) // calls
    sums = [sum(_number(one, DURATION) for one in group[at : at + each]) for at in range(0, len(group), each)]
    clocks = [_number(one, CLOCK) / 1e6 for one in group]
    return {"us": statistics.median(sums) / 1e3, "mhz": round(statistics.median(clocks)), "calls": calls}


# The table


def _beside(one: dict[str, Any] | None, timer_us: float) -> str:
    if one is None or one["us"] is None:
        return "– | –"
    return f"{one['us']:.2f} | {100 * (one['us'] / timer_us - 1):+.1f}%"


def lines(document: dict[str, Any]) -> list[str]:
    """Return the table of docs/timer.md."""
    found = []
    for row in document["rows"]:
        timer = row["timer"]["us"]
        others = [row["cupti"], row.get("ncu_range"), row.get("ncu_kernels")]
        words = [_beside(one, timer) for one in others]
        again = 100 * (row["timer_again"]["us"] / timer - 1)
        gap = row["cupti"]["gap_us"]
        clocks = [
            str(one["mhz"]) if one else "–" for one in (row["timer"], row.get("ncu_range"), row.get("ncu_kernels"))
        ]
        found.append(
            f"| {row['case']} | {timer:.2f} | {again:+.1f}% | {' | '.join(words)} "
            f"| {'–' if gap is None else f'{gap:.2f}'} | {' / '.join(clocks)} |"
        )
    return found


def main(folder: Path) -> None:
    """Time and trace every case, then let ncu have its turns; what is measured is kept whatever ncu does."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = cuda_facts()
    document: dict[str, Any] = {"device": facts.name, "driver": facts.driver, "software": dict(facts.software)}
    document["rows"] = measured()
    for mode in ("range", "kernels"):
        (folder / "agreement.json").write_text(json.dumps(document, indent=1) + "\n")
        try:
            document["ncu"] = profiler.find_ncu().version
            seen = under_ncu(mode, folder)
        except (LedgerError, ValueError, KeyError, IndexError) as error:
            print(f"ncu, {mode}: {type(error).__name__}: {error}", flush=True)
            continue
        for row, one in zip(document["rows"], seen, strict=True):
            row[f"ncu_{mode}"] = one
    (folder / "agreement.json").write_text(json.dumps(document, indent=1) + "\n")
    print("\n".join(lines(document)))


if __name__ == "__main__":
    if sys.argv[1] == "--watch":
        watch(sys.argv[2])
    elif sys.argv[1] == "--compile":
        prepared(CASES[int(sys.argv[2])])
    else:
        main(Path(sys.argv[1]))
