"""Tests the operations with a bias, in fp8 and in int8: elements, samples of another dtype than the inputs, traffic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from builders import as_bits, measurement
from samples import make_forecast

from ledger.canonical import cell_key
from ledger.evidence import seal_checks
from ledger.evidence.recompute import disagreement, value_of
from ledger.evidence.seal_checks import bound_to_their_seals, claims
from ledger.operations import OPERATIONS
from ledger.philox_inputs import derive_key, element_integers
from ledger.records import Case, Forecast, Samples, Work

SEAL = "5e" * 32
SHAPE = {"M": 3, "N": 5, "K": 33}
CELLS = [
    ("matmul_bias_relu", "fp16"),
    ("matmul_bias_relu", "bf16"),
    ("matmul_fp8", "fp8_e4m3"),
    ("matmul_int8", "int8"),
]
OUTPUT = {"fp8_e4m3": "fp16", "int8": "fp32"}


def product_forecast(name: str, dtype: Any, work: Work | None = None) -> Forecast:
    case = Case(kernel=name, shape=SHAPE, dtype=dtype, hardware="toy", implementation="triton", config={}, threads=None)
    fields: dict[str, Any] = {} if work is None else {"work": work}
    return make_forecast(case=case, cell=cell_key(case), operation=f"{name}/1", **fields)


def tensors(name: str) -> dict[str, np.ndarray]:
    key = derive_key(seal=SEAL, cell="c", run=0, anchor=None)
    made = {}
    for number, spec in enumerate(OPERATIONS[f"{name}/1"].inputs(SHAPE)):
        index = np.arange(math.prod(spec.dims), dtype=np.int64)
        k = element_integers(index, key=key, tensor=number, input_set=0, how=spec.generated.distribution)
        made[spec.name] = (k * 2.0**spec.generated.exponent).reshape(spec.dims)
    return made


@pytest.mark.parametrize("name", ["matmul_bias_relu", "matmul_fp8", "matmul_int8"])
def test_elements_equal_a_whole_product(name: str) -> None:
    given = tensors(name)
    if name == "matmul_bias_relu":
        whole = np.maximum(given["a"] @ given["b"] + given["bias"], 0.0)
        assert (whole == 0).any() and (whole > 0).any()
    else:
        # bit length of 33 is 6: w = -9 - 3 = -12.
        whole = given["a"] @ given["b"].T * 2.0 ** {"matmul_fp8": -11, "matmul_int8": -17}[name]
    element = OPERATIONS[f"{name}/1"].element
    for position in range(15):
        got = element(SHAPE, position, lambda tensor, i: given[tensor].ravel()[i])
        assert got == pytest.approx(whole.ravel()[position], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("name", "dtype"), CELLS)
def test_honest_samples_are_of_the_outputs_dtype_and_agree(name: str, dtype: str) -> None:
    cell = product_forecast(name, dtype)
    found = measurement(cell, seal=SEAL)
    assert found.samples is not None and found.samples.dtype == OUTPUT.get(dtype, dtype)
    assert disagreement(cell, found) is None
    assert bound_to_their_seals([(cell, found)]) == {0}


@pytest.mark.parametrize("few", [0, 1 << 10], ids=["by numpy", "one by one"])
def test_positions_are_drawn_alike_one_by_one_and_by_numpy(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(seal_checks, "_FEW", few)
    cell = product_forecast(*CELLS[0])
    honest = measurement(cell, seal=SEAL)
    assert honest.samples is not None
    first, *rest = honest.samples.positions
    moved = honest.samples.model_copy(update={"positions": (first ^ 1, *rest)})
    other = honest.model_copy(update={"samples": moved})
    assert bound_to_their_seals([(cell, honest), (cell, other), (cell, honest)]) == {0, 2}


@pytest.mark.parametrize(("name", "dtype"), CELLS)
def test_one_wrong_sample_disagrees(name: str, dtype: str) -> None:
    cell = product_forecast(name, dtype)
    honest = measurement(cell, seal=SEAL)
    samples, written = honest.samples, OUTPUT.get(dtype, dtype)
    assert samples is not None
    value = value_of(samples.bits[7], written)  # type: ignore[arg-type]
    assert value is not None
    bits = (*samples.bits[:7], as_bits(value + 0.05, written), *samples.bits[8:])
    wrong = honest.model_copy(update={"samples": samples.model_copy(update={"bits": bits})})
    assert "the seal's inputs give" in str(disagreement(cell, wrong))


@pytest.mark.parametrize(("name", "dtype"), [cell for cell in CELLS if cell[1] in OUTPUT])
def test_samples_of_the_inputs_dtype_do_not_follow_the_seal(name: str, dtype: Any) -> None:
    cell = product_forecast(name, dtype)
    honest = measurement(cell, seal=SEAL)
    assert honest.samples is not None
    short = Samples(dtype=dtype, positions=honest.samples.positions, bits=tuple(b[:2] for b in honest.samples.bits))
    assert bound_to_their_seals([(cell, honest.model_copy(update={"samples": short}))]) == set()


@pytest.mark.parametrize(
    ("name", "dtype", "work"),
    [
        ("matmul_bias_relu", "fp16", Work(flops=1020, bytes_read=2 * (99 + 165 + 5), bytes_written=30)),
        ("matmul_fp8", "fp8_e4m3", Work(flops=990, bytes_read=99 + 165, bytes_written=30)),
        ("matmul_int8", "int8", Work(flops=990, bytes_read=99 + 165, bytes_written=60)),
    ],
)
def test_claimed_traffic_counts_the_output_in_its_own_dtype(name: str, dtype: str, work: Work) -> None:
    assert [found.code for found in claims(product_forecast(name, dtype, work), None)] == []
    other = work.model_copy(update={"bytes_written": 15})
    assert [found.code for found in claims(product_forecast(name, dtype, other), None)] == ["work-unlike-operation"]
