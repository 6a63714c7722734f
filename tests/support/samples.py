"""Makes small records for tests, with round numbers that a reader can check in the head.

The toy device: 10 SMs, 10,000 FLOP/clk/SM at a rated 1000 MHz, so 100 TFLOP/s fp16 on tensor cores; 1 TB/s of DRAM;
ridge 100 FLOP/byte. The toy memory case moves 900 MB in and 100 MB out, so its roof is 1 ms; its 10 GFLOP put it at
10 FLOP/byte, left of the ridge. The toy compute case does 1 TFLOP on the same bytes: 10 ms, right of the ridge.
"""

from __future__ import annotations

from typing import Any

from ledger.analysis.book import Book, CellView, Commit, Recorded, Run, Sealed, State, Voided
from ledger.analysis.counters import CounterTotals
from ledger.analysis.metrics import metric_names
from ledger.analysis.protocols import COLD_GRAPH
from ledger.analysis.reconcile import verify_cell
from ledger.callables.argument_list import parse_arguments
from ledger.canonical import cell_key
from ledger.records import (
    Case,
    CaseV2,
    Correctness,
    Counters,
    DeviceFacts,
    DeviceFactsV2,
    DeviceState,
    Finding,
    Forecast,
    ForecastV2,
    Hardware,
    Measurement,
    MeasurementV2,
    Metric,
    Prediction,
    PredictionV2,
    ProfiledKernel,
    Record,
    RoofV2,
    Samples,
    Sight,
    Timing,
    TimingV2,
    Tool,
    Work,
)
from ledger.roofline import roof_of

MS = 10**9
"""Picoseconds in a millisecond."""

MEMORY_WORK = Work(flops=10**10, bytes_read=900_000_000, bytes_written=100_000_000)
COMPUTE_WORK = Work(flops=10**12, bytes_read=900_000_000, bytes_written=100_000_000)


def quantity(value: float, unit: str, **more: Any) -> dict[str, Any]:
    return {"value": value, "unit": unit, "kind": "datasheet", "condition": "dense", "source": "a test", **more}


def hardware_value(**changes: Any) -> dict[str, Any]:
    peaks = {
        "fp16_tensor": quantity(100.0, "TFLOP/s", flop_per_clk_per_sm=10_000, clock_mhz=1000.0),
        "fp32": quantity(10.0, "TFLOP/s"),
    }
    return {
        "schema": "ledger/hardware/1",
        "name": "toy",
        "title": "Toy 1",
        "vendor": "Nobody",
        "architecture": "Toy",
        "target": "sm_90",
        "device_names": ["Toy 1", "Toy 1 rev B"],
        "limits": {
            "sms": 10,
            "warps_per_sm": 64,
            "blocks_per_sm": 32,
            "registers_per_thread": 255,
            "max_clock_mhz": 1000.0,
            "tdp_w": 700.0,
        },
        "memory": {
            "technology": "HBM3",
            "dram_capacity": quantity(80.0, "GB"),
            "l2_capacity": quantity(50.0, "MB"),
            "smem_per_sm": quantity(228.0, "KiB"),
            "smem_per_block": quantity(227.0, "KiB"),
            "registers_per_sm": quantity(65536.0, "registers"),
        },
        "ceilings": {"datasheet": {"peaks": peaks, "dram_bandwidth": quantity(1.0, "TB/s")}},
        **changes,
    }


def make_hardware(**changes: Any) -> Hardware:
    import json

    return Hardware.model_validate_json(json.dumps(hardware_value(**changes)))


def burst(bandwidth_tb_per_s: float, peak_tflop_per_s: float) -> dict[str, Any]:
    def measured(value: float, unit: str) -> dict[str, Any]:
        return quantity(value, unit, kind="measured")

    return {
        "peaks": {"fp16_tensor": measured(peak_tflop_per_s, "TFLOP/s")},
        "dram_bandwidth": measured(bandwidth_tb_per_s, "TB/s"),
    }


TOY = make_hardware()


