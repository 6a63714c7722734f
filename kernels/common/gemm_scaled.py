"""Gives kernels of C = s · A · Bᵀ with operands of one byte what they share: family, reference, CPU, tile variations.

Shapes: a (M, K), b (N, K), c (M, N), all row-major. Imports torch and triton, only when called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.kernel import Candidate, Config, Launch, Prepare, variations
from ledger.operations import Shape
from ledger.records import Dtype

from .gemm import Gemm, product_cases
from .gemm_config import GENERIC, WARP_SPECIALISED, Settings
from .gemm_device import scaled
from .gemm_tiles import BYTE_RAGGED

if TYPE_CHECKING:
    from torch import Tensor

SCALED_CASES = product_cases(2064)
"""Cases of these kernels: rows of 16 one-byte elements."""

EXCLUDES = "re-reads of A and B by other tiles (L2), padding to whole tiles, scaling of the result"

scaled_gemm = partial(Gemm, epilogue=scaled, b_rows=True, ragged=BYTE_RAGGED)
"""The family of these kernels: the arguments of Gemm but for these three."""


def scaled_reference(scale: Callable[[int], float]) -> Callable[[Mapping[str, Any]], Any]:
    """Return the reference: the scaled product in float64. scale: of the inner size."""

    def reference(inputs: Mapping[str, Tensor]) -> Tensor:
        return inputs["a"].double() @ inputs["b"].double().T * scale(inputs["a"].shape[1])

    return reference


def prepare_torch_cpu(scale: Callable[[int], float]) -> Prepare:
    """Return how to prepare the product in fp32 on a CPU. scale: of the inner size."""

    def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        import torch

        a, b, factor = inputs["a"], inputs["b"], scale(inputs["a"].shape[1])
        return lambda: out.copy_(torch.matmul(a.float(), b.float().T).mul_(factor))

    return prepare


def scaled_candidates(
    gemm: Gemm, own: Settings, shape: Shape, dtype: Dtype, target: str, *, more: tuple[Settings, ...] = ()
) -> Iterator[Candidate]:
    """Yield the configurations that may be worth timing: tiles of all variants, as many stages as fit or one less.

    own: what the launch rule takes. more: configurations of the kernel's own, in CUDA C++.
    """
    yield gemm.candidate(own, shape, dtype)
    for tile in (*more, *_tile_variations(gemm, own, target)):
        for config in gemm.deepest(tile, dtype, target):
            yield gemm.candidate(config, shape, dtype)


def _tile_variations(gemm: Gemm, own: Settings, target: str) -> Iterator[Settings]:
    """Yield tiles of the warp-specialised and of the generic variant."""
    own = {**own, **gemm.cuda_defaults}
    if target == "sm_90" and own["tma"]:
        choices: dict[str, tuple[int, ...]] = {
            "block_m": (128, 256), "block_n": (64, 128, 256), "block_k": (128, 256), "subtiles": (1, 2, 4),
            "group_m": (8, 16),
        }  # fmt: skip
        yield from variations({**own, "variant": WARP_SPECIALISED, "num_warps": 4}, choices)
    choices = {
        "block_m": (64, 128), "block_n": (64, 128, 256), "block_k": (64, 128, 256), "num_warps": (4, 8),
    }  # fmt: skip
    yield from variations({**own, "variant": GENERIC, "subtiles": 1}, choices)
