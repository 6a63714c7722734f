"""Tests what feeds a roofline plot, where things are drawn, and that the files can be written again byte for byte."""

from __future__ import annotations

import io
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plotted import book
from rich.console import Console
from samples import (
    TOY,
    burst,
    hardware_value,
    make_book,
    make_hardware,
    quantity,
)

from ledger.errors import InputError, MachineError
from ledger.record_files import load_hardware
from ledger.records import Hardware, Regime
from ledger.render import plot_image as drawing
from ledger.render import roofline_plot as plot
from ledger.render.plot_layout import bounds, cluster_text, clusters, position, push_apart, regime_text, spread
from ledger.render.plot_model import Dot, RooflinePlot
from ledger.render.plot_model import document as plot_document
from ledger.render.plot_table import dot_page
from ledger.render.plot_terminal import print_plot


def measured_toy() -> Hardware:
    more = {**burst(0.9, 80.0), "l2_bandwidth": quantity(3.0, "TB/s", kind="measured")}
    return make_hardware(ceilings={**hardware_value()["ceilings"], "burst": more})


def toy_plot(**options: Any) -> RooflinePlot:
    return plot.plot_of([measured_toy()], book(**options))


def document() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(json.dumps(plot_document(toy_plot())))
    return value


# The document


def test_document_has_a_dot_for_every_verified_cell() -> None:
    dots = document()["dots"]
    assert len(dots) == 5
    # 10 GFLOP on 1 GB in 2 ms: 10 FLOP/byte at 5 TFLOP/s; the forecast, 80% of the 10 TFLOP/s that 1 TB/s allow, is 8.
    first = dots[0]
    assert (first["intensity_flop_per_byte"], first["left_of_ridge"]) == (10.0, True)
    assert first["flop_per_s"] == pytest.approx(5e12)
    assert first["predicted_flop_per_s"] == pytest.approx(8e12)
    # 1 TFLOP in 25 ms: 40 TFLOP/s, 40% of 100; forecast 80.
    last = dots[-1]
    assert (last["intensity_flop_per_byte"], last["left_of_ridge"]) == (1000.0, False)
    assert last["flop_per_s"] == pytest.approx(40e12)
    assert last["predicted_flop_per_s"] == pytest.approx(80e12)


def test_document_names_every_roof_with_its_source() -> None:
    value = document()
    assert [(line["kind"], line["paths"], line["flop_per_s"], line["label"]) for line in value["ceilings"]] == [
        ("datasheet", ["fp16_tensor"], 100e12, "100 TFLOP/s fp16 tensor, datasheet"),
        ("datasheet", ["fp32"], 10e12, "10.0 TFLOP/s fp32 cores, datasheet"),
        ("burst", ["fp16_tensor"], 80e12, "80.0 TFLOP/s fp16 tensor, burst"),
    ]
    assert [(line["level"], line["bytes_per_s"], line["label"]) for line in value["slopes"]] == [
        ("DRAM", 1e12, "DRAM 1.00 TB/s, datasheet"),
        ("DRAM", 0.9e12, "DRAM 900 GB/s, burst"),
        ("L2", 3e12, "L2 3.00 TB/s, burst"),
    ]
    assert all(line["source"] == "a test" for line in (*value["ceilings"], *value["slopes"]))


def test_equal_peaks_are_one_line() -> None:
    labels = [line.label for line in plot.plot_of([load_hardware("h100_sxm")], None).ceilings]
    assert labels == [
        "1.98 PFLOP/s fp8, int8 tensor, datasheet",
        "989 TFLOP/s fp16, bf16 tensor, datasheet",
        "495 TFLOP/s tf32 tensor, datasheet",
        "134 TFLOP/s fp16 cores, datasheet",
        "66.9 TFLOP/s fp32 cores; fp64 tensor, datasheet",
        "33.5 TFLOP/s fp64 cores, datasheet",
    ]


