"""Tests which profile describes this machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from measuring import this_cpu

from ledger.device import local_profile as here
from ledger.errors import MachineError, UnknownName
from ledger.record_files import hardware_yaml


def gpu(name: str, target: str = "sm_90"):
    return lambda: SimpleNamespace(name=name, target=target)


def no_gpu():
    raise MachineError("no CUDA device")


def test_a_named_profile_is_returned_unchecked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(here, "cuda_facts", no_gpu)
    assert here.profile_of_this_machine(None, "t4").name == "t4"
    with pytest.raises(UnknownName, match="'t5' is not known"):
        here.profile_of_this_machine(None, "t5")


@pytest.mark.parametrize(
    ("device", "target", "profile"),
    [("NVIDIA H200", "sm_90", "h200"), ("Tesla T4", "sm_75", "t4"), ("NVIDIA L4", "sm_89", "l4")],
)
def test_a_gpu_is_found_by_the_name_of_its_driver(
    monkeypatch: pytest.MonkeyPatch, device: str, target: str, profile: str
):
    monkeypatch.setattr(here, "cuda_facts", gpu(device, target))
    assert here.profile_of_this_machine(None).name == profile


def test_a_gpu_without_a_profile_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(here, "cuda_facts", gpu("NVIDIA Unheard-of 1"))
    with pytest.raises(MachineError, match="'NVIDIA Unheard-of 1'; expected one, or name the nearest: --hw NAME"):
        here.profile_of_this_machine(None)


def test_without_a_gpu_the_calibrated_cpu_is_returned_or_required(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(here, "cuda_facts", no_gpu)
    with pytest.raises(UnknownName, match="ledger calibrate --device cpu"):
        here.profile_of_this_machine(tmp_path)


def disguised(root: Path, **changes) -> None:
    """Write a profile of a CPU that comes first and has the name of a GPU."""
    (root / "hardware").mkdir(parents=True)
    profile = this_cpu(**{"name": "aaa", "device_names": ("NVIDIA H200",), **changes})
    (root / "hardware" / f"{profile.name}.yaml").write_bytes(hardware_yaml(profile))


def test_a_profile_of_another_target_is_not_of_this_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(here, "cuda_facts", gpu("NVIDIA H200"))
    disguised(tmp_path)
    assert here.profile_of_this_machine(tmp_path).name == "h200"


def test_a_comparison_takes_the_profile_of_its_base(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    base, head = tmp_path / "base", tmp_path / "head"
    base.mkdir()
    monkeypatch.setattr(here, "cuda_facts", gpu("NVIDIA H200"))
    disguised(head, name="h200", target="sm_90", title="disguised")
    assert here.profile_of_this_machine(head).title == "disguised"
    assert here.profile_of_comparison(base, head) == here.profile_of_comparison(base, head, "h200")
    assert here.profile_of_comparison(base, head).title != "disguised"
    # What base has not is head's: a GPU that head is the first to describe, or a CPU that was calibrated just now.
    monkeypatch.setattr(here, "cuda_facts", gpu("NVIDIA New 1"))
    disguised(head / "new", device_names=("NVIDIA New 1",), target="sm_90")
    assert here.profile_of_comparison(base, head / "new").name == "aaa"
    monkeypatch.setattr(here, "cuda_facts", no_gpu)
    for root, names in ((base, ("another CPU",)), (head / "cpu", this_cpu().device_names)):
        disguised(root, name="cpu", device_names=names)
    assert here.profile_of_comparison(base, head / "cpu").device_names == this_cpu().device_names
