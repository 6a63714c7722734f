"""Compares what docs/kernels.md says of calls to shipped kernels with the recorded data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "kernels.md").read_text(encoding="utf-8").split())


def recorded(name: str) -> Any:
    return json.loads((ROOT / "tests" / "assets" / "library" / f"{name}-h200.json").read_text(encoding="utf-8"))


def test_the_page_tells_the_host_time_of_a_call():
    found = recorded("host-overhead")
    calls, launches = ([row[key] for row in found["kernels"].values()] for key in ("call", "launch"))
    assert all(call > launch for call, launch in zip(calls, launches, strict=True))
    assert (
        f"a call takes {min(calls):.0f} to {max(calls):.0f} µs, the launch alone {min(launches):.0f} to "
        f"{max(launches):.0f}, `torch.matmul` {found['torch_matmul']:.0f} "
    ) in PAGE
