"""Forecast, seal and measure a whole decode step: one token for each sequence of a batch through a small transformer.

    cp examples/decode_step.py my-ledger/ && cd my-ledger && python decode_step.py --hw h200 --pct 15

The step reads every weight and the keys and values of all earlier tokens once, so memory binds in the limit; a small
step has some ten kernels a layer and is bound by their latency. Prints the report's sentence of the measured step.
"""

import argparse
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import ledger

LAYERS, WIDTH, HEADS, KEY_HEADS, HIDDEN, VOCABULARY = 2, 512, 8, 2, 1408, 8192
HEAD = WIDTH // HEADS


class Layer(nn.Module):
    """Compute one layer: grouped-query attention over a cache, then a gated MLP."""

    def __init__(self) -> None:
        """Make the layer's norms and products."""
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH, eps=1e-6) for _ in range(2))
        self.qkv = nn.Linear(WIDTH, WIDTH + 2 * KEY_HEADS * HEAD, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate_up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the result and write the last key and value. Shapes: x (B, WIDTH); keys (B, KEY_HEADS, S, HEAD)."""
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, (-1, 1, HEAD))
        q, k, v = qkv.split([HEADS, KEY_HEADS, KEY_HEADS], dim=1)
        keys[:, :, -1:], values[:, :, -1:] = k, v
        attended = functional.scaled_dot_product_attention(q, keys, values, enable_gqa=True)
        x = x + self.out(attended.flatten(1))
        gate, up = self.gate_up(self.norms[1](x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class DecodeStep(nn.Module):
    """Compute the logits of the next token."""

    def __init__(self) -> None:
        """Make the embedding, the layers and the product that gives the logits."""
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.to(torch.bfloat16)

    def forward(self, ids: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return logits (B, VOCABULARY). Shapes: ids (B,); keys, values (LAYERS, B, KEY_HEADS, S, HEAD)."""
        x = self.embedding(ids)
        for number, layer in enumerate(self.layers):
            x = layer(x, keys[number], values[number])
        return self.norm(x) @ self.embedding.weight.T


def main() -> None:
    """Seal a forecast of the step, measure it and print what the report says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hw", required=True, help="hardware profile, as in ledger hardware list")
    parser.add_argument("--pct", type=float, required=True, help="percent of the roof that you expect")
    parser.add_argument("--regime", default="latency-bound")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1024, help="tokens in the cache")
    given = parser.parse_args()

    def arguments(g: Any) -> Any:
        keys, values = (g.bell(LAYERS, "B", KEY_HEADS, "S", HEAD, dtype="bf16") for _ in range(2))
        return g.integers("B", high=VOCABULARY), keys, values

    with ledger.open(".", hw=given.hw) as book:
        forecast = book.predict(
            DecodeStep,
            args=arguments,
            shape={"B": given.batch, "S": given.tokens},
            regime=given.regime,
            pct=given.pct,
            why="weights and cache are read once; some ten small kernels a layer follow each other",
        )
        result = book.measure(forecast)
    measured = (
        ""
        if result.gap is None
        else f"{result.row['measured']['percent']:.1f}% of the roof, {result.gap:+.1f} points. "
    )
    print(f"{measured}{result.why}")


if __name__ == "__main__":
    main()
