"""Defines the campaign file: a list of forecasts, or grids of them, that become one seal. Pure.

docs/campaigns.md describes the file for people; its examples run in tests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, model_validator

from ledger.canonical import record_errors, validate
from ledger.errors import RecordError
from ledger.records import (
    CeilingKind,
    Config,
    Count,
    Dtype,
    Line,
    Name,
    Positive,
    Record,
    Regime,
    ShapeKey,
    Sight,
    Text,
)

MAX_CELLS = 10_000

T = TypeVar("T")

Percent = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
Bound = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Dtypes = Dtype | Annotated[tuple[Dtype, ...], Field(min_length=1)]
Sizes = Positive | Annotated[tuple[Positive, ...], Field(min_length=1)]
Shapes = Annotated[dict[ShapeKey, Sizes], Field(min_length=1, max_length=12)]


class Guess(Record):
    """Hold what a person says of a cell. Units: percent of the roof; probabilities from 0 to 1."""

    regime: Regime
    pct: Percent
    low: Bound | None = None
    high: Bound | None = None
    prob: dict[Regime, Probability] | None = None


class Seen(Record):
    """Hold what had been timed before, as its author declares: sight None declares nothing."""

    sight: Sight | None = None
    known: Text = ""


class Called(Record):
    """Hold what a forecast of a callable says beside its name: a kernel has none of it.

    args: as --args. run: the pass. tolerance: a share of each result's root mean square. flops, bytes: of one call,
    where they cannot be counted.
    """

    args: Text | None = None
    run: Literal["forward", "backward", "both"] | None = Field(default=None, alias="pass")
    reference: Line | None = None
    tolerance: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    flops: Count | None = None
    bytes: Positive | None = None

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", populate_by_name=True)

    @property
    def called(self) -> dict[str, Any]:
        """Return what is given of it, by the names of the fields."""
        return {name: value for name in Called.model_fields if (value := getattr(self, name)) is not None}


class CellRequest(Seen, Called):
    """Hold one cell to be forecast; of a callable dtype None is that of its first floating tensor."""

    kernel: Line
    hardware: Line
    dtype: Dtype | None
    shape: dict[ShapeKey, Positive]
    why: Text = ""
    threads: Positive | None = None
    config: Config | None = None

    @model_validator(mode="after")
    def _fits_its_subject(self) -> Self:
        if ":" in self.kernel:
            return self
        if self.called:
            raise ValueError(
                f"{min(self.called)} is given for kernel {self.kernel}; expected it for a callable, module:name"
            )
        if self.dtype is None or not self.shape:
            raise ValueError(f"dtype or shape is not given for kernel {self.kernel}; expected both")
        return self

    @model_validator(mode="after")
    def _says_what_was_known(self) -> Self:
        if self.sight in ("near", "informed") and not self.known.strip():
            raise ValueError(f"sight {self.sight} without known; expected a sentence on what had been timed")
        if self.sight is None and self.known.strip():
            raise ValueError("known without sight; expected sight: blind, near or informed")
        return self


class Request(Guess, CellRequest):
    """Hold one forecast as a person writes it."""


class CellEntry(Seen, Called):
    """Hold one entry of a campaign file; lists in `dtype` and `shape` expand to every combination."""

    kernel: Line | None = None
    hardware: Line | None = None
    dtype: Dtypes | None = None
    shape: Shapes | None = None
    why: Text = ""
    threads: Positive | None = None


class CampaignEntry(Guess, CellEntry):
    """Hold one entry with what a person forecasts of it."""


class OpenEntry(CellEntry):
    """Hold one entry that forecasters answer; a person's own forecast may be there, and is not used."""

    regime: Regime | None = None
    pct: Percent | None = None
    low: Bound | None = None
    high: Bound | None = None
    prob: dict[Regime, Probability] | None = None


class Campaign(Seen):
    """Hold a campaign file's name and its defaults."""

    campaign: Name
    why: Text = ""
    hardware: Line | None = None
    kernel: Line | None = None
    dtype: Dtypes | None = None
    ceilings: CeilingKind | None = None
    pins: tuple[Line, ...] = ()


