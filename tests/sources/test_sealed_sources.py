"""Attacks on what a seal covers, through the command line: sources that change between a seal and its measurement.

Each case edits something that the kernel executes; the open cell is then stale, `verify` skips it by name, and names
it as refused when it is asked for. Each has an honest twin in which the same file is left alone and all holds.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from covering import one_in
from desk import Desk
from distributions import install

pytestmark = pytest.mark.slow
pytest.importorskip("torch", reason="measuring on a CPU needs torch")

SOURCE = (
    (Path(__file__).parents[1] / "assets" / "kernels" / "small_matmul.py")
    .read_text()
    .replace("from __future__ import annotations\n", "")
)
PREDICT = (
    "predict small_matmul --hw cpu --dtype fp32 --shape M=256,N=256,K=256 --regime compute-bound --pct 50 --threads 1"
)


class KernelDesk(Desk):
    """A ledger with a kernel of its own that imports a module, a distribution and names a CUDA file."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.site = site
        install(site, "tilebox", "TILE = 64\n")
        super().__init__(folder)
        self.write("kernels/small_matmul.py", "import tilebox\nfrom shared import tiles\n\nCUDA = 'rows.cu'\n" + SOURCE)
        self.write("kernels/rows.cu", '#include "rows.cuh"\n')
        self.write("kernels/rows.cuh", "#define ROWS 8\n")
        self.write("shared/tiles.py", "TILE = 64\n")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "A kernel")

    def environment(self) -> dict[str, str]:
        environment = super().environment()
        return {**environment, "PYTHONPATH": f"{self.site}:{environment['PYTHONPATH']}"}

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def seal(self, *more: str) -> str:
        return json.loads(self.ledger(*PREDICT.split(), "--json", *more))[0]["id"]


@pytest.fixture
def desk(tmp_path: Path) -> KernelDesk:
    return KernelDesk(tmp_path / "ledger", tmp_path / "site")


def upgrade(desk: KernelDesk) -> None:
    shutil.rmtree(desk.site)
    install(desk.site, "tilebox", "TILE = 32\n", version="1.1")


EDITS: dict[str, Callable[[KernelDesk], None]] = {
    "imported-module": lambda desk: desk.write("shared/tiles.py", "TILE = 32\n"),
    "kernel-itself": lambda desk: desk.write("kernels/small_matmul.py", SOURCE),
    "cuda-header": lambda desk: desk.write("kernels/rows.cuh", "#define ROWS 16\n"),
    "cuda-file": lambda desk: desk.write("kernels/rows.cu", "// nothing\n"),
    "package-marker-added": lambda desk: desk.write("shared/__init__.py", "TILE = 32\n"),
    "module-shadows-the-distribution": lambda desk: desk.write("tilebox.py", "TILE = 32\n"),
    "distribution-upgraded": upgrade,
    "distribution-edited": lambda desk: (desk.site / "tilebox.py").write_text("TILE = 32\n") and None,
    "distribution-removed": lambda desk: shutil.rmtree(desk.site),
    "dynamic-import-added": lambda desk: desk.write("shared/tiles.py", "import importlib\n"),
}


CASES = {**{name: (edit, False) for name, edit in EDITS.items()}, "committed": (EDITS["imported-module"], True)}


@pytest.mark.parametrize("name", one_in(4, CASES, str))
def test_an_edit_after_the_seal_is_never_measured(desk: KernelDesk, name: str):
    edit, committed = CASES[name]
    seal = desk.seal()
    edit(desk)
    if committed:
        desk.git("add", "-A")
        desk.git("commit", "-q", "--allow-empty", "-m", "An edit")
    status = json.loads(desk.ledger("status", "--json"))
    assert [cell["state"] for cell in status["cells"]] == ["stale"]
    assert "is stale" in desk.refused(3, "verify", seal[:10])
    assert "is stale" in desk.refused(3, "order", seal[:10], "-o", "order.json")
    assert not list((desk.root / "verifications").glob("??/*.json"))


def test_the_twin_measures_and_holds(desk: KernelDesk):
    desk.seal()
    desk.write("shared/unused.py", "TILE = 32\n")
    desk.write("kernels/other.cuh", "#define ROWS 16\n")
    desk.ledger("verify")
    audited = json.loads(desk.ledger("audit", "--recompute", "--json"))
    # The test's profile has a low ceiling, which a fast CPU exceeds.
    found = [finding for finding in audited["findings"] if finding["code"] != "above-ceiling"]
    assert (audited["verdict"], found) == ("holds", [])
    sealed = {file.name for file in (desk.root / "predictions" / "objects").glob("??/*")}
    assert len(sealed) == 6  # the kernel, its module, two CUDA files, the manifest, the profile; .gitkeep is none


