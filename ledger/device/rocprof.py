"""Reads what rocprofv3 wrote of counters: its CSV (counter_collection.csv) or its JSON. Needs no ROCm.

Columns and keys are found by name. Values stay as printed. Source: rocprofiler-sdk documentation, "Using rocprofv3".
Tested on published output; no report of a card was at hand.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from ledger.analysis.rocprof_counters import COUNTERS, DURATION, LAUNCH
from ledger.device.ncu_report import HandMade
from ledger.errors import ParseError
from ledger.record_files import read_bytes
from ledger.records import Metric, ProfiledKernel

_MOST_BYTES = 256 * 1024 * 1024
_COLUMNS = ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value", "Start_Timestamp", "End_Timestamp")
_ROOT = "rocprofiler-sdk-tool"


def read_rocprof(path: FilePath) -> HandMade:
    """Return the dispatches of a report with the counters that the metric table uses.

    Raises: ParseError for an empty, truncated or foreign file, or one without a counter that is used.
    """
    data = read_bytes(path, limit=_MOST_BYTES)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"{path}: not text; expected rocprofv3's CSV or JSON") from error
    try:
        if text.lstrip().startswith("{"):
            form, device, kernels = "JSON", *_from_json(text, str(path))
        else:
            form, device, kernels = "CSV", None, _from_csv(text, str(path))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        why = " ".join(str(error).split())[:200]
        raise ParseError(f"{path}: cannot be read ({why}); expected a whole report of rocprofv3") from error
    if not any(set(kernel.metrics) & COUNTERS - {DURATION, *LAUNCH} for kernel in kernels):
        used = ", ".join(sorted(COUNTERS - {DURATION, *LAUNCH}))
        raise ParseError(f"{path}: no counter that is used; expected one of: {used}")
    return HandMade(
        kernels=kernels,
        device=device,
        capability=None,
        tool=f"rocprofv3, {form}",
        cache_control="none",
        clock_control="none",
        data=data,
    )


def _from_csv(text: str, what: str) -> tuple[ProfiledKernel, ...]:
    try:
        rows = list(csv.DictReader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise ParseError(f"{what}: not CSV ({error}); expected rocprofv3's counter_collection.csv, whole") from error
    header = rows[0].keys() if rows else ()
    if lacking := [name for name in _COLUMNS if name not in header]:
        raise ParseError(f"{what}: no column {lacking[0]}; expected rocprofv3's counter_collection.csv")
    dispatches: dict[str, dict[str, Metric]] = {}
    names: dict[str, str] = {}
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise ParseError(f"{what}: row {number} has another number of fields than the header: is it truncated?")
        key = row["Dispatch_Id"]
        if names.setdefault(key, row["Kernel_Name"]) != row["Kernel_Name"]:
            raise ParseError(f"{what}: dispatch {key} has two kernels; expected the rows of one process")
        metrics = dispatches.setdefault(key, _launch(row))
        counter = row["Counter_Name"]
        if counter in metrics:
            raise ParseError(f"{what}: dispatch {key} has counter {counter} twice; expected each once")
        metrics[counter] = Metric(value=row["Counter_Value"], unit="")
    return tuple(ProfiledKernel(name=names[key][:2000], metrics=metrics) for key, metrics in dispatches.items())


def _launch(row: Mapping[str, str]) -> dict[str, Metric]:
    """Return a dispatch's duration, and what the row says of its launch."""
    spent = int(row["End_Timestamp"]) - int(row["Start_Timestamp"])
    kept = {name: Metric(value=row[name], unit="") for name in LAUNCH if row.get(name)}
    return {DURATION: Metric(value=str(spent), unit="ns"), **kept}


# JSON


def _from_json(text: str, what: str) -> tuple[str | None, tuple[ProfiledKernel, ...]]:
    value = json.loads(text)
    tools = value.get(_ROOT)
    if not isinstance(tools, list) or len(tools) != 1:
        raise ParseError(f"{what}: {_ROOT} is no list of one process; expected the JSON that rocprofv3 writes")
    tool: dict[str, Any] = tools[0]
    counters = {one["id"]["handle"]: one["name"] for one in tool["counters"]}
    symbols = {one.get("kernel_id", index): one for index, one in enumerate(tool["kernel_symbols"])}
    agents = {one["id"]["handle"]: one for one in tool["agents"]}
    found = tool["callback_records"]["counter_collection"]
    if not found:
        raise ParseError(f"{what}: no counter_collection; expected one dispatch or more: give rocprofv3 --pmc")
    device = agents.get(found[0]["dispatch_data"]["dispatch_info"]["agent_id"]["handle"], {}).get("product_name")
    return device, tuple(_dispatch(one, counters, symbols) for one in found)


def _dispatch(
    record: Mapping[str, Any], counters: Mapping[int, str], symbols: Mapping[int, Mapping[str, Any]]
) -> ProfiledKernel:
    data = record["dispatch_data"]
    info = data["dispatch_info"]
    symbol = symbols[info["kernel_id"]]
    spent = data["end_timestamp"] - data["start_timestamp"]
    launch = {
        "Grid_Size": _threads(info["grid_size"]),
        "Workgroup_Size": _threads(info["workgroup_size"]),
        "LDS_Block_Size": record.get("lds_block_size_v", info.get("group_segment_size", 0)),
        "VGPR_Count": record.get("arch_vgpr_count", symbol.get("arch_vgpr_count", 0)),
        "Accum_VGPR_Count": symbol.get("accum_vgpr_count", 0),
        "SGPR_Count": record.get("sgpr_count", symbol.get("sgpr_count", 0)),
    }
    metrics = {DURATION: Metric(value=str(spent), unit="ns")}
    metrics |= {name: Metric(value=str(number), unit="") for name, number in launch.items()}
    for name, number in _sums(record["records"], counters):
        metrics[name] = Metric(value=f"{number:.6f}".rstrip("0").rstrip("."), unit="")
    return ProfiledKernel(name=str(symbol["formatted_kernel_name"])[:2000], metrics=metrics)


def _sums(records: list[Mapping[str, Any]], counters: Mapping[int, str]) -> Iterator[tuple[str, float]]:
    """Yield each counter with the sum over its instances, which the JSON lists one by one."""
    sums: dict[str, float] = {}
    for one in records:
        name = counters[one["counter_id"]["handle"]]
        sums[name] = sums.get(name, 0.0) + float(one["value"])
    yield from sums.items()


def _threads(size: Mapping[str, int]) -> int:
    return int(size["x"]) * int(size["y"]) * int(size["z"])
