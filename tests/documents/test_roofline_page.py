"""Holds every number of ROOFLINE.md against records, hardware profiles and files in benchmarks/, and runs its commands.

A sentence (or a table row) that holds a number stands in NUMBERS under the words it starts with, with the values that
its numbers must round to, in their order, each computed here. A number in a sentence without an entry fails, and so
does an entry without a sentence. Not counted: code, what a backtick encloses, link targets, dtypes and names with a
digit, a section's number, and a size such as H=4096, which must be a size of a sealed cell.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import pytest
import yaml
from ledger_process import repository_report, rows_of_version_1, run_ledger

from ledger.kernel_files import load_kernel
from ledger.record_files import load_hardware
from ledger.records import Hardware

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ROOFLINE.md").read_text(encoding="utf-8")
GRID = [(b, h, t) for t in ("fp16", "bf16") for h in (2048, 4096, 8192) for b in (1, 8, 32, 128)]
FIRST, LATER = "h200_first", "h200_two_rings"
# TB/s, the best read of the calibration before the campaign whose times it is subtracted from.
_BEFORE = yaml.safe_load((ROOT / "hardware/measured/dated/h200-20261121T094007Z.yaml").read_text(encoding="utf-8"))
READ = _BEFORE["ceilings"]["burst"]["dram_read_bandwidth"]["value"] / 1000
NUMBER = re.compile(r"(?<![\w.])[+−]?\d+(?:\.\d+)?(?![\w]*[a-z]\d)")
SIZE = re.compile(r"\b[A-Z](?:=[A-Z])*=(\d+)")
Values = Sequence[float]


def ledger(*arguments: str, folder: Path = ROOT, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return run_ledger(*arguments, cwd=folder, env=environment)


def needs_history() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git history")


class Evidence:
    """Hold the report's rows with their records, the bench and the profiles."""

    def __init__(self) -> None:
        # The page speaks of the cells of version 1, and of the grid as an author forecast it later.
        self.rows: list[dict[str, Any]] = [row for row in rows_of_version_1() if row["counts"]]
        self.later = [
            row
            for row in repository_report()["rows"]
            if row["campaign"] in ("h200_head", "h100_grid")
            and row["counts"]
            and row["measured"]
            and row["shape"].get("B") in (1, 8, 32, 128)
        ]
        self.work = load_kernel("rmsnorm_matmul").kernel.work
        self.h200, self.h100 = load_hardware("h200", ROOT), load_hardware("h100_sxm", ROOT)
        read = lambda name: json.loads((ROOT / "benchmarks" / name).read_text(encoding="utf-8"))  # noqa: E731
        self.bench = [
            row
            for row in read("h200.json")["rows"]
            if row["kernel"] == "rmsnorm_matmul"
            and row["shape"]["H"] == row["shape"]["O"]
            and (row["shape"]["B"], row["shape"]["H"], row["dtype"]) in GRID
        ]
        self.self_test = read("timer/self-test-h200.json")
        self.cupti, self.ncu = read("timer/cupti-h200.json")["rows"], read("timer/ncu-h200.json")["rows"]

    def of(self, campaign: str) -> list[dict[str, Any]]:
        return [row for row in (*self.rows, *self.later) if row["campaign"] == campaign]

    def grid(self, campaign: str) -> dict[tuple[int, int, str], dict[str, Any]]:
        found = {
            (row["shape"]["B"], row["shape"]["H"], row["dtype"]): row
            for row in self.of(campaign)
            if row["kernel"] == "rmsnorm_matmul" and row["shape"]["H"] == row["shape"]["O"]
        }
        assert set(found) == set(GRID)
        return found

    def cell(self, campaign: str, name: str) -> dict[str, Any]:
        (row,) = [row for row in self.of(campaign) if row["cell"] == name]
        return row

    def record(self, row: dict[str, Any]) -> dict[str, Any]:
        name = row["record"]
        return json.loads((ROOT / "verifications" / name[:2] / f"{name}.json").read_bytes())

    def bytes_of(self, b: int, h: int) -> tuple[int, int]:
        """Return the bytes read and written of a cell of the grid."""
        work = self.work({"B": b, "H": h, "O": h}, "fp16")
        return work.bytes_read, work.bytes_written

    def bound(self, b: int, h: int) -> tuple[float, float]:
        """Return intensity and time lower bound in us."""
        work = self.work({"B": b, "H": h, "O": h}, "fp16")
        moved = work.bytes_read + work.bytes_written
        return work.flops / moved, max(work.flops / 989.4e6, moved / 4.8e6)

    def us(self, campaign: str, b: int, h: int, dtype: str = "fp16") -> float:
        return self.grid(campaign)[b, h, dtype]["measured"]["duration_us"]

    def fixed(self, h: int) -> float:
        return self.us(FIRST, 1, h) - sum(self.bytes_of(1, h)) / (READ * 1e6)

    def profiled(self, campaign: str) -> list[float]:
        """Return the profiled launch over the timed call, for the cells of the grid."""
        found = [row["measured"] for row in self.grid(campaign).values()]
        return [one["counters"]["duration_ps"] / 1e6 / one["duration_us"] for one in found]


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    needs_history()
    return Evidence()


