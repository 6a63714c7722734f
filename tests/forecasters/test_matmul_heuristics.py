"""Tests what surrounds nvidia-matmul-heuristics: the guard of its precisions and the correction of its times."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ledger.forecasters import matmul_heuristics as forecaster
from ledger.forecasters.answer import Answer, NoAnswer, Question
from ledger.kernel_files import load_kernel
from ledger.record_files import load_hardware
from ledger.workflow.question import make_question


def asked(kernel: str, dtype: Any = "fp16", hw: str = "h200", **shape: int) -> Question:
    return make_question(load_kernel(kernel).kernel, load_hardware(hw), shape=shape, dtype=dtype)


LARGE = {"M": 4096, "N": 4096, "K": 4096}


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvMatmulHeuristics", None)
    said = forecaster.forecast(asked("matmul", **LARGE))
    assert isinstance(said, NoAnswer) and said.reason.endswith("pip install 'roofline-ledger[heuristics]'")


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (asked("matmul_fp8", "fp8_e4m3", **LARGE), "no product in fp16 or bf16"),
        (asked("vector_add", "fp32", N=1024), "no product"),
        (asked("matmul", hw="t4", **LARGE), "does not know t4"),
    ],
    ids=["precision", "kernel", "gpu"],
)
def test_what_it_does_not_know_is_never_passed_on(question: Question, words: str) -> None:
    said = forecaster.forecast(question)
    assert isinstance(said, NoAnswer) and words in said.reason


def test_static_latency_and_clock_are_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """156.2 µs as shipped: (156.2 - 10) · 1.92 / 1.55 + 1.2 = 182.3; where memory limits the clock stays."""
    monkeypatch.setattr(forecaster, "_asked", lambda gpu: SimpleNamespace(gpu=gpu))
    monkeypatch.setattr(forecaster, "_best", lambda found, sizes, precision: (156.2e-6, f"{found.gpu} {precision}"))
    large = forecaster.forecast(asked("matmul", **LARGE))
    assert isinstance(large, Answer) and large.time_s == pytest.approx(182.3e-6, rel=1e-3)
    assert large.assumes == ("H200_SXM HSH",)
    skinny = forecaster.forecast(asked("rmsnorm_matmul", "bf16", B=8, H=8192, O=8192))
    assert isinstance(skinny, Answer) and skinny.time_s == pytest.approx(147.4e-6)
    assert skinny.assumes == ("H200_SXM TST", "the product alone")


def test_the_package_itself_answers_where_it_is_installed() -> None:
    pytest.importorskip("nvMatmulHeuristics", reason="nvidia-matmul-heuristics is not installed")
    said = forecaster.forecast(asked("matmul", **LARGE))
    assert isinstance(said, Answer) and 100e-6 < said.time_s < 300e-6
    assert forecaster.distributions()[0].name == forecaster.PACKAGE
