"""Measures cells again on this CPU: later runs are recorded, the first one counts, and their spread is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from desk import Desk

pytest.importorskip("torch", reason="measuring on a CPU needs torch")

PREDICT = "predict vector_add --hw cpu --dtype fp32 --shape N=1000000 --regime hbm-bound --pct 50"


@pytest.mark.exhaustive
def test_a_measured_cell_is_measured_again_and_its_first_run_counts(tmp_path: Path):
    desk = Desk(tmp_path / "ledger")
    desk.ledger(*PREDICT.split(), "--json")
    assert "no measured cell" in desk.refused(2, "verify", "--again")
    desk.ledger("verify")
    (first,) = json.loads(desk.ledger("report", "--json"))["rows"]
    assert first["measured"]["repeat_spread_percent"] is None
    assert "repeats:" not in desk.ledger("report")

    desk.ledger("verify", "--again")
    desk.ledger("verify", "--again", first["seal"][:10])
    rows = json.loads(desk.ledger("report", "--json"))["rows"]
    assert [row["run"] for row in rows] == [0, 1, 2]
    times = sorted(row["measured"]["duration_us"] for row in rows)
    spread = 100 * (times[2] - times[0]) / times[1]
    assert rows[0]["measured"]["repeat_spread_percent"] == pytest.approx(spread, rel=1e-6)
    assert rows[0]["measured"]["duration_us"] == first["measured"]["duration_us"]

    assert f"repeats: times of 1 repeated cell differ by {spread:.1f}%" in " ".join(desk.ledger("report").split())
    assert f"Repeats: times of 1 repeated cell differ by {spread:.1f}%" in " ".join(desk.ledger("score").split())
    assert json.loads(desk.ledger("score", "--json"))[0]["measured"] == 1
    assert json.loads(desk.ledger("audit", "--json"))["verdict"] == "holds"
    order = json.loads(desk.ledger("order", "--again", "-o", "again.json", "--json"))
    assert order["cells"] == 1
    assert json.loads((desk.root / "again.json").read_text(encoding="utf-8"))["cells"][0]["run"] == 3
    assert "expected without --from" in desk.refused(2, "verify", "--again", "--from", "again.json")
