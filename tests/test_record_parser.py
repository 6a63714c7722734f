"""Holds that the one-pass reader accepts the canonical form that the careful reader accepts, and nothing else."""

from __future__ import annotations

import json
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from annotated_types import Le
from hypothesis import given
from hypothesis import strategies as st
from pydantic import PlainSerializer
from pydantic.fields import FieldInfo
from pydantic_core import to_json
from samples import TOY, make_forecast, make_measurement, make_sealed

from ledger.canonical import canonical, decode, encode, parse_json, validate
from ledger.errors import LedgerError
from ledger.record_parser import read_canonical
from ledger.records import (
    IN_KEY_ORDER,
    MAX_INTEGER,
    Hardware,
    Measurement,
    MeasurementV2,
    Prediction,
    PredictionV2,
    RatioMeasurement,
    Reveal,
    Stored,
    Void,
)

OPEN = {"extensions", "interventions"}
VOID = Void.model_validate_json(
    '{"schema":"ledger/void/1","tool":{"name":"ledger","version":"0"},"seal":"' + "ab" * 32 + '","cell":null,'
    '"why":"wrong shape","extensions":{}}'
)
SEAL = make_sealed(make_forecast(probabilities_ppm={"hbm-bound": 600_000, "compute-bound": 400_000})).prediction
COUNTED = make_measurement(
    make_forecast(),
    counters_missing=None,
    counters={
        "tool": "ncu",
        "command": "ncu",
        "cache_control": "all",
        "clock_control": "none",
        "kernels": ({"name": "k", "metrics": {"b__x": {"value": "1", "unit": "%"}, "a": {"value": "2", "unit": ""}}},),
    },
)
RECORDS = {"seal": SEAL, "measurement": make_measurement(make_forecast()), "counted": COUNTED, "void": VOID}


def carefully(kind: type[Any], data: bytes) -> Any:
    """Return the record by RFC 8785 alone, or None."""
    try:
        value = parse_json(data, what="test")
        record = validate(kind, value, what="test")
        return record if canonical(value) == data == canonical(record.model_dump(mode="json", by_alias=True)) else None
    except LedgerError:
        return None


def test_every_character_is_written_as_rfc_8785_wants_it():
    for start in range(0, 0x110000, 0x1000):
        text = "".join(map(chr, (c for c in range(start, start + 0x1000) if not 0xD800 <= c < 0xE000)))
        assert to_json(text) == canonical(text)


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_plain_record_is_read_in_one_pass(record):
    data = canonical(record.model_dump(mode="json", by_alias=True))
    assert encode(record) == data
    assert read_canonical(type(record), data) == carefully(type(record), data) == record


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_no_other_bytes_of_a_record_are_read(record):
    """Members in another order at any depth, added space, escapes, other forms of a number, a member twice."""
    data = encode(record)
    value = json.loads(data)
    others = {json.dumps(part, separators=(",", ":"), ensure_ascii=False).encode() for part in reordered(value)}
    others |= {data.replace(b":", b": ", 1), data + b"\n", data.replace(b"ledger", b"\\u006cedger", 1)}
    others |= {
        data[:-1] + b',"why":"twice"}',
        data.replace(b'{"', b'{"extensions":{},"', 1),
        data.replace(b"/", b"\\/"),
    }
    others |= {data.replace(b":1,", form, 1) for form in (b":1.0,", b":1e0,", b":+1,", b":01,", b":true,", b':"1",')}
    others -= {data}
    assert len(others) >= 8
    for other in others:
        assert read_canonical(type(record), other) is None, other
        with pytest.raises(LedgerError):
            decode(type(record), other, what="test")


def reordered(value: Any) -> list[Any]:
    """Return copies of a JSON value, in each of which the members of one object stand the other way round."""
    if isinstance(value, list):
        return [[*value[:n], other, *value[n + 1 :]] for n, item in enumerate(value) for other in reordered(item)]
    if not isinstance(value, dict):
        return []
    inner = [{**value, key: other} for key, item in value.items() for other in reordered(item)]
    return [dict(reversed(value.items())), *inner]


