"""Reads a trace of the inside of a kernel, as Proton writes it, and sums it up by scope. Pure.

Proton counts clocks of the SM and writes them as if it ran at 1 GHz: a microsecond of the trace is 1000 clocks. Where
its buffer is full it drops the oldest events of a warp: counts are of what was kept, and a loop that was begun before
is absent.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledger.analysis.kernel_scopes import Kind
from ledger.errors import ParseError
from ledger.records import Work

_CLOCKS_PER_US = 1000
_CTA = re.compile(r"CTA\s*(\d+)")
_WARP = re.compile(r"warp\s*(\d+)")


@dataclass(frozen=True)
class Scope:
    """Hold one scope of a kernel over the CTAs and warps of a trace. Units: clocks of the SM, FLOP, bytes.

    count: events; ctas, warps: in which it was seen. clocks: the median of an event. share: of the clocks from a warp's
    first event to its last, in percent, mean over warps. flops, bytes: what one CTA does, on average, in all scopes of
    this kind together: products, bytes read or bytes written; None for a loop or a wait.
    """

    name: str
    kind: Kind | None
    count: int
    ctas: int
    warps: int
    clocks: float
    share: float
    flops: float | None
    bytes: float | None


def scopes_of(trace: Any, kinds: Mapping[str, Kind | None], work: Work, *, ctas: int) -> tuple[Scope, ...]:
    """Return the scopes of a trace in the order of their first events.

    kinds: of each scope that the source has. work: of the kernel, done by `ctas` CTAs.
    Raises: ParseError for a document that is no trace or holds none of these scopes.
    """
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list):
        raise ParseError("trace: no traceEvents; expected a Chrome trace, as Proton writes it")
    lanes: dict[tuple[int, int], list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        place = _place(event) if isinstance(event, dict) and event.get("name") in kinds else None
        if place is not None:
            lanes[place].append(event)
    if not lanes:
        raise ParseError(f"trace: none of the {len(kinds)} scopes; expected at least one: was the kernel launched?")
    seen: dict[str, list[tuple[tuple[int, int], float, float]]] = defaultdict(list)
    for place, found in lanes.items():
        span = max(one["ts"] + one["dur"] for one in found) - min(one["ts"] for one in found)
        for name in dict.fromkeys(one["name"] for one in sorted(found, key=lambda one: one["ts"])):
            durations = [one["dur"] for one in found if one["name"] == name]
            share = 100 * sum(durations) / span if span else 0.0
            seen[name] += [(place, duration, share) for duration in durations]
    return tuple(
        _scope(name, kinds[name], taken, _work_of_kind(kinds[name], work, ctas)) for name, taken in seen.items()
    )


def _place(event: Mapping[str, Any]) -> tuple[int, int] | None:
    cta, warp = _CTA.search(str(event.get("pid"))), _WARP.search(str(event.get("tid")))
    return None if cta is None or warp is None or event.get("ph") != "X" else (int(cta[1]), int(warp[1]))


def _work_of_kind(kind: Kind | None, work: Work, ctas: int) -> tuple[float | None, float | None]:
    """Return the FLOP and the bytes that one CTA's scopes of a kind do together."""
    match kind:
        case "multiply":
            return work.flops / ctas, None
        case "load":
            return None, work.bytes_read / ctas
        case "store":
            return None, work.bytes_written / ctas
    return None, None


def _scope(
    name: str,
    kind: Kind | None,
    taken: list[tuple[tuple[int, int], float, float]],
    does: tuple[float | None, float | None],
) -> Scope:
    shares = {place: share for place, _, share in taken}
    return Scope(
        name=name,
        kind=kind,
        count=len(taken),
        ctas=len({cta for cta, _ in shares}),
        warps=len({warp for _, warp in shares}),
        clocks=_CLOCKS_PER_US * statistics.median(duration for _, duration, _ in taken),
        share=statistics.fmean(shares.values()),
        flops=does[0],
        bytes=does[1],
    )
