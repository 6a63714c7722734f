"""Forecasts and measures callables of every kind on a GPU, by the command line, in a ledger on disk."""

import itertools
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from desk import ROOT, Desk
from gpu_callables import CAMPAIGNS, OPS

pytestmark = pytest.mark.gpu


Row = dict[str, Any]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """Return the rows of all campaigns by name of the callable and pass, with its record under `record`."""
    from ledger.device.local_profile import profile_of_this_machine

    folder = tmp_path_factory.mktemp("callables")
    profile = profile_of_this_machine(folder).name
    with ThreadPoolExecutor(len(CAMPAIGNS)) as pool:
        books = [folder / f"book{number}" for number in range(len(CAMPAIGNS))]
        found = list(pool.map(_measured, books, CAMPAIGNS, itertools.repeat(profile)))
    return {name: row for part in found for name, row in part.items()}


def _measured(folder: Path, campaign: str, profile: str) -> dict[str, Row]:
    """Return the rows of one campaign, measured in a ledger of its own."""
    desk = Desk(folder)
    (desk.root / "ops.py").write_text(OPS)
    (desk.root / "decode_step.py").write_bytes((ROOT / "examples" / "decode_step.py").read_bytes())
    (desk.root / "campaign.yaml").write_text(campaign.replace("PROFILE", profile))
    desk.ledger("predict", "--from", "campaign.yaml")
    # One profiler at a time can count on a device.
    counters = "auto" if campaign == CAMPAIGNS[0] else "off"
    print(desk.run(sys.executable, "-P", "-m", "ledger", "verify", "--counters", counters).stderr)
    records = {}
    for path in (desk.root / "verifications").glob("*/*.json"):
        record = json.loads(path.read_text())
        if "cell" in record:
            records[record["cell"]] = record
    found = {}
    for row in json.loads(desk.ledger("report", "--json"))["rows"]:
        record = records.get(row["cell"])
        if record is None:
            # A measurement that the judge refuses is not committed.
            continue
        run = record["case"]["config"]["pass"]
        name = row["kernel"].partition(":")[2]
        found[name if run == "forward" else f"{name}, {run}"] = {**row, "record": record}
    _print(found)
    print(desk.ledger("report"))
    audited = json.loads(desk.ledger("audit", ".", "--json"))
    assert audited["verdict"] == "holds"
    return found


def _print(found: dict[str, Row]) -> None:
    for name, row in found.items():
        measured, record = row["measured"] or {}, row["record"]
        counters = len(record["counters"]["kernels"]) if record["counters"] else record["counters_missing"]
        timing = record["timing"] or {}
        print(
            name, row["state"], row["timed"], measured.get("regime"), measured.get("percent"), row["grade"],
            f"{timing.get('median_ps', 0) / 1e6:.2f} us", timing.get("input_sets"), "counters", counters,
            row["failure"], record["extensions"], [one["code"] for one in row["findings"]],
        )  # fmt: skip


GRAPHS = (
    "swiglu",
    "gather",
    "scale_",
    "three_steps",
    "Net",
    "Net, backward",
    "Net, both",
    "Compiled",
    "fused",
    "scaled",
    "after",
    "DecodeStep",
)
STREAMS = ("waits", "synchronises")


@pytest.mark.parametrize("name", GRAPHS)
def test_a_callable_is_measured_in_a_cuda_graph(rows, name):
    row = rows[name]
    assert (row["state"], row["timed"]) == ("measured", "graph"), row["failure"]
    assert row["record"]["correctness"]["passed"]
    assert 1 < row["measured"]["percent"] < 105


@pytest.mark.parametrize("name", STREAMS)
def test_a_call_that_no_graph_can_capture_is_timed_on_a_stream_and_says_why(rows, name):
    row = rows[name]
    assert (row["state"], row["timed"]) == ("measured", "stream"), row["failure"]
    reason = row["record"]["extensions"]["stream_timing/1"]["reason"]
    assert "synchroniz" in reason or "captur" in reason, reason
    # An empty launch on a stream takes longer than a node of a graph.
    assert row["record"]["timing"]["launch_ps"] > 1.2 * rows["swiglu"]["record"]["timing"]["launch_ps"]
    # The rotation does not fit in the cache.
    timing = row["record"]["timing"]
    assert timing["input_sets"] * timing["bytes_per_set"] > 2 * row["record"]["device"]["l2_bytes"]


@pytest.mark.parametrize(("name", "least", "most"), [("three_steps", 3, 4), ("Net, both", 6, 40), ("fused", 1, 1)])
def test_counters_are_of_all_kernels_of_a_call(rows, name, least, most):
    from ledger.analysis.metric_readings import totals
    from ledger.records import Counters

    record = rows[name]["record"]
    assert record["counters"] is not None, record["counters_missing"]
    kernels = record["counters"]["kernels"]
    assert least <= len(kernels) <= most
    durations = [float(kernel["metrics"]["gpu__time_duration.sum"]["value"]) for kernel in kernels]
    seen = totals(Counters.model_validate_json(json.dumps(record["counters"])), record["device"]["target"])
    assert seen.duration_ps == pytest.approx(1000 * sum(durations), rel=1e-3)


def test_counters_of_a_callable_agree_with_its_traffic(rows):
    from ledger.analysis.metric_readings import totals
    from ledger.records import Counters

    record = rows["swiglu"]["record"]
    assert record["counters"] is not None, record["counters_missing"]
    seen = totals(Counters.model_validate_json(json.dumps(record["counters"])), record["device"]["target"])
    # silu and the product are two kernels: x and y are read, an intermediate result is written and read.
    assert 2 * 2048 * 8192 * 2 < seen.dram_bytes_read < 3.2 * 2048 * 8192 * 2


def test_a_callable_that_compiles_again_during_the_rotation_is_refused(rows):
    row = rows["recompiles"]
    assert row["state"] == "failed"
    assert "recompil" in row["failure"].lower() or "compiled again" in row["failure"]


def test_work_on_another_stream_that_outlasts_the_call_is_refused(rows):
    row = rows["beside"]
    assert row["state"] == "failed"
    assert "other streams worked" in row["failure"]
