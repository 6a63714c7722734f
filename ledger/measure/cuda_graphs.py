"""Times calls as nodes of a CUDA graph, by the protocols cold-graph/1 and /2. Imports torch, only when called.

In a graph the time has no gaps from the host: kernels start as soon as the device can start them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from ledger.analysis.steady_timing import Batch
from ledger.device.facts import cuda_state
from ledger.kernel import Launch
from ledger.measure.steady_timer import Batches, time_until_steady
from ledger.measure.timer import Parameters, SteadyParameters, Timed, enough_rounds, median_interval
from ledger.records import DeviceState

ROUND_MS = 1.0
MAX_NODES = 20_000


@contextmanager
def own_stream() -> Iterator[None]:
    """Run the block on a stream of its own, which capture then uses: a backward pass runs on its forward pass's."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


def capture(launches: Sequence[Launch]) -> Any:
    """Return a CUDA graph of the launches, one after the other; on the current stream where it is not the default."""
    import torch

    graph = torch.cuda.CUDAGraph()
    current = torch.cuda.current_stream()
    with torch.cuda.graph(graph, stream=None if current == torch.cuda.default_stream() else current):
        for launch in launches:
            launch()
    return graph


def warm_up(launches: Sequence[Launch]) -> None:
    """Run every launch once on a separate stream, so that compilation and allocation end before a capture."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for launch in launches:
            launch()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()


def replay_ps(graph: Any, count: int, *, calls: int) -> list[int]:
    """Replay a graph `count` times and return picoseconds per call of each replay, from device events.

    One more replay runs first, so that the device is busy when the first event is recorded.
    """
    import torch

    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    graph.replay()
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return [max(1, round(1e9 * first.elapsed_time(second) / calls)) for first, second in itertools.pairwise(events)]


def rotation_ps(launches: Sequence[Launch]) -> int:
    """Return the picoseconds of one call of each of some launches, after they have run once."""
    warm_up(launches)
    return min(replay_ps(capture(launches), 3, calls=1))


def repeats_in_round(launches: Sequence[Launch], *, stretch: int = 1) -> int:
    """Return how often one call of each of some launches is repeated to fill a round of `stretch` times ROUND_MS."""
    rotation_ms = rotation_ps(launches) / 1e9
    return max(1, min((int(ROUND_MS / rotation_ms) + 1) * stretch, MAX_NODES // len(launches)))


@dataclass(frozen=True)
class TimedRound:
    """Hold one replay of a graph: picoseconds per call, and the SM clock counted across it (None: not counted)."""

    ps: int
    clock_mhz: int | None


def timed_rounds(graph: Any, count: int, *, calls: int) -> tuple[list[TimedRound], DeviceState]:
    """Replay a graph `count` times and return each round with its own clock, and the device's state meanwhile.

    A kernel that counts cycles and nanoseconds runs between two replays, outside the time of both. One more replay
    runs first, so that the device is busy when the first round begins.
    """
    import torch

    from ledger.device.probe_kernels import clock_mhz, stamp_launch, stamps

    marks = [stamps() for _ in range(count + 1)]
    launches = [stamp_launch(mark) for mark in marks]
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    launches[0]()
    graph.replay()
    launches[0]()
    for (first, last), launch in zip(events, launches[1:], strict=True):
        first.record()
        graph.replay()
        last.record()
        launch()
    state = cuda_state()
    torch.cuda.synchronize()
    rounds = [
        TimedRound(max(1, round(1e9 * first.elapsed_time(last) / calls)), clock_mhz(before, after))
        for (first, last), (before, after) in zip(events, itertools.pairwise(marks), strict=True)
    ]
    return rounds, state


def replay_in_turn(rounds: Sequence[GraphRounds], orders: Sequence[Sequence[int]]) -> list[list[int]]:
    """Replay several graphs in given orders without a gap, and return picoseconds per call of each one's replays.

    One more replay runs first, so that the device is busy when the first event is recorded.
    """
    import torch

    order = [index for one in orders for index in one]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(len(order) + 1)]
    rounds[order[-1]].replay()
    events[0].record()
    for index, event in zip(order, events[1:], strict=True):
        rounds[index].replay()
        event.record()
    torch.cuda.synchronize()
    samples: list[list[int]] = [[] for _ in rounds]
    for index, (first, second) in zip(order, itertools.pairwise(events), strict=True):
        samples[index].append(max(1, round(1e9 * first.elapsed_time(second) / rounds[index].calls)))
    return samples


def state_under(graph: Any) -> DeviceState:
    """Return the device's state under the load of a graph.

    The SM clock is computed from cycles and nanoseconds counted across one replay: the driver's reading lags behind a
    load of a few milliseconds. Where no SM ran both counting kernels, the driver's reading is returned.
    """
    import torch

    from ledger.device.probe_kernels import clock_mhz, stamp_launch, stamps

    first, second = stamps(), stamps()
    graph.replay()
    stamp_launch(first)()
    graph.replay()
    stamp_launch(second)()
    graph.replay()
    state = cuda_state()
    torch.cuda.synchronize()
    counted = clock_mhz(first, second)
    return state if counted is None else state.model_copy(update={"sm_clock_mhz": counted})


@dataclass
class GraphRounds:
    """Time calls as nodes of one CUDA graph that rotates over the input sets; a round is one replay."""

    launches: Sequence[Launch]
    calls: int = 0
    stretch: int = 1  # rounds this many times as long
    watch: bool = True  # read clocks, power and temperature after each batch

    def __post_init__(self) -> None:
        """Warm up, time one rotation and capture as many as fill a round of a millisecond."""
        repeats = repeats_in_round(self.launches, stretch=self.stretch)
        self.calls = len(self.launches) * repeats
        self._graph = capture([*self.launches] * repeats)
        self.states: list[DeviceState] = []

    def take(self, count: int) -> list[int]:
        """Run `count` rounds and return picoseconds per call of each; the state under load is read after each batch."""
        samples = replay_ps(self._graph, count, calls=self.calls)
        if self.watch:
            self.states.append(self.state())
        return samples

    def replay(self) -> None:
        """Run the graph that is timed, once."""
        self._graph.replay()

    def release(self) -> None:
        """Give up the graph and its memory."""
        self._graph = None

    def state(self) -> DeviceState:
        """Return the device's state under the load of the rounds."""
        return state_under(self._graph)

    def batch(self, duration_ms: int) -> Batch:
        """Run rounds for about `duration_ms` and return their times with the SM clock counted across them."""
        from ledger.device.probe_kernels import clock_mhz, stamp_launch, stamps

        first, second = stamps(), stamps()
        self._graph.replay()
        stamp_launch(first)()
        samples = replay_ps(self._graph, max(1, round(duration_ms / ROUND_MS)), calls=self.calls)
        self._graph.replay()
        stamp_launch(second)()
        return Batch(tuple(samples), clock_mhz(first, second))


