"""Tests what counting a callable's work leaves out: kernels of Triton are not launched, unknown products are named."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("torch and triton are not both installed", allow_module_level=True)

import torch
import triton
from triton.runtime.jit import JITFunction

from ledger.callables.argument_list import parse_arguments
from ledger.callables.counted_work import Counted, count, input_specs
from ledger.callables.subject import Subject
from ledger.errors import CannotRun
from ledger.kernels import matmul, vector_add


@triton.jit
def copied(x_ptr, y_ptr):
    pass


@triton.autotune(configs=[triton.Config({})], key=[])
@triton.jit
def tuned(x_ptr, y_ptr):
    pass


def launching(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    copied[(1,)](x, y)
    tuned[(1,)](x, y)
    return y + 1


def counted(function: Any, arguments: str) -> Counted:
    subject = Subject("a:f", parse_arguments(arguments))
    return count(function, subject, input_specs(function, subject, {}))


def test_kernels_of_triton_are_named_and_not_launched_on_meta_tensors():
    before = JITFunction.run
    found = counted(launching, "x=fp32[64]")
    assert found.unseen == ("the kernel copied", "the kernel tuned")
    # What is known without them stays known.
    assert (found.work.bytes_read, found.work.bytes_written, found.elements) == (256, 256, 64)
    assert JITFunction.run is before


def test_shipped_kernels_have_products_that_torch_counts():
    found = counted(lambda a, b: matmul(a, b).relu(), "a=fp16[3,5] b=fp16[5,7]")
    assert (found.work.flops, found.unseen) == (2 * 3 * 5 * 7, ())
    assert counted(vector_add, "a=fp32[8] b=fp32[8]").unseen == ()


def test_an_operation_of_another_package_is_no_operation_of_zero_flop():
    @torch.library.custom_op("ledger_test::product", mutates_args=())
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    @product.register_fake
    def _(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.new_empty(a.shape[0], b.shape[1])

    found = counted(lambda a, b: product(a, b), "a=fp32[3,5] b=fp32[5,7]")
    assert found.unseen == ("ledger_test.product.default",)


MLP = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU())


@pytest.mark.parametrize("arguments", ["x=fp16[64,512]", "x=bf16[2,64,512]"])
def test_a_module_of_another_dtype_than_its_input_is_refused(arguments: str):
    """On meta tensors torch does not look at the dtypes of a product."""
    said = rf"multiplies (fp16|bf16) by fp32.* \(parameters are fp32, x is {arguments[2:6]}\); .* half\(\)"
    with pytest.raises(CannotRun, match=said):
        counted(MLP, arguments)


def test_matrices_of_two_dtypes_are_refused():
    with pytest.raises(CannotRun, match=r"aten.mm multiplies fp16 by fp32.*a is fp16, b is fp32"):
        counted(lambda a, b: a @ b, "a=fp16[4,8] b=fp32[8,2]")


def test_mixed_precision_that_torch_takes_is_counted():
    def cast(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return MLP(x)  # type: ignore[no-any-return]

    assert counted(cast, "x=fp16[64,512]").work.flops == 2 * 64 * 512 * 512
    norm = torch.nn.RMSNorm(512)
    assert counted(lambda x, w: norm(x).to(w.dtype) @ w, "x=bf16[64,512] w=bf16[512,8]").work.flops > 0
    assert counted(torch.nn.RMSNorm(512), "x=bf16[64,512]").work.flops == 0
    product = "a=fp16[4,8] b=fp16[8,2]"
    assert counted(lambda a, b: torch.mm(a, b, out_dtype=torch.float32), product).work.flops == 128
