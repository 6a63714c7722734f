"""Defines a hardware profile: peaks, bandwidths and limits of one device, each number with its source."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from ledger.records.base import CeilingKind, Line, Name, Path, Positive, Record

_MAX_ROUNDS = 1000
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class Quantity(Record):
    """Hold one hardware number with what it needs to be believed.

    Units: as `unit` says, decimal prefixes (GB is 1e9 bytes), KiB/MiB/GiB binary.
    rounds: the best of each round of the calibration, of which `value` is one; absent where none were kept.
    """

    value: Rate
    unit: Line
    kind: Literal["datasheet", "measured"]
    condition: Line
    source: Line
    rounds: Annotated[tuple[Rate, ...], Field(min_length=1, max_length=_MAX_ROUNDS)] | None = None

    @model_validator(mode="after")
    def _is_a_round(self) -> Self:
        if self.rounds is not None and self.value not in self.rounds:
            raise ValueError(f"value {self.value:g} is none of its {len(self.rounds)} rounds; expected one of them")
        return self

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out a field that profiles did not have at first, so that their bytes and digests stay."""
        return _without(handler(self), "rounds")


class Peak(Quantity):
    """Hold one arithmetic peak; `flop_per_clk_per_sm` and `clock_mhz` restate it as hardware width times clock."""

    unit: Literal["TFLOP/s", "TOP/s"]
    flop_per_clk_per_sm: Annotated[int, Field(gt=0)] | None = None
    clock_mhz: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class Ceilings(Record):
    """Hold one coherent set of peaks and bandwidths: the datasheet's, or measured in bursts, or sustained.

    A path that is absent or None is one the chip does not have (datasheet) or that was not measured.
    """

    peaks: dict[Path, Peak | None]
    dram_bandwidth: Quantity
    dram_read_bandwidth: Quantity | None = None
    dram_write_bandwidth: Quantity | None = None
    dram_copy_bandwidth: Quantity | None = None
    l2_bandwidth: Quantity | None = None
    l3_bandwidth: Quantity | None = None
    smem_bandwidth: Quantity | None = None
    launch_stream: Quantity | None = None
    launch_graph_node: Quantity | None = None

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out a field that profiles did not have at first, so that their bytes and digests stay."""
        return _without(handler(self), "l3_bandwidth")


class Memory(Record):
    """Hold the memory pyramid: capacities from DRAM to registers.

    l3_capacity: a cache on the side of the memory, such as AMD's Infinity Cache; absent where there is none.
    """

    technology: Line
    dram_capacity: Quantity
    l3_capacity: Quantity | None = None
    l2_capacity: Quantity | None
    smem_per_sm: Quantity | None
    smem_per_block: Quantity | None
    registers_per_sm: Quantity | None

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out a field that profiles did not have at first, so that their bytes and digests stay."""
        return _without(handler(self), "l3_capacity")


class Limits(Record):
    """Hold what bounds occupancy; None where the architecture has no such notion."""

    sms: Positive
    warps_per_sm: Positive | None
    blocks_per_sm: Positive | None
    registers_per_thread: Positive | None
    max_clock_mhz: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    tdp_w: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None


class Calibration(Record):
    """Hold how busy a CPU was while its ceilings were measured. Units: seconds.

    others_percent: share of the processors' time that other processes used, one a round; None where the kernel does
    not tell. load_average: runnable processes over the minute before.
    """

    duration_s: Rate
    others_percent: Annotated[tuple[Share, ...], Field(min_length=1, max_length=_MAX_ROUNDS)] | None
    load_average: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None


class Hardware(Record):
    """Describe one device: identity, limits, memory pyramid and one or more sets of ceilings.

    calibration: absent from a profile that does not record it.
    """

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
    calibration: Calibration | None = None

    @property
    def chip(self) -> Target:
        """Return the compiler target with the SMs of this chip, by which a launch rule chooses."""
        return Target(self.target, self.limits.sms)

    @model_validator(mode="after")
    def _has_ceilings(self) -> Self:
        if not self.ceilings:
            raise ValueError("ceilings is empty; expected at least one of datasheet, burst, sustained")
        return self

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out a field that profiles did not have at first, so that their bytes and digests stay."""
        return _without(handler(self), "calibration")


def _without(value: dict[str, Any], field: str) -> dict[str, Any]:
    """Return serialized fields without one that is None."""
    return value if value.get(field) is not None else {name: item for name, item in value.items() if name != field}


class Target(str):
    """Hold a compiler target, such as sm_90, with the SMs (cores) of one chip of it; equal to its name alone."""

    sms: int

    def __new__(cls, name: str, sms: int) -> Self:
        """Return the target."""
        target = super().__new__(cls, name)
        target.sms = sms
        return target

    def __reduce__(self) -> tuple[type[Target], tuple[str, int]]:
        """Return how a copy is made."""
        return Target, (str(self), self.sms)


def is_gpu(target: str) -> bool:
    """Tell whether a compiler target is a GPU's."""
    return target.startswith(("sm_", "gfx"))
