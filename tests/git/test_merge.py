"""Seals and measures on two branches of a real ledger, on this CPU, and merges them with plain `git merge`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from desk import Desk

CAMPAIGN = """\
campaign: {name}
kernel: vector_add
hardware: cpu
dtype: fp32
cells:
  - {{shape: {{N: {size}}}, regime: hbm-bound, pct: 50, threads: 1}}
"""

pytestmark = pytest.mark.slow
pytest.importorskip("torch", reason="measuring on a CPU needs torch")


class CampaignDesk(Desk):
    """A desk that seals campaigns of one cell."""

    def campaign(self, name: str, size: int) -> subprocess.CompletedProcess[str]:
        """Seal a campaign of one cell from a file that git does not see."""
        path = self.root / ".git" / "campaign.yaml"
        path.write_text(CAMPAIGN.format(name=name, size=size), encoding="utf-8")
        return self.run(sys.executable, "-P", "-m", "ledger", "predict", "--from", str(path), "--json")

    def seal_and_measure(self, branch: str, start: str, name: str, size: int) -> str:
        """Seal a campaign on a new branch and measure it there; return the seal's id."""
        self.git("switch", "-q", "-c", branch, start)
        done = self.campaign(name, size)
        assert done.returncode == 0, done.stderr
        self.ledger("verify")
        return json.loads(done.stdout)[0]["id"]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("left", "right"), id="two-names"),
        pytest.param(("same", "same"), id="one-name", marks=pytest.mark.exhaustive),
    ],
)
def test_branches_that_each_seal_and_measure_merge_and_hold(tmp_path: Path, names: tuple[str, str]):
    desk = CampaignDesk(tmp_path / "ledger")
    base = desk.git("rev-parse", "HEAD").strip()
    first = desk.seal_and_measure("left", base, names[0], 2_000_000)
    second = desk.seal_and_measure("right", base, names[1], 3_000_000)
    desk.git("merge", "-q", "--no-edit", "left")
    assert desk.git("status", "--porcelain") == ""

    audited = json.loads(desk.ledger("audit", "--json"))
    assert audited["verdict"] == "holds"
    assert not [finding for finding in audited["findings"] if finding["severity"] == "refused"]
    report = json.loads(desk.ledger("report", "--json"))
    assert {(row["seal"], row["campaign"], row["state"]) for row in report["rows"]} == {
        (first, names[0], "measured"),
        (second, names[1], "measured"),
    }
    shown = desk.ledger("report")
    assert f"seal {first[:10]}" in shown and f"seal {second[:10]}" in shown
    desk.ledger("report", "--site", str(tmp_path / "site"))
    assert len(list((tmp_path / "site" / "predictions").iterdir())) == 2

    # The ledger goes on from the merge: both names are taken, and a new seal follows both tips.
    for name in names:
        taken = desk.campaign(name, 3000)
        assert taken.returncode == 2 and f"campaign '{name}' was sealed before (predictions/" in taken.stderr
    after = json.loads(desk.campaign("after", 3000).stdout)[0]
    assert set(json.loads((desk.root / after["path"]).read_bytes())["previous"]) == {first, second}
    assert json.loads(desk.ledger("audit", "--json"))["verdict"] == "holds"


def test_a_name_is_taken_by_a_seal_and_not_by_a_page_of_an_earlier_version(tmp_path: Path):
    desk = CampaignDesk(tmp_path / "ledger")
    page = desk.root / "docs" / "predictions" / "grid.md"
    page.parent.mkdir(parents=True)
    page.write_text("# grid\n")
    (desk.root / "docs" / "report.md").write_text("# Report\n")
    desk.git("add", "docs")
    desk.git("commit", "-q", "-m", "Pages of an earlier version")
    assert desk.campaign("grid", 2_000_000).returncode == 0
    assert desk.campaign("grid", 2000).returncode == 2
    base = desk.git("rev-parse", "HEAD").strip()
    desk.ledger("verify")
    # Pages that are there already stay as they are.
    assert set(desk.git("diff", "--name-only", base, "HEAD", "--", "docs").split()) == set()
    assert page.read_text() == "# grid\n"
    assert json.loads(desk.ledger("audit", "--json"))["verdict"] == "holds"
    # A seal on a branch that HEAD does not hold takes no name here.
    desk.git("switch", "-q", "-c", "other", f"{base}~1")
    assert desk.campaign("grid", 3000).returncode == 0
