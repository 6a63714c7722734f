"""Chooses which launch configurations are worth timing, and keeps the log of those that were. Pure: text and numbers.

A candidate is dropped where the architecture cannot run it, where no block of it fits on an SM, or where its time
lower bound is far above the best one's. The bound is the largest of three: the arithmetic of the busiest SM, which
gets ⌈tiles ÷ SMs⌉ tiles whole; compulsory traffic at full bandwidth; and, where a candidate says how many bytes it
keeps under way, those bytes a memory latency (Little's law). It leaves out launch, L2 and shared memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ledger.errors import InputError
from ledger.kernel import Candidate, Kernel
from ledger.model.occupancy import occupancy
from ledger.operations import Shape
from ledger.records import Dtype, Hardware, Roof, Work
from ledger.roofline import roof_of
from ledger.seal import canonical, object_id

TUNE_SCHEMA = "ledger/tune/1"
KEEP = 1.5
"""How far above the best bound a candidate's may lie, as a factor, to be timed."""

LATENCY_S = 0.5e-6
"""Seconds that a load of DRAM takes at least, on the chips with a profile; a lower value drops fewer candidates."""

Status = Literal["timed", "wrong", "failed"]


@dataclass(frozen=True)
class Kept:
    """Hold a candidate that is worth timing, with its time lower bound."""

    config: dict[str, int]
    bound_s: float


@dataclass(frozen=True)
class Dropped:
    """Hold a candidate that is not worth timing, and why."""

    config: dict[str, int]
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
    kernel.check_shape(shape)
    if dtype not in kernel.dtypes:
        raise InputError(f"{kernel.name}: dtype {dtype} is not offered; expected one of: {', '.join(kernel.dtypes)}")
    roof = roof_of(hardware, kernel.path(dtype, hardware.target, "triton"))
    work = kernel.work(shape, dtype)
    bounded: list[Kept] = []
    dropped: list[Dropped] = []
    seen: set[str] = set()
    for candidate in kernel.candidates(shape, dtype, hardware.target):
        config = dict(candidate.config)
        if (key := config_key(config)) in seen:
            continue
        seen.add(key)
        why = _cannot_run(kernel, candidate, hardware, shape, dtype)
        if why is None:
            bounded.append(Kept(config, bound_s(candidate, work, roof, hardware)))
        else:
            dropped.append(Dropped(config, why))
    least = min((one.bound_s for one in bounded), default=0.0)
    kept = sorted((one for one in bounded if one.bound_s <= keep * least), key=lambda one: one.bound_s)
    dropped += [
        Dropped(one.config, f"its time lower bound is {one.bound_s / least:.2f} times the best one's")
        for one in bounded
        if one.bound_s > keep * least
    ]
    return Choice(tuple(kept), tuple(dropped))


def _cannot_run(kernel: Kernel, candidate: Candidate, hardware: Hardware, shape: Shape, dtype: Dtype) -> str | None:
    try:
        kernel.check_config(candidate.config, shape, dtype, hardware.target)
    except InputError as error:
        return str(error)
    fits = occupancy(
        hardware, registers=candidate.registers, shared_bytes=candidate.shared_bytes, warps=candidate.warps
    )
    return None if fits.blocks else f"no block of it fits on an SM: {fits.limiter}"


