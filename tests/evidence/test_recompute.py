"""Tests that recorded samples are recomputed from their seal, agree where they are honest and refuse where not."""

from __future__ import annotations

import math
import time
from functools import partialmethod

import attacks  # noqa: F401  (first: level_attacks enters itself into its corpus)
import level_attacks
import numpy as np
import pytest
from builders import Ledger, as_bits, forecast, honest, measurement
from samples import make_measurement

from ledger.evidence.audit import audit
from ledger.evidence.challenge import anchor_of
from ledger.evidence.recompute import disagreement, recompute, value_of
from ledger.evidence.seal_inputs import SealInputs
from ledger.operations import OPERATIONS, SAMPLE_TOLERANCES
from ledger.philox_inputs import derive_key, element_integers

SEAL = "5e" * 32


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_honest_samples_agree(dtype):
    cell = forecast(B=3, H=96, O=40, dtype=dtype)
    assert disagreement(cell, measurement(cell, seal=SEAL)) is None


def test_elements_equal_a_whole_matrix_product():
    """Work the whole operation in NumPy, from whole tensors, and compare every element."""
    shape = {"B": 3, "H": 33, "O": 5}
    operation = OPERATIONS["rmsnorm_matmul/1"]
    key = derive_key(seal=SEAL, cell="c", run=0, anchor=None)
    tensors = {}
    for number, spec in enumerate(operation.inputs(shape)):
        index = np.arange(math.prod(spec.dims), dtype=np.int64)
        k = element_integers(index, key=key, tensor=number, input_set=0, how=spec.generated.distribution)
        tensors[spec.name] = (k * 2.0**spec.generated.exponent).reshape(spec.dims)
    x, gain, weight = tensors["x"], tensors["gain"], tensors["weight"]
    y = (x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-6) * gain) @ weight
    for position in range(15):
        got = operation.element(shape, position, lambda name, i: tensors[name].ravel()[i])
        assert got == pytest.approx(y.ravel()[position], rel=1e-12)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_one_wrong_sample_disagrees(dtype):
    cell = forecast(dtype=dtype)
    honest_one = measurement(cell, seal=SEAL)
    samples = honest_one.samples
    value = value_of(samples.bits[7], dtype)
    atol, rtol = SAMPLE_TOLERANCES[dtype]
    wrong = as_bits(value + 3 * (atol + rtol * abs(value)), dtype)
    bits = (*samples.bits[:7], wrong, *samples.bits[8:])
    changed = honest_one.model_copy(update={"samples": samples.model_copy(update={"bits": bits})})
    assert "the seal's inputs give" in disagreement(cell, changed)


@pytest.mark.parametrize("bits", ["7c00", "fc00", "7e00"], ids=["inf", "minus-inf", "nan"])
def test_infinity_and_nan_disagree(bits):
    cell = forecast()
    samples = measurement(cell, seal=SEAL).samples.model_copy(update={"bits": (bits,) * 32})
    assert disagreement(cell, measurement(cell, seal=SEAL, samples=samples)) is not None


def test_values_of_another_seal_disagree_even_at_the_right_positions():
    cell = forecast()
    here, there = measurement(cell, seal=SEAL).samples, measurement(cell, seal="ab" * 32).samples
    mixed = here.model_copy(update={"bits": there.bits})
    assert disagreement(cell, measurement(cell, seal=SEAL, samples=mixed)) is not None


@pytest.mark.parametrize(
    ("bits", "dtype", "value"),
    [("3c00", "fp16", 1.0), ("bf80", "bf16", -1.0), ("40490fdb", "fp32", np.float32(np.pi)), ("3c0", "fp16", None)],
)
def test_value_of(bits, dtype, value):
    assert value_of(bits, dtype) == value


