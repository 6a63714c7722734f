"""Sets the timer beside CUPTI's and Nsight Compute's own durations, like beside like, for calls above 20 µs.

Usage where a GPU and ncu are: PYTHONPATH=. python tests/gpu/agreement.py FOLDER writes FOLDER/cupti.json and
FOLDER/ncu.json and prints their tables; docs/measurement.md says what was found. `--watch` is what ncu watches, and
`--compile NUMBER` only compiles a case, so that many can be compiled at once.

Calls that overlap have no duration of their own, so programmatic dependent launch is off in every case here. ncu's
launches are a process of their own: in one process with the timer's graphs ncu slows these down, or, told to leave
graphs whole, says some 200 us too much of every call.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.analysis.protocols import COLD_GRAPH
from ledger.device import ncu as profiler
from ledger.device.facts import cuda_facts
from ledger.device.local_profile import profile_of_this_machine
from ledger.device.ncu_csv import parse_raw
from ledger.errors import MachineError
from ledger.kernel_files import build_case, load_kernel
from ledger.measure.contestants import OURS, line_up
from ledger.measure.cuda_graphs import GraphRounds, capture, replay_ps, warm_up
from ledger.measure.run_cell import release
from ledger.measure.timeline import Stretch, awake, trace_stretches
from ledger.measure.timer import enough_rounds, parameters_of
from ledger.render.timer_page import cupti_lines, ncu_lines

DURATION, CLOCK = "gpu__time_duration.sum", "sm__cycles_elapsed.avg.per_second"
METRICS = (DURATION, CLOCK)
PROFILED_CALLS = 12
WARM_UP_US = 8_000.0
REST_S = 0.1


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


def chosen_cases() -> tuple[Case, ...]:
    """Return the cases: all, or those whose numbers the environment names in AGREEMENT_CASES."""
    numbers = os.environ.get("AGREEMENT_CASES")
    return CASES if numbers is None else tuple(CASES[int(number)] for number in numbers.split(","))


def prepared(case: Case) -> list[Any]:
    """Return the launches of a case, one an input set of the timer's own rotation, ours proved right."""
    hardware, facts = profile_of_this_machine(None), cuda_facts()
    kernel = load_kernel(case.kernel, launch=True).kernel
    built = build_case(kernel, hardware, shape=case.shape, dtype=case.dtype)
    config = {**built.config, **({"pdl": 0} if "pdl" in built.config else {})}
    kernel.check_config(config, case.shape, case.dtype, hardware.target)
    built = built.model_copy(update={"config": config})
    only = frozenset() if case.contestant == OURS else frozenset({case.contestant})
    lined = line_up(kernel, built, facts, device="cuda", only=only, contexts=("back-to-back",))
    (one,) = [one for one in lined.contestants if one.name == case.contestant]
    return list(one.rounds.launches)


# What is compared


