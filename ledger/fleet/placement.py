"""Says which node of a cluster may measure a cell, and what of the node the cell takes for itself. Pure.

A node fits a profile by Ray's own name for the accelerator, or by the custom resource `ledger_PROFILE`, which a CPU and
a GPU without a name in Ray need. A cell takes a whole GPU, or the whole node where its profile is of a CPU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ledger.records import Hardware, OrderedCell, is_gpu

# Device names as the drivers print them, and the constants of ray.util.accelerators.
RAY_TYPES = {
    "Tesla T4": "T4",
    "NVIDIA L4": "L4",
    "NVIDIA L40S": "L40S",
    "NVIDIA A100-SXM4-40GB": "A100",
    "NVIDIA A100-SXM4-80GB": "A100",
    "NVIDIA H100 80GB HBM3": "H100",
    "NVIDIA H100 PCIe": "H100",
    "NVIDIA H100 NVL": "H100",
    "NVIDIA H200": "H200",
    "NVIDIA H200 NVL": "H200",
    "NVIDIA H20": "H20",
    "NVIDIA B200": "B200",
    "NVIDIA B300 SXM6 AC": "B300",
    "AMD Instinct MI300X": "AMD-Instinct-MI300X-OAM",
    "AMD Instinct MI325X": "AMD-Instinct-MI325X-OAM",
}
_TYPE_SHARE = 0.001
"""What Ray itself takes of an accelerator type for a task that names it."""

_MOST_GPUS = 64.0
"""More than one machine has; Ray counts the GPUs themselves."""


@dataclass(frozen=True)
class Node:
    """Hold a living node: Ray's id of it, its name in records, and what it declares to Ray."""

    id: str
    name: str
    resources: Mapping[str, float]

    @property
    def cpus(self) -> float:
        """Return the processors that it declares."""
        return self.resources.get("CPU", 0.0)


@dataclass(frozen=True)
class Need:
    """Hold what a cell takes of a node while it is measured."""

    cpus: float
    gpus: int
    resources: Mapping[str, float]


def custom_resource(hardware: Hardware) -> str:
    """Return the custom resource by which a node declares that it has the device of a profile."""
    return f"ledger_{hardware.name}"


def ray_type(hardware: Hardware) -> str | None:
    """Return Ray's accelerator type of a profile, None where Ray has no name."""
    return next((RAY_TYPES[name] for name in hardware.device_names if name in RAY_TYPES), None)


def local_resources(profiles: Iterable[Hardware]) -> dict[str, float]:
    """Return the custom resources of a cluster on one machine; its processes check whether the device is there."""
    plain = [one for one in profiles if ray_type(one) is None]
    return {custom_resource(one): _MOST_GPUS if is_gpu(one.target) else 1.0 for one in plain}


def wanted(hardware: Hardware) -> str:
    """Return what a node must declare for a profile, as text for an error."""
    own, kind = f"--resources '{{\"{custom_resource(hardware)}\": 1}}'", ray_type(hardware)
    return own if kind is None else f"accelerator_type:{kind}, which ray start finds by itself, or {own}"


def need(hardware: Hardware, node: Node) -> Need | None:
    """Return what a cell of a profile takes of a node, None where the node does not declare the profile's device."""
    kind, own = ray_type(hardware), custom_resource(hardware)
    if node.resources.get(own, 0) >= 1:
        declared = {own: 1.0}
    elif kind is not None and f"accelerator_type:{kind}" in node.resources:
        declared = {f"accelerator_type:{kind}": _TYPE_SHARE}
    else:
        return None
    if not is_gpu(hardware.target):
        return Need(node.cpus, 0, declared)
    return Need(min(node.cpus, 1.0), 1, declared) if node.resources.get("GPU", 0) >= 1 else None


def room(taken: Iterable[Need], node: Node, wanted: Need) -> bool:
    """Tell whether a node has room for a cell beside those that it measures: none beside one on the CPU."""
    listed = list(taken)
    if not listed:
        return True
    if not wanted.gpus or not all(one.gpus for one in listed):
        return False
    every = [*listed, wanted]
    names = {name for one in every for name in one.resources}
    held = {name: sum(one.resources.get(name, 0) for one in every) for name in names}
    held |= {"GPU": sum(one.gpus for one in every), "CPU": sum(one.cpus for one in every)}
    return all(amount <= node.resources.get(name, 0) for name, amount in held.items())


def choose(
    hardware: Hardware, nodes: Sequence[Node], *, tried: Collection[str], taken: Mapping[str, Sequence[Need]]
) -> tuple[Node, Need] | None:
    """Return the node that measures a cell next, None where none can now; one that lost the cell only if no other fits.

    tried: ids of the nodes that lost it. taken: what runs on each node, by its id.
    """
    fitting = [(node, found) for node in nodes if (found := need(hardware, node)) is not None]
    others = [(node, found) for node, found in fitting if node.id not in tried]
    free = [(node, found) for node, found in others or fitting if room(taken.get(node.id, ()), node, found)]
    return min(free, key=lambda pair: (len(taken.get(pair[0].id, ())), pair[0].name), default=None)


def group(cell: OrderedCell) -> tuple[object, ...]:
    """Return what decides whether a node can measure a cell: its profile, its sources and its pinned packages."""
    return (cell.hardware_sha256, cell.kernel_sha256, tuple(sorted(cell.pins.items())))