class CampaignFile(Campaign):
    """Hold a campaign file whose entries a person forecasts."""

    cells: Annotated[tuple[CampaignEntry, ...], Field(min_length=1, max_length=MAX_CELLS)]


class OpenCampaign(Campaign):
    """Hold a campaign file whose entries forecasters answer."""

    cells: Annotated[tuple[OpenEntry, ...], Field(min_length=1, max_length=MAX_CELLS)]


def milli(percent: float) -> int:
    """Return a percent in thousandths, rounding the decimal number that was written, half to even."""
    return int((Decimal(str(percent)) * 1000).to_integral_value())


def millionths(probabilities: dict[Regime, float]) -> dict[Regime, int]:
    """Return probabilities in millionths."""
    return {regime: int((Decimal(str(p)) * 1_000_000).to_integral_value()) for regime, p in probabilities.items()}


def _size(campaign: Campaign, entry: CellEntry) -> int:
    dtypes = entry.dtype or campaign.dtype
    return math.prod(len(_listed(sizes)) for sizes in (entry.shape or {}).values()) * (
        len(_listed(dtypes)) if dtypes else 1
    )


def _listed(value: T | tuple[T, ...]) -> tuple[T, ...]:
    return value if isinstance(value, tuple) else (value,)


def parse_campaign(value: Any, *, what: str) -> tuple[CampaignFile, tuple[Request, ...]]:
    """Return a campaign file and the forecasts it expands to, in its order. Raises: RecordError."""
    campaign = validate(CampaignFile, value, what=what)
    _check_size(campaign, campaign.cells, what)
    requests = []
    for number, entry in enumerate(campaign.cells, start=1):
        guess = {name: getattr(entry, name) for name in Guess.model_fields}
        for cell in _expand(campaign, entry, number, what):
            with record_errors(f"{what}: cell {number}"):
                requests.append(Request(**cell, **guess))
    return campaign, tuple(requests)


def parse_open_campaign(value: Any, *, what: str) -> tuple[OpenCampaign, tuple[CellRequest, ...]]:
    """Return a campaign file and its cells for forecasters to answer, in its order. Raises: RecordError."""
    campaign = validate(OpenCampaign, value, what=what)
    _check_size(campaign, campaign.cells, what)
    requests = []
    for number, entry in enumerate(campaign.cells, start=1):
        for cell in _expand(campaign, entry, number, what):
            with record_errors(f"{what}: cell {number}"):
                requests.append(CellRequest(**cell))
    return campaign, tuple(requests)


def _check_size(campaign: Campaign, entries: Iterable[CellEntry], what: str) -> None:
    size = sum(_size(campaign, entry) for entry in entries)
    if size > MAX_CELLS:
        raise RecordError(f"{what}: its grids expand to {size} cells; expected at most {MAX_CELLS}")


def _expand(campaign: Campaign, entry: CellEntry, number: int, what: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of a cell for every combination of the dtypes and sizes of an entry."""
    name = f"{what}: cell {number}"
    kernel = _given(entry.kernel or campaign.kernel, f"{name}: no kernel")
    hardware = _given(entry.hardware or campaign.hardware, f"{name}: no hardware")
    dtypes, shape = entry.dtype or campaign.dtype, entry.shape or {}
    if ":" not in kernel:
        dtypes, shape = _given(dtypes, f"{name}: no dtype"), _given(entry.shape, f"{name}: no shape")
    for dtype in dtypes if isinstance(dtypes, tuple) else (dtypes,):
        for sizes in itertools.product(*map(_listed, shape.values())):
            yield {
                "kernel": kernel,
                "hardware": hardware,
                "dtype": dtype,
                "shape": dict(zip(shape, sizes, strict=True)),
                "why": entry.why,
                "sight": entry.sight or campaign.sight,
                "known": entry.known or campaign.known,
                "threads": entry.threads,
                **entry.called,
            }


def _given(value: T | None, problem: str) -> T:
    if value is None:
        raise RecordError(f"{problem}; expected one in the entry or at the top")
    return value
