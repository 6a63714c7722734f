"""Defines a measurement: what ran, on what, whether it was right, how long it took. Version 2 as in prediction."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from ledger.records.base import (
    IN_KEY_ORDER,
    CellKey,
    Count,
    Digest,
    Dtype,
    Integer,
    Line,
    Moment,
    Positive,
    Stored,
    Text,
)
from ledger.records.case import Case, CaseV2, Protocol, Tool

MEASUREMENT_SCHEMA: Literal["ledger/measurement/1"] = "ledger/measurement/1"
MEASUREMENT_SCHEMA_V2: Literal["ledger/measurement/2"] = "ledger/measurement/2"


class DeviceState(Stored):
    """Hold a reading of clocks, power and temperature; None where the device does not tell."""

    sm_clock_mhz: Count | None
    memory_clock_mhz: Count | None
    power_mw: Count | None
    temperature_c: Integer | None
    throttle: tuple[Line, ...]


class DeviceFacts(Stored):
    """Identify the device and the software that measured."""

    name: Line
    target: Line
    sms: Positive
    memory_bytes: Positive
    l2_bytes: Count | None
    driver: Line | None
    software: Annotated[dict[Line, Line], IN_KEY_ORDER]

    @property
    def versions(self) -> dict[str, str]:
        """Return what a pin may name, by name: the software, and the driver where it is known."""
        return dict(self.software) if self.driver is None else {**self.software, "driver": self.driver}


class Correctness(Stored):
    """Hold the comparison with the float64 reference that precedes any timing.

    Units: errors as decimal strings (`%.6e`), tolerances likewise; `elements` counts what was compared.
    """

    passed: bool
    reference: Line
    elements: Count
    max_abs_error: Line
    relative_error: Line
    atol: Line
    rtol: Line


class Samples(Stored):
    """Hold output elements at positions drawn from the seal, as raw bits.

    Shapes: `positions` are flat row-major indices into the output; `bits` are lower-case hexadecimal, most
    significant digit first, of the element's own width.
    """

    dtype: Dtype
    positions: tuple[Count, ...]
    bits: tuple[Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{2,16}$")], ...]

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if len(self.positions) != len(self.bits):
            raise ValueError(f"{len(self.bits)} sample values for {len(self.positions)} positions; expected as many")
        return self


class Timing(Stored):
    """Hold what the timer saw. Units: picoseconds per call; confidence in millionths."""

    rounds_ps: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=100_000)]
    calls_per_round: Positive
    input_sets: Positive
    bytes_per_set: Positive
    median_ps: Positive
    low_ps: Positive
    high_ps: Positive
    confidence_ppm: Positive
    launch_ps: Count | None


class Metric(Stored):
    """Hold one profiler reading as the profiler printed it."""

    value: Line
    unit: Line


class ProfiledKernel(Stored):
    """Hold the counters of one launched kernel, by the profiler's own metric names."""

    name: Annotated[str, StringConstraints(max_length=2000)]
    metrics: Annotated[dict[Line, Metric], IN_KEY_ORDER]


class Attachment(Stored):
    """Name a file of evidence by content; it is stored under verifications/objects/."""

    name: Line
    sha256: Digest
    bytes: Count


class Counters(Stored):
    """Hold what the hardware counters say of one call; several kernels where one call launches several."""

    tool: Line
    command: Text
    cache_control: Literal["all", "none"]
    clock_control: Literal["base", "none"]
    kernels: Annotated[tuple[ProfiledKernel, ...], Field(min_length=1, max_length=64)]


class Measurement(Stored):
    """Hold all evidence of one measured cell: what ran, on what, whether it was right, how long it took."""

    schema_: Literal["ledger/measurement/1"] = Field(alias="schema")
    tool: Tool
    seal: Digest
    cell: CellKey
    run: Count
    anchor: Digest | None
    order_sha256: Digest | None
    case: Case
    kernel_sha256: Digest
    hardware_sha256: Digest
    protocol: Protocol
    device: DeviceFacts
    status: Literal["measured", "failed"]
    failure: Text | None
    correctness: Correctness | None
    samples: Samples | None
    timing: Timing | None
    before: DeviceState | None
    after: DeviceState | None
    counters: Counters | None
    counters_missing: Text | None
    interventions: Annotated[dict[Line, Any], IN_KEY_ORDER]
    attachments: tuple[Attachment, ...]
    started_at: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
    device_ms: Count
    extensions: Annotated[dict[Line, Any], IN_KEY_ORDER]

    @model_validator(mode="after")
    def _status_fits(self) -> Self:
        if self.status == "failed":
            if self.failure is None or self.timing is not None:
                raise ValueError("a failed measurement has a failure and no timing")
        elif self.failure is not None or self.timing is None or self.correctness is None or self.samples is None:
            raise ValueError("a finished measurement has correctness, samples and timing, and no failure")
        if self.status == "measured" and self.correctness is not None and not self.correctness.passed:
            raise ValueError("a kernel that is not correct is recorded as failed, never timed")
        if (self.counters is None) == (self.counters_missing is None):
            raise ValueError("either counters, or the reason why there are none")
        return self


# Version 2


class Binary(Stored):
    """Name compiled code that one call launched: its language, its kernel's name and the SHA-256 of its binary.

    language: triton, gluon or cuda; a later version may record others.
    """

    language: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    name: Annotated[str, StringConstraints(max_length=2000)]
    sha256: Digest


class DeviceFactsV2(DeviceFacts):
    """Identify the device by a digest of its UUID as well; `software` holds every platform package by name.

    power_limit_mw: the limit that the driver enforces, in milliwatts; None where it does not tell.
    """

    uuid: Digest | None
    power_limit_mw: Positive | None


class TimingV2(Timing):
    """Hold what the timer saw, with the SM clock inside each timed round where the device tells. Units: MHz."""

    sm_clock_mhz: Annotated[tuple[Count | None, ...], Field(max_length=100_000)]

    @model_validator(mode="after")
    def _clock_of_each_round(self) -> Self:
        clocks, rounds = len(self.sm_clock_mhz), len(self.rounds_ps)
        if clocks not in (0, rounds):
            raise ValueError(f"{clocks} clocks for {rounds} rounds; expected one a round, or none")
        return self


class Attempt(Stored):
    """Hold one try at measuring a cell: when and where it ran, and why it did not count."""

    started_at: Moment
    node: Line
    reason: Text


class MeasurementV2(Measurement):
    """Hold all evidence of one measured cell in version 2.

    ran: the compiled kernels that one call launched, in order; empty where none was compiled (torch on a CPU).
    attempts: earlier tries at this run that gave no measurement. node: the machine's own name for itself.
    """

    schema_: Literal["ledger/measurement/2"] = Field(alias="schema")  # type: ignore[assignment]
    case: CaseV2
    device: DeviceFactsV2
    timing: TimingV2 | None
    started_at: Moment
    ran: Annotated[tuple[Binary, ...], Field(max_length=1000)]
    attempts: Annotated[tuple[Attempt, ...], Field(max_length=1000)]
    node: Line | None
