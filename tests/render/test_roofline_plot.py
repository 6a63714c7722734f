"""Tests what feeds a roofline plot, what its pictures hold, and that the files can be written again byte for byte."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import re
import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from builders import honest
from hypothesis import given
from hypothesis import strategies as st
from ledger_process import run_ledger
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
from shared_cases import shared_case

from ledger.analysis.book import CellView
from ledger.analysis.report_rows import counted
from ledger.canonical import encode
from ledger.cli.roofline import _say_undrawn
from ledger.errors import InputError, MachineError
from ledger.record_files import load_hardware
from ledger.records import Hardware, Regime, Work
from ledger.render import roofline_plot as plot
from ledger.render import roofline_svg, strips_svg, svg
from ledger.render.plot_layout import bounds, push_apart, regime_text
from ledger.render.plot_model import Device, Dot, RooflinePlot
from ledger.render.plot_model import document as plot_document
from ledger.render.plot_table import dot_page
from ledger.render.plot_terminal import print_plot

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


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


def test_the_command_says_which_measured_kernels_have_no_place(capsys: pytest.CaptureFixture[str]) -> None:
    cells = book().cells
    measured = next(cell for cell in cells if cell.scored)
    flat = replace(measured, forecast=measured.forecast.model_copy(update={"work": work_of_zero(measured)}))
    _say_undrawn(cells)
    assert capsys.readouterr().err == ""
    _say_undrawn([*cells, flat])
    assert f"not drawn: {flat.forecast.case.kernel}: 0 FLOP are counted" in capsys.readouterr().err


def work_of_zero(view: CellView) -> Work:
    return view.forecast.work.model_copy(update={"flops": 0})


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
    lines = plot.plot_of([load_hardware("h100_sxm")], None).ceilings
    assert [line.label for line in lines if line.kind == "datasheet"] == [
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


def test_push_apart_stays_within() -> None:
    assert push_apart([0.0, 0.0, 0.9], 0.25, (0.0, 1.0)) == pytest.approx([0.0, 0.25, 0.9])
    assert push_apart([0.9, 1.0, 1.0], 0.25, (0.0, 1.0)) == pytest.approx([0.5, 0.75, 1.0])
    assert push_apart([0.1] * 5, 0.25, (0.0, 1.0)) == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])


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


def test_write_makes_the_same_files_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    first, second = plot.write(toy_plot(), tmp_path / "a"), plot.write(toy_plot(), tmp_path / "b")
    names = ["roofline.svg", "strip-01.svg", "roofline.json", "roofline.md"]
    assert [path.name for path in first] == [*names, "manifest.json"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert json.loads(first[2].read_text()) == document()


def test_the_manifest_names_every_input_and_file_by_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    drawn = toy_plot()
    *files, manifest = plot.write(drawn, tmp_path, {"bench.json": b"{}"})
    found = json.loads(manifest.read_text())
    named = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert {file["name"]: file["sha256"] for file in found["files"]} == named
    assert found["benches"] == [{"name": "bench.json", "sha256": hashlib.sha256(b"{}").hexdigest()}]
    assert found["profiles"] == [{"name": "toy", "sha256": hashlib.sha256(encode(measured_toy())).hexdigest()}]
    assert set(found["predictions"]) == {dot.seal for dot in drawn.dots}
    assert set(found["measurements"]) == {run.recorded.id for _, run in counted(book())}
    assert found["commit"] == drawn.head


def test_every_picture_is_a_png_too_where_resvg_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py", reason="the extra [plot] is not installed")
    written = {path.name: path.read_bytes() for path in plot.write(toy_plot(), tmp_path)}
    assert [name for name in written if name.endswith(".png")] == ["roofline.png", "strip-01.png"]
    # Bytes 16 to 24 of a PNG are its width and height.
    assert struct.unpack(">II", written["roofline.png"][16:24]) == (1600, 1000)


@pytest.mark.parametrize("name", ["r.svg", "r.png", "r.json", "r.md"])
def test_a_name_with_a_suffix_is_one_file_with_what_the_folder_has(name: str, tmp_path: Path) -> None:
    if name == "r.png":
        pytest.importorskip("resvg_py", reason="the extra [plot] is not installed")
    assert plot.names_file(tmp_path / name)
    plot.write_file(toy_plot(), tmp_path / name)
    plot.write(toy_plot(), tmp_path / "all")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [name]
    assert (tmp_path / name).read_bytes() == (tmp_path / "all" / name.replace("r.", "roofline.")).read_bytes()


def test_a_png_without_resvg_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(MachineError, match="resvg-py is not installed"):
        plot.write_file(toy_plot(), tmp_path / "r.png")
    assert not list(tmp_path.iterdir())


def test_other_names_are_folders_and_a_suffix_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "there.svg").mkdir()
    assert not any(plot.names_file(tmp_path / name) for name in ("site", "v1.2", ".hidden", "there.svg"))
    for name in ("r.pdf", "r.html", "r.PNG"):
        with pytest.raises(InputError, match=r"expected \.svg, \.png, \.json, \.md for one file, or a folder"):
            plot.names_file(tmp_path / name)


def test_the_command_writes_one_file_or_refuses_before_it_draws(tmp_path: Path) -> None:
    run_ledger("roofline", "--hw", "t4", "-o", "r.svg", cwd=tmp_path).check_returncode()
    assert (tmp_path / "r.svg").read_text().startswith("<svg")
    refused = run_ledger("roofline", "--hw", "t4", "-o", "r.pdf", cwd=tmp_path)
    assert refused.returncode == 2 and "r.pdf: got a name in .pdf" in refused.stderr
    assert not (tmp_path / "r.pdf").exists()


def xml(drawn: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.standalone(drawn))


def texts(drawn: str) -> list[str]:
    return [found.text or "" for found in xml(drawn).iter(f"{SVG}text")]


def many(count: int) -> RooflinePlot:
    """Return a plot of two devices and `count` dots with long names of wide letters."""
    other = make_hardware(name="other", title="Another device")
    made = plot.plot_of([measured_toy(), other], book())
    dots = tuple(
        replace(
            made.dots[0],
            label=f"cell {n} {'W' * 60}",
            kernel=f"kernel_{n % 40}",
            device=("toy", "other")[n % 2],
            intensity_flop_per_byte=2.0 ** (n % 13 - 3),
            flop_per_s=2.0 ** (n % 13 - 3) * 1e12 * (1 + n % 7) / 8,
            percent=0.2 * n,
        )
        for n in range(count)
    )
    return replace(made, dots=dots)


PLOTS = {
    "no-cell": lambda: replace(toy_plot(), dots=()),
    "one-cell": lambda: replace(toy_plot(), dots=toy_plot().dots[:1]),
    "memory-side-only": lambda: toy_plot(compute=False),
    "two-devices-1000-cells": lambda: many(1000),
}


@pytest.mark.parametrize("name", PLOTS)
def test_roofline_holds_every_dot_and_ceiling_inside_its_frame(name: str) -> None:
    value = PLOTS[name]()
    drawn = roofline_svg.draw(value)
    root = xml(drawn)
    assert root.get("viewBox") == "0 0 1600 1000"
    marks = [found for found in root.iter() if found.tag in (f"{SVG}circle", f"{SVG}polygon") and len(found)]
    assert len(marks) == len(value.dots)
    for found in root.iter(f"{SVG}circle"):
        if len(found):
            assert 95 <= float(found.get("cx", "")) <= 1215 and 60 <= float(found.get("cy", "")) <= 925
    written = texts(drawn)
    several = len(value.devices) > 1
    for line in value.ceilings:
        assert (f"{line.device} {line.label}" if several else line.label)[:40] in " ".join(written)
    below = [float(found.get("y", "0")) for found in root.iter(f"{SVG}text")]
    assert all(0 <= y <= 1000 for y in below)


def test_few_names_stand_in_the_cloud_and_none_on_another_or_on_a_dot() -> None:
    value = many(300)
    root = xml(roofline_svg.draw(value))
    names = [found for found in root.iter(f"{SVG}text") if "name" in (found.get("class") or "")]
    assert 1 <= len(names) <= 16
    boxes = []
    for found in names:
        x, y = float(found.get("x", "")), float(found.get("y", "")) - 4.5
        boxes.append((x, y - 8, x + 8 * len(found.text or ""), y + 8))
    for one, other in itertools.combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    for dot in root.iter(f"{SVG}circle"):
        if len(dot):
            x, y = float(dot.get("cx", "")), float(dot.get("cy", ""))
            assert not any(box[0] < x < box[2] and box[1] < y < box[3] for box in boxes)


def test_an_arrow_runs_from_the_forecast_to_the_measurement() -> None:
    root = xml(roofline_svg.draw(replace(toy_plot(), dots=toy_plot().dots[-1:])))
    arrows = [found for found in root.iter(f"{SVG}path") if found.get("class") == "arrow none"]
    (arrow,) = (found for found in arrows if not found.get("d", "").startswith("M11 7"))  # that of the legend
    (dot,) = [found for found in root.iter(f"{SVG}circle") if len(found)]
    start, end = re.fullmatch(r"M[\d.]+ ([\d.]+)h6m-3 0V([\d.]+)m-3 -4l3 4l3 -4", arrow.get("d", "")).groups()
    assert end == dot.get("cy") and float(start) < float(end)


@pytest.mark.parametrize(("cells", "strips"), [(0, 0), (1, 1), (40, 1), (41, 2), (248, 7), (1000, 25)])
def test_strips_name_every_dot_once_and_hold_forty_at_most(cells: int, strips: int) -> None:
    drawn = strips_svg.draw(many(cells))
    assert len(drawn) == strips
    rows = [[words for words in texts(one) if words.startswith("cell ")] for one in drawn]
    assert all(len(one) <= 40 for one in rows)
    assert sorted(words.split()[1] for one in rows for words in one) == sorted(str(n) for n in range(cells))


def test_a_strip_shows_forecast_interval_and_regimes() -> None:
    dot = replace(toy_plot().dots[0], predicted_low=70.0, predicted_high=90.0, regime="hbm-bound", percent=50.0)
    (drawn,) = strips_svg.draw(replace(toy_plot(), dots=(dot,)))
    # 0% is at 430 and 100% at 930 pixels.
    assert '<path d="M780 88.5L880 88.5" class="interval hbm"/>' in drawn
    assert '<circle cx="830" cy="88.5" r="4" class="hbm hollow"/>' in drawn
    assert '<circle cx="680" cy="88.5" r="5" class="dot hbm"/>' in drawn
    assert "hbm \u221230.0" in texts(drawn)


def test_fields_are_text_in_a_picture() -> None:
    planted = "</text><script>alert(1)</script>\u202e"
    dots = tuple(replace(dot, label=planted, kernel=planted, device="toy") for dot in toy_plot().dots)
    made = replace(toy_plot(), dots=dots, devices=(Device("toy", planted, "0" * 64),))
    for drawn in (roofline_svg.draw(made), *strips_svg.draw(made)):
        root = xml(drawn)
        assert not list(root.iter("script")) and not list(root.iter(f"{SVG}script"))
        assert "<U+202E>" in "".join(root.itertext())


def test_readme_shows_what_the_command_draws(tmp_path: Path) -> None:
    command = ["roofline", "--campaign", "h200_kernels", "-o", str(tmp_path)]
    run_ledger(*command, cwd=ROOT).check_returncode()
    assert (tmp_path / "roofline.svg").read_text() == (ROOT / "docs" / "roofline.svg").read_text(), (
        f"draw it again: ledger {' '.join(command)}, then copy roofline.svg to docs/"
    )
    assert "](docs/roofline.svg)" in (ROOT / "README.md").read_text()


def test_a_clone_without_the_profile_is_drawn_with_the_sealed_one(tmp_path: Path) -> None:
    ledger, _ = honest(tmp_path / "ledger")
    assert not (ledger.root / "hardware").exists()
    done = run_ledger("roofline", "--json", cwd=ledger.root)
    assert done.returncode == 0, done.stderr
    drawn = json.loads(done.stdout)
    assert [one["name"] for one in drawn["devices"]] == ["toy"] and drawn["dots"]


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


def test_many_dots_have_the_marks_of_their_regimes_and_a_line_a_kernel() -> None:
    drawn = toy_plot()
    dot = drawn.dots[0]
    many = [
        replace(dot, regime="hbm-bound", kernel=f"kernel_{n % 2}", percent=float(n + 1), record=f"{n:064x}")
        for n in range(60)
    ]
    stream = io.StringIO()
    print_plot(replace(drawn, dots=tuple(many)), Console(file=stream, width=80))
    text = stream.getvalue()
    lines = [line.split() for line in text.splitlines()]
    assert ["kernel_0", "30", f"{dot.intensity_flop_per_byte:.3g}", "1", "to", "59", "30", "hbm"] in lines
    assert "h hbm-bound" in text and all(len(line) <= 80 for line in text.splitlines())


def test_a_case_is_one_dot_that_of_the_forecast_which_leads() -> None:
    drawn = plot.plot_of([TOY], shared_case("learned", "rule-of-thumb"))
    assert [dot.predicted_percent for dot in drawn.dots] == [52.5, 40.0, 40.0]
    assert [dot.predicted_percent for dot in plot.one_a_case(drawn).dots] == [52.5]
    # A dot that nobody forecast has no record, and stays.
    bench = tuple(replace(dot, record=None) for dot in drawn.dots)
    assert plot.one_a_case(replace(drawn, dots=bench)).dots == bench
