"""Checks after the timing that the timed calls computed: their inputs get values that no call has seen.

The memory stays the same, only the values change, so an earlier answer is wrong, and one that is recognised by its
inputs is missing. What is checked was timed: the graph itself is replayed, other calls are made as in a round. A call
on new values may not take much longer than a timed one. Imports torch, only when called.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING, Any

from ledger.callables.calls import Call
from ledger.errors import SubjectRefused
from ledger.measure.cuda_graphs import GraphRounds, capture
from ledger.measure.inputs import InputSet
from ledger.measure.result_form import frozen, require_own_memory, require_settled, unchanged
from ledger.measure.timer import Timed
from ledger.records import Correctness

if TYPE_CHECKING:
    import torch

SLOWER, MUCH_SLOWER = 1.5, 3.0
"""Times a timed rotation: where the machine itself has slowed down, the second one."""
_ATTEMPTS = 12
_PAUSED = 6
_CALLS = 24
_SLACK_PS = 10_000_000
"""Of a round or a rotation: clocks, launches and the first call after a pause."""
_HOST_REPLAYS = 10
_HOST_SLACK_PS = 5_000_000_000
_SLEEP_CYCLES = 400_000
_HOLD_NS = 10_000_000

Fresh = Callable[[int, int], Iterator[InputSet]]
Compare = Callable[[Sequence["torch.Tensor"], Sequence["torch.Tensor"]], Correctness]


@dataclass(frozen=True)
class Timeds:
    """Hold what was timed. fresh: gives input sets as the seal has them, from a number on; see `input_sets`.

    earlier, expected: results of the first call and their references.
    """

    calls: Sequence[Call]
    timed: Timed
    fresh: Fresh
    reference: Callable[[Mapping[str, Any]], list[Any]]
    compare: Compare
    explain: Callable[[Correctness], str]
    earlier: Sequence[torch.Tensor]
    expected: Sequence[torch.Tensor]


def check_timed_calls(what: Timeds) -> None:
    """Check that the timed calls computed their results from their inputs. Raises: SubjectRefused."""
    _check_latest(what)
    if not what.calls[0].renewable():
        return
    _check_times(what, _check_new_values(what))


def _on_graph(what: Timeds) -> bool:
    return isinstance(what.timed.rounds, GraphRounds)


def _check_latest(what: Timeds) -> None:
    """Check the result of a timed call as it is, and that no call changed an input that the first one did not."""
    number = len(what.calls) - 1
    call, original = what.calls[number], next(what.fresh(number, 1)).inputs
    if call.writes or _shared(call, what.calls[0]):
        return
    copies = [] if _on_graph(what) else frozen(call)
    if changed := sorted(call.differing(original)):
        raise SubjectRefused(
            f"input {changed[0]} was changed by a later call and not by the first; expected the same of every call"
        )
    if copies:
        found = what.compare(copies, what.reference(original))
        _require(found, what, "right on its first call, but the result of a timed call differs")


def _shared(call: Call, other: Call) -> bool:
    """Return whether the results of two calls are in the same memory, as a buffer that is kept from call to call."""
    used = [{int(one.untyped_storage()._cdata) for one in each.returned()} for each in (call, other)]
    return call is not other and bool(used[0] & used[1])


def _require(found: Correctness, what: Timeds, symptom: str) -> None:
    if not found.passed:
        raise SubjectRefused(f"{symptom}: {what.explain(found)}; expected each call to compute its result")


def _check_new_values(what: Timeds) -> int | None:
    """Check results for new values; return the picoseconds per call that they took, None for a graph."""
    calls, count = what.calls, len(what.calls)
    chosen = {count - 1, secrets.randbelow(count)}
    if calls[0].writes:
        # What calls have changed many times is no longer what a seal gives.
        for number in chosen:
            _write(calls[number], next(what.fresh(count + number, 1)).inputs)
    else:
        renew(calls)
    given = {number: {name: one.clone() for name, one in calls[number].inputs.items()} for number in chosen}
    took_ps = _call_once(what, sorted(chosen))
    copies = {number: frozen(calls[number]) for number in sorted(chosen, reverse=True)}
    found: list[tuple[list[torch.Tensor], list[Any]]] = []
    for number, got in copies.items():
        if number != count - 1 and _shared(calls[number], calls[count - 1]):
            continue
        require_settled(calls[number], got)
        expected = what.reference(given[number])
        require_own_memory(calls[number].results(), expected)
        symptom = "right on its first call, but wrong after new values were written to the same inputs"
        _require(what.compare(got, expected), what, symptom)
        found.append((got, expected))
    if all(unchanged(got, what.earlier) and not unchanged(to, what.expected) for got, to in found):
        raise SubjectRefused(
            "the results are the same to the bit for other inputs, and the reference's are not; expected results that "
            "depend on the inputs, and a tolerance that tells them apart"
        )
    return took_ps


def renew(calls: Sequence[Call]) -> None:
    """Give the inputs of each call those of the next one, shifted by a secret distance; no call has seen such.

    Torch's version counters stay as they are.
    """
    first = {name: calls[0].inputs[name].clone() for name in calls[0].renewable()}
    for number, call in enumerate(calls):
        source = calls[number + 1].inputs if number + 1 < len(calls) else first
        _write(call, source)


def _rewrite(calls: Sequence[Call]) -> None:
    """Write each call's own values once more, by the operations of `renew`: caches are left as that leaves them."""
    for call in calls:
        _write(call, call.inputs, distance=0)


