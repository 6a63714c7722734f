"""Reads counters of rocprofv3: AMD's published sample, and files in its form. None is of a card that was at hand.

The sample is source/docs/data/counter_collection.csv of ROCm/rocprofiler-sdk, commit 02b159f229 (MIT licence, AMD).
The JSON has the keys that tests/rocprofv3/counter-collection there read.
"""

import csv
import io
import json
from pathlib import Path

import pytest

from ledger.analysis.metric_readings import readings, totals
from ledger.device.rocprof import read_rocprof
from ledger.errors import ParseError, RecordError
from ledger.records import Counters

PUBLISHED = Path(__file__).parents[1] / "assets" / "rocprof" / "counter_collection.csv"
HEADER = PUBLISHED.read_text(encoding="utf-8").splitlines()[0].replace('"', "").split(",")
# A product of 4096 x 4096 x 4096 in fp16: 2 x 4096^3 operations are 268,435,456 counts of 512.
COUNTED = {
    "TCC_EA0_RDREQ_sum": 1_200_000,
    "TCC_EA0_RDREQ_32B_sum": 200_000,
    "TCC_BUBBLE_sum": 400_000,
    "TCC_EA0_WRREQ_sum": 600_000,
    "TCC_EA0_WRREQ_64B_sum": 500_000,
    "SQ_INSTS_VALU_MFMA_MOPS_F16": 268_435_456,
    "TCC_HIT_sum": 3_000_000,
    "TCC_MISS_sum": 1_000_000,
    "SQ_LDS_BANK_CONFLICT": 25,
    "SQ_LDS_IDX_ACTIVE": 100,
    "OccupancyPercent": "1.97207156e+01",
}


def counters(kernels) -> Counters:
    return Counters(tool="t", command="c", cache_control="none", clock_control="none", kernels=kernels)


def row(name, value, *, dispatch=1, kernel="gemm_kernel", start=1000, end=201_000):
    cells = dict.fromkeys(HEADER, "1") | {
        "Dispatch_Id": dispatch, "Kernel_Name": kernel, "Grid_Size": 77_824, "Workgroup_Size": 256, "VGPR_Count": 120,
        "Accum_VGPR_Count": 8, "Counter_Name": name, "Counter_Value": value, "Start_Timestamp": start,
        "End_Timestamp": end,
    }  # fmt: skip
    return [cells[column] for column in HEADER]


def written(folder: Path, rows) -> Path:
    text = io.StringIO()
    csv.writer(text).writerows([HEADER, *rows])
    path = folder / "counter_collection.csv"
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def as_json(folder: Path, **changes) -> Path:
    """Write the counters as rocprofv3's JSON has them: each instance of a counter apart, names by handles."""
    handles = {name: 100 + number for number, name in enumerate(COUNTED)}
    records = []
    for name, value in COUNTED.items():
        halves = (float(value) / 2,) * 2
        records += [{"counter_id": {"handle": handles[name]}, "value": half} for half in halves]
    info = {
        "kernel_id": 3, "dispatch_id": 1, "agent_id": {"handle": 7}, "workgroup_size": {"x": 256, "y": 1, "z": 1},
        "grid_size": {"x": 256, "y": 304, "z": 1}, "group_segment_size": 0,
    }  # fmt: skip
    tool = {
        "agents": [{"id": {"handle": 7}, "name": "gfx942", "product_name": "AMD Instinct MI300X"}],
        "counters": [{"id": {"handle": handle}, "name": name} for name, handle in handles.items()],
        "kernel_symbols": [{"kernel_id": 3, "formatted_kernel_name": "gemm_kernel", "accum_vgpr_count": 8}],
        "callback_records": {"counter_collection": [{
            "dispatch_data": {"start_timestamp": 1000, "end_timestamp": 201_000, "dispatch_info": info},
            "records": records, "arch_vgpr_count": 120,
        }]},
        **changes,
    }  # fmt: skip
    path = folder / "results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [tool]}), encoding="utf-8")
    return path


def test_the_published_sample_is_read_by_column_names():
    from ledger.device.rocprof import _from_csv

    kernels = _from_csv(PUBLISHED.read_text(encoding="utf-8"), "sample")
    assert [kernel.name.split("(")[0] for kernel in kernels] == [
        "void addition_kernel<float>", "subtract_kernel", "multiply_kernel", "divide_kernel"
    ]  # fmt: skip
    assert all(kernel.metrics["SQ_WAVES"].value == "16384.000000" for kernel in kernels)
    found = readings(counters(kernels), "gfx942").values
    # 52,151 + 49,780 + 46,818 + 48,151 ns; 1,048,576 threads in workgroups of 64.
    assert found["duration"] == 196_900 and found["grid_blocks"] == 16_384 and found["registers_per_thread"] == 8


