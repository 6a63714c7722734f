"""Tests the slices of a trace, worked by hand, and timelines that torch's profiler records on this machine."""

from __future__ import annotations

import gzip
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest
from desk import ENVIRONMENT
from ledger_process import run_ledger
from measuring import KERNELS, kernel_file, this_cpu

from ledger.analysis.chrome_trace import Ran, read_slices
from ledger.errors import InputError, MachineError, ParseError
from ledger.kernel_files import build_case
from ledger.records import Hardware

SHAPE = {"M": 64, "N": 96, "K": 128}


def event(name: str, cat: str, start: float, length: float) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": length}


def traced(*events: dict[str, Any]) -> dict[str, Any]:
    return {"traceEvents": [{"ph": "M", "name": "process_name"}, *events]}


TWO_CALLS = traced(
    event("k", "kernel", 5, 1),  # before the slice
    event("ours", "user_annotation", 10, 100),
    event("reduce", "kernel", 33, 6),
    event("k", "kernel", 20, 10),
    event("k", "kernel", 40, 12),
    event("reduce", "kernel", 51, 8),
    event("k", "kernel", 105, 10),  # runs on beyond the slice
    event("ours", "gpu_user_annotation", 20, 39),
    event("aten::mm", "cpu_op", 12, 3),
)


def test_a_slice_counts_what_the_device_ran_inside_it() -> None:
    (one,) = read_slices(TWO_CALLS, {"ours": 2})
    assert one.ran == (Ran("k", 2, 11.0), Ran("reduce", 2, 7.0))
    # From 20 to 59; a call takes 11 + 7; gaps are 3, 1 and -1.
    assert (one.host_us, one.device_us, one.busy_us, one.gap_us) == (50.0, 19.5, 18.0, 1.0)


def test_a_slice_without_a_device_has_host_times_only() -> None:
    (one,) = read_slices(traced(event("ours", "user_annotation", 10, 100)), {"ours": 4})
    assert (one.host_us, one.device_us, one.busy_us, one.gap_us, one.ran) == (25.0, None, None, None, ())


@pytest.mark.parametrize("value", [None, [], {}, {"traceEvents": {}}, traced()])
def test_a_trace_without_the_slice_is_refused(value: Any) -> None:
    with pytest.raises(ParseError, match="expected"):
        read_slices(value, {"ours": 1})


ASSETS = Path(__file__).parents[1] / "assets" / "timeline"


def recorded(name: str, calls: int) -> dict[str, Any]:
    trace = json.loads(gzip.decompress((ASSETS / f"{name}.json.gz").read_bytes()))
    return {
        one.name: one for one in read_slices(trace, dict.fromkeys(("ours, on a stream", "ours, as a graph"), calls))
    }


def test_a_recorded_gpu_trace_shows_kernels_one_after_the_other() -> None:
    graph = recorded("matmul", 5)["ours, as a graph"]
    assert [(one.name, one.count) for one in graph.ran] == [("matmul_pipelined", 5)]
    assert 0 < graph.gap_us < 1
    assert graph.busy_us < graph.device_us < graph.busy_us + 1


def test_a_recorded_gpu_trace_shows_that_dependent_launches_overlap() -> None:
    seen = recorded("rmsnorm_matmul", 3)
    graph, stream = seen["ours, as a graph"], seen["ours, on a stream"]
    assert graph.gap_us < -20
    assert graph.busy_us > 1.5 * graph.device_us
    assert stream.gap_us > 0
    assert stream.busy_us == pytest.approx(30.5, abs=0.5)


# For real


def record(path: Path, hardware: Hardware, only: frozenset[str] | None = None, **changes: Any) -> dict[str, Any]:
    pytest.importorskip("torch", reason="torch is not installed: nothing can be traced")
    from ledger.measure.timeline import record_timeline

    shape = {**SHAPE, **changes}
    cell = (shape, "fp32")
    return record_timeline(kernel_file(), cell, hardware=hardware, path=path, only=only).document()


def test_a_timeline_of_a_cpu_names_every_contestant_and_call(tmp_path: Path) -> None:
    found = record(tmp_path / "t.json", this_cpu())
    data = (tmp_path / "t.json").read_bytes()
    events = json.loads(data)["traceEvents"]
    assert [one["name"] for one in found["slices"]] == ["ours", "torch_eager", "torch_matmul"]
    for one in found["slices"]:
        (mark,) = [e for e in events if e.get("name") == one["name"] and e.get("cat") == "user_annotation"]
        inside = [
            e["name"]
            for e in events
            if e.get("cat") == "user_annotation"
            and mark["ts"] < e["ts"]
            and e["ts"] + e["dur"] < mark["ts"] + mark["dur"]
        ]
        assert inside == [f"call on input set {number}" for number in range(one["calls"])]
        assert one["host_us"] == pytest.approx(mark["dur"] / one["calls"])
        assert (one["device_us"], one["ran"]) == (None, ())
    assert platform.node().encode() not in data
    assert str(tmp_path).encode() not in data
    assert any(e.get("cat") == "cpu_op" and e["name"] == "aten::mm" for e in events)


