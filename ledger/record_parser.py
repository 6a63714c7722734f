"""Reads stored records in one pass where that is surely exact. Pure; imports records.

Without open fields a record holds text, integers within 2**53, booleans and None, and no fraction; its fields and its
dictionaries stand in the order of their keys (records, `Stored` and `IN_KEY_ORDER`). pydantic writes all of that
exactly as RFC 8785 wants it, so that the bytes which a record writes again are its canonical form. Whatever is not
surely exact is left to canonical, which says what is wrong.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from ledger.records import Measurement, Prediction, RatioMeasurement, Record, Reveal, Samples, Void

R = TypeVar("R", bound=Record)


def read_canonical(kind: type[R], data: bytes) -> R | None:
    """Return the record whose canonical bytes are `data`; None when that is not sure."""
    try:
        record = kind.model_validate_json(data)
    except ValidationError:
        return None
    return record if is_closed(record) and to_json(record, by_alias=True) == data and _writes_in_order() else None


def is_closed(record: Record) -> bool:
    """Tell whether a record has no open fields, which alone may hold fractions and anything else of JSON."""
    if isinstance(record, Measurement):
        return not (record.extensions or record.interventions)
    return isinstance(record, Prediction | RatioMeasurement | Void | Reveal) and not record.extensions


@cache
def _writes_in_order() -> bool:
    """Tell whether the pydantic that is installed writes fields in sorted order, whatever the order of its input."""
    given = Samples.model_validate_json(b'{"positions":[],"dtype":"fp16","bits":[]}')
    return to_json(given) == b'{"bits":[],"dtype":"fp16","positions":[]}'
