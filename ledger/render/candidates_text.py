"""Renders the candidates of `ledger tune --dry-run`, as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.analysis.tuning import Choice
from ledger.kernel import Kernel
from ledger.operations import Shape
from ledger.records import Dtype, Hardware


def candidates_document(kernel: Kernel, shape: Shape, dtype: Dtype, choice: Choice) -> dict[str, Any]:
    """Return the candidates of a cell as one JSON value. Units: microseconds."""
    return {
        "kernel": kernel.name,
        "shape": dict(shape),
        "dtype": dtype,
        "kept": [{"config": one.config, "bound_us": round(1e6 * one.bound_s, 4)} for one in choice.kept],
        "dropped": [{"config": one.config, "why": one.why} for one in choice.dropped],
    }


def candidates_text(kernel: Kernel, shape: Shape, dtype: Dtype, choice: Choice, *, hardware: Hardware) -> str:
    """Return the candidates of a cell, one a line, those to be timed first."""
    lines = [f"{kernel.name} {_pairs(shape)} {dtype} on {hardware.name}"]
    lines += [f"  {1e6 * kept.bound_s:8.2f} µs at least  {_pairs(kept.config)}" for kept in choice.kept]
    lines += [f"  dropped  {_pairs(dropped.config)}: {dropped.why}" for dropped in choice.dropped]
    return "\n".join(lines)


def _pairs(values: Mapping[str, int | str]) -> str:
    return ",".join(f"{key}={value}" for key, value in values.items())
