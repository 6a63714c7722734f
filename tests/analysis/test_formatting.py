"""Tests the words that numbers and foreign text become."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import callable_case, make_forecast

from ledger.analysis.formatting import case_text, duration, harmless, shape_text, si, signed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcödé 日本", "plain ünïcödé 日本"),
        ("\x1b[31mred", "<U+001B>[31mred"),
        ("a\u202eb\u2066c\u200bd", "a<U+202E>b<U+2066>c<U+200B>d"),
        ("line\nfeed\ttab\r\u2028\u2029", "line feed tab <U+2028><U+2029>"),
        ("\x00\x7f\x9b31m", "<U+0000><U+007F><U+009B>31m"),
        ("\ue000", "<U+E000>"),
        ("\U000e0041", "<U+E0041>"),  # a tag character, invisible everywhere
    ],
)
def test_harmless_spells_out_what_could_act(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_harmless_cuts_at_the_limit() -> None:
    assert harmless("abcdef", 6) == "abcdef"
    assert harmless("abcdefg", 6) == "abcde…"
    assert harmless("\x1b" * 3, 8) == "<U+001B…"


@given(st.text(), st.one_of(st.none(), st.integers(min_value=1, max_value=50)))
def test_harmless_leaves_nothing_that_acts(text: str, limit: int | None) -> None:
    shown = harmless(text, limit)
    assert all(unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} for c in shown)
    assert limit is None or len(shown) <= limit
    assert harmless(shown, limit) == shown


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (3.35e12, "B/s", "3.35 TB/s"),
        (989.4e12, "FLOP/s", "989 TFLOP/s"),
        (34_100_000, "B", "34.1 MB"),
        (999, "B", "999 B"),
        (1.5e15, "FLOP", "1.50 PFLOP"),
        (0, "B", "0 B"),
        (8, "B", "8 B"),
        (0.5, "B", "0.50 B"),
        (10**320, "B", f"{1e300 / 1e15:.0f} PB"),
    ],
)
def test_si_has_three_digits(value: float, unit: str, words: str) -> None:
    assert si(value, unit) == words


@pytest.mark.parametrize(
    ("picoseconds", "words"),
    [
        (840_000, "840 ns"),
        (1_950_000, "1.95 µs"),
        (12_400_000, "12.4 µs"),
        (178_000_000, "178 µs"),
        (3_200_000_000, "3.20 ms"),
        (2 * 10**12, "2.00 s"),
        (5, "0.01 ns"),
    ],
)
def test_duration_takes_the_unit_that_suits(picoseconds: int, words: str) -> None:
    assert duration(picoseconds) == words


def test_duration_range_keeps_unit_and_digits() -> None:
    assert duration(12_400_000, 9_950_000, 12_600_000) == "12.4 µs (9.9–12.6)"


@pytest.mark.parametrize(("value", "words"), [(2.04, "+2.0"), (-16.1, "\u221216.1"), (-0.04, "0.0"), (0.0, "0.0")])
def test_signed(value: float, words: str) -> None:
    assert signed(value) == words


def test_shape_words_join_equal_sizes() -> None:
    assert shape_text({"B": 1, "H": 4096, "O": 4096}) == "B=1 H=O=4096"
    assert shape_text({"M": 8, "N": 8, "K": 8}) == "M=N=K=8"
    assert shape_text({"K": 64, "M": 8, "N": 8}) == "M=N=8 K=64"
    assert shape_text({"S": 128, "B": 2, "D": 64}) == "B=2 D=64 S=128"


def test_a_case_names_the_sizes_that_stand_in_its_arguments() -> None:
    case = callable_case("x=fp16[B,1024] y=fp16[B,1024] ids=i64[B]<9 w=fp16[2*B,H] eps=1e-6", B=256, H=8)
    assert case_text(case) == "ops:swiglu B=256 H=8 x=y=[B,1024] w=[2*B,H] eps=1e-6 fp16 on toy"
    assert case_text(callable_case("x=fp16[B] s=2", run="both", B=8)) == "ops:swiglu B=8 s=2 both fp16 on toy"
    assert case_text(make_forecast().case) == "rmsnorm_matmul B=8 H=O=64 fp16 on toy"
    assert len(case_text(callable_case(f"x=fp16[{','.join(['1024'] * 16)}]", B=1))) < 100
