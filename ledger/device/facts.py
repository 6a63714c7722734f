"""Reads the identity and the current state of this machine's device. Imports torch, only when called.

`l2_bytes` is the size of the last cache before main memory: L2 on a GPU, the last-level cache on a CPU.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from ledger import __version__
from ledger.device.gpu_selection import cpu_is_selected, current_gpu
from ledger.device.gpu_selection import import_torch as import_torch
from ledger.device.nvml import UNKNOWN_STATE, Nvml
from ledger.errors import MachineError
from ledger.records import DeviceFacts, DeviceFactsV2, DeviceState, Hardware, Target, is_gpu
from ledger.sources.platform import is_platform, normalized

_CPU = Path("/sys/devices/system/cpu")
_TARGETS = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
_SUFFIXES = {"K": 2**10, "M": 2**20, "G": 2**30}


@functools.cache
def software() -> dict[str, str]:
    """Return the versions of ledger, Python and every platform package that is installed, by normalised name."""
    found = {"ledger": __version__, "python": platform.python_version()}
    for installed in importlib.metadata.distributions():
        name = normalized(installed.metadata["Name"] or "")
        if is_platform(name) and name != "roofline-ledger":
            found.setdefault(name, installed.version)
    return dict(sorted(found.items()))


def compilers() -> dict[str, str]:
    """Return the versions of Triton's ptxas and of NVRTC, of those that are installed."""
    found = {}
    try:
        from triton import knobs

        found["ptxas"] = str(knobs.nvidia.ptxas.version)
    except (ImportError, AttributeError, RuntimeError, OSError, subprocess.SubprocessError):
        pass
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
        found["nvrtc"] = f"{major}.{minor}"
    except (ImportError, RuntimeError):
        pass
    return found


