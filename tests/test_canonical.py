"""Tests canonical bytes, ids, strict parsing and the chain."""

from __future__ import annotations

import hashlib
import json

import pytest
from samples import TOY, make_forecast, make_measurement, make_sealed

from ledger.canonical import (
    MAX_RECORD_BYTES,
    canonical,
    cell_key,
    decode,
    decode_any,
    encode,
    next_link,
    object_id,
    object_path,
    parse_json,
    record_id,
    record_path,
)
from ledger.errors import EvidenceRefused, LedgerError, ParseError, RecordError
from ledger.records import MAX_INTEGER, Hardware, Measurement, Order, Prediction, Void

VOID = Void.model_validate_json(
    json.dumps(
        {
            "schema": "ledger/void/1",
            "tool": {"name": "ledger", "version": "0"},
            "seal": "ab" * 32,
            "cell": None,
            "why": "wrong shape",
            "extensions": {},
        }
    )
)
VOID_BYTES = (
    b'{"cell":null,"extensions":{},"schema":"ledger/void/1","seal":"' + b"ab" * 32 + b'",'
    b'"tool":{"name":"ledger","version":"0"},"why":"wrong shape"}'
)


# Bytes


def test_canonical_is_rfc_8785_example():
    """RFC 8785, section 3.2.4."""
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\nA'\u0042\u0022\u005c\\\"\u002f",
        "literals": [None, True, False],
    }
    assert canonical(value) == (
        b'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        b'"string":"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_canonical_sorts_keys_by_utf16_units():
    """RFC 8785, section 3.2.3: an emoji (a surrogate pair, from D83D) sorts before U+FB33."""
    value = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\xf6": 7}
    keys = list(json.loads(canonical(value)))
    assert keys == ["\r", "1", "\x80", "\xf6", "\u20ac", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), MAX_INTEGER + 1, -MAX_INTEGER - 1, "\ud800", {"\udfff": 1}],
    ids=["nan", "inf", "minus-inf", "2**53", "-2**53", "lone-surrogate", "lone-surrogate-key"],
)
def test_canonical_refuses_what_json_cannot_carry(value):
    with pytest.raises(RecordError):
        canonical(value)


def test_canonical_takes_the_largest_integer():
    assert canonical([MAX_INTEGER, -MAX_INTEGER]) == b"[9007199254740991,-9007199254740991]"


@pytest.mark.parametrize(
    "record",
    [VOID, TOY, make_sealed(make_forecast()).prediction, make_measurement(make_forecast())],
    ids=["void", "hardware", "seal", "measurement"],
)
def test_encode_and_decode_are_inverse(record):
    data = encode(record)
    assert data == canonical(json.loads(data))
    assert decode(type(record), data, what="test") == record


def test_encode_equals_canonical_for_difficult_text():
    for why in ("é\u2028\x7f", "\U0001f600 and \ufb33", 'tab\tquote"back\\slash/', "\x00\x1f", "1234567890123456789"):
        record = VOID.model_copy(update={"why": why, "extensions": {"k": [why, 1, -5, 2**53 - 1, {"\U0001f600": 0.1}]}})
        assert encode(record) == canonical(record.model_dump(mode="json", by_alias=True))
        assert decode(Void, encode(record), what="test") == record


# Ids


def test_id_is_sha256_of_domain_and_bytes():
    assert encode(VOID) == VOID_BYTES
    assert record_id(Void, VOID_BYTES) == hashlib.sha256(b"ledger/void/v1\0" + VOID_BYTES).hexdigest()
    assert record_id(Void, VOID_BYTES) == "e7ad4aa9eb4d912b381f2761d35789a69075460b631027c1fda24a596594cb31"


def test_ids_of_the_same_bytes_differ_by_kind():
    ids = {record_id(kind, VOID_BYTES) for kind in (Prediction, Measurement, Void, Order)} | {object_id(VOID_BYTES)}
    assert len(ids) == 5


