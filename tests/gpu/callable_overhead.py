"""Time shipped kernels as callables beside their own files, interleaved in one run on the same cold inputs.

Usage: python tests/gpu/callable_overhead.py [-o FILE]. Each is called as `ledger verify` calls a callable: in a CUDA
graph that rotates over input sets. `callable` is a function around the kernel's own launcher that keeps its workspaces;
`operation` is the torch operation of `ledger.kernels`, which fills a workspace in each call of a graph and starts no
kernel early. `again` is a second rotation of the own file. Prints a table: the differences from the own file in
percent of its median; writes one JSON document.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from ledger.analysis.protocols import COLD_GRAPH
from ledger.callables.calls import Call
from ledger.callables.subject import Subject
from ledger.callables.subject_files import TOLERANCES
from ledger.device.facts import cuda_facts
from ledger.device.local_profile import profile_of_this_machine
from ledger.kernel_files import build_case, load_kernel
from ledger.library.operations import callable_of
from ledger.measure.contestants import Contestant, cold_sets, interleave
from ledger.measure.correctness import compare
from ledger.measure.cuda_graphs import GraphRounds
from ledger.measure.result_check import compare_results
from ledger.measure.run_cell import release
from ledger.measure.timer import parameters_of
from ledger.records import Argument

CELLS: tuple[tuple[str, dict[str, int], Any], ...] = (
    ("vector_add", {"N": 1 << 26}, "fp32"),
    ("rmsnorm", {"M": 16384, "N": 4096}, "fp16"),
    ("rmsnorm", {"M": 64, "N": 4096}, "fp16"),
    ("softmax", {"M": 8192, "N": 4096}, "fp16"),
    ("layernorm", {"M": 8192, "N": 4096}, "bf16"),
    ("gemv", {"N": 8192, "K": 8192}, "fp16"),
    ("matmul", {"M": 4096, "N": 4096, "K": 4096}, "fp16"),
    ("matmul", {"M": 16, "N": 4096, "K": 4096}, "fp16"),
    ("rmsnorm_matmul", {"B": 4, "H": 4096, "O": 4096}, "fp16"),
    ("rmsnorm_matmul", {"B": 64, "H": 8192, "O": 8192}, "fp16"),
    ("decode_attention", {"B": 16, "HQ": 32, "HKV": 8, "S": 4096, "D": 128}, "fp16"),
)


def measured(name: str, shape: dict[str, int], dtype: Any) -> dict[str, Any]:
    """Return the times of one cell in microseconds, and whether both results are right."""
    facts, hardware = cuda_facts(), profile_of_this_machine(None)
    kernel = load_kernel(name, launch=True).kernel
    case = build_case(kernel, hardware, shape=shape, dtype=dtype)
    parameters = parameters_of(COLD_GRAPH)
    sets = cold_sets(kernel, case, facts, parameters, device="cuda")
    own = [kernel.implementations[case.implementation](one.inputs, one.out, case.config) for one in sets]
    arguments = tuple(
        Argument(name=spec.name, dtype=spec.dtype or dtype, dims=tuple(map(str, spec.dims)), below=None, value=None)
        for spec in kernel.operation.inputs(shape)
    )
    subject = Subject(f"ledger.kernels:{name}", arguments)
    operation = [Call(callable_of(name), subject, one.inputs, run="forward") for one in sets]
    kept = {one.out.data_ptr(): launch for one, launch in zip(sets, own, strict=True)}

    def wrapped(*tensors: torch.Tensor) -> torch.Tensor:
        kept[tensors[-1].data_ptr()]()
        return tensors[-1]

    written = Argument(name="out", dtype=dtype, dims=("1",), below=None, value=None)
    around = replace(subject, arguments=(*arguments, written))
    generic = [Call(wrapped, around, {**one.inputs, "out": one.out}, run="forward") for one in sets]
    reference = kernel.reference(sets[0].inputs)
    own[0]()
    for call in (generic[0], operation[0]):
        call()
    right = compare(sets[0].out, reference, kernel.tolerances[dtype], name="float64").passed
    for call in (generic[0], operation[0]):
        right &= compare_results(call.results(), [reference], TOLERANCES[dtype], name="float64").passed
    launches = {"own": own, "again": own, "callable": generic, "operation": operation}
    contestants = [
        Contestant(label, GraphRounds(calls, watch=False), True, "back-to-back") for label, calls in launches.items()
    ]
    interleave(contestants, parameters)
    us = {one.name: one.interval.median / 1e6 for one in contestants}
    return {
        "kernel": name, "shape": shape, "dtype": dtype, "right": right, "sets": len(sets),
        **{f"{label}_us": round(value, 4) for label, value in us.items()},
        **{f"{label}_percent": round(100 * (us[label] / us["own"] - 1), 3) for label in launches if label != "own"},
    }  # fmt: skip


def main() -> None:
    """Measure every cell; a cell that fails does not lose the others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", type=Path, help="file that receives the document")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, shape, dtype in CELLS:
        try:
            rows.append(measured(name, shape, dtype))
        # The table names a cell that cannot run here.
        except Exception as error:  # noqa: BLE001
            rows.append({"kernel": name, "shape": shape, "dtype": dtype, "error": f"{type(error).__name__}: {error}"})
        release("cuda")
        row = rows[-1]
        shown = row.get("error") or (
            f"own {row['own_us']:9.2f} us  again {row['again_percent']:+6.2f}%  callable "
            f"{row['callable_percent']:+6.2f}%  operation {row['operation_percent']:+6.2f}%  right {row['right']}  "
            f"sets {row['sets']}"
        )
        print(f"{name:18}{' '.join(f'{key}={size}' for key, size in shape.items()):36}{dtype:6}{shown}", flush=True)
        if given.o:
            document = {"device": cuda_facts().name, "software": cuda_facts().software, "rows": rows}
            given.o.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
