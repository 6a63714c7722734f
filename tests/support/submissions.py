"""Measures submitted callables as a ledger does, each in a process that is forked with torch loaded."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import QUICK, SEAL, this_cpu, this_gpu

from ledger import __version__
from ledger.analysis.protocols import STEADY_GRAPH
from ledger.callables.argument_list import first_dtype, parse_arguments, with_keys
from ledger.callables.subject_files import closure_named
from ledger.canonical import encode, object_id, record_id
from ledger.device.facts import cpu_facts, cuda_facts
from ledger.measure.callable_process import main
from ledger.records import ORDER_SCHEMA, CaseV2, Hardware, Order, OrderedCell, Tool, Work

PROBLEM = """
import torch


def steps(x, w):
    for _ in range(8):
        x = (x @ w) / 12
    return x


def copied(x):
    return x.clone()


def repeated(x):
    return x.mean(0, keepdim=True).repeat(x.shape[0], 1)


def norms(x):
    return x.norm(dim=-1)


def grown(x):
    return x.mul_(1.001)
"""
QUICK_STEADY = QUICK.model_copy(
    update={
        "name": "cold-graph/2",
        "parameters": {
            **{name: QUICK.parameters[name] for name in STEADY_GRAPH.parameters if name in QUICK.parameters},
            "batch_ms": 5,
            "settle_batches": 3,
            "settle_ppm": 100_000,
            "budget_ms": 200,
        },
    }
)
STEPS = ("problem:steps", "x=fp32[128,128] w=fp32[128,128]")
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "submissions"])


@dataclass(frozen=True)
class Submission:
    """Hold a callable `submitted` as source text, and what it is compared with."""

    source: str
    reference: str = STEPS[0]
    args: str = STEPS[1]
    device: str = "cpu"


def order_for(one: Submission, folder: Path) -> Order:
    """Return an order of one cell for a submission whose modules are written into a folder."""
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "ops.py").write_text(one.source)
    on_gpu = one.device == "cuda"
    profile = this_gpu() if on_gpu else this_cpu()
    closure, _ = closure_named(f"ops:submitted {one.reference}", folder)
    arguments, shape = with_keys(parse_arguments(one.args), {})
    case = CaseV2(
        kernel="ops:submitted",
        shape=shape,
        dtype=first_dtype(arguments),
        hardware=profile.name,
        implementation="torch" if on_gpu else "torch-cpu",
        config={"pass": "forward", "reference": one.reference, "work": "given"},
        threads=None if on_gpu else 1,
        arguments=arguments,
    )
    hardware = record_id(Hardware, encode(profile))
    cell = OrderedCell(
        seal=SEAL, cell="ops.submitted", run=0, anchor=None, case=case,
        work=Work(flops=0, bytes_read=1, bytes_written=1), kernel_sha256=closure.sha256, hardware_sha256=hardware,
        protocol=QUICK_STEADY if on_gpu else QUICK, pins={},
    )  # fmt: skip
    return Order(
        schema=ORDER_SCHEMA,
        tool=Tool(name="ledger", version=__version__),
        cells=(cell,),
        hardware={hardware: profile},
        kernels={closure.sha256: closure.manifest},
        files={object_id(source.data): source.data.decode() for source in closure.carried},
    )


def outcome_of(one: Submission, folder: Path, *, seconds: float = 120) -> dict[str, Any]:
    """Return the outcome of measuring a submission, as its process wrote it."""
    order = order_for(one, folder)
    facts = cuda_facts() if one.device == "cuda" else cpu_facts()
    job = {
        "order": order.model_dump(mode="json", by_alias=True),
        "cell": order.cells[0].model_dump(mode="json", by_alias=True),
        "facts": facts.model_dump(mode="json", by_alias=True),
        "folder": str(folder / "measured"),
        "device": one.device,
        "launch_ps": None,
        "vary": False,
        "memory_bytes": 4 * 10**9,
    }
    (folder / "job.json").write_text(json.dumps(job))
    process = _CONTEXT.Process(target=_measure, args=(str(folder),))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        raise TimeoutError(f"still measuring after {seconds} s")
    lines = [json.loads(line) for line in (folder / "messages").read_text().splitlines()]
    found = [line["outcome"] for line in lines if "outcome" in line]
    assert found, f"no outcome: {lines}, exit code {process.exitcode}, {(folder / 'errors').read_text()[-2000:]}"
    return found[0]


def _measure(folder: str) -> None:
    for number, name in ((1, "messages"), (2, "errors")):
        os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT), number)
    main(Path(folder) / "job.json")
    os._exit(0)
