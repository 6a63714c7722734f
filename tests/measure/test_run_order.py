"""Runs orders, cells and input generation on this machine's CPU."""

import math
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from measuring import QUICK_GRAPH, SEAL, cell_of, kernel_file, order_of, this_cpu, this_gpu

from ledger import philox_inputs as binding
from ledger.analysis.metric_readings import readings
from ledger.canonical import encode
from ledger.errors import InputError, MachineError
from ledger.evidence.challenge import anchor_of
from ledger.measure import run_order as measure
from ledger.operations import MATMUL, MATMUL_FP8, MATMUL_INT8, TensorSpec
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


# Inputs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("how", ["symmetric", "positive"])
@pytest.mark.parametrize("dims", [(1,), (16,), (7, 13), (3, 32)])
def test_fill_equals_binding_element_by_element(dtype, how, dims):
    from ledger.measure.inputs import fill

    spec = TensorSpec("x", dims, binding.Generated(how, -7))
    got = fill(spec, key=KEY, number=2, sets=range(3, 6), dtype=dtype, device="cpu")
    for place, input_set in enumerate(range(3, 6)):
        index = np.arange(math.prod(dims), dtype=np.int64)
        k = binding.element_integers(index, key=KEY, tensor=2, input_set=input_set, how=how)
        assert np.array_equal(got[place].double().numpy().ravel(), k * 2.0**-7)


@pytest.mark.parametrize(
    ("dtype", "how"), [(torch.float8_e4m3fn, "short"), (torch.int8, "byte"), (torch.float16, "short")]
)
def test_fill_of_eight_bits_equals_binding_element_by_element(dtype, how):
    from ledger.measure.inputs import fill

    got = fill(
        TensorSpec("b", (5, 29), binding.Generated(how, 0)), key=KEY, number=1, sets=range(2), dtype=dtype, device="cpu"
    )
    for input_set in range(2):
        k = binding.element_integers(np.arange(145, dtype=np.int64), key=KEY, tensor=1, input_set=input_set, how=how)
        assert got.dtype == dtype
        assert np.array_equal(got[input_set].double().numpy().ravel(), k)


@pytest.mark.parametrize(
    ("operation", "dtype", "out", "size"),
    [
        (MATMUL_FP8, "fp8_e4m3", torch.float16, 4 * 16 + 8 * 16 + 2 * 4 * 8),
        (MATMUL_INT8, "int8", torch.float32, 4 * 16 + 8 * 16 + 4 * 4 * 8),
    ],
)
def test_input_sets_have_an_output_of_the_operations_dtype(operation, dtype, out, size):
    from ledger.measure.inputs import bytes_per_set, input_sets

    shape = {"M": 4, "N": 8, "K": 16}
    (one,) = input_sets(operation, shape, dtype, seal=SEAL, cell="c", run=0, anchor=None, count=1, device="cpu")
    assert one.out.dtype == out and bool(one.out.isnan().all())
    assert one.bytes == bytes_per_set(operation, shape, dtype) == size


def test_fill_is_the_same_across_chunks(monkeypatch):
    from ledger.measure import inputs

    spec = TensorSpec("x", (50, 21), binding.Generated("symmetric", -5))
    whole = inputs.fill(spec, key=KEY, number=0, sets=range(3), dtype=torch.float32, device="cpu")
    monkeypatch.setitem(inputs._CHUNK_BLOCKS, "cpu", 7)
    assert torch.equal(whole, inputs.fill(spec, key=KEY, number=0, sets=range(3), dtype=torch.float32, device="cpu"))


def test_input_sets_differ_and_outputs_are_poisoned():
    from ledger.measure.inputs import bytes_per_set, input_sets

    shape = {"M": 4, "N": 8, "K": 16}
    sets = list(input_sets(MATMUL, shape, "fp32", seal=SEAL, cell="c", run=0, anchor=None, count=3, device="cpu"))
    assert len({one.inputs["a"].numpy().tobytes() for one in sets}) == 3
    assert all(bool(one.out.isnan().all()) for one in sets)
    assert sets[0].bytes == bytes_per_set(MATMUL, shape, "fp32") == 4 * (4 * 16 + 16 * 8 + 4 * 8)


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
def test_run_order_records_a_failing_kernel_untimed_and_goes_on(tmp_path, implementation, said):
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


