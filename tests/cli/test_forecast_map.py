"""Tests the command forecast on grids and models: what it prints and writes, how long it takes, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from desk import ENVIRONMENT

from ledger.forecasters.levers import SPREAD

GRID = ("rmsnorm_matmul", "--hw", "h200,b200", "--grid", "B=1,32 H=2048,4096 O=H")


def run(*arguments: str, folder: Path, columns: str = "120") -> subprocess.CompletedProcess[str]:
    code = (
        "import resource, sys\nsys.argv = ['ledger', *sys.argv[1:]]\nfrom ledger.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    heavy = sorted({'torch', 'triton'} & set(sys.modules))\n"
        "    print('USED', round(used.ru_utime + used.ru_stime, 2), *heavy, file=sys.stderr)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, "forecast", *arguments],
        cwd=folder, env={**ENVIRONMENT, "COLUMNS": columns}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_a_grid_is_a_map_of_every_profile_with_what_would_move_it(tmp_path: Path) -> None:
    done = run(*GRID, "-o", "map.svg", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rmsnorm_matmul fp16 on h200: percent of the roof" in done.stdout
    assert "DRAM: fewer bytes" in done.stdout
    low, high = SPREAD
    said = f"80% of 685 runs on an H200 and an H100 took {low:g} to {high:g} times that"
    assert f"b200: {said}; nothing measured on b200" in done.stderr
    svg = ElementTree.fromstring((tmp_path / "map.svg").read_text())
    squares = [one for one in svg.iter("{http://www.w3.org/2000/svg}rect") if one.get("class") != "paper"]
    assert len(squares) == 8


def test_a_grid_of_a_hundred_cells_takes_about_a_second_without_torch(tmp_path: Path) -> None:
    sizes = ",".join(str(512 * number) for number in range(1, 21))
    used = []
    for _ in range(3):
        done = run("matmul", "--hw", "h200", "--grid", f"M=1,8,64,512,4096 N={sizes} K=N", "--json", folder=tmp_path)
        assert len(json.loads(done.stdout)["cells"]) == 100
        words = done.stderr.split("USED ")[1].split()
        assert words[1:] == []
        used.append(float(words[0]))
    # Processor time: the wall belongs to whatever else runs here, and so do threads that share a core.
    assert min(used) < 2.5


def test_a_models_configuration_gives_its_projections(tmp_path: Path) -> None:
    config = {
        "hidden_size": 4096, "num_attention_heads": 32, "intermediate_size": 14336, "vocab_size": 32000,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run(
        "config.json", "--hw", "h200", "--batch", "1,8", "--by", "analytic,rule-of-thumb", "--json", folder=tmp_path
    )
    cells = json.loads(done.stdout)["cells"]
    assert {cell["column"] for cell in cells} == {"qkv", "gate_up", "lm_head", "o_proj", "down"}
    assert {cell["kernel"] for cell in cells} == {"rmsnorm_matmul", "matmul"}
    assert {cell["dtype"] for cell in cells} == {"bf16"}
    assert all(len(cell["answers"]) == 2 and cell["binding"] and 0 <= cell["saved"] <= 1 for cell in cells)
    done = run("config.json", "--hw", "h200", "--batch", "1", "--gpus", "3", folder=tmp_path)
    assert "left out: qkv, gate_up, o_proj, down, which 3 GPUs do not divide" in done.stderr


def test_a_grid_fits_80_columns_and_names_fixed_sizes_once(tmp_path: Path) -> None:
    done = run(
        "matmul", "--hw", "h200", "--grid", "M=1,8,32 N=1024,2048,4096,8192,16384,28672,128256 K=8192",
        folder=tmp_path, columns="80",
    )  # fmt: skip
    assert "matmul K=8192 fp16 on h200: percent of the roof" in done.stdout
    assert "M=32 N=128256 " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_terms_have_the_prefixes_of_their_units(tmp_path: Path) -> None:
    done = run("matmul", "--hw", "h200", "--shape", "M=512,N=4096,K=4096", "--by", "analytic", folder=tmp_path)
    words = " ".join(done.stdout.split())
    assert "so it is on the compute-bound side: arithmetic sets the lower bound of" in words
    assert "e+0" not in run("matmul", "--hw", "t4", folder=tmp_path).stdout
    assert "GHz" in words and "DRAM traffic 41.9 MB" in words and "e+0" not in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("matmul", "--hw", "h200", "--grid", "M=1"), "shape"),
        ((*GRID, "--shape", "B=1,H=64,O=64"), "--shape: given together with a grid"),
        (("matmul", "--hw", "h200", "-o", "map.svg"), "expected --grid"),
        (("missing.json", "--hw", "h200"), "missing.json: cannot be read"),
        ((*GRID, "--by", "nobody"), "--by: "),
        (("matmul", "--hw", "h200", "--batch", "4"), "--batch: given for the kernel 'matmul'"),
        (("matmul", "--hw", "h200", "--gpus", "2"), "--gpus: given for the kernel 'matmul'"),
        (("config.json", "--hw", "h200", "--grid", "B=1"), "--grid: given together with a config.json"),
    ],
    ids=["keys", "both", "no-grid", "missing", "forecaster", "batch", "gpus", "grid"],
)
def test_what_cannot_be_forecast_is_told(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
