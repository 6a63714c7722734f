"""Reads an NVIDIA device's clocks, power and temperature through the driver's own library; never changes a setting.

NVML is called by ctypes. A reading takes microseconds, so it can be taken while work is in flight; a run of nvidia-smi
takes too long for that. Source: NVML API reference (nvml.h). Imports records only.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_uint, c_ulonglong, c_void_p

from ledger.records import DeviceState

_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_GPU_TEMPERATURE = 0

# nvmlClocksEventReason*: bit -> our name. Idle (bit 0) and an application's own clock setting (bit 1) do not throttle.
_THROTTLE = {
    0x04: "power-cap",
    0x08: "hardware-slowdown",
    0x10: "sync-boost",
    0x20: "thermal-software",
    0x40: "thermal-hardware",
    0x80: "power-brake",
}

UNKNOWN_STATE = DeviceState(sm_clock_mhz=None, memory_clock_mhz=None, power_mw=None, temperature_c=None, throttle=())


class Nvml:
    """Read one device by its UUID; every reading is None where the driver does not report it."""

    def __init__(self, uuid: str) -> None:
        """Open the driver's library. Raises: OSError when there is none or it does not know the device."""
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = c_void_p()
        name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        for result in (
            self._library.nvmlInit_v2(),
            self._library.nvmlDeviceGetHandleByUUID(c_char_p(name.encode()), byref(self._device)),
        ):
            if result != 0:
                raise OSError(f"NVML answered {result} for device {name}")

    def _number(self, function: str, *arguments: int) -> int | None:
        value = c_uint()
        call = getattr(self._library, function, None)
        if call is None or call(self._device, *(c_uint(argument) for argument in arguments), byref(value)) != 0:
            return None
        return value.value

    def driver(self) -> str | None:
        """Return the driver's version."""
        text = ctypes.create_string_buffer(96)
        if self._library.nvmlSystemGetDriverVersion(text, c_uint(len(text))) != 0:
            return None
        return text.value.decode("ascii", "replace")

    def power_limit_mw(self) -> int | None:
        """Return the power limit that the driver enforces."""
        return self._number("nvmlDeviceGetEnforcedPowerLimit") or None

    def sm_clock_mhz(self) -> int | None:
        """Return the current SM clock."""
        return self._number("nvmlDeviceGetClockInfo", _SM_CLOCK)

    def throttle(self) -> tuple[str, ...]:
        """Return the reasons why the clocks are reduced now; empty when there is none."""
        reasons = c_ulonglong()
        for function in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            call = getattr(self._library, function, None)
            if call is not None and call(self._device, byref(reasons)) == 0:
                return tuple(name for bit, name in _THROTTLE.items() if reasons.value & bit)
        return ()

    def state(self) -> DeviceState:
        """Return the current clocks, power, temperature and throttling."""
        return DeviceState(
            sm_clock_mhz=self.sm_clock_mhz(),
            memory_clock_mhz=self._number("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
            power_mw=self._number("nvmlDeviceGetPowerUsage"),
            temperature_c=self._number("nvmlDeviceGetTemperature", _GPU_TEMPERATURE),
            throttle=self.throttle(),
        )