def right(rows: Sequence[dict[str, Any]]) -> int:
    """Count the regimes that were right; of two that rule regime/2 names either is."""
    return sum(row["predicted"]["regime"] in (row["measured"]["regime"], row["measured"]["also"]) for row in rows)


def outside(rows: Sequence[dict[str, Any]], sign: int = 0) -> int:
    """Count the percents outside their intervals; with a sign, those above (1) or below (-1)."""
    found = [
        (row["measured"]["percent"] > row["predicted"]["high"]) - (row["measured"]["percent"] < row["predicted"]["low"])
        for row in rows
    ]
    return sum(bool(one) if sign == 0 else one == sign for one in found)


def error(rows: Sequence[dict[str, Any]]) -> float:
    return fmean(abs(row["gap"]["percent"]) for row in rows)


def spread(values: Sequence[float]) -> Values:
    return min(values), max(values)


def ceiling(hardware: Hardware, kind: str, name: str, unit: float = 1) -> float:
    """Return a ceiling of a profile in its own unit over `unit`."""
    ceilings = hardware.ceilings[kind]
    quantity = ceilings.peaks[name] if name in ceilings.peaks else getattr(ceilings, name)
    return float(quantity.value) / unit


def hardware_rows(e: Evidence) -> Iterator[tuple[str, Values]]:
    sheets, bursts, sustained = (
        [(hardware, kind) for hardware in (e.h100, e.h200)] for kind in ("datasheet", "burst", "sustained")
    )

    def by_hardware(*groups: list[tuple[Hardware, str]]) -> list[tuple[Hardware, str]]:
        return [column for of_one in zip(*groups, strict=True) for column in of_one]

    def dram(hardware: Hardware, kind: str) -> float:
        return ceiling(hardware, kind, "dram_bandwidth", 1 if kind == "datasheet" else 1000)

    columns = by_hardware(sheets, bursts, sustained)
    for words, name in (("fp16 tensor", "fp16_tensor"), ("bf16 tensor", "bf16_tensor")):
        yield f"{words}, TFLOP/s", [ceiling(*column, name) for column in columns]
    for words, name in (("fp8 tensor", "fp8_tensor"), ("fp32 CUDA cores", "fp32")):
        yield f"{words}, TFLOP/s", [ceiling(*column, name) for column in by_hardware(sheets, bursts)]
    yield "DRAM, TB/s", [dram(*column) for column in columns]
    yield "fp16 ridge point", [ceiling(*column, "fp16_tensor") / dram(*column) for column in columns]
    yield "L2 capacity, MiB", [float(hardware.memory.l2_capacity.value) for hardware, _ in sheets]
    yield "L2 read bandwidth", [ceiling(*column, "l2_bandwidth", 1000) for column in bursts]
    yield "shared memory, B/clk/SM", [ceiling(*column, "smem_bandwidth") for column in by_hardware(sheets, bursts)]
    yield "empty graph node, µs", [ceiling(*column, "launch_graph_node") for column in bursts]


