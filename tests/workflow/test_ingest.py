"""Tests that measurements are judged before they are committed, and that the book returned is the ledger's at HEAD."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import attacks  # noqa: F401  (first: level_attacks enters itself into its corpus)
import level_attacks
import pytest
from builders import EMPTY_GIT, Ledger, Seal, forecast, measurement, timing

from ledger.canonical import encode, object_id, object_path
from ledger.cli import main
from ledger.cli.open_ledger import refuse
from ledger.cli.verify import _show_ingested
from ledger.errors import EvidenceRefused
from ledger.evidence.audit import audit
from ledger.evidence.judged_ledger import judged_ledger
from ledger.git.commit import Repository
from ledger.git.history import read_history
from ledger.git.reader import Reader, quiet_environment
from ledger.records import Finding
from ledger.workflow import ingest as ingesting
from ledger.workflow.ingest import Incoming, Ingested, Outcome, incoming_of, ingest


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    for name, value in EMPTY_GIT.items():
        monkeypatch.setenv(name, value)
    made = Ledger(tmp_path / "ledger")
    made.write("README.md", b"a project\n")
    made.commit("begin")
    return made


def reader_of(ledger: Ledger) -> Reader:
    return Reader(ledger.root / ".git", quiet_environment())


def incoming(sealed: Seal, cell: int = 0, **changes) -> Incoming:
    return incoming_of(measurement(sealed.prediction.cells[cell], seal=sealed.id, **changes), {})


def put(ledger: Ledger, *items: Incoming, **options) -> Ingested:
    return ingest(Repository(ledger.root), reader_of(ledger), items, **options)


def states(done: Ingested) -> list[str]:
    return [cell.state for cell in done.book.cells]


def wrong(sealed: Seal, cell: int = 0) -> Incoming:
    """Return a measurement whose samples lie elsewhere than its seal puts them."""
    honest = measurement(sealed.prediction.cells[cell], seal=sealed.id)
    samples = honest.samples.model_copy(update={"positions": tuple(reversed(honest.samples.positions))})
    return incoming_of(honest.model_copy(update={"samples": samples}), {})


def test_book_is_what_a_fresh_judge_says_of_head(ledger: Ledger):
    first = ledger.seal(forecast(B=1), forecast(B=2), forecast(B=3))
    ledger.measure(first)
    second = ledger.seal(forecast(B=1, percent_milli=900))
    evidence = b"a report"
    named = [{"name": "ncu.csv", "sha256": object_id(evidence), "bytes": len(evidence)}]
    with_report = measurement(first.prediction.cells[2], seal=first.id, timing=timing(2_100_000))
    with_report = type(with_report).model_validate_json(
        json.dumps({**with_report.model_dump(mode="json", by_alias=True), "attachments": named})
    )
    done = put(
        ledger,
        incoming(first, 1, timing=timing(2_200_000)),
        incoming_of(with_report, {object_path("verifications", object_id(evidence)): evidence}),
        incoming(second, timing=timing(2_300_000)),
    )
    assert states(done) == ["measured"] * 4
    assert [item.refused for item in done.taken] == [()] * 3
    assert done.book == ledger.book()
    assert done.book.head == ledger.head and done.taken[-1].commit == ledger.head
    assert [r.commit.position for r in done.book.records] == [2, 4, 5, 6]


def test_notes_on_sight_count_in_the_book_that_verify_prints(ledger: Ledger):
    sealed = ledger.seal(forecast(B=1), why="All were timed in development")
    note = f'{{seal: "{sealed.id}", sight: informed, quote: timed in development}}'
    ledger.write("campaigns/sight.yaml", f"notes: [{note}]\n".encode())
    ledger.commit()
    done = put(ledger, incoming(sealed))
    assert [cell.sight for cell in done.book.cells] == ["informed"]
    reader = reader_of(ledger)
    assert done.book == judged_ledger(reader, read_history(reader))


def test_a_seal_dated_after_its_measurement_is_disclosed_as_a_fresh_judge_does(ledger: Ledger):
    sealed = ledger.seal(when="2099-01-01T00:00:00+00:00")
    done = put(ledger, incoming(sealed))
    assert "date-order" in {finding.code for finding in done.book.findings}
    assert done.book == ledger.book()


def test_only_what_the_report_would_refuse_is_left_out(ledger: Ledger):
    sealed = ledger.seal(forecast(B=1), forecast(B=2), forecast(B=3))
    items = [incoming(sealed, 0), wrong(sealed, 1), incoming(sealed, 2, timing=timing(2_100_000))]
    done = put(ledger, *items)
    assert [[finding.code for finding in item.refused] for item in done.taken] == [[], ["binding-broken"], []]
    assert [item.commit is None for item in done.taken] == [False, True, False]
    assert states(done) == ["measured", "open", "measured"]
    assert done.book == ledger.book() and not done.book.refused
    assert ledger.git("rev-list", "--count", "HEAD") == "4"


def test_a_run_that_follows_only_on_a_refused_one_is_left_out(ledger: Ledger):
    sealed = ledger.seal()
    done = put(ledger, wrong(sealed), incoming(sealed, run=1, timing=timing(2_100_000)))
    assert [[finding.code for finding in item.refused] for item in done.taken] == [["binding-broken"], ["run-missing"]]
    assert states(done) == ["open"] and done.book == ledger.book()


def test_a_measurement_that_would_refuse_an_older_record_is_left_out(ledger: Ledger):
    sealed = ledger.seal(forecast(B=1), forecast(B=2), forecast(B=3))
    rounds = tuple(range(2_000_000, 2_000_021))
    series = timing(2_000_010, rounds_ps=rounds, low_ps=rounds[5], high_ps=rounds[15])
    ledger.measure(sealed, 0)
    older = ledger.measure(sealed, 1, timing=series)
    # A second run of the first cell repeats the timings of the second cell, which the judge then calls the copy.
    copied = incoming(sealed, 0, run=1, timing=series)
    done = put(ledger, incoming(sealed, 2, timing=timing(2_100_000)), copied)
    assert done.taken[0].commit is not None
    assert [(finding.code, finding.path) for finding in done.taken[1].refused] == [("evidence-copied", older)]
    assert states(done) == ["measured"] * 3 and done.book == ledger.book()


def test_nothing_is_committed_to_a_ledger_that_is_refused(ledger: Ledger):
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    ledger.measure(sealed, samples=wrong(sealed).measurement.samples)
    before = ledger.head
    done = put(ledger, incoming(sealed, 1, timing=timing(2_100_000)), wrong(sealed, 1))
    assert done.taken == () and [finding.code for finding in done.book.refused] == ["binding-broken"]
    assert ledger.head == before


def test_what_is_there_already_or_stands_twice_is_committed_once(ledger: Ledger):
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    items = [incoming(sealed, 0), incoming(sealed, 1, timing=timing(2_100_000))]
    assert len(put(ledger, items[0], items[0]).taken) == 1
    done = put(ledger, *items)
    assert [item.path for item in done.taken] == [items[1].path]
    again = put(ledger, *items)
    assert again.taken == () and again.book == ledger.book()
    assert ledger.git("rev-list", "--count", "HEAD") == "4"


def test_a_history_that_is_no_longer_heads_is_read_again(ledger: Ledger):
    sealed = ledger.seal()
    history = read_history(reader_of(ledger))
    other = ledger.seal(forecast(B=2))
    done = put(ledger, incoming(sealed), history=history)
    assert {seal.id for seal in done.book.seals} == {sealed.id, other.id}
    assert done.book == ledger.book()


def test_a_writer_that_comes_between_is_in_the_book(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    commit = Repository.commit

    def slow(self, *arguments, **options):
        written = commit(self, *arguments, **options)
        monkeypatch.setattr(Repository, "commit", commit)
        ledger.seal(forecast(B=3))
        return written

    monkeypatch.setattr(Repository, "commit", slow)
    done = put(ledger, incoming(sealed, 0), incoming(sealed, 1, timing=timing(2_100_000)))
    assert states(done) == ["measured", "measured", "open"]
    assert done.book == ledger.book()


def changed(sealed: Seal, cell: int = 0, **changes) -> Incoming:
    """Return a measurement of which one digit of one sample was changed on its way."""
    record = measurement(sealed.prediction.cells[cell], seal=sealed.id, **changes)
    first, *others = record.samples.bits
    # Of fp16: a value of 32 or more, or another sign; a lower digit may be within the tolerance of a sample near 0.
    digit = "5" if first[0] != "5" else "d"
    samples = record.samples.model_copy(update={"bits": (digit + first[1:], *others)})
    return incoming_of(record.model_copy(update={"samples": samples}), {})


def test_samples_are_recomputed_before_the_commit(ledger: Ledger):
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    later = incoming(sealed, 0, run=1, timing=timing(2_100_000))
    done = put(ledger, changed(sealed, 0), later, incoming(sealed, 1, timing=timing(2_200_000)))
    assert [[finding.code for finding in item.refused] for item in done.taken] == [
        ["samples-disagree"],
        ["run-missing"],
        [],
    ]
    assert states(done) == ["open", "measured"] and done.book == ledger.book()
    assert audit(str(ledger.root), recomputed=True).verdict == "holds"


def test_a_measurement_that_cannot_be_recomputed_is_committed_and_named(ledger: Ledger):
    sealed = ledger.seal(forecast(protocol=level_attacks.sampling(8)))
    (taken,) = put(ledger, incoming(sealed)).taken
    assert taken.commit is not None and "no level 1, positions only: 8 samples" in (taken.note or "")


def test_verify_says_once_what_holds_of_several_measurements(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    few = level_attacks.sampling(8)
    sealed = ledger.seal(forecast(H=32, protocol=few), forecast(H=64, protocol=few), forecast(B=3))
    results = write(tmp_path / "results", *(incoming(sealed, cell) for cell in range(3)))
    assert run(ledger, monkeypatch, "verify", "--from", str(results)) == 0
    told = capsys.readouterr()
    text = " ".join((told.out + told.err).split())
    assert text.count("no level 1") == 1
    assert "2 of 3 measurements: no level 1, positions only: 8 samples" in text


def before_the_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let another writer act once, after the judging and before the first commit."""
    commit = Repository.commit

    def late(self, *arguments, **options):
        monkeypatch.setattr(Repository, "commit", commit)
        act()
        return commit(self, *arguments, **options)

    monkeypatch.setattr(Repository, "commit", late)