def make_forecast(**changes: Any) -> Forecast:
    """Return a forecast of 80% hbm-bound on the toy memory case; keyword arguments replace fields."""
    case = changes.pop("case", None) or Case(
        kernel="rmsnorm_matmul",
        shape=changes.pop("shape", {"B": 8, "H": 64, "O": 64}),
        dtype=changes.pop("dtype", "fp16"),
        hardware="toy",
        implementation="triton",
        config={"block_m": 64},
        threads=None,
    )
    fields: dict[str, Any] = {
        "cell": cell_key(case),
        "operation": "rmsnorm_matmul/1",
        "case": case,
        "work": MEMORY_WORK,
        "roof": roof_of(TOY, "fp16_tensor"),
        "protocol": COLD_GRAPH,
        "kernel_sha256": "aa" * 32,
        "hardware_sha256": "bb" * 32,
        "regime": "hbm-bound",
        "percent_milli": 80_000,
        "low_milli": None,
        "high_milli": None,
        "probabilities_ppm": None,
        "why": "a guess",
    }
    return Forecast(**{**fields, **changes})


def callable_case(arguments: str, run: str = "forward", **shape: int) -> CaseV2:
    """Return a case of the callable ops:swiglu on the toy device, in fp16."""
    return CaseV2(
        kernel="ops:swiglu",
        shape=shape,
        dtype="fp16",
        hardware="toy",
        implementation="torch",
        config={"pass": run, "reference": "self-float64", "work": "counted"},
        threads=None,
        arguments=parse_arguments(arguments),
    )


def make_timing(median_ps: int = 2 * MS, *, launch_ps: int | None = None, **changes: Any) -> Timing:
    """Return a timing of as many rounds as cold-graph/1 takes at least, one picosecond around the median."""
    fields: dict[str, Any] = {
        "rounds_ps": (median_ps - 1,) * 12 + (median_ps,) + (median_ps + 1,) * 12,
        "calls_per_round": 20,
        "input_sets": 4,
        "bytes_per_set": 900_000_000,
        "median_ps": median_ps,
        "low_ps": median_ps - 1,
        "high_ps": median_ps + 1,
        "confidence_ppm": 950_000,
        "launch_ps": launch_ps,
    }
    return Timing(**{**fields, **changes})


def state(clock_mhz: int | None) -> DeviceState:
    return DeviceState(sm_clock_mhz=clock_mhz, memory_clock_mhz=None, power_mw=None, temperature_c=None, throttle=())


COUNTERS = Counters(
    tool="Nsight Compute 2025.3.1",
    command="ncu",
    cache_control="all",
    clock_control="none",
    kernels=(
        ProfiledKernel(
            name="rmsnorm_matmul_kernel",
            metrics={
                "gpu__time_duration.sum": Metric(value="2000000", unit="ns"),
                **{
                    name: Metric(value="10", unit="%")
                    for name in metric_names("9.0")
                    if name.endswith("sustained_elapsed")
                },
                "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": Metric(value="85", unit="%"),
            },
        ),
    ),
)


def make_measurement(forecast: Forecast, **changes: Any) -> Measurement:
    """Return a correct measurement of a forecast's very case, 2 ms a call; keyword arguments replace fields."""
    fields: dict[str, Any] = {
        "schema": "ledger/measurement/1",
        "tool": Tool(name="ledger", version="0"),
        "seal": "cc" * 32,
        "cell": forecast.cell,
        "run": 0,
        "anchor": None,
        "order_sha256": None,
        "case": forecast.case,
        "kernel_sha256": forecast.kernel_sha256,
        "hardware_sha256": forecast.hardware_sha256,
        "protocol": forecast.protocol,
        "device": DeviceFacts(
            name="Toy 1", target="sm_90", sms=10, memory_bytes=80 * 10**9, l2_bytes=None, driver=None, software={}
        ),
        "status": "measured",
        "failure": None,
        "correctness": Correctness(
            passed=True,
            reference="float64",
            elements=forecast.case.shape.get("B", 1) * forecast.case.shape.get("O", 1),
            max_abs_error="0",
            relative_error="0",
            atol="0",
            rtol="0",
        ),
        "samples": Samples(dtype="fp16", positions=(0,), bits=("3c00",)),
        "timing": make_timing(),
        "before": state(1000),
        "after": state(1000),
        "counters": None,
        "counters_missing": "ncu is not installed",
        "interventions": {},
        "attachments": (),
        "started_at": "2026-01-02T03:04:05Z",
        "device_ms": 1000,
        "extensions": {},
    }
    if isinstance(forecast, ForecastV2):
        return MeasurementV2(**second(MeasurementV2, {**fields, **changes}))
    return Measurement(**{**fields, **changes})


