"""Tests that an edit of a kernel's CUDA C++ between its seal and its measurement is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ledger_process import run_ledger
from mutants.checker import source_file

ROOT = Path(__file__).parents[2]
SEAL = "predict matmul --hw h200 --dtype fp16 --shape M=512,N=512,K=512 --regime compute-bound --pct 40 --json"


def ledger(arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    who = {f"GIT_{role}_{field}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return run_ledger(*arguments.split(), cwd=folder, env={**os.environ, **who, "PYTHONPATH": path})


@pytest.mark.parametrize("edited", ("cluster.cu", "own.cuh"))
def test_an_edit_of_cuda_cpp_after_the_seal_is_refused(edited: str, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    folder = tmp_path / "kernels" / "matmul"
    shutil.copytree(source_file("matmul").parent, folder)
    (folder / "own.cuh").write_text("// included by cluster.cu\n")
    (folder / "cluster.cu").write_text('#include "own.cuh"\n' + (folder / "cluster.cu").read_text())
    assert ledger("init .", tmp_path).returncode == 0
    (sealed,) = json.loads(ledger(SEAL, tmp_path).stdout)
    assert ledger(f"order {sealed['id']} -o before.json", tmp_path).returncode == 0
    (folder / edited).write_text((folder / edited).read_text() + "// edited\n")
    for command in ("verify", "order -o after.json"):
        refused = ledger(f"{command} {sealed['id']}", tmp_path)
        assert refused.returncode == 3, refused.stderr
        assert "its kernel or profile has changed since it was sealed" in refused.stderr
    assert '"stale"' in ledger("status --json", tmp_path).stdout
