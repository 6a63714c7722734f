"""Makes questions of hardware profiles: the memory pyramid, peaks, ridge points, and the sparse trap. Pure.

Since Ampere datasheets also print tensor peaks "with sparsity": twice the dense ones, for weights of which two in four
are zero. A dense kernel never reaches them. Source: NVIDIA A100 Tensor Core GPU Architecture, "Fine-Grained Structured
Sparsity"; the whitepapers and datasheets of later generations print both figures.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from ledger.analysis.formatting import PATH_NAMES
from ledger.records import Ceilings, Hardware, Path, Quantity

_ASKED_PATHS: tuple[Path, ...] = ("fp32", "fp16_tensor", "bf16_tensor", "fp8_tensor")
_SPARSE_FROM = 80
_BYTES_PER_REGISTER = 4


@dataclass(frozen=True)
class Fact:
    """Hold one question about a GPU. key: names it for ever; why: what to remember, in a sentence."""

    key: str
    hardware: str
    question: str
    unit: str
    truth: float
    why: str


def facts_of(hardware: Hardware) -> tuple[Fact, ...]:
    """Return what is asked about a profile, by its datasheet; a quantity that it lacks is not asked."""
    sheet = hardware.ceilings.get("datasheet")
    return (*_pyramid(hardware), *(() if sheet is None else _roofs(hardware, sheet)))


def _fact(hardware: Hardware, what: str, question: str, unit: str, truth: float, why: str) -> Fact:
    return Fact(f"card {hardware.name} {what}", hardware.name, f"{hardware.title}: {question}", unit, truth, why)


def _pyramid(hardware: Hardware) -> Iterator[Fact]:
    memory, sms = hardware.memory, hardware.limits.sms
    asked: Iterable[tuple[str, str, Quantity | None]] = (
        ("l3", "cache on the side of the memory", memory.l3_capacity),
        ("l2", "L2 cache", memory.l2_capacity),
        ("smem", "shared memory of one SM, at most", memory.smem_per_sm),
    )
    for what, question, found in asked:
        if found is not None:
            yield _fact(hardware, what, question, found.unit, found.value, f"Condition: {found.condition}.")
    yield _fact(hardware, "sms", "SMs (compute units)", "", sms, "Every total of the chip is this many times one SM's.")
    if (registers := memory.registers_per_sm) is not None:
        size = registers.value * _BYTES_PER_REGISTER / 1024
        why = f"{registers.value:g} registers of 4 bytes, on {sms} SMs {size * sms / 1024:.3g} MiB."
        yield _fact(hardware, "registers", "register file of one SM", "KiB", size, why)


def _roofs(hardware: Hardware, sheet: Ceilings) -> Iterator[Fact]:
    bandwidth = sheet.dram_bandwidth
    yield _fact(
        hardware, "bandwidth", "bandwidth of the main memory", bandwidth.unit, bandwidth.value, bandwidth.condition
    )
    per_s = bandwidth.value * {"TB/s": 1e12, "GB/s": 1e9}.get(bandwidth.unit, 0.0)
    for path in _ASKED_PATHS:
        peak = sheet.peaks.get(path)
        if peak is None:
            continue
        name, unit = PATH_NAMES[path], peak.unit
        width = f"{peak.flop_per_clk_per_sm} FLOP/clk/SM at {peak.clock_mhz:g} MHz" if peak.clock_mhz else "dense"
        yield _fact(hardware, f"peak {path}", f"dense peak of the {name}", unit, peak.value, f"{width}.")
        if per_s:
            ridge = peak.value * 1e12 / per_s
            why = f"{peak.value:g} {unit} over {bandwidth.value:g} {bandwidth.unit}: below it memory binds."
            yield _fact(hardware, f"ridge {path}", f"ridge point of the {name}", "FLOP/byte", ridge, why)
        if path.endswith("_tensor") and has_sparse_figures(hardware):
            question = f"a table lists {2 * peak.value:g} {unit} with sparsity for the {name}; peak of the roof"
            why = "Figures with sparsity count operations that a dense kernel cannot skip: half of them is the roof."
            yield _fact(hardware, f"sparse {path}", question, unit, peak.value, why)


def has_sparse_figures(hardware: Hardware) -> bool:
    """Tell whether the vendor also prints peaks with 2:4 sparsity for a device's tensor cores: NVIDIA since Ampere."""
    number = hardware.target.removeprefix("sm_")
    return hardware.vendor == "NVIDIA" and number.isdigit() and int(number) >= _SPARSE_FROM


def choose_facts(
    profiles: Iterable[Hardware], *, count: int, seed: int, rank: Mapping[str, int] | None = None
) -> tuple[Fact, ...]:
    """Return questions drawn from a seed, profiles in turn. rank: by key, the lowest first; 1 where there is none."""
    drawn = random.Random(seed)
    piles = [drawn.sample(facts, len(facts)) for facts in map(facts_of, profiles)]
    drawn.shuffle(piles)
    listed = [fact for turn in zip_longest(*piles) for fact in turn if fact is not None]
    ranks = rank or {}
    return tuple(sorted(listed, key=lambda fact: ranks.get(fact.key, 1)))[:count]