class StateRounds(Batches, Protocol):
    """Take rounds and batches, and read the device's state under their load."""

    calls: int

    def take(self, count: int) -> list[int]:
        """Run `count` rounds and return picoseconds per call of each."""
        ...

    def state(self) -> DeviceState:
        """Return the device's state under the load of the rounds."""
        ...


def time_graph_steadily(launches: Sequence[Launch], parameters: SteadyParameters) -> Timed:
    """Time the launches, one an input set, by cold-graph/2: until the time and the clock have settled."""
    return time_steadily(GraphRounds(launches, watch=False), parameters)


def time_steadily(rounds: StateRounds, parameters: SteadyParameters) -> Timed:
    """Time rounds by cold-graph/2: until the time and the clock have settled."""
    rounds.take(parameters.warmup_rounds)
    before = rounds.state()
    found = time_until_steady(rounds, parameters)
    return Timed(
        found.rounds_ps, rounds.calls, found.interval, before, rounds.state(), found.clocks_mhz, found.document(),
        rounds,
    )  # fmt: skip


def time_graph(launches: Sequence[Launch], parameters: Parameters) -> Timed:
    """Time the launches, one an input set, by cold-graph/1; states are read under the same load, between batches."""
    rounds = GraphRounds(launches)
    samples, interval = enough_rounds(rounds, parameters)
    return Timed(samples, rounds.calls, interval, rounds.states[0], rounds.states[-1], (), rounds=rounds)


def empty_node_ps(nodes: int = 1000) -> int:
    """Return the time of one empty kernel among many in a CUDA graph, in picoseconds."""
    from ledger.device.probe_kernels import empty_launch

    launch = empty_launch()
    warm_up([launch])
    return median_interval(replay_ps(capture([launch] * nodes), 25, calls=nodes)).median
