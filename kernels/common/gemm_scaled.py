"""Gives kernels of C = s · A · Bᵀ with operands of one byte what they share: family, reference, CPU, tile variations.

Shapes: a (M, K), b (N, K), c (M, N), all row-major. Imports torch and triton, only when called.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ledger.kernel import Candidate, Config, Kernel, Launch, Prepare, Tolerance, variations
from ledger.operations import Operation, Shape
from ledger.records import Dtype

from .gemm import Gemm, product_cases
from .gemm_config import CUDA, GENERIC, GROUP, WARP_SPECIALISED, Settings, group_rows
from .gemm_device import scaled
from .gemm_frames import Frame, cluster_frames, nanoseconds
from .gemm_tiles import BYTE_RAGGED, Tile
from .targets import sms_of

if TYPE_CHECKING:
    from torch import Tensor

# As many configurations of the CUDA C++ as `ledger tune` is offered, the fastest by the model.
_OFFERED = 40
# K up to which split_k is not weighed: there both models say too much.
_SHORT_INNER = 2048


@dataclass(frozen=True, kw_only=True)
class ScaledGemm(Gemm):
    """A product with a scale of operands of one byte, B by rows; on sm_90, where TMA reads rows, the CUDA C++."""

    scale: Callable[[int], float]
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
            excludes="re-reads of A and B and sums exchanged between CTAs (L2), padding to whole tiles, scaling",
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
        padded = self.padded(shape, dtype) if self.pads(shape, dtype, target) else shape
        config = self.generic_config(padded, dtype, target)
        if target != "sm_90" or not config["tma"]:
            return config
        seen, copied = self._seen(shape, dtype)
        taken, frame = min(self._frames(seen, dtype, sms_of(target), copied=copied))
        divided = self._divided(config, shape, dtype, target)
        return divided[1] if divided and divided[0] < taken else _config(config, frame, seen)

    def _divided(
        self, generic: dict[str, Any], shape: Shape, dtype: Dtype, target: str
    ) -> tuple[float, dict[str, Any]] | None:
        """Return nanoseconds and configuration of the fastest split_k; None where it does not serve the shape."""
        if not self.split_k or shape["K"] <= _SHORT_INNER or not self.split_k.serves(shape, dtype, target):
            return None
        return self.split_k.fastest(generic, shape)

    def _seen(self, shape: Shape, dtype: Dtype) -> tuple[Shape, bool]:
        """Return a shape with the row pitch that TMA sees of A and B, and whether they are copied for that."""
        inner = self.padded(shape, dtype)["K"]
        return {**shape, "K": inner}, inner != shape["K"]

    def _frames(
        self, shape: Shape, dtype: Dtype, sms: int, *, copied: bool, every: bool = False
    ) -> Iterator[tuple[float, Frame]]:
        """Yield the frames of the CUDA C++ behind about how many nanoseconds they take. every: as in swapped_frames."""
        pairs = _pairs(shape)
        for frame in cluster_frames(pairs, sms, copied=copied, every=every, dtype=dtype):
            yield nanoseconds(frame, pairs, sms, copied=copied, dtype=dtype), frame

    def candidates(self, shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
        """Yield the configurations that may be worth timing: tiles of all variants, the deepest and one stage less."""
        own = self.config(shape, dtype, target)
        yield self.candidate(own, shape, dtype)
        plain: dict[str, Any] = {**own, **self.cuda_defaults, "programs": sms_of(target)}
        if self.split_k and self.split_k.serves(shape, dtype, target):
            for divided in self.split_k.candidates(plain, shape):
                yield self.candidate(divided, shape, dtype)
        if target == "sm_90" and own["tma"]:
            (seen, copied), sms = self._seen(shape, dtype), sms_of(target)
            frames = self._frames(seen, dtype, sms, copied=copied, every=True)
            for _, frame in heapq.nsmallest(_OFFERED, frames):
                yield self.candidate(_config(plain, frame, seen), shape, dtype)
            varying = {"pdl": (0, 1), "group_m": (4, 8)} if own["variant"] == CUDA else {"pdl": (0, 1)}
            for varied in variations(own, varying):
                yield self.candidate(varied, shape, dtype)
        for tile in _tile_variations(self, own, target):
            for config in self.deepest(tile, dtype, target):
                yield self.candidate(config, shape, dtype)


def _pairs(shape: Shape) -> Shape:
    """Return a shape with K in pairs of elements."""
    return {**shape, "K": shape["K"] // 2}


def _config(config: Settings, frame: Frame, shape: Shape) -> dict[str, Any]:
    """Return the configuration of a frame of the CUDA C++."""
    sms = config["programs"]
    chosen: dict[str, Any] = {**config, **frame.config(_pairs(shape), sms), "block_k": 128}
    if "promote" in config:
        chosen["promote"] = 1
    return {**chosen, "group_m": GROUP if frame.stream_k else group_rows(chosen, shape)}


def _tile_variations(gemm: Gemm, own: Settings, target: str) -> Iterator[Settings]:
    """Yield tiles of the warp-specialised and of the generic variant."""
    own = {**own, **gemm.cuda_defaults, "programs": sms_of(target), "group_m": GROUP}
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
