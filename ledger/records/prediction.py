"""Defines a seal: forecasts of cells, the case each is of, and everything a forecast depends on.

Version 2 is version 1 with more places. A seal, a forecast or a case of version 2 can be read wherever one of version 1
can; what it has more stands in the classes whose names end in V2. docs/format.md describes both.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from ledger.records.base import (
    IN_KEY_ORDER,
    CeilingKind,
    CellKey,
    Count,
    Digest,
    Dtype,
    Integer,
    Large,
    Line,
    Name,
    Path,
    Positive,
    Regime,
    RegimeRule,
    ShapeKey,
    Sight,
    Stored,
    Text,
)

SEAL_SCHEMA: Literal["ledger/seal/1"] = "ledger/seal/1"
SEAL_SCHEMA_V2: Literal["ledger/seal/2"] = "ledger/seal/2"
Config = dict[Line, Integer | Line]
Subject = Annotated[
    str,
    StringConstraints(
        max_length=200, pattern=r"^([a-z][a-z0-9_]{0,63}|[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*)$"
    ),
]
"""A kernel's name, or a callable as module:name."""


class Work(Stored):
    """Count what a kernel must do: exact operations and compulsory DRAM traffic (each input once, each output once).

    Units: flops in operations (one multiply-add is two), bytes in bytes.
    """

    flops: Count
    bytes_read: Count
    bytes_written: Count

    @property
    def bytes(self) -> int:
        """Return compulsory traffic in bytes, both directions."""
        return self.bytes_read + self.bytes_written


class Roof(Stored):
    """Hold the two ceilings that a forecast is a percentage of, in SI base units."""

    ceilings: CeilingKind
    path: Path
    peak_flop_per_s: Positive
    bandwidth_bytes_per_s: Positive


class Case(Stored):
    """Name exactly what is run: the cell (kernel, shape, dtype, hardware) and how it is launched."""

    text_values: ClassVar[bool] = False
    """Whether configuration values may be text."""

    kernel: Name
    shape: Annotated[dict[ShapeKey, Positive], Field(min_length=1, max_length=12), IN_KEY_ORDER]
    dtype: Dtype
    hardware: Name
    implementation: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    config: Annotated[Config, IN_KEY_ORDER]
    threads: Positive | None

    @model_validator(mode="after")
    def _config_fits_version(self) -> Self:
        if not self.text_values and any(isinstance(value, str) for value in self.config.values()):
            raise ValueError("a configuration value is text; expected integers in a record of version 1")
        return self

    @property
    def cell(self) -> tuple[str, tuple[tuple[str, int], ...], str, str]:
        """Return what makes two cases the same cell: kernel, shape, dtype and hardware."""
        return (self.kernel, tuple(sorted(self.shape.items())), self.dtype, self.hardware)


class Protocol(Stored):
    """Name a timing protocol and its parameters; docs/format.md defines each name."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,31}/[0-9]{1,3}$")]
    parameters: Annotated[dict[Line, Integer], IN_KEY_ORDER]


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


class Tool(Stored):
    """Name the program that wrote a record."""

    name: Line
    version: Line


class Prediction(Stored):
    """Hold one seal: a forecast of one cell or a campaign of many, and everything it depends on.

    Kernels and profiles are named by SHA-256; their bytes lie under predictions/objects/.
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


class RoofV2(Roof):
    """Hold the two ceilings of a forecast; a peak may be 2**53 FLOP/s and more."""

    peak_flop_per_s: Large


class Argument(Stored):
    """Describe one argument of a callable: a tensor by dtype and dimensions, or a scalar by its value.

    dims: formulas over the shape's keys, such as 2*H; None for a scalar. below: exclusive bound of integer elements.
    value: a scalar as decimal text.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
    dtype: Line
    dims: Annotated[tuple[Line, ...], Field(max_length=16)] | None
    below: Positive | None
    value: Line | None


class CaseV2(Case):
    """Name what is run: a kernel or a callable, whose arguments are described; configuration values may be text."""

    text_values: ClassVar[bool] = True

    kernel: Subject
    arguments: Annotated[tuple[Argument, ...], Field(max_length=64)] | None


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
    """Hold a forecast that is hidden until it is revealed: the SHA-256 of its bytes and a secret."""

    cell: CellKey
    case: CaseV2
    sha256: Digest


class Revision(Stored):
    """Name one side of a ratio: a git commit and the source of the kernel there."""

    commit: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")] | None
    kernel_sha256: Digest


class Ratio(Stored):
    """Forecast time at `base` divided by time at `head` for one case. Units: millionths."""

    cell: CellKey
    case: CaseV2
    base: Revision
    head: Revision
    ratio_ppm: Positive
    low_ppm: Positive | None
    high_ppm: Positive | None
    why: Text


class SizeRange(Stored):
    """Bound one shape key: low to high, both included, in multiples of `multiple_of`."""

    low: Positive
    high: Positive
    multiple_of: Positive


class Domain(Stored):
    """Declare the cells that a forecaster can be asked about: an auditor or a beacon draws from them later."""

    kernel: Subject
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
