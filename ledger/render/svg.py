"""Writes SVG: elements with escaped text, a whole file with its style, and that as PNG. Pure.

Colours are classes, so that a picture follows the reader's light or dark mode, alone and inside the HTML page. Text
from records is made harmless and escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from ledger.analysis.formatting import harmless
from ledger.records import Dtype, Regime

STYLE = """\
.plot { background: #fff; font-family: system-ui, "DejaVu Sans", sans-serif; font-size: 13px; }
.plot text { fill: #222; }
.plot .small { font-size: 12px; } .plot .title { font-size: 19px; font-weight: bold; }
.plot .end { text-anchor: end; } .plot .middle { text-anchor: middle; }
.plot .dim { fill: #555; }
.plot .paper { fill: #fff; } .plot .band { fill: #f4f4f4; }
.plot .name { paint-order: stroke; stroke: #fff; stroke-width: 4px; stroke-linejoin: round; font-size: 14px; }
.plot .grid { stroke: #e2e2e2; } .plot .axis, .plot .leader { stroke: #888; } .plot .leader { stroke-width: 0.6; }
.plot .roof { fill: none; stroke-width: 1.3; } .plot .thin { stroke-width: 0.9; }
.plot .burst { stroke-dasharray: 8 4; } .plot .sustained { stroke-dasharray: 2 3; }
.plot .hbm { fill: #0072b2; stroke: #0072b2; } .plot .l2 { fill: #009e73; stroke: #009e73; }
.plot .latency { fill: #d55e00; stroke: #d55e00; } .plot .compute { fill: #a3378a; stroke: #a3378a; }
.plot .smem { fill: #b58900; stroke: #b58900; } .plot .launch { fill: #6b4fbb; stroke: #6b4fbb; }
.plot .none { fill: #777; stroke: #777; }
.plot .d0 { stroke: #555; } .plot .d1 { stroke: #9a4a1c; } .plot .d2 { stroke: #2a6f6f; } .plot .d3 { stroke: #75489c; }
.plot .dot { stroke: #fff; stroke-width: 0.7; } .plot .bench { stroke: #000; }
.plot .arrow { fill: none; stroke-width: 1; } .plot .hollow { fill: #fff; stroke-width: 1.3; }
.plot .interval { stroke-width: 4; stroke-opacity: 0.28; }
@media (prefers-color-scheme: dark) and (not print) {
.plot { background: #16181c; } .plot text { fill: #e6e6e6; } .plot .dim { fill: #aaa; }
.plot .paper { fill: #16181c; } .plot .band { fill: #20242a; } .plot .name { stroke: #16181c; }
.plot .grid { stroke: #2c3138; } .plot .axis, .plot .leader { stroke: #888; }
.plot .hbm { fill: #4aa8e0; stroke: #4aa8e0; } .plot .l2 { fill: #2fc79a; stroke: #2fc79a; }
.plot .latency { fill: #f28e4a; stroke: #f28e4a; } .plot .compute { fill: #dd7cc6; stroke: #dd7cc6; }
.plot .smem { fill: #d9b13b; stroke: #d9b13b; } .plot .launch { fill: #a591ee; stroke: #a591ee; }
.plot .none { fill: #999; stroke: #999; }
.plot .d0 { stroke: #aaa; } .plot .d1 { stroke: #e0925f; } .plot .d2 { stroke: #6fc1c1; } .plot .d3 { stroke: #bb99dd; }
.plot .dot { stroke: #16181c; } .plot .bench { stroke: #fff; } .plot .hollow { fill: #16181c; }
}
"""
"""Rules of every picture. Regime colours after Okabe and Ito, "Color Universal Design", darkened for white paper."""

Attribute = str | float


def element(name: str, content: str = "", **attributes: Attribute) -> str:
    """Return one element around content that is SVG already; `class_` and `stroke_width` become SVG's names."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Return a line of text; y is the middle of the line."""
    return element("text", escape(harmless(words), quote=False), x=x, y=y + 4.5, class_=kind)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a straight line."""
    return element("path", d=f"M{_value(x1)} {_value(y1)}L{_value(x2)} {_value(y2)}", class_=kind)


def mark(dtype: Dtype, x: float, y: float, size: float, kind: str, title: str = "") -> str:
    """Return a dot in the shape of its dtype; `title` is what a browser shows on hover."""
    about = element("title", escape(harmless(title), quote=False)) if title else ""
    if dtype not in _SHAPES:
        return element("circle", about, cx=x, cy=y, r=size, class_=kind)
    points = " ".join(f"{_value(x + dx * size)},{_value(y + dy * size)}" for dx, dy in _SHAPES[dtype])
    return element("polygon", about, points=points, class_=kind)


# Corners in units of the size; fp16 is a circle.
_SHAPES: dict[Dtype, tuple[tuple[float, float], ...]] = {
    "bf16": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "fp32": ((0, -1.2), (1.1, 0.8), (-1.1, 0.8)),
    "tf32": ((0, 1.2), (1.1, -0.8), (-1.1, -0.8)),
    "fp8_e4m3": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    "int8": ((-1.3, 0.5), (-0.5, 0.5), (0, 1.3), (0.5, 0.5), (1.3, 0.5), (0.5, -0.5), (0, -1.3), (-0.5, -0.5)),
    "fp64": ((-1.2, -0.4), (-0.4, -1.2), (0.4, -1.2), (1.2, -0.4), (1.2, 0.4), (0.4, 1.2), (-0.4, 1.2), (-1.2, 0.4)),
}


def regime_class(regime: Regime | None) -> str:
    """Return the class that colours a regime."""
    return "none" if regime is None else regime.removesuffix("-bound")


def picture(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """Return an SVG element for a page that has STYLE. title: what a screen reader says."""
    content = [element("title", escape(harmless(title), quote=False)), *parts]
    return element(
        "svg",
        "\n" + "\n".join(content) + "\n",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_value(width)} {_value(height)}",
        class_="plot",
        role="img",
    )


def standalone(drawn: str) -> str:
    """Return a picture as a file of its own, with its style."""
    head, rest = drawn.split("\n", 1)
    return f"{head}\n<style>\n{STYLE}</style>\n{rest}\n"


def png(alone: str) -> bytes | None:
    """Return a picture file as PNG, in its own size; None where resvg-py, the extra [plot], is not installed."""
    try:
        import resvg_py
    except ImportError:
        return None
    return bytes(resvg_py.svg_to_bytes(svg_string=alone))


def _value(value: Attribute) -> str:
    return escape(value, quote=True) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
