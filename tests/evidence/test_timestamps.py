"""Tests time tokens against a real authority, and signatures against real keys: what counts is the auditor's choice."""

from __future__ import annotations

import hashlib
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from attacks import started
from authority import Authority, next_second
from builders import Ledger, forecast

from ledger.canonical import id_input, record_id
from ledger.cli.witness import stamp_records
from ledger.errors import EvidenceRefused, InputError, MachineError
from ledger.evidence import timestamps
from ledger.evidence.audit import audit
from ledger.evidence.timestamps import UntrustedToken, add_tokens, authority_name, load_roots, stamp, token_time
from ledger.evidence.trust_levels import Trust
from ledger.git.commit import Repository
from ledger.records import Prediction

pytest.importorskip("rfc3161_client")


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    with Authority(tmp_path_factory.mktemp("tsa") / "here") as running:
        yield running


@pytest.fixture(scope="session")
def stranger(tmp_path_factory):
    with Authority(tmp_path_factory.mktemp("tsa") / "there", "Another authority") as running:
        yield running


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger")
    made.git("config", "user.name", "Ada")
    made.git("config", "user.email", "ada@example.org")
    return made


def roots(*authorities: Authority):
    return tuple(root for one in authorities for root in load_roots(one.root))


def audited(ledger: Ledger, *authorities: Authority, signers: Path | None = None):
    pem = ledger.root.parent / "roots.pem"
    pem.write_bytes(b"".join(one.root.read_bytes() for one in authorities))
    return audit(str(ledger.root), trust=Trust(tsa_roots=pem if authorities else None, allowed_signers=signers))


def codes(result) -> set[str]:
    return {finding.code for finding in result.findings}


# Time


def test_token_over_a_seal_gives_its_time(authority):
    data = b'{"a":1}'
    identity = record_id(Prediction, data)
    when = token_time(stamp(id_input(Prediction, data), authority.url), identity, roots(authority))
    assert abs(when - datetime.now(UTC)) < timedelta(minutes=1)


def test_level_3_needs_a_root_that_the_auditor_names(ledger, authority, stranger):
    sealed = ledger.seal()
    repository = Repository(ledger.root)
    (token,) = add_tokens(repository, [sealed.path], authority.url)
    assert token == f"{sealed.path.removesuffix('.json')}.127-0-0-1.tsr"
    assert add_tokens(repository, [sealed.path], authority.url) == []
    next_second()
    record = ledger.measure(sealed, started_at=started())
    alone = audited(ledger, authority)
    assert (alone.verdict, alone.book.cells[0].levels, codes(alone)) == ("holds", (0,), {"witness-missing"})
    add_tokens(repository, [record], authority.url)
    assert ledger.git("status", "--porcelain") == ""
    trusted = audited(ledger, authority)
    assert (trusted.verdict, trusted.book.cells[0].levels, codes(trusted)) == ("holds", (0, 3), set())
    unnamed = audited(ledger)
    assert unnamed.book.cells[0].levels == (0,) and any("not verified" in note for note in unnamed.notes)
    other = audited(ledger, stranger)
    assert (other.verdict, other.book.cells[0].levels, codes(other)) == ("holds", (0,), {"token-untrusted"})


def test_a_token_of_another_record_is_refused(ledger, authority):
    first, second = ledger.seal(forecast(B=1)), ledger.seal(forecast(B=2))
    (token,) = add_tokens(Repository(ledger.root), [first.path], authority.url)
    ledger.write(f"{second.path.removesuffix('.json')}.other.tsr", (ledger.root / token).read_bytes())
    ledger.commit()
    assert (audited(ledger, authority).verdict, codes(audited(ledger, authority))) == ("refused", {"token-broken"})


@pytest.mark.parametrize("data", [b"", b"no token", b"\x30\x80" * 1000, b"\0" * 70_000])
def test_a_token_that_is_none_is_refused(ledger, authority, data):
    sealed = ledger.seal()
    ledger.write(f"{sealed.path.removesuffix('.json')}.x.tsr", data)
    ledger.commit()
    assert codes(audited(ledger, authority)) == {"token-broken"}


def test_a_seal_stamped_after_its_measurement_reaches_no_level_3(ledger, authority):
    sealed = ledger.seal()
    record = ledger.measure(sealed)
    add_tokens(Repository(ledger.root), [record], authority.url)
    next_second()
    add_tokens(Repository(ledger.root), [sealed.path], authority.url)
    result = audited(ledger, authority)
    assert (result.book.cells[0].levels, codes(result)) == ((0,), {"witness-late"})


def test_every_flipped_bit_of_a_token_is_refused_or_says_the_same(authority):
    """Flip each bit: the token is refused, or it still proves the very same time of the very same record."""
    data = b'{"a":1}'
    message = id_input(Prediction, data)
    identity = hashlib.sha256(message).hexdigest()
    token, trusted = stamp(message, authority.url), roots(authority)
    truth = token_time(token, identity, trusted)
    same = 0
    for bit in range(0, 8 * len(token), 7):
        flipped = bytearray(token)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert token_time(bytes(flipped), identity, trusted) == truth, f"bit {bit} changes the time"
            same += 1
        except (EvidenceRefused, UntrustedToken):
            continue
    assert same < len(token)


def test_an_authority_that_is_down_delays_nothing(ledger, capsys):
    sealed = ledger.seal()
    head = ledger.head
    with pytest.raises(MachineError, match="time-stamping authority"):
        stamp(b"x", "http://127.0.0.1:9/")
    stamp_records(Repository(ledger.root), [sealed.path], "http://127.0.0.1:9/")
    assert ledger.head == head and "ledger witness" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["ftp://x/", "file:///etc/passwd", "x", "--help"])
