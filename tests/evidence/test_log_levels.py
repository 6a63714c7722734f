"""Tests level 4 end to end: real ledgers, bundles of a local log, and an audit from a clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest

pytest.importorskip("sigstore")
from authority import Authority, next_second
from builders import Ledger, forecast
from public_log import ADA, ISSUER, LocalLog
from rich.console import Console

from ledger.errors import InputError
from ledger.evidence.audit import audit
from ledger.evidence.audit_result import document
from ledger.evidence.log_bundle import LogEntry
from ledger.evidence.log_levels import Dated, LogTrust
from ledger.render.audit_text import render_audit

ROOT = Path(__file__).parents[2]
EARLIER, NOW, LATER = (datetime.now(UTC) + timedelta(minutes=shift) for shift in (-60, -30, -1))


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tsa") / "here")


@pytest.fixture
def log(tmp_path, authority):
    return LocalLog(tmp_path / "log", authority)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger")
    made.git("config", "user.name", "Ada")
    made.git("config", "user.email", ADA)
    return made


def record_of(path: str) -> str:
    return Path(path).stem


def put(ledger: Ledger, path: str, bundle: dict, *tokens: bytes, name: str = "log-example") -> dict:
    """Commit a bundle beside a record, and tokens over it."""
    data = json.dumps(bundle).encode()
    file = ledger.write(f"{path.removesuffix('.json')}.{name}.bundle", data)
    for number, token in enumerate(tokens):
        ledger.write(f"{file}.tsa{number}.tsr", token)
    ledger.commit("Log")
    return bundle


def enter(ledger: Ledger, log: LocalLog, path: str, when: datetime | None = None, **options) -> dict:
    """Log a record: in version 1 at a time that the log signs, in version 2 now with a token over the bundle."""
    bundle = log.bundle(record_of(path), version=1 if when else 2, when=when, **options)
    tokens = [] if when else [log.stamp(json.dumps(bundle).encode())]
    return put(ledger, path, bundle, *tokens)


def audited(ledger: Ledger, log: LocalLog, entries: object = None, **trust):
    if entries is not None:
        path = log.folder / "entries.json"
        path.write_text(entries if isinstance(entries, str) else json.dumps(entries))
        trust["entries"] = path
    named = {"roots": log.roots, "identity": ADA, "issuer": ISSUER, **trust}
    return audit(str(ledger.root), log=LogTrust(**named))


def codes(result) -> set[str]:
    return {finding.code for finding in result.findings}


def reason(result) -> str:
    (finding,) = [finding for finding in result.findings if finding.code == "log-order"]
    return finding.message


def levels(result) -> tuple[int, ...]:
    return result.book.cells[0].levels


def entry_of(bundle: dict) -> dict:
    return bundle["verificationMaterial"]["tlogEntries"][0]


# Granted


@pytest.mark.parametrize("dated", ["by-token", "by-the-log"])
def test_level_4_needs_a_dated_entry_of_the_seal_before_that_of_its_measurement(ledger, log, dated):
    by_log = dated == "by-the-log"
    sealed = ledger.seal()
    enter(ledger, log, sealed.path, EARLIER if by_log else None)
    record = ledger.measure(sealed)
    enter(ledger, log, record, NOW if by_log else None)
    result = audited(ledger, log)
    assert (result.verdict, levels(result), codes(result)) == ("holds", (0, 4), set())
    assert result.log.startswith("inclusion only") and document(result)["log"] == result.log
    text = StringIO()
    render_audit(result, Console(file=text, width=200))
    assert "level 4 (1 cell; inclusion only" in text.getvalue()


def test_the_bundles_of_one_seal_serve_all_its_cells(ledger, log):
    sealed = ledger.seal(forecast(B=1), forecast(B=2))
    enter(ledger, log, sealed.path, EARLIER)
    for cell in range(2):
        enter(ledger, log, ledger.measure(sealed, cell=cell), NOW)
    assert [cell.levels for cell in audited(ledger, log).book.cells] == [(0, 4)] * 2


# Not granted, and why


def test_nothing_is_granted_without_what_the_auditor_names(ledger, log, tmp_path, authority):
    sealed = ledger.seal()
    enter(ledger, log, sealed.path, EARLIER)
    enter(ledger, log, ledger.measure(sealed), NOW)
    unnamed = audit(str(ledger.root))
    assert levels(unnamed) == (0,) and unnamed.log == "not checked: name --log-roots and --log-identity"
    other = LocalLog(tmp_path / "other", authority)
    for trust in ({"roots": other.roots}, {"identity": "eve@example.org"}, {"issuer": "https://evil.example"}):
        result = audited(ledger, log, **trust)
        assert (result.verdict, levels(result)) == ("holds", (0,)), trust
        assert codes(result) == {"bundle-untrusted", "log-order"}
    assert any("any issuer" in note for note in audited(ledger, log, issuer=None).notes)


def test_a_seal_logged_after_its_measurement_reaches_no_level_4(ledger, log):
    sealed = ledger.seal()
    record = ledger.measure(sealed)
    enter(ledger, log, record, NOW)
    enter(ledger, log, sealed.path, LATER)
    result = audited(ledger, log)
    assert (result.verdict, levels(result)) == ("holds", (0,)) and "does not precede" in reason(result)


def test_an_index_counts_where_the_times_are_another_order(ledger, log):
    """The log took the measurement in first and says an earlier time of the seal."""
    sealed = ledger.seal()
    record = ledger.measure(sealed)
    enter(ledger, log, record, NOW)
    enter(ledger, log, sealed.path, EARLIER)
    assert "does not precede" in reason(audited(ledger, log))


def test_a_token_of_the_seal_after_that_of_its_measurement_reaches_no_level_4(ledger, log):

    sealed = ledger.seal()
    record = ledger.measure(sealed)
    first, second = (log.bundle(record_of(path)) for path in (sealed.path, record))
    put(ledger, record, second, log.stamp(json.dumps(second).encode()))
    next_second()
    put(ledger, sealed.path, first, log.stamp(json.dumps(first).encode()))
    assert "does not precede" in reason(audited(ledger, log))


def test_a_measurement_logged_a_first_time_before_its_seal_reaches_no_level_4(ledger, log):
    sealed = ledger.seal()
    record = ledger.measure(sealed)
    put(ledger, record, log.bundle(record_of(record), version=1, when=EARLIER), name="first")
    enter(ledger, log, sealed.path, NOW)
    enter(ledger, log, record, LATER)
    assert "does not precede" in reason(audited(ledger, log))


def test_the_time_stamp_in_a_bundle_does_not_date_its_entry(ledger, log):
    sealed = ledger.seal()
    put(ledger, sealed.path, log.bundle(sealed.id))
    enter(ledger, log, ledger.measure(sealed))
    assert "nothing dates the log entry of its seal" in reason(audited(ledger, log))


@pytest.mark.parametrize("missing", ["seal", "measurement"])
def test_seal_and_measurement_both_need_an_entry(ledger, log, missing):
    sealed = ledger.seal()
    record = ledger.measure(sealed)
    enter(ledger, log, record if missing == "seal" else sealed.path, NOW)
    assert f"its {missing} has no verified entry" in reason(audited(ledger, log))


def test_entries_of_two_logs_are_ordered_by_time_alone(ledger, tmp_path, authority, log):
    other = LocalLog(tmp_path / "other", authority, origin="other.example")
    sealed = ledger.seal()
    record = ledger.measure(sealed)
    enter(ledger, log, sealed.path, NOW)
    put(ledger, record, other.bundle(record_of(record), version=1, when=EARLIER), name="other")
    both = log.trusted_root()
    for part in ("tlogs", "certificateAuthorities", "ctlogs"):
        both[part] = [*both[part], *other.trusted_root()[part]]
    path = tmp_path / "both.json"
    path.write_text(json.dumps(both))
    assert "does not precede" in reason(audited(ledger, log, roots=path))
    put(ledger, record, other.bundle(record_of(record), version=1, when=LATER), name="later")
    assert "does not precede" in reason(audited(ledger, log, roots=path)), "every entry of a measurement counts"


# Refused


def test_a_bundle_of_another_record_refuses_its_cell(ledger, log):
    sealed = ledger.seal()
    record = ledger.measure(sealed)
    put(ledger, record, enter(ledger, log, sealed.path))
    result = audited(ledger, log)
    assert (result.verdict, codes(result), levels(result)) == ("refused", {"bundle-broken"}, ())


@pytest.mark.parametrize("data", [b"", b"{}", b"\0" * 300_000])
def test_a_bundle_that_is_none_is_refused(ledger, log, data):
    sealed = ledger.seal()
    ledger.write(f"{sealed.path.removesuffix('.json')}.x.bundle", data)
    ledger.commit()
    assert codes(audited(ledger, log)) == {"bundle-broken"}


def test_a_token_over_another_bundle_is_refused_and_a_strangers_counts_for_nothing(ledger, log, tmp_path):
    sealed = ledger.seal()
    bundle = log.bundle(sealed.id)
    stranger = Authority(tmp_path / "stranger", "Another authority")
    put(ledger, sealed.path, bundle, log.stamp(json.dumps(bundle).encode(), stranger))
    assert codes(audited(ledger, log)) == {"token-untrusted"}
    put(ledger, sealed.path, bundle, log.stamp(b"another bundle"), name="again")
    assert codes(audited(ledger, log)) == {"token-untrusted", "token-broken"}


@pytest.mark.parametrize("what", ["bundle", "token"])
def test_too_many_bundles_or_tokens_of_one_record_are_refused_unread(ledger, log, what):
    sealed = ledger.seal()
    base = sealed.path.removesuffix(".json")
    enter(ledger, log, sealed.path)
    for number in range(9):
        name = f"x{number}.bundle" if what == "bundle" else f"log-example.bundle.x{number}.tsr"
        ledger.write(f"{base}.{name}", b"x")
    ledger.commit()
    (finding,) = audited(ledger, log).findings
    assert finding.code == "bundle-broken" and "expected at most 8" in finding.message


def test_a_bundle_beside_no_record_is_not_read(ledger, log):
    ledger.seal()
    ledger.write(f"predictions/cd/{'cd' * 32}.x.bundle", b"no bundle")
    ledger.commit()
    assert (audited(ledger, log).verdict, codes(audited(ledger, log))) == ("holds", set())


def test_a_bundle_that_changes_is_refused(ledger, log):
    sealed = ledger.seal()
    enter(ledger, log, sealed.path)
    enter(ledger, log, sealed.path)
    assert audited(ledger, log).verdict == "refused"


# What else the log holds


def shown(*bundles: dict) -> list[dict]:
    return [entry_of(bundle) for bundle in bundles]


def logged_ledger(ledger: Ledger, log: LocalLog) -> list[dict]:
    sealed = ledger.seal()
    first = enter(ledger, log, sealed.path, EARLIER)
    return [first, enter(ledger, log, ledger.measure(sealed), NOW)]


def test_entries_that_are_all_here_are_all_shown(ledger, log):
    bundles = logged_ledger(ledger, log)
    stranger = log.bundle("cd" * 32, person="eve@example.org")
    result = audited(ledger, log, shown(*bundles, stranger))
    assert (result.log, levels(result), codes(result)) == ("all 2 entries of the identity are shown", (0, 4), set())


def test_a_seal_that_was_logged_and_withheld_is_named(ledger, log):
    bundles = logged_ledger(ledger, log)
    withheld = log.bundle("cd" * 32, version=1, when=NOW)
    result = audited(ledger, log, shown(*bundles, withheld))
    assert result.log == "1 of 3 entries of the identity are withheld"
    (finding,) = [finding for finding in result.findings if finding.code == "log-withheld"]
    assert "cd" * 32 in finding.message and "no record here" in finding.message


def test_an_entry_of_a_record_that_its_bundles_do_not_show_is_named(ledger, log):
    sealed = ledger.seal()
    record = ledger.measure(sealed)
    early = log.bundle(record_of(record), version=1, when=EARLIER)
    bundles = [enter(ledger, log, path, NOW) for path in (sealed.path, record)]
    result = audited(ledger, log, shown(early, *bundles))
    assert "another entry of a record here" in next(f.message for f in result.findings if f.code == "log-withheld")


def test_the_same_entry_logged_twice_is_named(ledger, log):
    import base64

    bundles = logged_ledger(ledger, log)
    again = log.enter(base64.b64decode(entry_of(bundles[1])["canonicalizedBody"]))
    assert "log-withheld" in codes(audited(ledger, log, [*shown(*bundles), again]))


def test_a_list_that_lacks_an_entry_of_the_ledger_is_not_all(ledger, log):
    result = audited(ledger, log, shown(logged_ledger(ledger, log)[0]))
    assert result.log.startswith("inclusion only") and "lacks 1 entries" in result.log


def test_the_answers_of_a_rekor_v1_log_are_read(ledger, log):
    bundles = logged_ledger(ledger, log)
    answers = [
        {f"{number:080x}": {"body": one["canonicalizedBody"], "logIndex": int(one["logIndex"]), "verification": {}}}
        for number, one in enumerate(shown(*bundles))
    ]
    merged = {key: value for answer in answers for key, value in answer.items()}
    for text in (answers, merged, "\n".join(map(json.dumps, answers))):
        assert audited(ledger, log, text).log == "all 2 entries of the identity are shown"


@pytest.mark.parametrize("text", ["", "7", "[7]", '{"a": 1}', '[{"body": "!", "logIndex": 1}]', '[{"body": "e30="}]'])
def test_a_list_of_entries_that_is_none_is_bad_input(ledger, log, text):
    logged_ledger(ledger, log)
    with pytest.raises(InputError, match=r"entries\.json"):
        audited(ledger, log, text)


def test_roots_and_identity_go_together(tmp_path):
    for trust in ({"roots": tmp_path}, {"identity": ADA}, {"issuer": ISSUER}, {"entries": tmp_path}):
        with pytest.raises(InputError, match="together"):
            LogTrust(**trust)


# Without the package


def without_sigstore(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a Python that finds no sigstore."""
    code = (
        "import sys, importlib.abc\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('sigstore', 'sigstore_models'): raise ModuleNotFoundError(name)\n"
        "import importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'sigstore' else found(name, *more)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from ledger.cli import main\n"
        "sys.argv = ['ledger', *sys.argv[1:]]\n"
        "main()\n"
    )
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_package_level_4_is_not_checked_and_says_what_to_install(ledger, log):
    logged_ledger(ledger, log)
    done = without_sigstore(ledger.root, "audit", ".")
    assert done.returncode == 0, done.stderr
    assert "level 4 (not checked: sigstore is not installed (the extra [log]))" in done.stdout
    done = without_sigstore(ledger.root, "audit", ".", "--json")
    found = json.loads(done.stdout)
    assert (
        not found["levels"]["4"]["provided"]
        and found["log"] == "not checked: sigstore is not installed (the extra [log])"
    )
    done = without_sigstore(ledger.root, "audit", ".", "--log-roots", str(log.roots), "--log-identity", ADA)
    assert done.returncode == 2 and "sigstore is not installed" in done.stderr and "Traceback" not in done.stderr


def test_a_token_over_an_entry_shows_no_order_between_two_logs():
    """It tells by when the entry was there: the measurement may have been entered long before its token."""

    def dated(log: str, index: int, hour: int, *, signed: bool) -> Dated:
        when = datetime(2026, 1, 1, hour, tzinfo=UTC)
        return Dated(LogEntry(log, index, index, "ab" * 32, when if signed else None), when)

    seal = dated("one", 7, 1, signed=False)
    assert seal.precedes(dated("one", 8, 2, signed=False))
    assert not seal.precedes(dated("two", 8, 2, signed=False))
    assert seal.precedes(dated("two", 8, 2, signed=True))
    assert not dated("one", 7, 3, signed=True).precedes(dated("two", 8, 2, signed=True))
