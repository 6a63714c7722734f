"""Runs the README's commands as a user would, and checks its commands, exit codes and levels."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import geometric_mean

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RUNNABLE = re.findall(r"^```sh run\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    identity = {"GIT_AUTHOR_NAME": "r", "GIT_AUTHOR_EMAIL": "r@example.org"}
    identity |= {"GIT_COMMITTER_NAME": "r", "GIT_COMMITTER_EMAIL": "r@example.org"}
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    prelude = f'set -euo pipefail\nledger() {{ "{sys.executable}" -m ledger "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", prelude + script],
        cwd=folder,
        env={**os.environ, **identity, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.exhaustive
def test_readme_commands_run_in_order_on_a_cpu(tmp_path: Path):
    pytest.importorskip("torch", reason="measuring on a CPU needs torch")
    assert len(RUNNABLE) == 3
    done = shell("".join(RUNNABLE), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "sealed " in done.stdout
    assert "verdict: holds: 1 forecast: 1 measured" in done.stdout


def test_readme_shows_what_the_report_prints():
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git history")
    (block,) = re.findall(r"^```text\n\$ (.*?)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    done = shell(f"export COLUMNS=100\n{block[0]}", ROOT)
    assert done.returncode == 0, done.stderr
    printed = {line.rstrip() for line in done.stdout.splitlines()}
    assert [line for line in block[1].splitlines() if line not in printed] == []


def test_readme_tells_the_bench():
    rows = json.loads((ROOT / "benchmarks" / "h200.json").read_text(encoding="utf-8"))["rows"]
    sizes = {(b, h, h) for b in (1, 8, 32, 128) for h in (2048, 4096, 8192)}
    grid = [
        row["torch_compile_us"] / row["ours_us"]
        for row in rows
        if row["kernel"] == "rmsnorm_matmul" and tuple(row["shape"].values()) in sizes
    ]
    assert min(grid) > 1
    said = f"{geometric_mean(grid):.2f} times as fast as torch.compile, geometric mean of {len(grid)} grid cells"
    assert said in " ".join(README.split())


def test_readme_names_only_commands_that_exist():
    commands = set(re.findall(r"(?:^|`)ledger ([a-z]+)", README, re.MULTILINE))
    done = shell("ledger --help", ROOT)
    assert done.returncode == 0, done.stderr
    listed = set(re.findall(r"^  ([a-z]+)  ", done.stdout, re.MULTILINE))
    assert {"init", "predict", "verify", "report", "audit"} <= commands
    assert commands <= listed, commands - listed


def test_readme_tells_every_exit_code():
    from ledger import cli
    from ledger.errors import EvidenceRefused, InputError, MachineError, ThresholdMissed

    table = README.partition("## Exit codes")[2].partition("##")[0]
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    errors = (EvidenceRefused(), InputError(), MachineError(), ThresholdMissed())
    assert told == {0, cli._INTERRUPTED, *(cli.exit_code(error) for error in errors)}


def test_readme_speaks_of_the_levels_in_the_words_of_the_audit():
    from ledger.evidence.audit_result import LEVELS

    for level in (0, 1):
        assert f"| {level} {LEVELS[level][0].split(':')[0]} |" in README
