"""Tests how two versions get launches on the same input sets and copies; what asks a GPU is replaced."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from samples import make_hardware

pytest.importorskip("torch", reason="torch is not installed: nothing can be launched")

from ledger.analysis.protocols import COLD_GRAPH
from ledger.callables.calls import Call
from ledger.device.facts import facts_for
from ledger.kernel import Launch
from ledger.kernel_files import KernelFile, build_case, load_kernel
from ledger.measure import compared_launches, comparison, contestants, input_copies
from ledger.measure.compared_launches import SideFailed, Version, prepare_both
from ledger.measure.comparison import Origin, compare_once
from ledger.measure.comparison_effort import ON_CPU
from ledger.measure.input_copies import COPIES, NO_COPIES, CopyLimits
from ledger.measure.inputs import InputSet
from ledger.measure.timer import CpuRounds, parameters_of

HARDWARE = make_hardware(name="cpu", target="x86_64")
FILE = load_kernel("softmax", launch=True)
CASE = build_case(FILE.kernel, HARDWARE, shape={"M": 4, "N": 8}, dtype="fp32")
FACTS = facts_for(HARDWARE).model_copy(update={"l2_bytes": 256})


@dataclass
class Gpu:
    """Stand for a GPU: what it allocated, and which launches were timed to count copies."""

    allocated: int = 0
    free: int = 10**9
    timed: list[int] = field(default_factory=list)

    def rotation_ps(self, launches: list[Launch]) -> int:
        self.timed.append(len(launches))
        for launch in launches:
            launch()
        return 1000 * len(launches)


@pytest.fixture
def gpu(monkeypatch) -> Gpu:
    import torch

    made = Gpu()
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: made.allocated)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (made.free, made.free))
    monkeypatch.setattr(input_copies, "rotation_ps", made.rotation_ps)
    return made


def sets() -> list[InputSet]:
    """Return 5 sets of 256 bytes."""
    small = replace(parameters_of(COLD_GRAPH), footprint_min_bytes=1)
    return contestants.cold_sets(FILE.kernel, CASE, FACTS, small, device="cpu")


def version(prepare: Callable[..., Launch] | None = None, *, name: str = "softmax") -> Version:
    """Return softmax on this CPU, or what computes it by another launch."""
    kernel = FILE.kernel
    if prepare is not None:
        kernel = replace(kernel, implementations={**kernel.implementations, CASE.implementation: prepare})
    return Version(KernelFile(kernel, FILE.closure, shipped=True), CASE.model_copy(update={"kernel": name}))


def honest(inputs: Any, out: Any, config: Any) -> Launch:
    return FILE.kernel.implementations[CASE.implementation](inputs, out, config)


def after(count: int, what: Callable[[], Launch]) -> Callable[..., Launch]:
    """Return a way to prepare that does something else from some number of launches on."""
    made = [0]

    def prepare(inputs: Any, out: Any, config: Any) -> Launch:
        made[0] += 1
        return what() if made[0] > count else honest(inputs, out, config)

    return prepare


def broken() -> Launch:
    raise ValueError("out of memory")


def both(base: Version, head: Version, limits: CopyLimits = COPIES, *, device: str = "cuda"):
    return prepare_both(base, head, sets(), limits, facts=FACTS, device=device)


def test_both_sides_run_on_the_sets_and_on_the_same_copies(gpu):
    written: dict[str, list[int]] = {"base": [], "head": []}

    def noting(side: str) -> Callable[..., Launch]:
        def prepare(inputs: Any, out: Any, config: Any) -> Launch:
            launch = honest(inputs, out, config)

            def noted() -> None:
                written[side].append(out.data_ptr())
                launch()

            return noted

        return prepare

    found = both(version(noting("base")), version(noting("head")))
    # 64 caches of 256 bytes hold 64 sets.
    assert gpu.timed == [5] and len(found.base.launches) == len(found.head.launches) == 64
    for side in (found.base, found.head):
        written[side.name].clear()
        for launch in side.launches:
            launch()
    assert written["base"] == written["head"] and len(set(written["base"])) == 64


def test_without_limits_or_a_gpu_no_copies_are_made(gpu):
    for limits, device in ((NO_COPIES, "cuda"), (COPIES, "cpu"), (CopyLimits(64, 0), "cuda")):
        assert len(both(version(), version(), limits, device=device).head.launches) == 5
    assert not gpu.timed


def test_workspaces_of_three_contestants_fit_an_eighth_of_the_memory(gpu):
    def allocating(size: int) -> Callable[..., Launch]:
        def prepare(inputs: Any, out: Any, config: Any) -> Launch:
            gpu.allocated += size
            return honest(inputs, out, config)

        return prepare

    # A copy is 256 bytes, twice 100 of the base and 544 of the head.
    gpu.free = 8 * 7 * 1000 + 1
    assert len(both(version(allocating(100)), version(allocating(544))).base.launches) == 5 + 7


@pytest.mark.parametrize("failing", ["base", "head"])
def test_a_side_that_fails_on_copies_is_named(gpu, failing):
    # The 7th launch is the first on a copy: one more was made to see what it allocates.
    sides = {name: version(after(6, broken)) if name == failing else version() for name in ("base", "head")}
    with pytest.raises(SideFailed, match="out of memory") as caught:
        both(sides["base"], sides["head"])
    assert (caught.value.side, caught.value.kind) == (failing, "failed")
    assert gpu.timed == [5]


def test_a_wrong_head_is_named_before_the_base_is_timed(gpu):
    def idle() -> Launch:
        return lambda: None

    with pytest.raises(SideFailed) as caught:
        both(version(), version(after(0, idle)))
    assert (caught.value.side, caught.value.kind) == ("head", "wrong") and not gpu.timed


def test_a_base_whose_rotation_fails_is_named(gpu, monkeypatch):
    monkeypatch.setattr(input_copies, "rotation_ps", lambda _launches: broken())
    with pytest.raises(SideFailed) as caught:
        both(version(), version())
    assert caught.value.side == "base"


class Returning(Call):
    """Compute softmax as a callable does, which returns its result."""

    def __init__(self, inputs: Any, out: Any, config: Any) -> None:
        self.inputs, self.out, self.launch = inputs, out, honest(inputs, out, config)

    def __call__(self) -> None:
        self.launch()

    def results(self) -> Any:
        return [self.out.clone()]


def callable_version(prepare: Callable[..., Launch]) -> Version:
    made = version(prepare, name="ops:softmax")
    kernel = made.kernel
    return replace(
        made, file=replace(made.file, kernel=replace(kernel, reference=lambda inputs: [kernel.reference(inputs)]))
    )


@pytest.mark.parametrize("uncaptured", [(True, True), (True, False), (False, True)])
def test_callables_that_no_graph_captures_get_no_copies(gpu, monkeypatch, uncaptured):
    said = iter(uncaptured)
    monkeypatch.setattr(compared_launches, "capture_problem", lambda _launches: "waits" if next(said) else None)
    found = both(callable_version(Returning), callable_version(Returning))
    assert (found.base.on_stream, found.head.on_stream) == uncaptured
    assert len(found.base.launches) == len(found.head.launches) == 5 and not gpu.timed


def test_a_callable_that_graphs_capture_gets_copies_and_its_results_count(gpu, monkeypatch):
    monkeypatch.setattr(compared_launches, "capture_problem", lambda _launches: None)

    class Keeping(Returning):
        def __call__(self) -> None:
            super().__call__()
            gpu.allocated += 248

    # A copy is 256 bytes and three results of 248.
    gpu.free = 8 * 9 * 1000 + 1
    found = both(callable_version(Keeping), callable_version(Keeping))
    assert gpu.timed == [5] and not found.base.on_stream
    assert len(found.base.launches) == len(found.head.launches) == 5 + 9


def test_what_a_callable_allocates_is_measured_on_a_copy(gpu, monkeypatch):
    monkeypatch.setattr(compared_launches, "capture_problem", lambda _launches: None)
    monkeypatch.setattr(input_copies, "rotation_ps", lambda _launches: 10**12)
    inputs = sets()
    first = inputs[0].inputs["x"].clone()
    seen: list[Any] = []

    class Once(Returning):
        def __call__(self) -> None:
            super().__call__()
            seen.append(self.inputs["x"].data_ptr())

    prepare_both(callable_version(Once), callable_version(Once), inputs, COPIES, facts=FACTS, device="cuda")
    own = inputs[0].inputs["x"].data_ptr()
    # The check of each side is on the first set; what is measured is not.
    assert [pointer == own for pointer in seen] == [True, True, False, False]
    assert inputs[0].inputs["x"].equal(first)


def test_a_comparison_records_the_sets_and_their_copies(gpu, monkeypatch):
    monkeypatch.setattr(comparison, "_sets", lambda *_arguments: sets())
    monkeypatch.setattr(comparison, "_rounds", lambda launches, _device, *, on_stream: CpuRounds(launches))
    monkeypatch.setattr(comparison, "release", lambda _device: None)
    quick = replace(ON_CPU, min_rounds=20, max_rounds=20, budget_s=0.5)
    options: dict[str, Any] = {
        "facts": FACTS, "device": "cuda", "error": 0.01, "origin": Origin("5e" * 32, "cell", 0, samples=4),
    }  # fmt: skip
    for limits, held in ((COPIES, 64), (NO_COPIES, 5)):
        found = compare_once(version(), version(), effort=replace(quick, copies=limits), **options)
        assert found.failure is None and (found.input_sets, found.bytes_per_set) == (held, 256)
        assert [len(side.samples.bits) for side in found.sides if side.samples is not None] == [4, 4]
