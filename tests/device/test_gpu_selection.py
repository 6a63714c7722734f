"""Tests the choice of a device: names, errors, what the CPU excludes, and on two GPUs that all parts use the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ledger_process import run_ledger

from ledger.device import facts, gpu_selection
from ledger.device.gpu_selection import Device, parse_device, require_gpu, select_device
from ledger.device.local_profile import profile_of_this_machine
from ledger.errors import InputError, MachineError, UnknownName

ROOT = Path(__file__).parents[2]


@pytest.fixture
def unselected(monkeypatch: pytest.MonkeyPatch):
    """Undo a choice when the test ends."""
    monkeypatch.setattr(gpu_selection, "_selected", None)


@pytest.mark.parametrize(
    ("text", "device"),
    [("cpu", ("cpu", 0)), ("cuda", ("cuda", 0)), ("cuda:0", ("cuda", 0)), ("cuda:13", ("cuda", 13))],
)
def test_parse_device(text: str, device: tuple[str, int]):
    assert parse_device(text) == Device(*device)


@pytest.mark.parametrize("text", ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1 ", "CUDA", "cpu:0", "cuda:٣", "1"])
def test_parse_device_refuses_other_names(text: str):
    with pytest.raises(InputError, match="expected cpu, cuda or cuda:N"):
        parse_device(text)


def test_a_gpu_that_is_not_there_is_an_error_that_lists_those_found():
    require_gpu("cuda:1", 1, ["NVIDIA H200", "NVIDIA H200"])
    with pytest.raises(MachineError, match=r"cuda:7; expected one of those found: cuda:0 Tesla T4, cuda:1 NVIDIA L4"):
        require_gpu("cuda:7", 7, ["Tesla T4", "NVIDIA L4"])
    with pytest.raises(MachineError, match="got cuda; torch sees no CUDA device"):
        require_gpu("cuda", 0, [])


def test_the_cpu_once_chosen_excludes_every_gpu(unselected, tmp_path: Path):
    select_device(None)
    assert not gpu_selection.cpu_is_selected()
    select_device("cpu")
    assert not facts.has_cuda()
    with pytest.raises(MachineError, match="--device: got cpu; expected a GPU"):
        facts.cuda_facts()
    with pytest.raises(UnknownName, match="ledger calibrate --device cpu"):
        profile_of_this_machine(tmp_path)


def ledger(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return run_ledger(*arguments, cwd=folder, env={**os.environ, "PYTHONPATH": path})


@pytest.mark.parametrize(
    "command",
    [
        "calibrate", "measure order.json -o out", "verify", "bench rmsnorm_matmul", "tune rmsnorm_matmul",
        "timeline rmsnorm_matmul -o trace.json", "inspect rmsnorm_matmul", "doctor",
    ],
)  # fmt: skip
def test_every_command_that_uses_a_device_refuses_a_name_that_is_none(tmp_path: Path, command: str):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    done = ledger(tmp_path, *command.split(), "--device", "gpu1")
    assert done.returncode == 2
    assert "--device: got 'gpu1'; expected cpu, cuda or cuda:N" in done.stderr


def test_inspect_takes_an_architecture_or_a_device(tmp_path: Path):
    done = ledger(tmp_path, "inspect", "gemv", "--arch", "sm_90", "--device", "cuda")
    assert done.returncode == 2 and "together with --arch" in done.stderr
    done = ledger(tmp_path, "inspect", "gemv", "--device", "cpu")
    assert done.returncode == 2 and "expected a GPU" in done.stderr


# Two GPUs

SEEN = """
import json, torch
from ledger.device import facts
from ledger.device.gpu_selection import select_device
from ledger.device.probe_kernels import empty_launch
select_device({device!r})
empty_launch()()
torch.cuda.synchronize()
print(json.dumps({{
    "uuid": facts.cuda_facts().uuid, "of_torch": facts.uuid_digest(str(torch.cuda.get_device_properties({index}).uuid)),
    "tensor": torch.zeros(1, device="cuda").device.index, "clock": facts.cuda_state().sm_clock_mhz,
}}))
"""


def gpus() -> int:
    torch = pytest.importorskip("torch", reason="torch is not installed: there is no GPU to choose")
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def seen(device: str, *, visible: str | None = None) -> dict:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    code = SEEN.format(device=device, index=parse_device(device).index)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.gpu
def test_facts_state_and_kernels_are_of_the_chosen_gpu_whatever_its_number():
    if gpus() < 2:
        pytest.skip("fewer than two GPUs: none can be chosen")
    first, second = seen("cuda:0"), seen("cuda:1")
    assert (first["tensor"], second["tensor"]) == (0, 1)
    assert first["uuid"] != second["uuid"]
    assert (first["uuid"], second["uuid"]) == (first["of_torch"], second["of_torch"])
    assert first["clock"] and second["clock"]
    swapped = seen("cuda:0", visible="1,0"), seen("cuda:1", visible="1,0")
    assert [one["uuid"] for one in swapped] == [second["uuid"], first["uuid"]]


@pytest.mark.gpu
def test_a_number_beyond_the_gpus_lists_those_found(tmp_path: Path):
    done = ledger(tmp_path, "bench", "gemv", "--device", "cuda:4000")
    assert done.returncode == 2 and "expected one of those found: cuda:0 " in done.stderr


PROFILED = """
import json, sys
sys.path[:0] = {support!r}
from measuring import QUICK_GRAPH, cell_of, kernel_file, this_gpu
from ledger.device import facts
from ledger.device.gpu_selection import select_device
from ledger.device.ncu import ProfileRequest, profile
select_device("cuda:1")
cell = cell_of(this_gpu(), m=512, implementation="torch-cuda", protocol=QUICK_GRAPH)
cell = cell.model_copy(update={{"case": cell.case.model_copy(update={{"threads": None}})}})
(found,) = profile([ProfileRequest(cell, kernel_file())], full=False)
print(json.dumps({{"counters": found.counters is not None, "missing": found.missing}}))
"""


@pytest.mark.gpu
def test_the_profiler_counts_on_the_chosen_gpu_or_says_why_not():
    if gpus() < 2:
        pytest.skip("fewer than two GPUs: none can be chosen")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    code = PROFILED.format(support=[str(ROOT / "tests" / "support")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["counters"] or "another GPU" not in found["missing"]
    if not found["counters"]:
        pytest.skip(f"no counters here: {found['missing'][:300]}")
