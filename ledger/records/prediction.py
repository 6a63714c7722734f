"""Defines a seal: forecasts of cells, and everything a forecast depends on.

Version 2 is version 1 with more fields. A seal, a forecast or a case of version 2 can be read wherever one of version 1
can; the classes whose names end in V2 hold what it adds. docs/format.md describes both.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from ledger.records.base import (
    IN_KEY_ORDER,
    CellKey,
    Count,
    Digest,
    Dtype,
    Line,
    Moment,
    Name,
    Positive,
    Regime,
    RegimeRule,
    ShapeKey,
    Sight,
    Stored,
    Text,
)
from ledger.records.case import Case, CaseV2, Protocol, Roof, RoofV2, Subject, Tool, Work

SEAL_SCHEMA: Literal["ledger/seal/1"] = "ledger/seal/1"
SEAL_SCHEMA_V2: Literal["ledger/seal/2"] = "ledger/seal/2"


class Forecast(Stored):
    """Hold one cell of a prediction: what binds it and how near its roof it will come.

    Units: `percent_milli`, `low_milli`, `high_milli` in thousandths of a percent of the roof; probabilities in
    millionths that sum to one million.
    """

    cell: CellKey
    operation: Line
    case: Case
    work: Work
    roof: Roof
    protocol: Protocol
    kernel_sha256: Digest
    hardware_sha256: Digest
    regime: Regime
    percent_milli: Annotated[int, Field(gt=0, le=100_000)]
    low_milli: Annotated[int, Field(ge=0, le=100_000)] | None
    high_milli: Annotated[int, Field(ge=0, le=100_000)] | None
    probabilities_ppm: Annotated[dict[Regime, Annotated[int, Field(ge=0, le=1_000_000)]], IN_KEY_ORDER] | None
    why: Text

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if (self.low_milli is None) != (self.high_milli is None):
            raise ValueError("an interval needs both low and high; expected both or neither")
        low, high, percent = self.low_milli, self.high_milli, self.percent_milli
        if low is not None and high is not None and not low <= percent <= high:
            raise ValueError(
                f"interval {low / 1000:g} to {high / 1000:g} does not hold the percent {percent / 1000:g}; "
                "expected low <= percent <= high"
            )
        if self.probabilities_ppm is not None and sum(self.probabilities_ppm.values()) != 1_000_000:
            total = sum(self.probabilities_ppm.values()) / 1e6
            raise ValueError(f"regime probabilities sum to {total:g}; expected 1")
        return self


class Prediction(Stored):
    """Hold one seal: a forecast of one cell or a campaign of many, and everything it depends on.

    Kernels and profiles are named by SHA-256; their bytes are under predictions/objects/.
    """

    schema_: Literal["ledger/seal/1"] = Field(alias="schema")
    rule: Literal["regime/1"]
    tool: Tool
    forecaster: Line
    sequence: Positive
    previous: tuple[Digest, ...]
    campaign: Name | None
    metric: Literal["percent-of-roof/1"]
    repeats: Literal["first-run/1"]
    cells: Annotated[tuple[Forecast, ...], Field(min_length=1, max_length=10_000)]
    why: Text
    nonce: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    extensions: Annotated[dict[Line, Any], IN_KEY_ORDER]

    @model_validator(mode="after")
    def _distinct_cells(self) -> Self:
        seen: set[str] = set()
        for forecast in self.cells:
            if forecast.cell in seen:
                raise ValueError(f"cell {forecast.cell} is duplicated; expected each cell once in a seal")
            seen.add(forecast.cell)
        return self


# Version 2


class Draw(Stored):
    """Say that a shape was drawn from a declared domain: by which challenge, and as which draw from it."""

    domain_seal: Digest
    challenge: Digest
    index: Count


class ForecastV2(Forecast):
    """Hold one forecast with what its author declares.

    sight, known: how much had been measured before, and what, in words. pins: platform packages whose versions the
    measurement must match, name -> version specifier (PEP 440). draw: where the shape comes from, if it was drawn.
    """

    case: CaseV2
    roof: RoofV2
    sight: Sight | None
    known: Text
    pins: Annotated[dict[Line, Line], Field(max_length=64), IN_KEY_ORDER]
    draw: Draw | None


class Commitment(Stored):
    """Hold what is public of a hidden forecast, and the digest of all of it, its forecaster and a salt.

    The fields but sha256 are those of the forecast: what a measurement needs, and what had been timed before.
    """

    cell: CellKey
    operation: Line
    case: CaseV2
    work: Work
    roof: RoofV2
    protocol: Protocol
    kernel_sha256: Digest
    hardware_sha256: Digest
    sight: Sight | None
    known: Text
    pins: Annotated[dict[Line, Line], Field(max_length=64), IN_KEY_ORDER]
    sha256: Digest


CommitName = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]


class Revision(Stored):
    """Name one side of a ratio: a git commit and the sources of the kernel there."""

    commit: CommitName
    kernel_sha256: Digest


class Ratio(Stored):
    """Claim what time at `base` divided by time at `head` is for one case. Units: millionths.

    case: that of the head. sight, known, pins: as in a forecast.
    """

    cell: CellKey
    operation: Line
    case: CaseV2
    base: Revision
    head: Revision
    hardware_sha256: Digest
    protocol: Protocol
    ratio_ppm: Positive
    low_ppm: Positive
    high_ppm: Positive
    sight: Sight | None
    known: Text
    pins: Annotated[dict[Line, Line], Field(max_length=64), IN_KEY_ORDER]
    why: Text

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        low, ratio, high = (1e-6 * value for value in (self.low_ppm, self.ratio_ppm, self.high_ppm))
        if not low <= ratio <= high:
            raise ValueError(f"interval {low:g} to {high:g} does not hold the ratio {ratio:g}")
        return self


class SizeRange(Stored):
    """Bound one shape key: low to high, both included, in multiples of `multiple_of`."""

    low: Positive
    high: Positive
    multiple_of: Positive


class Beacon(Stored):
    """Name the round of drand's quicknet that will draw: the first one at or after sealed_at + delay_s."""

    sealed_at: Moment
    delay_s: Positive
    round: Positive