def hardware_words(e: Evidence) -> Iterator[tuple[str, Values]]:
    peak, sustained = (
        e.h200.ceilings["datasheet"].peaks["fp16_tensor"],
        e.h200.ceilings["sustained"].peaks["fp16_tensor"],
    )
    clock, power = map(float, re.findall(r"SM (\d+) MHz, (\d+) W", sustained.condition)[0])
    launches = [row["measured"]["launch_us"] for row in e.rows]
    l2 = {e.record(row)["device"]["l2_bytes"] for row in e.rows}
    assert len(l2) == 1
    yield "The 1979 TFLOP/s for fp16", [2 * float(peak.value), 2, 4]
    yield "The tensor peak is rated at", [peak.clock_mhz, e.h200.limits.sms, peak.flop_per_clk_per_sm]
    yield "The SM clock can rise", [e.h200.limits.max_clock_mhz]
    yield "Under a sustained GEMM", [clock, power, e.h200.limits.tdp_w]
    yield "The driver of the H200", [l2.copy().pop() / 1e6, l2.pop() / 2**20, len(e.rows)]
    yield "An empty kernel as a graph node", spread(launches)
    yield "The calibration, with another", [ceiling(e.h200, "burst", "launch_graph_node")]
    yield "The percent on this page", [100]
    bandwidths = [ceiling(one, "datasheet", "dram_bandwidth") for one in (e.h200, e.h100)]
    yield "On an H100 the memory bounds", [bandwidths[0] / bandwidths[1]]


def intensity(e: Evidence) -> Iterator[tuple[str, Values]]:
    norms = [e.work({"B": b, "H": h, "O": h}, "fp16").flops / (2 * b * h * h) - 1 for b, h, _ in GRID]
    assert 0 < max(norms) < 0.001
    for b, h, _ in GRID:
        assert e.bound(b, h)[0] == pytest.approx(b / (1 + 2 * b / h), rel=0.002)
    asset = json.loads((ROOT / "tests/assets/interventions/h200.json").read_text(encoding="utf-8"))["cells"]
    (loop,) = [one["interventions"] for one in asset if one["cell"] == "rmsnorm_matmul-B4-H4096-O3072-fp16"]
    sets = [e.record(row)["timing"] for row in e.grid(FIRST).values()]
    assert min(one["input_sets"] * one["bytes_per_set"] for one in sets) >= 5 * 62_914_560
    yield "The product takes 2·B·H·O", [2, 0.1]
    yield "Traffic is 2·", [2]
    yield "With H = O the intensity", [1, 2]
    for b in (1, 8, 32, 128):
        yield f"| {b} | {e.bound(b, 2048)[0]:.1f},", [b, *(one for h in (2048, 4096, 8192) for one in e.bound(b, h))]
    sustained = ceiling(e.h200, "sustained", "fp16_tensor") / ceiling(e.h200, "sustained", "dram_bandwidth", 1000)
    yield "All 24 cells are on the memory-bound", [len(GRID), sustained]
    yield "A roofline alone", [100]
    yield "Most cells of the first campaign", [max(e.bound(b, 2048)[1] for b in (1, 8, 32, 128))]
    yield "At H=4096 the weights", [2 * 4096**2 / 1e6]
    yield (
        "A benchmark that repeats",
        [
            loop["warm_ps"] / 1e6,
            loop["cold_ps"] / 1e6,
            loop["cold_ps"] / loop["warm_ps"],
        ],
    )
    yield "All times here are cold", [5]


CONTEXTS = ("chain", "back-to-back")


def speed_up(row: dict[str, Any], context: str, baseline: str) -> float:
    """Return the time of the fastest form of a baseline over ours."""
    times = row["contexts_us"][context]
    return min(us for name, us in times.items() if name.startswith(baseline)) / times["ours"]


