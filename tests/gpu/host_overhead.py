"""Measure the host time of a call of each kernel as a torch operation, beside the launch alone and torch's own call.

Usage: python tests/gpu/host_overhead.py [-o FILE]. On a GPU calls are small and not waited for, so that the host is the
slower side; on a CPU the time holds the computation. Prints one JSON document, times in microseconds a call: `first`
(prepares the launch, compiles before), `call` (the launch is kept), `launch` (the prepared launch alone), and
`torch_matmul`, an operation of torch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from ledger.kernel import CPU_IMPLEMENTATION, GPU_IMPLEMENTATIONS
from ledger.kernel_files import kernel_names, load_kernel
from ledger.library.operations import callable_of
from ledger.measure.kernel_trials import generated

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CALLS, ROUNDS = 200, 9
SMALL = {"M": 16, "N": 256, "K": 256, "B": 2, "H": 256, "O": 256, "HQ": 8, "HKV": 2, "S": 128, "D": 64}


def synchronize() -> None:
    """Wait for the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def us_a_call(call: Callable[[], object]) -> float:
    """Return the median over rounds of the host time of a call in microseconds."""
    times = []
    for _ in range(ROUNDS):
        synchronize()
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append(1e6 * (time.perf_counter() - started) / CALLS)
    synchronize()
    return round(statistics.median(times), 2)


def measured(name: str) -> dict[str, Any]:
    """Return the times of one kernel."""
    kernel = load_kernel(name, launch=DEVICE == "cuda").kernel
    shape, dtype = {key: SMALL[key] for key in kernel.operation.shape_keys}, kernel.dtypes[0]
    inputs = generated(kernel, shape, dtype, run=0, device=DEVICE)
    function, tensors = callable_of(name), list(inputs.values())
    with torch.no_grad():
        function(*tensors)
        synchronize()
        others = [tensor.clone() for tensor in tensors]
        started = time.perf_counter()
        out = function(*others)
        first = 1e6 * (time.perf_counter() - started)
        call = us_a_call(lambda: function(*tensors))
    names = GPU_IMPLEMENTATIONS if DEVICE == "cuda" else (CPU_IMPLEMENTATION,)
    prepare = next(kernel.implementations[one] for one in names if one in kernel.implementations)
    config: Any = {}
    if DEVICE == "cuda":
        major, minor = torch.cuda.get_device_capability()
        config = kernel.config(shape, dtype, f"sm_{major}{minor}")
    launch = us_a_call(prepare(inputs, out, config))
    return {"shape": shape, "dtype": dtype, "first": round(first, 2), "call": call, "launch": launch}


def main() -> None:
    """Measure every shipped kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", type=Path, help="file that receives the document")
    parser.add_argument("names", nargs="*", help="kernels (default: all)")
    given = parser.parse_args()
    square = torch.ones(256, 256, device=DEVICE, dtype=torch.float16 if DEVICE == "cuda" else torch.float32)
    found = {
        "device": torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu",
        "torch": torch.__version__,
        "kernels": {name: measured(name) for name in given.names or kernel_names()},
        "torch_matmul": us_a_call(lambda: torch.matmul(square, square)),
    }
    text = json.dumps(found, indent=2)
    print(text)
    if given.o:
        given.o.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
