"""Tests what is known of callables: products by arguments and work, other kinds by their names."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from examples.third_party.table import entries
from ledger.callables.argument_list import parse_arguments
from ledger.callables.subject_files import tensor_path
from ledger.forecasters import analytic, lookup, matmul_heuristics
from ledger.forecasters.answer import Answer, Question
from ledger.forecasters.calls import KINDS, OTHER, ROWS, Product, described, product_of
from ledger.record_files import load_hardware
from ledger.records import CaseV2, Work
from ledger.roofline import roof_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FORWARD: dict[str, int | str] = {"pass": "forward", "reference": "self-float64", "work": "counted"}


def asked(name: str, args: str, work: Work, dtype: Any = "bf16", hw: str = "h200", **shape: int) -> Question:
    hardware = load_hardware(hw)
    case = CaseV2(
        kernel=name, shape=shape, dtype=dtype, hardware=hw, implementation="torch", config=FORWARD, threads=None,
        arguments=parse_arguments(args),
    )  # fmt: skip
    return Question(case, work, roof_of(hardware, tensor_path(dtype)), hardware)


def product(m: int, n: int, k: int, *, name: str = "ops.torch:mm", b: str = "K,N", hw: str = "h200") -> Question:
    work = Work(flops=2 * m * n * k, bytes_read=2 * (m * k + k * n), bytes_written=2 * m * n)
    return asked(name, f"a=bf16[M,K] b=bf16[{b}]", work, hw=hw, M=m, N=n, K=k)


def said(question: Question) -> Answer:
    answer = analytic.forecast(question)
    assert isinstance(answer, Answer)
    return answer


def test_a_product_is_known_by_its_arguments_and_its_work() -> None:
    for b, pitch in (("K,N", 704), ("N,K", 320)):
        question = product(512, 704, 320, b=b)
        assert product_of(question.case, question.work) == Product(1, 512, 704, 320, (320, pitch))
    more = Work(flops=2 * 512 * 704 * 320 + 2, bytes_read=8, bytes_written=0)
    assert product_of(question.case, more) is None
    scaled = asked(
        "ops:mm", "a=bf16[M,K] scale=fp32[M,1] b=bf16[N,K]", Work(flops=2 * 8 * 16 * 32, bytes_read=1, bytes_written=0),
        M=8, N=16, K=32,
    )  # fmt: skip
    assert product_of(scaled.case, scaled.work) == Product(1, 8, 16, 32, (32, 32))
    many = asked(
        "ops:bmm", "a=bf16[G,M,K] b=bf16[G,N,K]", Work(flops=2 * 4 * 8 * 16 * 32, bytes_read=1, bytes_written=0),
        G=4, M=8, N=16, K=32,
    )  # fmt: skip
    assert product_of(many.case, many.work) == Product(4, 8, 16, 32, (32, 32))


def test_a_product_of_no_library_and_rows_that_are_not_aligned_take_longer() -> None:
    library, other = said(product(1024, 1024, 1024)), said(product(1024, 1024, 1024, name="ops.mine:mm"))
    assert other.time_s == pytest.approx(1.3 * library.time_s)
    odd, even = said(product(1024, 1025, 1024)), said(product(1024, 1026, 1024))
    assert odd.time_s > even.time_s > 1.5 * library.time_s


@pytest.mark.parametrize(
    ("file", "hw", "most"), [("model_shapes-h200", "h200", 0.09), ("model_shapes-h100", "h100_sxm", 0.06)]
)
def test_products_of_torch_take_what_is_forecast(file: str, hw: str, most: float) -> None:
    """The constants come from H200 rows; of the H100 nothing was used."""
    errors = []
    for row in json.loads((BENCHMARKS / f"{file}.json").read_text())["rows"]:
        shape = row["shape"]
        answer = said(product(shape["B"], shape["O"], shape["H"], hw=hw))
        errors.append(abs(math.log(row["contexts_us"]["back-to-back"]["torch_matmul"] * 1e-6 / answer.time_s)))
    assert median(errors) < most


def test_every_third_party_kernel_is_answered_with_an_interval() -> None:
    hardware, others = load_hardware("h100_sxm"), []
    for entry in entries():
        if entry.flops is None or entry.bytes is None:
            continue
        case = CaseV2(
            kernel=entry.subject.name, shape=entry.shape, dtype=entry.dtype, hardware="h100_sxm",
            implementation="torch", config=entry.subject.config("given"), threads=None,
            arguments=entry.subject.arguments,
        )  # fmt: skip
        work = Work(flops=entry.flops, bytes_read=entry.bytes, bytes_written=0)
        answer = said(Question(case, work, roof_of(hardware, tensor_path(entry.dtype)), hardware))
        assert answer.regime is not None and answer.low is not None and answer.high is not None
        assert answer.low < answer.percent < answer.high
        others += [entry.name] if described(case, work).kind is OTHER else []
    assert not others, "subjects without a kind"


def test_the_longest_word_names_the_kind() -> None:
    work = Work(flops=0, bytes_read=8, bytes_written=0)
    kinds = {
        name: described(asked(name, "x=bf16[T]", work, T=8).case, work).kind.name
        for name in ("a.fla:recurrent_gla", "a.fla:gla", "a.cce:linear_cross_entropy", "a.b:cross_entropy", "a.b:glad")
    }
    assert list(kinds.values()) == [
        "sequence, step by step", "chunks of a recurrence", "product and its loss", "loss in passes", ROWS.name,
    ]  # fmt: skip
    assert all(kind.low < kind.median < kind.high for kind in KINDS)


def test_forecasters_of_products_take_callables_and_decline_others() -> None:
    rows = asked("ops:f", "x=bf16[N]", Work(flops=0, bytes_read=8, bytes_written=0), N=4)
    for module in (lookup, matmul_heuristics):
        reason = getattr(module.forecast(rows), "reason", "")
        assert "ops:f bf16 is no product" in reason
        answer = module.forecast(product(4096, 4096, 4096))
        assert isinstance(answer, Answer) or "not installed" in answer.reason
