"""Loads callables from a work tree, counts their work, calls them and compares their results."""

from itertools import cycle
from pathlib import Path

import pytest
import torch
import triton
from callables import OPS
from measuring import QUICK, cell_of, this_cpu

from ledger.callables.argument_list import parse_arguments, with_keys
from ledger.callables.calls import bind, check_signature
from ledger.callables.counted_work import unlaunched
from ledger.callables.recorded_arguments import described
from ledger.callables.subject import SELF, Subject, recompute_command, subject_of
from ledger.callables.subject_files import TOLERANCES, attribute_of, closure_named, load_subject
from ledger.device.facts import cpu_facts
from ledger.errors import CannotRun, InputError, SubjectRefused
from ledger.measure import fresh_values
from ledger.measure.inputs import input_sets
from ledger.measure.result_check import ResultCheck, compare_results
from ledger.measure.run_cell import run_cell, sets_of
from ledger.measure.timer import Parameters, time_cpu
from ledger.records import CaseV2

SEAL = "5e" * 32


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (folder / "ops.py").write_text(OPS)
    return folder


def loaded(root: Path, name: str, args: str, shape=None, *, run="forward", reference=SELF):
    arguments, sizes = with_keys(parse_arguments(args), shape or {})
    sources = f"ops:{name}" if reference == SELF else f"ops:{name} {reference}"
    subject = Subject(f"ops:{name}", arguments, run, reference)
    return load_subject(subject, closure_named(sources, root)[0]).kernel, sizes


def called(kernel, shape, *, dtype="fp32", number=0):
    sets = input_sets(
        kernel.operation, shape, dtype, seal=SEAL, cell="a", run=0, anchor=None, count=number + 1, device="cpu"
    )
    one = list(sets)[number]
    expected = kernel.reference(one.inputs)
    call = kernel.implementations["torch-cpu"](one.inputs, one.out, {})
    call()
    return call, expected, compare_results(call.results(), expected, TOLERANCES[dtype], name="reference")


X_Y = "x=fp32[B,96] y=fp32[B,96]"


def test_the_command_that_recomputes_samples_runs_the_code_of_callables():
    assert recompute_command(["rmsnorm"]) == "ledger audit --recompute"
    assert recompute_command(["a:f", "a:g"]) == "ledger audit --recompute --run-code"
    assert recompute_command(["a:f", "rmsnorm"]) == "ledger audit --recompute [--run-code for callables]"


def scaled(x, y, *, scale, eps=1e-6):
    return x * y * scale + eps


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("x=fp32[8]", "a:f: also needs y, scale; expected it in --args"),
        ("x=fp32[8] scale=2", "a:f: also needs y; expected it in --args"),
        ("q=fp32[8]", "a:f: also needs y, scale; expected it in --args"),
        ("y=fp32[8] q=fp32[8] scale=1", "all by its own names or all by position"),
        ("x=fp32[8] y=fp32[8] scale=1 z=2", r"a:f\(x, y, .*\): got x, y, scale, z; expected --args that it takes"),
    ],
)
def test_arguments_that_a_callable_does_not_take_are_named(args, said):
    with pytest.raises(CannotRun, match=said):
        check_signature(scaled, Subject("a:f", parse_arguments(args)))


def test_arguments_by_name_by_position_and_of_unknown_signature_pass():
    check_signature(scaled, Subject("a:f", parse_arguments("y=fp32[8] x=fp32[8] scale=2")))
    check_signature(lambda a, b: a, Subject("a:f", parse_arguments("x=fp32[8] y=fp32[8]")))
    check_signature(lambda x, *rest: x, Subject("a:f", parse_arguments("x=fp32[8] y=fp32[8]")))
    check_signature(torch.add, Subject("a:f", parse_arguments("x=fp32[8]")))
    check_signature(torch.nn.ReLU(), Subject("a:f", parse_arguments("x=fp32[8]")))


