"""Forecasts, measures and reports callables by the command line and by Python, in a ledger on disk."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from callables import OPS, RAW
from covering import one_in
from desk import Desk

GUESS = ("--hw", "cpu", "--regime", "hbm-bound", "--pct", "30")

SCRIPT = """
import json
import ledger
from ops import gather

with ledger.open(".", hw="cpu") as book:
    forecast = book.predict(gather, args=lambda g: (g.bell(100, 64, dtype="fp16"), g.integers(8, high=100)),
                            regime="hbm-bound", pct=70, low=55, high=85, why="the rows are read once")
    result = book.measure(forecast)
print(json.dumps([result.gap, result.to_dict(), forecast.to_dict(), result._repr_html_(), forecast._repr_html_()]))
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path / "book")
    (made.root / "ops.py").write_text(OPS)
    (made.root / "raw.py").write_text(RAW)
    return made


def rows(desk: Desk) -> dict:
    return {row["cell"]: row for row in json.loads(desk.ledger("report", "--json"))["rows"]}


def test_two_callables_of_one_module_are_two_cases(desk):
    for name in ("swiglu", "fused"):
        desk.ledger("predict", f"ops:{name}", "--args", "x=fp32[B,96] y=fp32[B,96]", "--shape", "B=64", *GUESS)
    desk.ledger("predict", "ops:fused", "--args", "x=fp32[B,96] y=fp32[B,96]", "--shape", "B=64", *GUESS, "--pct", "20")
    assert json.loads(desk.ledger("order", "--once", "-o", "order.json", "--json"))["cells"] == 2


def test_forecasters_answer_a_callable_of_the_command_line(desk):
    asked = ("forecast", "ops:swiglu", "--hw", "h200", "--shape", "B=64", "--shape", "B=128")
    args = ("--args", "x=fp32[B,96] y=fp32[B,96]", "--by", "naive-roofline,learned,persistence")
    cells = json.loads(desk.ledger(*asked, *args, "--json"))["cells"]
    assert [(cell["kernel"], cell["shape"]) for cell in cells] == [
        ("ops:swiglu", {"B": 64}),
        ("ops:swiglu", {"B": 128}),
    ]
    given = ("--flops", "10000000000", "--bytes", "1000", "--pass", "forward", "--reference", "ops:swiglu_reference")
    (cell, _) = json.loads(desk.ledger(*asked, *args, *given, "--json"))["cells"]
    assert cell["answers"][0]["time_us"] == pytest.approx(1e10 / cell["roof"]["peak_flop_per_s"] * 1e6)
    shown = " ".join(desk.ledger(*asked, *args).split())
    assert "ops:swiglu B=64 x=y=[B,96] fp32 on h200" in shown
    assert "the analytic model: 0 measured cells of other code here" in shown
    assert "no --args" in desk.refused(2, *asked)
    assert "--args: given for 'softmax'" in desk.refused(2, "forecast", "softmax", "--hw", "h200", *args)
    assert "--grid: given for the callable" in desk.refused(2, *asked[:4], "--grid", "B=1,2", *args)


@pytest.mark.exhaustive
def test_callables_of_every_kind_are_sealed_measured_and_reported(desk):
    desk.ledger("predict", "ops:decorated", *GUESS)
    desk.ledger("predict", "ops:gather", "--args", "table=fp16[V,64] ids=i64[B]<100", "--shape", "V=100,B=9", *GUESS)
    desk.ledger("predict", "ops:Net", "--args", "x=fp32[64,64]", "--pass", "both", *GUESS)
    desk.ledger("predict", "ops:fused", "--args", "x=fp32[B,96] y=fp32[B,96]", "--shape", "B=64", *GUESS)
    desk.ledger("verify")
    by_itself = ("predict", "ops:by_itself", "--args", "x=fp32[N]", "--shape", "N=65536")
    assert "--flops N and --bytes N" in desk.refused(2, *by_itself, *GUESS)
    given = ("--flops", "65536", "--bytes", "524288", "--reference", "ops:scale_", "--tolerance", "0.001")
    desk.ledger(*by_itself, *given, *GUESS)
    desk.ledger("predict", "ops:cached", "--args", "x=fp32[N]", "--shape", "N=4096", *GUESS)
    assert "ops.cached-N4096-fp32: refused: " in desk.refused(3, "verify")
    found = rows(desk)
    assert [row["state"] for row in found.values()] == ["measured"] * 5 + ["failed"]
    assert found["ops.decorated-B64-bf16"]["reference"].startswith("ops:swiglu_reference in float64")
    net = found["ops.Net-N064-fp32-both"]
    assert net["reference"].startswith("self-consistent with ops:Net itself in float64")
    assert (net["levels"], net["samples"]) == ([0], "positions only")
    assert found["ops.by_itself-N65536-fp32"]["tolerance"] == "0.001"
    assert "Errors up to 0.001 of each result's root mean square passed" in " ".join(desk.ledger("report").split())
    assert found["ops.by_itself-N65536-fp32"]["predicted"]["regime"] == "hbm-bound"
    # An earlier answer is no answer.
    assert "output is wrong" in found["ops.cached-N4096-fp32"]["failure"]
    assert "self-consistent" in desk.ledger("report")
    audited = json.loads(desk.ledger("audit", ".", "--recompute", "--json"))
    assert (audited["verdict"], [cell["levels"] for cell in audited["predictions"]]) == ("holds", [[0]] * 6)
    audited = json.loads(desk.ledger("audit", ".", "--recompute", "--run-code", "--json"))
    assert audited["verdict"] == "holds"
    assert [cell["levels"] for cell in audited["predictions"]] == [[0, 1]] * 5 + [[0]]
    assert "without --recompute" in desk.refused(2, "audit", ".", "--run-code")
    # Another line in the module makes an open forecast stale.
    desk.ledger("predict", "ops:swiglu", "--args", "x=fp32[B,96] y=fp32[B,96]", "--shape", "B=64", *GUESS)
    (desk.root / "ops.py").write_text(OPS + "\nMORE = 1\n")
    assert rows(desk).keys() == found.keys() | {"ops.swiglu-B64-fp32"}
    states = {cell["cell"]: cell["state"] for cell in json.loads(desk.ledger("status", "--json"))["cells"]}
    assert states["ops.swiglu-B64-fp32"] == "stale"


