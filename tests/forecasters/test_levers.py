"""Tests what would have to change to move a forecast, on cells whose limit is plain."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.forecasters import analytic
from ledger.forecasters.answer import Question
from ledger.forecasters.levers import FASTER, lever_of
from ledger.kernel_files import load_kernel
from ledger.record_files import load_hardware
from ledger.workflow.question import make_question

H200 = load_hardware("h200")


def asked(kernel: str, dtype: Any = "fp16", **shape: int) -> Question:
    return make_question(load_kernel(kernel).kernel, H200, shape=shape, dtype=dtype)


def test_a_streaming_kernel_is_moved_by_dram_alone() -> None:
    lever = lever_of(asked("vector_add", "fp32", N=2**28))
    assert (lever.binding, lever.name) == ("DRAM", "DRAM")
    assert lever.saved == pytest.approx(1 - 1 / FASTER, abs=0.01)


def test_a_large_product_is_moved_by_its_tensor_cores() -> None:
    lever = lever_of(asked("matmul", M=8192, N=8192, K=8192))
    assert (lever.binding, lever.name) == ("SMs: tensor", "tensor")
    assert lever.saved > 0.1


def test_a_short_kernel_is_moved_by_its_launch() -> None:
    lever = lever_of(asked("vector_add", "fp32", N=1024))
    assert lever.name == "launch and ends" and lever.binding == "launch and ends"


def test_a_nearly_empty_last_wave_is_named() -> None:
    """17 x 8 CTAs on 132 SMs are 1.03 waves: of the two that are paid nearly one is idle."""
    question = asked("matmul", M=17 * 128, N=8 * 128, K=16384)
    case = question.case.model_copy(
        update={
            "config": {
                **question.case.config, "block_m": 128, "block_n": 128, "stream_k": 0, "split_k": 1, "swap_ab": 0,
            }
        }
    )  # fmt: skip
    question = Question(case, question.work, question.roof, question.hardware)
    assert analytic.cost(question).waves == pytest.approx(136 / 132)
    lever = lever_of(question)
    assert lever.name == "waves" and lever.saved > 0.3
