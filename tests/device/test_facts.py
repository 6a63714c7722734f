"""Tests the facts and the state of this machine's devices."""

import pytest
from measuring import this_cpu

from ledger.device import facts as device
from ledger.errors import MachineError


def test_cpu_facts_name_this_machine():
    facts = device.cpu_facts()
    assert facts.name and facts.target in ("x86_64", "aarch64")
    assert facts.sms >= 1 and facts.memory_bytes > 2**28
    assert facts.software["ledger"]


def test_last_cache_bytes_adds_up_distinct_instances(tmp_path, monkeypatch):
    listed = (("0", "3", "Unified", "0-1"), ("1", "3", "Unified", "0-1"), ("2", "3", "Unified", "2"))
    for cpu, level, kind, sharing in listed:
        for index, fields in (
            ("index3", (level, "32768K", kind, sharing)),
            ("index1", ("1", "32K", "Instruction", cpu)),
        ):
            folder = tmp_path / f"cpu{cpu}" / "cache" / index
            folder.mkdir(parents=True)
            for name, text in zip(("level", "size", "type", "shared_cpu_list"), fields, strict=True):
                (folder / name).write_text(text + "\n")
    monkeypatch.setattr(device, "_CPU", tmp_path)
    assert device.last_cache_bytes() == 2 * 32 * 2**20
    monkeypatch.setattr(device, "_CPU", tmp_path / "none")
    assert device.last_cache_bytes() is None


def test_profile_matches_needs_both_name_and_target():
    facts = device.cpu_facts()
    assert device.profile_matches(this_cpu(), facts)
    assert not device.profile_matches(this_cpu(device_names=("Another",)), facts)
    assert not device.profile_matches(this_cpu(target="sm_90"), facts)
    with pytest.raises(MachineError, match="profile cpu expects Another"):
        device.require_profile(this_cpu(device_names=("Another",)), facts)


def test_cpu_state_has_no_power():
    state = device.cpu_state()
    assert state.power_mw is None and state.throttle == ()


@pytest.mark.gpu
def test_cuda_facts_and_state_are_read():
    facts, state = device.cuda_facts(), device.cuda_state()
    assert facts.target.startswith("sm_") and facts.l2_bytes and facts.driver
    assert state.sm_clock_mhz and state.power_mw and state.temperature_c


def test_uuid_digest_tells_gpus_apart_and_hides_their_uuids():
    import hashlib

    from ledger.device.facts import uuid_digest

    uuid = "03b97b76-f68a-e37e-58b0-18efca215749"
    digest = uuid_digest(uuid)
    assert digest == hashlib.sha256(b"ledger/gpu-uuid/1\0" + uuid.encode()).hexdigest()
    assert digest == uuid_digest(f"GPU-{uuid.upper()}") and digest != uuid_digest(uuid.replace("0", "1"))
    assert uuid_digest("") is None
