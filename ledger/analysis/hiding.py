"""Defines how a forecast is hidden and opened: the digest of the forecast, its forecaster and a salt. Pure.

The digest is SHA-256 over `ledger/hidden/v1`, a zero byte and the RFC 8785 JSON of {"forecast", "forecaster", "salt"}.
The forecaster is hashed too, so that a digest copied into another's seal opens nothing there.
"""

from __future__ import annotations

import hashlib
from typing import Any

from ledger.canonical import canonical
from ledger.records import Commitment, Digest, ForecastV2, Opening

_DOMAIN = b"ledger/hidden/v1\0"
PUBLIC = tuple(name for name in Commitment.model_fields if name != "sha256")


def digest_of(opening: Opening, forecaster: str) -> Digest:
    """Return the digest that commits a forecaster to a forecast."""
    value = {**opening.model_dump(mode="json", by_alias=True), "forecaster": forecaster}
    return hashlib.sha256(_DOMAIN + canonical(value)).hexdigest()


def commitment_of(opening: Opening, forecaster: str) -> Commitment:
    """Return what is sealed of a hidden forecast."""
    return Commitment(**_public(opening.forecast), sha256=digest_of(opening, forecaster))


def contradiction(opening: Opening, commitment: Commitment, forecaster: str) -> str | None:
    """Return how an opening differs from what was sealed; None where it is that."""
    for name, value in _public(opening.forecast).items():
        if value != getattr(commitment, name):
            return f"its {name} is not the sealed one"
    if digest_of(opening, forecaster) != commitment.sha256:
        return "the digest of forecast, forecaster and salt is not the sealed one"
    return None


def _public(forecast: ForecastV2) -> dict[str, Any]:
    return {name: getattr(forecast, name) for name in PUBLIC}


def public_part(commitment: Commitment) -> ForecastV2:
    """Return a forecast that is true in what is public; regime and percent stand in and are never shown or scored."""
    public: dict[str, Any] = {name: getattr(commitment, name) for name in PUBLIC}
    return ForecastV2(
        **public,
        regime="latency-bound",
        percent_milli=1,
        low_milli=None,
        high_milli=None,
        probabilities_ppm=None,
        why="",
        draw=None,
    )
