"""Defines a case, what exactly is run, with the work, the roof and the timing protocol of it.

The classes whose names end in V2 hold what version 2 adds. docs/format.md describes both versions.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, ClassVar, Self

from pydantic import Field, StringConstraints, model_validator

from ledger.records.base import (
    IN_KEY_ORDER,
    CeilingKind,
    Count,
    Dtype,
    Integer,
    Large,
    Line,
    Name,
    Path,
    Positive,
    ShapeKey,
    Stored,
)

Config = dict[Line, Integer | Line]
Subject = Annotated[
    str,
    StringConstraints(
        max_length=200, pattern=r"^([a-z][a-z0-9_]{0,63}|[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*)$"
    ),
]
"""A kernel's name, or a callable as module:name."""
_NUMBER = re.compile(r"(?<![^* ])[0-9]{1,15}(?![^* ])")
_LARGEST = 2**53


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

    @property
    def literal_sizes(self) -> dict[str, int]:
        """Return the sizes that stand as numbers in a callable's arguments, by argument and axis."""
        return {}


class Protocol(Stored):
    """Name a timing protocol and its parameters; docs/format.md defines each name."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,31}/[0-9]{1,3}$")]
    parameters: Annotated[dict[Line, Integer], IN_KEY_ORDER]


class Tool(Stored):
    """Name the program that wrote a record."""

    name: Line
    version: Line


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

    @property
    def text(self) -> str:
        """Return the argument as --args takes it: x=fp16[B,2*H], ids=int64[B]<32000, eps=1e-6."""
        if self.dims is None:
            return f"{self.name}={self.value}"
        bound = "" if self.below is None else f"<{self.below}"
        return f"{self.name}={self.dtype}[{','.join(self.dims)}]{bound}"


class CaseV2(Case):
    """Name what is run: a kernel or a callable, whose arguments are described; configuration values may be text."""

    text_values: ClassVar[bool] = True

    kernel: Subject
    arguments: Annotated[tuple[Argument, ...], Field(max_length=64)] | None

    @property
    def cell(self) -> tuple[str, tuple[tuple[str, int], ...], str, str]:
        """Return what makes two cases the same cell; of a callable also its arguments and the pass."""
        kernel, shape, dtype, hardware = super().cell
        if self.arguments is None:
            return (kernel, shape, dtype, hardware)
        listed = " ".join(str((one.name, one.dtype, one.dims, one.below, one.value)) for one in self.arguments)
        return (f"{kernel} {self.config.get('pass')} {listed}", shape, dtype, hardware)

    @property
    def literal_sizes(self) -> dict[str, int]:
        """Return the sizes that stand as numbers in arguments, by argument and axis: x=fp16[B,2*H] has x.1 = 2."""
        return {
            f"{one.name}.{axis}": min(math.prod(map(int, numbers)), _LARGEST)
            for one in self.arguments or ()
            for axis, dim in enumerate(one.dims or ())
            if (numbers := _NUMBER.findall(dim))
        }