def test_document_shows_dots_of_its_devices_only() -> None:
    assert plot.plot_of([make_hardware(name="other")], book()).dots == ()


def test_only_a_campaigns_dots_are_kept_and_those_that_nobody_forecast() -> None:
    value = toy_plot()
    dots = list(value.dots)
    dots[1], dots[2] = replace(dots[1], campaign="first"), replace(dots[2], campaign="second")
    dots[3] = replace(dots[3], seal=None)
    value = replace(value, dots=tuple(dots))
    kept = plot.only_campaigns(value, ["second"])
    assert kept.dots == (dots[2], dots[3])
    with pytest.raises(InputError, match="campaign 'third' has no dot; expected one of: first, second"):
        plot.only_campaigns(value, ["first", "third"])
    page = dot_page(kept)
    assert ("| toy | second | " in page, "| toy | – | " in page, "first" in page) == (True, True, False)


def test_document_of_a_refused_ledger_has_no_dots() -> None:
    from ledger.records import Finding

    refused = Finding(code="edited", severity="refused", path="p", message="m")
    assert plot.plot_of([TOY], make_book(*book().cells, findings=(refused,))).dots == ()


def test_extra_dots_need_no_forecast() -> None:
    dot = Dot(
        device="toy",
        label="cuBLAS M=N=K=4096 fp16",
        kernel="cublas",
        shape={"M": 4096},
        dtype="fp16",
        left_of_ridge=False,
        intensity_flop_per_byte=1365.0,
        flop_per_s=7e13,
        percent=70.0,
        regime=None,
        predicted_flop_per_s=None,
        predicted_percent=None,
        predicted_regime=None,
        blind=None,
        seal=None,
    )
    value = plot.plot_of([TOY], None, [dot])
    assert (value.dots, value.head, regime_text(dot)) == ((dot,), None, "bench")


# Places


def test_bounds_hold_every_dot_and_roof() -> None:
    value = toy_plot()
    (left, right), (low, high) = bounds(value)
    assert left < 10.0
    assert right > 1000.0
    assert low < 5e12
    assert high > 100e12


@given(
    st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=60).map(sorted),
    st.floats(min_value=1e-3, max_value=0.2),
)
def test_push_apart_keeps_order_and_distance(wanted: list[float], apart: float) -> None:
    places = push_apart(wanted, apart)
    assert len(places) == len(wanted)
    assert all(above - below >= apart * 0.999 for below, above in itertools.pairwise(places))
    # Moving everything up or down would bring nothing nearer: the mean stays.
    assert sum(places) / len(places) == pytest.approx(sum(wanted) / len(wanted), abs=1e-9)


def test_push_apart_leaves_alone_what_is_apart() -> None:
    assert push_apart([0.1, 0.5, 0.9], 0.2) == [0.1, 0.5, 0.9]
    assert push_apart([0.5, 0.5], 0.2) == pytest.approx([0.4, 0.6])


def test_fanned_dots_keep_their_distance_to_the_roof() -> None:
    dots = toy_plot().dots
    for dot, factor in zip(dots, spread(dots, 1e4), strict=True):
        x, y = position(dot, dot.flop_per_s, factor)
        roof = min(100e12, x * 1e12)
        assert y / roof == pytest.approx(dot.percent / 100, rel=1e-6)
    assert len({round(factor, 6) for factor in spread(dots, 1e4)[:4]}) == 4
    assert spread(dots, 1e4)[4] == pytest.approx(1.0)


def test_clusters_share_device_kernel_and_intensity() -> None:
    groups = clusters(toy_plot().dots)
    assert sorted(len(group) for group in groups) == [1, 4]
    assert sorted(cluster_text(group) for group in groups) == [
        "rmsnorm_matmul B=H=O=64 fp16",
        "rmsnorm_matmul fp16 (4)",
    ]
    ones = [dot for dot in toy_plot().dots if dot.shape["B"] == 1]
    assert cluster_text(ones) == "rmsnorm_matmul B=1 fp16 (2)"


