"""Tests which profile describes this machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from ledger.device import local_profile as here
from ledger.errors import MachineError, UnknownName


def gpu(name: str):
    return lambda: SimpleNamespace(name=name)


def no_gpu():
    raise MachineError("no CUDA device")


def test_a_named_profile_is_returned_unchecked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(here, "cuda_facts", no_gpu)
    assert here.profile_of_this_machine(None, "t4").name == "t4"
    with pytest.raises(UnknownName, match="'t5' is not known"):
        here.profile_of_this_machine(None, "t5")


@pytest.mark.parametrize(("device", "profile"), [("NVIDIA H200", "h200"), ("Tesla T4", "t4"), ("NVIDIA L4", "l4")])
def test_a_gpu_is_found_by_the_name_of_its_driver(monkeypatch: pytest.MonkeyPatch, device: str, profile: str):
    monkeypatch.setattr(here, "cuda_facts", gpu(device))
    assert here.profile_of_this_machine(None).name == profile


def test_a_gpu_without_a_profile_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(here, "cuda_facts", gpu("NVIDIA Unheard-of 1"))
    with pytest.raises(MachineError, match="'NVIDIA Unheard-of 1'; expected one, or name the nearest: --hw NAME"):
        here.profile_of_this_machine(None)


def test_without_a_gpu_the_calibrated_cpu_is_returned_or_required(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(here, "cuda_facts", no_gpu)
    with pytest.raises(UnknownName, match="ledger calibrate --device cpu"):
        here.profile_of_this_machine(tmp_path)
