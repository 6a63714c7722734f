"""Gives kernels of C = s · A · Bᵀ with operands of one byte what they share: family, reference, CPU, tile variations.

Shapes: a (M, K), b (N, K), c (M, N), all row-major. Imports torch and triton, only when called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ledger.kernel import Candidate, Config, Kernel, Launch, Prepare, Tolerance, variations
from ledger.operations import Operation, Shape
from ledger.records import Dtype

from .gemm import Gemm, product_cases
from .gemm_config import GENERIC, WARP_SPECIALISED, Settings
from .gemm_device import scaled
from .gemm_tiles import BYTE_RAGGED, Tile

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ScaledGemm(Gemm):
    """A product with a scale of operands of one byte, B by rows.

    choose: (generic configuration, shape, whether operands are copied) -> the configuration on sm_90 where TMA reads
    rows. clusters: (own configuration, shape) -> configurations of the CUDA C++ that may be worth timing.
    """

    scale: Callable[[int], float]
    choose: Callable[[Settings, Shape, bool], dict[str, Any]]
    clusters: Callable[[Settings, Shape], Iterable[Settings]] = lambda own, shape: ()
    epilogue: Any = scaled
    b_rows: bool = True
    ragged: Mapping[str, tuple[Tile, ...]] = field(default_factory=lambda: BYTE_RAGGED)
    cases: tuple[Mapping[str, int], ...] = product_cases(2064)

    def scaled_kernel(
        self, *, operation: Operation, tolerances: Mapping[Dtype, Tolerance], baselines: Mapping[str, Prepare]
    ) -> Kernel:
        """Return the kernel that a file exports."""
        return self.kernel(
            operation=operation,
            summary=f"scaled product of {self.dtypes[0].partition('_')[0]} matrices, the second one transposed",
            formula="C = s · A · Bᵀ",
            excludes="re-reads of A and B by other tiles (L2), padding to whole tiles, scaling of the result",
            tolerances=tolerances,
            reference=self._reference,
            torch_cpu=self._prepare_torch_cpu,
            baselines=baselines,
        )

    def _reference(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return inputs["a"].double() @ inputs["b"].double().T * self.scale(inputs["a"].shape[1])

    def _prepare_torch_cpu(self, inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        """Return the product in fp32 on a CPU."""
        import torch

        a, b, factor = inputs["a"], inputs["b"], self.scale(inputs["a"].shape[1])
        return lambda: out.copy_(torch.matmul(a.float(), b.float().T).mul_(factor))

    def _fastest(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
        """Choose the launch configuration of a shape."""
        copied = self.pads(shape, dtype, target)
        seen = self.padded(shape, dtype) if copied else shape
        generic = self.generic_config(seen, dtype, target)
        if target != "sm_90" or not generic["tma"]:
            return generic
        return self.choose(generic, seen, copied)

    def candidates(self, shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
        """Yield the configurations that may be worth timing: tiles of all variants, the deepest and one stage less."""
        own = self.config(shape, dtype, target)
        yield self.candidate(own, shape, dtype)
        for config in self.clusters(own, shape) if target == "sm_90" and own["tma"] else ():
            yield self.candidate(config, shape, dtype)
        for tile in _tile_variations(self, own, target):
            for config in self.deepest(tile, dtype, target):
                yield self.candidate(config, shape, dtype)


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
