"""Lets contestants take turns on a simulated GPU whose clock follows the power of the last tens of milliseconds."""

from collections import deque
from dataclasses import dataclass, field, replace

import pytest
from samples import make_hardware

from ledger.analysis.protocols import COLD_GRAPH
from ledger.device.facts import facts_for
from ledger.kernel_files import build_case, load_kernel
from ledger.measure.contestants import Contestant, interleave
from ledger.measure.timer import parameters_of

MEMORY_MS = 95


@dataclass
class Gpu:
    """Hold the power of each of the last milliseconds, 1 of a kernel that draws all."""

    drawn: deque[float] = field(default_factory=lambda: deque([1.0] * MEMORY_MS, maxlen=MEMORY_MS))

    def run(self, ms: float, power: float) -> int:
        """Run a kernel of so many milliseconds at full power and return its picoseconds; it gains up to 13%."""
        spent = 0.0
        left = ms
        while left > 0:
            speed = 1 / (1 - 0.13 * (1 - sum(self.drawn) / MEMORY_MS))
            step = min(1.0, left / speed)
            self.drawn.append(power)
            spent, left = spent + step, left - speed * step
        return round(spent * 1e9)


@dataclass
class Rounds:
    """Run a kernel as a graph of one call: one replay that is not timed, then those that are."""

    gpu: Gpu
    ms: float
    power: float
    calls: int = 1

    def take(self, count: int) -> list[int]:
        self.gpu.run(self.ms, self.power)
        return [self.gpu.run(self.ms, self.power) for _ in range(count)]


def medians(order: str) -> dict[str, float]:
    """Return the milliseconds of a and b, which are alike, and of a slow c that draws little, in an order."""
    gpu, kernels = Gpu(), {"a": (1.0, 1.0), "b": (1.0, 1.0), "c": (16.0, 0.2)}
    contestants = [Contestant(name, Rounds(gpu, *kernels[name]), True, "back-to-back") for name in order]
    interleave(contestants, parameters_of(COLD_GRAPH))
    return {one.name: one.interval.median / 1e9 for one in contestants}


@pytest.mark.parametrize("order", ["abc", "cab", "cba"])
def test_two_equal_kernels_are_level_whoever_ran_before(order):
    found = medians(order)
    assert found["a"] / found["b"] == pytest.approx(1, abs=0.01)
    assert found["a"] == pytest.approx(1, rel=0.01)


def test_a_steady_drift_favours_neither_the_first_nor_the_last():
    spent = [1_000_000_000]

    class Drifting:
        calls = 1

        def take(self, count: int) -> list[int]:
            spent.extend(spent[-1] + 1_000_000 for _ in range(count))
            return spent[-count:]

    contestants = [Contestant(name, Drifting(), True, "back-to-back") for name in "abcdefg"]  # type: ignore[arg-type]
    interleave(contestants, replace(parameters_of(COLD_GRAPH), min_rounds=10, max_rounds=20))
    found = [one.interval.median for one in contestants]
    assert max(found) / min(found) < 1.01


def test_the_clock_of_the_simulation_favours_whoever_follows_a_slow_kernel():
    gpu = Gpu()
    cool, hot = Rounds(gpu, 16.0, 0.2), Rounds(gpu, 4.0, 1.0)
    cool.take(5)
    assert hot.take(1)[0] < 0.96 * hot.take(8)[-1]


@dataclass
class Counting:
    """Note how many rounds each take asks for; all take as long."""

    call_ps: int
    calls: int
    taken: list[int] = field(default_factory=list)

    def take(self, count: int) -> list[int]:
        self.taken.append(count)
        return [self.call_ps] * count


def test_calls_after_idle_count_from_the_first():
    rounds = Counting(1_000_000, calls=1)
    interleave([Contestant("a", rounds, True, "idle")], parameters_of(COLD_GRAPH))  # type: ignore[arg-type]
    assert rounds.taken[1:] == [13, 13]


def test_a_warm_up_that_seems_to_take_no_time_does_not_prolong_a_turn():
    rounds = Counting(1, calls=800)
    interleave([Contestant("a", rounds, True, "chain")], parameters_of(COLD_GRAPH))  # type: ignore[arg-type]
    assert max(rounds.taken) == 113


def test_rounds_before_the_clock_has_settled_do_not_count():
    class Numbered:
        calls = 1

        def take(self, count: int) -> list[int]:
            return [10**9 + index for index in range(count)]

    one = Contestant("a", Numbered(), True, "back-to-back")  # type: ignore[arg-type]
    interleave([one], parameters_of(COLD_GRAPH))
    # 100 rounds of a millisecond, of which `take` itself runs one.
    assert one.samples == 2 * [10**9 + index for index in range(99, 112)]


def test_a_protocol_of_fewer_rounds_has_shorter_turns():
    rounds = Counting(10**9, calls=1)
    least = replace(parameters_of(COLD_GRAPH), min_rounds=9)
    interleave([Contestant("a", rounds, True, "loop")], least)  # type: ignore[arg-type]
    assert rounds.taken[1:] == [5, 5]


def test_a_bench_on_a_gpu_calls_each_way_on_the_copies_too(monkeypatch):
    import torch

    from ledger.measure import contestants, input_copies

    hardware = make_hardware(name="cpu", target="x86_64")
    kernel = load_kernel("softmax", launch=True).kernel
    case = build_case(kernel, hardware, shape={"M": 4, "N": 8}, dtype="fp32")
    facts = facts_for(hardware).model_copy(update={"l2_bytes": 256})
    # Tensors stay on this machine: only what asks a GPU is replaced.
    small = replace(parameters_of(COLD_GRAPH), footprint_min_bytes=1)
    sets = contestants.cold_sets(kernel, case, facts, small, device="cpu")
    monkeypatch.setattr(contestants, "cold_sets", lambda *_args, **_options: list(sets))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    monkeypatch.setattr(input_copies, "rotation_ps", lambda launches: 1000 * len(launches))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10**9, 10**9))
    lined = contestants.line_up(kernel, case, facts, device="cuda", only=None, contexts=("loop",))
    # A set is x and y of 128 bytes each: 64 caches of 256 bytes hold 64.
    assert len(sets) == 5 and lined.input_sets == 64
    assert {one.name for one in lined.contestants} > {"ours"}
    assert all(len(one.rounds.launches) == 64 for one in lined.contestants)
