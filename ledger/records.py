"""Defines every record that ledger stores or exchanges: frozen, strict, without I/O.

The stored form of each record is written down in docs/format.md and frozen. Stored numbers are integers scaled to a
small unit (picoseconds, thousandths of a percent, millionths), so that no rounding question ever touches a digest;
only hardware profiles hold decimal fractions. This module imports nothing of ledger but errors.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    model_validator,
)
from pydantic_core import CoreSchema

SEAL_SCHEMA: Literal["ledger/seal/1"] = "ledger/seal/1"
MEASUREMENT_SCHEMA: Literal["ledger/measurement/1"] = "ledger/measurement/1"
VOID_SCHEMA: Literal["ledger/void/1"] = "ledger/void/1"
ORDER_SCHEMA: Literal["ledger/order/1"] = "ledger/order/1"

MAX_INTEGER = 2**53 - 1

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
CellKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.=-]{0,159}$")]
ShapeKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,15}$")]
Text = Annotated[str, StringConstraints(max_length=8000)]
Line = Annotated[str, StringConstraints(max_length=400, pattern=r"^[^\x00-\x1f\x7f]*$")]
Integer = Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER)]
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Positive = Annotated[int, Field(ge=1, le=MAX_INTEGER)]
PercentMilli = Annotated[int, Field(ge=0, le=MAX_INTEGER)]

Dtype = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8"]
Path = Literal[
    "fp64", "fp64_tensor", "fp32", "tf32_tensor", "fp16", "fp16_tensor", "bf16_tensor", "fp8_tensor", "int8_tensor"
]
Regime = Literal["hbm-bound", "compute-bound", "smem-bound", "launch-bound", "l2-bound", "latency-bound"]
CeilingKind = Literal["datasheet", "burst", "sustained"]
RegimeRule = Literal["regime/1"]
Grade = Literal["A", "B", "C"]

REGIMES: tuple[Regime, ...] = (
    "hbm-bound",
    "compute-bound",
    "smem-bound",
    "launch-bound",
    "l2-bound",
    "latency-bound",
)


def _in_key_order(value: dict[str, Any]) -> dict[str, Any]:
    keys = list(value)
    ordered = sorted(keys) if "".join(keys).isascii() else sorted(keys, key=lambda key: key.encode("utf-16-be"))
    return value if keys == ordered else {key: value[key] for key in ordered}


IN_KEY_ORDER = AfterValidator(_in_key_order)
"""Puts the keys of a dictionary in the order in which they are stored: that of their UTF-16 units (RFC 8785)."""


class Record(BaseModel):
    """Stand for any immutable record; unknown fields and lax conversions are errors."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Stored(Record):
    """Stand for a record of the ledger and its parts: fields are held in the order in which their keys are stored."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Sort the fields, so that a record is written as it is stored whatever the order of their declaration."""
        schema = handler(source)
        part: Any = schema
        while "schema" in part:
            part = part["schema"]
        if "fields" in part:
            part["fields"] = dict(sorted(part["fields"].items(), key=lambda item: item[0].removesuffix("_")))
        return schema


# Hardware profiles


class Quantity(Record):
    """Hold one hardware number with what it needs to be believed.

    Units: as `unit` says, decimal prefixes (GB is 1e9 bytes), KiB/MiB/GiB binary.
    """

    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    unit: Line
    kind: Literal["datasheet", "measured"]
    condition: Line
    source: Line


class Peak(Quantity):
    """Hold one arithmetic peak; `flop_per_clk_per_sm` and `clock_mhz` restate it as hardware width times clock."""

    unit: Literal["TFLOP/s", "TOP/s"]
    flop_per_clk_per_sm: Annotated[int, Field(gt=0)] | None = None
    clock_mhz: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class Ceilings(Record):
    """Hold one coherent set of peaks and bandwidths: the data sheet's, or measured in bursts, or sustained.

    A path that is absent or None is one the chip does not have (data sheet) or that was not measured.
    """

    peaks: dict[Path, Peak | None]
    dram_bandwidth: Quantity
    dram_read_bandwidth: Quantity | None = None
    dram_write_bandwidth: Quantity | None = None
    dram_copy_bandwidth: Quantity | None = None
    l2_bandwidth: Quantity | None = None
    smem_bandwidth: Quantity | None = None
    launch_stream: Quantity | None = None
    launch_graph_node: Quantity | None = None