def test_object_ids_are_plain_sha256():
    assert object_id(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert record_id(Hardware, b"abc") == object_id(b"abc")


def test_paths_are_sharded_by_the_first_byte():
    assert record_path("predictions", "ab" * 32) == f"predictions/ab/{'ab' * 32}.json"
    assert object_path("verifications", "cd" * 32) == f"verifications/objects/cd/{'cd' * 32}"


# Strict reading


def _bytes(**changes: object) -> bytes:
    return canonical({**json.loads(VOID_BYTES), **changes})


REENCODED = {
    "space": VOID_BYTES.replace(b":", b": ", 1),
    "newline-at-end": VOID_BYTES + b"\n",
    "escaped-letter": VOID_BYTES.replace(b"wrong", b"\\u0077rong"),
    "other-key-order": json.dumps(dict(reversed(json.loads(VOID_BYTES).items())), separators=(",", ":")).encode(),
    "escaped-slash": VOID_BYTES.replace(b"ledger/void", b"ledger\\/void"),
}


@pytest.mark.parametrize("data", REENCODED.values(), ids=REENCODED)
def test_decode_refuses_other_encodings_of_the_same_record(data):
    assert json.loads(data) == json.loads(VOID_BYTES)
    with pytest.raises(EvidenceRefused, match="canonical"):
        decode(Void, data, what="v.json")


MALFORMED = {
    "empty": b"",
    "duplicate-key": VOID_BYTES.replace(b'"cell":null,', b'"cell":null,"cell":null,'),
    "duplicate-key-escaped": VOID_BYTES.replace(b'"cell":null,', b'"cell":null,"\\u0063ell":null,'),
    "nan": b'{"a":NaN}',
    "infinity": b'{"a":-Infinity}',
    "byte-order-mark": b"\xef\xbb\xbf" + VOID_BYTES,
    "utf-16": VOID_BYTES.decode().encode("utf-16"),
    "latin-1": VOID_BYTES.replace(b"wrong", b"wr\xf6ng"),
    "overlong": VOID_BYTES.replace(b"wrong", b"wr\xc1\xafng"),
    "deep-list": b"[" * 100_000 + b"]" * 100_000,
    "deep-object": b'{"a":' * 40 + b"1" + b"}" * 40,
    "huge-integer": b'{"a":' + b"9" * 5000 + b"}",
    "trailing-comma": b'{"a":1,}',
    "two-values": VOID_BYTES + VOID_BYTES,
    "comment": b"/* */" + VOID_BYTES,
    "single-quotes": b"{'a':1}",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_parse_refuses_malformed_text(data):
    with pytest.raises(ParseError, match=r"^v\.json"):
        parse_json(data, what="v.json")


def test_parse_refuses_large_text():
    with pytest.raises(ParseError, match="expected at most"):
        parse_json(b" " * (MAX_RECORD_BYTES + 1), what="v.json")


def test_brackets_in_text_are_no_nesting():
    assert parse_json(canonical(["[" * 500, '\\"[' * 99]), what="v.json") == ["[" * 500, '\\"[' * 99]


WRONG = {
    "not-an-object": b"[]",
    "null": b"null",
    "unknown-field": _bytes(more=1),
    "missing-field": canonical({k: v for k, v in json.loads(VOID_BYTES).items() if k != "why"}),
    "number-for-text": _bytes(why=5),
    "empty-why": _bytes(why=""),
    "short-digest": _bytes(seal="ab"),
    "upper-case-digest": _bytes(seal="AB" * 32),
    "digest-and-newline": _bytes(seal="ab" * 32 + "\n"),
    "escape-in-a-line": _bytes(tool={"name": "\x1b[2J", "version": "0"}),
    "other-schema": _bytes(schema="ledger/void/2"),
    "infinite-number": b'{"cell":null,"extensions":{"a":1e999}' + VOID_BYTES[VOID_BYTES.index(b',"schema"') :],
    "lone-surrogate": VOID_BYTES.replace(b"wrong", b"\\ud800"),
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_decode_refuses_wrong_records(data):
    with pytest.raises(RecordError, match=r"^v(\.json|alue)"):
        decode(Void, data, what="v.json")


@pytest.mark.parametrize("number", [b"1.0", b"1e0", b"true", b'"1"', b"-0", b"9007199254740992"])
def test_integers_are_integers(number):
    data = encode(make_measurement(make_forecast())).replace(b'"run":0', b'"run":' + number)
    with pytest.raises((RecordError, EvidenceRefused)):
        decode(Measurement, data, what="m.json")


def test_decode_any_goes_by_the_schema():
    assert decode_any(VOID_BYTES, what="v") == VOID
    for schema in (None, 5, "ledger/void/9", ["ledger/void/1"]):
        with pytest.raises(LedgerError):
            decode_any(_bytes(schema=schema), what="v")


def test_huge_integers_in_open_fields_are_refused():
    for number in (2**53, -(2**53), 10**30):
        text = json.dumps(json.loads(VOID_BYTES) | {"extensions": {"a": number}}, separators=(",", ":"), sort_keys=True)
        with pytest.raises(LedgerError):
            decode(Void, text.encode(), what="v")


# The chain


def test_next_link():
    assert next_link({}) == (1, ())
    assert next_link({"bb": 4, "aa": 2}) == (5, ("aa", "bb"))


def test_cell_key_names_the_case():
    assert cell_key(make_forecast().case) == "rmsnorm_matmul-B8-H64-O64-fp16"
