"""Build a layer of a language model from the ledger's kernels, and compare it with the same layer by torch.compile.

    python examples/model_layer.py                        # on the GPU, or on the CPU where there is none
    python examples/model_layer.py --tokens 512 --width 4096 --heads 32 --key-heads 8 --hidden 14336

The layer is pre-norm, without positions: attention over one sequence, then a gated MLP. Prints one JSON document: the
largest difference from float64 of both layers, and the median time of a call: called from Python, which includes the
host's work, and on a GPU replayed as a CUDA graph, which does not. torch.compile is applied to ours, too.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from ledger.kernels import flash_attention_causal, matmul, rmsnorm_matmul

EPS = 1e-6


@dataclass(frozen=True)
class Sizes:
    """Hold the sizes of a layer."""

    tokens: int
    width: int
    heads: int
    key_heads: int
    hidden: int

    @property
    def columns(self) -> tuple[int, int]:
        """Return the columns of all queries, and of all keys."""
        return self.width, self.width // self.heads * self.key_heads


Weights = dict[str, torch.Tensor]


def weights_of(sizes: Sizes, dtype: torch.dtype, device: str) -> Weights:
    """Return weights of a deviation that keeps activations near one."""
    torch.manual_seed(0)
    queries, keys = sizes.columns

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return (torch.randn(rows, columns, device=device) / rows**0.5).to(dtype)

    ones = torch.ones(sizes.width, dtype=dtype, device=device)
    return {
        "norm_1": ones, "qkv": matrix(sizes.width, queries + 2 * keys), "out": matrix(queries, sizes.width),
        "norm_2": ones, "gate_up": matrix(sizes.width, 2 * sizes.hidden), "down": matrix(sizes.hidden, sizes.width),
    }  # fmt: skip


def heads_of(qkv: torch.Tensor, sizes: Sizes) -> list[torch.Tensor]:
    """Return queries, keys and values (1, heads, tokens, columns of a head)."""
    queries, keys = sizes.columns
    parts = qkv.split([queries, keys, keys], dim=-1)
    return [part.view(1, sizes.tokens, -1, sizes.width // sizes.heads).transpose(1, 2) for part in parts]


def ledger_layer(x: torch.Tensor, w: Weights, sizes: Sizes) -> torch.Tensor:
    """Return the layer's result by the ledger's kernels. Shapes: x (tokens, width); the result likewise."""
    q, k, v = heads_of(rmsnorm_matmul(x, w["norm_1"], w["qkv"]), sizes)
    attended = flash_attention_causal(q, k, v).transpose(1, 2).reshape(sizes.tokens, -1)
    x = x + matmul(attended, w["out"])
    gate, up = rmsnorm_matmul(x, w["norm_2"], w["gate_up"]).chunk(2, dim=-1)
    return x + matmul(functional.silu(gate) * up, w["down"])


def torch_layer(x: torch.Tensor, w: Weights, sizes: Sizes) -> torch.Tensor:
    """Return the same by torch."""
    q, k, v = heads_of(functional.rms_norm(x, [sizes.width], w["norm_1"], EPS) @ w["qkv"], sizes)
    attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    x = x + attended.transpose(1, 2).reshape(sizes.tokens, -1) @ w["out"]
    gate, up = (functional.rms_norm(x, [sizes.width], w["norm_2"], EPS) @ w["gate_up"]).chunk(2, dim=-1)
    return x + (functional.silu(gate) * up) @ w["down"]


def median_us(call: Callable[[], object], device: str, rounds: int) -> float:
    """Return the median time of a call in microseconds, each call waited for."""
    times = []
    for _ in range(rounds + 3):
        started = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1e6 * (time.perf_counter() - started))
    return statistics.median(times[3:])


def captured(call: Callable[[], object]) -> Callable[[], None]:
    """Return the replay of a call as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph.replay


def main() -> None:
    """Run both layers and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("tokens", 48), ("width", 128), ("heads", 4), ("key-heads", 2), ("hidden", 352)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--backend", default="inductor", help="backend of torch.compile")
    given = parser.parse_args()
    sizes = Sizes(given.tokens, given.width, given.heads, given.key_heads, given.hidden)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.float16 if device == "cuda" else torch.float32
    weights = weights_of(sizes, dtype, device)
    x = torch.randn(sizes.tokens, sizes.width, device=device).to(dtype)
    exact = torch_layer(x.double(), {name: one.double() for name, one in weights.items()}, sizes)
    layers = {
        "ledger": ledger_layer,
        "ledger, compiled around the kernels": torch.compile(ledger_layer, fullgraph=True, backend=given.backend),
        "torch": torch_layer,
        "torch.compile": torch.compile(torch_layer, fullgraph=True, backend=given.backend),
    }
    found = {}
    with torch.no_grad():
        for name, layer in layers.items():
            error = float((layer(x, weights, sizes).double() - exact).abs().max())
            call = functools.partial(layer, x, weights, sizes)
            found[name] = {"max_abs_error": error, "call_us": round(median_us(call, device, given.rounds), 1)}
            if device == "cuda":
                found[name]["graph_us"] = round(median_us(captured(call), device, given.rounds), 1)
    print(json.dumps({"device": device, "dtype": str(dtype), "sizes": vars(given), "layers": found}, indent=2))


if __name__ == "__main__":
    main()
