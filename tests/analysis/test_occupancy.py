"""Works the occupancy of an SM by hand, and holds it against what Nsight Compute recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledger.analysis.occupancy import occupancy
from ledger.errors import InputError
from ledger.record_files import load_hardware

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "verifications").glob("??/*.json"))


def test_occupancy_of_an_h200_by_hand():
    # 128 registers: 4096 a warp, 16 warps of 65,536; 4 warps a block: 4. 100 KiB + 1 KiB reserved: 2 of 228 KiB.
    found = occupancy(load_hardware("h200"), registers=128, shared_bytes=100 * 1024, warps=4)
    assert found.limits == {"registers": 4, "smem": 2, "warps": 16, "blocks": 32}
    assert (found.limiter, found.blocks, found.percent) == ("smem", 2, 12.5)


def test_occupancy_rounds_registers_to_256_a_warp_and_warps_to_fours():
    # 183 registers: 5856 a warp, allotted 5888; 11 warps, in fours 8; 4 warps a block: 2.
    assert occupancy(load_hardware("h200"), registers=183, shared_bytes=0, warps=4).limits["registers"] == 2


def test_occupancy_of_a_t4_reserves_no_shared_memory():
    found = occupancy(load_hardware("t4"), registers=32, shared_bytes=32 * 1024, warps=8)
    assert found.limits == {"registers": 8, "smem": 2, "warps": 4, "blocks": 16}


def test_occupancy_needs_an_sm():
    with pytest.raises(InputError, match="no limits of an SM"):
        occupancy(
            load_hardware("mi300x").model_copy(update={"target": "gfx90a"}), registers=32, shared_bytes=0, warps=4
        )


def test_occupancy_of_a_compute_unit_counts_waves_of_its_simds():
    found = occupancy(load_hardware("mi300x"), registers=166, shared_bytes=24 * 1024, warps=4)
    # 166 registers are allotted as 168: three waves on each of four SIMDs; 64 KiB of LDS hold two workgroups.
    assert found.limits == {"registers": 3, "smem": 2, "warps": 8, "blocks": 16}
    assert found.percent == 25


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem[:10])
def test_occupancy_agrees_with_the_recorded_limits(path: Path):
    record = json.loads(path.read_text(encoding="utf-8"))
    if record.get("schema") != "ledger/measurement/1" or not record["counters"]:
        pytest.skip("no counters in this record")
    hardware, config = load_hardware(record["case"]["hardware"]), record["case"]["config"]
    for kernel in record["counters"]["kernels"]:
        said = {name: int(float(m["value"])) for name, m in kernel["metrics"].items() if name.startswith("launch__o")}
        registers = int(kernel["metrics"]["launch__registers_per_thread"]["value"])
        theirs = {"registers": "registers", "warps": "warps", "blocks": "blocks"}
        expected = {ours: said[f"launch__occupancy_limit_{name}"] for ours, name in theirs.items()}
        # A warp-specialised launch, and a second kernel of a call, have other warps than the configuration names: then
        # those that the recorded limit of warps allows.
        most = 64 // expected["warps"]
        specialised = config.get("pipeline") or config.get("variant", "generic") != "generic"
        other = specialised or len(record["counters"]["kernels"]) > 1
        warps = range(64 // (expected["warps"] + 1) + 1, most + 1) if other else (config["num_warps"],)
        found = [occupancy(hardware, registers=registers, shared_bytes=0, warps=one).limits for one in warps]
        assert expected in [{name: limits[name] for name in theirs} for limits in found]
