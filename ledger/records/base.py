"""Defines what every record is made of: frozen, strict, stored in key order. Imports nothing of ledger."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    StringConstraints,
)
from pydantic_core import CoreSchema

MAX_INTEGER = 2**53 - 1

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
CellKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.=-]{0,159}$")]
ShapeKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,15}$")]
Moment = Annotated[str, StringConstraints(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")]
"""UTC to the second, in the digits 0 to 9."""
Text = Annotated[str, StringConstraints(max_length=8000)]
MOST_LINE = 400
Line = Annotated[str, StringConstraints(max_length=MOST_LINE, pattern=r"^[^\x00-\x1f\x7f]*$")]
Integer = Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER)]
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Positive = Annotated[int, Field(ge=1, le=MAX_INTEGER)]


def _read_large(value: Any) -> Any:
    """Return the integer that decimal digits stand for; a number that fits JSON exactly must be stored as one."""
    if not isinstance(value, str):
        return value
    if not (value.isascii() and value.isdigit()) or value.startswith("0") or len(value) > 40:
        raise ValueError("expected decimal digits without a leading zero")
    if int(value) <= MAX_INTEGER:
        raise ValueError("expected a number: only integers at and above 2**53 are stored as text")
    return int(value)


Large = Annotated[
    int,
    Field(ge=1, le=10**40),
    BeforeValidator(_read_large),
    PlainSerializer(lambda value: value if value <= MAX_INTEGER else str(value), when_used="json"),
]
"""A positive integer of any size: a JSON number below 2**53, decimal digits as text from there on."""

Dtype = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8_e4m3", "int8"]
Path = Literal[
    "fp64",
    "fp64_tensor",
    "fp32",
    "tf32_tensor",
    "fp16",
    "fp16_tensor",
    "bf16_tensor",
    "fp8_tensor",
    "int8_tensor",
    "fp4_tensor",
]
Regime = Literal["hbm-bound", "compute-bound", "smem-bound", "launch-bound", "l2-bound", "latency-bound"]
CeilingKind = Literal["datasheet", "burst", "sustained"]
RegimeRule = Literal["regime/1", "regime/2"]
Sight = Literal["blind", "near", "informed"]
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

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", defer_build=True)


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
