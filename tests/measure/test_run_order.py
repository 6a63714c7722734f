"""Runs orders, cells and input generation on this machine's CPU."""

import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from measuring import QUICK, QUICK_GRAPH, SEAL, cell_of, kernel_file, order_of, this_cpu, this_gpu

from ledger import philox_inputs as binding
from ledger.analysis.metric_readings import readings
from ledger.canonical import encode
from ledger.device.cpu_load import cpu_times
from ledger.errors import InputError, MachineError
from ledger.evidence.challenge import anchor_of
from ledger.measure import run_cell as run_cell_module
from ledger.measure import run_order as measure
from ledger.operations import MATMUL
from ledger.record_files import read_measurement
from ledger.records import Measurement, Tool

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be measured")
KEY = binding.derive_key(seal=SEAL, cell="c", run=0, anchor=None)


def run(tmp_path, *cells, **options):
    order = options.pop("order", None) or order_of(*cells)
    return measure.run_order(
        order, order_sha256="0d" * 32, out=tmp_path, kernels=options.pop("kernels", kernel_file), **options
    )


def record(tmp_path, cell) -> Measurement:
    return read_measurement(measure.result_path(tmp_path, cell))


# Whole orders


def test_run_order_measures_and_its_samples_are_the_operation_s(tmp_path):
    cell = cell_of(this_cpu())
    summary = run(tmp_path, cell)
    assert (summary.measured, summary.failed, summary.skipped) == (1, 0, 0)
    found = record(tmp_path, cell)
    assert found.status == "measured" and found.correctness.elements == 24 * 40
    assert found.timing.input_sets * found.timing.bytes_per_set >= 200_000
    assert found.counters_missing == "no hardware counters: the cell runs on a CPU"
    assert found.timing.low_ps <= found.timing.median_ps <= found.timing.high_ps and found.timing.launch_ps is None

    assert_samples_follow(cell, found)


@pytest.mark.skipif(cpu_times() is None, reason="this kernel does not list the time of its processors")
def test_a_timing_on_a_cpu_records_how_much_of_it_others_used(tmp_path):
    longer = {**QUICK.parameters, "min_rounds": 200, "max_rounds": 200, "budget_ms": 2000}
    cell = cell_of(this_cpu(), protocol=QUICK.model_copy(update={"parameters": longer}))
    run(tmp_path, cell)
    found = record(tmp_path, cell)
    load, timed_ps = found.extensions["cpu_load/1"], sum(found.timing.rounds_ps) * found.timing.calls_per_round
    assert set(load) == {"others_ppm", "window_ms"}
    assert 0 <= load["others_ppm"] <= 1_000_000 and load["window_ms"] >= timed_ps // 10**9 > 0


def test_a_challenge_goes_into_the_inputs(tmp_path):
    cell = cell_of(this_cpu(), anchor=anchor_of("a text that nobody knew before"))
    run(tmp_path, cell)
    found = record(tmp_path, cell)
    assert found.anchor == cell.anchor
    assert_samples_follow(cell, found)
    # Asked with another challenge, what lies there is no answer: it is measured again.
    other = cell.model_copy(update={"anchor": anchor_of("another text, known to nobody")})
    assert run(tmp_path, cell).skipped == 1 and run(tmp_path, other).measured == 1
    assert record(tmp_path, other).samples != found.samples


def assert_samples_follow(cell, found):
    key = binding.derive_key(seal=cell.seal, cell=cell.cell, run=cell.run, anchor=cell.anchor)
    specs = {spec.name: (number, spec) for number, spec in enumerate(MATMUL.inputs(cell.case.shape))}

    def read(name, index):
        number, spec = specs[name]
        k = binding.element_integers(index, key=key, tensor=number, input_set=0, how=spec.generated.distribution)
        return k * 2.0**spec.generated.exponent

    assert len(found.samples.positions) == 7
    for position, bits in zip(found.samples.positions, found.samples.bits, strict=True):
        value = struct.unpack("<f", int(bits, 16).to_bytes(4, "little"))[0]
        assert value == pytest.approx(MATMUL.element(cell.case.shape, position, read), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    ("implementation", "said"),
    [("wrong", "output is wrong"), ("raising", "no such instruction"), ("decaying", "right on its first call")],
)
def test_run_order_records_a_failing_kernel_untimed_and_continues(tmp_path, implementation, said):
    bad, good = cell_of(this_cpu(), implementation=implementation), cell_of(this_cpu())
    summary = run(tmp_path, bad, good)
    assert (summary.measured, summary.failed) == (1, 1)
    found = record(tmp_path, bad)
    assert found.status == "failed" and said in found.failure and found.timing is None
    assert record(tmp_path, good).status == "measured"


