"""Counts the false alarms and the missed slow-downs of `ledger compare`, on a GPU or with --cpu on a CPU.

Usage: PYTHONPATH=. python tests/gpu/comparisons.py FILE [--cpu] [--equal 200] [--slowed 50] [--percent 3]
[--seconds 120] [--hw NAME] writes FILE after each comparison and goes on where FILE ends. Each comparison is one of its
own, as of a change with one case: equal ones compare sources that differ in a comment, slowed ones a kernel that does
some of its work twice, by an amount that is first calibrated to the percentage. Four equal ones follow each slowed one.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ledger.analysis.paired_ratio import error_of_case
from ledger.device.cpu_load import load_average
from ledger.device.facts import facts_for
from ledger.device.gpu_selection import select_device
from ledger.device.local_profile import profile_of_this_machine
from ledger.kernel_files import build_case, execute, kernel_closure, kernels_shipped_from
from ledger.measure import comparison
from ledger.measure.compared_launches import Version
from ledger.measure.comparison import compare_case
from ledger.measure.comparison_effort import ON_CPU, ON_GPU
from ledger.record_files import write_atomically
from ledger.records import Hardware, is_gpu

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "support"))

from measuring import this_cpu  # noqa: E402

SLOWED = ROOT / "tests" / "assets" / "slowed"
GPU_CASES = (
    ("stream", {"N": 2**23}, "fp16"),
    ("product", {"M": 2048, "N": 1024, "K": 4096}, "fp16"),
    ("stream", {"N": 2**21}, "fp16"),
    ("product", {"M": 1024, "N": 1024, "K": 2048}, "fp16"),
    ("stream", {"N": 2**25}, "fp16"),
)
GPU_EQUAL = (
    GPU_CASES[0],
    GPU_CASES[1],
    ("rmsnorm", {"M": 4096, "N": 4096}, "bf16"),
    ("softmax", {"M": 1024, "N": 8192}, "fp16"),
    ("layernorm", {"M": 512, "N": 4096}, "fp16"),
    ("gemv", {"N": 8192, "K": 8192}, "fp16"),
    ("vector_add", {"N": 2**20}, "fp16"),
    GPU_CASES[3],
)
CPU_CASES = (
    ("product", {"M": 256, "N": 256, "K": 1024}, "fp32"),
    ("stream", {"N": 2**18}, "fp32"),
    ("product", {"M": 128, "N": 512, "K": 512}, "fp32"),
    ("stream", {"N": 2**20}, "fp32"),
)
CPU_EQUAL = (*CPU_CASES, ("softmax", {"M": 512, "N": 1024}, "fp32"), ("gemv", {"N": 1024, "K": 1024}, "fp32"))
EQUAL_A_SLOWED = 4
"""Equal comparisons after each slowed one."""
NEAR = 0.2
"""A slow-down that cannot be calibrated to within this share of the percentage is not used."""


class Bench:
    """Hold two folders of kernels, and load a case from either."""

    def __init__(self, folder: Path, hardware: Hardware) -> None:
        """Copy the kernels twice."""
        self.folder, self.hardware, self.facts = folder, hardware, facts_for(hardware)
        self.gpu = is_gpu(hardware.target)
        self.effort = ON_GPU if self.gpu else ON_CPU
        for side in ("base", "head"):
            shutil.copytree(ROOT / "kernels", folder / side / "kernels")
            (folder / side / "ledger").mkdir()
            (folder / side / "ledger" / "kernel_files.py").write_text("")

    def version(self, side: str, kernel: str, shape: Any, dtype: Any, *, extra: int = 0, mark: int = 0) -> Version:
        """Return a case of a side; mark: a number in a comment, by which sources differ."""
        root = self.folder / side
        if (SLOWED / f"{kernel}.py").is_file():
            text = re.sub(r"^EXTRA = 0$", f"EXTRA = {extra}", (SLOWED / f"{kernel}.py").read_text(), flags=re.MULTILINE)
            (root / "kernels" / f"{kernel}.py").write_text(text + f"\n# {mark}\n")
        else:
            shutil.copy(ROOT / "kernels" / f"{kernel}.py", root / "kernels" / f"{kernel}.py")
            with (root / "kernels" / f"{kernel}.py").open("a") as text_file:
                text_file.write(f"\n# {mark}\n")
        with kernels_shipped_from(root):
            closure, shipped = kernel_closure(kernel, root)
        file = execute(closure, launch=self.gpu, shipped=shipped)
        # One thread: with more, a call on a busy CPU waits for the slowest of them.
        threads = None if self.gpu else 1
        return Version(file, build_case(file.kernel, self.hardware, shape=shape, dtype=dtype, threads=threads))

    def compare(self, case: tuple[Any, ...], *, extra: int = 0, mark: int = 0, long: bool = False) -> Any:
        """Return a comparison. long: with a narrow interval, to calibrate."""
        effort = replace(self.effort, target=0.001, budget_s=0.5 if self.gpu else 3.0) if long else self.effort
        return compare_case(
            self.version("base", *case),
            self.version("head", *case, extra=extra, mark=mark),
            facts=self.facts,
            device="cuda" if self.gpu else "cpu",
            error=error_of_case(1),
            effort=effort,
        )

    def calibrated(self, case: tuple[Any, ...], percent: float) -> tuple[int, float]:
        """Return how many thousandths of the work take a percentage longer, and what was measured with them."""
        extra, slower = round(10 * percent), 0.0
        for _ in range(3):
            slower = 100 * (1 / self.compare(case, extra=extra, long=True).judged.ratio - 1)
            if abs(slower - percent) < NEAR / 2 * percent:
                break
            extra = max(1, min(3 * extra, round(extra * percent / max(slower, 0.3 * percent))))
        return extra, slower


def row(case: tuple[Any, ...], found: Any, took_s: float) -> dict[str, Any]:
    judged = found.judged
    return {
        "kernel": case[0], "shape": case[1], "dtype": case[2], "call": judged.call if judged else found.failure,
        "ratio": _short(judged.ratio) if judged else None, "low": _short(judged.low) if judged else None,
        "high": _short(judged.high) if judged else None, "noise_pct": _short(100 * judged.noise) if judged else None,
        "rounds": found.rounds, "runs": found.runs, "base_us": round((found.base_ps or 0) / 1e6, 3),
        "took_s": round(took_s, 2),
    }  # fmt: skip


def _short(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def keep_inputs() -> None:
    """Make the inputs of each case and run once, its sets alike: to make them takes longer than to time them."""
    made: dict[Any, Any] = {}
    make, generate = comparison._sets, comparison.input_sets

    def alike(*what: Any, count: int, **how: Any) -> Iterator[Any]:
        (first,) = generate(*what, count=1, **how)
        yield first
        for _ in range(count - 1):
            yield replace(
                first, inputs={name: one.clone() for name, one in first.inputs.items()}, out=first.out.clone()
            )

    def kept(base: Version, facts: Any, device: str, origin: comparison.Origin) -> Any:
        key = (base.case.kernel, str(base.case.shape), base.case.dtype, origin.run)
        if key not in made:
            made[key] = make(base, facts, device, origin)
        return made[key]

    comparison._sets, comparison.input_sets = kept, alike


def trial(bench: Bench, case: tuple[Any, ...], extra: int, mark: int) -> dict[str, Any]:
    """Return the row of one comparison."""
    started = time.monotonic()
    made = row(case, bench.compare(case, extra=extra, mark=mark), time.monotonic() - started)
    print(json.dumps(made), flush=True)
    return made


def earlier(path: Path, conditions: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a file that ended early, or an empty one of these conditions."""
    if path.is_file():
        found = json.loads(path.read_bytes())
        if all(found.get(name) == value for name, value in conditions.items()):
            return dict(found)
    return {**conditions, "load_average_at_start": load_average(), "calibrated": [], "slowed": [], "equal": []}


