"""Runs docs/callables.md as a reader would: its modules, its commands and its script, on the CPU."""

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ledger_process import run_command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "callables.md").read_text(encoding="utf-8")
CPU = ("h200", "cpu")
# Stands in for the package, whose kernels need a GPU: the same name and signature, in torch.
PACKAGE = '''"""A package with one function."""

import torch


def liger_swiglu(a, b):
    return torch.nn.functional.silu(a) * b
'''

Run = Callable[..., str]


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return text


def shell(text: str, *changes: tuple[str, str]) -> tuple[str, str, str]:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    python = f'"{sys.executable}"'
    return (
        "bash",
        "-c",
        f'set -euo pipefail\nledger() {{ {python} -m ledger "$@"; }}\npython() {{ {python} "$@"; }}\n{text}',
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that runs a command in a repository with the page's modules and a calibrated CPU."""
    folder, site = tmp_path_factory.mktemp("book"), tmp_path_factory.mktemp("site")
    names = {f"GIT_{who}_{what}": "c@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = os.pathsep.join(filter(None, [str(ROOT), str(site), os.environ.get("PYTHONPATH")]))

    def run(*command: str) -> str:
        done = run_command(command, cwd=folder, env={**os.environ, **names, "PYTHONPATH": path}, timeout=400)
        assert done.returncode == 0, done.stderr
        return done.stdout

    install(site)
    run(sys.executable, "-m", "ledger", "init", ".")
    (folder / "mypkg").mkdir()
    (folder / "mypkg" / "ops.py").write_text(block("python"))
    (folder / "mypkg" / "liger.py").write_text(block("python package"))
    (folder / "use.py").write_text(block("python run"))
    shutil.copy(ROOT / "examples" / "decode_step.py", folder)
    assert "self-consistent" in run(*shell(block("sh run")))
    return run


def install(site: Path) -> None:
    """Install a package as pip would, so that its distribution is found."""
    module = site / "liger_kernel" / "transformers" / "functional.py"
    module.parent.mkdir(parents=True)
    module.write_text(PACKAGE)
    for folder in (module.parent, module.parent.parent):
        (folder / "__init__.py").write_text("")
    info = site / "liger_kernel-0.0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: liger-kernel\nVersion: 0.0.1\n")
    (info / "top_level.txt").write_text("liger_kernel\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    files = sorted(path for path in site.rglob("*") if path.is_file())
    (info / "RECORD").write_text(
        "".join(f"{path.relative_to(site)},{digest(path)},{path.stat().st_size}\n" for path in files)
    )


def digest(path: Path) -> str:
    import base64
    import hashlib

    raw = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256={raw.rstrip(b'=').decode()}"


@pytest.mark.exhaustive
def test_script_of_the_page_forecasts_and_measures(run: Run):
    gap, reference = run(sys.executable, "use.py").strip().split(" ", 1)
    assert float(gap) > -40
    assert reference.startswith("self-consistent with mypkg.ops:gather itself in float64")


@pytest.mark.exhaustive
def test_kernel_of_a_package_is_sealed_with_its_version_and_agrees_with_its_reference(run: Run):
    small = (CPU, ("fp16", "fp32"), ("B=4096", "B=64"), ("225443840", "3522560"), ("270532608", "8454144"))
    run(*shell(block("sh package"), *small))
    sources = "".join(
        path.read_text(errors="replace") for path in Path(run("pwd").strip()).glob("predictions/objects/*/*")
    )
    assert '"name":"liger-kernel"' in sources and '"version":"0.0.1"' in sources
    run(sys.executable, "-m", "ledger", "verify")
    assert "mypkg.liger:exact in float64" in run(sys.executable, "-m", "ledger", "report", "--json")


@pytest.mark.exhaustive
def test_decode_step_is_forecast_and_verified_end_to_end(run: Run):
    said = run(*shell(block("sh decode"), CPU, ("--pct 10", "--pct 10 --batch 2 --tokens 128")))
    assert re.match(r"[\d.]+% of the roof, [+-][\d.]+ points\. ", said)
    assert "Its result is self-consistent" in said
