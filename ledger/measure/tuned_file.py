"""Tunes cells one by one and writes the file for review after each: an interruption loses one cell at most."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.tuning import FILE_SCHEMA, merged
from ledger.canonical import parse_json
from ledger.device.facts import facts_for, require_profile
from ledger.kernel_files import KernelFile
from ledger.measure.contestants import Cell
from ledger.measure.tune import OnProgress, tune
from ledger.record_files import read_bytes, write_atomically
from ledger.records import Hardware


def tune_cells(
    file: KernelFile,
    hardware: Hardware,
    cells: Sequence[Cell],
    *,
    log: FilePath,
    output: FilePath,
    most: int | None,
    progress_of: Callable[[str], AbstractContextManager[OnProgress]],
    on_cell: Callable[[str], None],
) -> dict[str, Any]:
    """Return the document of this run; in `output` the rows of other cells are kept.

    log, most: as tune. progress_of: title of a cell -> its progress. on_cell: takes the counts of a cell when it is
    done. Raises: as tune; InputError where `output` is of another kernel or device.
    """
    require_profile(hardware, facts_for(hardware))
    log.parent.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "schema": FILE_SCHEMA,
        "kernel": file.kernel.name,
        "hardware": hardware.name,
        "rows": [],
    }
    for shape, dtype in cells:
        title = f"{file.kernel.name} {','.join(f'{key}={size}' for key, size in shape.items())} {dtype}"
        with progress_of(title) as on_progress:
            tuned = tune(file, hardware=hardware, shape=shape, dtype=dtype, log=log, most=most, on_progress=on_progress)
        on_cell(tuned.summary)
        document["rows"].append(tuned.row)
        earlier = parse_json(read_bytes(output), what=str(output)) if output.exists() else None
        write_atomically(output, (json.dumps(merged(earlier, document), indent=1) + "\n").encode())
    return document
