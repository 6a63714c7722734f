"""Traces the inside of kernels with Proton: on a GPU; elsewhere the instrumented source is compiled ahead of time."""

import gzip
import json

import pytest

from ledger.errors import InputError
from ledger.kernel_files import load_kernel
from ledger.record_files import load_hardware

pytest.importorskip("triton", reason="triton is not installed: nothing can be instrumented")
pytest.importorskip("torch", reason="torch is not installed: launchers cannot be run")
PRODUCT = {"M": 4096, "N": 4096, "K": 4096}


def test_cuda_is_refused_by_name():
    from ledger.measure.inside import _entry
    from ledger.records import CaseV2

    kernel, hardware = load_kernel("rmsnorm_matmul", launch=True).kernel, load_hardware("h200")
    shape = {"B": 32, "H": 4096, "O": 4096}
    config = kernel.config(shape, "fp16", "sm_90")
    assert str(config["variant"]).startswith("cuda")
    case = CaseV2(kernel=kernel.name, shape=shape, dtype="fp16", hardware=hardware.name, implementation="triton",
                  config=dict(config), threads=None, arguments=None)  # fmt: skip
    with pytest.raises(InputError, match=r"its variant is CUDA C\+\+, in which Proton has no scopes; expected Triton"):
        _entry(kernel, case, "sm_90")


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "functions"),
    [
        ("matmul", PRODUCT, "fp16", {"gemm_pipelined", "_multiply_tiles", "_load_tiles"}),
        ("rmsnorm", {"M": 4096, "N": 4096}, "bf16", {"rmsnorm_kernel", "reduce_rows", "_one_row", "_whole_rows"}),
        ("vector_add", {"N": 2**20}, "fp32", {"vector_add_kernel"}),
    ],
)
def test_scopes_are_in_the_source_inside_the_block_alone(name, shape, dtype, functions):
    from ledger.analysis.kernel_scopes import MODULE
    from ledger.measure.inside import _with_phases, with_scopes

    kernel = load_kernel(name, launch=True).kernel
    entry = kernel.ahead(kernel.config(shape, dtype, "sm_90"), shape, dtype, "sm_90").function
    found = _with_phases(entry)
    before = [(one.src, one.cache_key) for one in found]
    with with_scopes(entry) as (scopes, names):
        assert set(names) == functions
        assert sum(one.src.count(f"{MODULE}.enter_scope") for one in found) == len(scopes)
        assert {kind for kind in scopes.values() if kind} >= {"load", "store"}
    assert [(one.src, one.cache_key) for one in found] == before
    assert not any(MODULE in one.fn.__globals__ for one in found)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "shape", "dtype", "kinds"),
    [
        ("matmul", PRODUCT, "fp16", {"load", "wait", "multiply", "store"}),
        ("rmsnorm", {"M": 4096, "N": 4096}, "bf16", {"load", "store"}),
        ("vector_add", {"N": 2**22}, "fp32", {"load", "store"}),
    ],
)
def test_a_trace_of_the_inside_has_the_phases_of_each_warp(name, shape, dtype, kinds, tmp_path):
    from measuring import this_gpu

    from ledger.measure.inside import record_inside

    path = tmp_path / "inside.json.gz"
    found = record_inside(load_kernel(name, launch=True), (shape, dtype), hardware=this_gpu(), path=path)
    assert {one.kind for one in found.scopes} - {None} == kinds
    assert all(one.clocks >= 0 and one.count >= one.ctas for one in found.scopes)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert len(events) >= sum(one.count for one in found.scopes)
    if name == "matmul":
        work, (flops,) = load_kernel(name).kernel.work(shape, dtype), {one.flops for one in found.scopes if one.flops}
        assert flops * 132 == pytest.approx(work.flops)
        # Loads and products are in different warps of a warp-specialised kernel.
        loads = [one for one in found.scopes if one.name.startswith("_load_tiles load")]
        products = [one for one in found.scopes if one.kind == "multiply"]
        assert {one.warps for one in loads} == {1} and {one.warps for one in products} == {8}
