"""Runs examples/demo.sh as `make demo` does, on a machine whose git knows nobody."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_demo_goes_round_the_whole_loop_and_refuses_the_forgery(tmp_path: Path):
    pytest.importorskip("torch", reason="measuring needs torch")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"PYTHON": sys.executable, "TMPDIR": str(tmp_path), "HOME": str(tmp_path), "COLUMNS": "140"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        ["bash", str(ROOT / "examples" / "demo.sh")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for said in ("sealed ", "verdict: holds: 1 forecast: 1 measured"):
        assert said in done.stdout
    assert "prediction-postdates" in done.stderr
    assert "(exit code 3)" in done.stdout
    (kept,) = tmp_path.glob("ledger-demo.*")
    assert f"ledger    {kept}\n" in done.stdout and "ledger predict" in done.stdout
    assert (kept / "roofline" / "roofline.json").is_file()
    assert done.stdout.count("\nWhy\n") == 1, "the result is shown once"
    assert not list(tmp_path.glob("ledger-forged.*"))
    audited = subprocess.run(
        [sys.executable, "-m", "ledger", "report"],
        cwd=kept, env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert audited.returncode == 0, audited.stderr
