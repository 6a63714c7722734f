"""Tests `ledger predict --check`: a forecast whose roof is not the compiler's path is warned about when it is made."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ledger_process import run_ledger
from mutants.checker import source_file

ROOT = Path(__file__).parents[2]
SMALL = "--shape M=4096,N=4096,K=4096 --regime compute-bound --pct 70 --dry-run --check"


def predict(arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    who = {f"GIT_{role}_{field}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return run_ledger("predict", *arguments.split(), cwd=folder, env={**os.environ, **who, "PYTHONPATH": path})


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


@pytest.fixture
def boastful(repository: Path) -> Path:
    """Put a kernel into a repository that names tensor cores where the compiler uses none."""
    file = repository / "kernels" / "boastful" / "__init__.py"
    shutil.copytree(source_file("matmul").parent, file.parent)
    source = file.read_text(encoding="utf-8")
    assert 'name="matmul"' in source
    boast = "\nfrom dataclasses import replace\n\nKERNEL = replace(KERNEL, path=lambda *_: 'fp16_tensor')\n"
    file.write_text(source.replace('name="matmul"', 'name="boastful"') + boast, encoding="utf-8")
    return repository


needs_triton = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")), reason="compiling needs triton"
)


@needs_triton
def test_check_warns_of_tensor_cores_that_the_compiler_does_not_use(boastful: Path):
    done = predict(f"boastful --hw t4 --dtype fp16 {SMALL}", boastful)
    assert done.returncode == 0, done.stderr
    assert "warning: boastful fp16 on t4 compiles to scalar FMA (fp32), but the roof is of fp16_tensor" in done.stderr


@needs_triton
def test_check_says_that_the_path_holds(repository: Path):
    done = predict(f"matmul --hw h200 --dtype fp16 {SMALL}", repository)
    assert done.returncode == 0, done.stderr
    assert "checked: matmul fp16 on h200 compiles to wgmma; the roof is that path's (fp16_tensor)" in done.stderr
    assert "warning" not in done.stderr


def test_without_check_nothing_is_compiled(boastful: Path):
    done = predict(f"boastful --hw t4 --dtype fp16 {SMALL.removesuffix('--check')}", boastful)
    assert done.returncode == 0, done.stderr
    assert "compiles" not in done.stderr


def test_a_dry_run_as_json_is_one_document_of_what_would_be_sealed(repository: Path):
    done = predict(
        "vector_add --hw h200 --dtype fp32 --shape N=4096 --by analytic,rule-of-thumb --dry-run --json", repository
    )
    said = json.loads(done.stdout)
    assert [one["forecaster"] for one in said] == ["analytic", "rule-of-thumb"]
    assert [one["forecasts"][0]["case"]["shape"] for one in said] == [{"N": 4096}] * 2
    assert not (repository / "predictions").exists()
