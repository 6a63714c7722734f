"""Tests what an audit spends on a hostile ledger, and that spending hides no refusal."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attacks import CASES, COST
from builders import Ledger, forecast, honest, honest_samples

from ledger import budgets
from ledger.canonical import MAX_DEPTH, parse_json
from ledger.errors import BudgetExceeded, InputError, LedgerError, ParseError, StateError
from ledger.evidence import recompute_budget
from ledger.evidence.audit import audit
from ledger.evidence.findings import Findings
from ledger.git import clone, limits, version
from ledger.git.clone import find_origin
from ledger.records import Finding

ROOT = Path(__file__).parents[2]
MEMORY_BYTES = 2 * 1024**3
LIMIT_S = 60


def audited_apart(*arguments: str) -> tuple[dict[str, object], int, float]:
    """Audit in a process of its own; return the document, the exit code and the MiB that it or its git held at most.

    The process reads its own peak: what wait4 returns includes the memory of the process that forked it.
    """
    code = (
        f"import atexit, re, resource, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "def told():\n"
        "    own = int(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])\n"
        "    print(max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss), file=sys.stderr)\n"
        "atexit.register(told)\n"
        "from ledger.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "audit", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    return json.loads(done.stdout), done.returncode, int(done.stderr.split()[-1]) / 1024


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.row == COST], ids=lambda case: case.name)
def test_a_costly_ledger_is_judged_in_little_time_and_memory(case, tmp_path):
    folder = case.build(tmp_path / "attack", tmp_path / "canary")
    started = time.perf_counter()
    document, code, mib = audited_apart(str(folder))
    assert (document["verdict"], code) == ("refused", 3) if case.outcome == "refused" else ("holds", 0)
    assert time.perf_counter() - started < LIMIT_S
    assert mib < 1024


# What is beyond a budget


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("ledger.evidence.record_checks.MAX_RECORDS", 1),
        ("ledger.evidence.record_checks.MAX_WEIGHT_BYTES", 100),
        ("ledger.git.reader.MAX_READ_BYTES", 100),
        ("ledger.git.ancestry.MAX_SET_BYTES", -1),
    ],
)
def test_beyond_a_budget_nothing_is_concluded_and_no_refusal_is_hidden(tmp_path, monkeypatch, name, most):
    good = honest(tmp_path / "good")[0]
    bad, sealed = honest(tmp_path / "bad")
    bad.measure(bad.seal(forecast(B=2)))
    (bad.root / sealed.path).write_bytes(b"{}")
    bad.git("add", ".")
    bad.commit("edit")
    assert audit(str(good.root)).verdict == "holds"
    monkeypatch.setattr(name, most)
    judged = audit(str(good.root))
    assert (judged.verdict, judged.findings) == ("undetermined", ()), judged
    hidden = audit(str(bad.root))
    assert hidden.verdict == "refused"
    assert "edited" in {finding.code for finding in hidden.findings}


@pytest.mark.parametrize("error", [BudgetExceeded("too much"), StateError("git stopped"), MemoryError()])
def test_what_fails_after_the_judge_hides_no_refusal(tmp_path, monkeypatch, error):
    good = honest(tmp_path / "good")[0]
    bad, sealed = honest(tmp_path / "bad")
    bad.write(sealed.path, b"{}")
    bad.commit("edit")

    def fail(*_arguments):
        raise error

    monkeypatch.setattr("ledger.evidence.audit.apply_trust", fail)
    assert audit(str(good.root)).verdict == "undetermined"
    refused = audit(str(bad.root))
    assert refused.verdict == "refused" and "edited" in {finding.code for finding in refused.findings}


def test_findings_are_bounded_and_a_flood_hides_no_refusal(monkeypatch):
    monkeypatch.setattr("ledger.evidence.findings.MAX_FINDINGS", 20)
    findings = Findings()
    for number in range(200):
        findings.flag("odd-file", f"{number}", "odd")
    findings.refuse("edited", "a", "edited")
    for _ in range(budgets.MAX_FINDINGS_OF_A_KIND + 5):
        findings.refuse("deleted", "a", "deleted")
    found = findings.all()
    assert len(found) < 50 and findings.refused("a")
    assert ("edited", "refused") in {(one.code, one.severity) for one in found}
    assert {(one.severity, one.message) for one in found if one.code == "more-findings"} >= {
        (
            "flag",
            "180 more findings beyond the limits of 20 in all and 50 of a code about one file; of codes odd-file (180)",
        )
    }
    assert {one.text.partition(":")[0] for one in found if one.code == "more-findings"} == {"the ledger"}


def test_a_failure_to_judge_one_record_is_its_finding_and_hides_no_other(tmp_path, monkeypatch):
    ledger, sealed = honest(tmp_path / "ledger")
    second = ledger.seal(forecast(B=2))
    crashing, sound = ledger.measure(second), forecast(B=2).cell
    (ledger.root / sealed.path).write_bytes(b"{}")
    ledger.git("add", ".")
    ledger.commit("edit")
    from ledger.evidence import run_checks

    verify = run_checks.verify_cell

    def fail(**given):
        if given["forecast"].cell == sound:
            raise ValueError("math domain error")
        return verify(**given)

    monkeypatch.setattr(run_checks, "verify_cell", fail)
    result = audit(str(ledger.root))
    assert result.verdict == "refused"
    assert {("not-judged", crashing), ("edited", sealed.path)} <= {(one.code, one.path) for one in result.findings}


def test_work_beyond_the_budget_is_not_recomputed_and_nothing_is_concluded(tmp_path, monkeypatch):
    ledger, _ = honest(tmp_path / "ledger")
    assert audit(str(ledger.root), recomputed=True).verdict == "holds"
    monkeypatch.setattr(recompute_budget, "MAX_READS", 10)
    result = audit(str(ledger.root), recomputed=True)
    assert result.verdict == "undetermined" and "budget" in result.reason
    assert audit(str(ledger.root)).verdict == "holds"


def test_cheap_samples_are_recomputed_before_dear_ones(tmp_path, monkeypatch):
    """A forged sample of usual cost is found whatever a hostile author adds that is dearer."""
    ledger = Ledger(tmp_path / "ledger")
    cheap, dear = ledger.seal(forecast(B=1, H=64)), ledger.seal(forecast(B=1, H=4096))
    true = honest_samples(cheap.forecast, seal=cheap.id)
    ledger.measure(dear)
    ledger.measure(cheap, samples=true.model_copy(update={"bits": ("3c00", *true.bits[1:])}))
    each = 3 * 64 + recompute_budget.SAMPLE_READS
    monkeypatch.setattr(recompute_budget, "MAX_READS", 100 * each)
    result = audit(str(ledger.root), recomputed=True)
    assert (result.verdict, {one.code for one in result.findings}) == ("refused", {"samples-disagree"})


def test_an_element_of_half_a_tebibyte_is_not_tried(tmp_path):
    """Key rows of 2**24 elements, 4096 of which a chunk would hold: 512 GiB."""
    ledger = Ledger(tmp_path / "ledger")
    huge = forecast(B=1, H=1 << 24, O=2)
    sealed = ledger.seal(huge)
    samples = honest_samples(forecast(), seal=sealed.id)
    ledger.measure(sealed, samples=samples)
    document, code, mib = audited_apart("--recompute", str(ledger.root))
    assert code == 3 and mib < 1024
    assert any("16777216 at once" in note for note in document["notes"])


def test_no_json_text_takes_long():
    for data in (
        b'{"a":' + b'"\\"' * 2_000_000,
        b'"' + b'\\"' * 2_000_000,
        b"[" * 900_000,
        b'["' + b"[" * 900_000 + b'"]',
        b"{" + b",".join(b'"k":0' for _ in range(900_000)) + b"}",
        b"[" + b"," * 2_000_000 + b"]",
    ):
        started = time.perf_counter()
        with pytest.raises(ParseError) if data[:2] != b'["' else _nothing():
            parse_json(data, what="x")
        assert time.perf_counter() - started < 5
    assert parse_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, what="x")


class _nothing:  # noqa: N801
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


# Sources


@pytest.fixture(scope="module")
def holding(tmp_path_factory):
    """Return the folder of a ledger that holds."""
    ledger, _ = honest(tmp_path_factory.mktemp("holding") / "ledger")
    assert audit(str(ledger.root)).verdict == "holds"
    return ledger.root


@pytest.mark.parametrize(
    "source",
    [
        "", " ", "\n", "\t", "file://", "file://host", "file://host/path", "file:///", "file:////", "file://[::1",
        "file://localhost", "file://./x", "file://../x", "file:///x?y", "FILE:///tmp", "https://", "https:///x",
        "https://[::1", "https://host", "https://host/", "https://host:99999/x", "https://host:port/x", "http://",
        "http://[", "https://ho st/x", "https://host/x\n", "ssh://", "ssh://-oProxyCommand=x/y", "ssh://[/x", "git://",
        "git://host", "git@host:path", "host:path", "https:x", "//host/path", "ftp://host/x", "data:,x", "~", "$UNSET",
    ],
)  # fmt: skip
def test_a_source_that_names_no_repository_is_bad_input(source, holding, monkeypatch):
    """None of them is the current folder, which holds a ledger that holds."""
    monkeypatch.chdir(holding)
    with pytest.raises(InputError) as caught:
        audit(source)
    assert not isinstance(caught.value, StateError)


def test_an_empty_source_ends_with_exit_2(tmp_path):
    ledger, _ = honest(tmp_path / "ledger")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from ledger.cli import main; main()"
    for source in ("", "file://[::1"):
        command = [sys.executable, "-c", code, "audit", source]
        done = subprocess.run(command, cwd=ledger.root, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "internal error" not in done.stderr, done.stderr


def test_a_file_is_no_repository(tmp_path):
    ledger, _ = honest(tmp_path / "ledger")
    with pytest.raises(InputError, match="no folder"):
        find_origin(str(ledger.root / "README.md"))
    for source in (f"file://{ledger.root}", f"file://localhost{ledger.root}", str(ledger.root / "predictions")):
        assert find_origin(source) == (str(ledger.root), True)
    assert find_origin("https://example.org:8443/a/b.git?x") == ("https://example.org:8443/a/b.git?x", False)


# Git


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("git version 2.20.1", False),
        ("git version 2.35.9", False),
        ("git version 1.9", False),
        ("git version 2.36.0", True),
        ("git version 2.39.5 (Apple Git-154)", True),
        ("git version 3.0.0-rc1", True),
        ("git version 2.51.GIT", True),
        ("nothing", False),
        ("", False),
    ],
)
def test_an_old_git_is_refused(tmp_path, monkeypatch, text, good):
    (tmp_path / "git").write_text(f"#!/bin/sh\necho '{text}'\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    version.check_git.cache_clear()
    try:
        if good:
            assert version.check_git()
        else:
            with pytest.raises(StateError, match=r"2\.36"):
                version.check_git()
            assert audit(str(ROOT)).verdict == "undetermined"
    finally:
        version.check_git.cache_clear()


def test_a_clone_that_fills_the_disk_says_so(tmp_path, monkeypatch):
    ledger, _ = honest(tmp_path / "ledger")
    # What git 2.39 says in a tmpfs of 200 KB.
    said = "fatal: write error: No space left on device\nfatal: fetch-pack: invalid index-pack output"
    (tmp_path / "git").write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 128\n")
    (tmp_path / "git").chmod(0o755)
    version.check_git()
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    result = audit(str(ledger.root))
    assert result.verdict == "undetermined" and "full; expected room for a copy" in result.reason


def test_a_pipe_in_the_git_folder_leaves_no_process_behind(tmp_path, monkeypatch):
    ledger, _ = honest(tmp_path / "ledger")
    (ledger.root / ".git" / "packed-refs").unlink(missing_ok=True)
    os.mkfifo(ledger.root / ".git" / "packed-refs")
    monkeypatch.setattr(clone, "CLONE_TIMEOUT_S", 1.0)
    # As if it came there after the look.
    monkeypatch.setattr(clone, "check_regular", lambda _folder: None)
    assert audit(str(ledger.root)).verdict == "undetermined"
    time.sleep(0.2)
    left = [
        process.name
        for process in Path("/proc").iterdir()
        if process.name.isdigit() and str(ledger.root).encode() in _command_line(process)
    ]
    assert left == []


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_clone_beyond_its_memory_or_time_is_undetermined(tmp_path, monkeypatch):
    ledger, _ = honest(tmp_path / "ledger")
    ledger.write("zeros", bytes(200 << 20))
    ledger.commit()
    assert audit(str(ledger.root)).verdict == "holds"
    monkeypatch.setattr(clone, "MAX_REPOSITORY_BYTES", 1000)
    assert audit(str(ledger.root)).verdict == "undetermined"


def test_seals_of_stashes_notes_and_hidden_references_are_named(tmp_path):
    ledger, _ = honest(tmp_path / "ledger")
    base = ledger.head
    ledger.switch("side", base)
    ledger.seal(forecast(B=2))
    for name in ("refs/pull/7/head", "refs/hidden/x", "refs/notes/seals"):
        ledger.git("update-ref", name, ledger.head)
    ledger.git("tag", "-a", "-m", "a tag", "kept")
    ledger.switch("main")
    ledger.git("branch", "-D", "side")
    ledger.put_seal(forecast(B=3))
    ledger.git("stash", "--quiet")
    for key in ("transfer.hideRefs", "uploadpack.hideRefs"):
        ledger.git("config", "--add", key, "refs/hidden")
    ledger.git("config", "--add", "transfer.hideRefs", "refs/stash")
    result = audit(str(ledger.root))
    named = {note.split(" ")[0] for note in result.notes if "holds predictions" in note}
    assert result.verdict == "holds"
    assert named == {"refs/pull/7/head", "refs/hidden/x", "refs/notes/seals", "refs/tags/kept", "refs/stash"}


def test_references_that_cannot_be_fetched_change_no_verdict(tmp_path):
    ledger, _ = honest(tmp_path / "ledger")
    blob = ledger.git("hash-object", "-w", "--stdin", data=b"x")
    tree = ledger.git(
        "hash-object", "-t", "tree", "-w", "--literally", "--stdin",
        data=b"".join(b"100644 ..\0" + bytes.fromhex(blob) for _ in range(1)),
    )  # fmt: skip
    ledger.git("update-ref", "refs/pull/1/head", ledger.git("commit-tree", tree, "-m", "odd"))
    result = audit(str(ledger.root))
    assert result.verdict == "holds"
    assert any("were not looked at" in note for note in result.notes)


def test_a_link_in_the_work_tree_is_named_and_not_followed(tmp_path):
    ledger, _ = honest(tmp_path / "ledger")
    elsewhere = tmp_path / "elsewhere"
    (ledger.root / "predictions").rename(elsewhere)
    (ledger.root / "predictions").symlink_to(elsewhere)
    notes = audit(str(ledger.root)).notes
    assert any(note.startswith("predictions: differs") for note in notes)
    assert not any("elsewhere" in note for note in notes)


def test_a_deep_work_tree_is_walked(tmp_path):
    ledger, _ = honest(tmp_path / "ledger")
    here = os.open(ledger.root / "predictions", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        assert audit(str(ledger.root)).verdict == "holds"
    finally:
        # Python's own removal of a folder calls itself for each level.
        subprocess.run(["rm", "-rf", str(ledger.root)], check=True)


def test_limits_of_this_process_stay_as_they_are(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CPU)
    audit(str(honest(tmp_path / "ledger")[0].root))
    assert (resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CPU)) == before


@pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_CPU"])
def test_an_audit_under_a_lower_hard_limit_holds(tmp_path, limit):
    most = {"RLIMIT_AS": 1 << 30, "RLIMIT_FSIZE": 200 << 10, "RLIMIT_CPU": 60}[limit]
    ledger, _ = honest(tmp_path / "ledger")
    kind = getattr(resource, limit)
    done = subprocess.run(
        [sys.executable, "-m", "ledger", "audit", str(ledger.root)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(kind, (most, most)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_running_process_keeps_a_lower_hard_limit():
    with subprocess.Popen(["sleep", "60"]) as process:
        limits.bound(process.pid, RLIMIT_CPU=5)
        limits.bound(process.pid, RLIMIT_CPU=9, RLIMIT_AS=1 << 40)
        found = [resource.prlimit(process.pid, kind) for kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS)]
        process.kill()
    assert found == [(5, 5), (1 << 40, 1 << 40)]


def test_the_budgets_are_told():
    text = (ROOT / "docs" / "security.md").read_text()
    for name in ("MAX_RECORDS", "MAX_READS", "MAX_WEIGHT_BYTES", "MAX_RECORD_BYTES", "CLONE_CPU_S"):
        assert hasattr(budgets, name)
    assert "ledger/budgets.py" in text
    for figure in (f"{budgets.MAX_RECORDS:,}", "32 MiB", "256 MiB", f"{budgets.MAX_RECORD_SAMPLES:,}"):
        assert figure in text


def test_a_finding_is_kept_whole():
    finding = Finding(code="edited", severity="refused", path="a", message="b")
    findings = Findings()
    findings.add(finding)
    assert findings.all() == (finding,)
    with pytest.raises(LedgerError), findings.about_one("a"):
        raise BudgetExceeded("too much")