def predictions(e: Evidence) -> Iterator[tuple[str, Values]]:
    first, later = e.grid(FIRST), e.grid(LATER)
    cells = list(first.values())
    assert not {row["cell"] for row in cells if outside([row])} - {
        row["cell"] for row in cells if "H8192" in row["cell"]
    }
    assert len(e.bench) == 24 and all(one["context"] == "chain" for one in e.bench)
    faster, overlapped = ([speed_up(one, name, "torch_compile") for one in e.bench] for name in CONTEXTS)
    matmul = [speed_up(one, "chain", "torch_matmul") for one in e.bench]
    slowest = min(e.bench, key=lambda one: speed_up(one, "chain", "torch_matmul"))["shape"]
    assert (slowest["B"], slowest["H"]) == (128, 2048) and faster[0] == (
        e.bench[0]["torch_compile_us"] / e.bench[0]["ours_us"]
    )
    assert "about 4.6 µs" in sealed(FIRST)["why"] and "at 4.3 TB/s" in sealed(FIRST)["why"]
    yield "The 24 rows are the campaign", [len(cells)]
    yield "Its model is time", [4.6, 4.3]
    yield "Columns: forecast regime", [80]
    for (b, h, dtype), row in first.items():
        told, seen = row["predicted"], row["measured"]["percent"]
        values = [b, h, told["percent"], told["low"], told["high"], seen, seen - told["percent"]]
        values += [row["measured"]["duration_us"], later[b, h, dtype]["measured"]["percent"]]
        start = f"| {b} | {h} | {dtype} | {told['regime'].removesuffix('-bound')} {told['percent']:.1f}"
        yield start, values
    yield "All 24 regimes were right", [right(cells)]
    yield "6 of the 24 percents", [outside(cells, 1), len(cells)]
    yield "With the `matmul` cell", [error(e.of(FIRST))]
    ratios = [e.us(LATER, *key) / e.us(FIRST, *key) for key in GRID]
    yield "In the later campaign", [right(list(later.values())), 24, error(list(later.values())), *spread(ratios)]
    now, elsewhere = e.grid("h200_head"), e.grid("h100_grid")
    percents = [[row["measured"]["percent"] for row in grid.values()] for grid in (now, elsewhere)]
    assert {row["sight"] for grid in (now, elsewhere) for row in grid.values()} == {"informed"}
    taken = [e.us("h200_head", *key) / e.us(FIRST, *key) for key in GRID]
    yield "As the repository has the kernel now", [len(now), *spread(percents[0]), *spread(taken)]
    yield "12 of its 24 informed regimes", [right(list(now.values())), len(now), error(list(now.values()))]
    yield "On an H100 the campaign", spread(percents[1])
    yield "In format 1", [1, len(e.rows), right(e.rows), outside(e.rows), outside(e.rows, 1)]
    assert {row["sight"] for row in e.rows} == {"near", "informed"}
    sights = [[row for row in e.rows if row["sight"] == sight] for sight in ("near", "informed")]
    yield "Near forecasts missed", [error(of) for of in sights]
    yield "In the bench", [24]
    yield "Between other kernels the ratio", [*spread(faster), geometric_mean(faster)]
    yield "Back to back", [*spread(overlapped), geometric_mean(overlapped)]
    yield "Between other kernels it is not slower", [sum(ratio >= 1 for ratio in matmul), min(matmul)]
    assert all(ratio > 1 for ratio in (*faster, *overlapped))


