"""Chooses which launch configurations are worth timing, and reads and writes what was timed. Pure: text and numbers.

A candidate is dropped where the architecture cannot run it, where its registers would spill or no block of it fits on
an SM, or where its time lower bound is far above the best one's and far above that of the kernel's own configuration.
The bound is the largest of four: the arithmetic of the busiest SM, which gets ⌈tiles ÷ SMs⌉ tiles whole; what that SM
reads, at the width of its port to L2; compulsory traffic at full bandwidth; and, where a candidate says how many bytes
it keeps in flight, compulsory traffic at those bytes a memory latency (Little's law). The measured cost of a
candidate's launch in addition to its tiles is added. The bound leaves out other launches, shared memory and L2's own
bandwidth.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ledger.analysis.occupancy import occupancy
from ledger.canonical import canonical, object_id
from ledger.errors import InputError
from ledger.kernel import Candidate, Kernel
from ledger.kernel_files import implementation_for
from ledger.operations import Shape
from ledger.records import Dtype, Hardware, Roof, Work
from ledger.roofline import roof_of

LOG_SCHEMA = "ledger/tune-log/1"
FILE_SCHEMA = "ledger/tune/1"
KEEP = 1.4
"""How far above the best bound, and above that of the kernel's own configuration, a candidate's may be to be timed.

The candidate with the best bound may be far from reaching it: in two of the first seven cells tuned on an H200 the
fastest had a bound 1.33 times the best."""

PORT_BYTES_PER_CLOCK = 64
"""Bytes that an SM takes from L2 in a clock at most. Assumed; a product of 3584³ in fp16 on an H200 took about 40."""

LATENCY_S = 0.5e-6
"""Seconds that a load of DRAM takes at least. Assumed, on the low side: a longer one would drop more candidates."""

NOISE = 0.03
"""Largest difference, as a share, between two configurations that count as equally fast."""

SHOWN = 12

Status = Literal["timed", "wrong", "failed"]


@dataclass(frozen=True)
class Kept:
    """Hold a candidate that is worth timing, with its time lower bound."""

    config: dict[str, int | str]
    bound_s: float


@dataclass(frozen=True)
class Dropped:
    """Hold a candidate that is not worth timing, and why."""

    config: dict[str, int | str]
    why: str


@dataclass(frozen=True)
class Choice:
    """Hold what pruning left, the lowest bound first, and what it dropped."""

    kept: tuple[Kept, ...]
    dropped: tuple[Dropped, ...]


def choose(kernel: Kernel, hardware: Hardware, *, shape: Shape, dtype: Dtype, keep: float = KEEP) -> Choice:
    """Return a kernel's candidates for a shape, pruned. Raises: InputError where the kernel offers none."""
    if kernel.candidates is None:
        raise InputError(f"{kernel.name}: offers no candidates to tune; expected Kernel(candidates=…)")
    kernel.check_offers(shape, dtype)
    roof = roof_of(hardware, kernel.path(dtype, hardware.target, implementation_for(kernel, hardware)))
    work = kernel.work(shape, dtype)
    bounded: list[Kept] = []
    dropped: list[Dropped] = []
    seen: set[str] = set()
    for candidate in kernel.candidates(shape, dtype, hardware.chip):
        config = dict(candidate.config)
        if config_key(config) in seen:
            continue
        seen.add(config_key(config))
        why = _cannot_run(kernel, candidate, hardware, shape, dtype)
        if why is None:
            bounded.append(Kept(config, bound_s(candidate, work, roof, hardware)))
        else:
            dropped.append(Dropped(config, why))
    own = config_key(kernel.config(shape, dtype, hardware.chip))
    least = min((one.bound_s for one in bounded), default=0.0)
    most = keep * max([least, *(one.bound_s for one in bounded if config_key(one.config) == own)])
    kept = sorted((one for one in bounded if one.bound_s <= most), key=lambda one: one.bound_s)
    dropped += [
        Dropped(one.config, f"its time lower bound is {one.bound_s / least:.2f} times the best one's")
        for one in bounded
        if one.bound_s > most
    ]
    return Choice(tuple(kept), tuple(dropped))


def _cannot_run(kernel: Kernel, candidate: Candidate, hardware: Hardware, shape: Shape, dtype: Dtype) -> str | None:
    try:
        kernel.check_config(candidate.config, shape, dtype, hardware.chip)
    except InputError as error:
        return str(error)
    most = hardware.limits.registers_per_thread
    if most is not None and candidate.registers > most:
        return f"it needs about {candidate.registers} registers a thread; {hardware.name} has {most}"
    fits = occupancy(
        hardware, registers=candidate.registers, shared_bytes=candidate.shared_bytes, warps=candidate.warps
    )
    return None if fits.blocks else f"no block of it fits on an SM: {fits.limiter}"