def test_work_is_products_by_torch_and_every_tensor_once(root):
    kernel, shape = loaded(root, "swiglu", X_Y, {"B": 8})
    work = kernel.work(shape, "fp32")
    assert (work.flops, work.bytes_read, work.bytes_written) == (0, 2 * 8 * 96 * 4, 8 * 96 * 4)
    kernel, shape = loaded(root, "Net", "x=fp32[B,64]", {"B": 8})
    work = kernel.work(shape, "fp32")
    parameters = 64 + 64 + 64 * 128 + 128 + 128
    assert (work.flops, work.bytes_written) == (2 * 8 * 64 * 128, 8 * 128 * 4)
    assert work.bytes_read == 4 * (8 * 64 + parameters)


def test_a_changed_input_is_written_and_a_result(root):
    kernel, shape = loaded(root, "scale_", "x=fp32[N]", {"N": 640})
    work = kernel.work(shape, "fp32")
    assert (work.bytes_read, work.bytes_written) == (640 * 4, 640 * 4)
    call, _, found = called(kernel, shape)
    assert found.passed
    assert len(call.results()) == 1
    first = call.results()[0].clone()
    call()
    assert not torch.equal(call.results()[0], first)


def test_running_means_are_results_whether_torch_counts_their_change_or_not(root):
    check = checked(root, "Normed", "x=fp32[B,64]", {"B": 32})
    assert check.compare().passed
    assert [tuple(one.shape) for one in check.calls[0].results()] == [(32, 64), (64,), (64,)]
    assert check.again(timed(check)).passed


@pytest.mark.parametrize("run", ["forward", "backward", "both"])
def test_a_module_gets_its_parameters_from_the_seal_and_agrees_with_itself(root, run):
    kernel, shape = loaded(root, "Net", "x=fp32[B,64]", {"B": 8}, run=run)
    names = [spec.name for spec in kernel.operation.inputs(shape)]
    assert names[:4] == ["x", "parameter:norm.weight", "parameter:norm.bias", "parameter:up.weight"]
    assert "buffer:offset" in names
    assert "buffer:order" not in names
    assert ("gradient:0" in names) == (run != "forward")
    call, _, found = called(kernel, shape)
    assert found.passed, found
    # x and four parameters have a gradient.
    assert len(call.results()) == {"forward": 1, "backward": 5, "both": 6}[run]
    assert all(bool(result.any()) for result in call.results())


def test_several_results_of_mixed_dtypes_are_compared_and_integers_exactly(root):
    kernel, shape = loaded(root, "gather", "table=fp16[V,64] ids=i64[B]<100 scale=0.5", {"V": 100, "B": 9})
    call, expected, found = called(kernel, shape, dtype="fp16")
    assert found.passed
    assert [tuple(one.shape) for one in call.results()] == [(9, 64), (), (9,)]
    assert int(call.inputs["ids"].max()) < 100
    other = [one.clone() for one in call.results()]
    other[2][3] += 1
    assert not compare_results(other, expected, TOLERANCES["fp16"], name="r").passed
    assert not compare_results(other[:2], expected, TOLERANCES["fp16"], name="r").passed
    other[0][0, 0] = float("nan")
    assert not compare_results(other, expected, TOLERANCES["fp16"], name="r").passed


def test_a_reference_decides_and_a_wrong_one_fails(root):
    kernel, shape = loaded(root, "swiglu", X_Y, {"B": 8}, reference="ops:swiglu_reference")
    assert called(kernel, shape)[2].passed
    kernel, shape = loaded(root, "swiglu", X_Y, {"B": 8}, reference="ops:wrong_reference")
    assert not called(kernel, shape)[2].passed


def test_a_callable_that_does_not_take_float64_needs_a_reference(root):
    kernel, shape = loaded(root, "half_only", "x=fp16[N]", {"N": 8})
    with pytest.raises(InputError, match="expected --reference"):
        called(kernel, shape, dtype="fp16")


def test_work_that_torch_does_not_see_must_be_given_or_is_that_of_the_reference(root):
    kernel, shape = loaded(root, "by_itself", "x=fp32[N]", {"N": 64})
    with pytest.raises(InputError, match=r"no operation of torch was seen.*; expected --flops N and --bytes N"):
        kernel.work(shape, "fp32")
    kernel, shape = loaded(root, "by_itself", "x=fp32[N]", {"N": 64}, reference="ops:doubled")
    work = kernel.work(shape, "fp32")
    assert (work.flops, work.bytes_read, work.bytes_written) == (0, 256, 256)


