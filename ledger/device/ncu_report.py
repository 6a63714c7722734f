"""Reads a report that a user made with Nsight Compute: a .ncu-rep file, or the CSV of its raw page. Needs no CUDA.

A .ncu-rep is read by NVIDIA's package ncu-report (the extra `ncu`), which reports no error for an empty, foreign or
truncated file. So the container is checked first: a magic number, a header, and blocks with their lengths.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

from ledger.analysis.metrics import Capability, metric_names
from ledger.device.ncu_csv import parse_raw
from ledger.errors import InputError, MachineError, ParseError
from ledger.record_files import read_bytes
from ledger.records import Metric, ProfiledKernel
from ledger.suggestions import install_command

_MAGIC = b"NVR\0"
_MOST_BYTES = 256 * 1024 * 1024
_PAYLOAD_FIELD = 5
_VARINT_BITS = 63
_NAME, _MAJOR, _MINOR = (
    "device__attribute_display_name",
    "device__attribute_compute_capability_major",
    "device__attribute_compute_capability_minor",
)
_CC = "CC"


@dataclass(frozen=True)
class HandMade:
    """Hold a report: its kernels with the table's metrics, its device and the options of ncu.

    device, capability: None where the report lacks them. Controls are ncu's defaults where the report lacks them.
    """

    kernels: tuple[ProfiledKernel, ...]
    device: str | None
    capability: str | None
    tool: str
    cache_control: Literal["all", "none"]
    clock_control: Literal["base", "none"]
    data: bytes


def read_hand_made(path: FilePath, capability: Capability) -> HandMade:
    """Return a report, a .ncu-rep or CSV by its content.

    Raises: ParseError for an empty, truncated or foreign file; MachineError without the package ncu-report.
    """
    data = read_bytes(path, limit=_MOST_BYTES)
    if not data:
        raise ParseError(f"{path}: empty; expected a .ncu-rep or the CSV of its raw page")
    if data.startswith(_MAGIC):
        _require_whole(data, path)
        return _from_report(path, data, capability)
    if path.suffix == ".ncu-rep":
        raise ParseError(f"{path}: begins with {data[:8]!r}; expected a report of Nsight Compute (NVR)")
    return _from_csv(path, data, capability)


# .ncu-rep


def _require_whole(data: bytes, path: FilePath) -> None:
    """Check the blocks of a report up to its end. Raises: ParseError for one that ends within a block."""
    start = len(_MAGIC)
    offset = start + 4 + int.from_bytes(data[start : start + 4], "little")
    while offset < len(data):
        size = int.from_bytes(data[offset : offset + 4], "little")
        header = data[offset + 4 : offset + 4 + size]
        if len(data) < offset + 4 or len(header) < size:
            break
        offset += 4 + size + _payload(header, path)
    if offset != len(data):
        raise ParseError(f"{path}: ends after {len(data)} bytes within a block; expected {offset} or more: truncated?")


def _payload(header: bytes, path: FilePath) -> int:
    """Return the number of bytes after a block's header, which is a protocol buffer."""
    at, found = 0, 0
    try:
        while at < len(header):
            tag, at = _varint(header, at)
            value, at = _varint(header, at)
            if tag & 7 == 2:
                at += value
            elif tag & 7 != 0:
                raise ParseError(f"{path}: a block's header has an unknown form; expected a report of Nsight Compute")
            elif tag >> 3 == _PAYLOAD_FIELD:
                found = value
    except IndexError as error:
        raise ParseError(f"{path}: a block's header is cut off; expected a whole report of Nsight Compute") from error
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80 or shift > _VARINT_BITS:
            return value, at


