"""Runs the attack corpus: each case comes to what it must, its twin passes, and nothing of either is run."""

from __future__ import annotations

import re

import pytest
from attacks import CASES

from ledger.evidence.audit import audit
from ledger.showing.listing import render_audit


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_attack(case, tmp_path):
    canary = tmp_path / "canary"
    folder = case.build(tmp_path / "attack", canary)
    canary.unlink(missing_ok=True)
    result = audit(str(folder))
    codes = {finding.code for finding in result.findings if finding.severity == "refused"}
    flags = {finding.code for finding in result.findings if finding.severity != "refused"}
    assert not canary.exists(), "the audited repository ran a program"
    if case.outcome == "flagged":
        assert (result.verdict, codes) == ("holds", set()), result
        assert case.code in flags
    else:
        assert result.verdict == case.outcome, (result.reason, result.findings)
        assert case.code in ("", *codes), codes
        if case.outcome == "holds":
            assert not flags


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_printed_audit_cannot_act_on_a_terminal(case, tmp_path):
    from io import StringIO

    from rich.console import Console

    folder = case.build(tmp_path / "attack", tmp_path / "canary")
    screen = StringIO()
    render_audit(audit(str(folder)), Console(file=screen, width=200, color_system=None))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]", screen.getvalue())


TWINS = {case.twin.__name__: case.twin for case in CASES.values()}


@pytest.mark.parametrize("build", TWINS.values(), ids=TWINS)
def test_twin_passes(build, tmp_path):
    result = audit(str(build(tmp_path / "twin", tmp_path / "canary")), recomputed=True)
    assert (result.verdict, result.findings) == ("holds", ())