def test_run_order_resumes_and_keeps_what_was_measured(tmp_path):
    first, second = cell_of(this_cpu()), cell_of(this_cpu(), m=8)
    run(tmp_path, first, second, only=frozenset({first.cell}))
    before = measure.result_path(tmp_path, first).read_bytes()
    summary = run(tmp_path, first, second)
    assert (summary.measured, summary.skipped) == (1, 1)
    assert measure.result_path(tmp_path, first).read_bytes() == before
    assert [path.name[0] for path in tmp_path.iterdir()].count(".") == 0


def test_run_order_measures_again_where_the_file_is_damaged(tmp_path):
    cell = cell_of(this_cpu())
    run(tmp_path, cell)
    path = measure.result_path(tmp_path, cell)
    path.write_bytes(path.read_bytes()[:-40])
    assert run(tmp_path, cell).measured == 1
    assert encode(record(tmp_path, cell)) == path.read_bytes()


def test_run_order_keeps_runs_apart(tmp_path):
    cell = cell_of(this_cpu())
    again = cell.model_copy(update={"run": 1})
    assert run(tmp_path, cell, again).measured == 2
    assert record(tmp_path, cell).samples.bits != record(tmp_path, again).samples.bits


def test_run_order_interrupted_keeps_the_cells_before(tmp_path):
    cells = [cell_of(this_cpu(), m=m) for m in (8, 16, 24)]

    def interrupt(progress):
        if progress.cell == cells[1].cell and progress.stage == "timing":
            raise KeyboardInterrupt

    summary = run(tmp_path, *cells, on_progress=interrupt)
    assert summary.interrupted and summary.measured == 1
    assert [path.name for path in tmp_path.iterdir()] == [measure.result_path(tmp_path, cells[0]).name]
    assert run(tmp_path, *cells).measured == 2


def test_run_order_begins_no_cell_after_its_budget_and_the_next_run_does_the_rest(tmp_path):
    cells = [cell_of(this_cpu(), m=m) for m in (8, 16, 24)]

    def slow(progress):
        if progress.stage == "done":
            time.sleep(0.2)

    run(tmp_path, cells[0])
    summary = run(tmp_path, *cells, on_progress=slow, budget_s=0.2)
    assert (summary.interrupted, summary.skipped, summary.measured) == (True, 1, 1)
    assert run(tmp_path, *cells, budget_s=60).measured == 1
    assert not run(tmp_path, *cells, budget_s=0.0).interrupted


def group_sizes(monkeypatch) -> list[int]:
    """Record how many cells are profiled together."""
    sizes, collect = [], measure.collect_counters

    def counted(jobs, **options):
        sizes.append(len(jobs))
        return collect(jobs, **options)

    monkeypatch.setattr(measure, "collect_counters", counted)
    return sizes


