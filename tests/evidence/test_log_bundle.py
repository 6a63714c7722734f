"""Tests the verification of log bundles: recorded ones, a local log's, and every forgery beside its honest twin."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("sigstore")
from authority import Authority
from forged_proofs import BROKEN, UNTRUSTED, UNTRUSTED_V1
from public_log import ADA, ISSUER, LocalLog

from ledger.errors import EvidenceRefused, InputError
from ledger.evidence.log_bundle import LogVerifier, UntrustedBundle
from ledger.evidence.timestamps import UntrustedToken

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "tests" / "assets" / "sigstore"
RECORD = hashlib.sha256(b"a record").hexdigest()
RECORDED = {
    "staging-rekor-v2": ("staging", "jku@goto.fi", "https://github.com/login/oauth"),
    "production-rekor-v1": (
        "production",
        "https://github.com/trailofbits/rfc8785.py/.github/workflows/release.yml@refs/tags/v0.1.2",
        "https://token.actions.githubusercontent.com",
    ),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tsa") / "here")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tsa") / "there", "Another authority")


@pytest.fixture(scope="module")
def log(tmp_path_factory, authority):
    return LocalLog(tmp_path_factory.mktemp("log"), authority)


@pytest.fixture(scope="module")
def verifier(log):
    return LogVerifier(log.roots, identity=ADA, issuer=ISSUER)


@pytest.fixture(scope="module")
def honest(log):
    return {version: log.bundle(RECORD, version=version) for version in (1, 2)}


def as_bytes(bundle) -> bytes:
    return bundle if isinstance(bundle, bytes) else json.dumps(bundle).encode()


# Recorded bundles


def recorded(name: str) -> tuple[bytes, str]:
    data = (ASSETS / f"{name}.bundle").read_bytes()
    return data, base64.b64decode(json.loads(data)["messageSignature"]["messageDigest"]["digest"]).hex()


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_bundle_holds_offline(name):
    data, digest = recorded(name)
    roots, identity, issuer = RECORDED[name]
    entry = LogVerifier(ASSETS / f"{roots}-roots.json", identity=identity, issuer=issuer).verify(data, digest)
    assert (entry.integrated is None) == (name == "staging-rekor-v2")


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_bundle_counts_for_nothing_under_what_the_auditor_did_not_name(name):
    data, digest = recorded(name)
    roots, identity, issuer = RECORDED[name]
    others = {"staging": "production", "production": "staging"}
    for path, who, by in (
        (others[roots], identity, issuer),
        (roots, "eve@example.org", issuer),
        (roots, identity, "https://evil.example"),
    ):
        with pytest.raises(UntrustedBundle):
            LogVerifier(ASSETS / f"{path}-roots.json", identity=who, issuer=by).verify(data, digest)
    with pytest.raises(EvidenceRefused, match="another digest"):
        LogVerifier(ASSETS / f"{roots}-roots.json", identity=identity).verify(data, RECORD)


def test_a_recorded_bundle_without_signed_time_is_refused():
    data, digest = recorded("no-signed-time")
    verifier = LogVerifier(ASSETS / "production-roots.json", identity="william@yossarian.net")
    with pytest.raises(EvidenceRefused, match="inclusion promise or signed timestamp"):
        verifier.verify(data, digest)


def test_every_hundredth_flipped_bit_of_a_recorded_bundle_is_refused_or_says_the_same():
    data, digest = recorded("staging-rekor-v2")
    verifier = LogVerifier(ASSETS / "staging-roots.json", identity="jku@goto.fi")
    truth, same = verifier.verify(data, digest), 0
    for bit in range(3, 8 * len(data), 101):
        forged = bytearray(data)
        forged[bit // 8] ^= 1 << bit % 8
        try:
            assert verifier.verify(bytes(forged), digest) == truth, f"bit {bit} changes the entry"
            same += 1
        except (EvidenceRefused, UntrustedBundle):
            continue
    assert same < 40


# Forgeries


@pytest.mark.parametrize("name", BROKEN)
def test_a_bundle_that_contradicts_itself_is_refused(name, log, honest, verifier):
    assert verifier.verify(as_bytes(honest[2]), RECORD).index >= 5
    forged = as_bytes(BROKEN[name](honest[2], log, RECORD))
    with pytest.raises(EvidenceRefused):
        verifier.verify(forged, RECORD)


@pytest.mark.parametrize("name", UNTRUSTED)
def test_a_bundle_that_does_not_lead_to_the_roots_counts_for_nothing(name, log, honest, verifier):
    assert verifier.verify(as_bytes(honest[2]), RECORD).integrated is None
    forged = as_bytes(UNTRUSTED[name](honest[2], log, RECORD))
    with pytest.raises(UntrustedBundle):
        verifier.verify(forged, RECORD)


@pytest.mark.parametrize("name", UNTRUSTED_V1)
def test_a_time_that_the_log_did_not_sign_counts_for_nothing(name, log, honest, verifier):
    assert verifier.verify(as_bytes(honest[1]), RECORD).integrated is not None
    forged = as_bytes(UNTRUSTED_V1[name](honest[1], log, RECORD))
    with pytest.raises(UntrustedBundle):
        verifier.verify(forged, RECORD)


def test_an_entry_of_a_stranger_counts_for_nothing(tmp_path, stranger, authority, log, verifier):
    other = LocalLog(tmp_path / "other", authority)
    stamped_elsewhere = log.bundle(RECORD, authority=stranger)
    for bundle in (other.bundle(RECORD), stamped_elsewhere):
        with pytest.raises(UntrustedBundle):
            verifier.verify(as_bytes(bundle), RECORD)
    assert LogVerifier(other.roots, identity=ADA).verify(as_bytes(other.bundle(RECORD)), RECORD)


@pytest.mark.parametrize("part", ["tlogs", "certificateAuthorities", "ctlogs"])
def test_each_part_of_the_roots_is_needed(part, tmp_path, authority, log, honest):
    other = LocalLog(tmp_path / "other", authority).trusted_root()
    path = tmp_path / "roots.json"
    path.write_text(json.dumps(log.trusted_root(**{part: other[part]})))
    with pytest.raises(UntrustedBundle):
        LogVerifier(path, identity=ADA).verify(as_bytes(honest[2]), RECORD)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"mediaType": "x"}', None])
def test_roots_that_are_none_are_bad_input(text, tmp_path):
    path = tmp_path / "roots.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match="trusted root"):
        LogVerifier(path, identity=ADA)


def test_the_number_of_forgeries_is_the_one_in_the_documents():
    count = len(BROKEN) + len(UNTRUSTED) + len(UNTRUSTED_V1)
    assert f"{count} forged bundles" in (ROOT / "docs" / "findings.md").read_text()


# Tokens over a bundle


def test_a_token_over_the_bundle_gives_its_time(log, honest, verifier):
    data = as_bytes(honest[2])
    token = log.stamp(data)
    assert verifier.token_time(token, data).tzinfo is not None
    with pytest.raises(EvidenceRefused, match="imprint"):
        verifier.token_time(token, as_bytes(honest[1]))


def test_a_token_of_another_authority_needs_its_root(log, honest, verifier, stranger):
    data = as_bytes(honest[2])
    token = log.stamp(data, stranger)
    with pytest.raises(UntrustedToken):
        verifier.token_time(token, data)
    named = LogVerifier(log.roots, identity=ADA, tsa_roots=stranger.root)
    assert named.token_time(token, data) is not None


def test_a_token_outside_the_authoritys_years_counts_for_nothing(tmp_path, log, honest):
    data = as_bytes(honest[2])
    (authority,) = log.trusted_root()["timestampAuthorities"]
    ended = {**authority, "validFor": {"start": "2020-01-01T00:00:00Z", "end": "2021-01-01T00:00:00Z"}}
    path = tmp_path / "roots.json"
    path.write_text(json.dumps(log.trusted_root(timestampAuthorities=[ended])))
    with pytest.raises(UntrustedToken):
        LogVerifier(path, identity=ADA).token_time(log.stamp(data), data)


# Time and imports


def test_offline_verification_takes_less_than_a_second(log, honest, verifier):
    """A new verifier and one bundle, after the import of sigstore, which is timed apart."""
    data = as_bytes(honest[2])
    started = time.perf_counter()
    LogVerifier(log.roots, identity=ADA, issuer=ISSUER).verify(data, RECORD)
    assert time.perf_counter() - started < 1


def test_the_audit_does_not_load_sigstore_unasked():
    code = "import sys, ledger.cli.app, ledger.cli.audit, ledger.cli.witness, ledger.evidence.audit\n"
    code += "from ledger.evidence import log_bundle, log_entries, log_levels\nfrom ledger.workflow import log_records\n"
    code += "assert not {'sigstore', 'requests', 'tuf'} & set(sys.modules)"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})