def test_run_order_tells_progress_to_the_end(tmp_path):
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


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("dims", [(7, 13), (300, 1024)])
def test_fill_on_a_gpu_equals_the_cpu_s(dtype, dims):
    from ledger.measure.inputs import fill

    spec = TensorSpec("x", dims, binding.Generated("symmetric", -7))
    one, other = (
        fill(spec, key=KEY, number=1, sets=range(2, 5), dtype=dtype, device=device) for device in ("cuda", "cpu")
    )
    assert torch.equal(one.cpu(), other)


def graph_cell(m: int, implementation: str):
    cell = cell_of(this_gpu(), m=m, implementation=implementation, protocol=QUICK_GRAPH)
    return cell.model_copy(update={"case": cell.case.model_copy(update={"threads": None})})


@pytest.mark.gpu
def test_run_order_on_a_gpu_measures_with_counters_or_says_why_not(tmp_path):
    cells = [graph_cell(24, "torch-cuda"), graph_cell(512, "torch-cuda")]
    summary = run(tmp_path, order=order_of(*cells, hardware=this_gpu()))
    assert (summary.measured, summary.failed) == (2, 0)
    for cell in cells:
        found = record(tmp_path, cell)
        assert 0 < found.timing.launch_ps < found.timing.median_ps
        assert found.before.sm_clock_mhz and found.after.sm_clock_mhz
        if found.counters is None:
            assert found.counters_missing.startswith("no counters: ")
        else:
            seen = readings(found.counters, found.device.target)
            assert 0.2 < 1000 * seen.values["duration"] / found.timing.median_ps < 5


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


# Interventions, where no counters are


def test_a_cell_on_a_cpu_carries_interventions_and_reaches_grade_b_or_says_why(tmp_path):
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
        raise RuntimeError("no such luck")

    monkeypatch.setattr(module, "intervene", broken)
    cell = cell_of(this_cpu())
    assert run(tmp_path, cell).measured == 1
    found = record(tmp_path, cell)
    assert found.status == "measured" and found.interventions == {}
    assert found.extensions["interventions_missing/1"] == "RuntimeError: no such luck"


def test_only_axes_of_the_output_are_halved_and_only_even_ones():
    from ledger.measure.intervene import halved

    shapes = dict(halved(kernel_file().kernel, {"M": 4, "N": 3, "K": 8}))
    assert shapes == {"M": {"M": 2, "N": 3, "K": 8}}


def test_interventions_keep_to_their_time(monkeypatch):
    from ledger.measure import intervene as vary
    from ledger.measure.timer import parameters_of

    cell = cell_of(this_cpu())
    found = vary.intervene(
        cell, kernel_file().kernel, [lambda: None] * 2, call_ps=10**13, target="x86_64", l2_bytes=None,
        parameters=parameters_of(cell.protocol), device="cpu",
    )  # fmt: skip
    assert found == {"cold_ps": 10**13}


def intervened(kernel, shape: dict[str, int]) -> set[str]:
    """Return the names of the readings that a cell of this shape gives on this CPU."""
    import torch

    from ledger.measure import intervene as vary
    from ledger.measure.timer import parameters_of

    case = cell_of(this_cpu()).case.model_copy(update={"kernel": kernel.name, "shape": shape})
    cell = cell_of(this_cpu(), case=case)
    inputs = {
        spec.name: torch.rand(spec.dims, generator=torch.Generator().manual_seed(0))
        for spec in kernel.operation.inputs(shape)
    }
    launch = kernel.implementations["torch-cpu"](inputs, torch.empty(kernel.operation.output_dims(shape)), {})
    return set(
        vary.intervene(
            cell, kernel, [launch] * 2, call_ps=10**6, target="x86_64", l2_bytes=None,
            parameters=parameters_of(cell.protocol), device="cpu",
        )
    )  # fmt: skip


def test_a_half_that_a_kernel_does_not_offer_loses_no_other():
    from ledger.kernel_files import load_kernel

    # Half of four query heads are fewer than the four key heads: no attention, and two ways to say so.
    kernel, shape = load_kernel("decode_attention", launch=True).kernel, {"B": 2, "HQ": 4, "HKV": 4, "S": 32, "D": 16}
    assert {"warm_ps", "half_B_ps"} <= intervened(kernel, shape)
    assert "half_HQ_ps" not in intervened(kernel, shape)

    def work(shape, dtype):
        if shape["HQ"] < shape["HKV"]:
            raise ZeroDivisionError("no query head in a group")
        return kernel.work(shape, dtype)

    assert {"warm_ps", "half_B_ps"} <= intervened(replace(kernel, work=work), shape)
