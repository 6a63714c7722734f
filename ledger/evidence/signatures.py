"""Verifies git's SSH signatures of commits against a file of allowed signers that the auditor gives.

ssh-keygen does the arithmetic; git's own verification is not used, because it would judge a key's validity at the
commit's date, which is self-declared. Here it is judged at the time of the audit: no token covers the signature.
A signature counts only when the signed message names the record's own SHA-256 id, so that git's SHA-1 carries nothing.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path as FilePath

from ledger.errors import EvidenceRefused, InputError, MachineError
from ledger.git.reader import quiet_environment
from ledger.record_files import read_bytes

_SIGNER = re.compile(rb"^[^#\s].*\s(?:ssh|ecdsa|sk)-[\w@.-]+\s+[A-Za-z0-9+/]{16,}", re.MULTILINE)
_HEADERS = (b"gpgsig ", b"gpgsig-sha256 ")


def split_commit(data: bytes) -> tuple[bytes, bytes | None]:
    """Return what a commit's signature covers, and the signature, None without one."""
    head, separator, message = data.partition(b"\n\n")
    kept: list[bytes] = []
    signature: list[bytes] = []
    inside = False
    for line in head.split(b"\n"):
        if line.startswith(_HEADERS):
            inside = True
            signature.append(line.split(b" ", 1)[1])
        elif inside and line.startswith(b" "):
            signature.append(line[1:])
        else:
            inside = False
            kept.append(line)
    payload = b"\n".join(kept) + separator + message
    return payload, b"\n".join(signature) + b"\n" if signature else None


def check_allowed_signers(path: FilePath) -> None:
    """Raise InputError where a file names no signer, so that a wrong file is no audit in which nobody signed."""
    if not path.is_file():
        raise InputError(f"{path}: not there; expected a file of allowed signers")
    if not _SIGNER.search(read_bytes(path)):
        raise InputError(f"{path}: names no signer; expected lines of PRINCIPAL KEYTYPE KEY, as in ssh-keygen(1)")


def signer(data: bytes, identity: str, allowed: FilePath) -> str | None:
    """Return which allowed signer signed a commit that names a record; None when it is unsigned or not by one of them.

    Raises: EvidenceRefused for a signature that does not fit the commit; MachineError without ssh-keygen.
    """
    payload, signature = split_commit(data)
    if signature is None or not signature.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        return None
    with tempfile.TemporaryDirectory(prefix="ledger-signature-") as folder:
        file = FilePath(folder) / "signature"
        file.write_bytes(signature)
        check = _keygen(["check-novalidate", "-n", "git", "-s", str(file)], payload)
        if check is None:
            raise EvidenceRefused("its commit's signature does not fit the commit")
        moment = datetime.now(UTC).strftime("%Y%m%d%H%M%SZ")
        found = _keygen(["find-principals", "-s", str(file), "-f", str(allowed), f"-Overify-time={moment}"], b"")
        names = f"Id: {identity}".encode() in payload.partition(b"\n\n")[2]
        for principal in (found or "").splitlines() if names else ():
            options = ["-n", "git", "-s", str(file), "-f", str(allowed), "-I", principal, f"-Overify-time={moment}"]
            if _keygen(["verify", *options], payload) is not None:
                return principal
    return None


def _keygen(arguments: list[str], data: bytes) -> str | None:
    """Return what `ssh-keygen -Y` prints, None when it says no. Raises: MachineError when it cannot be run."""
    try:
        done = subprocess.run(
            ["ssh-keygen", "-Y", *arguments], input=data, capture_output=True, env=quiet_environment(), check=False
        )
    except OSError as error:
        raise MachineError(f"ssh-keygen cannot be run ({error.strerror}); expected OpenSSH 8.9 or newer") from error
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
