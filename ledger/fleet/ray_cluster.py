"""Reaches a Ray cluster: its nodes, and the cells that run there. The only module that imports ray, and only when used.

Ray starts a worker on the node, keeps what the cell needs free of others, shows it one GPU alone, and tells when a
worker or a node has died. No cell is retried by Ray: the driver records each attempt.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from ledger.canonical import object_id
from ledger.errors import InputError, MachineError
from ledger.fleet.node import LOST, REFUSED, measure_on_node
from ledger.fleet.placement import Need, Node
from ledger.suggestions import install_command

LOCAL = "local"
_SILENT = 50
"""Above every level of logging."""
_ANSWER_S = 10.0
_OBJECT_STORE_BYTES = 512 * 1024**2
Event = tuple[Any, str, Any]
"""What a cell that runs has to say: its handle, a word of fleet.node, and what belongs to it."""


class Cluster:
    """Stand for a connection to a Ray cluster; `cluster` opens and closes it."""

    def __init__(self, ray: Any) -> None:
        """Hold the module of Ray."""
        self._ray = ray
        self._task = ray.remote(max_retries=0)(measure_on_node)
        self._names: dict[str, str] = {}

    def nodes(self) -> list[Node]:
        """Return the living nodes, each with a name of its own."""
        alive = [one for one in self._ray.nodes() if one["Alive"]]
        labels = Counter(_label(one) for one in alive)
        for one in alive:
            label = _label(one)
            # A name stays as it is when other nodes come and go.
            self._names.setdefault(one["NodeID"], label if labels[label] == 1 else f"{label}-{one['NodeID'][:8]}")
        return [Node(one["NodeID"], self._names[one["NodeID"]], dict(one["Resources"])) for one in alive]

    def start(self, node: Node, need: Need, order: bytes, asked: dict[str, Any]) -> Any:
        """Start the cell of an order on a node; return a handle of it."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return self._task.options(
            num_returns="streaming",
            num_cpus=need.cpus,
            num_gpus=need.gpus,
            resources=dict(need.resources),
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        ).remote(order, asked)

    def wait(self, handles: Sequence[Any], timeout_s: float) -> Iterator[Event]:
        """Yield what running cells have to say, at the latest after a time nothing."""
        if not handles:
            return
        self._ray.wait(list(handles), num_returns=1, timeout=timeout_s)
        ready, _ = self._ray.wait(list(handles), num_returns=len(handles), timeout=0)
        for handle in ready:
            yield (handle, *self._said(handle))

    def _said(self, handle: Any) -> tuple[str, Any]:
        errors = self._ray.exceptions
        try:
            return cast("tuple[str, Any]", self._ray.get(next(handle)))
        except StopIteration:
            return LOST, "the worker ended without a result"
        except errors.RayTaskError as error:
            # The node itself works, and this package does not on it.
            return REFUSED, f"the node cannot run ledger: {_last_line(error)}"
        except errors.RayError as error:
            # What follows the first sentence names addresses.
            return LOST, f"{type(error).__name__}: {_first_line(error).partition('. ')[0]}"

    def cancel(self, handle: Any) -> None:
        """End a cell that runs, with its worker."""
        self._ray.cancel(handle, force=True)


@contextmanager
def cluster(address: str, local_resources: Mapping[str, float]) -> Iterator[Cluster]:
    """Open a cluster by its address, as host:port, auto or ray://host:port; `local` starts one on this machine.

    local_resources: the custom resources of a local one, whose services listen on 127.0.0.1 alone.
    Assumes that ray was not imported before: it reads its settings then.
    Raises: MachineError without ray, or where no cluster answers.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if address == LOCAL:
        # Ray's setting for one machine, by its name for the systems where that is the default.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        import ray
    except ImportError as error:
        raise MachineError(f"--ray: ray is not installed; expected it: {install_command('fleet')}") from error
    _require_answer(address)
    options: dict[str, Any] = {"logging_level": _SILENT, "log_to_driver": False, "configure_logging": False}
    if address == LOCAL:
        options |= {
            "include_dashboard": False,
            "resources": dict(local_resources),
            "object_store_memory": _OBJECT_STORE_BYTES,
            # Ray gives workers a lower priority than other processes have.
            "_system_config": {"worker_niceness": 0},
        }
    try:
        ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError, AssertionError, OSError) as error:
        raise _unusable(address, _first_line(error)) from error
    try:
        yield Cluster(ray)
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Check that something listens at an address: Ray itself waits for minutes. Raises: InputError, MachineError."""
    if address in (LOCAL, "auto"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
        raise InputError(f"--ray: got {address!r}; expected local, auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
    except (OSError, UnicodeError) as error:
        raise _unusable(address, str(error)) from error


def _unusable(address: str, why: str) -> MachineError:
    return MachineError(
        f"--ray {address}: no cluster can be used there ({why}); expected local, auto or HOST:PORT on a machine that "
        "is a node of it, or ray://HOST:PORT, with the same versions of ray and Python"
    )


def _label(node: Mapping[str, Any]) -> str:
    """Return the name that a node was given (ray start --node-name), else digits of a digest of its host's name."""
    given, host = str(node.get("NodeName") or ""), str(node["NodeManagerHostname"])
    if given and given not in (host, node["NodeManagerAddress"]) and given.isprintable():
        return given[:80]
    return f"node-{object_id(b'ledger/node/1' + bytes(1) + host.encode())[:8]}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:300]
