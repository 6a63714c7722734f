"""Reads stored records in one pass where their canonical form is plain. Pure; imports records.

Most records hold text and integers and nothing else. pydantic writes those exactly as RFC 8785 wants them, so that the
bytes which a record writes again are its canonical form, provided that all keys stand in order and no integer is beyond
2**53. Whatever is not surely plain is left to seal, which looks closer and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from ledger.records import MAX_INTEGER, Record, Stored

R = TypeVar("R", bound=Record)

_SIMPLE = frozenset((str, bool, type(None)))


def read_plain(kind: type[R], data: bytes) -> R | None:
    """Return the record whose canonical bytes are `data`; None when that is not plain to see."""
    try:
        record = kind.model_validate_json(data)
    except ValidationError:
        return None
    return record if to_json(record, by_alias=True) == data and _are_plain((record,)) else None


def _are_plain(values: Iterable[Any]) -> bool:
    """Tell whether all keys within stand in order and all values are text, integers within 2**53, booleans or None."""
    for value in values:
        kind = type(value)
        if kind in _SIMPLE:
            continue
        if kind is int:
            plain = -MAX_INTEGER <= value <= MAX_INTEGER
        elif kind is tuple:
            plain = _is_plain_series(value)
        elif kind is dict:
            keys = list(value)
            # Sorted by code points, which is the order of RFC 8785 as long as they are ASCII.
            plain = keys == sorted(keys) and "".join(keys).isascii() and _are_plain(value.values())
        else:
            order = _stored_order(kind)
            plain = order is not None and tuple(value.__dict__) == order and _are_plain(value.__dict__.values())
        if not plain:
            return False
    return True


def _is_plain_series(values: tuple[Any, ...]) -> bool:
    kinds = set(map(type, values))
    if kinds == {int}:
        return min(values) >= -MAX_INTEGER and max(values) <= MAX_INTEGER
    return kinds <= _SIMPLE or _are_plain(values)


@cache
def _stored_order(kind: type[object]) -> tuple[str, ...] | None:
    """Return the fields of a kind of record in the order of the keys under which they are stored."""
    if not issubclass(kind, Stored):
        return None
    return tuple(sorted(kind.model_fields, key=lambda name: kind.model_fields[name].alias or name))
