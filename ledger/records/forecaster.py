"""Defines what a seal of a named forecaster holds beside its forecasts: its code, its answers, what they rest on.

They are objects of the ledger, named by the SHA-256 of their canonical bytes. docs/format.md describes them.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from ledger.records.base import IN_KEY_ORDER, CellKey, Digest, Line, Positive, Stored, Text
from ledger.records.source import Distribution

FORECASTER = "forecaster/1"
"""The extension of a seal that names the answers of a forecaster."""


class CodeFile(Stored):
    """Name one file of a forecaster by its path and its bytes, line ends normalised to LF."""

    path: Annotated[str, StringConstraints(min_length=1, max_length=400, pattern=r"^[^\x00-\x1f\x7f]*$")]
    sha256: Digest


class ForecasterCode(Stored):
    """List what makes a forecaster's answers.

    command: the words of the program that was asked; empty for code of this package. files: sources, each an object
    beside. distributions: installed packages that it asks. model: digest of fitted parameters, an object beside.
    """

    schema_: Literal["ledger/forecaster-code/1"] = Field(alias="schema")
    name: Line
    version: Line
    command: Annotated[tuple[Text, ...], Field(max_length=100)]
    files: Annotated[tuple[CodeFile, ...], Field(max_length=500)]
    distributions: Annotated[tuple[Distribution, ...], Field(max_length=50)]
    model: Digest | None


def _shortest(text: str) -> str:
    """Return the text of a number that is written in the one way that Python writes it."""
    if not math.isfinite(float(text)) or repr(float(text)) != text:
        raise ValueError("expected the shortest decimal text of a finite number, such as 1.5e-06")
    return text


class StoredTerm(Stored):
    """Hold one number that explains an answer.

    value: the shortest decimal text that reads back as the same float64. unit: a base unit, such as s, B/s or FLOP/s;
    1 for a count.
    """

    name: Line
    value: Annotated[str, StringConstraints(max_length=30), AfterValidator(_shortest)]
    unit: Line


class StoredAnswer(Stored):
    """Hold what a forecaster says of one cell beside the sealed forecast. transcript: an object beside."""

    time_ps: Positive
    terms: Annotated[tuple[StoredTerm, ...], Field(max_length=200)]
    assumes: Annotated[tuple[Text, ...], Field(max_length=50)]
    transcript: Digest | None


class MeasurementSet(Stored):
    """Name the measurements that answers rest on, all of them in the history of one commit."""

    schema_: Literal["ledger/measurement-set/1"] = Field(alias="schema")
    commit: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
    measurements: Annotated[tuple[Digest, ...], Field(max_length=100_000)]


class ForecasterAnswers(Stored):
    """Hold a forecaster's answers of one seal.

    uncertainty: how intervals and probabilities were made. measurements: digest of the MeasurementSet that fit,
    intervals and probabilities rest on; None where nothing measured went in. left_out: cells without an answer.
    """

    schema_: Literal["ledger/forecaster-answers/1"] = Field(alias="schema")
    forecaster: Line
    version: Line
    cells: Annotated[dict[CellKey, StoredAnswer], Field(min_length=1, max_length=10_000), IN_KEY_ORDER]
    left_out: Annotated[dict[CellKey, Text], Field(max_length=10_000), IN_KEY_ORDER]
    uncertainty: Text
    measurements: Digest | None
