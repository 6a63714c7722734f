"""Reads the CSV that Nsight Compute prints of a report (`--csv --page raw --print-units base`). Pure.

The text must have a header row and a unit row; columns are found by name, never by position. Values stay as printed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection

from ledger.errors import ParseError
from ledger.records import Metric, ProfiledKernel

_ID, _KERNEL = "ID", "Kernel Name"
_ABSENT = ("", "n/a", "N/A")


def parse_raw(text: str, *, wanted: Collection[str], what: str) -> tuple[ProfiledKernel, ...]:
    """Return the profiled kernels in order, with those of the wanted metrics that have a value.

    Raises: ParseError, naming `what`, for an empty or truncated text, or another format.
    """
    lines = text.splitlines(keepends=True)
    starts = [number for number, line in enumerate(lines) if line.startswith((f'"{_ID}",', f"{_ID},"))]
    if not starts:
        first = next((line.strip() for line in lines if line.strip()), "nothing")
        raise ParseError(
            f"{what}: no header row with {_ID} and {_KERNEL} (got {first[:200]!r}); expected ncu's raw page"
        )
    try:
        rows = [row for row in csv.reader(io.StringIO("".join(lines[starts[0] :])), strict=True) if row]
    except csv.Error as error:
        raise ParseError(f"{what}: not CSV ({error}); expected ncu's raw page, whole") from error
    header, *rest = rows
    _check_header(header, what)
    if not rest or rest[0][header.index(_ID)].strip():
        raise ParseError(f"{what}: no unit row after the header; expected one: print with --page raw")
    units, *kernels = rest
    if not kernels:
        raise ParseError(f"{what}: contains no kernel; expected at least one")
    for number, row in enumerate([units, *kernels]):
        if len(row) != len(header):
            raise ParseError(
                f"{what}: row {number + 2} has {len(row)} fields; expected {len(header)}: is it truncated?"
            )
    try:
        return tuple(_kernel(header, units, row, wanted, what) for row in kernels)
    except ValueError as error:
        # A record refuses a control character and a value longer than any number.
        raise ParseError(f"{what}: contains a value that no profiler prints ({_shortened(error)})") from error


def _shortened(error: ValueError) -> str:
    return " ".join(str(error).split())[:200]


def _check_header(header: list[str], what: str) -> None:
    if _KERNEL not in header:
        raise ParseError(f"{what}: no column {_KERNEL!r}; expected ncu's raw page")
    for name in header:
        # ncu prints every column once.
        if name and header.count(name) > 1:
            raise ParseError(f"{what}: duplicate column {name!r}; expected each once")


def _kernel(header: list[str], units: list[str], row: list[str], wanted: Collection[str], what: str) -> ProfiledKernel:
    cells = dict(zip(header, row, strict=True))
    if not cells[_ID].strip().isdigit():
        raise ParseError(f"{what}: {_ID} is {cells[_ID][:40]!r}; expected a number")
    unit_of = dict(zip(header, units, strict=True))
    return ProfiledKernel(
        name=cells[_KERNEL][:2000],
        metrics={
            name: Metric(value=cells[name].strip(), unit=unit_of[name].strip())
            for name in wanted
            if cells.get(name, "").strip() not in _ABSENT
        },
    )
