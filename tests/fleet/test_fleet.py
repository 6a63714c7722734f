"""Tests what decides where a cell runs and what is written down of it, and measures on two real nodes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from desk import Desk
from measuring import cell_of, order_of, this_cpu
from ray_nodes import merged, ray_cluster, tiny_order

from ledger.canonical import encode
from ledger.errors import EvidenceRefused, InputError, ParseError
from ledger.fleet.attempts import FILE, Attempts
from ledger.fleet.node import LOST, MEASURED, REFUSED, STARTED, measure_on_node
from ledger.fleet.placement import RAY_TYPES, Node, choose, local_resources, need, room
from ledger.fleet.ray_cluster import cluster
from ledger.fleet.received import take
from ledger.fleet.run_fleet import FleetOptions, run_fleet
from ledger.measure.order_checks import order_of as order_of_cell
from ledger.record_files import hardware_names, load_hardware, read_measurement
from ledger.records import Order

H200, L4, CPU = load_hardware("h200"), load_hardware("l4"), this_cpu()
RTX = load_hardware("rtx_4090")


def node(name: str, **resources: float) -> Node:
    return Node(name, name, {key.replace("__", ":"): value for key, value in resources.items()})


TWO_H200 = node("a", CPU=8, GPU=2, accelerator_type__H200=1)


# Placement


def test_a_gpu_cell_takes_one_gpu_of_its_type_and_a_cpu_cell_the_whole_node():
    found = need(H200, TWO_H200)
    assert (found.cpus, found.gpus, set(found.resources)) == (1, 1, {"accelerator_type:H200"})
    assert need(L4, TWO_H200) is None
    assert need(CPU, TWO_H200) is None
    own = node("b", CPU=8, ledger_cpu=1)
    assert (need(CPU, own).cpus, need(CPU, own).gpus) == (8, 0)


def test_a_gpu_without_a_name_in_ray_needs_the_custom_resource_and_a_gpu():
    assert need(RTX, node("a", CPU=1, ledger_rtx_4090=1)) is None
    assert need(RTX, node("a", CPU=1, GPU=1, ledger_rtx_4090=1)).resources == {"ledger_rtx_4090": 1}


def test_two_cells_share_a_host_of_two_gpus_and_a_third_or_one_on_the_cpu_waits():
    both = node("a", CPU=8, GPU=2, accelerator_type__H200=1, ledger_cpu=1)
    gpu, cpu = need(H200, both), need(CPU, both)
    assert room([], both, gpu) and room([gpu], both, gpu) and not room([gpu, gpu], both, gpu)
    assert room([], both, cpu) and not room([gpu], both, cpu) and not room([cpu], both, gpu)


def test_a_lost_cell_goes_to_another_node_and_back_only_where_none_other_fits():
    first, second = node("a", CPU=1, ledger_cpu=1), node("b", CPU=1, ledger_cpu=1)
    assert choose(CPU, [first, second], tried=(), taken={})[0] is first
    assert choose(CPU, [first, second], tried={"a"}, taken={})[0] is second
    busy = {"b": [need(CPU, second)]}
    assert choose(CPU, [first, second], tried={"a"}, taken=busy) is None
    assert choose(CPU, [first], tried={"a"}, taken={})[0] is first


def test_types_are_those_that_ray_finds():
    pytest.importorskip("ray", reason="needs ray")
    from ray._private.accelerators.nvidia_gpu import NvidiaGPUAcceleratorManager as Manager
    from ray.util.accelerators import accelerators

    for name, kind in RAY_TYPES.items():
        if not name.startswith("AMD"):
            assert Manager._gpu_name_to_accelerator_type(name) == kind
        assert kind in vars(accelerators).values()


def test_every_device_name_with_a_type_is_of_a_profile():
    shipped = {name for one in hardware_names() for name in load_hardware(one).device_names}
    assert set(RAY_TYPES) <= shipped


def test_a_local_cluster_declares_what_ray_has_no_name_for():
    assert local_resources([H200, CPU]) == {"ledger_cpu": 1}


# Attempts


def test_attempts_outlive_a_driver_that_was_ended(tmp_path: Path):
    one, two = cell_of(CPU, m=1), cell_of(CPU, m=2)
    made = Attempts(tmp_path)
    made.begin(one, "a", "2026-01-02T03:04:05Z")
    made.end(one, "the node died")
    made.begin(one, "b", "2026-01-02T03:05:05Z")
    made.begin(two, "c", "2026-01-02T03:05:06Z")
    made.end(two, None)
    with (tmp_path / FILE).open("a") as stream:
        stream.write('{"begin": ["torn')
    found = Attempts(tmp_path)
    assert [(item.node, item.reason) for item in found.of(one)] == [
        ("a", "the node died"), ("b", "the driver ended before the result"),
    ]  # fmt: skip
    assert found.of(two) == ()
    found.begin(one, "c", "2026-01-02T03:06:05Z")
    assert len(Attempts(tmp_path).of(one)) == 3


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"begin": [1]}', '{"end": ["a", "b", 0]}'])
def test_a_file_of_attempts_that_no_driver_wrote_is_refused(tmp_path: Path, line: str):
    (tmp_path / FILE).write_text(f"{line}\n")
    with pytest.raises(ParseError, match="line 1"):
        Attempts(tmp_path)


# A node


def asked(**changes) -> dict:
    fields = {
        "order_sha256": "ab" * 32, "counters": "off", "full_cells": [], "time_limit_s": None, "node_limit_s": 100.0,
        "node": "alpha", "attempts": [],
    }  # fmt: skip
    return {**fields, **changes}


@pytest.fixture(scope="module")
def measured() -> tuple[Order, dict[str, bytes]]:
    """Measure one cell as a node does, with an attempt before it."""
    pytest.importorskip("torch", reason="measuring on a CPU needs torch")
    order = tiny_order(8)
    before = {"started_at": "2026-01-02T03:04:05Z", "node": "beta", "reason": "the node died"}
    (start, _), (word, files) = measure_on_node(encode(order), asked(attempts=[before]))
    assert (start, word) == (STARTED, MEASURED)
    return order, files


def taken(order: Order, files: dict[str, bytes], out: Path, **changes):
    return take(files, **{"cell": order.cells[0], "order_sha256": "ab" * 32, "node": "alpha", "out": out, **changes})


def test_a_record_tells_its_node_and_the_attempts_before_it(measured, tmp_path: Path):
    record = taken(*measured, tmp_path)
    assert (record.status, record.node, record.order_sha256) == ("measured", "alpha", "ab" * 32)
    assert [(one.node, one.reason) for one in record.attempts] == [("beta", "the node died")]
    (path,) = tmp_path.glob("*.json")
    assert read_measurement(path) == record


@pytest.mark.parametrize(
    "changes", [{"node": "beta"}, {"order_sha256": None}, {"cell": cell_of(CPU, m=8, run=1)}, {"cell": cell_of(CPU)}]
)
def test_a_result_of_another_cell_order_or_node_is_not_taken(measured, tmp_path: Path, changes):
    with pytest.raises(EvidenceRefused):
        taken(*measured, tmp_path, **changes)
    assert not list(tmp_path.glob("*.json"))


def test_an_altered_result_is_not_taken(measured, tmp_path: Path):
    order, files = measured
    with pytest.raises(EvidenceRefused, match="no measurement came"):
        taken(order, {name: data + b" " for name, data in files.items()}, tmp_path)


@pytest.mark.parametrize(
    "order, named",
    [
        (tiny_order(8, device_names=("Another CPU",)), "expects Another CPU"),
        (order_of(cell_of(CPU, pins={"driver": "==1.0"})), "sealed is driver==1.0"),
    ],
    ids=["device", "driver"],
)
def test_a_node_refuses_by_name_what_is_not_the_sealed(order: Order, named: str):
    pytest.importorskip("torch", reason="measuring on a CPU needs torch")
    _, (word, reason) = measure_on_node(encode(order), asked())
    assert word == REFUSED
    assert named in reason


def test_a_cell_that_takes_too_long_is_lost():
    _, (word, reason) = measure_on_node(encode(tiny_order(8)), asked(node_limit_s=0.05))
    assert (word, reason) == (LOST, "the cell ran longer than 0.05 s on the node")


def test_an_order_of_one_cell_has_its_profile_and_sources_alone():
    order = merged(tiny_order(1, 2), tiny_order(3, name="cpu_other"))
    one = order_of_cell(order, order.cells[2])
    assert one.cells == (order.cells[2],)
    assert [hardware.name for hardware in one.hardware.values()] == ["cpu_other"]
    assert one.files == order.files


# A cluster


def test_two_nodes_measure_what_they_declare_and_the_rest_is_named(tmp_path: Path):
    pytest.importorskip("torch", reason="measuring on a CPU needs torch")
    # The last profile's device is declared by a node that does not have it.
    order = merged(
        tiny_order(1), tiny_order(2, name="cpu_other"), tiny_order(3, name="none"),
        tiny_order(4, name="wrong", device_names=("Another CPU",)),
    )  # fmt: skip
    notes: list[str] = []
    with (
        ray_cluster(alpha={"ledger_cpu": 1}, beta={"ledger_cpu_other": 1, "ledger_wrong": 1}) as nodes,
        cluster(nodes.address, {}) as opened,
    ):
        found = run_fleet(order, opened, out=tmp_path, options=FleetOptions("off"), on_note=notes.append)
    assert (found.measured, found.failed, found.skipped) == (2, 0, 0)
    assert {name: count.measured for name, count in found.nodes.items()} == {"alpha": 1, "beta": 1}
    why = dict(found.unloaded)
    assert "no node declares profile none; expected --resources '{\"ledger_none\": 1}'" in why["cell-3"]
    assert "beta: device is" in why["cell-4"] and "expects Another CPU" in why["cell-4"]
    assert any(note.startswith("beta refused cell-4") for note in notes)
    with pytest.raises(InputError, match="cell-3"):
        found.check_loaded()
    records = {one.cell: one for one in map(read_measurement, tmp_path.glob("*.json"))}
    assert {cell: one.node for cell, one in records.items()} == {"cell-1": "alpha", "cell-2": "beta"}


def test_options_of_a_cluster_are_checked(tmp_path: Path):
    desk = Desk(tmp_path / "ledger")
    assert "together with --ray" in desk.refused(2, "verify", "--node-limit", "5")
    assert "expected without --ray" in desk.refused(2, "verify", "--ray", "local", "--device", "cpu")
    assert "expected without --from" in desk.refused(2, "verify", "--ray", "local", "--from", ".")
    desk.ledger(*"predict vector_add --hw cpu --dtype fp32 --shape N=1000 --regime hbm-bound --pct 50".split())
    desk.ledger("order", "-o", "order.json")
    budget = ("measure", "order.json", "-o", "out", "--budget", "60")
    assert "--budget: expected without --ray" in desk.refused(2, *budget, "--ray", "local")
    if find_spec("ray") is None:
        assert "ray is not installed" in desk.refused(2, "verify", "--ray", "local")
    else:
        assert "expected local, auto, HOST:PORT" in desk.refused(2, "verify", "--ray", "nowhere")
        assert "no cluster can be used there" in desk.refused(2, "verify", "--ray", "127.0.0.1:1")