@given(st.text(max_size=40), st.dictionaries(st.text(max_size=3), st.integers(-5, 5), max_size=4))
def test_open_text_and_foreign_keys_are_read_alike(why, config):
    config = {key: value for key, value in config.items() if key.isprintable()}
    case = make_forecast().case.model_copy(update={"config": config})
    record = SEAL.model_copy(update={"why": why, "cells": (make_forecast().model_copy(update={"case": case}),)})
    data = encode(record)
    assert data == canonical(record.model_dump(mode="json", by_alias=True))
    assert read_canonical(Prediction, data) == carefully(Prediction, data) == record


@given(st.data())
def test_a_changed_byte_is_read_alike(draw):
    kind, data = Prediction, bytearray(encode(SEAL))
    place = draw.draw(st.integers(0, len(data) - 1))
    data[place] = draw.draw(st.integers(0, 255))
    assert read_canonical(kind, bytes(data)) == carefully(kind, bytes(data))


@pytest.mark.parametrize("open_", [{"a": 1}, {"a": 0.5}, {"b": 1, "a": 2}, {"a": 2**60}])
def test_open_fields_are_left_to_the_careful_reader(open_):
    text = json.dumps({**json.loads(encode(VOID)), "extensions": open_}, separators=(",", ":"), sort_keys=True)
    assert read_canonical(Void, text.encode()) is None
    assert read_canonical(Hardware, encode(TOY)) is None


def test_keys_beyond_the_basic_plane_stand_in_order_of_their_utf16_units():
    """An emoji (a surrogate pair, from D83D) sorts before U+FB33, though its code point is higher."""
    made = make_forecast().case.model_copy(update={"config": {"\ufb33": 1, "\U0001f600": 2, "a": 3}})
    read = type(made).model_validate_json(made.model_dump_json())
    assert list(read.config) == ["a", "\U0001f600", "\ufb33"]
    assert to_json(read) == canonical(made.model_dump(mode="json"))


# What the argument in the docstring of ledger.record_parser rests on


def stored() -> list[type[Stored]]:
    found, waiting = [], [Stored]
    while waiting:
        kinds = waiting.pop().__subclasses__()
        found += kinds
        waiting += kinds
    return [kind for kind in found if kind.__module__.startswith("ledger.records")]


def assert_plain(annotation: Any, notes: list[Any], name: str) -> None:
    """Check that a field holds text, bounded integers, booleans, None, and records or ordered dictionaries of them."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        flat = [part for note in arguments[1:] for part in (note.metadata if isinstance(note, FieldInfo) else (note,))]
        assert_plain(arguments[0], [*notes, *flat], name)
    elif origin in (Union, types.UnionType):
        for part in arguments:
            assert_plain(part, notes, name)
    elif origin is tuple:
        assert arguments[1:] == (...,), name
        assert_plain(arguments[0], [], name)
    elif origin is dict:
        assert IN_KEY_ORDER in notes, name
        if name not in OPEN:
            assert_plain(arguments[1], [], name)
    elif origin is Literal:
        assert all(isinstance(word, str) for word in arguments), name
    elif annotation is int:
        # A large integer is written as text from 2**53 on.
        large = any(isinstance(note, PlainSerializer) for note in notes)
        assert large or [note for note in notes if isinstance(note, Le) and note.le <= MAX_INTEGER], name
    else:
        assert annotation in (str, bool, type(None)) or issubclass(annotation, Stored), name


@pytest.mark.parametrize("kind", stored(), ids=lambda kind: kind.__name__)
def test_stored_records_hold_nothing_that_is_written_in_two_ways(kind):
    for name, annotation in get_type_hints(kind, include_extras=True).items():
        if name in kind.model_fields:
            assert_plain(annotation, [], name)
            assert (kind.model_fields[name].alias or name) == name.removesuffix("_")


def test_open_fields_are_those_that_hold_anything():
    for kind in stored():
        for name, field in kind.model_fields.items():
            assert (name in OPEN) == ("Any" in str(field.annotation)), name
    assert {Prediction, PredictionV2, Measurement, MeasurementV2, RatioMeasurement, Reveal, Void} == {
        kind for kind in stored() if OPEN & set(kind.model_fields)
    }
