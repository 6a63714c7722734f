"""Selects the device that this process measures on: the CPU, or one GPU. Imports torch, only when called.

A GPU is numbered as torch numbers it, so after CUDA_VISIBLE_DEVICES. All code of a process uses the current device of
torch; NVML is asked for the same device by its UUID, and a child process gets the same number and checks the UUID.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ledger.errors import InputError, MachineError
from ledger.suggestions import install_command

if TYPE_CHECKING:
    from types import ModuleType


@dataclass(frozen=True)
class Device:
    """Hold a device by kind and number; the number of the CPU is 0."""

    kind: Literal["cpu", "cuda"]
    index: int


_selected: Device | None = None


def parse_device(text: str) -> Device:
    """Return the device that `cpu`, `cuda` (the first GPU) or `cuda:N` names. Raises: InputError."""
    found = re.fullmatch(r"cpu|cuda(?::([0-9]{1,4}))?", text, re.ASCII)
    if found is None:
        raise InputError(f"--device: got {text!r}; expected cpu, cuda or cuda:N, as in cuda:1")
    return Device("cpu", 0) if text == "cpu" else Device("cuda", int(found.group(1) or 0))


def import_torch() -> ModuleType:
    """Return torch. Raises: MachineError when it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise MachineError(
            f"torch is not installed; expected it on a machine that measures: {install_command('torch')}"
        ) from error
    module: ModuleType = torch
    return module


def select_device(text: str | None) -> None:
    """Make a device the one that this process measures on; None leaves the first GPU, or the CPU without one.

    Raises: InputError for a name that is none; MachineError for a GPU that is not there, naming those that are.
    """
    global _selected
    if text is None:
        return
    device = parse_device(text)
    if device.kind == "cuda":
        require_gpu(text, device.index, gpu_names())
        import_torch().cuda.set_device(device.index)
    _selected = device


def gpu_names() -> list[str]:
    """Return the names of the GPUs that torch sees, in its order. Raises: MachineError without torch."""
    cuda = import_torch().cuda
    count = cuda.device_count() if cuda.is_available() else 0
    return [str(cuda.get_device_properties(index).name) for index in range(count)]


def require_gpu(text: str, index: int, names: list[str]) -> None:
    """Check that the GPU that a text names by number is among those found. Raises: MachineError."""
    if not names:
        raise MachineError(
            f"--device: got {text}; torch sees no CUDA device: check nvidia-smi and that torch was built with CUDA"
        )
    if index >= len(names):
        listed = ", ".join(f"cuda:{number} {name}" for number, name in enumerate(names))
        raise MachineError(f"--device: got {text}; expected one of those found: {listed}")


def cpu_is_selected() -> bool:
    """Tell whether the user chose the CPU, so that no GPU is used."""
    return _selected is not None and _selected.kind == "cpu"


def current_gpu() -> int:
    """Return the number of the GPU that this process uses. Needs a CUDA device."""
    return int(import_torch().cuda.current_device())
