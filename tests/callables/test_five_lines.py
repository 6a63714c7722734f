"""Counts what it takes from an installed package to a sealed, measured and reported callable: 5 lines or 2 commands."""

import sys

import pytest
from callables import OPS
from desk import Desk

LINES = """
import ledger
from ops import swiglu
book = ledger.open(".", hw="cpu")
forecast = book.predict(swiglu, args="x=fp32[256,1024] y=fp32[256,1024]", regime="hbm-bound", pct=40)
print(book.measure(forecast).why)
"""

COMMANDS = """
ledger predict ops:swiglu --args 'x=fp32[128,1024] y=fp32[128,1024]' --hw cpu --regime hbm-bound --pct 40
ledger verify
"""


@pytest.fixture
def desk(tmp_path) -> Desk:
    made = Desk(tmp_path / "book")
    (made.root / "ops.py").write_text(OPS)
    return made


@pytest.mark.exhaustive
def test_five_lines_of_python_seal_measure_and_report_a_callable(desk):
    assert len(LINES.strip().splitlines()) <= 5
    (desk.root / "use.py").write_text(LINES)
    done = desk.run(sys.executable, "use.py")
    assert done.returncode == 0, done.stderr
    assert "% for 40%)" in done.stdout
    assert desk.git("log", "--format=%s").splitlines()[:2] == [
        "Measure ops.swiglu-N0256-N11024-fp32: measured", "Seal ops.swiglu-N0256-N11024-fp32: 1 cell",
    ]  # fmt: skip


@pytest.mark.slow
def test_two_commands_seal_measure_and_report_a_callable(desk):
    assert len(COMMANDS.strip().splitlines()) <= 2
    done = desk.run("bash", "-c", f'ledger() {{ "{sys.executable}" -P -m ledger "$@"; }}\n{COMMANDS}')
    assert done.returncode == 0, done.stderr
    assert "ops:swiglu" in done.stdout and "self-consistent" in done.stdout


def test_an_interrupted_measurement_of_the_library_is_an_interruption(monkeypatch, tmp_path):
    from measuring import cell_of, order_of, this_cpu

    from ledger import api
    from ledger.measure.run_order import RunSummary

    stopped = RunSummary(measured=0, failed=0, skipped=0, device_seconds=0.0, interrupted=True)
    monkeypatch.setattr(api, "run_order", lambda *_, **__: stopped)
    with pytest.raises(KeyboardInterrupt):
        api._run(order_of(cell_of(this_cpu())), tmp_path, "off")


def test_the_decode_step_prints_why_nothing_was_measured(monkeypatch, capsys):
    from examples import decode_step
    from ledger.api import Result

    class Book:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def predict(self, *_, **__):
            pass

        def measure(self, _forecast):
            return Result({"measured": None, "gap": None}, "It failed: output differs.", None)

    monkeypatch.setattr(decode_step.ledger, "open", lambda *_, **__: Book())
    monkeypatch.setattr("sys.argv", ["decode_step.py", "--hw", "cpu", "--pct", "10"])
    decode_step.main()
    assert capsys.readouterr().out == "It failed: output differs.\n"