def timed(rounds: GraphRounds) -> dict[str, Any]:
    """Time a rotation by cold-graph/1, from a device that has rested."""
    time.sleep(REST_S)
    rounds.states.clear()
    samples, interval = enough_rounds(rounds, parameters_of(COLD_GRAPH))
    clocks = sorted(state.sm_clock_mhz or 0 for state in rounds.states)
    return {
        "us": interval.median / 1e6,
        "low_us": interval.low / 1e6,
        "high_us": interval.high / 1e6,
        "rounds": len(samples),
        "mhz": clocks[len(clocks) // 2],
    }


def traced(rounds: GraphRounds) -> dict[str, Any]:
    """Trace the timer at work: its own rounds of the same graph, with what CUPTI says of the same launches."""
    samples: list[int] = []
    count = parameters_of(COLD_GRAPH).min_rounds
    rounds.watch = False
    time.sleep(REST_S)
    stretches = (
        Stretch("warm-up", 1, lambda: rounds.take(parameters_of(COLD_GRAPH).warmup_rounds)),
        # One replay goes ahead of those that are timed.
        Stretch("rounds", (count + 1) * rounds.calls, lambda: samples.extend(rounds.take(count))),
    )
    _, (_, seen) = trace_stretches(stretches, device="cuda")
    rounds.watch = True
    return {
        "us": seen.busy_us,
        "timer_us": statistics.median(samples) / 1e6,
        "gap_us": seen.gap_us,
        "calls": seen.calls,
        "kernels": [one.name for one in seen.ran],
    }


def measured() -> list[dict[str, Any]]:
    """Time each case, trace the timer at it, and time it again: tracing must leave no mark on the timer."""
    rows = []
    with awake("cuda"):
        for case in chosen_cases():
            launches = prepared(case)
            rounds = GraphRounds(launches)
            row = {"case": case.words, "input_sets": len(launches), "timer": timed(rounds), "cupti": traced(rounds)}
            rows.append({**row, "timer_again": timed(rounds)})
            print(json.dumps(rows[-1]), flush=True)
            del launches, rounds
            release("cuda")
    return rows


# Under ncu


def watch() -> None:
    """Run every case for ncu: warm, then launches of the timer's rotation, which ncu takes one at a time."""
    import torch

    from ledger.device.probe_kernels import marker_launch

    marker = marker_launch()
    marker()
    for case in chosen_cases():
        launches = prepared(case)
        warm_up(launches)
        graph = capture(launches)
        call_us = min(replay_ps(graph, 5, calls=len(launches))) / 1e6
        for _ in range(1 + round(WARM_UP_US / call_us / len(launches))):
            graph.replay()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        marker()
        for number in range(PROFILED_CALLS):
            launches[number % len(launches)]()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        del launches, graph
        release("cuda")


def under_ncu(folder: Path) -> list[dict[str, Any]]:
    """Return what ncu says of a call of each case. Raises: MachineError when it did not see all."""
    found, report = profiler.find_ncu(), folder / "agreement.ncu-rep"
    command = [found.path, "--target-processes", "application-only", "--profile-from-start", "off"]
    command += ["--clock-control", "none", "--cache-control", "none", "--metrics", ",".join(METRICS)]
    command += ["-o", str(report), "--force-overwrite", sys.executable, __file__, "--watch"]
    done = profiler._run(command, timeout_s=150, folder=folder)
    if not report.is_file():
        raise MachineError(f"ncu gave no report; expected one: {done.output[-1500:]}")
    raw = [found.path, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    kernels = parse_raw(profiler._run(raw, timeout_s=60, folder=folder).output, wanted=METRICS, what="ncu")
    report.unlink()
    groups: list[list[Any]] = []
    for one in kernels:
        if profiler.MARKER in one.name:
            groups.append([])
        else:
            groups[-1].append(one)
    if len(groups) != len(chosen_cases()):
        raise MachineError(f"ncu saw {len(groups)} of {len(chosen_cases())} cases: {done.output[-1500:]}")
    return [_of_kernels(group) for group in groups]


def _number(kernel: Any, name: str) -> float:
    return float(kernel.metrics[name].value.replace(",", ""))


def _of_kernels(group: list[Any]) -> dict[str, Any]:
    """Return the median over calls of the sum of a call's kernels."""
    each = len(group) // PROFILED_CALLS
    sums = [sum(_number(one, DURATION) for one in group[at : at + each]) for at in range(0, len(group), each)]
    clocks = [_number(one, CLOCK) / 1e6 for one in group]
    return {"us": statistics.median(sums) / 1e3, "mhz": round(statistics.median(clocks)), "calls": PROFILED_CALLS}


def main(folder: Path) -> None:
    """Time and trace every case, then let ncu have its turn; what is measured is kept whatever ncu does."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = cuda_facts()
    about = {"device": facts.name, "driver": facts.driver, "software": dict(facts.software)}
    document = {**about, "rows": measured()}
    (folder / "cupti.json").write_text(json.dumps(document, indent=1) + "\n")
    print("\n".join(cupti_lines(document)), flush=True)
    rows = [
        {name: row[name] for name in ("case", "input_sets", "timer")} | {"ncu": one}
        for row, one in zip(document["rows"], under_ncu(folder), strict=True)
    ]
    profiled = {**about, "ncu": profiler.find_ncu().version, "rows": rows}
    (folder / "ncu.json").write_text(json.dumps(profiled, indent=1) + "\n")
    print("\n".join(ncu_lines(profiled)))


if __name__ == "__main__":
    if sys.argv[1] == "--watch":
        watch()
    elif sys.argv[1] == "--compile":
        prepared(CASES[int(sys.argv[2])])
    else:
        main(Path(sys.argv[1]))
