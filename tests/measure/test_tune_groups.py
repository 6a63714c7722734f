"""Tests over how many input sets candidates are timed, and what is logged of those that fail.

Tensors stay on this machine: only what asks a GPU is replaced.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from samples import make_hardware

pytest.importorskip("torch", reason="torch is not installed: nothing can be launched")

from ledger.analysis.protocols import COLD_GRAPH
from ledger.analysis.tuning import Entry, cell_of, read_log
from ledger.device.facts import facts_for
from ledger.errors import MachineError
from ledger.kernel import Launch
from ledger.kernel_files import build_case, load_kernel
from ledger.measure import contestants, input_copies, tune_groups
from ledger.measure.input_copies import COPIES
from ledger.measure.timer import parameters_of
from ledger.measure.tune import Conditions
from ledger.measure.tune_groups import GROUP_SIZE, CellRun

HARDWARE = make_hardware(name="cpu", target="x86_64")
KERNEL = load_kernel("softmax", launch=True).kernel
CASE = build_case(KERNEL, HARDWARE, shape={"M": 4, "N": 8}, dtype="fp32").model_copy(update={"config": {"bytes": 0}})
FACTS = facts_for(HARDWARE).model_copy(update={"l2_bytes": 256})


@dataclass
class Gpu:
    """Stand for a GPU, on which a launch of a configuration keeps as many bytes as its key `bytes` says."""

    allocated: int = 0
    free: int = 10**9
    room: int = 10**9
    sizes: list[int] = field(default_factory=list)

    def prepare(self, inputs: Any, out: Any, config: Mapping[str, int]) -> Launch:
        if config.get("broken"):
            raise ValueError("broken")
        self.allocated += config["bytes"]
        if config["bytes"] and self.allocated > self.room:
            raise RuntimeError("CUDA out of memory. Tried to allocate")
        launch = KERNEL.implementations[CASE.implementation](inputs, out, {})
        return (lambda: None) if config.get("wrong") else launch

    def rounds(self, launches: list[Launch], *, watch: bool) -> "Rounds":
        self.sizes.append(len(launches))
        return Rounds(launches)

    def release(self, _device: str) -> None:
        self.allocated = 0


@dataclass
class Rounds:
    launches: list[Launch]
    calls: int = 10**6

    def take(self, count: int) -> list[int]:
        return [1_000_000] * count


@pytest.fixture
def gpu(monkeypatch) -> Gpu:
    import torch

    made = Gpu()
    small = replace(parameters_of(COLD_GRAPH), footprint_min_bytes=1)
    sets = contestants.cold_sets(KERNEL, CASE, FACTS, small, device="cpu")
    monkeypatch.setattr(tune_groups, "cold_sets", lambda *_arguments, **_options: list(sets))
    monkeypatch.setattr(tune_groups, "GraphRounds", made.rounds)
    monkeypatch.setattr(tune_groups, "release", made.release)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: made.allocated)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (made.free, made.free))
    monkeypatch.setattr(input_copies, "rotation_ps", lambda launches: 1000 * len(launches))
    return made


def cell_run(gpu: Gpu, log: Path, *configs: Mapping[str, int], own: Mapping[str, int] | None = None) -> CellRun:
    kernel = replace(KERNEL, implementations={CASE.implementation: gpu.prepare})
    case = CASE.model_copy(update={"config": own or CASE.config})
    made = CellRun(kernel, case, "cell", log, FACTS, [dict(config) for config in configs])
    gpu.release("cuda")
    gpu.sizes.clear()
    return made


def logged(log: Path) -> list[Entry]:
    return read_log(log.read_text(), name="log")


def test_candidates_and_the_own_configuration_run_on_the_copies_too(gpu, tmp_path):
    configs = [{"bytes": 0, "block": block} for block in range(3)]
    run = cell_run(gpu, tmp_path / "log", *configs)
    run.time(configs, run.quick)
    # 64 caches of 256 bytes hold 64 sets of 256 bytes; the own configuration and three candidates.
    assert gpu.sizes == [64] * 4
    assert [(entry.status, entry.config) for entry in logged(tmp_path / "log")] == [("timed", one) for one in configs]


def test_where_nothing_is_left_to_time_nothing_is_copied(gpu, tmp_path):
    assert len(cell_run(gpu, tmp_path / "log").sets) == 5


def test_the_group_with_the_largest_workspaces_fits_an_eighth_of_the_memory(gpu, tmp_path):
    configs = [{"bytes": 100 * number} for number in range(1, GROUP_SIZE + 4)]
    # A copy is 256 bytes, 44 of the own configuration and of the six largest 400 to 900.
    gpu.free = 8 * 11 * (256 + 44 + 3900) + 1
    run = cell_run(gpu, tmp_path / "log", *reversed(configs), {"bytes": 10**9, "broken": 1}, own={"bytes": 44})
    assert len(run.sets) == 5 + 11


def test_a_candidate_that_memory_does_not_suffice_for_has_failed_and_the_others_are_timed(gpu, tmp_path):
    configs = [{"bytes": 0, "block": 1}, {"bytes": 100}, {"bytes": 0, "wrong": 1}]
    run = cell_run(gpu, tmp_path / "log", *configs)
    gpu.room = 99
    run.time(configs, run.quick)
    failed, wrong, timed = logged(tmp_path / "log")
    assert (failed.status, failed.config) == ("failed", {"bytes": 100}) and "out of memory" in (failed.why or "")
    assert (wrong.status, timed.status, timed.config) == ("wrong", "timed", {"bytes": 0, "block": 1})


def test_a_candidate_that_leaves_the_device_unusable_before_the_copies_is_logged(gpu, tmp_path, monkeypatch):
    import torch

    def lost() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    with pytest.raises(MachineError, match="left the device unusable"):
        cell_run(gpu, tmp_path / "log", {"bytes": 0}, {"bytes": 0, "broken": 1})
    (entry,) = logged(tmp_path / "log")
    assert (entry.status, entry.config) == ("failed", {"bytes": 0, "broken": 1})


def test_an_own_configuration_that_is_wrong_is_refused(gpu, tmp_path):
    with pytest.raises(MachineError, match="its own configuration wrong here"):
        cell_run(gpu, tmp_path / "log", {"bytes": 0}, own={"bytes": 0, "wrong": 1})


def test_a_log_of_other_rotations_is_of_another_cell():
    now = Conditions("A", "1", {"triton": "3"}, "00", COPIES.text).document()
    before = {name: value for name, value in now.items() if name != "inputs"}
    assert cell_of(now, CASE.shape, "fp32") != cell_of(before, CASE.shape, "fp32")
    assert now["inputs"] == COPIES.text
    assert COPIES.text.startswith("copied until they fill the cache 64 times, a call on each takes 2 ms or")
