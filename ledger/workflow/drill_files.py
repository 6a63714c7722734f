"""Reads and writes drill files."""

from __future__ import annotations

import json
from pathlib import Path as FilePath

from ledger.analysis.drill import Drill
from ledger.canonical import parse_json, validate
from ledger.errors import InputError
from ledger.record_files import read_bytes, write_atomically

_MOST_BYTES = 16 * 1024 * 1024


def read_drill(path: FilePath) -> Drill:
    """Return a drill file. Raises: InputError, RecordError when it is none or names a profile that it lacks."""
    drill = validate(Drill, parse_json(read_bytes(path, limit=_MOST_BYTES), what=str(path)), what=str(path))
    for question in drill.questions:
        if question.forecast.hardware_sha256 not in drill.hardware:
            raise InputError(f"{path}: {question.forecast.cell} names a profile that is not in the file")
        if question.measurement.timing is None or question.measurement.cell != question.forecast.cell:
            raise InputError(f"{path}: {question.forecast.cell} has no timing of its own; expected a measured cell")
    if not drill.questions:
        raise InputError(f"{path}: no question; expected at least one measured cell")
    return drill


def write_drill(path: FilePath, drill: Drill) -> None:
    """Write a drill file, one question a line."""
    value = drill.model_dump(mode="json", by_alias=True)
    questions = ",\n".join(json.dumps(question, sort_keys=True) for question in value.pop("questions"))
    head = json.dumps(value, sort_keys=True).removesuffix("}")
    write_atomically(path, f'{head}, "questions": [\n{questions}\n]}}\n'.encode())