def test_an_edit_after_the_measurement_disturbs_nothing(desk: KernelDesk):
    desk.seal()
    desk.ledger("verify")
    desk.write("shared/tiles.py", "TILE = 32\n")
    desk.git("commit", "-q", "-a", "-m", "An edit")
    assert json.loads(desk.ledger("audit", "--json"))["verdict"] == "holds"
    desk.ledger("report")


REFUSED = {
    "dynamic-import": ("import importlib\nshared = importlib.import_module('shared.tiles')\n", "importlib"),
    "exec": ("exec(open('shared/tiles.py').read())\n", "exec"),
    "shadows-python": ("import math\n", "rename it"),
    "not-installed": ("import nowhere_to_be_found\n", "is not installed"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_what_a_seal_cannot_cover_is_refused_at_sealing(desk: KernelDesk, text: str, words: str):
    desk.write("kernels/small_matmul.py", text + SOURCE)
    if "math" in text:
        desk.write("math.py", "")
    assert words in desk.refused(2, *PREDICT.split())


def test_an_order_carries_all_sources_and_is_measured_without_the_repository(desk: KernelDesk, tmp_path: Path):
    desk.seal()
    assert "kernels.small_matmul, kernels/rows.cu, kernels/rows.cuh, shared.tiles" in desk.run(
        sys.executable, "-P", "-m", "ledger", "order", "-o", str(tmp_path / "order.json")
    ).stderr.replace("\n", " ")
    # Measured beside another copy of the module, which is not what runs.
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "shared").mkdir(parents=True)
    (elsewhere / "shared" / "tiles.py").write_text("raise RuntimeError('another module ran')\n")
    done = desk.run(sys.executable, "-m", "ledger", "measure", "../order.json", "-o", "../results", folder=elsewhere)
    assert done.returncode == 0, done.stderr
    desk.ledger("verify", "--from", str(tmp_path / "results"))
    assert json.loads(desk.ledger("audit", "--recompute", "--json"))["verdict"] == "holds"


def test_an_order_is_refused_where_a_distribution_is_another(desk: KernelDesk, tmp_path: Path):
    desk.seal()
    desk.ledger("order", "-o", str(tmp_path / "order.json"))
    upgrade(desk)
    words = desk.refused(2, "measure", str(tmp_path / "order.json"), "-o", str(tmp_path / "results"))
    assert "tilebox is 1.1" in words and "expected 1.0" in words


def test_an_order_with_an_edited_source_is_refused(desk: KernelDesk, tmp_path: Path):
    desk.seal()
    file = tmp_path / "order.json"
    desk.ledger("order", "-o", str(file))
    file.write_text(file.read_text().replace("TILE = 64", "TILE = 32"))
    assert "which was sealed" in desk.refused(2, "measure", str(file), "-o", str(tmp_path / "results"))


@pytest.mark.exhaustive
def test_a_pinned_platform_version_is_measured_or_refused(desk: KernelDesk):
    import torch

    version = torch.__version__.partition("+")[0]
    seal = desk.seal("--pin", f"torch=={version}")
    desk.ledger("verify", seal[:10])
    other = json.loads(desk.ledger(*PREDICT.replace("256", "128").split(), "--json", "--pin", "torch==1.0"))[0]["id"]
    assert "sealed is torch==1.0" in desk.refused(2, "verify", other[:10])
    assert "not a platform package" in desk.refused(2, *PREDICT.split(), "--pin", "tilebox==1.0")
    assert json.loads(desk.ledger("audit", "--json"))["verdict"] == "holds"


@pytest.mark.exhaustive
def test_another_version_of_ledger_and_of_torch_in_between_changes_nothing(desk: KernelDesk):
    """The platform is recorded and not sealed: a seal made without torch is measured with it."""
    without_torch = (
        "import sys\nsys.modules['torch'] = sys.modules['triton'] = None\nfrom ledger.cli import main\nmain()\n"
    )
    done = desk.run(sys.executable, "-P", "-c", without_torch, *PREDICT.split(), "--json")
    assert done.returncode == 0, done.stderr
    desk.ledger("verify")
    (record,) = (desk.root / "verifications").glob("??/*.json")
    measured = json.loads(record.read_bytes())
    assert measured["schema"] == "ledger/measurement/2" and measured["device"]["software"]["torch"]
    assert json.loads(desk.ledger("audit", "--json"))["verdict"] == "holds"