def test_input_sets_have_other_values_and_the_same_seal_the_same(root):
    kernel, shape = loaded(root, "swiglu", X_Y, {"B": 8})
    first, again, other = (called(kernel, shape, number=number)[0].inputs["x"] for number in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert 0.9 < float(first.std()) < 1.4


def checked(root, name, args, shape, *, reference=SELF):
    """Return the check of two input sets of a callable, as a measurement makes it, after its first call."""
    kernel, shape = loaded(root, name, args, shape, reference=reference)
    arguments = parse_arguments(args)
    case = CaseV2(
        kernel=f"ops:{name}", shape=shape, dtype="fp32", hardware="cpu", implementation="torch-cpu",
        config=Subject(f"ops:{name}", arguments, "forward", reference).config("given"), threads=1, arguments=arguments,
    )  # fmt: skip
    cell = cell_of(this_cpu()).model_copy(update={"case": case, "seal": SEAL})
    sets = list(sets_of(cell, kernel, count=2))
    calls = [kernel.implementations["torch-cpu"](one.inputs, one.out, {}) for one in sets]
    check = ResultCheck(cell, kernel, sets, calls, lambda start, count: sets_of(cell, kernel, count=count, start=start))
    calls[0]()
    return check


def test_a_record_holds_the_bytes_by_which_the_timer_made_sets(root):
    kernel, shape = loaded(root, "swiglu", X_Y, {"B": 8})
    check = checked(root, "swiglu", X_Y, shape)
    done = run_cell(check.cell, kernel, facts=cpu_facts(), launch_ps=None, vary=False, on_stage=lambda _: None)
    assert done.failure is None and done.timing is not None
    assert done.timing.bytes_per_set == 3 * 8 * 96 * 4


def timed(check):
    return time_cpu(check.calls, Parameters(**QUICK.parameters))


def test_an_argument_written_without_torch_seeing_it_is_a_result(root):
    check = checked(root, "into", "x=fp32[N] out=fp32[N]", {"N": 64}, reference="ops:into_reference")
    first = check.compare()
    assert (first.passed, first.elements) == (True, 64)
    assert len(check.samples(32).positions) == 32
    assert check.again(timed(check)).passed


def test_of_calls_after_a_write_the_first_may_be_slow(root, monkeypatch):
    check = checked(root, "into", "x=fp32[N] out=fp32[N]", {"N": 64}, reference="ops:into_reference")
    assert check.compare().passed
    taken = timed(check)
    warm = taken.interval.median
    cold = 2 * warm + 10_000_000
    machine = cycle([cold, warm])
    monkeypatch.setattr(
        fresh_values, "_call_ps", lambda _, calls: next(machine) if len(calls) == len(check.calls) else cold
    )
    assert check.again(taken).passed


def test_a_callable_without_a_result_fails(root):
    found = checked(root, "nothing", "x=fp32[N]", {"N": 64}).compare()
    assert not found.passed
    assert "no tensor is returned" in found.reference


@pytest.mark.parametrize("reference", ["ops:doubled", SELF])
def test_an_answer_of_another_input_set_is_found_after_the_timing(root, reference):
    # Other sizes, since the callable keeps answers for the life of its module.
    size = 48 if reference == SELF else 80
    check = checked(root, "cached", "x=fp32[N]", {"N": size}, reference=reference)
    assert check.compare().passed
    with pytest.raises(SubjectRefused, match="wrong after new values were written to the same inputs"):
        check.again(timed(check))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere:f", "not in the work tree"),
        ("ops:missing", r"cannot be loaded \(AttributeError: module 'ops' has no attribute 'missing'\)"),
        ("ops:OPS", "cannot be loaded"),
        ("ops:torch", "is of type module"),
    ],
)
def test_a_name_that_is_no_callable_is_refused(root, name, said):
    with pytest.raises(InputError, match=said):
        load_subject(Subject(name, ()), closure_named(name, root)[0])


def test_names_of_a_module_s_arguments_are_those_of_its_forward(root):
    module = attribute_of("ops:Net", closure_named("ops:Net", root)[0])
    for given in (module, type(module)):
        (argument,) = described(lambda g: g.bell(8, 64), given)
        assert argument.name == "x"
    call = bind(module, Subject("ops:Net", described("input=fp32[8,64]")), {"input": torch.zeros(8, 64)})
    assert (len(call.positional), call.named) == (1, {})


