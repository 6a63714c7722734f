"""Holds what tests of the workflow share: a ledger that has begun and seals version 2."""

from __future__ import annotations

from pathlib import Path

import builders
import pytest
from builders import Ledger, begun


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setattr(builders, "VERSION", 2)
    for name, value in builders.EMPTY_GIT.items():
        monkeypatch.setenv(name, value)
    return begun(tmp_path / "ledger")
