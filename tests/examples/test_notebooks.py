"""Runs the notebooks of examples/ on a CPU, cell by cell as IPython would, in a ledger of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from measuring import this_cpu

from ledger.record_files import hardware_yaml

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
# What a cell's last expression shows is kept as Jupyter would: SVG, else HTML, else text.
RUNNER = """
import ast, json, subprocess, sys
from pathlib import Path
def shell(command):
    if command.startswith("ledger calibrate"):  # tests/test_demo.py calibrates for real
        Path("hardware/cpu.yaml").write_bytes(Path(sys.argv[2]).read_bytes())
        return
    command = command.replace("ledger ", f'"{sys.executable}" -m ledger ', 1)
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, command
names, shown = {"__name__": "notebook", "_shell": shell}, []
for source in json.loads(Path(sys.argv[1]).read_text()):
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    value = None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    kinds = [kind for kind in ("_repr_svg_", "_repr_html_") if hasattr(value, kind)]
    shown.append(getattr(value, kinds[0])() if kinds else "" if value is None else repr(value))
Path(sys.argv[3]).write_text(json.dumps(shown))
"""


def cells(path: Path, kind: str) -> list[str]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def as_python(source: str) -> str:
    """Return a cell with its ! lines as calls, without what installs packages."""
    plain = re.sub(r"^%pip .*$", "", source, flags=re.MULTILINE)
    return re.sub(r"^(\s*)!(.*)$", lambda line: f"{line[1]}_shell({line[2]!r})", plain, flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_on_a_cpu(path: Path, tmp_path: Path):
    for name in ("torch", "triton", "pandas"):
        pytest.importorskip(name, reason=f"the notebook needs {name}")
    (tmp_path / "cells.json").write_text(json.dumps([as_python(source) for source in cells(path, "code")]))
    (tmp_path / "cpu.yaml").write_bytes(hardware_yaml(this_cpu()))
    files = [str(tmp_path / name) for name in ("cells.json", "cpu.yaml", "shown.json")]
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"PYTHONPATH": python_path, "CUDA_VISIBLE_DEVICES": "", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, *files], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    # What the text says of sm_75 is what the compiler does.
    assert re.search(r"multiplies with +scalar FMA", done.stdout) and "verdict: holds" in done.stdout
    shown = "\n".join(json.loads((tmp_path / "shown.json").read_text()))
    assert "<svg" in shown and "rmsnorm_matmul" in shown and "1 seal, 1 cell: 1 measured" in shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path: Path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert not [cell for cell in notebook["cells"] if cell.get("outputs") or cell.get("execution_count")]


def test_there_is_a_notebook():
    assert NOTEBOOKS