def verification(e: Evidence) -> Iterator[tuple[str, Values]]:
    first = e.grid(FIRST)
    names = {
        (1, 2048): "B=1, H=2048",
        (32, 4096): "B=32, H=4096",
        (1, 8192): "B=1, H=8192",
        (128, 8192): "B=128, H=8192",
    }
    shown = {text: first[*key, "fp16"] for key, text in names.items()}
    shown["matmul, M=N=K=4096"] = e.cell(FIRST, "matmul-K4096-M4096-N4096-fp16")
    for text, row in shown.items():
        seen = row["measured"]["counters"]
        pipe = max(seen[f"{name}_pct"] for name in ("tensor", "fma", "alu", "fp64"))
        values = [seen["dram_pct"], seen["l2_pct"], seen["smem_pct"], pipe, seen["waves"]]
        assert f"| {text} |" in PAGE and row["measured"]["regime"].removesuffix("-bound") in PAGE
        yield f"| {text} |", values
    read = [row["measured"]["counters"]["dram_bytes_read"] / e.bytes_of(b, h)[0] for (b, h, _), row in first.items()]
    (wide,) = e.record(first[128, 8192, "fp16"])["counters"]["kernels"]
    wrong = [row for row in e.rows if row["predicted"]["regime"] != row["measured"]["regime"]]
    of_l2 = [row for row in wrong if "l2-bound" in (row["predicted"]["regime"], row["measured"]["regime"])]
    changed = e.of("h200_changed_over")
    later = e.grid(LATER)[8, 2048, "fp16"]["measured"]
    test = e.self_test
    near = [abs(row["cupti"]["us"] / row["cupti"]["timer_us"] - 1) <= 0.03 for row in e.cupti]
    apart = [abs(row["ncu"]["us"] / row["timer"]["us"] - 1) <= 0.03 for row in e.ncu]
    assert min(row["cupti"]["timer_us"] for row in e.cupti) > 20 and len(near) == len(apart)
    yield "If the highest is below", [60]
    yield "Loads within 5 points", [5]
    yield "**The traffic model holds", [*()]
    yield "Over the 24 cells DRAM read", [len(first), *spread(read)]
    yield (
        "At B=128, H=8192 L2 moved",
        [
            int(wide["metrics"]["lts__t_bytes.sum"]["value"]) / 1e6,
            sum(e.bytes_of(128, 8192)) / 1e6,
        ],
    )
    yield "In the first campaign the profiled", spread(e.profiled(FIRST))
    yield "NCU runs it alone", spread(e.profiled(LATER))
    yield "At B=8, H=2048 that kernel", [later["percent"], later["counters"]["dram_pct"]]
    yield "33 of the 248 regimes", [len(wrong), len(e.rows)]
    yield "In 29 of them", [len(of_l2)]
    yield "`h200_changed_over` named", [right(changed), len(changed)]
    yield "Timed against itself", [
        test["trials"], test["faster"] + test["slower"], test["threshold_pct"], test["false_alarm_at_most_pct"], 95,
    ]  # fmt: skip
    yield "For the same launches CUPTI", [3, sum(near), len(near), 20, sum(apart), len(apart)]