def summary(document: dict[str, Any]) -> str:
    equal, slowed = document["equal"], document["slowed"]
    alarms = sum(one["call"] not in ("same", "unclear") for one in equal)
    found = sum(one["call"] == "slower" for one in slowed)
    unclear = sum(one["call"] == "unclear" for one in equal)
    return f"{alarms} false alarms in {len(equal)} ({unclear} unclear), {found} of {len(slowed)} slow-downs found"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--equal", type=int, default=200)
    parser.add_argument("--slowed", type=int, default=50)
    parser.add_argument("--percent", type=float, default=3)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--hw")
    given = parser.parse_args()
    started = time.monotonic()
    keep_inputs()
    select_device("cpu" if given.cpu else None)
    hardware = this_cpu() if given.cpu else profile_of_this_machine(Path.cwd(), given.hw)
    with TemporaryDirectory() as name:
        bench = Bench(Path(name), hardware)
        cases, equal = (GPU_CASES, GPU_EQUAL) if bench.gpu else (CPU_CASES, CPU_EQUAL)
        conditions = {"device": bench.facts.name, "software": dict(bench.facts.software), "percent": given.percent}
        document = earlier(given.file, conditions)
        extras = {}
        for one in document["calibrated"]:
            case = next(case for case in cases if case[:2] == (one["kernel"], one["shape"]))
            if one["used"]:
                extras[case[0], str(case[1])] = (case, one["extra"])
        for case in cases if given.slowed and not document["calibrated"] else ():
            extra, measured = bench.calibrated(case, given.percent)
            used = abs(measured - given.percent) < NEAR * given.percent
            document["calibrated"].append(
                {"kernel": case[0], "shape": case[1], "extra": extra, "pct": measured, "used": used}
            )
            print(f"calibrated {case[0]} {case[1]}: {extra}/1000 take {measured:.2f}% longer", flush=True)
            if used:
                extras[case[0], str(case[1])] = (case, extra)
        slowed = list(extras.values())
        while time.monotonic() - started < given.seconds:
            done = {part: len(document[part]) for part in ("slowed", "equal")}
            turn = done["equal"] >= EQUAL_A_SLOWED * done["slowed"] or done["equal"] >= given.equal
            if slowed and done["slowed"] < given.slowed and turn:
                case, extra = slowed[done["slowed"] % len(slowed)]
                document["slowed"].append(trial(bench, case, extra, done["slowed"]))
            elif done["equal"] < given.equal:
                document["equal"].append(trial(bench, equal[done["equal"] % len(equal)], 0, done["equal"] + 1))
            else:
                break
            document["load_average_at_end"] = load_average()
            write_atomically(given.file, (json.dumps(document, indent=1) + "\n").encode())
    print(summary(document))


if __name__ == "__main__":
    main()
