"""Tests that generated tensors equal the definition in philox_inputs, element by element."""

import math

import numpy as np
import pytest
from measuring import SEAL

from ledger import philox_inputs as binding
from ledger.operations import MATMUL, MATMUL_FP8, MATMUL_INT8, TensorSpec

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be generated")
KEY = binding.derive_key(seal=SEAL, cell="c", run=0, anchor=None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("how", ["symmetric", "positive"])
@pytest.mark.parametrize("dims", [(1,), (16,), (7, 13), (3, 32)])
def test_fill_equals_binding_element_by_element(dtype, how, dims):
    from ledger.measure.inputs import fill

    spec = TensorSpec("x", dims, binding.Generated(how, -7))
    got = fill(spec, key=KEY, number=2, sets=range(3, 6), dtype=dtype, device="cpu")
    for index_of_set, input_set in enumerate(range(3, 6)):
        index = np.arange(math.prod(dims), dtype=np.int64)
        k = binding.element_integers(index, key=KEY, tensor=2, input_set=input_set, how=how)
        assert np.array_equal(got[index_of_set].double().numpy().ravel(), k * 2.0**-7)


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