def _write(call: Call, source: Mapping[str, torch.Tensor], distance: int | None = None) -> None:
    for name in call.renewable():
        call.inputs[name].data.copy_(shifted(source[name].detach(), distance))


def shifted(tensor: torch.Tensor, distance: int | None = None) -> torch.Tensor:
    """Return a copy with its elements shifted in row-major order, by a secret distance where none is given."""
    import torch

    flat = tensor.reshape(-1)
    flat = flat.view(torch.uint8) if flat.element_size() == 1 else flat
    distance = 1 + secrets.randbelow(max(flat.numel() - 1, 1)) if distance is None else distance
    return torch.roll(flat, distance).view(tensor.dtype).reshape(tensor.shape)


def _call_once(what: Timeds, chosen: Sequence[int]) -> int | None:
    """Make the chosen calls once, the last one last, after others that are timed.

    The graph that was timed makes them, but for calls that change inputs, which it makes repeatedly.
    """
    if not _on_graph(what):
        others = [call for number, call in enumerate(what.calls) if number not in chosen]
        took_ps = _call_ps(what, others[: _CALLS * what.timed.calls_per_round])
        for number in chosen:
            _hold()
            what.calls[number]()
        return took_ps
    if what.calls[0].writes:
        capture(what.calls).replay()
    else:
        what.timed.rounds.replay()
    return None


def _hold() -> None:
    """Fill the GPU for 10 ms, so that what a call leaves to another stream is still to be done when it returns."""
    import torch

    if torch.cuda.is_initialized():
        from ledger.device.probe_kernels import hold_launch

        hold_launch(_HOLD_NS)()


def _check_times(what: Timeds, took_ps: int | None) -> None:
    """Check that calls on new values take about as long as timed ones. took_ps: such calls, measured already."""
    timed_ps, on_graph = what.timed.interval.median, _on_graph(what)
    seen: list[int] = []
    fresh = [] if took_ps is None else [took_ps]
    together = len(what.calls) if on_graph else min(what.timed.calls_per_round, len(what.calls))
    slack_ps = _SLACK_PS // together
    if fresh and fresh[0] <= SLOWER * timed_ps + slack_ps:
        return
    if on_graph:
        _check_clocks(what)
        what.timed.rounds.release()
    measure = _graph_ps(what) if on_graph else _calls_ps(what)
    pair = [(renew, fresh), (_rewrite, seen)]
    for attempt in range(_ATTEMPTS):
        if attempt >= _PAUSED:
            time.sleep(0.05)
        # In turns: the second of a pair finds the caches warm.
        for write, took in reversed(pair) if attempt % 2 else pair:
            write(what.calls)
            took.append(next(measure))
        # A graph has no Python that could notice a check: its own repetition is the baseline.
        usual = min(seen) if on_graph else timed_ps
        if min(fresh) <= SLOWER * usual + slack_ps:
            return
    if not on_graph and min(fresh) <= min(SLOWER * min(seen), MUCH_SLOWER * usual) + slack_ps:
        return
    raise SubjectRefused(
        f"a call on new values takes {min(fresh) / 1e6:.2f} µs, on values that it has seen {usual / 1e6:.2f} µs; "
        "expected the same time for both: no answers kept from call to call"
    )


def _calls_ps(what: Timeds) -> Iterator[int]:
    while True:
        yield _call_ps(what, what.calls[: _CALLS * what.timed.calls_per_round]) or 0


def _call_ps(what: Timeds, calls: Sequence[Call]) -> int | None:
    """Make some calls in groups as long as a round; return the median in picoseconds per call, None without calls."""
    import torch

    waits = torch.cuda.synchronize if torch.cuda.is_initialized() else lambda: None
    now, size, took = time.perf_counter_ns, what.timed.calls_per_round, []
    for start in range(0, len(calls), size):
        group = calls[start : start + size]
        waits()
        started = now()
        for call in group:
            call()
        waits()
        took.append(1000 * (now() - started) // len(group))
    return median_low(took) if took else None


def _graph_ps(what: Timeds) -> Iterator[int]:
    """Yield the picoseconds per call of one rotation after the other, as a graph."""
    import torch

    graph = capture(what.calls)
    graph.replay()
    while True:
        first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # The graph is launched while the device is busy, so that the time holds no gap.
        torch.cuda._sleep(_SLEEP_CYCLES)
        first.record()
        graph.replay()
        second.record()
        torch.cuda.synchronize()
        yield round(1e9 * first.elapsed_time(second) / len(what.calls))


def _check_clocks(what: Timeds) -> None:
    """Check the times of device events by the host's clock, again where another process may have used the device."""
    events_ps = _HOST_REPLAYS * what.timed.rounds.calls * what.timed.interval.median
    fastest_ps = _host_ps(what)
    for _ in range(_ATTEMPTS):
        if fastest_ps <= MUCH_SLOWER * events_ps + _HOST_SLACK_PS:
            return
        time.sleep(0.05)
        fastest_ps = min(fastest_ps, _host_ps(what))
    raise SubjectRefused(
        f"{_HOST_REPLAYS} rounds take {fastest_ps / 1e9:.1f} ms by the host's clock and {events_ps / 1e9:.1f} ms by "
        "device events; expected clocks that agree, and no work on other streams"
    )


def _host_ps(what: Timeds) -> int:
    """Return the picoseconds that some rounds take by the host's clock."""
    import torch

    torch.cuda.synchronize()
    started = time.perf_counter_ns()
    for _ in range(_HOST_REPLAYS):
        what.timed.rounds.replay()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter_ns() - started)
