"""Words an unknown name's error with the names that were probably meant, and what to install. Pure but for metadata."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from functools import cache
from urllib.parse import unquote, urlsplit

PACKAGE = "roofline-ledger"

# What the field also calls a data type, a regime or a GPU.
_ALSO_CALLED = {
    "float64": "fp64", "double": "fp64", "float32": "fp32", "float": "fp32", "f32": "fp32", "float16": "fp16",
    "half": "fp16", "f16": "fp16", "bfloat16": "bf16", "fp8": "fp8_e4m3", "float8": "fp8_e4m3", "e4m3": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3", "i8": "int8", "memory": "hbm-bound", "memory-bound": "hbm-bound",
    "bandwidth": "hbm-bound", "bandwidth-bound": "hbm-bound", "dram": "hbm-bound", "dram-bound": "hbm-bound",
    "cache-bound": "l2-bound", "shared-memory-bound": "smem-bound", "shared": "smem-bound", "math": "compute-bound",
    "math-bound": "compute-bound", "tensor": "compute-bound", "overhead": "launch-bound",
    "overhead-bound": "launch-bound", "stall": "latency-bound", "h100": "h100_sxm", "a100": "a100_sxm",
    "mi300": "mi300x", "4090": "rtx_4090", "5090": "rtx_5090",
}  # fmt: skip


def unknown(what: str, got: str, choices: Iterable[str]) -> str:
    """Return the message about a name that is none of the choices, with those that are near it."""
    known = list(choices)
    return f"{what} {got!r} is not known{did_you_mean(got, known)}; expected one of: {', '.join(known)}"


def did_you_mean(got: str, choices: Iterable[str]) -> str:
    """Return the names that were probably meant, in brackets and after a space; empty where none is near."""
    near = nearest(got, choices)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def nearest(got: str, choices: Iterable[str]) -> list[str]:
    """Return at most three choices that a person who wrote `got` may have meant, the likeliest first."""
    known, text = list(choices), got.strip().lower()
    if not text:
        return []
    other = _ALSO_CALLED.get(text.replace("_", "-"), _ALSO_CALLED.get(text))
    begun = [name for name in known if name.lower().startswith(text) or text.startswith(name.lower())]
    begun.sort(key=lambda name: (name != other, not name.lower().startswith(text), abs(len(name) - len(text))))
    if other in known and other not in begun:
        return [other]
    return (begun or difflib.get_close_matches(text, known, n=3, cutoff=0.6))[:3]


@cache
def install_command(extra: str) -> str:
    """Return the command that installs an extra of this package, from where the package itself was installed."""
    return f"pip install '{_source()}[{extra}]'"


def _source() -> str:
    """Return the path or wheel that this package was installed from, where its metadata says so."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        url = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}").get("url", "")
    except (PackageNotFoundError, ValueError):
        url = ""
    parts = urlsplit(url) if isinstance(url, str) else None
    return unquote(parts.path) if parts is not None and parts.scheme == "file" and parts.path else "PATH-OR-WHEEL"
