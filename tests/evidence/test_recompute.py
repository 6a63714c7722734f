"""Tests that recorded samples are recomputed from their seal, agree where they are honest and refuse where not."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from builders import Ledger, as_bits, forecast, honest, measurement

from ledger.evidence.audit import audit
from ledger.evidence.recompute import disagreement, recompute, value_of
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
    assert recompute(ledger.book()).not_provided == 1
    assert time.perf_counter() - start < 5


@pytest.mark.slow
def test_a_cell_of_8192_squared_takes_seconds():
    cell = forecast(B=128, H=8192, O=8192)
    record = measurement(cell, seal=SEAL)
    start = time.perf_counter()
    assert disagreement(cell, record) is None
    assert time.perf_counter() - start < 30