def bound_s(candidate: Candidate, work: Work, roof: Roof, hardware: Hardware) -> float:
    """Return a time below which a candidate cannot finish, in seconds."""
    sms = hardware.limits.sms
    rounds = -(-candidate.tiles // sms)
    arithmetic_s = rounds * candidate.tile_flops * sms / roof.peak_flop_per_s
    traffic_s = work.bytes / roof.bandwidth_bytes_per_s
    if candidate.bytes_under_way is None:
        return max(arithmetic_s, traffic_s)
    fits = occupancy(
        hardware, registers=candidate.registers, shared_bytes=candidate.shared_bytes, warps=candidate.warps
    )
    programs = min(candidate.tiles, fits.blocks * sms)
    return max(arithmetic_s, traffic_s, work.bytes * LATENCY_S / (programs * candidate.bytes_under_way))


# The log: one JSON document a line, one line a candidate


@dataclass(frozen=True)
class Entry:
    """Hold one line of the log. Units: picoseconds a call; `own_ps` is the kernel's own configuration's beside it."""

    cell: str
    config: dict[str, int]
    status: Status
    why: str | None = None
    median_ps: int | None = None
    low_ps: int | None = None
    high_ps: int | None = None
    own_ps: int | None = None

    @property
    def ratio(self) -> float | None:
        """Return the time as a multiple of the own configuration's in the same turns, None where it was not timed."""
        return None if self.median_ps is None or self.own_ps is None else self.median_ps / self.own_ps


def config_key(config: Mapping[str, int]) -> str:
    """Return a configuration as text, the same whatever the order of its keys."""
    return canonical(dict(config)).decode()


def cell_of(conditions: Mapping[str, Any], shape: Shape, dtype: Dtype) -> str:
    """Return what a log entry is valid for: device, software, kernel source, shape and dtype, as a digest."""
    return object_id(canonical({"conditions": dict(conditions), "shape": dict(shape), "dtype": dtype}))


def log_line(entry: Entry) -> str:
    """Return a log entry as one line."""
    fields = {
        "schema": TUNE_SCHEMA, "cell": entry.cell, "config": entry.config, "status": entry.status, "why": entry.why,
        "median_ps": entry.median_ps, "low_ps": entry.low_ps, "high_ps": entry.high_ps, "own_ps": entry.own_ps,
    }  # fmt: skip
    return json.dumps(fields, sort_keys=True) + "\n"


def read_log(text: str, *, name: str) -> list[Entry]:
    """Return the entries of a log; a last line that a crash cut short is left out.

    Raises: InputError for any other line that is no entry.
    """
    lines = text.split("\n")
    found = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            fields = json.loads(line)
            if fields.pop("schema") != TUNE_SCHEMA:
                raise ValueError("another schema")
            found.append(Entry(**fields))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(
                f"{name}: line {number} is no entry of {TUNE_SCHEMA} ({error}); expected the log of ledger tune"
            ) from error
    return found


def left_to_time(kept: Sequence[Kept], log: Iterable[Entry], cell: str) -> tuple[Kept, ...]:
    """Return the candidates that the log has no line of in this cell."""
    done = {config_key(entry.config) for entry in log if entry.cell == cell}
    return tuple(one for one in kept if config_key(one.config) not in done)


# The reviewed file


@dataclass(frozen=True)
class Outcome:
    """Hold what tuning one cell gave: the configurations timed, fastest first, beside the kernel's own."""

    shape: dict[str, int]
    dtype: Dtype
    own: dict[str, int]
    own_us: float
    timed: tuple[Entry, ...]
    dropped: int
    failed: int
    notes: tuple[str, ...] = field(default=())

    @property
    def best(self) -> Entry | None:
        """Return the fastest configuration, None where none was timed."""
        return self.timed[0] if self.timed else None


def row(outcome: Outcome, *, most: int = 12) -> dict[str, Any]:
    """Return an outcome as a row of the reviewed file: the fastest `most` configurations and the kernel's own."""
    shown = [entry for entry in outcome.timed if entry.ratio is not None][:most]
    own = config_key(outcome.own)
    if all(config_key(entry.config) != own for entry in shown):
        shown += [entry for entry in outcome.timed if config_key(entry.config) == own]
    return {
        "shape": outcome.shape,
        "dtype": outcome.dtype,
        "own": outcome.own,
        "own_us": float(f"{outcome.own_us:.5g}"),
        "timed": len(outcome.timed),
        "dropped": outcome.dropped,
        "failed": outcome.failed,
        "fastest": [
            {"config": entry.config, "ratio": round(entry.ratio, 4)} for entry in shown if entry.ratio is not None
        ],
    }


def merged(earlier: Mapping[str, Any] | None, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reviewed file with this run's rows in place of those of the same shape and dtype.

    Raises: InputError where the earlier file is of another device, software or kernel source.
    """
    if earlier is None:
        return dict(document)
    for key in ("schema", "kernel", "conditions"):
        if earlier.get(key) != document[key]:
            raise InputError(
                f"the reviewed file is of another {key}: {earlier.get(key)!r}; this run's is {document[key]!r}: "
                "expected the same, or another --output"
            )

    def place(one: Mapping[str, Any]) -> str:
        return canonical({"shape": one["shape"], "dtype": one["dtype"]}).decode()

    new = {place(one) for one in document["rows"]}
    kept = [one for one in earlier["rows"] if place(one) not in new]
    return {**document, "rows": [*kept, *document["rows"]]}
