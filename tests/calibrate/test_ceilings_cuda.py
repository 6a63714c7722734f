"""Holds how a GPU's ceilings are chosen from the rates of candidates; the timer is replaced, nothing runs on a GPU."""

from types import SimpleNamespace

import pytest

from ledger.calibrate import ceilings_cuda, peaks_cuda, rates
from ledger.calibrate.hardware_profile import doubts
from ledger.device.nvml import UNKNOWN_STATE
from ledger.measure.cuda_graphs import TimedRound
from ledger.record_files import load_hardware
from ledger.records import Work


@pytest.fixture
def timer(monkeypatch):
    """Replace graphs and events by rounds that each test gives: a list for each burst."""
    bursts: list[list[TimedRound]] = []
    monkeypatch.setattr(rates, "warm_up", lambda launches: None)
    monkeypatch.setattr(rates, "capture", lambda launches: list(launches))
    monkeypatch.setattr(rates, "replay_ps", lambda graph, count, *, calls: [250_000_000] * count)
    monkeypatch.setattr(rates.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(rates, "timed_rounds", lambda graph, count, *, calls: (bursts.pop(0), UNKNOWN_STATE))
    return bursts


def test_a_burst_has_the_clock_of_its_best_round(timer):
    timer += [[TimedRound(300, 1900), TimedRound(200, 1755)], [TimedRound(250, 1319), TimedRound(210, 1980)]]
    rate = rates.burst([lambda: None, lambda: None], 1e3, "GEMM")
    assert rate.per_s == pytest.approx(1e3 / 200e-12)
    assert rate.state.sm_clock_mhz == 1755
    assert rate.condition.startswith("GEMM, best of 40 rounds of 4, SM 1755 MHz")


def test_a_sustained_rate_is_of_the_last_third_with_the_clock_there(monkeypatch, timer):
    clock = iter((0.0, 0.1, 2.5, 2.9, 3.1))
    monkeypatch.setattr(rates.time, "monotonic", lambda: next(clock))
    timer += [[TimedRound(100, 1980)], [TimedRound(150, 1400)], [TimedRound(160, 1350)]]
    rate = rates.sustained([lambda: None], 1.0, "GEMM", seconds=3.0)
    assert rate.per_s == pytest.approx(1 / 160e-12) and rate.state.sm_clock_mhz == 1400
    assert "after 3 s of load" in rate.condition


def _rate(launches, amount, what):
    """Return a rate that depends on the candidate's name alone."""
    value = {"matmul_int8": 1.5e15, "decode_attention": 4.6e12, "gemv": 4.5e12}
    found = next((per_s for name, per_s in value.items() if f"{name} " in what), 1e15 if "GEMM" in what else 4.4e12)
    return rates.Rate(found, f"{what}, SM 1600 MHz", UNKNOWN_STATE.model_copy(update={"sm_clock_mhz": 1600}))


@pytest.fixture
def candidates(monkeypatch):
    def found(name, shape, dtype, *, hardware, facts, baselines):
        if name == "vector_add":
            raise ValueError("no kernel here")
        return [
            SimpleNamespace(name=f"{name} {dtype}", launches=[None], work=Work(flops=1, bytes_read=1, bytes_written=1))
        ]

    for module in (peaks_cuda, ceilings_cuda):
        monkeypatch.setattr(module, "kernel_candidates", found)
        monkeypatch.setattr(module, "burst", _rate)
        # Nothing was launched, so there is no memory to give back.
        monkeypatch.setattr(module, "release", lambda device: None)
    monkeypatch.setattr(peaks_cuda, "gemm_launch", lambda path, shape: None)


def test_a_peak_is_the_best_candidates_and_names_it_with_its_clock(candidates):
    said = []
    peaks, lines = peaks_cuda.burst_peaks(load_hardware("h200"), None, "here", quick=False, on_step=said.append)
    int8, fp16 = peaks["int8_tensor"], peaks["fp16_tensor"]
    assert (int8.value, int8.unit, int8.clock_mhz) == (1500.0, "TOP/s", 1600.0)
    assert int8.condition.startswith("matmul_int8 int8") and fp16.condition.startswith("library GEMM")
    assert said == lines and len(lines) == 7 * 3 + 4 * 2


def test_dram_takes_the_fastest_way_and_says_what_was_not_measured(monkeypatch, candidates):
    ways = {"read by sum": (None, 1), "write by fill": (None, 1), "copy": (None, 2)}
    monkeypatch.setattr(ceilings_cuda, "dram_ways", lambda facts: dict(ways))
    monkeypatch.setattr(ceilings_cuda, "sustained", lambda launches, amount, what, *, seconds: _rate(launches, 1, what))
    dram, lines = ceilings_cuda.dram_rates(load_hardware("h200"), None, quick=False, on_step=lambda step: None)
    assert dram.best("read").condition.startswith("read by decode_attention") and dram.best("read").per_s == 4.6e12
    assert dram.best("copy", "triad").per_s == 4.4e12
    assert lines[-1] == "DRAM triad by vector_add: not measured: ValueError: no kernel here"


def test_a_peak_that_its_clock_cannot_give_is_distrusted():
    hardware = load_hardware("h200")
    burst = hardware.ceilings["burst"]
    peak = burst.peaks["fp16_tensor"].model_copy(update={"value": 793.1, "clock_mhz": 1319.0})
    # 4096 FLOP a clock on 132 SMs at 1319 MHz are 713.1 TFLOP/s.
    (line,) = doubts(hardware, burst.model_copy(update={"peaks": {"fp16_tensor": peak}}))
    assert line.startswith("distrusted: fp16_tensor is 793.1 TFLOP/s at 1319 MHz, where 132 SMs reach 713.1")
    possible = peak.model_copy(update={"clock_mhz": 1500.0})
    assert doubts(hardware, burst.model_copy(update={"peaks": {"fp16_tensor": possible}})) == ()
