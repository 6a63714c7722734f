"""Launches kernels of six streams at once, thousands of times, and compares every result with the first, bit for bit.

Usage where a GPU is: PYTHONPATH=. python tests/gpu/many_streams.py [LAUNCHES] prints one line a kernel and exits with 1
where results differ. A launch whose CTAs wait for one another ends only if the others of its own launch can run while
five more streams fill the device: one that could wait for itself does not return (tests/kernels/test_many_streams.py
sets the time limit).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "support")]

from mutants.checker import Trial, fill_inputs

from ledger.kernel_files import load_kernel
from ledger.kernels.common.targets import device_target

LAUNCHES = 20_000
CHECKED_EVERY = 2_000
# One a stream: five kernels and a product, then those whose CTAs wait for others of their launch.
CELLS: tuple[tuple[tuple[str, dict[str, int]], ...], ...] = (
    (
        ("rmsnorm", {"M": 64, "N": 131_072}),
        ("softmax", {"M": 8, "N": 131_072}),
        ("layernorm", {"M": 300, "N": 5001}),
        ("vector_add", {"N": 100_003}),
        ("gemv", {"N": 1031, "K": 4096}),
        # Two launches with a workspace between them.
        ("matmul", {"M": 200, "N": 1024, "K": 8192}),
    ),
    (
        ("rmsnorm_matmul", {"B": 8, "H": 4096, "O": 4096}),
        ("matmul", {"M": 384, "N": 3000, "K": 4096}),
        ("decode_attention", {"B": 1, "HQ": 32, "HKV": 8, "S": 4096, "D": 128}),
        ("mla_decode", {"B": 1, "H": 16, "S": 4096}),
        ("softmax", {"M": 64, "N": 65_536}),
        ("matmul_bias_relu", {"M": 8, "N": 640, "K": 4096}),
    ),
    # Launches whose CTAs wait for each other, which do not all fit at once, among launches that fill the device.
    (
        ("mla_decode", {"B": 1, "H": 128, "S": 8192}),
        ("mla_decode", {"B": 2, "H": 128, "S": 2049}),
        ("mla_decode", {"B": 4, "H": 128, "S": 4133}),
        ("flash_attention", {"B": 1, "HQ": 16, "HKV": 4, "S": 1100, "D": 64}),
        ("flash_attention_causal", {"B": 1, "HQ": 16, "HKV": 16, "S": 1100, "D": 64}),
        # Clusters of rows that start anywhere.
        ("softmax", {"M": 64, "N": 131_071}),
    ),
)


def _prepared(name: str, shape: dict[str, int]) -> tuple[Any, Any]:
    import torch

    kernel = load_kernel(name, launch=True).kernel
    inputs = fill_inputs(kernel, Trial(shape, "bf16", {}), "cuda")
    out = torch.full(kernel.operation.output_dims(shape), float("nan"), dtype=torch.bfloat16, device="cuda")
    return kernel.implementations["triton"](inputs, out, kernel.config(shape, "bf16", device_target(out))), out


def together(cells: tuple[tuple[str, dict[str, int]], ...], launches: int) -> int:
    """Launch each cell on a stream of its own, `launches` in all, and return how many comparisons differed."""
    import torch

    made = [_prepared(name, shape) for name, shape in cells]
    expected = []
    for launch, out in made:
        launch()
        torch.cuda.synchronize()
        assert not out.isnan().any()
        expected.append(out.clone())
    streams = [torch.cuda.Stream() for _ in made]
    differed = [0] * len(made)
    for _ in range(launches // CHECKED_EVERY):
        for _, out in made:
            out.fill_(float("nan"))
        torch.cuda.synchronize()
        for _ in range(CHECKED_EVERY // len(made) + 1):
            for stream, (launch, _) in zip(streams, made, strict=True):
                with torch.cuda.stream(stream):
                    launch()
        torch.cuda.synchronize()
        for at, (_, out) in enumerate(made):
            differed[at] += not torch.equal(out, expected[at])
    for (name, shape), count in zip(cells, differed, strict=True):
        print(f"{name} {shape}: {count} of {launches // CHECKED_EVERY} comparisons differed", flush=True)
    return sum(differed)


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else LAUNCHES
    sys.exit(int(sum(together(cells, number) for cells in CELLS) > 0))
