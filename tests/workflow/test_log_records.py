"""Tests the whole way into a public log: identity, certificate, entry, token, commit, and the audit offline."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from ledger_process import run_ledger

pytest.importorskip("sigstore")
from authority import Authority
from builders import Ledger
from public_log import ADA, ISSUER, LocalLog

from ledger.cli.witness import log_records, stamp_records
from ledger.errors import InputError, MachineError
from ledger.evidence.audit import audit
from ledger.evidence.log_levels import LogTrust
from ledger.git.commit import Repository
from ledger.workflow import log_records as logs
from ledger.workflow.log_records import TOKEN_VARIABLE, PublicLog, add_bundles

ROOT = Path(__file__).parents[2]


@pytest.fixture
def log(tmp_path):
    with Authority(tmp_path / "tsa") as authority, LocalLog(tmp_path / "log", authority) as running:
        yield running


@pytest.fixture
def ledger(tmp_path, log, monkeypatch):
    made = Ledger(tmp_path / "ledger")
    made.git("config", "user.name", "Ada")
    made.git("config", "user.email", ADA)
    monkeypatch.setenv(TOKEN_VARIABLE, log.token())
    return made


def levels(ledger: Ledger, log: LocalLog) -> tuple[int, ...]:
    trust = LogTrust(log.roots, ADA, ISSUER)
    return audit(str(ledger.root), log=trust).book.cells[0].levels


def command(ledger: Ledger, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return run_ledger(*arguments, cwd=ledger.root, env={**os.environ, "PYTHONPATH": path})


def test_a_record_is_signed_logged_stamped_committed_and_audited_offline(ledger, log):
    sealed = ledger.seal()
    repository, said = Repository(ledger.root), []
    bundle, token = add_bundles(repository, [sealed.path], PublicLog(log.config), None, said.append)
    assert bundle == f"{sealed.path.removesuffix('.json')}.127-0-0-1.bundle"
    assert token == f"{bundle}.127-0-0-1.tsr"
    assert sorted(ledger.git("show", "--format=", "--name-only", "HEAD").split()) == sorted([bundle, token])
    assert add_bundles(repository, [sealed.path], PublicLog(log.config), None, said.append) == []
    record = ledger.measure(sealed)
    add_bundles(repository, [record], PublicLog(log.config), None, said.append)
    assert ledger.git("status", "--porcelain") == "" and said == []
    log.__exit__()
    assert levels(ledger, log) == (0, 4)


def test_witness_logs_every_record_that_lacks_an_entry(ledger, log):
    sealed = ledger.seal()
    ledger.measure(sealed)
    done = command(ledger, "witness", "--log", "--log-config", str(log.config), "--json")
    assert done.returncode == 0, done.stderr
    assert [len(json.loads(done.stdout)[kind]) for kind in ("bundles", "tokens")] == [2, 2]
    ledger.git("config", "ledger.logConfig", str(log.config))
    done = command(ledger, "witness", "--log")
    assert (done.returncode, done.stdout) == (0, "0 log entries and 0 time tokens added\n"), done.stderr
    assert levels(ledger, log) == (0, 4)
    done = command(ledger, "audit", ".", "--log-roots", str(log.roots), "--log-identity", ADA, "--log-issuer", ISSUER)
    assert done.returncode == 0 and "level 4 (1 cell; inclusion only" in done.stdout, done.stderr


def test_predict_enters_its_seal_when_asked(ledger, log):
    ledger.git("config", "ledger.logConfig", str(log.config))
    seal = "predict rmsnorm_matmul --hw h200 --dtype fp16 --shape B=8,H=4096,O=4096 --regime hbm-bound --pct 60 --log"
    done = command(ledger, *seal.split())
    assert done.returncode == 0 and "public log predictions/" in done.stderr, done.stderr
    log.__exit__()
    done = command(ledger, *seal.split())
    assert done.returncode == 0 and "the records are kept" in done.stderr, done.stderr


def test_a_wrong_configuration_does_not_fail_what_is_sealed(ledger, tmp_path, capsys):
    """The seal is made already: an exit with 2 would say that it was not."""
    sealed = ledger.seal()
    ledger.git("config", "ledger.logConfig", str(tmp_path / "missing"))
    log_records(Repository(ledger.root), [sealed.path], None, wanted=True)
    assert "missing: cannot be read" in capsys.readouterr().err
    stamp_records(Repository(ledger.root), [sealed.path], "ftp://authority")
    assert "no time token: --tsa: got 'ftp://authority'" in capsys.readouterr().err


def test_an_authority_that_is_down_leaves_the_bundle_and_a_later_call_adds_the_token(ledger, log):
    sealed = ledger.seal()
    repository, said = Repository(ledger.root), []
    (bundle,) = add_bundles(repository, [sealed.path], PublicLog(log.config), "http://127.0.0.1:9/", said.append)
    assert "ledger witness --log" in said[0]
    (token,) = add_bundles(repository, [sealed.path], PublicLog(log.config), None, said.append)
    assert token.startswith(bundle)


def test_a_log_that_is_down_delays_nothing(ledger, log, capsys):
    sealed = ledger.seal()
    head = ledger.head
    ledger.git("config", "ledger.logConfig", str(log.config))
    log.__exit__()
    with pytest.raises(MachineError, match="public log"):
        add_bundles(Repository(ledger.root), [sealed.path], PublicLog(log.config), None, print)
    log_records(Repository(ledger.root), [sealed.path], None, wanted=True)
    assert ledger.head == head and "ledger witness --log" in capsys.readouterr().err
    log_records(Repository(ledger.root), [sealed.path], None, wanted=False)
    assert capsys.readouterr().err == ""


def test_a_log_that_never_answers_is_given_up(ledger, log, monkeypatch):
    sealed = ledger.seal()
    monkeypatch.setattr(logs, "TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        log.url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(MachineError, match="no answer within"):
            add_bundles(Repository(ledger.root), [sealed.path], PublicLog(log.config), None, print)


def test_what_was_logged_before_a_failure_is_kept(ledger, log):
    sealed = ledger.seal()
    record = ledger.measure(sealed)
    public = PublicLog(log.config)
    sign = public.sign

    def once(identity: str) -> bytes:
        data = sign(identity)
        public.sign = lambda _identity: (_ for _ in ()).throw(MachineError("down"))
        return data

    public.sign = once
    with pytest.raises(MachineError, match="down"):
        add_bundles(Repository(ledger.root), [sealed.path, record], public, None, print)
    assert ledger.git("show", "--format=", "--name-only", "HEAD").count("bundle") == 2


def test_a_log_that_answers_with_anothers_entry_adds_nothing(ledger, log, monkeypatch):
    sealed = ledger.seal()
    head = ledger.head
    (another,) = log.bundle("cd" * 32)["verificationMaterial"]["tlogEntries"]
    monkeypatch.setattr(log, "enter", lambda *_args, **_more: another)
    with pytest.raises(MachineError, match="no proof of this record"):
        add_bundles(Repository(ledger.root), [sealed.path], PublicLog(log.config), None, print)
    assert ledger.head == head


@pytest.mark.parametrize("token", ["", "x.y.z"])
def test_without_an_identity_nothing_is_signed(ledger, log, monkeypatch, token):
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(MachineError, match="no identity to sign with"):
        PublicLog(log.config).sign("ab" * 32)


@pytest.mark.parametrize("text", ["", "{}", "[]", None])
def test_a_configuration_that_is_none_is_bad_input(text, tmp_path):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match="expected a"):
        PublicLog(path)


def test_no_thread_is_left_waiting(ledger, log):
    sealed = ledger.seal()
    before = threading.active_count()
    add_bundles(Repository(ledger.root), [sealed.path], PublicLog(log.config), None, print)
    assert threading.active_count() <= before + 1