# CPU


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _field(text: str | None, name: str) -> str | None:
    for line in (text or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name and value.strip():
            return value.strip()
    return None


def last_cache_bytes() -> int | None:
    """Return the bytes of all last-level data caches together, as Linux lists them; None where it lists none."""
    caches: dict[int, dict[str, int]] = {}
    for index in sorted(_CPU.glob("cpu[0-9]*/cache/index*")):
        level, size, kind, sharing = (_read(index / name) for name in ("level", "size", "type", "shared_cpu_list"))
        if level is None or not size or kind == "Instruction":
            continue
        caches.setdefault(int(level), {})[sharing or str(index)] = int(size.rstrip("KMG")) * _SUFFIXES.get(size[-1], 1)
    return sum(caches[max(caches)].values()) if caches else None


def max_clock_mhz() -> float | None:
    """Return the highest rated clock of the processors, or else the current one."""
    rated = [_read(path) for path in _CPU.glob("cpu[0-9]*/cpufreq/cpuinfo_max_freq")]
    highest = max((int(text) / 1000 for text in rated if text and text.isdigit()), default=None)
    return highest or cpu_state().sm_clock_mhz


def cpu_cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@functools.cache
def cpu_facts() -> DeviceFactsV2:
    """Return the identity of this machine's CPU; `sms` counts the processors that this process may use.

    Raises: MachineError on a processor architecture that no profile can name.
    """
    machine = platform.machine().lower()
    if machine not in _TARGETS:
        raise MachineError(f"processor is {machine}; expected one of: {', '.join(sorted(_TARGETS))}")
    info = _read(Path("/proc/cpuinfo"))
    name = _field(info, "model name") or _field(info, "Hardware") or machine
    return DeviceFactsV2(
        name=" ".join(name.split())[:400],
        target=_TARGETS[machine],
        sms=cpu_cores(),
        memory_bytes=_memory_bytes(),
        l2_bytes=last_cache_bytes(),
        driver=f"{platform.system()} {platform.release()}",
        software=software(),
        uuid=None,
        power_limit_mw=None,
    )


def cpu_state() -> DeviceState:
    """Return the mean clock of the processors and the highest zone temperature, where Linux reports them."""
    clocks = [
        float(line.partition(":")[2])
        for line in (_read(Path("/proc/cpuinfo")) or "").splitlines()
        if line.startswith("cpu MHz")
    ]
    zones = [_read(path) for path in Path("/sys/class/thermal").glob("thermal_zone*/temp")]
    warmest = [int(zone) // 1000 for zone in zones if zone is not None and zone.lstrip("-").isdigit()]
    return UNKNOWN_STATE.model_copy(
        update={
            "sm_clock_mhz": round(sum(clocks) / len(clocks)) if clocks else None,
            "temperature_c": max(warmest) if warmest else None,
        }
    )


# GPU


def has_cuda() -> bool:
    """Return whether torch is installed and sees a CUDA device, and the user did not choose the CPU."""
    try:
        return not cpu_is_selected() and bool(import_torch().cuda.is_available())
    except MachineError:
        return False


def gpu_target() -> Target | None:
    """Return the target of this machine's GPU with its SMs, or None without one. Raises: MachineError: no torch."""
    torch = import_torch()
    if not torch.cuda.is_available():
        return None
    return target_of(current_gpu())


def target_of(device: Any) -> Target:
    """Return the target of a GPU that torch sees, such as sm_90, with its SMs."""
    properties = import_torch().cuda.get_device_properties(device)
    return Target(f"sm_{properties.major}{properties.minor}", properties.multi_processor_count)


def _properties() -> Any:
    return import_torch().cuda.get_device_properties(current_gpu())


def _nvml() -> Nvml | None:
    return _nvml_of(str(getattr(_properties(), "uuid", "")))


@functools.cache
def _nvml_of(uuid: str) -> Nvml | None:
    try:
        return Nvml(uuid)
    except (OSError, AttributeError):
        return None


def cuda_facts() -> DeviceFactsV2:
    """Return the identity of the selected GPU. Raises: MachineError when there is none, or the CPU was chosen."""
    if cpu_is_selected():
        raise MachineError("--device: got cpu; expected a GPU, which this needs: cuda or cuda:N")
    if not import_torch().cuda.is_available():
        raise MachineError(
            "torch sees no CUDA device; expected one: check nvidia-smi and that torch was built with CUDA"
        )
    return _cuda_facts(current_gpu())


@functools.cache
def _cuda_facts(index: int) -> DeviceFactsV2:
    torch = import_torch()
    properties = torch.cuda.get_device_properties(index)
    nvml = _nvml()
    return DeviceFactsV2(
        name=properties.name,
        target=f"sm_{properties.major}{properties.minor}",
        sms=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        l2_bytes=properties.L2_cache_size,
        driver=None if nvml is None else nvml.driver(),
        software={**software(), **compilers(), "cuda": str(torch.version.cuda)},
        uuid=gpu_digest(),
        power_limit_mw=None if nvml is None else nvml.power_limit_mw(),
    )


def gpu_digest() -> str | None:
    """Return the digest of the selected GPU's UUID, None where torch does not tell it."""
    return uuid_digest(str(getattr(_properties(), "uuid", "")))


def uuid_digest(uuid: str) -> str | None:
    """Return a digest of a GPU's UUID: it tells whether two records are of one GPU and does not disclose which.

    uuid: with or without the prefix GPU-; None for an empty one.
    """
    bare = uuid.lower().removeprefix("gpu-")
    return hashlib.sha256(b"ledger/gpu-uuid/1\0" + bare.encode()).hexdigest() if bare else None


def cuda_state() -> DeviceState:
    """Return clocks, power, temperature and throttling of the selected GPU at this moment."""
    nvml = _nvml()
    return UNKNOWN_STATE if nvml is None else nvml.state()


# Matching a profile


def facts_for(hardware: Hardware) -> DeviceFactsV2:
    """Return the facts of this machine's device of the kind that a profile describes. Raises: MachineError."""
    return cuda_facts() if is_gpu(hardware.target) else cpu_facts()


def profile_matches(hardware: Hardware, facts: DeviceFacts) -> bool:
    """Return whether a profile describes this device: the same compiler target and one of its names."""
    return facts.target == hardware.target and facts.name in hardware.device_names


def require_profile(hardware: Hardware, facts: DeviceFacts) -> None:
    """Check that a profile describes this device. Raises: MachineError, naming the expected device."""
    if not profile_matches(hardware, facts):
        names = " or ".join(hardware.device_names) or "no device"
        raise MachineError(
            f"device is {facts.name} ({facts.target}); profile {hardware.name} expects {names} ({hardware.target})"
        )
