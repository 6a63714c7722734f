"""Defines the record that reveals hidden forecasts of a seal."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from ledger.records.base import IN_KEY_ORDER, Digest, Line, Stored
from ledger.records.case import Tool
from ledger.records.prediction import ForecastV2

REVEAL_SCHEMA: Literal["ledger/reveal/1"] = "ledger/reveal/1"
Salt = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Opening(Stored):
    """Hold a hidden forecast with the salt that was hashed together with it."""

    forecast: ForecastV2
    salt: Salt


class Reveal(Stored):
    """Reveal hidden forecasts of one seal."""

    schema_: Literal["ledger/reveal/1"] = Field(alias="schema")
    tool: Tool
    seal: Digest
    openings: Annotated[tuple[Opening, ...], Field(min_length=1, max_length=10_000)]
    extensions: Annotated[dict[Line, Any], IN_KEY_ORDER]
