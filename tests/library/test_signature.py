"""Tests that a call's shape follows from its tensors, and that sizes which do not fit are refused."""

from __future__ import annotations

import pytest

from ledger.errors import InputError
from ledger.kernel_files import kernel_names, load_kernel
from ledger.library.signature import signature_of


@pytest.mark.parametrize("name", kernel_names())
def test_signature_gives_back_the_shape_of_the_operations_own_inputs(name: str):
    operation = load_kernel(name).kernel.operation
    signature = signature_of(name, operation)
    for case in load_kernel(name).kernel.cases:
        assert signature.shape_of([spec.dims for spec in operation.inputs(case)]) == case


def test_signature_knows_keys_constants_rows_and_vectors():
    found = {name: signature_of(name, load_kernel(name).kernel.operation) for name in kernel_names()}
    assert found["rmsnorm_matmul"].inputs == (("x", ("B", "H")), ("gain", ("H",)), ("weight", ("H", "O")))
    assert found["mla_decode"].inputs == (("q", ("B", "H", 576)), ("cache", ("B", "S", 576)))
    assert found["mla_decode"].output == ("B", "H", 512)
    rows = {name for name, one in found.items() if one.rows}
    assert rows == {
        "rmsnorm", "layernorm", "softmax", "rmsnorm_matmul", "matmul", "matmul_bias_relu", "matmul_fp8", "matmul_int8",
    }  # fmt: skip
    assert [name for name, one in found.items() if one.flat] == ["vector_add"]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (((2, 3), (3,), (4, 5)), r"weight has shape \(4, 5\); expected \(H, O\) with H=3, as x has"),
        (((2, 3), (3, 1), (3, 5)), r"gain has shape \(3, 1\); expected \(H\)"),
        (((0, 3), (3,), (3, 5)), r"x has shape \(0, 3\); expected \(B, H\), B at least 1"),
    ],
)
def test_signature_refuses_sizes_that_do_not_fit(sizes, message):
    signature = signature_of("rmsnorm_matmul", load_kernel("rmsnorm_matmul").kernel.operation)
    with pytest.raises(InputError, match=message):
        signature.shape_of(sizes)


def test_signature_refuses_another_constant():
    signature = signature_of("mla_decode", load_kernel("mla_decode").kernel.operation)
    with pytest.raises(InputError, match=r"cache has shape \(1, 7, 512\); expected \(B, S, 576\)"):
        signature.shape_of(((1, 2, 576), (1, 7, 512)))
