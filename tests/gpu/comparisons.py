"""Counts the false alarms and the missed slow-downs of `ledger compare`, on a GPU or with --cpu on a CPU.

Usage: PYTHONPATH=. python tests/gpu/comparisons.py FILE [--cpu] [--equal 200] [--slowed 50] [--percent 3]
[--seconds 120] [--hw NAME] writes FILE after each part. Each comparison is one of its own, as of a change with one
case: equal ones compare sources that differ in a comment, slowed ones a kernel that does some of its work twice, by an
amount that is first calibrated to the percentage.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
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
from ledger.measure.comparison import ON_CPU, ON_GPU, Version, compare_case
from ledger.record_files import write_atomically
from ledger.records import Hardware, is_gpu

ROOT = Path(__file__).parents[2]
SLOWED = ROOT / "tests" / "assets" / "slowed"
GPU_CASES = (("stream", {"N": 2**23}, "fp16"), ("product", {"M": 2048, "N": 1024, "K": 4096}, "fp16"))
GPU_EQUAL = (*GPU_CASES, ("rmsnorm", {"M": 4096, "N": 4096}, "bf16"), ("softmax", {"M": 1024, "N": 8192}, "fp16"))
CPU_CASES = (
    ("product", {"M": 256, "N": 256, "K": 1024}, "fp32"),
    ("product", {"M": 128, "N": 512, "K": 512}, "fp32"),
)
CPU_EQUAL = (
    *CPU_CASES,
    ("stream", {"N": 2**18}, "fp32"),
    ("softmax", {"M": 512, "N": 1024}, "fp32"),
    ("gemv", {"N": 1024, "K": 1024}, "fp32"),
)


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
            with (root / "kernels" / f"{kernel}.py").open("a") as file:
                file.write(f"\n# {mark}\n")
        with kernels_shipped_from(root):
            closure, shipped = kernel_closure(kernel, root)
        file = execute(closure, launch=self.gpu, shipped=shipped)
        # One thread: with more, a call on a busy CPU waits for the slowest of them.
        threads = None if self.gpu else 1
        return Version(file, build_case(file.kernel, self.hardware, shape=shape, dtype=dtype, threads=threads))

    def compare(self, case: tuple[Any, ...], *, extra: int = 0, mark: int = 0, long: bool = False) -> Any:
        """Return a comparison. long: with a narrow interval, to calibrate."""
        effort = replace(self.effort, target=0.001, budget_s=0.5 if self.gpu else 8.0) if long else self.effort
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
            if abs(slower - percent) < 0.1 * percent:
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
    """Make the inputs of each case and run once: they take longer than the timing."""
    made: dict[Any, Any] = {}
    make = comparison._sets

    def kept(base: Version, facts: Any, device: str, run: int) -> Any:
        key = (base.case.kernel, str(base.case.shape), base.case.dtype, run)
        if key not in made:
            made[key] = make(base, facts, device, run)
        return made[key]

    comparison._sets = kept


def trials(bench: Bench, cases: Any, count: int, until: float, extras: dict[int, int]) -> Iterator[dict[str, Any]]:
    """Yield comparisons, the cases in turn. extras: thousandths of work done twice, by the number of the case."""
    for trial in range(count):
        if time.monotonic() > until:
            return
        number = trial % len(cases)
        started = time.monotonic()
        found = bench.compare(cases[number], extra=extras.get(number, 0), mark=trial + 1)
        made = row(cases[number], found, time.monotonic() - started)
        print(json.dumps(made), flush=True)
        yield made


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
    hardware = profile_of_this_machine(Path.cwd(), given.hw)
    with TemporaryDirectory() as name:
        bench = Bench(Path(name), hardware)
        cases, equal = (GPU_CASES, GPU_EQUAL) if bench.gpu else (CPU_CASES, CPU_EQUAL)
        document: dict[str, Any] = {
            "device": bench.facts.name, "software": dict(bench.facts.software), "percent": given.percent,
            "load_average_at_start": load_average(), "calibrated": [], "slowed": [], "equal": [],
        }  # fmt: skip
        extras = {}
        for number, case in enumerate(cases if given.slowed else ()):
            extras[number], measured = bench.calibrated(case, given.percent)
            document["calibrated"].append(
                {"kernel": case[0], "shape": case[1], "extra": extras[number], "pct": measured}
            )
            print(f"calibrated {case[0]} {case[1]}: {extras[number]}/1000 take {measured:.2f}% longer", flush=True)
        # Both parts get their share where the time ends before their number.
        first = 0.55 if given.equal else 1.0
        for part, chosen, count, seeds, share in (
            ("slowed", cases, given.slowed, extras, first), ("equal", equal, given.equal, {}, 1.0),
        ):  # fmt: skip
            for made in trials(bench, chosen, count, started + share * given.seconds, seeds):
                document[part].append(made)
                document["load_average_at_end"] = load_average()
                write_atomically(given.file, (json.dumps(document, indent=1) + "\n").encode())
    print(summary(document))


if __name__ == "__main__":
    main()
