"""Computes sizes of axes, and makes names for modules and shapes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import InputError
from ledger.problems.axes import axis_size, evaluate, shape_keys, slug
from ledger.problems.documents import Axis


def test_axis_is_a_constant_a_given_size_or_computed():
    axes = {"n": Axis(), "h": Axis(value=64), "half": Axis(expression="h // 2 + n"), "q": Axis(expression="half * 2")}
    assert [axis_size(name, axes, {"n": 3}) for name in ("n", "h", "half", "q", "12")] == [3, 64, 35, 70, 12]
    with pytest.raises(InputError, match="axis n: the workload gives no size"):
        axis_size("half", axes, {})
    with pytest.raises(InputError, match="refers to itself"):
        axis_size("a", {"a": Axis(expression="a + 1")}, {})


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "(lambda: 1)()", "[1][0]", "x.real", "'a'", "1 if x else 2", "x := 3",
        "9**9**9", "2**99999999", "1 / 0", "1 % 0", "3 / 2", "-1", "1e3", "(" * 200 + "1" + ")" * 200, "x" * 400, "",
        "yy",
    ],
)  # fmt: skip
def test_expression_that_is_no_size_is_refused(text: str):
    def known(name: str) -> int:
        if name == "x":
            return 5
        raise InputError("unknown")

    with pytest.raises(InputError):
        evaluate(text, known)


@given(st.text(max_size=200), st.integers(min_value=16, max_value=64))
def test_slug_is_a_module_name_and_stable(name: str, limit: int):
    found = slug(name, limit=limit)
    assert found.isidentifier()
    assert found.isascii()
    assert len(found) <= limit
    assert slug(found, limit=limit) == found


def test_names_that_differ_only_in_case_or_signs_have_other_slugs():
    names = ["norm-h64", "norm_h64", "Norm_h64", "norm.h64", "class", "1norm"]
    assert len({slug(name, limit=32) for name in names}) == len(names)


@given(st.lists(st.text(min_size=1, max_size=40), max_size=12, unique=True), st.booleans())
def test_keys_are_keys_of_a_shape_and_differ(names: list[str], short: bool):
    keys = shape_keys(names, short=short)
    assert list(keys) == names
    assert len(set(keys.values())) == len(names)
    assert all(key.isascii() and key[0].isalpha() and key.isidentifier() and len(key) <= 16 for key in keys.values())


def test_a_chain_of_expressions_is_computed_once_an_axis():
    axes = {f"a{number}": Axis(expression="+".join([f"a{number + 1}"] * 9)) for number in range(15)}
    assert axis_size("a0", axes | {"a15": Axis(expression="a16 - 1"), "a16": Axis(value=1)}, {}) == 0


def test_a_thousand_names_with_one_prefix_have_a_key_each():
    names = [f"the_same_long_prefix_{number}" for number in range(1100)]
    assert len(set(shape_keys(names, short=False).values())) == len(names)
