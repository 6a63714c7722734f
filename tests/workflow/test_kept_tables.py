"""Tests how columns are kept: every JSON value comes back as it was, and bytes that changed count as none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.workflow.kept_tables import DamagedError, packed, unpacked

numbers = st.floats(allow_nan=False, allow_infinity=False)
columns = st.one_of(
    st.lists(st.one_of(st.none(), numbers)),
    st.lists(st.one_of(st.none(), st.sampled_from(["a", "b:", "c\n", ""])), min_size=16, max_size=80),
    st.lists(st.one_of(st.none(), st.sampled_from([0, 1, -(2**53)])), min_size=16, max_size=80),
    st.lists(st.one_of(st.booleans(), st.integers(-9, 9), st.text(max_size=2), numbers), max_size=40),
)


@given(columns)
def test_a_column_comes_back_as_it_was(column):
    back = unpacked(*packed(column))
    assert back == column and [*map(type, back)] == [*map(type, column)]


def test_long_columns_are_kept_small():
    """Not as JSON: a byte a text, and eight a float."""
    assert len(packed(["rmsnorm_matmul", None] * 500)[1]) < 1100
    assert len(packed([1 / 3, None] * 500)[1]) < 8 * 1000 + 2500


def test_bytes_that_changed_are_told():
    digest, data = packed([1.0, None])
    with pytest.raises(DamagedError):
        unpacked(digest, data[:-1] + b"\1")
