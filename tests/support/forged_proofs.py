"""Forges the bundle of a record in every part, each as a function of an honest bundle; the honest one must pass."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from public_log import ADA, LocalLog, audit_path, b64, tree_hash

Bundle = dict[str, Any]
Forge = Callable[[Bundle, LocalLog, str], "Bundle | bytes"]
OTHER = "ab" * 32


def flipped(text: str, byte: int = -1) -> str:
    """Return base64 text with one bit of its data flipped."""
    data = bytearray(base64.b64decode(text))
    data[byte] ^= 1
    return b64(bytes(data))


def entry_of(bundle: Bundle) -> dict[str, Any]:
    return bundle["verificationMaterial"]["tlogEntries"][0]


def proof_of(bundle: Bundle) -> dict[str, Any]:
    return entry_of(bundle)["inclusionProof"]


def edit(change: Callable[[Bundle, LocalLog], object]) -> Forge:
    """Return a forgery that changes a copy of the honest bundle."""

    def forge(bundle: Bundle, log: LocalLog, digest: str) -> Bundle:
        del digest
        forged = copy.deepcopy(bundle)
        change(forged, log)
        return forged

    return forge


def made(**options: Any) -> Forge:
    """Return a forgery that is a whole bundle of the same record, made in another way."""
    return lambda _bundle, log, digest: log.bundle(digest, **options)


def set_proof(**fields: Any) -> Forge:
    return edit(lambda bundle, _log: proof_of(bundle).update(fields))


def with_body(change: Callable[[bytes], bytes]) -> Forge:
    """Return a forgery whose entry has a changed body that is properly logged."""

    def apply(bundle: Bundle, log: LocalLog) -> None:
        body = change(base64.b64decode(entry_of(bundle)["canonicalizedBody"]))
        bundle["verificationMaterial"]["tlogEntries"] = [log.enter(body)]

    return edit(apply)


def _other_signature(bundle: Bundle, log: LocalLog) -> None:
    bundle["messageSignature"]["signature"] = log.bundle(OTHER)["messageSignature"]["signature"]


def _altered_certificate(bundle: Bundle, _log: LocalLog) -> None:
    certificate = bundle["verificationMaterial"]["certificate"]
    certificate["rawBytes"] = flipped(certificate["rawBytes"])


def _other_certificate(bundle: Bundle, log: LocalLog) -> None:
    key = x509.load_der_x509_certificate(
        base64.b64decode(bundle["verificationMaterial"]["certificate"]["rawBytes"])
    ).public_key()
    raw = log.certificate(key, person="eve@example.org").public_bytes(Encoding.DER)
    bundle["verificationMaterial"]["certificate"]["rawBytes"] = b64(raw)


def _other_entry(bundle: Bundle, log: LocalLog) -> None:
    bundle["verificationMaterial"]["tlogEntries"] = log.bundle(OTHER)["verificationMaterial"]["tlogEntries"]


def _old_checkpoint(bundle: Bundle, log: LocalLog) -> None:
    proof_of(bundle)["checkpoint"]["envelope"] = log.checkpoint(int(proof_of(bundle)["treeSize"]) - 1)


def _lying_size(bundle: Bundle, log: LocalLog) -> None:
    """Say in the proof a size whose paths have the same form, under the true checkpoint."""
    log.leaves += [b"a", b"b", b"c", b"d"]
    index, size = int(proof_of(bundle)["logIndex"]), len(log.leaves)
    path = audit_path(index, log.leaves)
    root = b64(tree_hash(log.leaves))
    proof_of(bundle).update(treeSize=str(size + 1), hashes=[b64(one) for one in path], rootHash=root)
    proof_of(bundle)["checkpoint"]["envelope"] = log.checkpoint(size)


def _swap(bundle: Bundle, _log: LocalLog) -> None:
    hashes = proof_of(bundle)["hashes"]
    hashes[0], hashes[1] = hashes[1], hashes[0]


def _ed25519(bundle: Bundle, log: LocalLog, digest: str) -> Bundle:
    forged = copy.deepcopy(bundle)
    certificate = log.certificate(ed25519.Ed25519PrivateKey.generate().public_key())
    forged["verificationMaterial"]["certificate"]["rawBytes"] = b64(certificate.public_bytes(Encoding.DER))
    return forged


def _foreign_checkpoint(bundle: Bundle, log: LocalLog) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    proof_of(bundle)["checkpoint"]["envelope"] = log.checkpoint(int(proof_of(bundle)["treeSize"]), key)


def _altered_checkpoint(bundle: Bundle, _log: LocalLog) -> None:
    envelope = proof_of(bundle)["checkpoint"]["envelope"]
    head, _, signature = envelope.rstrip("\n").rpartition(" ")
    proof_of(bundle)["checkpoint"]["envelope"] = f"{head} {flipped(signature)}\n"


def _rewritten_tree(bundle: Bundle, log: LocalLog) -> None:
    """Prove the entry in a tree of one's own, with the true log's last signature."""
    body = base64.b64decode(entry_of(bundle)["canonicalizedBody"])
    leaves = [b"x", body]
    signature = proof_of(bundle)["checkpoint"]["envelope"].split("\n\n", 1)[1]
    note = f"{log.origin}\n2\n{b64(tree_hash(leaves))}\n"
    entry_of(bundle)["logIndex"] = "1"
    proof_of(bundle).update(
        logIndex="1",
        treeSize="2",
        rootHash=b64(tree_hash(leaves)),
        hashes=[b64(one) for one in audit_path(1, leaves)],
        checkpoint={"envelope": f"{note}\n{signature}"},
    )


def _times(bundle: Bundle) -> list[dict[str, str]]:
    return bundle["verificationMaterial"]["timestampVerificationData"]["rfc3161Timestamps"]


def _bodyless(bundle: Bundle, _log: LocalLog) -> None:
    del entry_of(bundle)["canonicalizedBody"]


# Contradicts itself or the record: refused whatever the auditor trusts.
BROKEN: dict[str, Forge] = {
    "other-records-bundle": lambda _bundle, log, _digest: log.bundle(OTHER),
    "other-digest-under-this-signature": edit(
        lambda b, _: b["messageSignature"]["messageDigest"].update(digest=b64(bytes.fromhex(OTHER)))
    ),
    "other-records-signature": edit(_other_signature),
    "other-records-entry": edit(_other_entry),
    "altered-signature": edit(
        lambda b, _: b["messageSignature"].update(signature=flipped(b["messageSignature"]["signature"]))
    ),
    "empty-signature": edit(lambda b, _: b["messageSignature"].update(signature="")),
    "no-signature": edit(lambda b, _: b.pop("messageSignature")),
    "altered-certificate": edit(_altered_certificate),
    "other-certificate-of-the-key": edit(_other_certificate),
    "certificate-of-another-kind": _ed25519,
    "no-certificate": edit(lambda b, _: b["verificationMaterial"].pop("certificate")),
    "leaf-index-one-less": edit(lambda b, _: proof_of(b).update(logIndex=str(int(proof_of(b)["logIndex"]) - 1))),
    "leaf-index-beyond-the-tree": edit(lambda b, _: proof_of(b).update(logIndex=proof_of(b)["treeSize"])),
    "leaf-index-negative": set_proof(logIndex="-1"),
    "number-unlike-index": edit(lambda b, _: entry_of(b).update(logIndex="0")),
    "tree-size-one-more": edit(lambda b, _: proof_of(b).update(treeSize=str(int(proof_of(b)["treeSize"]) + 1))),
    "tree-size-zero": set_proof(treeSize="0"),
    "tree-size-huge": set_proof(treeSize=str(2**62)),
    "tree-size-unlike-checkpoint": edit(_lying_size),
    "path-truncated": edit(lambda b, _: proof_of(b)["hashes"].pop()),
    "path-extended": edit(lambda b, _: proof_of(b)["hashes"].append(proof_of(b)["rootHash"])),
    "path-empty": set_proof(hashes=[]),
    "path-swapped": edit(_swap),
    "path-hash-altered": edit(
        lambda b, _: proof_of(b)["hashes"].__setitem__(0, flipped(proof_of(b)["hashes"][0]))
    ),
    "path-hash-too-short": edit(lambda b, _: proof_of(b)["hashes"].__setitem__(0, b64(bytes(31)))),
    "root-hash-altered": edit(lambda b, _: proof_of(b).update(rootHash=flipped(proof_of(b)["rootHash"]))),
    "older-checkpoint": edit(_old_checkpoint),
    "no-checkpoint": edit(lambda b, _: proof_of(b).pop("checkpoint")),
    "checkpoint-unreadable": set_proof(checkpoint={"envelope": "log.example"}),
    "no-inclusion-proof": edit(lambda b, _: entry_of(b).pop("inclusionProof")),
    "no-log-entry": edit(lambda b, _: b["verificationMaterial"].update(tlogEntries=[])),
    "two-log-entries": edit(lambda b, _: b["verificationMaterial"]["tlogEntries"].append(entry_of(b))),
    "no-entry-body": edit(_bodyless),
    "entry-body-altered": edit(
        lambda b, _: entry_of(b).update(canonicalizedBody=flipped(entry_of(b)["canonicalizedBody"], 40))
    ),
    "entry-body-with-a-key-twice": with_body(lambda body: b'{"kind":"hashedrekord",' + body[1:]),
    "entry-of-another-kind": with_body(lambda body: body.replace(b'"hashedrekord"', b'"intoto"')),
    "entry-of-another-version": edit(lambda b, _: entry_of(b)["kindVersion"].update(version="0.0.1")),
    "entry-of-an-unknown-version": edit(lambda b, _: entry_of(b)["kindVersion"].update(version="0.0.9")),
    "no-time-at-all": edit(lambda b, _: _times(b).clear()),
    "time-stamp-unreadable": edit(lambda b, _: _times(b)[0].update(signedTimestamp=b64(b"no token"))),
    "unknown-bundle-format": edit(lambda b, _: b.update(mediaType="application/vnd.example+json")),
    "not-json": lambda *_: b"\0\1bundle",
    "empty-file": lambda *_: b"",
    "nested-deep": lambda *_: b"[" * 100_000,
    "too-large": lambda bundle, *_: json.dumps(bundle).encode() + b" " * 300_000,
}  # fmt: skip

# Agrees with itself and does not lead to what the auditor named: shown, and counts for nothing.
UNTRUSTED: dict[str, Forge] = {
    "checkpoint-by-another-key": edit(_foreign_checkpoint),
    "checkpoint-signature-altered": edit(_altered_checkpoint),
    "tree-rewritten-under-an-old-signature": edit(_rewritten_tree),
    "certificate-expired-at-log-time": made(start=timedelta(hours=-2), minutes=10),
    "certificate-not-yet-valid": made(start=timedelta(hours=2)),
    "certificate-without-code-signing": made(signing=False),
    "certificate-not-in-its-log": made(in_ct_log=False),
    "certificate-stamped-by-another-key": made(ct_key=ec.generate_private_key(ec.SECP256R1())),
    "another-persons": made(person="eve@example.org"),
    "a-person-whose-name-begins-alike": made(person=f"{ADA}.evil.example"),
    "confirmed-by-another-issuer": made(issuer="https://evil.example"),
    "confirmed-by-no-issuer": made(issuer=None),
    "time-stamp-over-another-signature": made(stamped=b"another signature"),
    "time-stamp-altered": edit(
        lambda b, _: _times(b)[0].update(signedTimestamp=flipped(_times(b)[0]["signedTimestamp"]))
    ),
    "time-stamp-twice": edit(lambda b, _: _times(b).append(_times(b)[0])),
    "too-many-time-stamps": edit(lambda b, _: _times(b).extend(_times(b) * 40)),
}


def altered_time(bundle: Bundle, log: LocalLog, digest: str) -> Bundle:
    """Return a bundle of a Rekor v1 log whose time was altered after the log had signed it."""
    forged = copy.deepcopy(bundle)
    entry_of(forged)["integratedTime"] = str(int(entry_of(forged)["integratedTime"]) - 60)
    return forged


def altered_promise(bundle: Bundle, log: LocalLog, digest: str) -> Bundle:
    """Return a bundle of a Rekor v1 log whose promise has one other bit."""
    forged = copy.deepcopy(bundle)
    promise = entry_of(forged)["inclusionPromise"]
    promise["signedEntryTimestamp"] = flipped(promise["signedEntryTimestamp"])
    return forged


def time_without_promise(bundle: Bundle, log: LocalLog, digest: str) -> Bundle:
    """Return a bundle with a time that nobody signed, and a time stamp that is another's."""
    forged = copy.deepcopy(bundle)
    del entry_of(forged)["inclusionPromise"]
    token = {"signedTimestamp": b64(log.stamp(b"another signature"))}
    forged["verificationMaterial"]["timestampVerificationData"]["rfc3161Timestamps"] = [token]
    return forged


def number_altered(bundle: Bundle, log: LocalLog, digest: str) -> Bundle:
    """Return a bundle of a Rekor v1 log that says another number of its entry."""
    forged = copy.deepcopy(bundle)
    entry_of(forged)["logIndex"] = "0"
    return forged


UNTRUSTED_V1: dict[str, Forge] = {
    "v1-time-altered": altered_time,
    "v1-promise-altered": altered_promise,
    "v1-time-without-promise": time_without_promise,
    "v1-number-altered": number_altered,
}
