"""Defines the bytes and the ids of records: canonical form, digests, the chain. Pure; imports records and errors.

A record is stored as RFC 8785 JSON, verbatim, and named by a domain-separated SHA-256 of those bytes. A reader
hashes the raw bytes first, and only then parses them, and accepts them only when re-encoding gives the same bytes.
The format is docs/format.md; changing anything here that alters an existing id is a defect.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn, TypeVar

import rfc8785
from pydantic import ValidationError

from ledger.budgets import MAX_RECORD_BYTES, MAX_RECORD_VALUES, values_of
from ledger.errors import EvidenceRefused, LedgerError, ParseError, RecordError
from ledger.invalid_values import explain
from ledger.record_parser import is_closed, read_canonical
from ledger.records import (
    Case,
    ForecasterAnswers,
    ForecasterCode,
    Hardware,
    KernelSource,
    Measurement,
    MeasurementSet,
    MeasurementV2,
    Opening,
    Order,
    Prediction,
    PredictionV2,
    Pulse,
    RatioMeasurement,
    Record,
    Reveal,
    Void,
)

R = TypeVar("R", bound=Record)

SEALS: tuple[type[Prediction], ...] = (Prediction, PredictionV2)
MEASUREMENTS: tuple[type[Measurement], ...] = (Measurement, MeasurementV2)
"""Every version of a record, the oldest first."""

MAX_DEPTH = 32

_DOMAINS: dict[type[Record], bytes] = {
    Prediction: b"ledger/seal/v1\0",
    PredictionV2: b"ledger/seal/v2\0",
    Measurement: b"ledger/measurement/v1\0",
    MeasurementV2: b"ledger/measurement/v2\0",
    RatioMeasurement: b"ledger/ratio/v1\0",
    Void: b"ledger/void/v1\0",
    Reveal: b"ledger/reveal/v1\0",
    Order: b"ledger/order/v2\0",
    Hardware: b"",
    KernelSource: b"",
    ForecasterCode: b"",
    ForecasterAnswers: b"",
    MeasurementSet: b"",
    Opening: b"",
    Pulse: b"",
}

_SCHEMAS: dict[str, type[Prediction | Measurement | RatioMeasurement | Void | Reveal]] = {
    "ledger/seal/1": Prediction,
    "ledger/seal/2": PredictionV2,
    "ledger/measurement/1": Measurement,
    "ledger/measurement/2": MeasurementV2,
    "ledger/ratio/1": RatioMeasurement,
    "ledger/void/1": Void,
    "ledger/reveal/1": Reveal,
}


def canonical(value: Any) -> bytes:
    """Return the RFC 8785 bytes of a JSON value.

    Raises: RecordError for a value that RFC 8785 cannot carry (an integer beyond 2**53 - 1, NaN, a lone surrogate).
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise RecordError(
            f"value has no canonical JSON form: {error}; expected finite numbers and valid text"
        ) from error


# Where sorted JSON and RFC 8785 may differ: integers beyond 2**53, and keys beyond U+FFFF, which sort otherwise.
_MAY_DIFFER = re.compile(rb"[:,\[]-?[0-9]{16}|[\xf0-\xff]")
_SORTED_JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def canonical_without_fractions(value: Any) -> bytes:
    """Return the RFC 8785 bytes of a JSON value that holds no fraction, faster than `canonical`. Raises: as it does."""
    try:
        data = _SORTED_JSON.encode(value).encode()
    except UnicodeEncodeError:
        return canonical(value)
    return data if _MAY_DIFFER.search(data) is None else canonical(value)


def encode(record: Record) -> bytes:
    """Return the stored bytes of a record."""
    value = record.model_dump(mode="json", by_alias=True)
    return canonical_without_fractions(value) if is_closed(record) else canonical(value)


def record_id(kind: type[Record], data: bytes) -> str:
    """Return the id of stored bytes: SHA-256 over the kind's domain prefix and the bytes.

    The prefix of a hardware profile, of a kernel's sources and of what a forecaster leaves is empty: objects are named
    by the plain SHA-256 of their bytes.
    """
    return hashlib.sha256(id_input(kind, data)).hexdigest()


def id_input(kind: type[Record], data: bytes) -> bytes:
    """Return what is hashed into the id of stored bytes: the kind's domain prefix and the bytes."""
    return _DOMAINS[kind] + data


def object_id(data: bytes) -> str:
    """Return the content address of an object (kernel source, hardware profile, attachment): its plain SHA-256."""
    return hashlib.sha256(data).hexdigest()


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        repeated = min(name for name, count in counts.items() if count > 1)
        raise ParseError(f"duplicate key {repeated[:80]!r} in one object; expected each key once")
    return members


def _no_constant(text: str) -> NoReturn:
    raise ParseError(f"number {text} is not JSON; expected a finite number")


# A string, whether it ends or not, or a bracket. Possessive, so that no text makes it look at a byte twice.
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


