"""Checks what a public log says in its entries, against nothing but themselves. Pure; needs no package.

Inclusion proofs are those of RFC 6962, in the form of RFC 9162, section 2.1.3.2. A checkpoint is a signed note
(c2sp.org/tlog-checkpoint); its signature is checked elsewhere. The body of an entry is a `hashedrekord` of Rekor,
version 0.0.1 (Rekor v1) or 0.0.2 (Rekor v2).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ledger.canonical import parse_json
from ledger.errors import EvidenceRefused, ParseError

MAX_PATH = 64


@dataclass(frozen=True)
class LoggedBody:
    """Hold what an entry says: the SHA-256 that was signed, in hexadecimal, its signature, the signer's certificate.

    certificate: DER or PEM, as the log stores it.
    """

    version: str
    digest: str
    signature: bytes
    certificate: bytes


@dataclass(frozen=True)
class Checkpoint:
    """Hold a log's origin, its size in entries and its root hash."""

    origin: str
    size: int
    root: bytes


def leaf_hash(body: bytes) -> bytes:
    """Return the hash of a leaf."""
    return hashlib.sha256(b"\0" + body).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node over its two children."""
    return hashlib.sha256(b"\1" + left + right).digest()


def root_of_path(leaf: bytes, *, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """Return the root of a tree of `size` leaves in which a leaf hash is at `index`. Raises: EvidenceRefused."""
    if not 0 <= index < size:
        raise EvidenceRefused(f"its log index is {index} in a tree of {size} entries")
    if len(path) > MAX_PATH or any(len(one) != 32 for one in path):
        raise EvidenceRefused(f"its inclusion proof has {len(path)} hashes; expected at most {MAX_PATH} of 32 bytes")
    position, last, root = index, size - 1, leaf
    for one in path:
        if last == 0:
            raise EvidenceRefused("its inclusion proof is longer than the tree is high")
        if position & 1 or position == last:
            root = node_hash(one, root)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            root = node_hash(root, one)
        position, last = position >> 1, last >> 1
    if last:
        raise EvidenceRefused("its inclusion proof is shorter than the tree is high")
    return root


def parse_checkpoint(text: str) -> Checkpoint:
    """Return what a signed note says of a tree. Raises: EvidenceRefused."""
    note, separator, signatures = text.partition("\n\n")
    lines = note.split("\n")
    try:
        if not separator or not signatures or len(lines) < 3 or not lines[0]:
            raise ValueError("expected origin, size, root hash, an empty line and signatures")
        if not (lines[1].isascii() and lines[1].isdigit()):
            raise ValueError("its size is no number")
        return Checkpoint(lines[0], int(lines[1]), base64.b64decode(lines[2], validate=True))
    except ValueError as error:
        raise EvidenceRefused(f"its checkpoint cannot be read ({error})") from error


def parse_body(data: bytes) -> LoggedBody:
    """Return what the body of a log entry says. Raises: EvidenceRefused for one that is no `hashedrekord`."""
    try:
        value: Any = parse_json(data, what="log entry")
        kind, version = value["kind"], value["apiVersion"]
        if (kind, version) == ("hashedrekord", "0.0.1"):
            return _version_1(value["spec"])
        if (kind, version) == ("hashedrekord", "0.0.2"):
            return _version_2(value["spec"]["hashedRekordV002"])
    except (ParseError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise EvidenceRefused(f"its log entry cannot be read ({str(error)[:120]})") from error
    got = f"{str(kind)[:40]} {str(version)[:20]}"
    raise EvidenceRefused(f"its log entry is {got}; expected hashedrekord 0.0.1 or 0.0.2")


def _version_1(spec: Any) -> LoggedBody:
    if spec["data"]["hash"]["algorithm"] != "sha256":
        raise ValueError("its hash is not SHA-256")
    signature = spec["signature"]
    pem = base64.b64decode(signature["publicKey"]["content"], validate=True)
    content = base64.b64decode(signature["content"], validate=True)
    return LoggedBody("0.0.1", str(spec["data"]["hash"]["value"]).lower(), content, pem)


def _version_2(spec: Any) -> LoggedBody:
    if spec["data"]["algorithm"] != "SHA2_256":
        raise ValueError("its hash is not SHA-256")
    signature = spec["signature"]
    der = base64.b64decode(signature["verifier"]["x509Certificate"]["rawBytes"], validate=True)
    content = base64.b64decode(signature["content"], validate=True)
    return LoggedBody("0.0.2", base64.b64decode(spec["data"]["digest"], validate=True).hex(), content, der)
