"""Defines what shapes are drawn with: a round of the public beacon drand, or an auditor's secret."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from ledger.records.base import Positive, Stored

PULSE_SCHEMA: Literal["ledger/pulse/1"] = "ledger/pulse/1"


class Pulse(Stored):
    """Hold a round of drand's quicknet with its signature, or a secret; its digest anchors the measurements."""

    schema_: Literal["ledger/pulse/1"] = Field(alias="schema")
    round: Positive | None
    signature: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{96}$")] | None
    secret: Annotated[str, StringConstraints(min_length=16, max_length=400)] | None

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        given = (self.round is not None, self.signature is not None, self.secret is not None)
        if given not in ((True, True, False), (False, False, True)):
            raise ValueError("a pulse is a round with its signature, or a secret; expected one of them")
        return self