@pytest.mark.parametrize(
    ("tolerance", "said"),
    [
        ("0.06", "got 0.06 for fp16; expected a number above 0, at most 0.05"),
        ("0", "above 0"),
        ("nan", "above 0"),
        ("1e9", "lets another function's results pass"),
        ("wide", "got wide"),
        (1, "got 1"),
    ],
)
def test_a_sealed_tolerance_that_is_too_wide_is_refused(tolerance, said):
    arguments = described("x=fp16[N]")
    config = {**Subject("ops:doubled", arguments).config("counted"), "tolerance": tolerance}
    case = CaseV2(
        kernel="ops:doubled", shape={"N": 8}, dtype="fp16", hardware="cpu", implementation="torch-cpu", config=config,
        threads=1, arguments=arguments,
    )  # fmt: skip
    with pytest.raises(InputError, match=said):
        subject_of(case)
    right = case.model_copy(update={"config": {**config, "tolerance": "0.05"}})
    assert subject_of(right).tolerance == "0.05"


def test_a_tolerance_decides_whether_a_result_passes(root):
    arguments = described("x=bf16[N] y=bf16[N]")
    for tolerance, passed in (("0.15", True), ("0.001", False)):
        subject = Subject("ops:swiglu", arguments, "forward", "ops:wrong_reference", tolerance)
        kernel = load_subject(subject, closure_named("ops:swiglu ops:wrong_reference", root)[0]).kernel
        call, expected, _ = called(kernel, {"N": 512}, dtype="bf16")
        call()
        assert compare_results(call.results(), expected, kernel.tolerances["bf16"], name="r").passed == passed


def test_restoring_gives_the_first_values_again_and_a_new_call_the_first_result(root):
    kernel, shape = loaded(root, "scale_", "x=fp32[N]", {"N": 64})
    call, expected, _ = called(kernel, shape)
    for _ in range(5):
        call()
    assert not compare_results(call.results(), expected, TOLERANCES["fp32"], name="r").passed
    (fresh,) = input_sets(
        kernel.operation, shape, "fp32", seal=SEAL, cell="a", run=0, anchor=None, count=1, device="cpu"
    )
    call.restore(fresh.inputs)
    call()
    assert compare_results(call.results(), expected, TOLERANCES["fp32"], name="r").passed


OUTSIDE = """
import numpy as np
import torch


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        np.multiply(x.detach().numpy(), 2.0, out=out.numpy())
        return out

    @staticmethod
    def backward(ctx, gradient):
        return 2.0 * gradient


def doubled(x):
    return Doubled.apply(x)


def doubled_reference(x):
    return 2.0 * x
"""


def test_gradients_of_a_callable_that_torch_does_not_see_have_the_sizes_of_its_references_results(tmp_path):
    (tmp_path / "ops.py").write_text(OUTSIDE)
    kernel, shape = loaded(
        tmp_path, "doubled", "x=fp32[B,64]", {"B": 8}, run="backward", reference="ops:doubled_reference"
    )
    assert [(spec.name, spec.dims) for spec in kernel.operation.inputs(shape)] == [
        ("x", (8, 64)),
        ("gradient:0", (8, 64)),
    ]
    call, _, found = called(kernel, shape)
    assert found.passed
    assert torch.equal(call.results()[0], 2.0 * call.inputs["gradient:0"])
    kernel, shape = loaded(tmp_path, "doubled", "x=fp32[B,64]", {"B": 8}, run="backward")
    with pytest.raises(InputError, match="a --reference of them, or --pass forward"):
        kernel.operation.inputs(shape)


@triton.jit
def nothing(x_ptr):
    """Do nothing."""


def test_a_triton_kernel_is_not_launched_on_tensors_without_memory():
    before = triton.runtime.jit.JITFunction.run
    with unlaunched() as kernels:
        nothing[(1,)](torch.zeros(4, device="meta"))
    assert kernels == ["the kernel nothing"]
    assert triton.runtime.jit.JITFunction.run is before
