"""Measures on all GPUs of one host: the test of the fleet, an order by Ray, and cells on each chip, repeated.

Usage where two GPUs and ray are: PYTHONPATH=. python tests/gpu/two_gpus.py FOLDER [--test] [--ray ORDER]
[--chips ORDER] [--repeats 2] [--budget SECONDS]. `--test` runs tests/fleet/test_two_gpus.py. `--ray` measures an order
with `ledger measure --ray local`. `--chips` measures each of its cells on each chip, all chips at once, as consecutive
runs, and prints how far chips differ beside repeats; a chip begins no cell after the budget, and the same command goes
on. Records: FOLDER/ray.tar.gz, FOLDER/chips.tar.gz, for ledger verify --from. Exits with 1 where a step fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from ledger.analysis.repeats import chip_of, range_percent
from ledger.canonical import encode
from ledger.child_environment import child_environment
from ledger.device.gpu_selection import gpu_names
from ledger.record_files import read_measurement, read_record
from ledger.records import Measurement, Order

ROOT = Path(__file__).parents[2]
Times = dict[str, dict[str, list[int]]]
"""Picoseconds by cell and chip."""


def order_of_chip(order: Order, *, chip: int, chips: int, repeats: int) -> Order:
    """Return the runs of an order's cells on one of several chips: each cell once, then all again."""
    cells = [
        cell.model_copy(update={"run": cell.run + chip + repeat * chips})
        for repeat in range(repeats)
        for cell in order.cells
    ]
    return order.model_copy(update={"cells": tuple(cells)})


def times_of(records: Iterable[Measurement]) -> Times:
    """Return the times of measured records."""
    found: Times = {}
    for one in records:
        if one.timing is not None:
            found.setdefault(f"{one.seal}#{one.cell}", {}).setdefault(str(chip_of(one))[:8], []).append(
                one.timing.median_ps
            )
    return found


def chip_lines(measured: Times) -> list[str]:
    """Return what each chip took beside the first one, and how far chips and repeats differ, in percent."""
    shared = {cell: found for cell, found in measured.items() if len(found) > 1}
    if not shared:
        return ["no cell was measured on two chips"]
    chips = sorted({chip for found in shared.values() for chip in found})
    between = [range_percent([median(one) for one in found.values()]) for found in shared.values()]
    repeats = [range_percent(one) for found in shared.values() for one in found.values() if len(one) > 1]
    lines = [f"{len(shared)} cells on {len(chips)} chips differ by {_spread(between)}"]
    lines.append(f"repeats on one chip differ by {_spread(repeats)}")
    first = chips[0]
    for chip in chips[1:]:
        ratios = [median(one[chip]) / median(one[first]) for one in shared.values() if {chip, first} <= set(one)]
        if ratios:
            times = f"{median(ratios):.4f} of the time of {first}"
            lines.append(f"{chip} takes {times}, {min(ratios):.3f} to {max(ratios):.3f}")
    return lines


def _spread(percents: Sequence[float]) -> str:
    if not percents:
        return "nothing: there are none"
    return f"{median(percents):.2f}% in the median, {max(percents):.2f}% at most"


def records_in(*folders: Path) -> list[Measurement]:
    """Return the measurements of some folders."""
    return [read_measurement(path) for folder in folders for path in sorted(folder.glob("*.json"))]


def pack(name: Path, *folders: Path) -> None:
    """Write the measurements of some folders into one archive."""
    with tarfile.open(name, "w:gz") as archive:
        for path in (path for folder in folders for path in sorted(folder.glob("*.json"))):
            archive.add(path, f"{name.name.removesuffix('.tar.gz')}/{path.name}")


def measure(order: Path, out: Path, *options: str, chip: int | None = None) -> subprocess.Popen[bytes]:
    """Start `ledger measure`. chip: the only GPU that it sees, None for all."""
    environment = child_environment() | ({} if chip is None else {"CUDA_VISIBLE_DEVICES": str(chip)})
    command = [sys.executable, "-m", "ledger", "measure", str(order), "-o", str(out), "--counters", "off", *options]
    return subprocess.Popen(command, env=environment)


def run_test(folder: Path) -> int:
    """Run the test of two GPUs and print what it found."""
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-n", "0", "-m", "gpu", "tests/fleet/test_two_gpus.py"]
    return subprocess.run(
        [*command, "--basetemp", str(folder / "test")], cwd=ROOT, env=child_environment(), check=False
    ).returncode


def run_ray(order: Path, folder: Path) -> int:
    """Measure an order by Ray, and print which chip measured how many cells."""
    began = time.monotonic()
    code = measure(order, folder / "ray", "--ray", "local", "--json").wait()
    records = records_in(folder / "ray")
    counts = Counter(str(chip_of(one))[:8] for one in records)
    print(f"ray: {len(records)} cells in {time.monotonic() - began:.0f} s, by chip: {json.dumps(counts)}", flush=True)
    pack(folder / "ray.tar.gz", folder / "ray")
    return code


def run_chips(order: Path, folder: Path, repeats: int, budget_s: float) -> int:
    """Measure an order's cells on every chip at once, and print how far they differ."""
    chips = len(gpu_names())
    outs = [folder / f"chip{chip}" for chip in range(chips)]
    record = read_record(Order, order)
    running = []
    for chip, out in enumerate(outs):
        out.mkdir(parents=True, exist_ok=True)
        part = folder / f"order{chip}.json"
        part.write_bytes(encode(order_of_chip(record, chip=chip, chips=chips, repeats=repeats)))
        running.append(measure(part, out, "--budget", str(budget_s), "--json", chip=chip))
    codes = [one.wait() for one in running]
    print("\n".join(chip_lines(times_of(records_in(*outs)))), flush=True)
    pack(folder / "chips.tar.gz", *outs)
    return max(codes)


def main() -> int:
    """Run the steps that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--ray", type=Path, metavar="ORDER")
    parser.add_argument("--chips", type=Path, metavar="ORDER")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--budget", type=float, default=300.0, metavar="SECONDS")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    codes = []
    if asked.test:
        codes.append(run_test(asked.folder))
    if asked.ray is not None:
        codes.append(run_ray(asked.ray, asked.folder))
    if asked.chips is not None:
        codes.append(run_chips(asked.chips, asked.folder, asked.repeats, asked.budget))
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