def test_an_authority_is_a_web_address(url):
    with pytest.raises(InputError):
        authority_name(url)


def test_an_expired_certificate_proves_the_time_it_was_valid_at(tmp_path, authority):
    """Validity is judged at the token's time; a certificate that was never valid then proves nothing."""
    old = Authority(tmp_path / "old", "Old authority", days=-1)
    with old:
        message = id_input(Prediction, b"{}")
        identity = hashlib.sha256(message).hexdigest()
        with pytest.raises((EvidenceRefused, UntrustedToken, MachineError)):
            token_time(stamp(message, old.url), identity, roots(old))


# Signatures


def key(folder: Path, name: str) -> Path:
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)], check=True)
    return path


def allow(folder: Path, *entries: tuple[Path, str]) -> Path:
    lines = [f"ada@example.org {options} {Path(f'{path}.pub').read_text()}" for path, options in entries]
    (folder / "allowed").write_text("".join(lines))
    return folder / "allowed"


def signed_ledger(ledger: Ledger, path: Path) -> None:
    """Seal and measure with ledger's own commits, signed."""
    from builders import measurement, toy_draft

    from ledger.canonical import encode, record_id, record_path
    from ledger.workflow.seal import seal

    ledger.git("config", "gpg.format", "ssh")
    ledger.git("config", "user.signingkey", f"{path}.pub")
    repository = Repository(ledger.root)
    made = seal(repository, [toy_draft()], sign=True)
    record = measurement(made.prediction.cells[0], seal=made.id)
    data = encode(record)
    identity = record_id(type(record), data)
    file = record_path("verifications", identity)
    repository.commit(lambda _parent: ({file: data}, f"Measure\n\nRecord-Id: {identity}\n"), sign=True)


def test_level_2_needs_a_key_that_the_auditor_allows(ledger, tmp_path):
    mine, other = key(tmp_path, "mine"), key(tmp_path, "other")
    signed_ledger(ledger, mine)
    assert audited(ledger).book.cells[0].levels == (0,)
    result = audited(ledger, signers=allow(tmp_path, (mine, "")))
    assert (result.verdict, result.book.cells[0].levels, codes(result)) == ("holds", (0, 2), set())
    assert any("ada@example.org" in note for note in result.notes)
    assert audited(ledger, signers=allow(tmp_path, (other, ""))).book.cells[0].levels == (0,)


def test_keys_are_judged_now_and_never_at_the_commits_date_or_the_records(ledger, tmp_path, authority, monkeypatch):
    mine = key(tmp_path, "mine")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2010-06-01T00:00:00+0000")
    signed_ledger(ledger, mine)
    then = allow(tmp_path, (mine, 'valid-before="20110101"'))
    assert audited(ledger, signers=then).book.cells[0].levels == (0,)
    book = ledger.book()
    add_tokens(Repository(ledger.root), [book.seals[0].path, book.records[0].path], authority.url)
    now = datetime.now(UTC)
    valid = allow(tmp_path, (mine, f'valid-after="{(now - timedelta(days=1)).strftime("%Y%m%d")}"'))
    assert 2 in audited(ledger, authority, signers=valid).book.cells[0].levels
    # A token over the record is none over the signature, which may be younger.
    expired = allow(tmp_path, (mine, f'valid-before="{datetime.now(UTC).strftime("%Y%m%d%H%M%SZ")}"'))
    next_second()
    assert 2 not in audited(ledger, authority, signers=expired).book.cells[0].levels


def test_a_signature_moved_to_another_commit_is_refused(ledger, tmp_path):
    mine = key(tmp_path, "mine")
    signed_ledger(ledger, mine)
    commit = subprocess.run(
        ["git", "-C", str(ledger.root), "cat-file", "commit", "HEAD"], capture_output=True, check=True
    ).stdout
    forged = commit.replace(b"Measure\n", b"Measure it\n")
    sha = ledger.git("hash-object", "-t", "commit", "-w", "--stdin", data=forged)
    ledger.git("update-ref", "HEAD", sha)
    result = audited(ledger, signers=allow(tmp_path, (mine, "")))
    assert (result.verdict, codes(result)) == ("refused", {"signature-broken"})


def test_a_missing_file_of_signers_is_bad_input(ledger, tmp_path):
    ledger.seal()
    with pytest.raises(InputError, match="allowed signers"):
        audited(ledger, signers=tmp_path / "none")


@pytest.mark.parametrize("content", [b"", b"# ada ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIH\n", b"\x00\xff noise\n" * 9])
def test_a_file_that_names_no_signer_is_bad_input(ledger, tmp_path, content):
    ledger.seal()
    (tmp_path / "signers").write_bytes(content)
    with pytest.raises(InputError, match="names no signer; expected lines of PRINCIPAL"):
        audited(ledger, signers=tmp_path / "signers")


@pytest.mark.parametrize(
    ("release", "good"),
    [
        ("1.0.0", False),
        ("1.0.2", False),
        ("1.0.5", False),
        ("1.0.6rc1", False),
        ("odd", False),
        ("1.0.6", True),
        ("2.0", True),
    ],
)
def test_a_client_that_accepts_forged_tokens_is_not_used(release, good, monkeypatch):
    monkeypatch.setattr(timestamps.importlib.metadata, "version", lambda _name: release)
    if good:
        assert timestamps._client()
        return
    with pytest.raises(MachineError, match="CVE-2025-52556"):
        timestamps._client()
