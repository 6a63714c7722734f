"""Tests that shipped kernels count what their operations are, and that nobody seals more than an operation can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.errors import InputError
from ledger.kernel import kernel_names, load_kernel
from ledger.model import workload
from ledger.model.campaign import Request
from ledger.model.workload import elements, excess, usual_flops
from ledger.operations import MATMUL, OPERATIONS, RMSNORM
from ledger.records import Work
from ledger.repository.sealing import draft
from ledger.roofline import DTYPE_BYTES

ROOT = Path(__file__).parent.parent
CASES = [(name, shape, dtype) for name in kernel_names() for shape in load_kernel(name).kernel.cases
         for dtype in load_kernel(name).kernel.dtypes]  # fmt: skip


def test_every_operation_tells_its_products():
    assert set(workload._PRODUCTS) == set(OPERATIONS)


@pytest.mark.parametrize(("name", "shape", "dtype"), CASES, ids=lambda part: str(part).replace(" ", ""))
def test_shipped_work_models_are_those_of_their_operations(name, shape, dtype):
    kernel = load_kernel(name).kernel
    operation, work = OPERATIONS[kernel.operation.name], kernel.work(shape, dtype)
    inputs, outputs = elements(operation, shape)
    assert work.bytes_read == DTYPE_BYTES[dtype] * inputs
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
    (tmp_path / "kernels").mkdir()
    path = tmp_path / "kernels" / "matmul.py"
    source = (ROOT / "kernels" / "matmul.py").read_text()
    path.write_text(source)
    request = Request(
        kernel="matmul",
        hardware="h200",
        dtype="fp16",
        shape={"M": 64, "N": 64, "K": 64},
        regime="compute-bound",
        pct=90.0,
    )
    assert draft(request, root=tmp_path).forecast.work.flops == 2 * 64**3
    path.write_text(source.replace("flops=2 * m * n * k", "flops=200 * m * n * k"))
    with pytest.raises(InputError, match=r"kernel matmul: its work model says .* computed"):
        draft(request, root=tmp_path)