@pytest.mark.parametrize(
    ("said", "found", "words"),
    [
        ("hbm-bound", "hbm-bound", "hbm"),
        ("hbm-bound", "latency-bound", "hbm → latency"),
        ("hbm-bound", None, "hbm → ?"),
        (None, "compute-bound", "compute"),
    ],
)
def test_regime_text(said: Regime | None, found: Regime | None, words: str) -> None:
    assert regime_text(replace(toy_plot().dots[0], predicted_regime=said, regime=found)) == words


# Files and terminal


def test_write_makes_the_same_four_files_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
    first, second = plot.write(toy_plot(), tmp_path / "a"), plot.write(toy_plot(), tmp_path / "b")
    assert [path.name for path in first] == ["roofline.png", "roofline.svg", "roofline.json", "roofline.md"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    assert json.loads(first[2].read_text()) == document()


def test_svg_names_every_cell_and_roof(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        text = plot.write(toy_plot(), tmp_path)[1].read_text()
    for dot in toy_plot().dots:
        assert dot.label in text
    for line in toy_plot().ceilings:
        assert line.label in text


def test_hundred_dots_are_drawn_and_all_named(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
    dot = toy_plot().dots[0]
    dots = tuple(
        replace(dot, label=f"cell number {n}", intensity_flop_per_byte=10.0 * (1 + n % 10), percent=1.0 * n)
        for n in range(100)
    )
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        text = plot.write(replace(toy_plot(), dots=dots), tmp_path)[1].read_text()
    assert all(f">cell number {n}<" in text for n in range(100))


def test_columns_of_rows_keep_clear_of_one_another() -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="the extra [plot] is not installed")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Names of wide letters, and the longest regimes.
    made = toy_plot()
    widest = replace(
        made.dots[0], label="matmul M=N=K=8192 fp16", predicted_regime="compute-bound", regime="latency-bound"
    )
    value = replace(made, dots=(widest,) * 120)
    with matplotlib.rc_context({"font.size": 8, "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=drawing._size(value))
        FigureCanvasAgg(figure)
        drawing._compose(figure, value)
        figure.canvas.draw()
        columns = figure.axes[1:]
        assert len(columns) == 3
        for one, beside in itertools.pairwise(columns):
            regimes = [text.get_window_extent().x1 for text in one.texts if text.get_text()]
            assert max(regimes) < min(name.get_window_extent().x0 for name in beside.get_yticklabels())


def test_without_matplotlib_the_error_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MachineError, match=r"pip install '.+\[plot\]'"):
        plot.write(toy_plot(), tmp_path)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_terminal_shows_every_dot_by_letter(width: int) -> None:
    stream = io.StringIO()
    print_plot(toy_plot(), Console(file=stream, width=width))
    canvas = [line for line in stream.getvalue().splitlines() if "│" in line or "┤" in line]
    drawn = "".join(line.split("│")[-1].split("┤")[-1] for line in canvas)
    assert {letter for letter in drawn if letter in "abcde"} == set("abcde")
    assert "o" in drawn
    assert max(len(line) for line in canvas) <= max(width, 50)


def test_terminal_places_a_dot_below_its_roof() -> None:
    stream = io.StringIO()
    print_plot(toy_plot(), Console(file=stream, width=100))
    canvas = [line for line in stream.getvalue().splitlines() if "│" in line or "┤" in line]
    letter = next(number for number, line in enumerate(canvas) if "e" in line.split("│")[-1].split("┤")[-1])
    top = next(number for number, line in enumerate(canvas) if "─" in line)
    assert letter > top


def test_fields_cannot_act_on_the_terminal() -> None:
    value = toy_plot()
    first = replace(value.dots[0], label="\x1b[31m\u202e[bold]x")
    stream = io.StringIO()
    print_plot(replace(value, dots=(first, *value.dots[1:])), Console(file=stream, width=100))
    assert "<U+001B>[31m<U+202E>[bold]x" in stream.getvalue()
