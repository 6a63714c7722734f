"""Tests what a bench adds to a roofline, worked by hand, and that no other document is taken for a bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plotted import book
from samples import TOY, hardware_value, make_hardware, quantity

from ledger.cli import main
from ledger.errors import InputError, LedgerError
from ledger.kernel_files import load_kernel
from ledger.records import Hardware
from ledger.render.bench_points import bench_dots, with_bench
from ledger.render.plot_model import Dot, RooflinePlot
from ledger.render.plot_table import dot_page
from ledger.render.roofline_plot import only_kernels, plot_of

ROOT = Path(__file__).parents[2]


def row(**changes: Any) -> dict[str, Any]:
    return {
        "kernel": "matmul",
        "shape": {"M": 1000, "N": 1000, "K": 1000},
        "dtype": "fp16",
        "ours_us": 50.0,
        "baseline": "torch_matmul",
        "baseline_us": 40.0,
        "ceilings": "datasheet",
        **changes,
    }


def bench(*rows: dict[str, Any], device: str = "Toy 1") -> dict[str, Any]:
    return {"device": device, "conditions": {}, "rows": list(rows or (row(),))}


def kernel_of(name: str) -> Any:
    return load_kernel(name).kernel


def dots(value: Any, *hardwares: Hardware) -> list[Dot]:
    return bench_dots(value, what="b.json", hardwares=hardwares or (TOY,), kernel_of=kernel_of)


def test_a_row_is_two_dots_ours_and_the_library_s() -> None:
    # 2 GFLOP on 6 MB; 100 TFLOP/s allow 20 us and 1 TB/s 6 us, so 50 us are 40% and 40 us 50% of the roof.
    ours, library = dots(bench())
    assert (ours.label, library.label) == ("matmul M=N=K=1000 fp16", "matmul, cuBLAS M=N=K=1000 fp16")
    assert [ours.flop_per_s, library.flop_per_s] == pytest.approx([4e13, 5e13])
    assert [ours.percent, library.percent] == pytest.approx([40.0, 50.0])
    assert ours.intensity_flop_per_byte == pytest.approx(1000 / 3)
    assert not ours.left_of_ridge
    assert (ours.seal, ours.regime, ours.predicted_percent) == (None, None, None)


def test_a_library_that_did_not_run_has_no_dot() -> None:
    assert [dot.kernel for dot in dots(bench(row(baseline=None, baseline_us=None)))] == ["matmul"]


def test_torch_on_a_cpu_is_not_called_cublas() -> None:
    cpu = make_hardware(name="cpu", target="x86_64", device_names=("A CPU",))
    found = dots(bench(row(dtype="fp32"), device="A CPU"), TOY, cpu)
    assert [(dot.device, dot.kernel) for dot in found] == [("cpu", "matmul"), ("cpu", "matmul, torch_matmul")]


def test_a_verified_cell_keeps_its_own_dot() -> None:
    plot = plot_of([TOY], book())
    shape = plot.dots[0].shape
    more = with_bench(
        plot,
        bench(row(kernel="rmsnorm_matmul", shape=shape, baseline="torch_eager")),
        what="b",
        hardwares=[TOY],
        kernel_of=kernel_of,
    )
    assert [dot.kernel for dot in more.dots[5:]] == ["rmsnorm_matmul, torch_eager"]
    assert (more.dots[5].operation, more.dots[:5]) == ("rmsnorm_matmul", plot.dots)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shape": {"M": 1}}, "row 1 is no row|shape keys"),
        ({"dtype": "fp8_e4m3"}, "row 1 is no row"),
        ({"ours_us": None}, "row 1 is no row"),
        ({"ours_us": 0}, "row 1 is no row"),
        ({"ours_us": float("nan")}, "row 1 is no row"),
        ({"baseline_us": True}, "row 1 is no row"),
        ({"ceilings": "best"}, "row 1 is no row"),
        ({"ceilings": "burst"}, "no burst ceilings"),
        ({"kernel": "nosuch"}, "'nosuch' is not known"),
        ({"kernel": ["matmul"]}, "row 1 is no row"),
    ],
)
def test_a_row_that_is_none_is_refused_by_its_number(change: dict[str, Any], said: str) -> None:
    with pytest.raises(LedgerError, match=said):
        dots(bench(row(), row(**change)))


@pytest.mark.parametrize("value", [None, [], {}, {"rows": {}}, {"rows": [1], "device": "Toy 1"}])
def test_a_document_that_is_no_bench_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"b\.json.*ledger bench --output"):
        dots(value)


def test_a_bench_of_a_device_that_is_not_drawn_is_refused() -> None:
    with pytest.raises(InputError, match=r"device is 'Toy 2'; expected one that is drawn: Toy 1 \(toy\)"):
        dots(bench(device="Toy 2"))


def test_the_recorded_bench_gives_the_percent_that_it_wrote() -> None:
    from ledger.record_files import load_hardware

    recorded = json.loads((ROOT / "benchmarks" / "h200.json").read_text())
    found = dots(recorded, load_hardware("h200", ROOT))
    ours = [dot for dot in found if "," not in dot.kernel]
    assert [dot.percent for dot in ours] == pytest.approx([row["pct_of_roof"] for row in recorded["rows"]], rel=1e-3)


# What docs/measurement.md says of benches

# The page and the command


def two_devices() -> RooflinePlot:
    """Return a plot of two devices, 1 TB/s and 10 GB/s, that ran one cell in 50 us and in 4 ms."""
    slow = hardware_value()["ceilings"]
    slow["datasheet"]["dram_bandwidth"] = quantity(10.0, "GB/s")
    cpu = make_hardware(name="cpu", target="x86_64", device_names=("A CPU",), ceilings=slow)
    plot = plot_of([cpu, TOY], None)
    for value in (bench(row(dtype="fp32")), bench(row(dtype="fp32", ours_us=4000, baseline=None), device="A CPU")):
        plot = with_bench(plot, value, what="b", hardwares=[cpu, TOY], kernel_of=kernel_of)
    return plot


def test_the_page_sets_the_devices_side_by_side() -> None:
    page = dot_page(two_devices())
    assert "## toy against cpu" in page
    assert "DRAM bandwidths (datasheet): 1.00 TB/s and 10.0 GB/s, a ratio of 100." in page
    # 4 ms over 50 us is 80, of a ratio of 100.
    assert "| matmul M=N=K=1000 fp32 | 40.0 TFLOP/s | 500 GFLOP/s | 80 | 0.80 |" in page


def test_the_page_has_a_row_for_every_dot_and_compares_nothing_alone() -> None:
    plot = plot_of([TOY], book())
    page = dot_page(plot)
    assert sum(line.startswith("| rmsnorm_matmul") for line in page.splitlines()) == len(plot.dots) == 5
    assert "against" not in page
    assert "| rmsnorm_matmul | B=1 H=O=64 | fp16 | toy | ? |" not in page


def test_only_the_dots_of_a_kernel_are_kept() -> None:
    plot = two_devices()
    assert len(only_kernels(plot, ["matmul"]).dots) == len(plot.dots) == 3
    with pytest.raises(InputError, match="'gemv' has no dot; expected one of: matmul"):
        only_kernels(plot, ["gemv"])


def test_the_command_draws_a_bench_on_a_profile_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ledger.record_files import hardware_yaml

    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_bytes(hardware_yaml(TOY))
    (tmp_path / "b.json").write_text(json.dumps(bench()))
    command = ["roofline", "--hw", "toy.yaml", "--bench", "b.json", "--kernel", "matmul", "--json"]
    monkeypatch.setattr("sys.argv", ["ledger", *command])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code in (0, None)
    value = json.loads(capsys.readouterr().out)
    assert [dot["kernel"] for dot in value["dots"]] == ["matmul", "matmul, cuBLAS"]
    assert [(device["name"], device["title"]) for device in value["devices"]] == [("toy", TOY.title)]
