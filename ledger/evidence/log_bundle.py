"""Verifies the bundle of a record: its signature, its entry in a public log and their time. Uses no network.

A bundle is that of sigstore. What is signed and logged is the record's id itself, so that whoever reads the log finds
the record by its name. First the bundle is held against itself, which needs no root: a contradiction is refused. Then
sigstore verifies it under the roots, the identity and the issuer that the auditor names, and a bundle that does not
lead there counts for nothing. Only certificates are supported: sigstore signs with no key of one's own.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ledger.errors import EvidenceRefused, InputError, LedgerError, MachineError
from ledger.evidence.log_proof import leaf_hash, parse_body, parse_checkpoint, root_of_path
from ledger.evidence.timestamps import UntrustedToken, load_roots, token_time
from ledger.suggestions import install_command

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

MAX_BUNDLE_BYTES = 256 * 1024


class UntrustedBundle(LedgerError):
    """Report a bundle that agrees with itself and does not lead to what the auditor named."""


@dataclass(frozen=True)
class LogEntry:
    """Hold a verified entry of a public log.

    log: the origin that the log signs. index: the position in its tree. number: the log's own number of the entry,
    as its interface shows it. body: SHA-256 of the entry. integrated: when the log says that it took the entry in,
    None where it does not sign that (Rekor v2).
    """

    log: str
    index: int
    number: int
    body: str
    integrated: datetime | None


def require_sigstore() -> None:
    """Check that sigstore is installed. Raises: MachineError."""
    try:
        import sigstore  # noqa: F401
    except ImportError as error:
        remedy = install_command("log")
        raise MachineError(f"sigstore is not installed; expected it for entries of a public log: {remedy}") from error
    # It warns of each trusted key of a type that it does not know.
    logging.getLogger("sigstore").setLevel(logging.ERROR)


def parse_bundle(data: bytes, identity: str) -> Any:
    """Return the bundle of a record, held against itself and the record's id.

    Raises: EvidenceRefused where signature, certificate, entry, inclusion proof and checkpoint do not agree.
    """
    require_sigstore()
    from sigstore.models import Bundle

    if len(data) > MAX_BUNDLE_BYTES:
        raise EvidenceRefused(f"{len(data)} bytes; expected at most {MAX_BUNDLE_BYTES}")
    try:
        bundle = Bundle.from_json(data)
        _check_signature(bundle, identity)
        _check_entry(bundle, identity)
    except EvidenceRefused:
        raise
    except Exception as error:
        raise EvidenceRefused(f"not a bundle ({_line(error)}); expected one of sigstore over this record") from error
    return bundle


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _check_signature(bundle: Any, identity: str) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
    from cryptography.hazmat.primitives.hashes import SHA256

    signed = bundle._inner.message_signature
    if signed is None:
        raise EvidenceRefused("it holds no signature over the record's id")
    if signed.message_digest is not None and signed.message_digest.digest != bytes.fromhex(identity):
        raise EvidenceRefused("it is about another digest than the id of the record that it is stored beside")
    key = bundle.signing_certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise EvidenceRefused("its certificate holds no ECDSA key")
    try:
        key.verify(signed.signature, bytes.fromhex(identity), ec.ECDSA(Prehashed(SHA256())))
    except InvalidSignature as error:
        raise EvidenceRefused("its signature does not fit the record's id and its certificate") from error


def _check_entry(bundle: Any, identity: str) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    entry = bundle.log_entry._inner
    body = parse_body(entry.canonicalized_body)
    if body.version != entry.kind_version.version or entry.kind_version.kind != "hashedrekord":
        raise EvidenceRefused("its log entry has another version than it says")
    if body.digest != identity:
        raise EvidenceRefused("its log entry is about another digest than the record's id")
    if body.signature != bundle.signature:
        raise EvidenceRefused("its log entry holds another signature")
    if load_certificate(body.certificate).public_bytes(Encoding.DER) != bundle.signing_certificate.public_bytes(
        Encoding.DER
    ):
        raise EvidenceRefused("its log entry holds another certificate")
    proof = entry.inclusion_proof
    root = root_of_path(
        leaf_hash(entry.canonicalized_body), index=proof.log_index, size=proof.tree_size, path=proof.hashes
    )
    if root != proof.root_hash:
        raise EvidenceRefused("its inclusion proof does not lead to its root hash")
    checkpoint = parse_checkpoint(proof.checkpoint.envelope)
    if (checkpoint.size, checkpoint.root) != (proof.tree_size, proof.root_hash):
        raise EvidenceRefused("its inclusion proof is of another tree than its checkpoint")
    if body.version == "0.0.2" and entry.log_index != proof.log_index:
        raise EvidenceRefused(f"its log index is {entry.log_index}; its inclusion proof says {proof.log_index}")


def load_certificate(data: bytes) -> Certificate:
    """Return a certificate, DER or PEM. Raises: ValueError."""
    from cryptography.x509 import load_der_x509_certificate, load_pem_x509_certificate

    return (load_pem_x509_certificate if data.startswith(b"-----") else load_der_x509_certificate)(data)


class LogVerifier:
    """Verify bundles, and time tokens over them, under what the auditor names."""

    def __init__(
        self, roots: FilePath, *, identity: str, issuer: str | None = None, tsa_roots: FilePath | None = None
    ) -> None:
        """Read the roots: a trusted root of sigstore, as JSON. Raises: InputError, MachineError."""
        require_sigstore()
        from sigstore.models import TrustedRoot
        from sigstore.verify import Verifier

        if not roots.is_file():
            raise InputError(f"{roots}: not there; expected a trusted root of sigstore, as JSON")
        try:
            self._trusted = TrustedRoot.from_file(str(roots))
            self._verifier = Verifier(trusted_root=self._trusted)
            self._authorities = list(_authorities(self._trusted))
        except Exception as error:
            raise InputError(f"{roots}: {_line(error)}; expected a trusted root of sigstore, as JSON") from error
        self._tsa_roots = () if tsa_roots is None else load_roots(tsa_roots)
        self._policy = _policy(identity, issuer)

    def verify(self, data: bytes, identity: str) -> LogEntry:
        """Return the log entry of a record's bundle.

        Raises: EvidenceRefused for a bundle that contradicts itself or the record; UntrustedBundle for one that does
        not lead to the roots, the identity and the issuer that the auditor names.
        """
        from sigstore.hashes import Hashed
        from sigstore_models.common.v1 import HashAlgorithm

        bundle = parse_bundle(data, identity)
        record = Hashed(algorithm=HashAlgorithm.SHA2_256, digest=bytes.fromhex(identity))
        try:
            self._verifier.verify_artifact(record, bundle, self._policy)
        except Exception as error:
            raise UntrustedBundle(_line(error)) from error
        entry = bundle.log_entry._inner
        dated = entry.inclusion_promise is not None and entry.integrated_time
        return LogEntry(
            log=parse_checkpoint(entry.inclusion_proof.checkpoint.envelope).origin,
            index=entry.inclusion_proof.log_index,
            number=entry.log_index,
            body=hashlib.sha256(entry.canonicalized_body).hexdigest(),
            integrated=datetime.fromtimestamp(entry.integrated_time, UTC) if dated else None,
        )

    def token_time(self, token: bytes, bundle: bytes) -> datetime:
        """Return when an authority saw a bundle, one of the trusted root or of the auditor's time-stamping roots.

        Raises: EvidenceRefused, UntrustedToken, as `timestamps.token_time`.
        """
        digest = hashlib.sha256(bundle).hexdigest()
        for root, start, end in self._authorities:
            try:
                when = token_time(token, digest, (root,))
            except UntrustedToken:
                continue
            if start <= when and (end is None or when < end):
                return when
        if not self._tsa_roots:
            raise UntrustedToken("it does not lead to an authority of the trusted root")
        return token_time(token, digest, self._tsa_roots)

    def is_by_identity(self, certificate: bytes) -> bool:
        """Tell whether a certificate names the identity, and the issuer, that the auditor named."""
        try:
            self._policy.verify(load_certificate(certificate))
        # A stranger's certificate may hold anything; it is only left out.
        except Exception:  # noqa: BLE001
            return False
        return True


def _authorities(trusted: Any) -> Iterator[tuple[Certificate, datetime, datetime | None]]:
    for authority in trusted.get_timestamp_authorities():
        chain = authority.certificates(allow_expired=True)
        yield chain[-1], authority.validity_period_start, authority.validity_period_end


def _policy(identity: str, issuer: str | None) -> Any:
    from sigstore.verify import policy

    named = policy.Identity(identity=identity)
    if issuer is None:
        return named
    # Version 2 of the extension holds the same text, encoded as DER.
    return policy.AllOf([named, policy.AnyOf([policy.OIDCIssuer(issuer), policy.OIDCIssuerV2(issuer)])])
