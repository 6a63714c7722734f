"""Builds the wheel and the sdist and uses the wheel outside the repository, with nothing of the repository in reach."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from check_dist import sdist_differences, wheel_differences

from ledger import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
KERNELS = {
    str(path.relative_to(ROOT / "kernels"))
    for path in (ROOT / "kernels").rglob("*")
    if path.suffix in (".py", ".cu", ".cuh")
}
WITHOUT_PATH = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
DRILL = "ledger/drills/recorded.json"
PROFILES = {path.name for path in (ROOT / "hardware").glob("*.yaml")} - {"cpu.yaml"}
# Python 3.11.4 and newer.
SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both distributions from the work tree, with the build backend of this environment."""
    pytest.importorskip("hatchling", reason="building needs hatchling: pip install '.[dev]'")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return built / f"roofline_ledger-{__version__}-py3-none-any.whl"


def test_wheel_holds_kernels_and_profiles_as_package_data(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"ledger/shipped/kernels/{name}" for name in KERNELS} <= names
    assert {f"ledger/shipped/hardware/{name}" for name in PROFILES} <= names
    assert {"ledger/py.typed", "ledger/templates/kernel.txt"} <= set(names)
    assert len(KERNELS) >= 2 and len(PROFILES) >= 7


def test_wheel_holds_nothing_else(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"ledger", f"roofline_ledger-{__version__}.dist-info"}
    assert not [name for name in names if "__pycache__" in name or name.endswith("cpu.yaml")]
    # A copy without its history can make no cells for `ledger drill`.
    made = {DRILL} if (ROOT / ".git").exists() else set()
    assert {name for name in names if name.endswith(".json")} == made


def test_distributions_hold_the_committed_files_and_nothing_else(built: Path, wheel: Path):
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git history to compare with")
    assert wheel_differences(wheel) == []
    assert sdist_differences(built / f"roofline_ledger-{__version__}.tar.gz") == []


def test_wheel_ships_the_very_bytes_of_the_repository(wheel: Path):
    archive = zipfile.ZipFile(wheel)
    for folder, names in (("kernels", KERNELS), ("hardware", PROFILES)):
        for name in names:
            assert archive.read(f"ledger/shipped/{folder}/{name}") == (ROOT / folder / name).read_bytes()


def test_core_install_asks_for_neither_torch_nor_triton(wheel: Path):
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    required = [line for line in archive.read(metadata).decode().splitlines() if line.startswith("Requires-Dist:")]
    core = " ".join(line for line in required if "extra ==" not in line).lower()
    assert "typer" in core and "torch" not in core and "triton" not in core


def test_sdist_holds_what_the_wheel_is_built_from(built: Path):
    with tarfile.open(built / f"roofline_ledger-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "ledger/__init__.py"} <= names
    assert {f"kernels/{name}" for name in KERNELS} | {f"hardware/{name}" for name in PROFILES} <= names
    assert not [name for name in names if name.startswith(("predictions/", "verifications/", "tests/", "benchmarks/"))]


def test_wheel_of_the_sdist_holds_the_cells_that_were_made_with_it(built: Path, wheel: Path, tmp_path: Path):
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git history to make a drill of")
    from ledger.workflow.drill_files import read_drill
    from ledger.workflow.drills import drill_of_ledger

    with tarfile.open(built / f"roofline_ledger-{__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, **SAFELY)
    (source,) = tmp_path.iterdir()
    build = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=source, env=WITHOUT_PATH, check=True, capture_output=True)
    again = zipfile.ZipFile(tmp_path / "dist" / wheel.name)
    assert again.read(DRILL) == zipfile.ZipFile(wheel).read(DRILL)
    (tmp_path / "drill.json").write_bytes(again.read(DRILL))
    assert read_drill(tmp_path / "drill.json") == drill_of_ledger(ROOT)


def test_building_asks_for_what_judging_needs_only_where_the_cells_are_made(built: Path, tmp_path: Path):
    def asked(folder: Path) -> str:
        code = "import hatchling.build as b; print(*b.get_requires_for_build_wheel())"
        return subprocess.run([sys.executable, "-P", "-c", code], cwd=folder, capture_output=True, text=True).stdout

    with tarfile.open(built / f"roofline_ledger-{__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, **SAFELY)
    (source,) = tmp_path.iterdir()
    assert "pydantic" in asked(ROOT)
    assert (DRILL in {path.relative_to(source).as_posix() for path in source.rglob("*.json")}) == (
        "pydantic" not in asked(source)
    )


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone in a new environment that borrows this one's dependencies; return its python."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    # Dependencies come after the wheel, without running the .pth files there: an editable ledger stays out of reach.
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "borrowed.pth").write_text("\n".join(borrowed) + "\n", encoding="utf-8")
    return folder / "bin" / "python"


def use(python: Path, *arguments: str, folder: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "GIT_"))}
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_NAME": "w", f"GIT_{who}_EMAIL": "w@example.org"}
    done = subprocess.run(
        [python, "-m", "ledger", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"ledger {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def test_wheel_works_outside_the_repository(installed: Path, tmp_path: Path):
    where = subprocess.run(
        [installed, "-c", "import ledger; print(ledger.__file__)"],
        cwd=tmp_path, env=WITHOUT_PATH, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert where.startswith(str(installed.parent.parent))
    assert "predict" in use(installed, "--help", folder=tmp_path)
    assert {"h100_sxm", "t4"} <= set(use(installed, "hardware", "list", folder=tmp_path).split())
    assert "rmsnorm_matmul" in use(installed, "kernels", "list", folder=tmp_path)


def test_wheel_drills_on_the_cells_that_ship(installed: Path, tmp_path: Path):
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git history to make a drill of")
    assert '"from": "the cells that ship with ledger"' in use(installed, "drill", "--json", folder=tmp_path)


def test_wheel_founds_seals_and_audits_in_an_empty_folder(installed: Path, tmp_path: Path):
    use(installed, "init", ".", folder=tmp_path)
    seal = "predict matmul --hw t4 --dtype fp16 --shape M=512,N=512,K=512 --regime compute-bound --pct 40"
    use(installed, *seal.split(), folder=tmp_path)
    assert "open" in use(installed, "status", folder=tmp_path)
    assert "verdict: holds" in use(installed, "audit", ".", folder=tmp_path)