def test_a_measurement_that_a_new_tip_refuses_is_not_committed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    sealed = ledger.seal(forecast(B=1), forecast(B=2), forecast(B=3))
    rounds = tuple(range(2_000_000, 2_000_021))
    series = timing(2_000_010, rounds_ps=rounds, low_ps=rounds[5], high_ps=rounds[15])
    before_the_commit(monkeypatch, lambda: ledger.measure(sealed, 0, timing=series))
    done = put(ledger, incoming(sealed, 1, timing=series), incoming(sealed, 2, timing=timing(2_100_000)))
    assert [[finding.code for finding in item.refused] for item in done.taken] == [["evidence-copied"], []]
    assert states(done) == ["measured", "open", "measured"]
    assert done.book == ledger.book() and not done.book.refused


def test_a_measurement_that_came_meanwhile_is_not_committed_twice(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    sealed = ledger.seal()
    before_the_commit(monkeypatch, lambda: ledger.measure(sealed))
    done = put(ledger, incoming(sealed))
    assert done.taken == () and states(done) == ["measured"]
    assert not done.book.findings and done.book == ledger.book()


# The command


def run(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.chdir(ledger.root)
    monkeypatch.setattr("sys.argv", ["ledger", *arguments])
    with pytest.raises(SystemExit) as done:
        main()
    return int(done.value.code or 0)


def write(folder: Path, *items: Incoming) -> Path:
    folder.mkdir()
    for number, item in enumerate(items):
        (folder / f"{number}.json").write_bytes(encode(item.measurement))
    return folder


def attached(item: Incoming, *files: bytes, size: int | None = None) -> Incoming:
    """Return a measurement that names files as its attachments; `size`: what it says of them instead of the truth."""
    value = item.measurement.model_dump(mode="json", by_alias=True)
    value["attachments"] = [
        {"name": f"{number}.csv", "sha256": object_id(data), "bytes": len(data) if size is None else size}
        for number, data in enumerate(files)
    ]
    return incoming_of(type(item.measurement).model_validate_json(json.dumps(value)), {})


def put_objects(folder: Path, *files: bytes) -> Path:
    (folder / "objects").mkdir()
    for data in files:
        (folder / "objects" / object_id(data)).write_bytes(data)
    return folder


def test_attachments_are_held_once_and_bounded_together(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    one, two = b"1" * 600, b"2" * 600
    monkeypatch.setattr(ingesting, "MAX_FOLDER_BYTES", 1000)
    shared = write(tmp_path / "shared", *(attached(incoming(sealed, cell), one) for cell in (0, 1)))
    first, second = ingesting.read_folder(put_objects(shared, one))
    (path,) = first.attachments
    assert first.attachments[path] is second.attachments[path]
    large = write(tmp_path / "large", attached(incoming(sealed, 0), one), attached(incoming(sealed, 1), two))
    assert run(ledger, monkeypatch, "verify", "--from", str(put_objects(large, one, two))) == 2
    assert "attachments of more than 1000 bytes; expected less at once" in capsys.readouterr().err
    assert ledger.book().cells[0].state == "open"


def test_an_attachment_of_another_size_than_its_record_says_is_refused(ledger: Ledger, tmp_path: Path):
    sealed = ledger.seal(forecast(B=1))
    folder = put_objects(write(tmp_path / "made", attached(incoming(sealed), b"a report", size=3)), b"a report")
    with pytest.raises(EvidenceRefused, match="other bytes than it had when measured"):
        ingesting.read_folder(folder)


def test_attachments_of_an_unknown_seal_are_not_read(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    sealed = ledger.seal(forecast(B=1))
    stranger = attached(incoming(sealed), b"a report")
    unknown = incoming_of(stranger.measurement.model_copy(update={"seal": "ab" * 32}), {})
    folder = write(tmp_path / "made", unknown)
    assert run(ledger, monkeypatch, "verify", "--from", str(folder)) == 3
    assert "seal-unknown" in capsys.readouterr().err


def test_verify_judges_the_ledger_once_and_commits_evidence_alone(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    sealed = ledger.seal(forecast(B=1), forecast(B=2), campaign="pair")
    results = write(tmp_path / "results", incoming(sealed, 0), incoming(sealed, 1, timing=timing(2_100_000)))
    judged = []
    judge = ingesting.judge
    for module in ("ledger.workflow.ingest.judge", "ledger.evidence.judge.judge"):
        monkeypatch.setattr(module, lambda *a, **k: judged.append(1) or judge(*a, **k))
    before = ledger.head
    assert run(ledger, monkeypatch, "verify", "--from", str(results), "--json", "--fail-on-miss", "0.001") == 1
    told = json.loads(capsys.readouterr().out)
    assert [row["state"] for row in told["rows"]] == ["measured"] * 2
    assert [item["commit"] for item in told["taken"]] == ledger.git("rev-list", "--reverse", f"{before}..").split()
    assert len(judged) == 1
    changed = ledger.git("diff", "--name-only", before, "HEAD").split()
    assert changed and all(path.startswith("verifications/") for path in changed)
    assert ledger.git("status", "--porcelain") == ""


def test_verify_of_a_refused_batch_exits_3_and_keeps_the_rest(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    results = write(tmp_path / "results", incoming(sealed, 0), wrong(sealed, 1))
    assert run(ledger, monkeypatch, "verify", "--from", str(results)) == 3
    assert "1 of 2 measurements are refused and not committed" in capsys.readouterr().err
    assert [cell.state for cell in ledger.book().cells] == ["measured", "open"]


def test_a_refusal_of_what_was_measured_here_names_the_folder_that_keeps_it(ledger: Ledger):
    """Else every later verify would take the same results again, and say no way out."""
    why = Finding(code="samples-disagree", severity="refused", path="x", message="element 3 differs")
    done = Ingested((Outcome("seal#cell", "x", None, None, (why,)),), ledger.book())
    with pytest.raises(EvidenceRefused, match=r"differs; they stay in /kept/here: remove it to measure again"):
        _show_ingested(done, as_json=True, kept=Path("/kept/here"))


def test_verify_of_one_changed_digit_exits_3_and_writes_nothing(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    sealed = ledger.seal()
    before = ledger.head
    assert run(ledger, monkeypatch, "verify", "--from", str(write(tmp_path / "changed", changed(sealed)))) == 3
    assert "samples-disagree" in capsys.readouterr().err
    assert (ledger.head, ledger.git("status", "--porcelain")) == (before, "")
    assert run(ledger, monkeypatch, "verify", "--from", str(write(tmp_path / "honest", incoming(sealed)))) == 0
    assert run(ledger, monkeypatch, "audit", "--recompute") == 0


def test_verify_into_a_refused_ledger_exits_3(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    ledger.measure(sealed, samples=wrong(sealed).measurement.samples)
    before = ledger.head
    results = write(tmp_path / "results", incoming(sealed, 1, timing=timing(2_100_000)))
    assert run(ledger, monkeypatch, "verify", "--from", str(results)) == 3
    head, *found, last = capsys.readouterr().err.splitlines()[-3:]
    assert head == "ledger: the report does not open: a finding refuses the evidence"
    assert len(found) == 1 and "binding-broken" in found[0] and last == "  see ledger audit"
    assert ledger.head == before


def test_a_refused_ledger_is_told_a_finding_a_line():
    with pytest.raises(EvidenceRefused, match="the report does not open: 35 findings refuse") as refused:
        refuse([f"{number}.json: edited: changed" for number in range(35)])
    assert refused.value.details[19:] == ("19.json: edited: changed", "and 15 more; see ledger audit")


def test_date_of_a_commit_may_be_set_by_its_environment(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    sealed = ledger.seal(when="2001-01-01T00:00:00+02:00")
    monkeypatch.setitem(os.environ, "GIT_COMMITTER_DATE", "2000-06-01T12:00:00 -0330")
    done = put(ledger, incoming(sealed))
    assert done.book.records[0].commit.when == "2000-06-01T12:00:00-03:30"
    assert done.book == ledger.book()
