"""Starts Ray nodes as real processes on this machine, on 127.0.0.1, and drives orders on them by the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from desk import ENVIRONMENT
from measuring import cell_of, order_of, this_cpu

from ledger.canonical import encode, record_id
from ledger.records import Hardware, Order

# Ray reads them when it is imported; the second keeps its services on 127.0.0.1.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "disabled",
}
os.environ.update(SETTINGS)
STORE_BYTES = 80 * 1024**2


@contextmanager
def ray_cluster(**nodes: dict[str, float]) -> Iterator[Nodes]:
    """Yield a cluster with a node of each name, which declares these resources; the head has none."""
    pytest.importorskip("ray", reason="needs ray: pip install 'roofline-ledger[fleet]'")
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        made = Nodes(cluster)
        made.add("head", {}, cpus=0)
        for name, resources in nodes.items():
            made.add(name, resources)
        yield made
    finally:
        cluster.shutdown()


class Nodes:
    """The nodes of a cluster by name."""

    def __init__(self, cluster) -> None:
        self.cluster, self.by_name = cluster, {}

    @property
    def address(self) -> str:
        return self.cluster.address

    def add(self, name: str, resources: dict[str, float], cpus: int = 1) -> None:
        self.by_name[name] = self.cluster.add_node(
            node_name=name, num_cpus=cpus, num_gpus=0, resources=resources, include_dashboard=False,
            object_store_memory=STORE_BYTES,
        )  # fmt: skip

    def kill(self, name: str) -> None:
        """End all processes of a node at once, as a lost machine does."""
        self.cluster.remove_node(self.by_name.pop(name), allow_graceful=False)


def tiny_order(*sizes: int, **changes) -> Order:
    """Return an order of small cells for this CPU; changes: of the profile."""
    profile = this_cpu(**changes)
    digest = record_id(Hardware, encode(profile))
    cells = [cell_of(profile, m=size, cell=f"cell-{size}", hardware_sha256=digest) for size in sizes]
    return order_of(*cells, hardware=profile)


def merged(*orders: Order) -> Order:
    """Return the cells of all orders in one."""
    first = orders[0]
    return first.model_copy(
        update={
            "cells": tuple(cell for one in orders for cell in one.cells),
            "hardware": {digest: found for one in orders for digest, found in one.hardware.items()},
        }
    )


def drive(folder: Path, address: str, *more: str) -> subprocess.Popen[str]:
    """Start `ledger measure order.json -o out --ray ADDRESS` in a folder."""
    command = "measure order.json -o out --counters off --json --ray".split()
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "ledger", *command, address, *more],
        cwd=folder, env={**ENVIRONMENT, **SETTINGS}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def done_in(folder: Path) -> int:
    return len(list((folder / "out").glob("*.json")))


def wait_until(true: Callable[[], object], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.2)


def cell_processes(node: str = "") -> dict[int, Path]:
    """Return the processes that measure a cell now, of all nodes or of one, each with the folder of its result."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
            if "ledger.fleet.cell_process" in words:
                asked = json.loads(Path(words[words.index("ledger.fleet.cell_process") + 1]).read_text())
                if node in ("", asked["node"]):
                    found[int(path.parent.name)] = Path(asked["out"])
        except (OSError, ValueError, IndexError):
            continue
    return found


def stop_one(node: str) -> bool:
    """Stop the process that measures a cell on a node; tell whether it stands still and has no result yet."""
    for process, out in cell_processes(node).items():
        try:
            os.kill(process, signal.SIGSTOP)
            time.sleep(0.2)
            if "State:\tT" in Path(f"/proc/{process}/status").read_text() and not list(out.glob("*.json")):
                return True
            os.kill(process, signal.SIGCONT)
        except OSError:
            continue
    return False