def test_audit_recomputes_when_asked(tmp_path):
    ledger, sealed = honest(tmp_path / "ledger")
    assert any("--recompute" in note for note in audit(str(ledger.root)).notes)
    result = audit(str(ledger.root), recomputed=True)
    assert result.verdict == "holds" and any("32 output samples of 1" in note for note in result.notes)
    second = ledger.seal(forecast(B=8))
    samples = measurement(second.forecast, seal=second.id).samples
    ledger.measure(second, samples=samples.model_copy(update={"bits": ("3400",) * 32}))
    assert audit(str(ledger.root)).verdict == "holds"
    refused = audit(str(ledger.root), recomputed=True)
    assert refused.verdict == "refused"
    assert [finding.code for finding in refused.findings] == ["samples-disagree"]
    states = {cell.sealed.id: (cell.state, cell.levels) for cell in refused.book.cells}
    assert states == {sealed.id: ("measured", (0, 1)), second.id: ("refused", ())}


def test_unknown_operation_is_not_provided(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    sealed = ledger.seal(forecast(operation="no_such_operation/1"))
    samples = measurement(forecast(), seal=sealed.id).samples
    ledger.measure(sealed, samples=samples)
    result = audit(str(ledger.root), recomputed=True)
    assert result.verdict == "holds" and result.book.cells[0].levels == (0,)
    assert any("not provided" in note for note in result.notes)


def test_a_shape_without_end_is_not_provided(tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    huge = forecast(B=1, H=2**40, O=2)
    sealed = ledger.seal(huge)
    samples = measurement(forecast(), seal=sealed.id).samples
    positions = tuple(0 for _ in samples.positions)
    ledger.measure(sealed, samples=samples.model_copy(update={"positions": positions}))
    start = time.perf_counter()
    assert [item.reason for item in recompute(ledger.book()).skipped] == [
        f"an axis of {2**40} elements; at most {2**24}"
    ]
    assert time.perf_counter() - start < 5


@pytest.mark.slow
def test_a_cell_of_8192_squared_takes_seconds():
    cell = forecast(B=128, H=8192, O=8192)
    record = measurement(cell, seal=SEAL)
    start = time.perf_counter()
    assert disagreement(cell, record) is None
    assert time.perf_counter() - start < 30


# Rows of inputs, made a block at a time


def test_inputs_are_what_the_device_holds():
    """Scales of block-scaled fp8 are fp32, whatever the dtype of the cell."""
    torch = pytest.importorskip("torch", reason="a device fills tensors")
    from ledger.measure.inputs import input_sets

    operation, shape = OPERATIONS["matmul_fp8_blocks/1"], {"M": 3, "N": 140, "K": 272}
    cell = forecast(dtype="fp8_e4m3")
    bare = bare_measurement(cell)
    read = SealInputs(operation, shape, bare)
    made = next(
        input_sets(
            operation, shape, "fp8_e4m3", seal=bare.seal, cell=bare.cell, run=0, anchor=None, count=1, device="cpu"
        )
    )
    for name, tensor in made.inputs.items():
        held = tensor.to(torch.float64).reshape(-1).numpy()
        assert held.any() and (read(name, np.arange(held.size)) == held).all(), name


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp8_e4m3", "int8"])
def test_inputs_of_any_index_are_the_elements_one_by_one(dtype):
    """Compare runs, strided and single elements with the definition, rounded as torch rounds."""
    torch = pytest.importorskip("torch", reason="the dtypes of a device are torch's")
    held = {"fp8_e4m3": torch.float8_e4m3fn, "int8": torch.int8, "fp16": torch.float16, "bf16": torch.bfloat16}
    cell = forecast(B=5, H=300, O=37, dtype=dtype)
    read = SealInputs(OPERATIONS["rmsnorm_matmul/1"], cell.case.shape, bare_measurement(cell))
    key = derive_key(seal=SEAL, cell=cell.cell, run=0, anchor=None)
    indices = [
        np.arange(300),
        np.arange(17, 29),
        np.arange(20)[:, None] * 37 + np.arange(37),
        np.arange(300) * 37 + 5,
        np.array([3]),
        np.array([2**40 + 5, 2**40 + 6]),
        2**36 - 24 + np.arange(40),
        np.arange(3 * 8192 * 16) + 7,
    ]
    specs = {
        spec.name: (number, spec.generated)
        for number, spec in enumerate(OPERATIONS["rmsnorm_matmul/1"].inputs(cell.case.shape))
    }
    for name, (number, generated) in specs.items():
        for index in indices:
            k = element_integers(index, key=key, tensor=number, input_set=0, how=generated.distribution)
            exact = torch.from_numpy(k * 2.0**generated.exponent).to(held.get(dtype, torch.float32))
            assert np.array_equal(read(name, index), exact.to(torch.float64).numpy()), (name, index[:3])


def bare_measurement(cell):
    """Return a measurement whose samples nobody looks at."""
    return make_measurement(cell, seal=SEAL)


@pytest.mark.parametrize("bits", range(256))
def test_value_of_eight_bits_is_torchs(bits):
    torch = pytest.importorskip("torch", reason="torch holds the eight-bit dtypes")
    byte = torch.tensor([bits], dtype=torch.uint8)
    for dtype, kind in (("fp8_e4m3", torch.float8_e4m3fn), ("int8", torch.int8)):
        expected = float(byte.view(kind).to(torch.float64)[0])
        assert value_of(f"{bits:02x}", dtype) == pytest.approx(expected, abs=0, nan_ok=True)
    assert value_of("3c00", "int8") is None


# What the samples say


def audited(folder, build, **options):
    return audit(str(build(folder, folder / "canary")), recomputed=True, **options)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (level_attacks.too_few_samples, "8 samples of 128 elements; expected 16, or all elements of a smaller output"),
        (level_attacks.no_samples, "0 samples of 128 elements; expected 16, or all elements of a smaller output"),
        (level_attacks.output_that_does_not_depend_on_its_input, "the output does not depend on its inputs"),
        (level_attacks.more_samples_than_are_recomputed, "5000 samples; at most 4096"),
        (level_attacks.axis_too_long_to_recompute, f"an axis of {2**25} elements; at most {2**24}"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_not_recomputed_is_named_with_its_reason(tmp_path, build, reason):
    result = audited(tmp_path / "ledger", build)
    (cell,) = result.book.cells
    assert f"{cell.short_name}: {reason}" in result.notes
    assert "positions only, no level 1: 1 measurement, not provided:" in result.notes
    assert cell.levels == (0,) and cell.binding != "recomputed"


@pytest.mark.parametrize(
    "build",
    [level_attacks.small_output, level_attacks.rows_of_softmax, level_attacks.eight_bits("fp8_e4m3")],
    ids=lambda build: build.__name__,
)
def test_honest_samples_of_odd_outputs_reach_level_1(tmp_path, build):
    (cell,) = audited(tmp_path / "ledger", build).book.cells
    assert (cell.levels, cell.binding) == ((0, 1), "recomputed")


@pytest.mark.parametrize("build", [level_attacks.no_samples, level_attacks.output_that_does_not_depend_on_its_input])
def test_a_challenge_is_not_answered_by_samples_that_say_nothing(tmp_path, build, monkeypatch):
    """Carry the challenge's anchor with no samples, or with those of a constant output."""
    text = "a text that nobody knew before"
    anchored = partialmethod(Ledger.measure, anchor=anchor_of(text))
    monkeypatch.setattr(Ledger, "measure", anchored)
    key = level_attacks.derive_key
    monkeypatch.setattr(level_attacks, "derive_key", lambda **given: key(**{**given, "anchor": anchor_of(text)}))
    result = audited(tmp_path / "ledger", build, challenge=text)
    assert result.verdict == "holds"
    assert [answer.proven for answer in result.answers] == [False]