def second(kind: type[Record], fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields of a record of version 1 as those of version 2, which has more places."""
    more: dict[type[Record], dict[str, Any]] = {
        MeasurementV2: {"schema": "ledger/measurement/2", "ran": (), "attempts": (), "node": None},
        PredictionV2: {
            "schema": "ledger/seal/2", "participant": None, "commitments": (), "ratios": (), "domain": None
        },
        ForecastV2: {"sight": None, "known": "", "pins": {}, "draw": None},
        CaseV2: {"arguments": None},
        DeviceFactsV2: {"uuid": None, "power_limit_mw": None},
        TimingV2: {"sm_clock_mhz": ()},
        RoofV2: {},
    }  # fmt: skip
    inner = {"case": CaseV2, "roof": RoofV2, "device": DeviceFactsV2, "timing": TimingV2}
    made = {**fields, **{key: value for key, value in more[kind].items() if key == "schema" or key not in fields}}
    for key, part in inner.items():
        value = made.get(key)
        if value is not None and not isinstance(value, part):
            made[key] = part(**second(part, dict(value)))
    return made


def failed(forecast: Forecast, why: str = "wrong result") -> Measurement:
    return make_measurement(forecast, status="failed", failure=why, correctness=None, samples=None, timing=None)


def make_totals(**changes: Any) -> CounterTotals:
    """Return counters of the toy memory case in 2 ms: the modelled bytes, DRAM 50%, and a complete set of loads."""
    fields: dict[str, Any] = {
        "duration_ps": 2 * MS,
        "dram_bytes_read": 900_000_000,
        "dram_bytes_written": 100_000_000,
        "dram_pct": 50.0,
        "l2_pct": 30.0,
        "smem_pct": 20.0,
        "tensor_pct": 10.0,
        "fma_pct": 5.0,
        "alu_pct": 5.0,
        "fp64_pct": 0.0,
        "sm_clock_hz": 1e9,
        "waves": 1.0,
        "occupancy_pct": 25.0,
        "tensor_ops": 10**10,
        "tensor_ops_by_path": {"fp16_tensor": 10**10, "bf16_tensor": 0},
    }
    return CounterTotals(**{**fields, **changes})


def make_sealed(*forecasts: Forecast, identity: str = "cc" * 32, position: int = 0, **changes: Any) -> Sealed:
    fields: dict[str, Any] = {
        "schema": "ledger/seal/1",
        "rule": "regime/1",
        "tool": Tool(name="ledger", version="0"),
        "forecaster": "ada",
        "sequence": 1,
        "previous": (),
        "campaign": None,
        "metric": "percent-of-roof/1",
        "repeats": "first-run/1",
        "cells": forecasts,
        "why": "",
        "nonce": "0" * 32,
        "extensions": {},
    }
    commit = Commit(sha="1" * 40, when="2026-01-01T00:00:00+00:00", author="Ada", position=position)
    prediction = Prediction(**{**fields, **changes})
    return Sealed(identity, f"predictions/{identity[:2]}/{identity}.json", commit, prediction)


def make_view(
    sealed: Sealed,
    forecast: Forecast,
    *measurements: Measurement,
    state: State | None = None,
    blind: bool = True,
    sight: Sight | None = None,
    revises: tuple[str, ...] = (),
    findings: tuple[Finding, ...] = (),
    hardware: Hardware = TOY,
) -> CellView:
    commit = Commit(sha="2" * 40, when="2026-01-02T00:00:00+00:00", author="Ada", position=9)
    runs = tuple(
        Run(
            Recorded(f"{number:064x}", f"verifications/00/{number:064x}.json", commit, measurement),
            verify_cell(forecast=forecast, measurement=measurement, hardware=hardware, blind=blind, findings=findings),
        )
        for number, measurement in enumerate(measurements)
    )
    finished = any(measurement.status == "measured" for measurement in measurements)
    return CellView(
        sealed=sealed,
        forecast=forecast,
        hardware=hardware,
        state=state or ("measured" if finished else "failed" if runs else "open"),
        sight=sight or ("blind" if blind else "informed"),
        revises=revises,
        runs=runs,
        levels=(0, 1) if finished else (),
    )


def make_book(*views: CellView, voids: tuple[Voided, ...] = (), findings: tuple[Finding, ...] = ()) -> Book:
    seals = tuple({view.sealed.id: view.sealed for view in views}.values())
    records = tuple(run.recorded for view in views for run in view.runs)
    return Book("f" * 40, views, seals, records, voids, findings)