def _depth_is_bounded(data: bytes) -> bool:
    """Tell whether bracket nesting stays within MAX_DEPTH, ignoring brackets inside strings."""
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(data):
        first = data[match.start()]
        if first in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                return False
        elif first in b"]}":
            depth -= 1
    return True


def _check_size(data: bytes, what: str) -> None:
    """Check that text is short enough to be parsed in bounded time and memory. Raises: ParseError."""
    if len(data) > MAX_RECORD_BYTES:
        raise ParseError(f"{what}: {len(data)} bytes; expected at most {MAX_RECORD_BYTES}")
    if len(data) > MAX_RECORD_VALUES and (values := values_of(data)) > MAX_RECORD_VALUES:
        raise ParseError(f"{what}: {values} commas and brackets; expected at most {MAX_RECORD_VALUES}")


def parse_json(data: bytes, *, what: str) -> Any:
    """Return the value of strict JSON text: UTF-8 without BOM, no duplicate key, no NaN, bounded size and depth.

    Raises: ParseError, naming `what`.
    """
    _check_size(data, what)
    # A deep document needs many brackets; only then is the exact count worth its time.
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and not _depth_is_bounded(data):
        raise ParseError(f"{what}: nested deeper than {MAX_DEPTH} levels; expected a flat record")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except ParseError as error:
        raise ParseError(f"{what}: {error}") from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ParseError(f"{what}: not JSON ({error}); expected UTF-8 JSON without a byte-order mark") from error


@contextlib.contextmanager
def record_errors(what: str, kind: type[Record] | None = None) -> Iterator[None]:
    """Raise RecordError, naming `what` and the fields, where a record made within does not validate.

    kind: of that record, so that its keys are named to who gave another one.
    """
    try:
        yield
    except ValidationError as error:
        raise RecordError(explain(error, what=what, kind=kind)) from error


def validate(kind: type[R], value: Any, *, what: str) -> R:
    """Return `value` (plain JSON types) as a record of `kind`. Raises: RecordError, naming `what` and the field."""
    try:
        return kind.model_validate_json(json.dumps(value, allow_nan=False))
    except ValidationError as error:
        raise RecordError(explain(error, what=what, kind=kind)) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{what}: {error}") from error


def decode(kind: type[R], data: bytes, *, what: str) -> R:
    """Return the record whose stored bytes are exactly `data`.

    Raises: ParseError, RecordError; EvidenceRefused when the bytes are not the canonical form of what they say.
    """
    _check_size(data, what)
    if (exact := read_canonical(kind, data)) is not None:
        return exact
    with contextlib.suppress(ValueError, LedgerError):
        # Bytes that a record encodes to are its canonical form; only other bytes need an explanation.
        if encode(record := kind.model_validate_json(data)) == data:
            return record
    value = parse_json(data, what=what)
    record = validate(kind, value, what=what)
    if canonical(value) != data or encode(record) != data:
        raise EvidenceRefused(f"{what}: bytes are not the canonical form of their record; expected RFC 8785 JSON")
    return record


def decode_any(data: bytes, *, what: str) -> Prediction | Measurement | RatioMeasurement | Void | Reveal:
    """Return the stored record whose kind its schema names. Raises: as `decode`; RecordError for an unknown schema."""
    value = parse_json(data, what=what)
    schema = value.get("schema") if isinstance(value, dict) else None
    kind = _SCHEMAS.get(schema) if isinstance(schema, str) else None
    if kind is None:
        known = ", ".join(sorted(_SCHEMAS))
        raise RecordError(f"{what}: schema is {schema!r}; expected one of {known} (a newer ledger may know it)")
    return decode(kind, data, what=what)


def cell_key(case: Case) -> str:
    """Return the name of a case within its seal, such as rmsnorm_matmul-B1-H2048-O2048-fp16.

    In the name of a callable, module:name, the colon is a dot.
    """
    sizes = "-".join(f"{key}{value}" for key, value in sorted(case.shape.items()))
    return f"{case.kernel.replace(':', '.')}-{sizes}-{case.dtype}"


def kind_of(identity: str, data: bytes, kinds: Iterable[type[R]]) -> type[R] | None:
    """Return the kind under whose domain the stored bytes have this id; None when there is none."""
    return next((kind for kind in kinds if record_id(kind, data) == identity), None)


def next_link(parents: dict[str, int]) -> tuple[int, tuple[str, ...]]:
    """Return the sequence and the `previous` of a new seal, given the ids and sequences of the seals at the tips."""
    return 1 + max(parents.values(), default=0), tuple(sorted(parents))


def record_path(folder: str, identity: str, suffix: str = ".json") -> str:
    """Return where a record is stored: FOLDER/ab/ab12….json, sharded by the first byte of its id."""
    return f"{folder}/{identity[:2]}/{identity}{suffix}"


def object_path(folder: str, digest: str) -> str:
    """Return where a content-addressed object is stored: FOLDER/objects/ab/ab12…."""
    return f"{folder}/objects/{digest[:2]}/{digest}"