def lessons(e: Evidence) -> Iterator[tuple[str, Values]]:
    first = e.grid(FIRST)
    matmul = e.cell(FIRST, "matmul-K4096-M4096-N4096-fp16")
    record, told = e.record(matmul), matmul["predicted"]
    one, wide = first[1, 8192, "fp16"], first[128, 8192, "fp16"]
    grid_size = e.record(one)["counters"]["kernels"][0]["metrics"]["launch__grid_size"]["value"]
    assert "H 7680, 31.4 µs" in one["predicted"]["why"] and "scaled by the bytes" in wide["predicted"]["why"]
    changed = e.of("h200_changed_over")
    assert outside(changed, -1) == 0
    mla = [e.cell("h200_latent", f"mla_decode-B64-H128-S8192-{dtype}") for dtype in ("bf16", "fp16")]
    rounds = [len(e.record(row)["timing"]["rounds_ps"]) for row in mla]
    tiles, tiles_7680 = int(grid_size), 7680 // 64
    yield "The forecast for B=1 took", [one["predicted"]["percent"]]
    yield "H=7680 has 120 column tiles", [tiles_7680, 8192 / tiles, tiles]
    yield (
        "Bandwidth that is limited",
        [
            one["predicted"]["percent"],
            tiles,
            tiles_7680,
            one["predicted"]["percent"] * tiles / tiles_7680,
            one["measured"]["percent"],
        ],
    )
    yield (
        "At B=128 the same factor",
        [
            wide["predicted"]["percent"],
            wide["predicted"]["percent"] * tiles / tiles_7680,
            wide["measured"]["percent"],
        ],
    )
    yield "All 6 percents outside", [outside(list(first.values()))]
    yield "Cells: H=O=2048 and 4096", [4096]
    yield "Time minus bytes", [READ, *map(e.fixed, (2048, 4096, 8192))]
    splits = [e.record(first[1, h, "fp16"])["case"]["config"]["split_k"] for h in (2048, 4096, 8192)]
    yield "The launch rule splits K", splits
    times = [e.us(campaign, 1, 2048) for campaign in (FIRST, "h200_pipelined", LATER)]
    yield "At H=2048 three campaigns measured", times
    yield "The launch itself was never", [100 * first[1, 2048, "fp16"]["measured"]["launch_us"] / times[0], times[0]]
    yield "Forecast 79.0% with an interval", [told["percent"], told["low"], told["high"], matmul["measured"]["percent"]]
    yield (
        "The tensor pipe was busy",
        [
            matmul["measured"]["counters"]["tensor_pct"],
            matmul["measured"]["counters"]["sm_clock_hz"] / 1e9,
            float(e.h200.ceilings["datasheet"].peaks["fp16_tensor"].clock_mhz) / 1e3,
            record["before"]["sm_clock_mhz"],
            record["after"]["sm_clock_mhz"],
        ],
    )
    yield "The opposite error followed", [outside(changed, 1)]
    yield "In `h200_latent` `mla_decode`", [mla[0]["predicted"]["percent"], mla[0]["measured"]["percent"], rounds[0]]
    yield "The same shape in fp16", [rounds[1], mla[1]["measured"]["percent"]]
    software = e.record(first[1, 8192, "fp16"])["device"]["software"]
    assert all(f"`{name}=={software[name]}`" in PAGE for name in ("torch", "triton"))
    yield "These seals are of format 1", [1]
    yield "`72d2549ae1` is the commit", [1]
    yield "A new campaign is sealed in format 2", [2]


SECTIONS: list[Callable[[Evidence], Iterator[tuple[str, Values]]]] = [
    hardware_rows, hardware_words, intensity, predictions, verification, lessons,
]  # fmt: skip


def sealed(campaign: str) -> dict[str, Any]:
    (found,) = [
        value
        for path in (ROOT / "predictions").glob("??/*.json")
        if (value := json.loads(path.read_bytes())).get("campaign") == campaign
    ]
    return found


