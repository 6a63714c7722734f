"""Defines a measured ratio: two commits timed in turn on one device, for a claim that a seal holds."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ledger.records.base import IN_KEY_ORDER, CellKey, Count, Digest, Line, Moment, Positive, Stored, Text
from ledger.records.case import CaseV2, Config, Protocol, Tool
from ledger.records.measurement import Correctness, DeviceFactsV2, Samples
from ledger.records.prediction import CommitName

RATIO_SCHEMA: Literal["ledger/ratio/1"] = "ledger/ratio/1"
_Rounds = Annotated[tuple[Positive, ...], Field(max_length=20_000)]


class TimedSide(Stored):
    """Hold what one of the two commits did. Units: rounds_ps and median_ps in picoseconds a call.

    config: the launch configuration there. correctness: against the float64 reference of the base.
    """

    commit: CommitName
    kernel_sha256: Digest
    config: Annotated[Config, IN_KEY_ORDER]
    correctness: Correctness | None
    samples: Samples | None
    rounds_ps: _Rounds
    median_ps: Positive | None


class RatioMeasurement(Stored):
    """Hold all evidence of one settled claim. Units: ratio, its interval and the noise in millionths.

    again_ps: the rounds of the base timed once more, whose difference from the base is the noise. high_ppm: None where
    the rounds are too few to bound the ratio.
    """

    schema_: Literal["ledger/ratio/1"] = Field(alias="schema")
    tool: Tool
    seal: Digest
    cell: CellKey
    run: Count
    anchor: Digest | None
    case: CaseV2
    hardware_sha256: Digest
    protocol: Protocol
    device: DeviceFactsV2
    status: Literal["measured", "failed"]
    failure: Text | None
    failed_side: Literal["base", "head"] | None
    base: TimedSide
    head: TimedSide
    again_ps: _Rounds
    input_sets: Count
    bytes_per_set: Count
    ratio_ppm: Positive | None
    low_ppm: Count | None
    high_ppm: Positive | None
    noise_ppm: Count | None
    started_at: Moment
    device_ms: Count
    extensions: Annotated[dict[Line, Any], IN_KEY_ORDER]

    @model_validator(mode="after")
    def _status_fits(self) -> Self:
        sides = (self.base, self.head)
        if self.status == "failed":
            if self.failure is None or self.failed_side is None or self.ratio_ppm is not None:
                raise ValueError("a failed measurement has a failure, the side that failed, and no ratio")
        elif (
            self.failure is not None
            or any(one.correctness is None or one.samples is None or one.median_ps is None for one in sides)
            or None in (self.ratio_ppm, self.low_ppm, self.noise_ppm)
        ):
            raise ValueError("a finished measurement has samples, times, a ratio and its noise, and no failure")
        if self.status == "measured" and any(one.correctness and not one.correctness.passed for one in sides):
            raise ValueError("a kernel that is not correct is recorded as failed, never timed")
        return self
