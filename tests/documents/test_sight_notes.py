"""Holds campaigns/sight.yaml to the records and files that it quotes, and to the cells that were counted as blind."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ledger_process import repository_report, rows_of_version_1

from ledger.analysis.sight_notes import SightFile
from ledger.canonical import validate
from ledger.record_files import parse_yaml

ROOT = Path(__file__).parents[2]
NOTES = validate(SightFile, parse_yaml((ROOT / "campaigns" / "sight.yaml").read_bytes(), what="notes"), what="notes")
FILES = [note for note in NOTES.notes if note.commit is not None and note.path != "docs/notes/forecasting.md"]


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def seals() -> dict[str, Any]:
    """Return the seals by id, each with the commit that introduced it."""
    if not (ROOT / ".git").exists():
        pytest.skip("this copy has no git history")
    found = {path.stem: json.loads(path.read_bytes()) for path in (ROOT / "predictions").glob("??/*.json")}
    for identity, seal in found.items():
        path = f"predictions/{identity[:2]}/{identity}.json"
        seal["commit"] = git("log", "--diff-filter=A", "--format=%H", "--", path).split()[-1]
    return found


@pytest.mark.parametrize("note", NOTES.notes, ids=lambda note: note.quote[:40])
def test_each_quote_stands_where_the_note_says(note, seals):
    (seal,) = [seal for identity, seal in seals.items() if identity.startswith(note.seal)]
    cells = {cell["cell"]: cell["why"] for cell in seal["cells"]}
    assert set(note.cells or ()) <= set(cells)
    if note.commit is None:
        assert all(note.quote in why or note.quote in seal["why"] for why in map(cells.get, note.cells or cells))
    else:
        assert note.quote in git("show", f"{note.commit}:{note.path}")


@pytest.mark.parametrize("note", FILES, ids=lambda note: note.quote[:40])
def test_times_under_docs_were_committed_before_their_seal(note, seals):
    (seal,) = [seal for identity, seal in seals.items() if identity.startswith(note.seal)]
    git("merge-base", "--is-ancestor", note.commit, f"{seal['commit']}^")
    assert note.quote in git("show", f"{seal['commit']}^:{note.path}")


def test_the_cells_that_version_1_counted_as_blind_are_near_or_informed(seals):
    """105 cells have no earlier record of their kernel, shape, dtype and profile; none of them was blind."""
    document = repository_report()
    first: dict[tuple[Any, ...], Any] = {}
    for row in rows_of_version_1():
        first.setdefault((row["kernel"], tuple(row["shape"].items()), row["dtype"], row["hardware"]), row)
    sights = [row["sight"] for row in first.values()]
    assert (len(sights), sights.count("informed"), sights.count("near")) == (105, 30, 75)
    assert all(row["corrections"] and not row["blind"] for row in first.values())
    files = {cell for note in FILES for cell in note.cells or ()}
    assert len(files) == 7 and files <= {row["cell"] for row in first.values()}
    flagged = [finding for finding in document["findings"] if finding["code"].startswith("sight-")]
    old = {identity for identity, seal in seals.items() if seal["schema"] == "ledger/seal/1"}
    assert not [finding for finding in flagged if Path(finding["path"]).stem in old]


def test_cells_that_a_halved_shape_contradicts_count_as_near() -> None:
    """Twelve cells of the third contest, by each who forecast them, and 39 drawn in the fourth.

    The third contest's domains left out shapes that interventions timed. Of the fourth the drawn seals declare what had
    been timed on the other GPU; seals of the same cells that declare their own followed.
    """
    flagged = [one for one in repository_report()["findings"] if one["code"].startswith("sight-")]
    assert {one["code"] for one in flagged} == {"sight-contradicted"}
    assert len({one["message"].partition(" declares blind")[0] for one in flagged}) == 51
