"""Attaches counters of rocprofv3 to a measurement that is not ingested yet."""

import csv
import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from ledger.analysis.metric_readings import totals
from ledger.canonical import decode
from ledger.errors import InputError, ParseError
from ledger.record_files import load_hardware
from ledger.records import Measurement
from ledger.workflow.attach_counters import attach
from ledger.workflow.ingest import incoming_of

ROOT = Path(__file__).parents[2]
HEADER = (ROOT / "tests/assets/rocprof/counter_collection.csv").read_text(encoding="utf-8").splitlines()[0]


@pytest.fixture(scope="module")
def measured() -> Measurement:
    """Return a record of an H200 without its counters, to stand for one of an MI300X: there is none."""
    for path in sorted((ROOT / "verifications").glob("??/*.json")):
        if b"ledger/measurement/1" not in path.read_bytes():
            continue
        record = decode(Measurement, path.read_bytes(), what=path.name)
        if record.timing and record.case.kernel == "matmul":
            return record.model_copy(update={"counters": None, "counters_missing": "none here", "attachments": ()})
    raise AssertionError("no record of matmul")


def view_of(record: Measurement, name: str) -> SimpleNamespace:
    return SimpleNamespace(
        hardware=load_hardware(name), sealed=SimpleNamespace(id=record.seal),
        forecast=SimpleNamespace(cell=record.cell), short_name="seal#cell",
    )  # fmt: skip


def report(folder: Path, record: Measurement, *, times: float = 1.0, kernel: str = "gemm_kernel") -> Path:
    spent = round(times * record.timing.median_ps / 1000)
    columns = HEADER.replace('"', "").split(",")
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for name, value in {"FETCH_SIZE": 2000, "WRITE_SIZE": 1000, "SQ_INSTS_VALU_MFMA_MOPS_F16": 8}.items():
        cells = dict.fromkeys(columns, "1") | {
            "Kernel_Name": kernel, "Counter_Name": name, "Counter_Value": value, "Start_Timestamp": 0,
            "End_Timestamp": spent,
        }  # fmt: skip
        writer.writerow(cells.values())
    path = folder / "mine.csv"
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


@pytest.mark.parametrize("keep", [False, True])
def test_counters_of_rocprofv3_are_attached(measured, tmp_path, keep):
    path = report(tmp_path, measured)
    items = [incoming_of(measured, {})]
    (done,) = attach(items, path, view=view_of(measured, "mi300x"), launched="^gemm_kernel$", keep=keep)
    assert done.measurement.counters.tool == "rocprofv3, CSV" and done.measurement.counters_missing is None
    found = totals(done.measurement.counters, "gfx942")
    assert (found.dram_bytes, found.tensor_ops_by_path) == (3000 * 1024, {"fp16_tensor": 4096})
    assert [one.name.rpartition(".")[2] for one in done.measurement.attachments] == (["csv"] if keep else [])
    assert items[0].measurement.counters is None


def test_counters_of_another_call_or_tool_are_refused(measured, tmp_path):
    items, view = [incoming_of(measured, {})], view_of(measured, "mi300x")
    with pytest.raises(InputError, match="expected the kernels of one steady call"):
        attach(items, report(tmp_path, measured, times=3), view=view, launched="gemm", keep=False)
    with pytest.raises(InputError, match="holds kernel 'fill'"):
        attach(items, report(tmp_path, measured, kernel="fill"), view=view, launched="gemm", keep=False)
    with pytest.raises(ParseError, match="no column Dispatch_Id"):
        attach(items, ROOT / "tests/assets/ncu/big_gemm.csv", view=view, launched="gemm", keep=False)
    with pytest.raises(ParseError, match="no header row"):
        attach(items, report(tmp_path, measured), view=view_of(measured, "h200"), launched="gemm", keep=False)
