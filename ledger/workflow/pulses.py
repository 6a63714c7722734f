"""Takes the pulse that draws from a domain: a round of drand from its file or address, or an auditor's text."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path as FilePath

from ledger.analysis.draws import commitment_to
from ledger.canonical import parse_json, record_errors
from ledger.errors import InputError, MachineError
from ledger.evidence.beacon import CHAIN, check_signature
from ledger.record_files import read_bytes
from ledger.records import PULSE_SCHEMA, Digest, Domain, Pulse

MAX_PULSE_BYTES = 8192
_PATIENCE_S = 20


def pulses_of(domains: Iterable[Domain], source: str | None, secret: str | None) -> Iterator[Pulse]:
    """Yield the pulse of each domain; one that several name is fetched and verified once. Raises: as `pulse_of`."""
    found: dict[tuple[int | None, Digest | None], Pulse] = {}
    for domain in domains:
        named = (domain.beacon.round if domain.beacon else None, domain.auditor_sha256)
        if named not in found:
            found[named] = pulse_of(domain, source, secret)
        yield found[named]


def pulse_of(domain: Domain, source: str | None, secret: str | None) -> Pulse:
    """Return the pulse that a domain names, its signature verified. source: file or URL of the round; None: drand's.

    Raises: InputError, EvidenceRefused for a signature that is not quicknet's, MachineError.
    """
    if domain.beacon is None:
        if secret is None or source is not None:
            raise InputError("this domain is drawn by an auditor's secret; expected --secret TEXT, without --pulse")
        pulse = Pulse(schema=PULSE_SCHEMA, round=None, signature=None, secret=secret.strip())
        if commitment_to(secret.strip()) != domain.auditor_sha256:
            raise InputError("--secret: its digest is not the one that the domain names; expected the auditor's text")
        return pulse
    if secret is not None:
        raise InputError("this domain is drawn by a round of drand; expected --pulse FILE or URL, without --secret")
    wanted = domain.beacon.round
    where = source or f"https://api.drand.sh/{CHAIN}/public/{wanted}"
    value = parse_json(_fetched(where) if "://" in where else read_bytes(FilePath(where)), what=where)
    fields = value if isinstance(value, dict) else {}
    if fields.get("round") != wanted:
        raise InputError(f"{where}: is round {fields.get('round')}; expected {wanted}, which the domain names")
    with record_errors(where):
        pulse = Pulse(schema=PULSE_SCHEMA, round=wanted, signature=fields.get("signature"), secret=None)
    assert pulse.signature is not None
    check_signature(wanted, pulse.signature)
    return pulse


def _fetched(url: str) -> bytes:
    """Return what lies at a web address. Raises: InputError, MachineError."""
    if not url.startswith(("https://", "http://")):
        raise InputError(f"{url}: no address of the web; expected https://… or a file")
    try:
        with urllib.request.urlopen(url, timeout=_PATIENCE_S) as answer:
            data: bytes = answer.read(MAX_PULSE_BYTES + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise MachineError(f"{url}: {error}; expected a round of drand: give it as a file, --pulse FILE") from error
    if len(data) > MAX_PULSE_BYTES:
        raise InputError(f"{url}: more than {MAX_PULSE_BYTES} bytes; expected a round of drand")
    return data
