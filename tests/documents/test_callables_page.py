"""Runs docs/callables.md as a reader would: its module, its commands and its script, on the CPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "callables.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return text


@pytest.mark.slow
def test_page_runs_from_the_module_to_the_result(tmp_path: Path):
    names = {f"GIT_{who}_{what}": "c@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **names, "PYTHONPATH": path}, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(sys.executable, "-m", "ledger", "init", ".")
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "ops.py").write_text(block("python"))
    (tmp_path / "use.py").write_text(block("python run"))
    shell = f'set -euo pipefail\nledger() {{ "{sys.executable}" -m ledger "$@"; }}\n'
    assert "self-consistent" in run("bash", "-c", shell + block("sh run"))
    gap, reference = run(sys.executable, "use.py").strip().split(" ", 1)
    assert float(gap) > -40
    assert reference.startswith("self-consistent with mypkg.ops:gather itself in float64")
