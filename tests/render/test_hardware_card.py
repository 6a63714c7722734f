"""Tests the hardware card and the kernel card; ridge points and totals are worked out here."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from samples import burst, hardware_value, make_hardware, quantity

from ledger.kernel_files import kernel_names, load_kernel
from ledger.record_files import hardware_names, load_hardware
from ledger.records import Hardware
from ledger.render import hardware_card as card

PROFILES = hardware_names()


def shown(profile: Hardware, width: int = 100) -> str:
    stream = io.StringIO()
    card.render(profile, Console(file=stream, width=width))
    return stream.getvalue()


def line_of(text: str, start: str) -> list[str]:
    return next(line for line in text.splitlines() if line.strip().startswith(start)).split()


@pytest.mark.parametrize("name", PROFILES)
def test_card_is_one_screen(name: str) -> None:
    lines = shown(load_hardware(name)).splitlines()
    assert max(len(line) for line in lines) <= 100
    assert len(lines) <= 60


def test_card_h100_is_worth_memorising() -> None:
    profile = load_hardware("h100_sxm")
    text = shown(profile.model_copy(update={"ceilings": {"datasheet": profile.ceilings["datasheet"]}}))
    # 989.4 TFLOP/s ÷ 3.35 TB/s = 295.3 FLOP/byte; 66.9 ÷ 3.35 = 19.97.
    assert line_of(text, "fp16 tensor")[-5:] == ["4096", "1830", "MHz", "989.4", "295"]
    assert line_of(text, "fp32 CUDA")[-2:] == ["66.9", "20"]
    assert line_of(text, "▄█████▄") == ["▄█████▄", "HBM3", "80", "GB", "3.35", "TB/s"]
    # 64 Ki registers of 4 B on each of 132 SMs: 34.6 MB; 228 KiB × 132 = 30.8 MB.
    assert "64 Ki × 32 bit an SM, 34.6 MB in all" in text
    assert "228 KiB an SM, 30.8 MB in all; 227 KiB a block" in text
    assert "wgmma.mma_async m64nNk16" in text
    assert "Sparsity:" in text


def test_card_names_what_the_chip_lacks() -> None:
    text = shown(load_hardware("t4"))
    assert "no number for fp64 tensor cores, tf32 tensor cores, bf16 tensor cores, fp8 tensor cores" in text
    assert not any(line.startswith("bf16") for line in text.splitlines())


def test_smem_bandwidth_a_clock_and_sm_is_taken_at_the_highest_clock() -> None:
    # 128 B × 10 SMs × 1 GHz = 1.28 TB/s.
    sheet = {**hardware_value()["ceilings"]["datasheet"], "smem_bandwidth": quantity(128.0, "B/clk/SM")}
    profile = make_hardware(ceilings={"datasheet": sheet})
    assert card.smem_bytes_per_s(profile, profile.ceilings["datasheet"]) == pytest.approx(1.28e12)
    assert line_of(shown(profile), "▄█▄")[-2:] == ["1.28", "TB/s"]


def test_measured_ceilings_stand_beside_the_data_sheet() -> None:
    measured = {**burst(0.8, 64.0), "launch_graph_node": quantity(0.84, "us", kind="measured")}
    both = make_hardware(ceilings={**hardware_value()["ceilings"], "burst": measured, "sustained": burst(0.5, 50.0)})
    text = shown(both)
    # Ridges: 100 ÷ 1 = 100, 64 ÷ 0.8 = 80, 50 ÷ 0.5 = 100.
    assert line_of(text, "fp16 tensor")[-6:] == ["100", "100", "64", "80", "50", "100"]
    assert line_of(text, "an empty launch")[-2:] == ["840", "ns"]
    assert max(len(line) for line in text.splitlines()) <= 100


def test_the_last_cache_of_a_cpu_is_not_called_l2() -> None:
    memory = {**hardware_value()["memory"], "l2_capacity": quantity(32, "MiB")}
    assert "▄███▄ L2 " in shown(make_hardware(memory=memory))
    text = shown(make_hardware(memory=memory, target="x86-64"))
    assert "▄███▄ last cache " in text and "L2" not in text


def test_measured_only_profile_has_a_card() -> None:
    text = shown(make_hardware(ceilings={"burst": burst(0.02, 0.4)}))
    assert line_of(text, "fp16 tensor")[-2:] == ["0.4", "20"]
    assert "no figure" not in text


def test_document_computes_ridges() -> None:
    value = card.document(load_hardware("h100_sxm"))
    assert value["ridge_flop_per_byte"]["datasheet"]["fp16_tensor"] == pytest.approx(295.34, abs=0.01)
    assert value["profile"]["schema"] == "ledger/hardware/1"
    assert json.loads(json.dumps(value, allow_nan=False)) == value


def test_fields_cannot_act() -> None:
    text = shown(make_hardware(title="\u202eToy [red]x", notes=["\u200bsee [link=http://a]b[/link]"]))
    assert "<U+202E>Toy [red]x" in text
    assert "<U+200B>see [link=http://a]b[/link]" in text


def test_render_list_has_a_line_a_profile() -> None:
    stream = io.StringIO()
    card.render_list([load_hardware(name) for name in PROFILES], Console(file=stream, width=100))
    assert len(stream.getvalue().splitlines()) == 1 + len(PROFILES)


@pytest.mark.parametrize("name", kernel_names())
def test_kernel_card_and_document(name: str) -> None:
    file, stream = load_kernel(name), io.StringIO()
    card.render_kernel(file, Console(file=stream, width=100))
    assert file.kernel.formula in stream.getvalue()
    value = card.kernel_document(file)
    assert (value["name"], value["sha256"]) == (name, file.sha256)
    assert len(value["cases"]) == len(file.kernel.cases) * len(file.kernel.dtypes)
    assert json.loads(json.dumps(value, allow_nan=False)) == value


def test_kernel_card_shows_the_work_of_a_case() -> None:
    stream = io.StringIO()
    card.render_kernel(load_kernel("matmul"), Console(file=stream, width=100))
    # 2 · 4096³ = 137.4 GFLOP; 2 × 4096² × 2 B = 67.1 MB in and 33.6 MB out; 137.4 / 0.1007 = 1365.
    expected = ["M=N=K=4096", "fp16,", "bf16", "137", "GFLOP", "67.1", "MB", "33.6", "MB", "1365"]
    assert line_of(stream.getvalue(), "M=N=K=4096") == expected
