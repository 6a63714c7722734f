"""Tests that lists which follow a ledger as it grows are those that judging all of it gives."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import builders
import pytest
from builders import FASTER, Ledger, forecast, on_profile
from many_records import write_many
from random_ledger import random_step
from samples import TOY

from ledger.analysis.score import GROUPS
from ledger.cli.kept_lists import KINDS
from ledger.evidence.judged_ledger import judged_ledger
from ledger.forecasters import last_measured
from ledger.git.history import read_history
from ledger.git.reader import Blobs, Reader, quiet_environment
from ledger.render.kept_scores import kept_sheet, needed
from ledger.render.score_sheet import as_value, score_sheet
from ledger.workflow import kept_tables
from ledger.workflow.answers import growing
from ledger.workflow.index_file import NAME
from ledger.workflow.kept_tables import Table


def told(table: Table) -> Table:
    """Return a table as its JSON values."""
    return Table(*json.loads(json.dumps(table)))


class Asked:
    """Ask for a list of a ledger at HEAD, and count how often all was judged."""

    def __init__(self, root: Path, git_dir: Path | None = None) -> None:
        self.git_dir = git_dir or root / ".git"
        self.judged = 0

    def table(self, name: str, wanted=None) -> Table:
        reader = Reader(self.git_dir, quiet_environment())
        head = reader.run("rev-parse", "HEAD").decode().strip()

        def judge():
            self.judged += 1
            history = read_history(reader, head)
            return history, judged_ledger(reader, history)

        return growing(self.git_dir, reader, head, name, kinds=KINDS, judged=judge, wanted=wanted)

    def check(self) -> None:
        reader = Reader(self.git_dir, quiet_environment())
        book = judged_ledger(reader, read_history(reader, "HEAD"))
        for name, kind in KINDS.items():
            assert told(self.table(name)) == told(kind.make(book))
        if not book.refused:
            for group in (None, *GROUPS):
                assert as_value(kept_sheet(self.table("cells", needed), group)) == as_value(score_sheet(book, group))


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def ledger(request, tmp_path, monkeypatch):
    monkeypatch.setattr(builders, "VERSION", request.param)
    made = Ledger(tmp_path / "ledger")
    made.write("README.md", b"a project\n")
    made.commit("begin")
    made.first = made.seal()
    made.measure(made.first)
    made.asked = Asked(made.root)
    made.asked.check()
    assert made.asked.judged == 1
    return made


def another_seal(ledger):
    ledger.seal(forecast(B=8))


def another_forecast_of_a_measured_case(ledger):
    ledger.seal(forecast())


def measured_again(ledger):
    ledger.measure(ledger.first, run=1)


def sealed_twice_and_measured_once(ledger):
    ledger.seal(forecast(B=8))
    ledger.measure(ledger.seal(forecast(B=8)))


def withdrawn(ledger):
    ledger.void(ledger.seal(forecast(B=8)))


def other_files(ledger):
    ledger.write("notes.txt", b"notes\n")
    ledger.commit("notes")


def merged(ledger):
    ledger.switch("side", "HEAD~1")
    ledger.measure(ledger.seal(forecast(B=16)))
    ledger.switch("main")
    ledger.seal(forecast(B=16))
    ledger.merge("side")


def put_on(ledger, profile, made):
    ledger.put_profile(profile)
    return ledger.seal(on_profile(profile, made))


def for_another_device(ledger):
    put_on(ledger, FASTER, forecast())


def for_a_device_renamed(ledger):
    put_on(ledger, TOY.model_copy(update={"name": "fresh"}), forecast())


ORDINARY = [
    for_another_device,
    for_a_device_renamed,
    another_seal,
    another_forecast_of_a_measured_case,
    measured_again,
    sealed_twice_and_measured_once,
    withdrawn,
    other_files,
    merged,
]


@pytest.mark.parametrize("step", ORDINARY, ids=lambda step: step.__name__)
def test_an_ordinary_step_is_judged_alone(ledger, step):
    step(ledger)
    ledger.asked.check()
    assert ledger.asked.judged == 1
    ledger.measure(ledger.first, run=len(list((ledger.root / "verifications").glob("??/*.json"))))
    ledger.asked.check()


def removed(ledger):
    ledger.git("rm", "-q", str(next((ledger.root / "verifications").glob("??/*.json"))))
    ledger.commit("remove")


def edited(ledger):
    path = next((ledger.root / "verifications").glob("??/*.json"))
    ledger.write(str(path.relative_to(ledger.root)), b"{}")
    ledger.commit("edit")


def copied(ledger):
    rounds = tuple(range(2_000_000, 2_000_031))
    times = builders.timing(2_000_015, rounds_ps=rounds, low_ps=rounds[10], high_ps=rounds[20])
    ledger.measure(ledger.seal(forecast(B=8)), timing=times)
    ledger.asked.check()
    ledger.measure(ledger.seal(forecast(B=16)), timing=times)


def measured_before_it_was_sealed(ledger):
    ledger.switch("side", "HEAD")
    sealed = ledger.seal(forecast(B=8))
    ledger.switch("main")
    ledger.put_measurement(sealed)
    ledger.commit("too early")
    ledger.merge("side")


def two_records_in_a_commit(ledger):
    ledger.put_measurement(ledger.first, run=1)
    ledger.put_seal(forecast(B=8))
    ledger.commit("both")


def runs_left_out(ledger):
    ledger.measure(ledger.first, run=2)


def a_link_of_the_chain_left_out(ledger):
    ledger.seal(forecast(B=8))
    sealed = ledger.put_seal(forecast(B=16), previous=(ledger.first.id,), sequence=2)
    ledger.commit(f"fork {sealed.id}")


def an_odd_file(ledger):
    ledger.write("predictions/odd.json", b"{}")
    ledger.commit("odd")


REFUSED = [
    removed,
    edited,
    copied,
    measured_before_it_was_sealed,
    two_records_in_a_commit,
    runs_left_out,
    a_link_of_the_chain_left_out,
    an_odd_file,
]


@pytest.mark.parametrize("step", REFUSED, ids=lambda step: step.__name__)
def test_what_is_refused_is_refused_as_by_judging_all(ledger, step):
    step(ledger)
    ledger.asked.check()
    assert ledger.asked.judged > 1 and ledger.asked.table("cells").more["refused"]
    ledger.seal(forecast(B=32))
    ledger.asked.check()


def rewritten(ledger):
    ledger.git("reset", "--quiet", "--hard", "HEAD~1")
    ledger.seal(forecast(B=8))
    ledger.measure(ledger.first)


def joined_from_the_other_side(ledger):
    ledger.switch("side", "HEAD~1")
    ledger.seal(forecast(B=16))
    ledger.merge("main")


@pytest.mark.parametrize("step", [rewritten, joined_from_the_other_side], ids=lambda step: step.__name__)
def test_a_history_that_does_not_plainly_go_on_is_judged_as_a_whole(ledger, step):
    step(ledger)
    ledger.asked.check()
    assert ledger.asked.judged == 2


def test_a_branch_that_contradicts_the_sight_of_an_old_seal_changes_it(ledger):
    if builders.VERSION == 1:
        pytest.skip("version 1 declares no sight")
    old = ledger.seal(forecast(B=8).model_copy(update={"sight": "blind", "known": "nothing"}))
    ledger.asked.check()
    ledger.switch("side", "HEAD~1")
    ledger.measure(ledger.seal(forecast(B=8)))
    ledger.switch("main")
    ledger.merge("side")
    ledger.asked.check()
    assert ledger.asked.judged == 1
    columns = ledger.asked.table("cells").columns
    assert columns["sight"][columns["seal"].index(old.id)] == "informed"


def test_a_profile_that_makes_two_devices_one_changes_the_sight_of_an_old_seal(ledger):
    if builders.VERSION == 1:
        pytest.skip("version 1 declares no sight")
    old = put_on(ledger, FASTER, forecast().model_copy(update={"sight": "blind", "known": ""}))
    ledger.asked.check()
    put_on(ledger, TOY.model_copy(update={"name": FASTER.name}), forecast(B=64))
    ledger.asked.check()
    assert ledger.asked.judged == 2
    columns = ledger.asked.table("cells").columns
    assert columns["sight"][columns["seal"].index(old.id)] == "informed"


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_give_what_judging_all_gives(ledger, seed):
    drawn, seals = random.Random(seed), [ledger.first]
    for _ in range(14):
        for _ in range(drawn.choice((1, 1, 2, 3))):
            random_step(ledger, drawn, seals)
        ledger.asked.check()


def test_patches_are_joined_and_damaged_ones_count_as_none(ledger, monkeypatch):
    monkeypatch.setattr(kept_tables, "MOST_PATCHES", 2)
    for number in range(4):
        ledger.seal(forecast(B=2 ** (3 + number)))
        ledger.asked.check()
    assert ledger.asked.judged == 1
    with closing(sqlite3.connect(ledger.root / ".git" / NAME)) as held:
        assert held.execute("update patches set data = zeroblob(9)").rowcount == 1
        held.commit()
    ledger.asked.check()
    assert ledger.asked.judged == 2


def test_growth_reads_few_records_of_a_large_ledger(tmp_path, monkeypatch):
    write_many(tmp_path / "large.git", 60)
    reader = Reader(tmp_path / "large.git", quiet_environment())
    heads = reader.run("rev-list", "--first-parent", "main").decode().split()
    asked = Asked(tmp_path, tmp_path / "large.git")
    subprocess.run(["git", "-C", str(tmp_path / "large.git"), "update-ref", "refs/heads/main", heads[10]], check=True)
    asked.check()
    reads: list[object] = []
    for head in reversed(heads[:10]):
        subprocess.run(["git", "-C", str(tmp_path / "large.git"), "update-ref", "refs/heads/main", head], check=True)
        with monkeypatch.context() as patch:
            read = Blobs.read
            patch.setattr(Blobs, "read", lambda blobs, *args, read=read: reads.append(args) or read(blobs, *args))
            asked.table("cells")
        asked.check()
    assert asked.judged == 1
    assert len(reads) < 200


def deleted(index, other):
    index.unlink()


def cut_off(index, other):
    index.write_bytes(index.read_bytes()[:5000])


def no_database(index, other):
    index.write_bytes(b"no database" * 1000)


def of_another_ledger(index, other):
    index.write_bytes((other.root / ".git" / NAME).read_bytes())


def with_damaged_values(index, other):
    with closing(sqlite3.connect(index)) as held:
        assert held.execute("update columns set data = zeroblob(length(data))").rowcount > len(KINDS)
        held.commit()


@pytest.mark.parametrize(
    "harm", [deleted, cut_off, no_database, of_another_ledger, with_damaged_values], ids=lambda harm: harm.__name__
)
def test_an_index_that_is_gone_damaged_or_foreign_changes_no_answer(ledger, harm, tmp_path):
    other = Ledger(tmp_path / "other")
    other.write("README.md", b"another project\n")
    other.commit("begin")
    for size in (8, 16):
        other.measure(other.seal(forecast(B=size)))
    Asked(other.root).check()
    harm(ledger.root / ".git" / NAME, other)
    ledger.asked.check()
    assert ledger.asked.judged == 2
    ledger.measure(ledger.seal(forecast(B=32)))
    ledger.asked.check()
    assert ledger.asked.judged == 2


def test_persistence_is_asked_about_grown_cells_alone(ledger, monkeypatch):
    """What a grown cell is compared with is all that was measured before its seal, old and new."""
    first = ledger.seal(forecast(B=8))
    ledger.asked.check()
    ledger.measure(first)
    ledger.measure(ledger.seal(forecast(B=16)))
    asked, answered = [], last_measured._answered
    with monkeypatch.context() as patch:
        patch.setattr(last_measured, "_answered", lambda *one: asked.append(one) or answered(*one))
        ledger.asked.table("cells")
    assert sorted(words[1].split(",")[0] for words, _ in asked) == ["B=16", "B=8"]
    ledger.asked.check()
    assert ledger.asked.judged == 1
