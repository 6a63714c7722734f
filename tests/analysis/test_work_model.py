"""Tests that shipped kernels count what their operations are, and that nobody seals more than an operation can be."""

from __future__ import annotations

import math
import shutil

import pytest
from loaded_kernels import load_kernel
from mutants.checker import source_file

from ledger.analysis.campaign import Request
from ledger.analysis.work_model import elements, excess, usual_flops
from ledger.errors import InputError
from ledger.kernel_files import kernel_names
from ledger.operations import MATMUL, OPERATIONS, RMSNORM
from ledger.records import Work
from ledger.roofline import DTYPE_BYTES, ELEMENT_BYTES
from ledger.workflow.seal import draft

CASES = [(name, shape, dtype) for name in kernel_names() for shape in load_kernel(name).kernel.cases
         for dtype in load_kernel(name).kernel.dtypes]  # fmt: skip


# Worked by hand on sizes that share no factor, in the order of docs/format.md.
PRODUCTS = {
    "rmsnorm_matmul/1": ({"B": 2, "H": 3, "O": 5}, 30),
    "matmul/1": ({"M": 2, "N": 3, "K": 5}, 30),
    "matmul_bias_relu/1": ({"M": 2, "N": 3, "K": 5}, 30),
    "matmul_fp8/1": ({"M": 2, "N": 3, "K": 5}, 30),
    "matmul_fp8_blocks/1": ({"M": 2, "N": 3, "K": 5}, 30),
    "matmul_int8/1": ({"M": 2, "N": 3, "K": 5}, 30),
    "vector_add/1": ({"N": 7}, 0),
    "rmsnorm/1": ({"M": 2, "N": 3}, 0),
    "layernorm/1": ({"M": 2, "N": 3}, 0),
    "softmax/1": ({"M": 2, "N": 3}, 0),
    "gemv/1": ({"N": 3, "K": 5}, 15),
    # Scores and values: for each of B·HQ·S (·S) pairs, D multiply-adds each.
    "decode_attention/1": ({"B": 2, "HQ": 6, "HKV": 3, "S": 5, "D": 7}, 840),
    "flash_attention/1": ({"B": 2, "HQ": 6, "HKV": 3, "S": 5, "D": 7}, 4200),
    # The lower triangle has 15 of the 25 pairs.
    "flash_attention_causal/1": ({"B": 2, "HQ": 6, "HKV": 3, "S": 5, "D": 7}, 2520),
    # Scores over 512 + 64, values over 512.
    "mla_decode/1": ({"B": 2, "H": 3, "S": 5}, 32640),
}


def test_every_operation_tells_its_products():
    assert {name: operation.products(PRODUCTS[name][0]) for name, operation in OPERATIONS.items()} == {
        name: products for name, (_, products) in PRODUCTS.items()
    }


@pytest.mark.parametrize(("name", "shape", "dtype"), CASES, ids=lambda part: str(part).replace(" ", ""))
def test_shipped_work_models_are_those_of_their_operations(name, shape, dtype):
    kernel = load_kernel(name).kernel
    operation, work = OPERATIONS[kernel.operation.name], kernel.work(shape, dtype)
    outputs = elements(operation, shape)[1]
    read = sum(math.prod(spec.dims) * ELEMENT_BYTES[spec.dtype or dtype] for spec in operation.inputs(shape))
    assert work.bytes_read == read
    assert work.bytes_written == DTYPE_BYTES[operation.output_dtype(dtype)] * outputs
    assert 0 < work.flops <= usual_flops(operation, shape)
    assert excess(operation, shape, work) is None


def test_limits_are_as_worked_by_hand():
    # M=2, N=3, K=5: 10 + 15 elements in, 6 out, 30 multiply-adds: 2·30 + 15 + 32·31 = 1067 operations usually.
    shape = {"M": 2, "N": 3, "K": 5}
    assert elements(MATMUL, shape) == (25, 6) and usual_flops(MATMUL, shape) == 1067
    most = Work(flops=4 * 1067, bytes_read=200, bytes_written=48)
    assert excess(MATMUL, shape, most) is None
    for name, words in (("flops", "computed"), ("bytes_read", "read"), ("bytes_written", "written")):
        more = most.model_copy(update={name: getattr(most, name) + 1})
        assert f" {words}; matmul/1 of this shape" in (excess(MATMUL, shape, more) or "")
    # No product: 4 + 2 elements in, 4 out.
    assert usual_flops(RMSNORM, {"M": 2, "N": 2}) == 320


def test_a_kernel_that_inflates_its_work_cannot_be_sealed(tmp_path):
    path = tmp_path / "kernels" / "matmul" / "__init__.py"
    shutil.copytree(source_file("matmul").parent, path.parent)
    source = path.read_text()
    request = Request(
        kernel="matmul",
        hardware="h200",
        dtype="fp16",
        shape={"M": 64, "N": 64, "K": 64},
        regime="compute-bound",
        pct=90.0,
    )
    assert draft(request, root=tmp_path).forecast.work.flops == 2 * 64**3
    inflated = "lambda shape, dtype: work(shape, dtype).model_copy(update={'flops': 200 * 64**3})"
    path.write_text(
        f"{source}\nfrom dataclasses import replace\n\nwork = KERNEL.work\nKERNEL = replace(KERNEL, work={inflated})\n"
    )
    with pytest.raises(InputError, match=r"kernel matmul: its work model says .* computed"):
        draft(request, root=tmp_path)
