"""Defines the withdrawal of a seal."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from ledger.records.base import IN_KEY_ORDER, CellKey, Digest, Line, Stored
from ledger.records.case import Tool

VOID_SCHEMA: Literal["ledger/void/1"] = "ledger/void/1"


class Void(Stored):
    """Withdraw a seal in the open; it stays visible and counts as missing."""

    schema_: Literal["ledger/void/1"] = Field(alias="schema")
    tool: Tool
    seal: Digest
    cell: CellKey | None
    why: Annotated[str, StringConstraints(min_length=1, max_length=8000)]
    extensions: Annotated[dict[Line, Any], IN_KEY_ORDER]
