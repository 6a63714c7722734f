"""Measures callables in processes of their own: what they print, raise, use up or end stays there."""

import io
import json
import queue
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path as FilePath
from types import SimpleNamespace

import pytest
from cheats import HONEST, WORK, in_call
from submissions import Submission, order_for

from ledger.analysis.refusals import REFUSED, STOPPED, check_failures
from ledger.errors import EvidenceRefused, InputError, MachineError
from ledger.measure import apart, order_checks
from ledger.measure.apart import CellProcess, Limits, Processes, run_apart
from ledger.measure.order_checks import checked_jobs
from ledger.measure.ordered_kernels import kernels_of
from ledger.measure.run_cell import Outcome
from ledger.measure.run_order import EmptyLaunches, run_order

FAKE = (
    '{"outcome": {"failure": null, "correctness": null, "samples": null, "timing": null, "before": null, "after": null'
)
FAKE += ', "extensions": {}, "interventions": {}, "ran": []}}'


def run(submission, folder, **limits):
    order, out = order_for(submission, folder), folder / "out"
    out.mkdir()
    summary = run_order(
        order, order_sha256=None, out=out, kernels=kernels_of(order, folder=out), limits=Limits(**limits)
    )
    return summary, [json.loads(path.read_text()) for path in out.glob("*.json")]


def failure_of(source, folder, **limits):
    summary, (record,) = run(Submission(source), folder, **limits)
    assert (record["status"] == "measured") == (record["failure"] is None) == (summary.failures == ())
    return record["failure"]


def test_an_honest_callable_is_measured_and_its_printing_goes_to_standard_error(tmp_path, capfd):
    assert failure_of(in_call("print('{\"outcome\": 1}')"), tmp_path) is None
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("raise SystemExit(3)", "it raised SystemExit: 3"),
        ("raise KeyboardInterrupt", "it raised KeyboardInterrupt"),
        ("os._exit(3)", "ended with exit code 3"),
        (f"os.write(1, {FAKE.encode() + bytes(1)!r}); os._exit(0)", "ended with exit code 0"),
        ("os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
    ],
    ids=["SystemExit", "KeyboardInterrupt", "exit", "fake-outcome", "signal"],
)
def test_a_callable_that_ends_its_process_fails(line, said, tmp_path):
    failure = failure_of(in_call(line, more="import os"), tmp_path)
    assert failure.startswith(STOPPED)
    assert said in failure


def test_a_process_that_leaves_the_session_does_not_delay_the_outcome(tmp_path):
    line = "KEPT or KEPT.append(os.fork()) or KEPT[0] or (os.setsid(), time.sleep(60), os._exit(0))"
    began = time.monotonic()
    failure_of(in_call(line, more="import os, time\nKEPT = []"), tmp_path)
    assert time.monotonic() - began < 50


@pytest.mark.exhaustive
def test_a_call_without_an_end_reaches_the_time_limit(tmp_path):
    failure = failure_of(in_call("while True: pass"), tmp_path, time_s=25)
    assert failure == f"{STOPPED}it ran longer than 25 s; expected a call that returns"


def test_a_huge_result_reaches_the_memory_limit(tmp_path):
    line = "KEPT.append(torch.ones(2**26))"
    failure = failure_of(in_call(f"while True: {line}", more="KEPT = []"), tmp_path, memory_bytes=2 * 10**9)
    assert failure.startswith(f"{STOPPED}it asked for more memory than 2.0 GB")


def test_a_callable_that_cannot_be_imported_here_is_no_result(tmp_path):
    summary, records = run(Submission(HONEST + "\nraise SystemExit(3)\n"), tmp_path)
    assert (summary.measured, summary.failed, records) == (0, 0, [])
    with pytest.raises(InputError, match=r"ops\.submitted: .*cannot be loaded"):
        summary.check_loaded()


def test_refused_is_told_from_stopped_and_from_wrong():
    check_failures([("a", None), ("b", "output is wrong: …")])
    with pytest.raises(MachineError, match="c: stopped: it ran longer"):
        check_failures([("a", None), ("c", f"{STOPPED}it ran longer")])
    with pytest.raises(EvidenceRefused, match="d: refused: a patch"):
        check_failures([("c", f"{STOPPED}it ran longer"), ("d", f"{REFUSED}a patch")])


