"""Obtains and verifies RFC 3161 time tokens over records. The network is used only by `stamp`, only when asked.

The token's message imprint is the record's id: SHA-256 over its domain prefix and bytes. A token is stored beside its
record as ID.NAME.tsr, NAME being that of the authority; it is evidence of its time and never an identity, since other
bytes may say the same. The auditor alone chooses whose tokens count. docs/format.md names the file.
"""

from __future__ import annotations

import importlib.metadata
import re
import urllib.request
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from packaging.version import InvalidVersion, Version

from ledger.canonical import decode_any, id_input, record_id
from ledger.errors import EvidenceRefused, InputError, LedgerError, MachineError
from ledger.git.commit import Repository
from ledger.record_files import read_bytes
from ledger.suggestions import install_command

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

MAX_TOKEN_BYTES = 64 * 1024
TIMEOUT_S = 10.0


OLDEST_CLIENT = "1.0.6"


class UntrustedToken(LedgerError):
    """Report a token that is sound and does not lead to a root that the auditor named."""


def check_client(version: str) -> None:
    """Check that a release of rfc3161-client refuses forged tokens. Raises: MachineError for one that takes them."""
    try:
        sound = Version(version) >= Version(OLDEST_CLIENT)
    except InvalidVersion:
        sound = False
    if not sound:
        raise MachineError(
            f"rfc3161-client is {version}; expected {OLDEST_CLIENT} or newer, since older ones accept forged tokens "
            "(CVE-2025-52556): pip install --upgrade rfc3161-client"
        )


def _client() -> Any:
    try:
        import rfc3161_client
    except ImportError as error:
        raise MachineError(
            f"rfc3161-client is not installed; expected it for time tokens: {install_command('time')}"
        ) from error
    check_client(importlib.metadata.version("rfc3161-client"))
    return rfc3161_client


def authority_name(url: str) -> str:
    """Return the name under which an authority's tokens are kept: its host. Raises: InputError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"--tsa: got {url!r}; expected the http:// or https:// address of a time-stamping authority")
    return re.sub(r"[^a-z0-9]+", "-", parts.hostname.lower()).strip("-")[:40]


def stamp(message: bytes, url: str) -> bytes:
    """Return the response of a time-stamping authority over SHA-256 of a message, checked to be about it.

    Raises: MachineError when the authority cannot be reached or does not grant it.
    """
    client = _client()
    builder = client.TimestampRequestBuilder().data(message).hash_algorithm(client.HashAlgorithm.SHA256)
    question = builder.nonce(nonce=True).cert_request(cert_request=True).build()
    request = urllib.request.Request(
        url, data=question.as_bytes(), headers={"Content-Type": "application/timestamp-query"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            data: bytes = reply.read(MAX_TOKEN_BYTES + 1)
        answer = client.decode_timestamp_response(data)
        granted = answer.status == 0 and answer.tst_info.nonce == question.nonce
        about = answer.tst_info.message_imprint.message == question.message_imprint.message
    except (OSError, ValueError) as error:
        raise MachineError(f"time-stamping authority {url}: {error}; expected a token") from error
    if not granted or not about or len(data) > MAX_TOKEN_BYTES:
        raise MachineError(f"time-stamping authority {url}: its answer is not a token for this record")
    return data


def load_roots(path: FilePath) -> tuple[Certificate, ...]:
    """Return the root certificates in a PEM file that the auditor gives. Raises: InputError."""
    try:
        from cryptography.x509 import load_pem_x509_certificates
    except ImportError as error:
        raise MachineError("cryptography is not installed; expected it with rfc3161-client") from error
    try:
        return tuple(load_pem_x509_certificates(read_bytes(path)))
    except ValueError as error:
        raise InputError(f"{path}: no certificates ({error}); expected PEM") from error


def token_time(data: bytes, identity: str, roots: Sequence[Certificate]) -> datetime:
    """Return the time at which an authority under one of `roots` saw a record.

    Raises: EvidenceRefused for a token that is broken or about something else; UntrustedToken for one that does not
    lead to the roots.
    """
    client = _client()
    try:
        answer = client.decode_timestamp_response(data)
        imprint = answer.tst_info.message_imprint
        algorithm, message, when = imprint.hash_algorithm.dotted_string, imprint.message, answer.tst_info.gen_time
    except Exception as error:
        raise EvidenceRefused(f"not a time token ({error}); expected an RFC 3161 response") from error
    if algorithm != "2.16.840.1.101.3.4.2.1" or message != bytes.fromhex(identity):
        raise EvidenceRefused("its imprint is not the id of the record that it is stored beside")
    try:
        _verifier(client, roots).verify(answer, message)
    except Exception as error:
        # OpenSSL builds the chain of certificates before it looks at the signature.
        if "certificate verify" in str(error) or "issuer certificate" in str(error):
            raise UntrustedToken("it does not lead to a root that the auditor named") from error
        raise EvidenceRefused(f"it does not verify ({str(error)[:120]})") from error
    assert isinstance(when, datetime)
    return when


def _verifier(client: Any, roots: Sequence[Certificate]) -> Any:
    builder = client.VerifierBuilder()
    for root in dict.fromkeys(roots):
        builder = builder.add_root_certificate(root)
    return builder.build()


def add_tokens(repository: Repository, paths: Sequence[str], url: str) -> list[str]:
    """Commit the tokens that records still lack from an authority; return the paths of the new tokens.

    Raises: MachineError when the authority gives none; the records stay as they are.
    """
    name = authority_name(url)
    head = repository.head()
    tokens: dict[str, bytes] = {}
    for path in paths:
        token = f"{path.removesuffix('.json')}.{name}.tsr"
        if head is None or repository.is_committed(token):
            continue
        data = repository.show(head, path)
        kind = type(decode_any(data, what=path))
        assert record_id(kind, data) in path
        tokens[token] = stamp(id_input(kind, data), url)
    if tokens:
        count = f"{len(tokens)} record{'s' if len(tokens) > 1 else ''}"
        repository.commit(lambda _parent: (tokens, f"Witness {count} by {name}\n"))
    return list(tokens)
