"""Tests that tables which are kept by columns are those that were written, with what changed since."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.workflow import kept_tables
from ledger.workflow.index_file import opened_index
from ledger.workflow.kept_tables import DamagedError, KeptTables, Rows, Table, packed, unpacked

FIRST = {
    "seal": ["a", "b", "hidden"],
    "cell": ["x", "x", "x"],
    "state": ["open", "open", "hidden"],
    "sight": ["blind", "near", None],
    "percent": [0.1, None, 1e300],
    "same": [[1], [1], [1]],
}


@pytest.fixture
def tables():
    with closing(opened_index(":memory:")) as connection:
        made = KeptTables(connection)
        made.write({"cells": Table(FIRST, 1, {"claims": []})})
        yield made


def rows(seals: str, state: str, **more) -> Rows:
    count = len(seals)
    columns = {"seal": [*seals], "cell": ["x"] * count, "state": [state] * count, "sight": ["informed"] * count}
    return Rows(
        {**columns, "percent": [0.3] * count, "same": [[1]] * count}, key=("seal", "cell"), staying=("sight",), **more
    )


def test_a_table_is_read_as_it_was_written(tables):
    assert tables.read("cells") == Table(FIRST, 1, {"claims": []})
    assert tables.read("cells", lambda count, held: held("cell")[:0] + ["state"] * (count == 3)).columns == {
        "state": FIRST["state"]
    }


@pytest.mark.parametrize("most", [0, 100], ids=["joined", "patched"])
def test_new_rows_come_before_those_that_stay_last_and_a_seen_sight_stays(tables, monkeypatch, most):
    monkeypatch.setattr(kept_tables, "MOST_PATCHES", most)
    tables.patch({"cells": rows("ac", "measured", seen={"a"})})
    tables.patch({"cells": rows("bc", "void")})
    tables.patch({"cells": rows("c", "stale", seen={"c"})})
    columns = tables.read("cells").columns
    assert columns["seal"] == ["a", "b", "c", "hidden"]
    assert columns["state"] == ["measured", "void", "stale", "hidden"]
    assert columns["sight"] == ["blind", "informed", "informed", None]
    assert columns["percent"] == [0.3, 0.3, 0.3, 1e300]
    assert tables.read("cells", lambda count, _held: ["same"] * (count == 4)).columns == {"same": [[1]] * 4}


def test_rows_of_a_new_key_come_after_the_others(tables):
    tables.patch({"cells": rows("de", "open", new={"d", "e"})})
    tables.patch({"cells": rows("fe", "measured", new={"f"})})
    columns = tables.read("cells").columns
    assert columns["seal"] == ["a", "b", "d", "e", "f", "hidden"]
    assert columns["state"] == ["open", "open", "open", "measured", "measured", "hidden"]


def test_rows_without_a_key_are_new(tables):
    tables.write({"events": Table({"id": ["a"]})})
    tables.patch({"events": Rows({"id": ["a", "b"]})})
    assert tables.read("events").columns == {"id": ["a", "a", "b"]}


@pytest.mark.parametrize("harm", ["data = zeroblob(length(data))", "data = substr(data, 2)", "digest = zeroblob(32)"])
def test_a_damaged_column_is_not_read(tables, harm):
    tables._connection.execute(f"update columns set {harm} where name = 'percent'")
    assert tables.read("cells", lambda _count, _held: ["state"]).columns == {"state": FIRST["state"]}
    with pytest.raises(DamagedError):
        tables.read("cells")


def test_numbers_of_a_machine_of_the_other_byte_order_are_not_read(tables, monkeypatch):
    monkeypatch.setattr(kept_tables, "_FLOATS", b"float64 other")
    with pytest.raises(DamagedError):
        tables.read("cells")


def test_an_index_without_the_table_counts_as_damaged():
    with closing(opened_index(":memory:")) as connection, pytest.raises(DamagedError):
        KeptTables(connection).read("cells")


def test_rows_that_changed_are_filled_from_all(tables):
    def fill(held, places):
        return {"percent": [held("percent")[place - 1] for place in places]}

    tables.patch({"cells": rows("bc", "measured", fill=fill)})
    columns = tables.read("cells").columns
    assert (columns["seal"], columns["percent"]) == (["a", "b", "c", "hidden"], [0.1, 0.1, 1e300, 1e300])


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