def test_a_timeline_tells_at_once_what_a_cpu_does_and_for_how_long(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: nothing can be traced")
    from ledger.measure.timeline import record_timeline

    steps: list[str] = []
    only = frozenset({"torch_matmul"})
    file, path = kernel_file(), tmp_path / "t.json"
    record_timeline(file, (SHAPE, "fp32"), hardware=this_cpu(), path=path, only=only, on_progress=steps.append)
    cell, *others, tracing = steps
    assert others == ["inputs", "reference in float64", "first call of ours", "first call of torch_matmul"]
    assert tracing.startswith("tracing ") and tracing.endswith(" calls of torch_matmul")
    # 2 × 64 × 96 × 128 FLOP.
    assert "M=64,N=96,K=128 fp32 on " in cell and "1.57 MFLOP a call, at least " in cell and "--shape" in cell


def test_a_timeline_of_a_dtype_without_a_peak_warns_of_minutes() -> None:
    from ledger.measure.timeline import _announcement

    kernel, hardware = kernel_file().kernel, this_cpu()
    case = build_case(kernel, hardware, shape=SHAPE, dtype="fp32")
    (kind,) = hardware.ceilings
    peaks = {**hardware.ceilings[kind].peaks, kernel.path("fp32", hardware.target, case.implementation): None}
    bare = hardware.model_copy(update={"ceilings": {kind: hardware.ceilings[kind].model_copy(update={"peaks": peaks})}})
    assert "minutes perhaps: the profile has no peak for fp32" in _announcement(kernel, case, bare)


def test_a_timeline_can_be_compressed_and_leave_baselines_out(tmp_path: Path) -> None:
    found = record(tmp_path / "t.json.gz", this_cpu(), only=frozenset({"torch_matmul"}))
    assert [one["name"] for one in found["slices"]] == ["ours", "torch_matmul"]
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]


def test_a_wrong_shape_or_another_machine_s_profile_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shape keys"):
        record(tmp_path / "t.json", this_cpu(), B=1)
    with pytest.raises(MachineError):
        record(tmp_path / "t.json", this_cpu(device_names=("Another CPU",)))
    assert not list(tmp_path.iterdir())


@pytest.mark.exhaustive
def test_the_command_prints_its_slices_and_writes_the_trace(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: nothing can be traced")
    from ledger.record_files import hardware_yaml

    for folder, name, data in (
        ("hardware", "cpu.yaml", hardware_yaml(this_cpu())),
        ("kernels", "small_matmul.py", (KERNELS / "small_matmul.py").read_bytes()),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(data)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    command = "timeline small_matmul --hw cpu --dtype fp32 --shape M=8,N=8,K=8 --baseline torch_matmul -o out/t.json"

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return run_ledger(*command.split(), *more, cwd=tmp_path, env=ENVIRONMENT)

    done = run("--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == "path device kernel shape dtype overlap slices missing".split()
    assert json.loads((tmp_path / "out" / "t.json").read_bytes())["traceEvents"]
    shown = run()
    assert "ours" in shown.stdout
    assert "ui.perfetto.dev" in shown.stderr


@pytest.mark.gpu
def test_a_timeline_of_a_gpu_shows_the_kernels_on_a_stream_and_in_the_graph(tmp_path: Path) -> None:
    import re

    from ledger.kernel_files import load_kernel
    from ledger.measure.timeline import record_timeline

    file = load_kernel("matmul", launch=True)
    cell = ({"M": 3584, "N": 3584, "K": 3584}, "fp16")
    found = record_timeline(file, cell, hardware=this_gpu_profile(), path=tmp_path / "t.json").document()
    names = [one["name"] for one in found["slices"]]
    assert names[:2] == ["ours, on a stream", "ours, as a graph"]
    for one in found["slices"][:2]:
        (ran,) = one["ran"]
        assert ran["count"] == one["calls"]
        assert re.search(file.kernel.launched, ran["name"])
        assert one["busy_us"] <= one["device_us"]


def this_gpu_profile() -> Hardware:
    from ledger.device.local_profile import profile_of_this_machine

    return profile_of_this_machine(None)