def bound_s(candidate: Candidate, work: Work, roof: Roof, hardware: Hardware) -> float:
    """Return a time below which a candidate cannot finish, in seconds."""
    sms = hardware.limits.sms
    busiest = -(-candidate.tiles // sms)
    arithmetic_s = busiest * candidate.tile_flops * sms / roof.peak_flop_per_s
    port_s = extra_s = 0.0
    if hardware.limits.max_clock_mhz is not None:
        clocks_per_s = 1e6 * hardware.limits.max_clock_mhz
        port_s = busiest * candidate.tile_bytes / (PORT_BYTES_PER_CLOCK * clocks_per_s)
        extra_s = candidate.extra_clocks / clocks_per_s
    least_s = max(arithmetic_s, port_s, work.bytes / roof.bandwidth_bytes_per_s)
    if candidate.bytes_under_way is None:
        return least_s + extra_s
    fits = occupancy(
        hardware, registers=candidate.registers, shared_bytes=candidate.shared_bytes, warps=candidate.warps
    )
    programs = min(candidate.tiles, fits.blocks * sms)
    return max(least_s, work.bytes * LATENCY_S / (programs * candidate.bytes_under_way)) + extra_s


# The log: one JSON document a line, one line a candidate


@dataclass(frozen=True)
class Entry:
    """Hold one line of the log. Units: picoseconds a call; `own_ps` is the kernel's own configuration's beside it.

    cell: what the line is valid for, see `cell_of`. final: whether it is of the last turns, among the fastest alone.
    """

    cell: str
    config: dict[str, int | str]
    status: Status
    why: str | None = None
    median_ps: int | None = None
    own_ps: int | None = None
    final: bool = False

    @property
    def ratio(self) -> float | None:
        """Return the time as a multiple of the own configuration's in the same turns, None where it was not timed."""
        return None if self.median_ps is None or self.own_ps is None else self.median_ps / self.own_ps


def config_key(config: Mapping[str, int | str]) -> str:
    """Return a configuration as text, the same whatever the order of its keys."""
    return canonical(dict(config)).decode()


def cell_of(conditions: Mapping[str, Any], shape: Shape, dtype: Dtype) -> str:
    """Return what a log line is valid for: device, software, kernel source, shape and dtype, as a digest."""
    return object_id(canonical({"conditions": dict(conditions), "shape": dict(shape), "dtype": dtype}))


def log_line(entry: Entry) -> str:
    """Return a log entry as one line."""
    return json.dumps({"schema": LOG_SCHEMA, **asdict(entry)}, sort_keys=True) + "\n"


def read_log(text: str, *, name: str) -> list[Entry]:
    """Return the entries of a log; a last line that a crash cut short is left out.

    Raises: InputError for any other line that is no entry.
    """
    return [_entry(line, f"{name}: line {number}") for number, line in enumerate(text.split("\n")[:-1], start=1)]


def _entry(line: str, where: str) -> Entry:
    try:
        fields = json.loads(line)
        if fields.pop("schema") != LOG_SCHEMA:
            raise ValueError("another schema")
        return Entry(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{where} is no entry of {LOG_SCHEMA} ({error}); expected the log of ledger tune") from error


def left_to_time(kept: Sequence[Kept], log: Iterable[Entry], cell: str) -> tuple[Kept, ...]:
    """Return the candidates that the log has no line of in this cell."""
    done = {config_key(entry.config) for entry in log if entry.cell == cell}
    return tuple(one for one in kept if config_key(one.config) not in done)


def ranked(log: Iterable[Entry], cell: str) -> list[Entry]:
    """Return the timed entries of a cell, one a configuration, fastest first; a final one counts over an earlier."""
    found: dict[str, Entry] = {}
    for entry in log:
        key = config_key(entry.config)
        if entry.cell == cell and entry.ratio is not None and (entry.final or key not in found):
            found[key] = entry
    # The fastest of many is partly luck: those that were timed again come first.
    return sorted(found.values(), key=lambda entry: (not entry.final, entry.ratio))


# The reviewed file


def row_of(
    entries: Sequence[Entry], *, shape: Shape, dtype: Dtype, own: Mapping[str, int | str], conditions: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a row of the reviewed file: the fastest configurations, as multiples of the kernel's own one's time."""
    shown = list(entries[:SHOWN])
    shown += [entry for entry in entries[SHOWN:] if config_key(entry.config) == config_key(own)]
    own_ps = next((entry.own_ps for entry in entries), None)
    return {
        "shape": dict(shape),
        "dtype": dtype,
        "conditions": dict(conditions),
        "own": dict(own),
        "own_us": None if own_ps is None else float(f"{own_ps / 1e6:.5g}"),
        "timed": len(entries),
        "fastest": [
            {"config": entry.config, "ratio": round(entry.ratio, 4), "again": entry.final}
            for entry in shown
            if entry.ratio is not None
        ],
    }


def merged(earlier: Mapping[str, Any] | None, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reviewed file with this run's rows in place of those of the same shape and dtype.

    Raises: InputError where the earlier file is of another kernel or device.
    """
    if earlier is None:
        return dict(document)
    for key in ("schema", "kernel", "hardware"):
        if earlier.get(key) != document[key]:
            raise InputError(
                f"the earlier file's {key} is {earlier.get(key)!r}; expected {document[key]!r}: name another --output"
            )
    new = {_cell_key(one) for one in document["rows"]}
    kept = [one for one in earlier["rows"] if _cell_key(one) not in new]
    return {**document, "rows": [*kept, *document["rows"]]}


def _cell_key(row: Mapping[str, Any]) -> str:
    return canonical({"shape": row["shape"], "dtype": row["dtype"]}).decode()


def drifted(kernel: Kernel, row: Mapping[str, Any], target: str) -> str | None:
    """Return how a kernel's rule disagrees with what was tuned, None where it takes one of the fastest."""
    chosen = kernel.config(row["shape"], row["dtype"], target)
    ratios = {config_key(one["config"]): one["ratio"] for one in row["fastest"]}
    best = min(ratios.values())
    ratio = ratios.get(config_key(chosen))
    if ratio is None:
        return f"{kernel.name} {row['shape']} {row['dtype']}: the rule takes {chosen}, which is not among the fastest"
    if ratio > best * (1 + NOISE):
        return f"{kernel.name} {row['shape']} {row['dtype']}: the rule's takes {ratio / best:.3f} times the best time"
    return None
