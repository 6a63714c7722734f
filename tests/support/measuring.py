"""Builds orders for tests that measure: a small kernel, this machine's CPU as the profile."""

from pathlib import Path

from ledger import __version__
from ledger.canonical import encode, object_id, record_id
from ledger.device.facts import cpu_facts, cuda_facts
from ledger.kernel_files import KernelFile, load_kernel_file
from ledger.records import (
    ORDER_SCHEMA,
    CaseV2,
    Ceilings,
    Hardware,
    Limits,
    Memory,
    Order,
    OrderedCell,
    Peak,
    Protocol,
    Quantity,
    Tool,
)

KERNELS = Path(__file__).parents[1] / "assets" / "kernels"
SEAL = "5e" * 32

QUICK = Protocol(
    name="cold-cpu/1",
    parameters={
        "footprint_l2_multiple": 0,
        "footprint_min_bytes": 200_000,
        "warmup_rounds": 1,
        "min_rounds": 5,
        "max_rounds": 9,
        "ci_target_ppm": 50_000,
        "budget_ms": 50,
        "sample_elements": 7,
        "clock_tolerance_ppm": 50_000,
    },
)

QUICK_GRAPH = QUICK.model_copy(update={"name": "cold-graph/1"})


def quantity(value, unit):
    return Quantity(value=value, unit=unit, kind="measured", condition="a test", source="a test")


def this_gpu(**changes) -> Hardware:
    """Return a profile of this machine's GPU."""
    facts = cuda_facts()
    return this_cpu(name="gpu", target=facts.target, device_names=(facts.name,), **changes)


def this_cpu(**changes) -> Hardware:
    facts = cpu_facts()
    peak = Peak(value=0.1, unit="TFLOP/s", kind="measured", condition="a test", source="a test")
    return Hardware(
        schema="ledger/hardware/1",
        name="cpu",
        title="this CPU",
        vendor="unknown",
        architecture=facts.target,
        target=facts.target,
        device_names=(facts.name,),
        limits=Limits(
            sms=facts.sms,
            warps_per_sm=None,
            blocks_per_sm=None,
            registers_per_thread=None,
            max_clock_mhz=1000.0,
            tdp_w=None,
        ),
        memory=Memory(
            technology="DRAM",
            dram_capacity=quantity(1.0, "GiB"),
            l2_capacity=None,
            smem_per_sm=None,
            smem_per_block=None,
            registers_per_sm=None,
        ),
        ceilings={"burst": Ceilings(peaks={"fp32": peak}, dram_bandwidth=quantity(10.0, "GB/s"))},
    ).model_copy(update=changes)


def kernel_file(digest: str = "", *, name: str = "small_matmul") -> KernelFile:
    return load_kernel_file(KERNELS / f"{name}.py", launch=True)


def cell_of(hardware: Hardware, *, m: int = 24, implementation: str = "torch-cpu", **changes) -> OrderedCell:
    file = kernel_file()
    shape = {"M": m, "N": 40, "K": 56}
    case = CaseV2(
        kernel="small_matmul",
        shape=shape,
        dtype="fp32",
        hardware=hardware.name,
        implementation=implementation,
        config={},
        threads=1,
        arguments=None,
    )
    return OrderedCell(
        seal=SEAL,
        cell=f"small_matmul-M{m}-{implementation}",
        run=0,
        anchor=None,
        case=case,
        work=file.kernel.work(shape, "fp32"),
        kernel_sha256=file.sha256,
        hardware_sha256=record_id(Hardware, encode(hardware)),
        protocol=QUICK,
        pins={},
    ).model_copy(update=changes)


def order_of(*cells: OrderedCell, hardware: Hardware | None = None, **changes) -> Order:
    profile = hardware or this_cpu()
    file = kernel_file()
    return Order(
        schema=ORDER_SCHEMA,
        tool=Tool(name="ledger", version=__version__),
        cells=cells,
        hardware={record_id(Hardware, encode(profile)): profile},
        kernels={file.sha256: file.closure.manifest},
        files={object_id(source.data): source.data.decode() for source in file.closure.carried},
    ).model_copy(update=changes)


def with_small_rotation(monkeypatch):
    """Rotate over few bytes and take few rounds, so that the test takes a second."""
    from ledger.measure import contestants as module
    from ledger.measure.timer import Parameters, parameters_of

    def few(protocol):
        return Parameters(**{**vars(parameters_of(protocol)), "footprint_l2_multiple": 0, "footprint_min_bytes": 10**6})

    monkeypatch.setattr(module, "parameters_of", few)
