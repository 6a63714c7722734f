"""Defines what a roofline plot shows: devices, ceilings, memory slopes and dots. Pure data.

The plot's parts all draw from one RooflinePlot. `document` makes the JSON of `ledger roofline --json` from it,
`manifest` the list of what was drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ledger import __version__
from ledger.records import CeilingKind, Dtype, Path, Regime

SCHEMA = "ledger/roofline/1"
MANIFEST_SCHEMA = "ledger/roofline-manifest/1"


@dataclass(frozen=True)
class Device:
    """Hold a device that is drawn: the name and the title of its profile, and the SHA-256 that seals give it."""

    name: str
    title: str
    sha256: str


@dataclass(frozen=True)
class Ceiling:
    """Hold one horizontal line: the peak of one or more instruction paths."""

    device: str
    kind: CeilingKind
    paths: tuple[Path, ...]
    flop_per_s: float
    label: str
    source: str


@dataclass(frozen=True)
class Slope:
    """Hold one memory slope."""

    device: str
    kind: CeilingKind
    level: Literal["DRAM", "L2"]
    bytes_per_s: float
    label: str
    source: str


@dataclass(frozen=True)
class Dot:
    """Hold one measured point; what a forecast or a seal gives is None for a point of a bench.

    kernel: its name; for a library's point with the library behind a comma. percent: of the roof. seal, record: ids of
    the prediction and of the measurement.
    """

    device: str
    label: str
    kernel: str
    shape: dict[str, int]
    dtype: Dtype
    left_of_ridge: bool
    intensity_flop_per_byte: float
    flop_per_s: float
    percent: float
    regime: Regime | None
    predicted_flop_per_s: float | None
    predicted_percent: float | None
    predicted_regime: Regime | None
    blind: bool | None
    seal: str | None
    campaign: str | None = None
    predicted_low: float | None = None
    predicted_high: float | None = None
    record: str | None = None

    @property
    def operation(self) -> str:
        """Return the kernel of the point, without a library's name."""
        return self.kernel.partition(",")[0]


@dataclass(frozen=True)
class RooflinePlot:
    """Hold all that a plot shows; `head` is the commit of the ledger, None without one."""

    head: str | None
    devices: tuple[Device, ...]
    ceilings: tuple[Ceiling, ...]
    slopes: tuple[Slope, ...]
    dots: tuple[Dot, ...]

    @property
    def title(self) -> str:
        """Return the titles of the devices, joined."""
        return " and ".join(device.title for device in self.devices)

    @property
    def device_names(self) -> tuple[str, ...]:
        """Return the names of the devices, in the order in which they were asked for."""
        return tuple(device.name for device in self.devices)


def manifest(plot: RooflinePlot, benches: Mapping[str, str], drawn: Mapping[str, str]) -> dict[str, Any]:
    """Return what a picture was drawn from, as one JSON value: each input by name and SHA-256 or id.

    benches, drawn: SHA-256 of the bench documents, and of the files written, by name.
    """
    dots = [dot for dot in plot.dots if dot.seal is not None]
    return {
        "schema": MANIFEST_SCHEMA,
        "ledger": __version__,
        "commit": plot.head,
        "profiles": [{"name": device.name, "sha256": device.sha256} for device in plot.devices],
        "predictions": sorted({dot.seal for dot in dots if dot.seal is not None}),
        "measurements": sorted({dot.record for dot in dots if dot.record is not None}),
        "benches": [{"name": name, "sha256": digest} for name, digest in sorted(benches.items())],
        "files": [{"name": name, "sha256": digest} for name, digest in sorted(drawn.items())],
    }


def document(plot: RooflinePlot) -> dict[str, Any]:
    """Return a plot as one JSON value. Units: as the keys say; percent of the sealed roof."""
    return {"schema": SCHEMA, **asdict(plot)}
