"""Tests that records whose equal parts are kept once are the records that were read."""

from __future__ import annotations

import builders
import pytest
from builders import forecast, measurement, prediction

from ledger.budgets import weight_bytes
from ledger.canonical import decode, encode
from ledger.evidence.shared_parts import SharedParts


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def stored(request, monkeypatch):
    monkeypatch.setattr(builders, "VERSION", request.param)
    cell = forecast()
    return [
        encode(one) for one in (prediction(cell), measurement(cell, seal="ab" * 32), prediction(cell, forecast(B=8)))
    ]


def kinds(stored):
    from ledger.canonical import decode_any

    return [type(decode_any(data, what="record")) for data in stored]


def test_shared_records_are_equal_and_written_alike(stored):
    shared = SharedParts()
    for kind, data in zip(kinds(stored), stored, strict=True):
        record, other = decode(kind, data, what="record"), decode(kind, data, what="record")
        shared.share(record)
        assert record == other and encode(record) == data
        changed = record.model_copy(update={"tool": record.tool})
        assert changed.model_fields_set == other.model_fields_set and changed == record


def test_equal_parts_are_one_object_and_weigh_once(stored):
    shared = SharedParts()
    seal, measured, campaign = (
        decode(kind, data, what="record") for kind, data in zip(kinds(stored), stored, strict=True)
    )
    for record in (seal, measured, campaign):
        shared.share(record)
    assert seal.cells[0].case is measured.case is campaign.cells[0].case
    assert campaign.cells[0].protocol is campaign.cells[1].protocol
    assert campaign.cells[0].case is not campaign.cells[1].case
    assert 0 < shared.spared < sum(map(weight_bytes, stored))