class Domain(Stored):
    """Declare the cells that a forecaster can be asked about: a beacon, or an auditor's secret, draws from them later.

    cells: how many are drawn. deadline: what is measured later counts as missed. auditor_sha256: digest of the secret.
    """

    kernel: Subject
    kernel_sha256: Digest
    hardware_sha256: Digest
    cells: Annotated[int, Field(ge=1, le=1000)]
    deadline: Moment
    beacon: Beacon | None
    auditor_sha256: Digest | None
    dtypes: Annotated[tuple[Dtype, ...], Field(min_length=1, max_length=16)]
    hardware: Name
    sizes: Annotated[dict[ShapeKey, SizeRange], Field(min_length=1, max_length=12), IN_KEY_ORDER]


class Participant(Stored):
    """Say what kind of forecaster sealed: a person, a model or a program, which version, and its code's digest."""

    kind: Literal["person", "model", "program"]
    version: Line | None
    sha256: Digest | None


class PredictionV2(Prediction):
    """Hold one seal of version 2: forecasts, hidden forecasts, forecasts of ratios, or a declared domain."""

    schema_: Literal["ledger/seal/2"] = Field(alias="schema")  # type: ignore[assignment]
    rule: RegimeRule  # type: ignore[assignment]
    participant: Participant | None
    cells: Annotated[tuple[ForecastV2, ...], Field(max_length=10_000)]
    commitments: Annotated[tuple[Commitment, ...], Field(max_length=10_000)]
    ratios: Annotated[tuple[Ratio, ...], Field(max_length=10_000)]
    domain: Domain | None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.cells or self.commitments or self.ratios or self.domain):
            raise ValueError("the seal is empty; expected cells, commitments, ratios or a domain")
        named = Counter([item.cell for item in self.cells])
        named.update(item.cell for item in self.commitments)
        named.update(item.cell for item in self.ratios)
        name, count = named.most_common(1)[0] if named else ("", 0)
        if count > 1:
            raise ValueError(f"cell {name} is duplicated; expected each cell once in a seal")
        return self
