"""Runs the attack corpus: each case comes to what it must, its twin passes, and nothing of either is run or acts on a
terminal."""

from __future__ import annotations

import re
from io import StringIO

import builders
import pytest
from attacks import CASES, trust_of
from covering import one_in
from rich.console import Console

from ledger.evidence.audit import audit
from ledger.render.audit_text import render_audit


def _need_keys(needed):
    if needed:
        pytest.importorskip("rfc3161_client", reason="rfc3161-client is not installed")


_ACTS_ON_A_TERMINAL = "[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069]"
# Each attack in one version of records, in turns; the other version is exhaustive.
PAIRS = [
    pytest.param(
        case, version, id=f"{name}-format{version}",
        marks=() if version == case.formats[at % len(case.formats)] else pytest.mark.exhaustive,
    )
    for at, (name, case) in enumerate(CASES.items())
    for version in case.formats
]  # fmt: skip


@pytest.mark.parametrize(("case", "version"), PAIRS)
def test_attack(case, version, tmp_path, monkeypatch):
    _need_keys(case.keys)
    monkeypatch.setattr(builders, "VERSION", version)
    canary = tmp_path / "canary"
    folder = case.build(tmp_path / "attack", canary)
    canary.unlink(missing_ok=True)
    result = audit(str(folder), recomputed=case.recomputed, trust=trust_of(folder) if case.keys else None)
    codes = {finding.code for finding in result.findings if finding.severity == "refused"}
    flags = {finding.code for finding in result.findings if finding.severity != "refused"}
    screen = StringIO()
    render_audit(result, Console(file=screen, width=200, color_system=None))
    assert not canary.exists(), "the audited repository ran a program"
    assert not re.search(_ACTS_ON_A_TERMINAL, screen.getvalue())
    if case.outcome == "flagged":
        assert (result.verdict, codes) == ("holds", set()), result
        assert case.code in flags
    else:
        assert result.verdict == case.outcome, (result.reason, result.findings)
        assert case.code in ("", *codes), codes
        if case.outcome == "holds":
            assert not flags
    if case.levels is not None:
        assert result.book is not None and [cell.levels for cell in result.book.cells] == [case.levels]


TWINS = {
    f"{case.twin.__name__}-format{version}": (case.twin, version) for case in CASES.values() for version in case.formats
}


@pytest.mark.parametrize("name", one_in(3, TWINS, str))
def test_twin_passes(name, tmp_path, monkeypatch):
    build, version = TWINS[name]
    monkeypatch.setattr(builders, "VERSION", version)
    _need_keys(build.__name__ == "witnessed")
    folder = build(tmp_path / "twin", tmp_path / "canary")
    result = audit(str(folder), recomputed=True, trust=trust_of(folder))
    assert (result.verdict, result.findings) == ("holds", ())
    if build.__name__ == "witnessed":
        assert result.book is not None and result.book.cells[0].levels == (0, 1, 2, 3)