def sentences(page: str) -> Iterator[str]:
    """Yield a page's table rows and sentences, without code blocks and headings."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip().splitlines()
        if lines and lines[0].startswith("|"):
            yield from (line for line in lines if not re.fullmatch(r"[|-]+", line))
        elif lines and not lines[0].startswith("#"):
            for item in re.split(r"\n(?=- )", "\n".join(lines)):
                yield from re.split(r"(?<=[.])(?:\*\*)?\s+(?=\W?[A-Z0-9`*])", " ".join(item.removeprefix("- ").split()))


def numbers(sentence: str) -> list[str]:
    plain = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", sentence)
    plain = SIZE.sub(" ", plain)
    plain = re.sub(r"\b(?:fp|bf|int)\d+\b|\b[HL]\d+0*\b|\b\w*[A-Za-z_]\w*\d\w*", " ", plain)
    return NUMBER.findall(plain)


def rounds_to(written: str, value: float) -> bool:
    text = written.replace("−", "-")
    digits = len(text.partition(".")[2])
    return math.isclose(float(text), value, abs_tol=0.5 * 10**-digits * 1.001, rel_tol=0)


def start(entry: str, sentence: str) -> bool:
    row = entry.startswith("|")
    return sentence.startswith(entry if row else ("", "| ")[sentence.startswith("|")] + entry)


@pytest.fixture(scope="module")
def wanted(evidence: Evidence) -> dict[str, list[float]]:
    """Return the values of each sentence by the words that it starts with."""
    return {entry: list(values) for section in SECTIONS for entry, values in section(evidence)}


def faults(page: str, wanted: dict[str, list[float]]) -> list[str]:
    """Return what is wrong: a number without an entry or unlike its value, and an entry without a sentence."""
    unused, found_faults = set(wanted), []
    for sentence in sentences(page):
        found = numbers(sentence)
        entries = [entry for entry in wanted if start(entry, sentence)]
        if not found and not entries:
            continue
        if len(entries) != 1:
            found_faults.append(f"{len(entries)} entries for {found}: {sentence}")
            continue
        unused -= set(entries)
        values = wanted[entries[0]]
        if len(found) != len(values) or not all(map(rounds_to, found, values)):
            found_faults.append(f"got {found}, expected {[round(value, 4) for value in values]}: {sentence}")
    return found_faults + [f"no sentence starts with: {entry}" for entry in unused]


def test_every_number_of_the_page_is_what_the_evidence_says(wanted: dict[str, list[float]]):
    assert not faults(PAGE, wanted)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| 6.26 |", "| 6.27 |"),
        ("(60 MiB)", "(50 MiB)"),
        ("a factor of 1.10.", "a factor of two, 2.0."),
        ("for this reason.", "for this reason. It took 3 µs."),
        ("All 24 regimes were right. ", ""),
    ],
)
def test_a_number_that_is_changed_added_or_dropped_is_found(wanted: dict[str, list[float]], old: str, new: str):
    assert old in PAGE
    assert len(faults(PAGE.replace(old, new, 1), wanted)) == 1


def test_sizes_and_regimes_of_the_page_are_those_of_sealed_cells(evidence: Evidence):
    sizes = {size for row in evidence.rows for size in row["shape"].values()}
    assert "H 1920, 3840, 7680" in sealed(FIRST)["why"]
    development = {1920, 3840, 7680, 3072, 4}  # the shapes of that reason; the warm loop is B=4, O=3072
    assert {int(size) for size in SIZE.findall(PAGE)} <= sizes | development
    for (b, h, dtype), row in evidence.grid(FIRST).items():
        cells = next(line for line in PAGE.splitlines() if line.startswith(f"| {b} | {h} | {dtype} |")).split("|")
        assert cells[4].split()[0] == row["predicted"]["regime"].removesuffix("-bound")
        assert cells[5].split()[0] == row["measured"]["regime"].removesuffix("-bound")


def test_ids_of_the_page_are_those_of_seals_and_commits():
    needs_history()
    seals = {path.stem[:10] for path in (ROOT / "predictions").glob("??/*.json")}
    for name in set(re.findall(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{10}\b", PAGE)) - seals:
        known = subprocess.run(["git", "cat-file", "-e", f"{name}^{{commit}}"], cwd=ROOT, check=False)
        assert known.returncode == 0, name


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```sh {kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_commands_of_the_page_run_on_this_ledger():
    needs_history()
    (block,) = blocks("run")
    for line in block.splitlines():
        done = ledger(*line.split()[1:])
        assert done.returncode == 0, f"{line}: {done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("commit", "seal"), [("72d2549ae1", "881d9d7cbd"), ("db82ed896c", "c2bdcd561f")], ids=["later", "first"]
)
def test_cells_of_version_1_are_ordered_in_a_work_tree_of_their_commit(commit: str, seal: str, tmp_path: Path):
    needs_history()
    (block,) = blocks("worktree")
    assert f"`{commit}`" in PAGE and f"`{seal}`" in PAGE
    add, enter, order, measure = block.replace("72d2549ae1", commit).replace("881d9d7cbd", seal).splitlines()
    assert "ledger measure order.json" in measure  # needs the GPU
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", "--shared", str(ROOT), str(clone)], check=True)
    script = f'python() {{ "{sys.executable}" "$@"; }}\nset -e\n{add}\n{enter}\n{order}\n'
    done = subprocess.run(["bash", "-c", script], cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ordered = json.loads((tmp_path / f"ledger-{seal}" / "order.json").read_bytes())
    assert len(ordered["cells"]) == 25 and {cell["run"] for cell in ordered["cells"]} == {1}
