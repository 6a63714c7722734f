"""Tests what ledger.open shows in a notebook, and the examples in its documentation."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from desk import Desk
from ledger_process import repository_report, run_ledger

import ledger
from ledger import api, notebook
from ledger.errors import InputError, MachineError, StateError
from ledger.notebook import Report, flat_row

ROOT = Path(__file__).parents[1]
PREDICT = "predict matmul --hw t4 --dtype fp16 --shape M=64,N=64,K=64 --regime launch-bound --pct 2"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    made = Desk(tmp_path_factory.mktemp("notebook") / "ledger")
    made.ledger(*PREDICT.split())
    return made


@pytest.mark.parametrize("module", [api, notebook], ids=lambda module: module.__name__)
def test_examples_in_docstrings_do_what_they_say(module):
    done = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert done.attempted and not done.failed


def test_the_report_is_that_of_the_command(desk: Desk):
    report = ledger.open(desk.root).report()
    assert list(report.rows) == json.loads(desk.ledger("report", "--json"))["rows"]
    assert str(report) == "1 seal, 1 cell: 1 open"
    page = report._repr_html_()
    assert "<td>launch-bound</td><td>2</td><td>–</td>" in page


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"pct": "much"}, "pct: got 'much'; expected a percent"),
        ({"low": [1]}, r"low: got \[1\]; expected a percent"),
        ({"shape": "M=64,N=64,K=64"}, "shape: got 'M=64,N=64,K=64'; expected a size for each key"),
    ],
)
def test_a_forecast_of_a_wrong_type_is_refused(desk: Desk, changed: dict[str, object], said: str):
    given = {"regime": "hbm-bound", "pct": 2, "dtype": "fp16", "shape": {"M": 64, "N": 64, "K": 64}, **changed}
    with pytest.raises(InputError, match=said):
        ledger.open(desk.root, hw="t4").predict("matmul", **given)


def test_only_a_sealed_forecast_is_measured(desk: Desk):
    with pytest.raises(InputError, match="forecast: got 'abcd'; expected what predict returns"):
        ledger.open(desk.root).measure("abcd")  # type: ignore[arg-type]


def test_a_ranking_of_nothing_is_told(desk: Desk):
    done = run_ledger("score", "--ranking", cwd=desk.root)
    assert (
        done.returncode == 0
        and done.stdout == ""
        and "nothing to rank: no two forecasters share a measured cell" in done.stderr
    )


def test_a_result_shows_its_percent_to_a_tenth():
    predicted = {"regime": "hbm-bound", "percent": 50.0}
    row = {"cell": "c", "predicted": predicted, "measured": {"regime": None, "percent": 117.445}, "levels": [0]}
    page = api.Result(row | {"samples": "none"}, "why", None)._repr_html_()
    assert "<td>not determined 117.4%</td>" in page
    assert "<td>failed</td>" in api.Result(row | {"samples": "none", "measured": None}, "", None)._repr_html_()


def test_a_hostile_name_is_text_in_the_page():
    row = {"shape": {}, "predicted": {"regime": "<b>", "percent": 1.0, "low": None, "high": None}, "cell": "\x1b[2J<i>"}
    page = Report((), ({**row, "measured": None, "gap": None},))._repr_html_()
    assert "<b>" not in page and "<i>" not in page and "\x1b" not in page


def test_cells_are_a_data_frame_with_the_numbers_of_the_report():
    pytest.importorskip("pandas", reason="a data frame needs pandas")
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git history")
    frame, rows = ledger.open(ROOT).cells(), repository_report()["rows"]
    assert len(frame) == len(rows) and list(frame.columns) == list(flat_row(rows[0]))
    assert frame["gap"].dropna().tolist() == [row["gap"]["percent"] for row in rows if row["gap"]]
    assert frame.groupby("kernel")["time_us"].min()["softmax"] == min(
        row["measured"]["duration_us"] for row in rows if row["kernel"] == "softmax" and row["measured"]
    )


def test_without_pandas_the_error_names_the_extra(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MachineError, match=r"pandas is not installed.*\[notebook\]"):
        ledger.open(desk.root).cells()


def test_the_roofline_is_a_picture_of_its_own(desk: Desk, tmp_path: Path):
    figure = ledger.open(desk.root, hw="t4").roofline("t4", "h200")
    root = ElementTree.fromstring(figure._repr_svg_())
    assert root.tag.endswith("svg") and "T4" in figure.svg and "<style>" in figure.svg
    assert figure.save(tmp_path / "r.svg").read_text(encoding="utf-8") == figure.svg
    with pytest.raises(InputError, match="no cell is measured"):
        ledger.open(desk.root).roofline()
    with pytest.raises(InputError):
        ledger.open(desk.root).roofline("t4", kernels=["moon"])


def test_what_is_missing_is_named(desk: Desk, tmp_path: Path):
    with pytest.raises(InputError, match="hw: not given"):
        ledger.open(desk.root).predict("matmul", regime="hbm-bound", pct=1)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with pytest.raises(StateError, match="no commit yet"):
        ledger.open(tmp_path).report()