def _from_report(path: FilePath, data: bytes, capability: Capability) -> HandMade:
    try:
        import ncu_report
    except ImportError as error:
        raise MachineError(
            f"package ncu-report is not installed; expected it to read a .ncu-rep: {install_command('ncu')}, "
            "or give the CSV of: ncu --import REPORT --csv --page raw --print-units base"
        ) from error
    try:
        return _from_context(ncu_report.load_report(str(path)), path, data, capability)
    except (ValueError, TypeError, RuntimeError, AttributeError, ArithmeticError) as error:
        # The package checks nothing: a missing field of a damaged report reads as None, a damaged one as any text.
        raise ParseError(f"{path}: cannot be read ({str(error)[:200]}); expected a whole, unaltered report") from error


def _from_context(context: Any, path: FilePath, data: bytes, capability: Capability) -> HandMade:
    ranges = [context.range_by_idx(number) for number in range(context.num_ranges())]
    actions = [one.action_by_idx(number) for one in ranges for number in range(one.num_actions())]
    if not actions:
        raise ParseError(f"{path}: contains no kernel; expected at least one")
    first = actions[0]
    major, minor = _attribute(first, _MAJOR), _attribute(first, _MINOR)
    device = _attribute(first, _NAME)
    return HandMade(
        kernels=tuple(_kernel(action, capability, path) for action in actions),
        device=None if device is None else str(device)[:400],
        capability=None if major is None or minor is None else f"{major}.{minor}",
        tool=f"Nsight Compute, read by ncu-report {context.get_version()}",
        cache_control="none" if _control(data, b"cache") == b"none" else "all",
        clock_control="none" if _control(data, b"clock") == b"none" else "base",
        data=data,
    )


def _control(data: bytes, name: bytes) -> bytes | None:
    """Return the value of a control option in the command line that a report contains."""
    found = re.search(rb"--" + name + rb"-control[ =](\w+)", data)
    return None if found is None else found[1]


def _attribute(action: Any, name: str) -> Any:
    metric = action.metric_by_name(name)
    return None if metric is None else metric.value()


def _kernel(action: Any, capability: Capability, path: FilePath) -> ProfiledKernel:
    kernel = action.name()
    if kernel is None:
        raise ParseError(f"{path}: contains a kernel without a name; expected a whole, unaltered report")
    metrics: dict[str, Metric] = {}
    for name in metric_names(capability):
        metric = action.metric_by_name(name)
        if metric is not None and metric.has_value():
            metrics[name] = Metric(value=_number(metric.value()), unit=str(metric.unit() or ""))
    return ProfiledKernel(name=kernel[:2000], metrics=metrics)


def _number(value: float | int | str) -> str:
    """Return a number in decimal digits, as ncu prints it but not rounded."""
    if isinstance(value, float):
        text = f"{value:.6f}".rstrip("0").rstrip(".")
        return text or "0"
    return str(value)


# CSV


def _from_csv(path: FilePath, data: bytes, capability: Capability) -> HandMade:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"{path}: neither a .ncu-rep nor text; expected one, or the CSV of its raw page") from error
    wanted = (*metric_names(capability), _CC, _NAME)
    kernels = parse_raw(text, wanted=wanted, what=str(path))
    about = [
        {name: kernel.metrics[name].value for name in (_CC, _NAME) if name in kernel.metrics} for kernel in kernels
    ]
    return HandMade(
        kernels=tuple(
            kernel.model_copy(update={"metrics": {n: m for n, m in kernel.metrics.items() if n not in (_CC, _NAME)}})
            for kernel in kernels
        ),
        device=about[0].get(_NAME),
        capability=about[0].get(_CC),
        tool="Nsight Compute, raw page as CSV",
        cache_control="all",
        clock_control="base",
        data=data,
    )


def check_device(report: HandMade, *, capability: Capability, names: tuple[str, ...], what: str) -> None:
    """Check that a report was made on the profile's device. Raises: InputError."""
    if report.capability is not None and report.capability != capability:
        raise InputError(f"{what}: compute capability is {report.capability}; expected {capability}, the profile's")
    if report.device is not None and report.device not in names:
        raise InputError(f"{what}: device is {report.device!r}; expected the profile's: {', '.join(names)}")
