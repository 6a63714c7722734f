"""Tests that the index answers as the records do, whatever happened to the repository or to the index."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import builders
import pytest
from builders import Ledger, forecast, toy_draft
from many_records import write_many

from ledger.analysis.sight import Devices
from ledger.errors import EvidenceRefused, InputError
from ledger.evidence.known_cases import KnownCases
from ledger.git.ancestry import FileSet
from ledger.git.commit import Repository
from ledger.git.reader import Blobs
from ledger.workflow.answers import remembered
from ledger.workflow.index_file import NAME, ask_index
from ledger.workflow.seal import check_new
from ledger.workflow.sight import with_sights

DRAFTS = [
    {},
    {"B": 64, "dtype": "fp32"},
    {"B": 8},
    {"B": 64},
    {"H": 100},
    {"dtype": "bf16"},
    {"dtype": "fp32"},
    {"kernel_sha256": "ab" * 32},
]


ENDLESS = """
drop table {0};
create view {0} as with recursive n(i) as (select 1 union all select i + 1 from n) select {1} from n where i < 0;
"""


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(builders, "VERSION", 2)
    made = Ledger(tmp_path / "ledger")
    made.write("README.md", b"a project\n")
    made.commit("begin")
    return made


def index_of(ledger: Ledger) -> Path:
    return ledger.root / ".git" / NAME


def drafts():
    return [toy_draft(**changes) for changes in DRAFTS]


def by_index(ledger: Ledger) -> list[str | None]:
    found, _ = with_sights(Repository(ledger.root), drafts())
    return [item.forecast.sight for item in found]


def by_records(ledger: Ledger) -> list[str | None]:
    """Return the same from a judged book, where every record counts as known."""
    book = ledger.book()
    known = KnownCases(Devices([drafts()[0].hardware]), lambda _positions: FileSet(0, 0), lambda _seal: 0)
    operations = {(view.sealed.id, view.forecast.cell): view.forecast.operation for view in book.cells}
    for one in book.records:
        known.add(one, operations.get((one.measurement.seal, one.measurement.cell)), ())
    shown = [known.disproof(item.forecast, "", "blind") for item in drafts()]
    return [None if one is None else one.sight for one in shown]


def merged(ledger):
    ledger.switch("side", "HEAD~2")
    ledger.measure(ledger.seal(forecast(B=64)))
    ledger.switch("main")
    ledger.merge("side")


def other_branch(ledger):
    ledger.switch("old", "HEAD~2")


def rewritten(ledger):
    by_index(ledger)
    ledger.git("reset", "--quiet", "--hard", "HEAD~3")
    ledger.git("reflog", "expire", "--expire=now", "--all")
    ledger.git("gc", "--quiet", "--prune=now")


def deleted(ledger):
    index_of(ledger).unlink()


def not_a_database(ledger):
    index_of(ledger).write_bytes(b"not a database" * 1000)


def cut_short(ledger):
    data = index_of(ledger).read_bytes()
    index_of(ledger).write_bytes(data[: len(data) // 2])


def a_folder(ledger):
    index_of(ledger).unlink()
    index_of(ledger).mkdir()


def of_another_version(ledger):
    with closing(sqlite3.connect(index_of(ledger))) as held:
        held.execute("pragma user_version = 5")
        held.execute("drop table timed")
        held.execute("create table timed (other text)")
        held.commit()


def with_a_table_and_a_trigger_of_others(ledger):
    with closing(sqlite3.connect(index_of(ledger))) as held:
        held.executescript("create table other (x); create trigger t after insert on about begin delete from held; end")


def with_a_view_in_place_of_a_table(ledger):
    with closing(sqlite3.connect(index_of(ledger))) as held:
        held.executescript(ENDLESS.format("about", "1, 1") + "pragma user_version = 5")


@pytest.mark.parametrize(
    "event",
    [
        *(merged, other_branch, rewritten, deleted, not_a_database, cut_short, a_folder, of_another_version),
        *(with_a_table_and_a_trigger_of_others, with_a_view_in_place_of_a_table),
    ],
    ids=lambda event: event.__name__,
)
def test_the_index_says_what_the_records_say(ledger, event):
    ledger.measure(ledger.seal())
    ledger.measure(ledger.seal(forecast(H=150)))
    before = by_index(ledger)
    assert before == by_records(ledger)
    event(ledger)
    assert by_index(ledger) == by_records(ledger)
    if event in (merged, rewritten):
        assert by_index(ledger) != before
    ledger.measure(ledger.seal(forecast(B=64, dtype="fp32")))
    assert by_index(ledger) == by_records(ledger) != before


def test_processes_that_make_the_index_at_once_agree(ledger):
    ledger.measure(ledger.seal())
    expected = by_records(ledger)
    with ThreadPoolExecutor(6) as together:
        found = list(together.map(lambda _: by_index(ledger), range(12)))
    assert found == [expected] * 12


def test_one_more_seal_reads_no_more_records_of_a_large_ledger(tmp_path, monkeypatch):
    write_many(tmp_path / "bare.git", 40)
    subprocess.run(["git", "clone", "-q", str(tmp_path / "bare.git"), str(tmp_path / "desk")], check=True)
    repository = Repository(tmp_path / "desk")
    reads = []
    read = Blobs.read
    monkeypatch.setattr(Blobs, "read", lambda blobs, *args: reads.append(args) or read(blobs, *args))
    with_sights(repository, [toy_draft()])
    profile = 1
    assert len(reads) == 80 + profile
    reads.clear()
    with_sights(repository, [toy_draft()])
    assert len(reads) == profile


def test_a_campaign_is_sealed_once(ledger):
    ledger.seal(campaign="spring")
    repository = Repository(ledger.root)
    with pytest.raises(InputError, match="campaign 'spring' was sealed before"):
        check_new(repository, "spring", ledger.head, "Ada")
    check_new(repository, "spring", ledger.head, "Grace")
    check_new(repository, "autumn", ledger.head, "Ada")
    check_new(repository, "spring", ledger.git("rev-parse", "HEAD~1"), "Ada")


def test_a_kept_answer_is_of_its_commit_and_undamaged(tmp_path):
    made = []

    def make():
        made.append(len(made))
        return {"made": len(made)}

    def ask(commit):
        return remembered(tmp_path, "status", commit, make)["made"]

    assert [ask("a"), ask("a"), ask("b"), ask("b"), ask("a")] == [1, 1, 2, 2, 3]
    with closing(sqlite3.connect(tmp_path / NAME)) as held:
        held.execute("update answers set data = zeroblob(length(data))")
        held.commit()
    assert [ask("a"), ask("a")] == [4, 4]


def ask_once(folder):
    return remembered(folder, "status", "a", lambda: {"made": 1})["made"]


@pytest.mark.parametrize("suffix", ["", "-journal", "-wal"])
@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_nothing_is_written_through_a_link(tmp_path, link, suffix):
    foreign = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(foreign)) as held:
        held.executescript("create table bookmarks (x); insert into bookmarks values (1)")
    before = foreign.read_bytes()
    folder = tmp_path / "git"
    folder.mkdir()
    link(folder / f"{NAME}{suffix}", foreign)
    assert ask_once(folder) == 1
    assert foreign.read_bytes() == before
    assert (folder / NAME).is_file() and not (folder / f"{NAME}{suffix}").is_symlink()


def test_a_pipe_is_no_index(tmp_path):
    os.mkfifo(tmp_path / NAME)
    assert [ask_once(tmp_path), ask_once(tmp_path)] == [1, 1]
    assert (tmp_path / NAME).is_file()


def test_a_journal_removes_no_file_that_it_names(tmp_path):
    victim, folder = tmp_path / "victim", tmp_path / "git"
    victim.write_text("kept")
    folder.mkdir()
    assert ask_once(folder) == 1
    name = bytes(victim)
    magic = bytes.fromhex("d9d505f920a163d7")
    page = (folder / NAME).read_bytes()[:4096]
    # A journal of one page, with the name of another one at its end, as SQLite leaves it when a process is killed.
    head = magic + b"".join(n.to_bytes(4, "big") for n in (1, 0, 1, 512, 4096)) + bytes(512 - 28)
    total = sum(page[place] for place in range(4096 - 200, 0, -200)) & 0xFFFFFFFF
    record = (1).to_bytes(4, "big") + page + total.to_bytes(4, "big")
    told = (1 << 30 // 4096).to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
    told += (sum(name) & 0xFFFFFFFF).to_bytes(4, "big") + magic
    (folder / f"{NAME}-journal").write_bytes(head + record + told)
    assert ask_once(folder) == 1
    assert victim.exists() and not (folder / f"{NAME}-journal").exists()


@pytest.mark.parametrize("stamp", ["", "pragma user_version = 5"], ids=["of-this-version", "of-another"])
def test_a_view_without_end_is_removed_before_it_is_asked(tmp_path, stamp):
    assert ask_once(tmp_path) == 1
    with closing(sqlite3.connect(tmp_path / NAME)) as held:
        held.executescript(ENDLESS.format("answers", "1 as name, 1 as key, 1 as digest, 1 as data") + stamp)
    assert ask_once(tmp_path) == 1
    with closing(sqlite3.connect(tmp_path / NAME)) as held:
        assert held.execute("select count(*) from sqlite_master where type = 'view'").fetchone() == (0,)
        assert held.execute("select count(*) from answers").fetchone() == (1,)


def test_a_question_of_too_many_steps_is_asked_of_a_new_index(tmp_path, monkeypatch):
    assert ask_once(tmp_path) == 1
    monkeypatch.setattr("ledger.workflow.index_file._MOST_STEPS", 10_000)
    monkeypatch.setattr("ledger.workflow.index_file._STEPS_AT_ONCE", 1000)
    with closing(sqlite3.connect(tmp_path / NAME)) as held:
        rows = [(str(number), "k", b"", b"") for number in range(20_000)]
        held.executemany("insert into answers values (?, ?, ?, ?)", rows)
        held.commit()
    assert ask_index(tmp_path, lambda index: index.execute("select sum(length(name)) from answers").fetchone()) == (
        None,
    )


def test_report_and_audit_do_not_read_the_index(ledger, monkeypatch, capsys):
    from ledger.cli.app import app

    def document(*command: str):
        with pytest.raises(SystemExit) as ended:
            app(list(command))
        assert not ended.value.code
        return json.loads(capsys.readouterr().out)

    ledger.measure(ledger.seal())
    monkeypatch.chdir(ledger.root)
    status, report, audit = (document(name, "--json") for name in ("status", "report", "audit"))
    monkeypatch.setattr("ledger.workflow.index_file.sqlite3.connect", lambda *_args, **_more: pytest.fail("read"))
    assert (document("report", "--json"), document("audit", "--json")) == (report, audit)
    monkeypatch.undo()
    monkeypatch.chdir(ledger.root)
    index_of(ledger).unlink()
    assert document("status", "--json") == status


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "computed"])
def test_score_refuses_what_is_changed_and_not_committed(ledger, monkeypatch, capsys, kept):
    from ledger.cli.app import app

    seal = ledger.seal()
    ledger.measure(seal)
    monkeypatch.chdir(ledger.root)
    if kept:
        with pytest.raises(SystemExit):
            app(["score"])
    next(ledger.root.glob("predictions/??/*.json")).write_text("edited")
    capsys.readouterr()
    with pytest.raises(EvidenceRefused, match="changed and not committed"):
        app(["score"])
    assert not capsys.readouterr().out
