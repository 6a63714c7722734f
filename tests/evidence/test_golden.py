"""Tests that the golden ledger is verified by this version as by the one that wrote it, and that no flipped bit passes.

`tests/golden/ledger.bundle` was written once, with format 1, and ledger-2.bundle with format 2; every later version
must come to the same verdicts.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from builders import Ledger, forecast, measurement
from covering import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import JSON

from ledger.canonical import canonical, decode, decode_any, encode, object_id, record_id
from ledger.errors import LedgerError
from ledger.evidence.audit import audit
from ledger.evidence.audit_result import document
from ledger.record_files import parse_yaml
from ledger.records import Hardware, Measurement, Prediction

GOLDEN = Path(__file__).parents[1] / "golden"
KINDS = {
    "": {"Prediction": 5, "Measurement": 4, "Void": 1},
    "-2": {"PredictionV2": 14, "MeasurementV2": 11, "RatioMeasurement": 1, "Reveal": 1, "Void": 1},
}


@pytest.fixture(scope="module", params=["", "-2"], ids=["format1", "format2"])
def version(request):
    return request.param


@pytest.fixture(scope="module")
def golden(version, tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden") / "ledger"
    bundle = GOLDEN / f"ledger{version}.bundle"
    subprocess.run(["git", "clone", "-q", str(bundle), str(folder), "-b", "main"], check=True)
    return folder


@pytest.fixture(scope="module")
def expected(version):
    return json.loads((GOLDEN / f"audit{version}.json").read_text())


def _same(new: object, old: object) -> bool:
    """Tell whether what is said includes all that was said: later versions may say more."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and _same(new[key], value) for key, value in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and len(new) == len(old) and all(map(_same, new, old))
    return math.isclose(new, old) if isinstance(old, float) and isinstance(new, float) else new == old


def test_golden_ledger_is_audited_as_when_it_was_written(golden, expected):
    said = json.loads(json.dumps(document(audit(str(golden), recomputed=True))))
    assert _same(said, expected)


def test_golden_ledger_has_one_of_everything(expected):
    assert {cell["state"] for cell in expected["predictions"]} == {"measured", "open", "void"}
    assert {cell["blind"] for cell in expected["predictions"]} == {True, False}
    assert any(run["status"] == "failed" for cell in expected["predictions"] for run in cell["measured"])


def test_golden_records_keep_their_names_and_bytes(golden, version):
    kinds: Counter[str] = Counter()
    for path in sorted(golden.glob("*/??/*.json")):
        record = decode_any(path.read_bytes(), what=path.name)
        assert record_id(type(record), path.read_bytes()) == path.stem
        assert encode(record) == path.read_bytes() == canonical(json.loads(path.read_bytes()))
        kinds[type(record).__name__] += 1
    assert kinds == KINDS[version]


def test_no_flipped_bit_of_a_record_keeps_its_name():
    cell = forecast()
    seal = encode(Prediction.model_validate(_seal_of(cell)))
    record = encode(measurement(cell, seal=record_id(Prediction, seal)))
    flips = 0
    for kind, data in ((Prediction, seal), (Measurement, record)):
        name = record_id(kind, data)
        for bit in range(8 * len(data)):
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            assert record_id(kind, bytes(flipped)) != name
            flips += 1
    report = random.Random(1).randbytes(100_000)
    name = object_id(report)
    for bit in random.Random(2).sample(range(8 * len(report)), 10_000):
        flipped = bytearray(report)
        flipped[bit // 8] ^= 1 << bit % 8
        assert object_id(bytes(flipped)) != name
    assert flips > 20_000


def _seal_of(cell):
    from builders import prediction

    return prediction(cell)


@pytest.mark.parametrize("bit", random.Random(3).sample(range(8 * 1500), 12))
def test_a_flipped_bit_in_a_committed_file_is_refused(tmp_path, bit):
    """Flip a bit of the stored file before its first commit, so that only its digest can tell."""
    ledger = Ledger(tmp_path / "ledger")
    sealed = ledger.put_seal()
    data = bytearray((ledger.root / sealed.path).read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    ledger.write(sealed.path, bytes(data))
    ledger.commit()
    assert ledger.codes() == {"id-mismatch"}


# Fuzzing: whatever comes in, a LedgerError or a record comes out.


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_any_bytes_are_answered(data):
    for read in (lambda: decode_any(data, what="x"), lambda: parse_yaml(data, what="x")):
        try:
            read()
        except LedgerError:
            pass


@settings(max_examples=200)
@given(st.text(max_size=200))
def test_any_yaml_is_answered(text):
    try:
        parse_yaml(text.encode("utf-8", "surrogatepass"), what="x")
    except LedgerError:
        pass


@settings(max_examples=300)
@given(JSON, st.sampled_from(["ledger/seal/1", "ledger/measurement/1", "ledger/void/1"]))
def test_any_json_is_answered(value, schema):
    document = {**value, "schema": schema} if isinstance(value, dict) else value
    data = json.dumps(document).encode()
    for kind in (Prediction, Measurement, Hardware):
        try:
            decode(kind, data, what="x")
        except LedgerError:
            pass
    try:
        decode_any(data, what="x")
    except LedgerError:
        pass


FIELDS = sorted(json.loads(encode(measurement(forecast(), seal="ab" * 32))))


@examples(80, 300)
def test_a_record_with_any_field_replaced_is_answered(examples):
    record = encode(measurement(forecast(), seal="ab" * 32))

    @settings(max_examples=examples)
    @given(st.sampled_from(FIELDS), JSON)
    def run(field, value):
        document = json.loads(record)
        document[field] = value
        try:
            data = canonical(document)
        except LedgerError:
            return
        try:
            assert encode(decode(Measurement, data, what="x")) == data
        except LedgerError:
            pass

    run()


@examples(60, 200)
def test_encoding_is_rfc_8785_for_any_text_and_extension(examples):
    record = measurement(forecast(), seal="ab" * 32)

    @settings(max_examples=examples)
    @given(st.dictionaries(st.text(max_size=8), JSON, max_size=4), st.text(max_size=40))
    def run(extensions, text):
        changed = record.model_copy(update={"extensions": extensions, "counters_missing": text})
        value = changed.model_dump(mode="json", by_alias=True)
        try:
            expected = canonical(value)
        except LedgerError:
            return
        assert encode(changed) == expected

    run()