def test_work_that_a_result_postpones_is_inside_of_the_timed_call(tmp_path):
    from submissions import outcome_of

    later = f"""{WORK}
import time


class Later(tuple):
    def __iter__(self):
        time.sleep(0.02)
        yield work(*tuple.__iter__(self))


def submitted(x, w):
    return Later((x, w))
"""
    found = outcome_of(Submission(later), tmp_path)
    assert found["failure"] is None
    assert found["timing"]["median_ps"] > 20 * 10**9


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Outcome(None), "no outcome that a record holds"),
        (Outcome("wrong", extensions={"x/1": {"value": 2**70}}), "no outcome that a record holds"),
        (Outcome("wrong", extensions={"x/1": {"reason": f"in {tempfile.gettempdir()}/job/ops.py"}}), "wrong"),
    ],
    ids=["no timing", "long number", "folder"],
)
def test_an_outcome_that_no_record_holds_is_a_failure_and_no_folder_is_recorded(found, said, tmp_path, monkeypatch):
    monkeypatch.setattr("ledger.measure.run_order.run_apart", lambda *_, **__: found)
    _, (record,) = run(Submission(HONEST), tmp_path)
    assert record["status"] == "failed" and said in record["failure"]
    assert tempfile.gettempdir() not in json.dumps(record["extensions"])


def test_a_line_without_end_comes_in_pieces(monkeypatch):
    monkeypatch.setattr(apart, "_LONGEST_LINE", 10)
    lines = queue.Queue()
    apart._read(io.StringIO("x" * 25 + "\n{}\n"), lines)
    assert [lines.get() for _ in range(lines.qsize())] == ["x" * 10, "x" * 10, "xxxxx\n", "{}\n", None]


def test_a_process_that_never_stops_writing_reaches_the_time_limit():
    endless = [sys.executable, "-c", "while True: print({}, flush=True)"]
    with subprocess.Popen(endless, stdout=subprocess.PIPE, text=True) as process:
        started = time.monotonic()
        messages = apart._messages(process, 1.0)
        try:
            assert next(messages) == {}
            # Slower to read than it writes: a line is always ready.
            assert all(time.sleep(0.01) is None for _ in messages)
            assert time.monotonic() - started < 10
        finally:
            process.kill()


# Ahead of its turn

SLOW = f"""{WORK}
import pathlib, time

pathlib.Path({{path!r}}).write_text(str(time.monotonic()))


def submitted(x, w):
    return work(x, w)
"""


def waiting_job(folder):
    """Return a job whose callable writes a file when it is imported, and its order."""
    order = order_for(Submission(SLOW.format(path=str(folder / "imported"))), folder)
    (job,) = checked_jobs(order, kernels_of(order, folder=folder / "out"))
    return job, order


def test_a_process_that_waits_imports_no_callable_before_its_turn_and_then_measures_it(tmp_path):
    job, order = waiting_job(tmp_path)
    processes = Processes(order, folder=tmp_path / "out", limits=Limits())
    processes.start_ahead([job])
    (waiting,) = processes._ahead
    processes.start_ahead([job])
    assert processes._ahead == [waiting]
    wait_until_it_reads(waiting)
    with processes.held():
        assert state_of(waiting) == "T"
    assert not (tmp_path / "imported").exists()
    with processes.of(job) as process:
        assert process is waiting
        assert outcome_in(process).failure is None
    assert (tmp_path / "imported").exists() and process.ended


def outcome_in(process):
    return run_apart(process, launch_ps=None, vary=False, on_stage=lambda stage: None)


def state_of(process):
    time.sleep(0.1)
    return FilePath(f"/proc/{process._process.pid}/stat").read_text().rpartition(") ")[2][0]


