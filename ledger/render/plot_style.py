"""Names how lines and dots of a roofline look: a colour a device, a marker a dtype, a rim for a bench. Pure."""

from __future__ import annotations

from ledger.records import Dtype
from ledger.render.plot_model import Dot, RooflinePlot

# Okabe, Ito, "Color Universal Design": distinct under every common colour blindness.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS: dict[Dtype, str] = {
    "fp64": "P",
    "fp32": "^",
    "tf32": "v",
    "fp16": "o",
    "bf16": "s",
    "fp8_e4m3": "D",
    "int8": "X",
}
# A dot of a bench has a dark rim: it has no forecast and is no evidence.
BENCH_RIM = "#000000"


def colour_of(plot: RooflinePlot, device: str) -> str:
    """Return the colour of a device's lines and dots."""
    return _COLOURS[plot.device_names.index(device) % len(_COLOURS)]


def rim_of(dot: Dot) -> str:
    """Return the colour of a dot's rim."""
    return "white" if dot.seal else BENCH_RIM
