"""Writes the golden ledger of a version of the record format: python tests/golden/make.py 2

A frozen version is never written again. Version 1 is frozen; version 2 freezes with the first seal of version 2 in
this repository.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "support"), str(HERE.parent.parent)]

import builders
from builders import Ledger, forecast, timing
from claimed import ClaimLedger
from draw_attacks import answer, by_secret, declare, domain, drawn, measure_all, pulse_of
from hidden_attacks import hide, reveal
from samples import failed

from ledger.canonical import encode, record_id, record_path
from ledger.evidence.audit import audit
from ledger.evidence.audit_result import document


def build(folder: Path) -> Ledger:
    """Build a small ledger with one of everything."""
    ledger = ClaimLedger(folder)
    ledger.write("README.md", b"the golden ledger\n")
    ledger.commit("begin")
    pair = ledger.seal(forecast(B=1), forecast(B=2, dtype="bf16"), campaign="pair", why="a campaign: é, 中, \U0001f600")
    ledger.measure(pair, cell=0, attachments={"ncu.csv": b"a,b\n1,2\n"})
    base = ledger.head
    ledger.switch("left", base)
    wrong = ledger.seal(forecast(B=3, dtype="fp32", low_milli=500, high_milli=2_000))
    record = failed(wrong.forecast, "wrong result").model_copy(update={"seal": wrong.id})
    data = encode(record)
    ledger.write(record_path("verifications", record_id(type(record), data)), data)
    ledger.commit("failed run")
    ledger.measure(wrong, run=1)
    ledger.switch("right", base)
    probabilities = {"hbm-bound": 800_000, "latency-bound": 200_000}
    right = ledger.seal(forecast(B=4, probabilities_ppm=probabilities))
    rounds = tuple(range(2_000_000, 2_000_009))
    ledger.measure(right, timing=timing(2_000_004, rounds_ps=rounds, low_ps=rounds[2], high_ps=rounds[6], launch_ps=9))
    ledger.switch("main")
    ledger.merge("left", "right")
    ledger.seal(forecast(B=1, percent_milli=200))
    ledger.void(ledger.seal(forecast(B=5)))
    ledger.settle(ledger.claim())
    ledger.claim(ratio_ppm=1_120_000)
    told = (
        forecast(B=6).model_copy(update={"sight": "blind"}),
        forecast(B=7).model_copy(update={"sight": "near", "known": "B = 4 was timed"}),
    )
    hidden = hide(ledger, *told, forecaster="Grace")
    ledger.measure(hidden)
    reveal(ledger, hidden)
    hide(ledger, forecast(B=8))
    for pulse, how in ((pulse_of(), {}), (pulse_of(None), by_secret())):
        origin = declare(ledger, domain(**how))
        measure_all(ledger, answer(ledger, pulse, drawn(origin, pulse)))
    declare(ledger, domain(cells=2))
    return ledger


def main() -> None:
    """Write the bundle and what an audit says of it."""
    version = sys.argv[1]
    assert version == "2", "version 1 is frozen"
    builders.VERSION = int(version)
    with tempfile.TemporaryDirectory() as name:
        ledger = build(Path(name) / "ledger")
        result = audit(str(ledger.root), recomputed=True)
        assert result.verdict == "holds", result.findings
        ledger.git("bundle", "create", str(HERE / f"ledger-{version}.bundle"), "main")
        said = document(result)
        kept = {key: said[key] for key in ("verdict", "commit", "findings", "predictions")}
        (HERE / f"audit-{version}.json").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
