"""Signs records with sigstore and enters them into a public log; keeps the bundles beside the records.

What is signed is the record's id. The network is used only here, only when asked. Each bundle gets an RFC 3161 token,
since it holds no time of its own that covers the entry: docs/security.md, "Public log".
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ledger.canonical import decode_any, record_id
from ledger.errors import InputError, LedgerError, MachineError
from ledger.evidence.log_bundle import parse_bundle, require_sigstore
from ledger.evidence.timestamps import authority_name, stamp
from ledger.git.commit import Repository
from ledger.record_files import read_bytes

T = TypeVar("T")

TIMEOUT_S = 60.0
"""For the log's roots, and for each record: certificate, entry and time stamp."""
TOKEN_VARIABLE = "SIGSTORE_IDENTITY_TOKEN"
MAX_CONFIG_BYTES = 1024 * 1024


class PublicLog:
    """Stand for a sigstore instance: where certificates, log entries and time stamps come from."""

    def __init__(self, config: FilePath | None) -> None:
        """Read a client trust configuration of sigstore (JSON), or fetch that of the public instance.

        Raises: InputError for a file that is none; MachineError without sigstore or the network.
        """
        require_sigstore()
        from sigstore.models import ClientTrustConfig

        if config is None:
            self._config = _within(ClientTrustConfig.production, what="sigstore's public log")
        else:
            try:
                self._config = ClientTrustConfig.from_json(read_bytes(config, limit=MAX_CONFIG_BYTES).decode())
                self._config.signing_config.get_tlogs()
            except InputError:
                raise
            except Exception as error:
                raise InputError(f"{config}: {str(error)[:200]}; expected a client trust configuration") from error
        signing = self._config.signing_config
        url = signing.get_tlogs()[0].url
        self.url = url.split("/api/", 1)[0]
        self.name = re.sub(r"[^a-z0-9]+", "-", (urlsplit(url).hostname or "log").lower()).strip("-")[:40]
        authorities = signing.get_tsas()
        self.tsa: str | None = authorities[0].url if authorities else None
        self._signer: Any = None

    def sign(self, identity: str) -> bytes:
        """Return the bundle of a record's id, checked. Raises: MachineError when the log does not answer."""
        from sigstore.hashes import Hashed
        from sigstore_models.common.v1 import HashAlgorithm

        record = Hashed(algorithm=HashAlgorithm.SHA2_256, digest=bytes.fromhex(identity))
        if self._signer is None:
            token = _identity_token(self._config.signing_config)
            self._signer = _within(lambda: self._new_signer(token), what=f"public log {self.url}")
        bundle = _within(lambda: self._signer.sign_artifact(record), what=f"public log {self.url}")
        data: bytes = bundle.to_json().encode()
        try:
            parse_bundle(data, identity)
        except LedgerError as error:
            raise MachineError(f"public log {self.url}: its answer is no proof of this record: {error}") from error
        return data

    def _new_signer(self, token: Any) -> Any:
        from sigstore.sign import Signer, SigningContext

        return Signer(token, SigningContext.from_trust_config(self._config))


def _within(call: Callable[[], T], *, what: str) -> T:
    """Return what a call returns in TIMEOUT_S: sigstore itself waits for ever. Raises: MachineError."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        # Whatever the thread raises is raised again below.
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    if answers:
        return answers[0]
    reason = " ".join(f"{type(errors[0]).__name__} {errors[0]}".split())[:300] if errors else "no answer"
    if not errors:
        reason += f" within {TIMEOUT_S:.0f} s"
    raise MachineError(f"{what}: {reason}; expected an entry for a record") from (errors[0] if errors else None)


def _identity_token(signing: Any) -> Any:
    """Return the token that names who signs: of the environment, of a CI job, or from a browser on a terminal."""
    from sigstore.oidc import IdentityToken, Issuer, detect_credential

    try:
        raw = os.environ.get(TOKEN_VARIABLE) or detect_credential()
        if raw:
            return IdentityToken(raw)
        if not sys.stdin.isatty():
            raise MachineError(
                f"no identity to sign with; expected a token in {TOKEN_VARIABLE}, a CI job that may have one "
                "(id-token: write), or a terminal to log in from"
            )
        return Issuer(signing.get_oidc_url()).identity_token()
    except MachineError:
        raise
    except Exception as error:
        raise MachineError(f"no identity to sign with ({str(error)[:200]}); expected a valid token") from error


def add_bundles(
    repository: Repository, paths: Sequence[str], log: PublicLog, tsa: str | None, say: Callable[[str], None]
) -> list[str]:
    """Commit the log bundles, and the time tokens over them, that records still lack; return the new paths.

    What was logged before a failure is committed. Raises: MachineError when the log gives no entry.
    """
    head = repository.head()
    files: dict[str, bytes] = {}
    try:
        for path in paths if head is not None else ():
            data = repository.show(str(head), path)
            identity = record_id(type(decode_any(data, what=path)), data)
            assert identity in path
            file = f"{path.removesuffix('.json')}.{log.name}.bundle"
            held = repository.is_committed(file)
            bundle = repository.show(str(head), file) if held else log.sign(identity)
            if not held:
                files[file] = bundle
            _add_token(repository, files, file, bundle, tsa or log.tsa, say)
    finally:
        if files:
            count = sum(1 for name in files if name.endswith(".bundle"))
            message = f"Log {count} record{'' if count == 1 else 's'} in {log.name}\n"
            repository.commit(lambda _parent: (files, message))
    return list(files)


def _add_token(
    repository: Repository,
    files: dict[str, bytes],
    file: str,
    bundle: bytes,
    tsa: str | None,
    say: Callable[[str], None],
) -> None:
    if tsa is None:
        say(f"{file}: no time token: the log names no authority; name one with --tsa")
        return
    token = f"{file}.{authority_name(tsa)}.tsr"
    if repository.is_committed(token):
        return
    try:
        files[token] = stamp(bundle, tsa)
    except MachineError as error:
        say(f"{file}: no time token: {error}; add it later with: ledger witness --log")