def wait_until_it_reads(process):
    deadline = time.monotonic() + 60
    reading = FilePath(f"/proc/{process._process.pid}/wchan")
    while time.monotonic() < deadline and "pipe" not in reading.read_text():
        time.sleep(0.1)


@pytest.mark.parametrize("how", ["closed", "another cell", "died"])
def test_a_process_whose_turn_does_not_come_is_ended(how, tmp_path):
    job, order = waiting_job(tmp_path)
    processes = Processes(order, folder=tmp_path / "out", limits=Limits())
    processes.start_ahead([job])
    (waiting,) = processes._ahead
    if how == "closed":
        with processes.held():
            processes.close()
    elif how == "another cell":
        with processes.of(other := replace(job)) as process:
            assert process is not waiting
            processes.start_ahead([other])
        processes.close()
    else:
        waiting.signal(signal.SIGKILL)
        waiting._process.wait()
        with processes.of(job) as process:
            assert process is not waiting and outcome_in(process).failure is None
    assert waiting.ended and processes._ahead == []
    assert (tmp_path / "imported").exists() == (how == "died")


def test_a_process_ends_where_its_turn_can_no_longer_come(tmp_path):
    job, order = waiting_job(tmp_path)
    process = CellProcess(job, order, folder=tmp_path / "out", limits=Limits())
    process._process.stdin.close()
    assert process._process.wait(60) == 0
    process.close()


def test_no_more_processes_wait_than_there_are_cores_for(tmp_path, monkeypatch):
    job, order = waiting_job(tmp_path)
    jobs = [replace(job) for _ in range(9)]
    for cores, most in ((2, 1), (16, 4), (128, 4)):
        monkeypatch.setattr(apart, "cpu_cores", lambda cores=cores: cores)
        processes = Processes(order, folder=tmp_path / "out", limits=Limits())
        processes._start = lambda job: SimpleNamespace(job=job, close=lambda: None)
        processes.start_ahead(jobs)
        assert [one.job for one in processes._ahead] == jobs[:most]
        processes.start_ahead(jobs[1:])
        assert [one.job for one in processes._ahead] == jobs[1 : most + 1]


@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_next_process_starts_while_a_cell_is_measured_on_a_gpu_only(on_gpu, tmp_path, monkeypatch):
    order = order_for(Submission(HONEST), tmp_path)
    started = []
    monkeypatch.setattr(Processes, "start_ahead", lambda self, jobs: started.append([job.ordered.run for job in jobs]))
    if on_gpu:
        monkeypatch.setattr(order_checks.Job, "on_gpu", True)
        monkeypatch.setattr(apart, "current_gpu", lambda: 0)
        monkeypatch.setattr("ledger.measure.run_order._empty_launches", lambda jobs: EmptyLaunches(7, 9))
    found = iter([Outcome("wrong"), InputError("not here")])

    def pretended(process, *, launch_ps, vary, on_stage):
        assert (launch_ps, vary) == (7 if on_gpu else None, True)
        on_stage("timing")
        result = next(found)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr("ledger.measure.run_order.run_apart", pretended)
    cell = order.cells[0]
    order = order.model_copy(update={"cells": (cell, cell.model_copy(update={"run": 1}))})
    out = tmp_path / "out"
    out.mkdir()
    summary = run_order(order, order_sha256=None, out=out, kernels=kernels_of(order, folder=out), counters="off")
    assert (summary.failed, len(summary.unloaded)) == (1, 1)
    assert started == ([[0, 1], [1], []] if on_gpu else [[], [], []])
    assert set(summary.stages) == {"starting", "timing"}


IMPORTED = """
import sys
from types import SimpleNamespace
from ledger.measure import callable_process as child

import torch
used = []
for name in ("is_available", "device_count", "current_device", "get_device_properties", "_lazy_init"):
    setattr(torch.cuda, name, lambda *_, name=name: used.append(name))
child._import(SimpleNamespace(protocol=SimpleNamespace(name="cold-graph/2")))
print(used, "torch._dynamo" in sys.modules)
"""


def test_what_a_process_imports_ahead_of_its_turn_uses_no_device():
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=False)
    assert done.stdout == "[] True\n", done.stderr