def test_a_report_without_a_counter_that_is_used_is_refused():
    with pytest.raises(ParseError, match=r"no counter that is used; expected one of: .*TCC_EA0_RDREQ_sum"):
        read_rocprof(PUBLISHED)


@pytest.mark.parametrize("form", ["csv", "json"])
def test_counters_become_bytes_operations_and_shares(form, tmp_path):
    path = as_json(tmp_path) if form == "json" else written(tmp_path, [row(*one) for one in COUNTED.items()])
    report = read_rocprof(path)
    assert report.device == ("AMD Instinct MI300X" if form == "json" else None)
    found = totals(counters(report.kernels), "gfx942")
    # Reads: 200,000 of 32 bytes, 400,000 of 128 and 600,000 of 64; writes: 500,000 of 64 and 100,000 of 32.
    assert found.dram_bytes_read == 6_400_000 + 51_200_000 + 38_400_000
    assert found.dram_bytes_written == 32_000_000 + 3_200_000
    assert found.tensor_ops_by_path == {"fp16_tensor": 2 * 4096**3} and found.tensor_ops == 2 * 4096**3
    assert found.duration_ps == 200_000_000 and found.bank_conflict_share == 0.25
    assert found.occupancy_pct == pytest.approx(19.7207156) and found.grid_blocks == 304
    assert readings(counters(report.kernels), "gfx942").values["l2_hit_percent"] == 75
    assert found.sm_clock_hz is None and found.dram_pct is None


def test_derived_sizes_in_kib_serve_where_requests_were_not_counted(tmp_path):
    report = read_rocprof(written(tmp_path, [row("FETCH_SIZE", "93750.5"), row("WRITE_SIZE", 100)]))
    found = totals(counters(report.kernels), "gfx942")
    assert (found.dram_bytes_read, found.dram_bytes_written) == (96_000_512, 102_400)


def test_dispatches_of_one_call_add_up_and_lack_what_one_of_them_lacks(tmp_path):
    rows = [
        row("FETCH_SIZE", 10), row("MfmaUtil", 40), row("FETCH_SIZE", 30, dispatch=2, kernel="reduce", end=101_000),
        row("MfmaUtil", 10, dispatch=2, kernel="reduce", end=101_000), row("WRITE_SIZE", 5),
    ]  # fmt: skip
    found = totals(counters(read_rocprof(written(tmp_path, rows)).kernels), "gfx942")
    assert found.dram_bytes_read == 40 * 1024 and found.dram_bytes_written is None
    assert found.tensor_pct == pytest.approx((40 * 200 + 10 * 100) / 300)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: "", "no column Dispatch_Id"),
        (lambda text: text.replace("Counter_Value", "Value"), "no column Counter_Value"),
        (lambda text: text + "5,5\n", "another number of fields"),
        (lambda text: text + text.splitlines()[-1] + "\n", "has counter MfmaUtil twice"),
        (lambda text: text + text.splitlines()[-1].replace("gemm_kernel", "other"), "has two kernels"),
        (lambda text: "{}", "rocprofiler-sdk-tool is no list"),
        (lambda text: '{"rocprofiler-sdk-tool": [{"agents": []}]}', "cannot be read"),
        (lambda text: text.replace("201000", "soon"), "cannot be read"),
    ],
)
def test_a_foreign_or_damaged_report_is_refused(change, words, tmp_path):
    path = written(tmp_path, [row("FETCH_SIZE", 10), row("MfmaUtil", 40)])
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(ParseError, match=words):
        read_rocprof(path)


@pytest.mark.parametrize("value", ["nan", "-1", "many", "1e999"])
def test_a_value_that_is_no_count_is_refused(value, tmp_path):
    report = read_rocprof(written(tmp_path, [row("FETCH_SIZE", value)]))
    with pytest.raises(RecordError, match="counter FETCH_SIZE: value is"):
        readings(counters(report.kernels), "gfx942")


def test_a_dispatch_without_duration_is_refused(tmp_path):
    report = read_rocprof(written(tmp_path, [row("FETCH_SIZE", 1, end=1000)]))
    with pytest.raises(RecordError, match="no duration"):
        readings(counters(report.kernels), "gfx942")


def test_a_report_of_another_card_is_refused(tmp_path):
    from ledger.errors import InputError
    from ledger.record_files import load_hardware
    from ledger.workflow.attach_counters import _read

    path = as_json(tmp_path)
    assert _read(path, load_hardware("mi300x")).tool == "rocprofv3, JSON"
    with pytest.raises(
        InputError, match="device is 'AMD Instinct MI300X'; expected the profile's: AMD Instinct MI325X"
    ):
        _read(path, load_hardware("mi325x"))
