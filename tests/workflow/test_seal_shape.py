"""Tests that a kernel cannot seal a shape whose keys are not those of its operation."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from samples import callable_case, make_forecast

from ledger.errors import InputError
from ledger.kernel_files import load_kernel
from ledger.operations import MATMUL
from ledger.records import Work
from ledger.workflow.seal import _check_work, check_distinct


def test_extra_shape_key_is_bad_input_at_the_seal():
    kernel = load_kernel("matmul", None).kernel
    work = Work(flops=2 * 64**3, bytes_read=16_384, bytes_written=8_192)
    shape = {"M": 64, "N": 64, "K": 64}
    _check_work(kernel, shape, work)
    wider = replace(kernel, operation=replace(MATMUL, shape_keys=(*MATMUL.shape_keys, "X")))
    with pytest.raises(InputError, match="shape keys are K,M,N,X; matmul/1 has M,N,K"):
        _check_work(wider, {**shape, "X": 1}, work)


def test_a_cell_that_occurs_twice_is_refused_with_the_reason():
    def drafts(*cases):
        return [SimpleNamespace(forecast=make_forecast(case=case, cell="one")) for case in cases]

    case, wide = (callable_case(f"x=fp16[B,{size}]", B=256) for size in (64, 1024))
    with pytest.raises(InputError, match=r"occurs twice, on toy and h200, .* expected one campaign a device"):
        check_distinct(drafts(case, case.model_copy(update={"hardware": "h200"})))
    with pytest.raises(InputError, match=r"with other arguments, .* expected the sizes that vary in shape"):
        check_distinct(drafts(case, wide))
    with pytest.raises(InputError, match="duplicated in the campaign; expected each cell once"):
        check_distinct(drafts(case, case.model_copy()))
