"""Tests the look-up among published times: exact shapes alone, medians, and what is said where there is nothing."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ledger.forecasters import lookup
from ledger.forecasters.answer import Answer, NoAnswer, Question
from ledger.kernel_files import load_kernel
from ledger.record_files import load_hardware
from ledger.workflow.question import make_question


def asked(kernel: str = "matmul", dtype: Any = "fp16", **shape: int) -> Question:
    sizes = shape or {"M": 2048, "N": 4096, "K": 4096}
    return make_question(load_kernel(kernel).kernel, load_hardware("h200"), shape=sizes, dtype=dtype)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = lookup.forecast(asked())
    assert isinstance(said, NoAnswer) and said.reason.endswith("pip install 'roofline-ledger[lookup]'")


def test_the_median_row_answers_and_every_row_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[object] = []

    def rows(folder: str, sizes: tuple[int, int, int], dtype: str) -> list[dict[str, Any]]:
        wanted.append((folder, sizes, dtype))
        return [{"framework": "VLLM", "kernel_source": "linear", "latency": ms} for ms in (0.09, 0.08, 0.2)]

    monkeypatch.setattr(lookup, "_rows", rows)
    said = lookup.forecast(asked())
    assert isinstance(said, Answer) and said.time_s == pytest.approx(90e-6)
    assert [term.value for term in said.terms] == pytest.approx([90e-6, 80e-6, 200e-6, 3])
    lookup.forecast(asked("rmsnorm_matmul", "bf16", B=8, H=4096, O=6144))
    assert wanted == [("h200_sxm", (2048, 4096, 4096), "bfloat16"), ("h200_sxm", (8, 6144, 4096), "bfloat16")]


def test_another_shape_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_rows", lambda *_: [])
    said = lookup.forecast(asked())
    assert isinstance(said, NoAnswer) and said.reason == "no published row of M=2048, N=4096, K=4096 in bfloat16"
    said = lookup.forecast(asked("vector_add", "fp32", N=1024))
    assert isinstance(said, NoAnswer) and "no product of the published tables" in said.reason
