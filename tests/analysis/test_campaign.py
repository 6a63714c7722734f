"""Tests the campaign file: grids, defaults, bounds and exact scaling."""

from __future__ import annotations

import pytest

from ledger.analysis.campaign import milli, millionths, parse_campaign
from ledger.errors import RecordError
from ledger.record_files import parse_yaml

GRID = b"""
campaign: first
hardware: h200
kernel: rmsnorm_matmul
why: a grid
cells:
  - {dtype: [fp16, bf16], shape: {B: [1, 8], H: 2048, O: 2048}, regime: hbm-bound, pct: 50.5}
  - {kernel: matmul, dtype: fp16, shape: {M: 64, N: 64, K: 64}, regime: launch-bound, pct: 1, low: 0.5, high: 2}
"""


def read(text: bytes):
    return parse_campaign(parse_yaml(text, what="c.yaml"), what="c.yaml")


def test_grid_expands_in_order_with_defaults():
    campaign, requests = read(GRID)
    assert campaign.campaign == "first"
    assert [(r.kernel, r.dtype, r.shape) for r in requests] == [
        ("rmsnorm_matmul", "fp16", {"B": 1, "H": 2048, "O": 2048}),
        ("rmsnorm_matmul", "fp16", {"B": 8, "H": 2048, "O": 2048}),
        ("rmsnorm_matmul", "bf16", {"B": 1, "H": 2048, "O": 2048}),
        ("rmsnorm_matmul", "bf16", {"B": 8, "H": 2048, "O": 2048}),
        ("matmul", "fp16", {"M": 64, "N": 64, "K": 64}),
    ]
    assert {request.hardware for request in requests} == {"h200"}
    assert (requests[0].pct, requests[0].low, requests[4].low, requests[4].high) == (50.5, None, 0.5, 2.0)


WRONG = {
    "no-kernel": GRID.replace(b"kernel: rmsnorm_matmul\n", b""),
    "no-cells": b"campaign: first\ncells: []\n",
    "not-a-mapping": b"- 1\n",
    "empty": b"",
    "percent-zero": GRID.replace(b"pct: 50.5", b"pct: 0"),
    "percent-above-100": GRID.replace(b"pct: 50.5", b"pct: 100.1"),
    "percent-as-text": GRID.replace(b"pct: 50.5", b"pct: '50'"),
    "unknown-regime": GRID.replace(b"hbm-bound", b"memory-bound"),
    "unknown-dtype": GRID.replace(b"bf16]", b"fp12]"),
    "unknown-key": GRID.replace(b"why: a grid", b"why: a grid\nbecause: x"),
    "size-zero": GRID.replace(b"B: [1, 8]", b"B: [1, 0]"),
    "size-fraction": GRID.replace(b"B: [1, 8]", b"B: [1.5]"),
    "probability-above-one": GRID.replace(b"pct: 50.5", b"pct: 50.5, prob: {hbm-bound: 1.5}"),
    "name-with-slash": GRID.replace(b"campaign: first", b"campaign: ../first"),
    "huge-size": GRID.replace(b"H: 2048", b"H: 99999999999999999999"),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_wrong_files_are_refused_with_the_file_named(text):
    with pytest.raises(RecordError, match=r"^c\.yaml"):
        read(text)


def test_grid_is_bounded():
    sizes = ", ".join(str(n) for n in range(1, 50))
    text = GRID.replace(b"B: [1, 8], H: 2048, O: 2048", f"B: [{sizes}], H: [{sizes}], O: [{sizes}]".encode())
    with pytest.raises(RecordError, match="at most 10000"):
        read(text)


@pytest.mark.parametrize(("percent", "thousandths"), [(0.001, 1), (50.5, 50_500), (100, 100_000), (0.1 + 0.2, 300)])
def test_milli(percent, thousandths):
    assert milli(percent) == thousandths


def test_millionths_of_thirds_are_refused_by_the_record_not_bent():
    assert millionths({"hbm-bound": 0.8, "latency-bound": 0.2}) == {"hbm-bound": 800_000, "latency-bound": 200_000}
    assert sum(millionths({"hbm-bound": 1 / 3, "latency-bound": 2 / 3}).values()) == 1_000_000
