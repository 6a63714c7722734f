"""Reads the cells of a campaign file that a comparison times; its forecasts are not needed."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.campaign import Request, parse_campaign
from ledger.errors import InputError
from ledger.record_files import parse_yaml, read_bytes

_UNUSED = {"regime": "hbm-bound", "pct": 50}


def suite_requests(path: FilePath, hardware: str) -> tuple[Request, ...]:
    """Return the cells of a campaign file on one device; `hardware`, `regime` and `pct` may be missing.

    Raises: InputError, ParseError, RecordError.
    """
    document = parse_yaml(read_bytes(path), what=str(path))
    if isinstance(document, dict):
        document = {"hardware": hardware, **document}
        cells = document.get("cells")
        if isinstance(cells, list):
            document["cells"] = [_complete(cell) for cell in cells]
    _, requests = parse_campaign(document, what=str(path))
    found = tuple(one for one in requests if one.hardware == hardware)
    if not found:
        others = ", ".join(sorted({one.hardware for one in requests}))
        raise InputError(f"{path}: has cells for {others} only; expected some for {hardware}, or no hardware at all")
    return found


def _complete(cell: Any) -> Any:
    return {**_UNUSED, **cell} if isinstance(cell, dict) else cell