def test_run_order_profiles_few_cells_before_a_budget_ends(tmp_path, monkeypatch):
    sizes, clock = group_sizes(monkeypatch), SimpleNamespace(now=0.0)
    monkeypatch.setattr(measure, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(measure, "TOGETHER_AT_FIRST", 2)
    cells = [cell_of(this_cpu(), m=m) for m in (8, 16, 24, 32, 40, 48)]

    def one_second(progress):
        clock.now += progress.stage == "done"

    summary = run(tmp_path, *cells, on_progress=one_second, budget_s=3.4)
    assert summary.interrupted and summary.measured == 4 and sizes == [2, 1, 1]
    # Nothing is profiled once the budget is spent, and without one all cells at once.
    sizes.clear()
    assert run(tmp_path, *cells, budget_s=0.0).interrupted and not sizes
    assert run(tmp_path, *cells).measured == 2 and sizes == [2]


@pytest.mark.parametrize(
    ("budget_s", "begun", "size"), [(None, 0, 40), (60, 0, 8), (60, 8, 4), (41, 8, 1), (9e3, 8, 40)]
)
def test_run_order_profiles_as_many_cells_as_the_budget_lasts_for(monkeypatch, budget_s, begun, size):
    monkeypatch.setattr(measure, "time", SimpleNamespace(monotonic=lambda: 100.0))
    one = measure._Run(None, None, 99, lambda _progress: None, 60.0, None, None)
    assert one.group_size(begun, budget_s) == size


def test_run_order_counts_the_seconds_of_each_stage(tmp_path):
    summary = run(tmp_path, cell_of(this_cpu()))
    assert list(summary.stages) == ["inputs", "checking", "timing", "varying"]
    assert 0 < sum(summary.stages.values()) < summary.device_seconds


def test_run_order_reports_progress_to_the_end(tmp_path):
    seen = []
    run(tmp_path, cell_of(this_cpu()), on_progress=seen.append)
    assert [one.stage for one in seen] == ["inputs", "checking", "timing", "varying", "done"]
    assert (seen[-1].done, seen[-1].total) == (1, 1)


# Refusals before any timing


def refused(tmp_path, error, match, order, **options):
    with pytest.raises(error, match=match):
        run(tmp_path, order=order, **options)
    assert list(tmp_path.iterdir()) == []


def test_run_order_refuses_another_device(tmp_path):
    other = this_cpu(device_names=("Another CPU",))
    refused(tmp_path, MachineError, "expects Another CPU", order_of(cell_of(other), hardware=other))


def test_run_order_refuses_a_gpu_where_there_is_none(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    other = this_cpu(target="sm_90")
    refused(tmp_path, MachineError, "no CUDA device", order_of(cell_of(other), hardware=other))


def test_run_order_refuses_another_package_version(tmp_path):
    order = order_of(cell_of(this_cpu()), tool=Tool(name="ledger", version="0.0.1"))
    refused(tmp_path, InputError, "order was made by ledger 0.0.1", order)


def test_run_order_refuses_another_kernel(tmp_path):
    file = kernel_file()
    source = file.closure.source
    edited = replace(file.closure, files=(replace(source, data=source.data + b"\n"),))
    changed = replace(file, closure=edited)
    refused(tmp_path, InputError, "which was sealed", order_of(cell_of(this_cpu())), kernels=lambda _digest: changed)


def test_run_order_refuses_a_pinned_version_that_is_not_here(tmp_path):
    refused(tmp_path, MachineError, "sealed is torch==1.0", order_of(cell_of(this_cpu(), pins={"torch": "==1.0"})))


def test_run_order_refuses_a_changed_profile(tmp_path):
    cell = cell_of(this_cpu())
    order = order_of(cell)
    swapped = order.model_copy(update={"hardware": {cell.hardware_sha256: this_cpu(title="edited")}})
    refused(tmp_path, InputError, "is not the one that the order names", swapped)


def test_run_order_refuses_an_unknown_cell_name(tmp_path):
    order = order_of(cell_of(this_cpu()))
    refused(tmp_path, InputError, "'nothing' is not in the order", order, only=frozenset({"nothing"}))


def test_run_order_refuses_other_work(tmp_path):
    cell = cell_of(this_cpu())
    order = order_of(cell.model_copy(update={"work": cell.work.model_copy(update={"flops": 1})}))
    refused(tmp_path, InputError, "dtype or work", order)


# On a GPU


def graph_cell(m: int, implementation: str):
    cell = cell_of(this_gpu(), m=m, implementation=implementation, protocol=QUICK_GRAPH)
    return cell.model_copy(update={"case": cell.case.model_copy(update={"threads": None})})


@pytest.mark.gpu
def test_run_order_on_a_gpu_measures_with_counters_or_records_the_reason(tmp_path):
    cells = [graph_cell(24, "torch-cuda"), graph_cell(512, "torch-cuda")]
    summary = run(tmp_path, order=order_of(*cells, hardware=this_gpu()))
    assert (summary.measured, summary.failed) == (2, 0)
    for cell in cells:
        found = record(tmp_path, cell)
        assert 0 < found.timing.launch_ps < found.timing.median_ps
        assert found.extensions["idle_launch_ps/1"] > found.timing.launch_ps
        assert found.before.sm_clock_mhz and found.after.sm_clock_mhz
        if found.counters is None:
            assert found.counters_missing.startswith("no counters: ")
        else:
            seen = readings(found.counters, found.device.target)
            assert 0.2 < 1000 * seen.values["duration"] / found.timing.median_ps < 5


@pytest.mark.gpu
def test_run_order_on_a_gpu_times_until_steady(tmp_path):
    from ledger.analysis.protocols import STEADY_GRAPH

    cell = graph_cell(512, "torch-cuda").model_copy(update={"protocol": STEADY_GRAPH})
    summary = run(tmp_path, order=order_of(cell, hardware=this_gpu()), counters="off")
    assert summary.measured == 1
    found = record(tmp_path, cell)
    steady, timing = found.extensions["steady/1"], found.timing
    assert steady["settled"] and steady["tail_batches"] >= 5 and steady["batches"] >= steady["tail_batches"]
    assert len(timing.rounds_ps) == len(timing.sm_clock_mhz) == 20 * steady["tail_batches"]
    assert all(500 < clock < 3000 for clock in timing.sm_clock_mhz)
    assert (timing.high_ps - timing.low_ps) / (2 * timing.median_ps) <= 0.005


def test_a_gpu_that_stopped_answering_is_named_with_what_used_it_last(monkeypatch):
    def lost() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be late")

    torch = SimpleNamespace(cuda=SimpleNamespace(synchronize=lost))
    monkeypatch.setattr(run_cell_module, "has_cuda", lambda: True)
    monkeypatch.setattr(run_cell_module, "import_torch", lambda: torch)
    with pytest.raises(MachineError, match=r"after claim x \(CUDA error: an illegal .* encountered\); mend it"):
        run_cell_module.require_live("claim x", "mend it")


CRASH = """
import sys
from pathlib import Path
sys.path[:0] = [{here!r}, {support!r}, {root!r}]
from test_run_order import graph_cell, run, order_of, this_gpu
cells = [graph_cell(8, "crashing"), graph_cell(24, "torch-cuda")]
print(run(Path(sys.argv[1]), order=order_of(*cells, hardware=this_gpu()), counters="off"))
"""


@pytest.mark.gpu
def test_run_order_survives_a_lost_device_context_in_the_next_call(tmp_path):
    here = Path(__file__).parent
    code = CRASH.format(here=str(here), support=str(here.parent / "support"), root=str(here.parents[1]))
    first, second = (
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
        for _ in range(2)
    )
    assert first.returncode != 0 and "device stopped answering" in first.stderr
    assert "measured=1, failed=0, skipped=1" in second.stdout, second.stderr
    assert record(tmp_path, graph_cell(8, "crashing")).status == "failed"


# Interventions, where there are no counters


def test_a_cell_on_a_cpu_has_interventions_of_every_output_axis(tmp_path):
    from ledger.analysis.interventions import readings_of

    cell = cell_of(this_cpu(), m=64)
    run(tmp_path, cell)
    found = readings_of(record(tmp_path, cell).interventions)
    assert found is not None and found.warm_ps and found.double_ps
    assert {half.axis for half in found.halves} == {"M", "N"}
    assert {2 * half.flops for half in found.halves} == {cell.work.flops}


def test_an_intervention_that_raises_loses_no_measurement(tmp_path, monkeypatch):
    from ledger.measure import run_cell as module

    def broken(*arguments, **options):
        raise RuntimeError("broken")

    monkeypatch.setattr(module, "intervene", broken)
    cell = cell_of(this_cpu())
    assert run(tmp_path, cell).measured == 1
    found = record(tmp_path, cell)
    assert found.status == "measured" and found.interventions == {}
    assert found.extensions["interventions_missing/1"] == "RuntimeError: broken"
