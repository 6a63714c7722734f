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


def test_the_page_tells_what_the_generic_way_costs_on_the_device():
    rows = recorded("callables")["rows"]
    assert all(row["right"] for row in rows)
    operation = [row["operation_percent"] for row in rows]
    plain, more = [one for one in operation if one < 1], [one for one in operation if one >= 1]
    assert (
        f"{len(plain)} of {len(rows)} cells take at most {max(plain):.1f}% more than the kernel's own launcher, the "
        f"others {min(more):.0f} to {max(more):.0f}% more"
    ) in PAGE
    callables, noise = (max(abs(row[f"{key}_percent"]) for row in rows) for key in ("callable", "again"))
    assert callables < 1
    assert f"takes the same time within {callables:.1f}%, noise {noise:.1f}%" in PAGE


def test_the_page_has_the_times_of_a_layer():
    runs = recorded("model-layer")["runs"]
    assert [run["sizes"]["tokens"] for run in runs] == [16, 512, 2048]
    said = {
        "": "ledger", "compiled around the kernels ": "ledger, compiled around the kernels",
        "by torch.compile alone ": "torch.compile",
    }  # fmt: skip
    for words, name in said.items():
        first, second, third = (f"{run['layers'][name]['graph_us']:.0f}" for run in runs)
        assert f"{words or 'takes '}{first}, {second} and {third}" in PAGE
    for run in runs:
        assert all(layer["max_abs_error"] < 0.05 for layer in run["layers"].values())