@pytest.mark.exhaustive
def test_python_predicts_and_measures_a_function_of_the_repository(desk):
    (desk.root / "use.py").write_text(SCRIPT)
    done = desk.run(sys.executable, "use.py")
    assert done.returncode == 0, done.stderr
    gap, row, forecast, html, sealed = json.loads(done.stdout)
    assert row["gap"]["percent"] == gap
    assert (row["state"], row["seal"]) == ("measured", forecast["id"])
    assert (forecast["low_milli"], forecast["case"]["shape"]) == (55000, {"N0": 100, "N1": 64, "N2": 8})
    assert "positions only" in html
    assert "hbm-bound 70% (55–85)" in sealed


WRONG = [
    (("ops:swiglu",), "no --args"),
    (("ops:swiglu", "--args", "x=fp32[B]"), "no size for B"),
    (("ops:swiglu", "--args", "x=fp32[8]"), "ops:swiglu: also needs y; expected it in --args"),
    (("ops:Net", "--args", "x=fp16[8,64]"), "(parameters are fp32, x is fp16)"),
    (("ops:swiglu", "--args", "x=i64[8]<4"), "--dtype"),
    (("ops:missing", "--args", "x=fp32[8]"), "cannot be loaded"),
    (("other:swiglu", "--args", "x=fp32[8]"), "not in the work tree"),
    (("raw:doubled", "--args", "x=fp32[8]"), "expected a function around it: def call(x)"),
    (
        ("ops:swiglu", "--args", "x=fp16[8]", "--tolerance", "0.5"),
        "at most 0.05 of each result's root mean square",
    ),
    (("ops:swiglu", "--args", "x=fp16[8]", "--tolerance", "0"), "tolerance"),
    (("ops:swiglu:x", "--args", "x=fp32[8]"), "expected module:name"),
    (("ops:swiglu", "--args", "x=fp32[8]", "--pass", "sideways"), "pass"),
    (("rmsnorm", "--dtype", "fp32", "--shape", "B=1,H=64", "--args", "x=fp32[8]"), "expected it for a callable"),
]


@pytest.mark.parametrize("wrong", one_in(4, WRONG, lambda wrong: wrong[1]))
def test_what_is_missing_or_wrong_is_said_and_nothing_is_sealed(desk, wrong):
    arguments, said = wrong
    assert said in desk.refused(2, "predict", *arguments, *GUESS)
    assert not list((desk.root / "predictions").glob("*/*.json"))


def test_a_function_without_a_module_of_the_repository_is_refused(desk):
    code = (
        "import ledger\n"
        "with ledger.open('.', hw='cpu') as book:\n"
        "    try:\n"
        "        book.predict(lambda x: x, args='x=fp32[8]', regime='hbm-bound', pct=10)\n"
        "    except Exception as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    said = desk.run(sys.executable, "-c", code).stdout
    assert said.startswith("InputError")
    assert "not one of a notebook" in said


def test_import_ledger_loads_nothing_and_its_module_kernel_stays_a_module():
    code = (
        "import sys, ledger\n"
        "assert not {'torch', 'pydantic', 'numpy'} & set(sys.modules), 'import ledger is heavy'\n"
        "function = ledger.kernel(args='x=fp32[8]')(lambda x: x)\n"
        "from ledger.kernel import Kernel\n"
        "assert 'torch' not in sys.modules\n"
        "print(function.__ledger_defaults__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "{'args': 'x=fp32[8]'}", done.stderr
