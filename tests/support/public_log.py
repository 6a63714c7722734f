"""Runs a whole sigstore instance for tests on the loopback address, with real cryptography.

A certificate authority like Fulcio, with its transparency log's stamp in each certificate; a log like Rekor, v2 or v1,
over a Merkle tree of RFC 6962; OpenSSL's time-stamping authority. Every part can be asked for a wrong one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from authority import Authority
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

ADA, ISSUER = "ada@example.org", "https://issuer.example"
SCT_LIST = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
CRITICAL_USAGE = dict.fromkeys(
    "content_commitment key_encipherment data_encipherment key_agreement crl_sign encipher_only decipher_only".split(),
    False,
)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def spki(key: Any) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


# RFC 6962, section 2.1, in its own recursive words


def tree_hash(leaves: list[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    k = _split(len(leaves))
    return hashlib.sha256(b"\1" + tree_hash(leaves[:k]) + tree_hash(leaves[k:])).digest()


def audit_path(m: int, leaves: list[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    k = _split(len(leaves))
    if m < k:
        return [*audit_path(m, leaves[:k]), tree_hash(leaves[k:])]
    return [*audit_path(m - k, leaves[k:]), tree_hash(leaves[:k])]


def _split(n: int) -> int:
    return 1 << (n - 1).bit_length() - 1


class LocalLog:
    """Stand for one instance: its certificates, its log and, while it runs, its address."""

    def __init__(self, folder: Path, authority: Authority, origin: str = "log.example") -> None:
        self.authority, self.origin, self.url = authority, origin, "http://127.0.0.1:9"
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ca_key = ec.generate_private_key(ec.SECP256R1())
        self.ct_key = ec.generate_private_key(ec.SECP256R1())
        self.log_key = ed25519.Ed25519PrivateKey.generate()
        self.ca = self._root()
        self.leaves = [f"entry {number} of somebody else".encode() for number in range(5)]

    # Certificates

    def _root(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "local-fulcio")])
        now = datetime.now(UTC)
        public = self.ca_key.public_key()
        usage = x509.KeyUsage(digital_signature=False, key_cert_sign=True, **CRITICAL_USAGE)
        builder = x509.CertificateBuilder(name, name, public, x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1000)).not_valid_after(now + timedelta(days=1000))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        return builder.sign(self.ca_key, hashes.SHA256())

    def certificate(
        self,
        key: Any,
        *,
        person: str = ADA,
        issuer: str | None = ISSUER,
        start: timedelta = timedelta(minutes=-1),
        minutes: int = 10,
        signing: bool = True,
        ct_key: Any = None,
        in_ct_log: bool = True,
        at: datetime | None = None,
    ) -> x509.Certificate:
        """Return a short-lived certificate of a public key for a person whom an issuer confirmed."""
        begin = (at or datetime.now(UTC)) + start
        ca = self.ca_key.public_key()
        usage = x509.KeyUsage(digital_signature=True, key_cert_sign=False, **CRITICAL_USAGE)
        purpose = ExtendedKeyUsageOID.CODE_SIGNING if signing else ExtendedKeyUsageOID.EMAIL_PROTECTION
        builder = x509.CertificateBuilder(self.ca.subject, x509.Name([]), key, x509.random_serial_number())
        builder = builder.not_valid_before(begin).not_valid_after(begin + timedelta(minutes=minutes))
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.RFC822Name(person)]), critical=True)
        if issuer is not None:
            for number, value in ((1, issuer.encode()), (8, b"\x0c" + bytes([len(issuer)]) + issuer.encode())):
                oid = ObjectIdentifier(f"1.3.6.1.4.1.57264.1.{number}")
                builder = builder.add_extension(x509.UnrecognizedExtension(oid, value), critical=False)
        if in_ct_log:
            early = builder.sign(self.ca_key, hashes.SHA256()).tbs_certificate_bytes
            stamp = self._certificate_stamp(early, ct_key or self.ct_key)
            builder = builder.add_extension(x509.UnrecognizedExtension(SCT_LIST, stamp), critical=False)
        return builder.sign(self.ca_key, hashes.SHA256())

    def _certificate_stamp(self, tbs: bytes, key: Any) -> bytes:
        """Return the extension with one signed certificate timestamp (RFC 6962, section 3.3)."""
        when = struct.pack("!Q", int(datetime.now(UTC).timestamp() * 1000))
        issuer = hashlib.sha256(spki(self.ca_key.public_key())).digest()
        signed = b"\0\0" + when + b"\0\1" + issuer + struct.pack("!I", len(tbs))[1:] + tbs + b"\0\0"
        signature = key.sign(signed, ec.ECDSA(hashes.SHA256()))
        identity = hashlib.sha256(spki(key.public_key())).digest()
        sct = b"\0" + identity + when + b"\0\0" + b"\4\3" + struct.pack("!H", len(signature)) + signature
        listed = struct.pack("!HH", len(sct) + 2, len(sct)) + sct
        return b"\4" + (bytes([len(listed)]) if len(listed) < 128 else b"\x81" + bytes([len(listed)])) + listed

    # The log

    @property
    def key_id(self) -> bytes:
        return hashlib.sha256(spki(self.log_key.public_key())).digest()

    def checkpoint(self, size: int | None = None, key: Any = None, root: bytes | None = None) -> str:
        """Return the signed note of the tree of the first `size` leaves."""
        size = len(self.leaves) if size is None else size
        note = f"{self.origin}\n{size}\n{b64(root or tree_hash(self.leaves[:size]))}\n"
        signature = (key or self.log_key).sign(note.encode())
        return f"{note}\n\u2014 {self.origin} {b64(self.key_id[:4] + signature)}\n"

    def enter(self, body: bytes, *, version: int = 2, when: datetime | None = None) -> dict[str, Any]:
        """Append an entry and return it with its proof; version 1 has a time that the log signs."""
        self.leaves.append(body)
        index, size = len(self.leaves) - 1, len(self.leaves)
        entry: dict[str, Any] = {
            "logIndex": str(index),
            "logId": {"keyId": b64(self.key_id)},
            "kindVersion": {"kind": "hashedrekord", "version": f"0.0.{version}"},
            "inclusionProof": {
                "logIndex": str(index),
                "rootHash": b64(tree_hash(self.leaves)),
                "treeSize": str(size),
                "hashes": [b64(one) for one in audit_path(index, self.leaves)],
                "checkpoint": {"envelope": self.checkpoint()},
            },
            "canonicalizedBody": b64(body),
        }
        if version == 1:
            seconds = int((when or datetime.now(UTC)).timestamp())
            claim = {"body": b64(body), "integratedTime": seconds, "logID": self.key_id.hex(), "logIndex": index}
            text = json.dumps(claim, separators=(",", ":"), sort_keys=True).encode()
            entry["integratedTime"] = str(seconds)
            entry["inclusionPromise"] = {"signedEntryTimestamp": b64(self.log_key.sign(text))}
        return entry

    def body(self, digest: str, signature: bytes, certificate: x509.Certificate, version: int = 2) -> bytes:
        """Return the canonical body of an entry."""
        if version == 1:
            public = {"content": b64(certificate.public_bytes(Encoding.PEM))}
            spec: dict[str, Any] = {
                "data": {"hash": {"algorithm": "sha256", "value": digest}},
                "signature": {"content": b64(signature), "publicKey": public},
            }
        else:
            raw = {"rawBytes": b64(certificate.public_bytes(Encoding.DER))}
            verifier = {"keyDetails": "PKIX_ECDSA_P256_SHA_256", "x509Certificate": raw}
            data = {"algorithm": "SHA2_256", "digest": b64(bytes.fromhex(digest))}
            signed = {"content": b64(signature), "verifier": verifier}
            spec = {"hashedRekordV002": {"data": data, "signature": signed}}
        value = {"apiVersion": f"0.0.{version}", "kind": "hashedrekord", "spec": spec}
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()

    def bundle(
        self,
        digest: str,
        *,
        version: int = 2,
        when: datetime | None = None,
        authority: Authority | None = None,
        stamped: bytes | None = None,
        key: Any = None,
        **about: Any,
    ) -> dict[str, Any]:
        """Return the bundle of a digest; `about` goes to its certificate. when: of the entry, in version 1."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        certificate = about.pop("certificate", None) or self.certificate(key.public_key(), at=when, **about)
        signature = key.sign(bytes.fromhex(digest), ec.ECDSA(Prehashed(hashes.SHA256())))
        entry = self.enter(self.body(digest, signature, certificate, version), version=version, when=when)
        material: dict[str, Any] = {
            "certificate": {"rawBytes": b64(certificate.public_bytes(Encoding.DER))},
            "tlogEntries": [entry],
            "timestampVerificationData": {"rfc3161Timestamps": []},
        }
        if version == 2:
            token = self.stamp(signature if stamped is None else stamped, authority)
            material["timestampVerificationData"]["rfc3161Timestamps"] = [{"signedTimestamp": b64(token)}]
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": material,
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": b64(bytes.fromhex(digest))},
                "signature": b64(signature),
            },
        }

    def stamp(self, message: bytes, authority: Authority | None = None) -> bytes:
        """Return a time token over a message."""
        from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

        builder = TimestampRequestBuilder().data(message).hash_algorithm(HashAlgorithm.SHA256)
        question = builder.nonce(nonce=True).cert_request(cert_request=True).build()
        return (authority or self.authority).answer(question.as_bytes())

    # What an auditor and an author are given

    def trusted_root(self, **changes: Any) -> dict[str, Any]:
        """Return the instance's trusted root."""
        always = {"start": "2020-01-01T00:00:00Z"}

        def key(public: Any, details: str) -> dict[str, Any]:
            return {
                "baseUrl": self.url,
                "hashAlgorithm": "SHA2_256",
                "publicKey": {"rawBytes": b64(spki(public)), "keyDetails": details, "validFor": always},
                "logId": {"keyId": b64(hashlib.sha256(spki(public)).digest())},
            }

        def chain(*certificates: bytes) -> dict[str, Any]:
            return {
                "subject": {"organization": "example", "commonName": "local"},
                "uri": self.url,
                "certChain": {"certificates": [{"rawBytes": b64(one)} for one in certificates]},
                "validFor": always,
            }

        folder = self.authority.folder
        stampers = [x509.load_pem_x509_certificate((folder / name).read_bytes()) for name in ("tsa.pem", "root.pem")]
        value = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [key(self.log_key.public_key(), "PKIX_ED25519")],
            "certificateAuthorities": [chain(self.ca.public_bytes(Encoding.DER))],
            "ctlogs": [key(self.ct_key.public_key(), "PKIX_ECDSA_P256_SHA_256")],
            "timestampAuthorities": [chain(*(one.public_bytes(Encoding.DER) for one in stampers))],
        }
        return {**value, **changes}

    @property
    def roots(self) -> Path:
        """Return a file with the trusted root."""
        path = self.folder / "roots.json"
        path.write_text(json.dumps(self.trusted_root()))
        return path

    @property
    def config(self) -> Path:
        """Return a file with the client trust configuration."""

        def service(url: str, version: int) -> dict[str, Any]:
            valid = {"start": "2020-01-01T00:00:00Z"}
            return {"url": url, "majorApiVersion": version, "validFor": valid, "operator": "local"}

        signing = {
            "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
            "caUrls": [service(self.url, 1)],
            "oidcUrls": [service(self.url, 1)],
            "rekorTlogUrls": [service(self.url, 2)],
            "tsaUrls": [service(self.authority.url, 1)],
            "rekorTlogConfig": {"selector": "ANY"},
            "tsaConfig": {"selector": "ANY"},
        }
        path = self.folder / "config.json"
        kind = "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json"
        value = {"mediaType": kind, "trustedRoot": self.trusted_root(), "signingConfig": signing}
        path.write_text(json.dumps(value))
        return path

    def token(self, person: str = ADA) -> str:
        """Return an identity token, as an issuer gives one."""
        import jwt

        now = int(datetime.now(UTC).timestamp())
        claims = {"iss": ISSUER, "sub": person, "aud": "sigstore", "iat": now, "nbf": now, "exp": now + 600}
        return jwt.encode(claims, "a secret of the issuer, never checked here", algorithm="HS256")

    # HTTP

    def answer(self, path: str, question: dict[str, Any], bearer: str) -> dict[str, Any]:
        """Return the answer to a request, as Fulcio and Rekor v2 give it."""
        if path == "/api/v2/signingCert":
            import jwt

            request = x509.load_pem_x509_csr(base64.b64decode(question["certificateSigningRequest"]))
            claims = jwt.decode(bearer, options={"verify_signature": False})
            leaf = self.certificate(request.public_key(), person=claims["sub"], issuer=claims["iss"])
            chain = [one.public_bytes(Encoding.PEM).decode() for one in (leaf, self.ca)]
            return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}
        assert path == "/api/v2/log/entries", path
        asked = question["hashedRekordRequestV002"]
        certificate = base64.b64decode(asked["signature"]["verifier"]["x509Certificate"]["rawBytes"])
        digest = base64.b64decode(asked["digest"]).hex()
        signature = base64.b64decode(asked["signature"]["content"])
        return self.enter(self.body(digest, signature, x509.load_der_x509_certificate(certificate)))

    def __enter__(self) -> LocalLog:
        log = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                bearer = (self.headers["Authorization"] or "").removeprefix("Bearer ")
                data = json.dumps(log.answer(self.path, question, bearer)).encode()
                self.send_response(201)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
