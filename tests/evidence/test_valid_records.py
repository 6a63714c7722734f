"""Judges and renders records that are valid by their schema and mean nothing: a finding, never a failure."""

from __future__ import annotations

import copy
import json
from io import StringIO
from typing import Any

import builders
import pytest
from attacks import counters
from builders import KERNEL_SOURCE, MANIFEST, PROFILE, forecast, honest_samples, measurement, prediction
from covering import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console
from strategies import leaves

from ledger.analysis.book import Book, Commit
from ledger.analysis.score import score_book
from ledger.canonical import encode, object_id, object_path, record_id, record_path
from ledger.evidence.audit_result import Audit, document
from ledger.evidence.judge import judge
from ledger.evidence.recompute import recompute
from ledger.git.history import Change, History
from ledger.records import Hardware, Measurement, MeasurementV2, Prediction, PredictionV2
from ledger.render import report
from ledger.render.audit_text import render_audit

KINDS = {1: (Prediction, Measurement), 2: (PredictionV2, MeasurementV2)}
NUMBERS = [0, 1, 2, 3, 7, 1000, 99_999, 100_000, 2**31, 2**53 - 1, -1, None, True, [], {}]
FRACTIONS = [5e-324, 1e-300, 1e-30, 0.5, 1e15, 1e30, 1e300, 1.7e308]
TEXTS = ["", "0", "-1", "1e308", "1e-320", "1e999", "-1e999", "nan", "inf", "9" * 300, "1,000", "x", str(10**39)]


def parts(version: int) -> dict[str, Any]:
    """Return a profile, a seal and its measurement with counters as plain values; the seal's names are filled in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builders, "VERSION", version)
        cell = forecast()
        measured = measurement(cell, seal="0" * 64, counters=counters(0), counters_missing=None)
        plain = [record.model_dump(mode="json", by_alias=True) for record in (prediction(cell), measured)]
    return {"profile": json.loads(PROFILE), "seal": plain[0], "measurement": plain[1]}


PARTS = {version: parts(version) for version in KINDS}
# What ties the records to each other stays: a record that is refused for it would show nothing.
TIED = {"schema", "hardware_sha256", "kernel_sha256", "cell", "previous", "sequence", "run", "attachments", "anchor"}


def changed(version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Return copies of the records in which a few values are extreme; the same value where both records have it."""
    places = [place for place in leaves(PARTS[version]) if len(place) > 1 and not TIED & set(map(str, place))]
    edit = st.tuples(st.sampled_from(places), st.sampled_from([*NUMBERS, *FRACTIONS, *TEXTS]))

    def apply(edits: list[tuple[tuple[Any, ...], Any]]) -> dict[str, Any]:
        made = copy.deepcopy(PARTS[version])
        for (*path, last), value in edits:
            within = made
            try:
                for key in path:
                    within = within[key]
                within[last] = value
            except (KeyError, IndexError, TypeError):
                continue
        return made

    return st.lists(edit, min_size=1, max_size=4).map(apply)


def _samples(sealed: Any, identity: str) -> dict[str, Any] | None:
    count = sealed.protocol.parameters.get("sample_elements", 0)
    known = sealed.operation == forecast().operation and 0 < count <= 64
    return honest_samples(sealed, seal=identity).model_dump(mode="json") if known else None


def judged(version: int, made: dict[str, Any]) -> Book | None:
    """Judge the records in a history of two commits; None where a schema does not take them."""
    seal_kind, measurement_kind = KINDS[version]
    try:
        profile = encode(Hardware.model_validate_json(json.dumps(made["profile"])))
        (cell,) = made["seal"]["cells"]
        cell["hardware_sha256"] = object_id(profile)
        seal = encode(seal_kind.model_validate_json(json.dumps(made["seal"])))
        identity = record_id(seal_kind, seal)
        tied = {"seal": identity, "cell": cell["cell"], "hardware_sha256": cell["hardware_sha256"]}
        tied |= {"case": cell["case"], "protocol": cell["protocol"]}
        sealed = seal_kind.model_validate_json(seal).cells[0]
        if sealed.case.shape == forecast().case.shape and sealed.case.dtype == forecast().case.dtype:
            tied["samples"] = _samples(sealed, identity) or made["measurement"]["samples"]
        values = {**made["measurement"], **tied}
        measured = encode(measurement_kind.model_validate_json(json.dumps(values)))
    except (ValueError, KeyError, TypeError):
        return None
    objects = {object_path("predictions", object_id(data)): data for data in (KERNEL_SOURCE, MANIFEST, profile)}
    first = {record_path("predictions", identity): seal, **objects}
    second = {record_path("verifications", record_id(measurement_kind, measured)): measured}
    blobs = {object_id(data): data for data in (*first.values(), *second.values())}
    commits = tuple(Commit(sha=f"{n}" * 40, when="2026-01-01T00:00:00Z", author="a", position=n) for n in range(2))
    changes = tuple(
        Change(position, "A", "100644", object_id(data), path)
        for position, files in enumerate((first, second))
        for path, data in files.items()
    )
    tree = {change.path: (change.mode, change.blob) for change in changes}
    history = History("1" * 40, commits, ((), (0,)), lambda: changes, tree)
    return judge(history, lambda blob, limit: blobs[blob] if len(blobs[blob]) <= limit else None)


def shown(book: Book) -> None:
    """Render a book in every form that a reader may ask for."""
    screen = Console(file=StringIO(), width=100, color_system=None)
    report.render(book, screen)
    json.dumps(report.document(book), allow_nan=False)
    report.markdown(book)
    report.html(book)
    audit = Audit("here", "holds", "for a test", book, (), book.findings)
    render_audit(audit, screen)
    json.dumps(document(audit), allow_nan=False)
    if not book.refused:
        score_book(book)
        recompute(book)


def tried(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("version", KINDS)
def test_the_records_hold_as_they_are(version):
    book = judged(version, copy.deepcopy(PARTS[version]))
    assert book is not None and not book.refused
    shown(book)


@examples(100, 300)
@pytest.mark.parametrize("version", KINDS)
def test_any_valid_records_are_judged_and_shown(version, examples):
    @tried(examples)
    @given(changed(version))
    def run(made):
        book = judged(version, made)
        if book is not None:
            shown(book)

    run()


@examples(100, 300)
def test_a_profile_of_any_rate_is_judged(examples):
    @tried(examples)
    @example(0.5)
    @given(st.floats(allow_nan=False, allow_infinity=False, min_value=5e-324))
    def run(value):
        made = copy.deepcopy(PARTS[2])
        for ceilings in made["profile"]["ceilings"].values():
            for peak in filter(None, ceilings["peaks"].values()):
                peak["value"] = value
            ceilings["dram_bandwidth"]["value"] = value
        made["profile"]["limits"]["max_clock_mhz"] = value
        book = judged(2, made)
        assert book is not None and len(book.cells) == 1

    run()


@pytest.mark.parametrize("value", ["1e999", "-1e999", "1.7e308", "-1", "0", "1e-320", "9" * 300])
def test_counters_of_any_size_are_judged(value):
    made = copy.deepcopy(PARTS[2])
    for metric in made["measurement"]["counters"]["kernels"][0]["metrics"].values():
        metric["value"] = value
    book = judged(2, made)
    assert book is not None
    shown(book)