class Memory(Record):
    """Hold the memory pyramid: capacities from DRAM to registers."""

    technology: Line
    dram_capacity: Quantity
    l2_capacity: Quantity | None
    smem_per_sm: Quantity | None
    smem_per_block: Quantity | None
    registers_per_sm: Quantity | None


class Limits(Record):
    """Hold what bounds occupancy; None where the architecture has no such notion."""

    sms: Positive
    warps_per_sm: Positive | None
    blocks_per_sm: Positive | None
    registers_per_thread: Positive | None
    max_clock_mhz: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    tdp_w: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None


class Hardware(Record):
    """Describe one device: identity, limits, memory pyramid and one or more sets of ceilings."""

    schema_: Literal["ledger/hardware/1"] = Field(alias="schema")
    name: Name
    title: Line
    vendor: Line
    architecture: Line
    target: Line  # compiler target: sm_90, gfx942, x86_64
    device_names: tuple[Line, ...]
    limits: Limits
    memory: Memory
    ceilings: dict[CeilingKind, Ceilings]
    tensor_instructions: tuple[Line, ...] = ()
    notes: tuple[Line, ...] = ()

    @model_validator(mode="after")
    def _has_ceilings(self) -> Self:
        if not self.ceilings:
            raise ValueError("ceilings is empty; expected at least one of datasheet, burst, sustained")
        return self


def is_gpu(target: str) -> bool:
    """Tell whether a compiler target is a GPU's."""
    return target.startswith(("sm_", "gfx"))


# What is forecast


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

    kernel: Name
    shape: Annotated[dict[ShapeKey, Positive], Field(min_length=1, max_length=12), IN_KEY_ORDER]
    dtype: Dtype
    hardware: Name
    implementation: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    config: Annotated[dict[Line, Integer], IN_KEY_ORDER]
    threads: Positive | None

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
    rule: RegimeRule
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
                raise ValueError(f"cell {forecast.cell} stands twice; expected each cell once in a seal")
            seen.add(forecast.cell)
        return self


# What is measured


class Order(Record):
    """Say what to measure on a machine that has no copy of the repository."""

    schema_: Literal["ledger/order/1"] = Field(alias="schema")
    tool: Tool
    cells: Annotated[tuple[OrderedCell, ...], Field(min_length=1)]
    hardware: dict[Digest, Hardware]
    kernels: dict[Digest, OrderedKernel]


class OrderedCell(Record):
    """Hold one cell of an order: the seal that binds it and what to run."""

    seal: Digest
    cell: CellKey
    run: Count
    anchor: Digest | None
    case: Case
    work: Work
    kernel_sha256: Digest
    hardware_sha256: Digest
    protocol: Protocol


class OrderedKernel(Record):
    """Name a kernel of an order; `source` is None where the package ships that very kernel."""

    name: Name
    source: Annotated[str, StringConstraints(max_length=400_000)] | None


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
    """Name a file of evidence by content; it lies under verifications/objects/."""

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


class Void(Stored):
    """Withdraw a seal in the open; it stays visible and counts as missing."""

    schema_: Literal["ledger/void/1"] = Field(alias="schema")
    tool: Tool
    seal: Digest
    cell: CellKey | None
    why: Annotated[str, StringConstraints(min_length=1, max_length=8000)]
    extensions: Annotated[dict[Line, Any], IN_KEY_ORDER]


# What is computed, never stored


class Cause(Record):
    """Hold one factor of a gap: measured over predicted time is the product of all of them."""

    name: Literal["work", "clock", "ceiling", "waves", "launch", "unexplained"]
    factor: float
    note: str


class Gap(Record):
    """Hold measured minus predicted percent of roof (signed, percentage points) and its causes."""

    percent: float
    causes: tuple[Cause, ...]
    sentence: str


class Finding(Record):
    """Hold one thing that a check found; `severity` refuses the evidence or only discloses."""

    code: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$")]
    severity: Literal["refused", "flag", "note"]
    path: str
    message: str


class Verification(Record):
    """Hold the verdict on one measured cell."""

    seal: Digest
    cell: CellKey
    run: Count
    predicted_regime: Regime
    measured_regime: Regime | None
    predicted_percent: float
    measured_percent: float | None
    grade: Grade | None
    gap: Gap | None
    blind: bool
    findings: tuple[Finding, ...]


Order.model_rebuild()
