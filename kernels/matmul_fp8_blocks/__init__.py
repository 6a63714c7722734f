"""Compute C = A · Bᵀ of fp8 matrices with a scale for each 128 elements of a row of A and each block of B.

Formula: C[m, n] = Σ_j a_scale[j, m] · b_scale[n ÷ 128, j] · Σ_{k in block j} A[m, k] · B[n, k], blocks of 128
Shapes: A (M, K), B (N, K) in fp8 e4m3; a_scale (K ÷ 128, M), b_scale (N ÷ 128, K ÷ 128) in fp32, quotients rounded up;
C (M, N) in bf16. All are row-major.
Traffic: M·K + N·K bytes and the scales read, 2·M·N written: each operand once.
Source: the recipe is that of DeepSeek-V3's weights and activations; the layout of the scales that of torch._scaled_mm.
The work model excludes: re-reads of A, B and the scales by other tiles (L2), the padding of M, N and K to whole tiles,
the scaling of the sums, and with `stream_k` the sums that CTAs leave for one another (L2).

Precision: wgmma sums 128 products with fewer bits than fp32 has; the scaled sums are added in fp32. One rounding to
bf16.
Determinism: each element is one CTA's sum in the order of k, or with `stream_k` the sum of a few CTAs' sums, added in
a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import Ahead, AheadCuda, Candidate, Config, Launch, Tolerance, variations
from ledger.kernels.common import configs, pad_rows
from ledger.kernels.common.cuda import cuda_source
from ledger.kernels.common.family import Family
from ledger.kernels.common.gemm_cluster import ClusterGemm
from ledger.kernels.common.gemm_config import (
    CUDA,
    CUDA_DEFAULTS,
    GENERIC,
    GROUP,
    KEYS,
    Settings,
    group_rows,
    ring_bytes,
    shared_bytes,
)
from ledger.kernels.common.launches import MATRIX_SIZES, ahead_of, constants_of, options_of
from ledger.kernels.common.targets import SHARED_BYTES, ceil_div, device_target, matmul_path, sms_of
from ledger.operations import FP8_BLOCK, MATMUL_FP8_BLOCKS, Shape
from ledger.records import Dtype, Work

from .device import matmul_fp8_blocks_kernel

if TYPE_CHECKING:
    from torch import Tensor

_NAME = "matmul_fp8_blocks"
_TARGETS = ("sm_89", "sm_90", "sm_100")
_BLOCK_K = {"block_k": FP8_BLOCK}
_GENERIC = {
    "variant": GENERIC, "block_m": 64, "block_n": 64, **_BLOCK_K, "group_m": GROUP, "subtiles": 1, "num_warps": 8,
    "num_stages": 2, "tma": 0, **CUDA_DEFAULTS,
}  # fmt: skip
# The time of a product in nanoseconds, fitted to times of 75 shapes on an H200 (benchmarks/fp8-blocks-h200.json): of a
# step of 128 products by rows and columns of the tile; beside its steps, of each element of a tile. Bytes a nanosecond
# that L2 and DRAM deliver, and the power by which times join.
_STEP = {(64, 64): 118.0, (64, 128): 171.0, (128, 128): 289.0, (192, 128): 557.0}
_ELEMENT, _L2, _DRAM, _POWER = 0.020, 11_260.0, 4_206.0, 2.43
# What stream-K costs, by itself and for each element of a tile; the least K, and the most tiles for each SM.
_DIVIDED, _DIVIDED_ELEMENT, _DIVIDED_INNER, _DIVIDED_TILES = 3_105.0, 0.132, 1024, 4
# Two steps are in flight at once, and scales have a place less than there are stages: with two stages, each waits.
_LEAST_STAGES = 3
_CONSTANTS = ("block_m", "block_n", "block_k", "group_m")


def _nanoseconds(block_m: int, block_n: int, shape: Shape, sms: int, *, divided: bool) -> float:
    """Return about how long a product takes beside its launch, with tiles divided along K or not."""
    m, n, k = (shape[size] for size in "MNK")
    tiles = ceil_div(m, block_m) * ceil_div(n, block_n)
    waves = tiles / sms if divided else ceil_div(tiles, sms)
    loaded = 16 * ceil_div(m, 16 * ceil_div(m, block_m)) + block_n
    by_l2 = FP8_BLOCK * loaded * (sms if divided else min(tiles, sms)) / _L2
    step = math.pow(math.pow(_STEP[block_m, block_n], _POWER) + math.pow(by_l2, _POWER), 1 / _POWER)
    loop = waves * (ceil_div(k, FP8_BLOCK) * step + _ELEMENT * block_m * block_n)
    by_dram = (m * k + n * k + 2 * m * n) / _DRAM
    dividing = _DIVIDED + _DIVIDED_ELEMENT * block_m * block_n if divided else 0.0
    return math.pow(math.pow(loop, _POWER) + math.pow(by_dram, _POWER), 1 / _POWER) + dividing


def _fastest(shape: Shape, sms: int) -> tuple[int, int, bool]:
    """Return the rows and columns of the tiles that take the least time, and whether stream-K divides them."""
    choices: list[tuple[int, int, bool]] = []
    for block_m, block_n in _STEP:
        tiles = ceil_div(shape["M"], block_m) * ceil_div(shape["N"], block_n)
        divisible = shape["K"] >= _DIVIDED_INNER and tiles % sms and tiles <= _DIVIDED_TILES * sms
        choices += [(block_m, block_n, divided) for divided in ((False, True) if divisible else (False,))]
    return min(choices, key=lambda one: _nanoseconds(one[0], one[1], shape, sms, divided=one[2]))


def _shared_bytes(config: Settings) -> int:
    """Return the shared memory of a CTA of the CUDA C++, in bytes: with scales for all stages but one."""
    scales = config["block_m"] + config["block_n"] // 64
    return shared_bytes(config, 1, 2) + 4 * (config["num_stages"] - 1) * scales


class _Cluster(ClusterGemm):  # type: ignore[misc]
    """The CUDA C++, which keeps scales in shared memory."""

    def ahead(self, config: Settings, shape: Shape, dtype: Dtype) -> AheadCuda:
        """Return what the compiler needs to compile the program without a GPU."""
        return replace(super().ahead(config, shape, dtype), shared_bytes=_shared_bytes(config))


@dataclass(frozen=True)
class FP8Blocks(Family):  # type: ignore[misc]
    """Say how the kernel is launched: a variant in Triton, and CUDA C++ on sm_90."""

    name: str = _NAME
    dtypes: tuple[Dtype, ...] = ("fp8_e4m3",)
    cases: tuple[Mapping[str, int], ...] = (
        {"M": 4096, "N": 4096, "K": 4096},
        {"M": 8192, "N": 8192, "K": 8192},
        {"M": 4096, "N": 7168, "K": 2048},
        {"M": 1, "N": 1, "K": 1},
        {"M": 127, "N": 129, "K": 131},
        {"M": 64, "N": 7168, "K": 4096},
    )
    cluster: ClusterGemm = field(
        default=_Cluster(
            name=_NAME,
            source=partial(cuda_source, __name__, "cluster.cu"),
            fixed={"cluster_n": 1, "split_k": 1, "swap_ab": 0},
            promotion=256,
        )
    )

    path = staticmethod(matmul_path)

    @property
    def launched(self) -> str:
        """Return a pattern of the names of what a call launches."""
        return f"^{_NAME}_(kernel|cluster)$|^{pad_rows.ENTRY}$"

    def work(self, shape: Shape, dtype: Dtype) -> Work:
        """Count a multiply-add (two operations) for each (m, n, k); each operand moves once, a scale 4 bytes."""
        m, n, k = shape["M"], shape["N"], shape["K"]
        steps = ceil_div(k, FP8_BLOCK)
        scales = steps * (m + ceil_div(n, FP8_BLOCK))
        return Work(flops=2 * m * n * k, bytes_read=m * k + n * k + 4 * scales, bytes_written=2 * m * n)

    def config(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
        """Return the launch configuration of a shape. Raises: InputError for a target without one."""
        configs.check_tuned(self.name, target, _TARGETS, having="fp8 instructions")
        generic = {**_GENERIC, "programs": sms_of(target)}
        if target != "sm_90":
            # As compiled ahead of time, larger tiles spill: elements are loaded one by one.
            return {**generic, "block_m": 32} if target == "sm_89" else generic
        block_m, block_n, divided = _fastest(shape, sms_of(target))
        return self._cuda_config(generic, shape, block_m=block_m, block_n=block_n, stream_k=int(divided))

    def _cuda_config(self, config: Settings, shape: Shape, **chosen: int) -> dict[str, Any]:
        """Return a configuration of the CUDA C++ with as many stages as fit."""
        config = {**config, "variant": CUDA, "tma": 1, "pdl": 1, "num_warps": chosen["block_m"] // 16, **chosen}
        config = {**config, "group_m": group_rows(config, shape)}
        stages = range(_LEAST_STAGES, 13)
        fit = (n for n in stages if _shared_bytes({**config, "num_stages": n}) <= SHARED_BYTES["sm_90"])
        return {**config, "num_stages": max(fit)}

    def check_config(self, config: Settings, shape: Shape, dtype: Dtype, target: str) -> None:
        """Check that an architecture can run a configuration. Raises: InputError."""
        configs.check_keys(self.name, config, (*KEYS, *CUDA_DEFAULTS))
        configs.check_target(self.name, target, _TARGETS, lacks="fp8")
        configs.check_positive(self.name, config, "num_stages", "group_m", "programs")
        if config["variant"] == CUDA:
            self.cluster.check(config, shape, dtype, target)
            if (tile := (config["block_m"], config["block_n"])) not in _STEP:
                wanted = ", ".join(f"{rows} x {cols}" for rows, cols in _STEP)
                raise InputError(f"{self.name}: tiles are {tile[0]} x {tile[1]} with variant cuda; expected {wanted}")
            if (stages := config["num_stages"]) < _LEAST_STAGES:
                raise InputError(f"{self.name}: num_stages is {stages}; expected at least {_LEAST_STAGES}")
            configs.check_shared(self.name, _shared_bytes(config), target)
            return
        fixed = {**_BLOCK_K, "tma": 0, "subtiles": 1, **CUDA_DEFAULTS}
        if config["variant"] != GENERIC or any(config[key] != value for key, value in fixed.items()):
            wanted = ", ".join(f"{key} {value}" for key, value in fixed.items())
            raise InputError(f"{self.name}: variant is {config['variant']}; expected cuda, or generic with {wanted}")
        ranges = (("block_m", 16, 128), ("block_n", 16, 128), ("num_warps", 1, 16))
        configs.check_powers(self.name, config, ranges)
        configs.check_wgmma(self.name, config, target)
        configs.check_shared(self.name, ring_bytes(config, 1), target)

    def candidates(self, shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
        """Yield the configurations that may be worth timing."""
        own = self.config(shape, dtype, target)
        yield self._candidate(own, shape)
        if target == "sm_90":
            for block_m, block_n in _STEP:
                for stream_k, pdl, cluster_m in itertools.product((0, 1), (0, 1), (1, 2)):
                    chosen = {"block_m": block_m, "block_n": block_n, "stream_k": stream_k, "cluster_m": cluster_m}
                    yield self._candidate(self._cuda_config(own, shape, **chosen, pdl=pdl), shape)
        generic = {**_GENERIC, "programs": sms_of(target)}
        for config in variations(generic, {"block_m": (64, 128), "block_n": (64, 128), "num_stages": (2, 3)}):
            yield self._candidate(config, shape)

    def _candidate(self, config: Settings, shape: Shape) -> Candidate:
        block_m, block_n, inner = config["block_m"], config["block_n"], FP8_BLOCK * ceil_div(shape["K"], FP8_BLOCK)
        cuda, rows = config["variant"] == CUDA, config["cluster_m"]
        tiles = rows * ceil_div(shape["M"], rows * block_m) * ceil_div(shape["N"], block_n)
        return Candidate(
            config=config,
            tiles=tiles,
            tile_flops=2 * block_m * block_n * inner,
            tile_bytes=(block_m + block_n // rows) * inner,
            warps=config["num_warps"] + (4 if cuda else 0),
            registers=168 if cuda else block_m * block_n // (16 * config["num_warps"]) + 48,
            shared_bytes=_shared_bytes(config) if cuda else ring_bytes(config, 1),
            extra_clocks=self.cluster.divided_clocks * config["stream_k"],
        )

    def ahead(self, config: Settings, shape: Shape, dtype: Dtype, target: str) -> Ahead | AheadCuda:
        """Return what the compiler needs to compile the kernel without a GPU."""
        if config["variant"] == CUDA:
            return self.cluster.ahead(config, shape, dtype)
        operands = {"a": "*fp8e4nv", "b": "*fp8e4nv", "a_scale": "*fp32", "b_scale": "*fp32", "c": "*bf16"}
        return ahead_of(
            matmul_fp8_blocks_kernel, {**operands, **MATRIX_SIZES}, constants=constants_of(config, *_CONSTANTS),
            options=options_of(config),
        )  # fmt: skip

    def prepare(self, inputs: Mapping[str, Tensor], out: Tensor, config: Settings) -> Launch:
        """Return the launch; on sm_90 rows that TMA cannot address are copied."""
        (n_rows, n_inner), n_cols = inputs["a"].shape, out.shape[1]
        scales = [inputs["a_scale"], inputs["b_scale"]]
        if config["variant"] == CUDA:
            (a, b), copy = pad_rows.pad_rows((inputs["a"], inputs["b"]), overlap=bool(config["pdl"]))
            # After a copy the product begins before that has ended.
            config = {**config, "pdl": 1} if copy else config
            product = self.cluster.prepare(a, b, out, config, dtype="fp8_e4m3", bias=None, scale=None, more=scales)
            launches = [product] if copy is None else [copy, product]

            def in_turn() -> None:
                for launch in launches:
                    launch()

            return in_turn
        grid = (ceil_div(n_rows, config["block_m"]) * ceil_div(n_cols, config["block_n"]),)
        operands = [inputs["a"], inputs["b"], *scales, out]
        constants, options = constants_of(config, *_CONSTANTS), options_of(config)

        def launch() -> None:
            matmul_fp8_blocks_kernel[grid](*operands, n_rows, n_cols, n_inner, **constants, **options)

        return launch


_BLOCKS = FP8Blocks()


def matmul_fp8_blocks(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor) -> Tensor:
    """Return the scaled a · bᵀ in bfloat16.

    Shapes: a (M, K), b (N, K), both float8_e4m3fn on one GPU; a_scale (K ÷ 128, M) and b_scale (N ÷ 128, K ÷ 128) in
    float32, quotients rounded up; the result (M, N). Raises: InputError.
    """
    import torch

    (m, k), n = a.shape, b.shape[0]
    steps = ceil_div(k, FP8_BLOCK)
    wanted = {
        "b": (b, (n, k), torch.float8_e4m3fn), "a": (a, (m, k), torch.float8_e4m3fn),
        "a_scale": (a_scale, (steps, m), torch.float32),
        "b_scale": (b_scale, (ceil_div(n, FP8_BLOCK), steps), torch.float32),
    }  # fmt: skip
    for name, (tensor, dims, kind) in wanted.items():
        if tuple(tensor.shape) != dims or tensor.dtype != kind:
            raise InputError(f"{_NAME}: {name} is {tuple(tensor.shape)} in {tensor.dtype}; expected {dims} in {kind}")
    out = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    config = _BLOCKS.config({"M": m, "N": n, "K": k}, "fp8_e4m3", device_target(a))
    inputs = {name: tensor.contiguous() for name, (tensor, _, _) in wanted.items()}
    _BLOCKS.prepare(inputs, out, config)()
    return out


def _scaled(inputs: Mapping[str, Tensor], kind: Any) -> Tensor:
    """Return the result in a type. Scales multiply the sum of a block: an infinite one gives its sign, not NaN."""
    import torch

    a, b, a_scale, b_scale = (inputs[name].to(kind) for name in ("a", "b", "a_scale", "b_scale"))
    total = torch.zeros(a.shape[0], b.shape[0], dtype=kind, device=a.device)
    for step, of_rows in enumerate(a_scale):
        of_columns = b_scale[:, step].repeat_interleave(FP8_BLOCK)[: b.shape[0]]
        block = slice(FP8_BLOCK * step, FP8_BLOCK * (step + 1))
        total += (a[:, block] @ b[:, block].T) * (of_rows[:, None] * of_columns)
    return total


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the product in float64."""
    import torch

    return _scaled(inputs, torch.float64)


def _torch_cpu(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch

    return lambda: out.copy_(_scaled(inputs, torch.float32))


def _scaled_mm(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    import torch

    a, b = inputs["a"], inputs["b"].t()
    of_a, of_b = inputs["a_scale"].t(), inputs["b_scale"].t()
    return lambda: torch._scaled_mm(a, b, of_a, of_b, out_dtype=out.dtype, out=out)


KERNEL = _BLOCKS.kernel(
    operation=MATMUL_FP8_BLOCKS,
    summary="product of fp8 matrices with scales of blocks of 128, the second one transposed",
    formula="C = Σⱼ aⱼ · bⱼ · Aⱼ · Bⱼᵀ",
    excludes="re-reads of A, B and scales by other tiles (L2), padding to whole tiles, scaling of the sums",
    tolerances={
        "fp8_e4m3": Tolerance(1e-3, 4e-3, "one rounding to 8 bits; tensor cores sum 128 products in about 14 bits"),
    },
    reference=reference,
    torch_cpu=_torch_cpu,
    baselines={"torch_scaled_mm": _scaled_mm},
)
