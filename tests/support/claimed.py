"""Builds ledgers with a claim of a ratio between two commits, honest or with one thing changed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import builders
from builders import PROFILE, Ledger, Seal, forecast, honest_samples, manifest_of
from samples import make_measurement

from ledger.analysis.claims import PARAMETERS, judged, stored
from ledger.canonical import encode, object_id, record_id, record_path
from ledger.measure.comparison_effort import claim_protocol
from ledger.records import Protocol, Ratio, RatioMeasurement, Revision, TimedSide, Tool

BASE_SOURCE = b'"""A kernel of the tests, before a change."""\n'
HEAD_SOURCE = b'"""A kernel of the tests, after it."""\n'
FILE = "kernels/rmsnorm_matmul.py"


def first_protocol(implementation: str = "triton", claims: int = 1) -> Protocol:
    """Return the protocol interleaved/1, which claims had before input sets were copied."""
    values = claim_protocol(implementation, claims).parameters
    return Protocol(name="interleaved/1", parameters={name: values[name] for name in PARAMETERS["interleaved/1"]})


class ClaimLedger(Ledger):
    """Stand for a repository with two versions of a kernel in two commits."""

    def __init__(self, folder: Path) -> None:
        """Commit both versions; the second begins with CR LF, as a checkout elsewhere may have written it."""
        super().__init__(folder)
        self.write(FILE, BASE_SOURCE)
        self.base = self.commit("base")
        self.write(FILE, HEAD_SOURCE.replace(b"\n", b"\r\n"))
        self.head_commit = self.commit("head")

    def ratio(self, **changes: Any) -> Ratio:
        """Return a claim that head takes 1/1.1 of the time; keyword arguments replace fields."""
        like = forecast(dtype="fp16")
        fields: dict[str, Any] = {
            "cell": like.cell,
            "operation": like.operation,
            "case": like.case,
            "base": Revision(commit=self.base, kernel_sha256=object_id(manifest_of(BASE_SOURCE))),
            "head": Revision(commit=self.head_commit, kernel_sha256=object_id(manifest_of(HEAD_SOURCE))),
            "hardware_sha256": object_id(PROFILE),
            "protocol": claim_protocol("triton", 1),
            "ratio_ppm": 1_100_000,
            "low_ppm": 1_050_000,
            "high_ppm": 1_150_000,
            "sight": "blind",
            "known": "",
            "pins": {},
            "why": "",
        }
        return Ratio(**{**fields, **changes})

    def put_claim(self, **changes: Any) -> Seal:
        """Write a seal of one claim and its objects into the index."""
        for source in (BASE_SOURCE, HEAD_SOURCE):
            self.put_kernel(source)
        return self.put_seal(cells=(), ratios=(self.ratio(**changes),))

    def claim(self, **changes: Any) -> Seal:
        """Seal one claim in one commit."""
        sealed = self.put_claim(**changes)
        self.commit("Seal a claim")
        return sealed

    def put_settled(self, sealed: Seal, *, speed: float = 1.1, **changes: Any) -> str:
        """Write what settles a claim into the index; return its path."""
        data = encode(settled(sealed, speed=speed, **changes))
        return self.write(record_path("verifications", record_id(RatioMeasurement, data)), data)

    def settle(self, sealed: Seal, **changes: Any) -> str:
        """Record what settles a claim in one commit; return its path."""
        path = self.put_settled(sealed, **changes)
        self.commit("Measure a claim")
        return path


def settled(sealed: Seal, *, speed: float = 1.1, **changes: Any) -> RatioMeasurement:
    """Return an honest measurement of a sealed claim. speed: time of base ÷ time of head."""
    claim = sealed.prediction.ratios[0]
    draw = random.Random(speed)
    rounds = [[round(2e6 * draw.gauss(1, 0.002) / by) for _ in range(100)] for by in (1.0, speed, 1.0)]
    like = make_measurement(forecast(dtype="fp16"))
    samples = honest_samples(claim, seal=sealed.id)

    def side(revision: Revision, taken: list[int]) -> TimedSide:
        return TimedSide(
            commit=revision.commit,
            kernel_sha256=revision.kernel_sha256,
            config=claim.case.config,
            correctness=like.correctness,
            samples=samples,
            rounds_ps=tuple(taken),
            median_ps=sorted(taken)[50],
        )

    fields: dict[str, Any] = {
        "schema": "ledger/ratio/1",
        "tool": Tool(name="ledger", version="0"),
        "seal": sealed.id,
        "cell": claim.cell,
        "run": 0,
        "anchor": None,
        "case": claim.case,
        "hardware_sha256": claim.hardware_sha256,
        "protocol": claim.protocol,
        "device": like.device,
        "status": "measured",
        "failure": None,
        "failed_side": None,
        "base": side(claim.base, rounds[0]),
        "head": side(claim.head, rounds[1]),
        "again_ps": tuple(rounds[2]),
        "input_sets": 1000,
        "bytes_per_set": 300_000,
        **stored(judged(claim.protocol, *rounds)),
        "started_at": "2026-01-02T03:04:05Z",
        "device_ms": 1000,
        "extensions": {},
    }
    return RatioMeasurement(**{**fields, **changes})


def honest_claim(folder: Path) -> tuple[ClaimLedger, Seal]:
    """Return a ledger with one claim that is settled."""
    assert builders.VERSION == 2, "claims are of version 2"
    ledger = ClaimLedger(folder)
    sealed = ledger.claim()
    ledger.settle(sealed)
    return ledger, sealed
