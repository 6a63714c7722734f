"""Keeps equal parts of many records once: most of a large ledger's memory is the same protocols, cases and devices.

Records are frozen, and nothing changes a dictionary that one holds, so a part may stand in any number of them.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from typing import Any

from pydantic_core import to_json

from ledger.budgets import weight_bytes
from ledger.records import Forecast, Measurement, Prediction, RatioMeasurement, Record, Samples, TimedSide, Timing

_OPENED = (Forecast, Measurement, Prediction, RatioMeasurement, Samples, TimedSide, Timing)
"""What no two records share as a whole; their parts are looked at one by one."""


_NAMES: dict[type, set[str]] = {}


def share_names(record: Record) -> None:
    """Share the set of the names that a record was given, which is as large as a small part itself."""
    given = record.__pydantic_fields_set__
    if (known := _NAMES.setdefault(type(record), given)) == given:
        object.__setattr__(record, "__pydantic_fields_set__", known)


class SharedParts:
    """Replace the parts of records by equal ones that were seen before."""

    def __init__(self) -> None:
        """Begin without any. spared: the weight of what was replaced, as `weight_bytes` estimates it."""
        self._parts: dict[bytes, Any] = {}
        self.spared = 0

    def share(self, record: Record) -> None:
        """Share the parts of a record that was just read and that nothing else holds yet."""
        held = record.__dict__
        for name, value in held.items():
            if isinstance(value, str):
                held[name] = sys.intern(value)
            elif isinstance(value, dict):
                held[name] = self._shared(value)
            elif isinstance(value, Record):
                held[name] = self._part(value)
            elif isinstance(value, tuple) and value:
                if isinstance(value[0], str):
                    held[name] = tuple(map(sys.intern, value))
                elif isinstance(value[0], Record):
                    held[name] = tuple(map(self._part, value))
        share_names(record)

    def _part(self, part: Record) -> Record:
        if isinstance(part, _OPENED):
            self.share(part)
            return part
        found: Record = self._shared(part)
        if found is part:
            self.share(part)
        return found

    def _shared(self, value: Any) -> Any:
        text = to_json(value)
        key = blake2b(text, digest_size=16, key=type(value).__name__.encode()).digest()
        found = self._parts.setdefault(key, value)
        if found is not value:
            self.spared += weight_bytes(text)
        return found
