"""Compute C = A · B with a grid of persistent programs.

Formula: C[m, n] = Σ_k A[m, k] · B[k, n]
Shapes: A (M, K), B (K, N), C (M, N), all row-major and of one dtype (fp16 or bf16).
Traffic: e · (M·K + K·N) bytes read and e · M·N written, e bytes an element: each operand once.
Source: the grouped tile order is the one of Triton's matrix-multiplication tutorial.
The work model excludes: re-reads of A and B by other tiles (L2), the padding of M, N and K to whole tiles, and with
`stream_k` or `split_k` the sums that CTAs leave for one another (at most 41 MB written and read, L2).

Precision: fp32 accumulation, one rounding to the dtype.
Determinism: each element is one CTA's sum in the order of k, or with `stream_k` or `split_k` the sum of a few CTAs'
sums, added in a fixed order, so the same inputs give the same bits.
"""

from __future__ import annotations

import heapq
from functools import partial
from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernels.common import gemm_rule
from ledger.kernels.common.baselines import library
from ledger.kernels.common.cuda import cuda_source
from ledger.kernels.common.gemm import TOLERANCES
from ledger.kernels.common.gemm_cluster import ClusterGemm
from ledger.kernels.common.gemm_config import CUDA, WARP_SPECIALISED, Settings, lines, resident, tile_rows
from ledger.kernels.common.gemm_few_rows import FewRows
from ledger.kernels.common.gemm_residues import Residues
from ledger.kernels.common.gemm_rule import MEASURED, SHORT_INNER, Frame, RuledGemm
from ledger.kernels.common.gemm_split_k import SplitK
from ledger.kernels.common.targets import SMS, ceil_div
from ledger.operations import MATMUL, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

# Where another frame was measured faster than the one with the fewest clocks (docs/notes/gemm.md).
_TUNED: dict[tuple[int, int, int], Frame] = {
    **MEASURED,
    (128, 8192, 8192): Frame(64, 128, 2, swap_ab=1),
    (128, 8192, 28672): Frame(64, 128, 2, swap_ab=1),
    (777, 3000, 4104): Frame(160, 128, 1, 2, swap_ab=1),
    (1000, 1512, 2056): Frame(128, 128, 2, 2),
}
# Up to so many rows a tile has all of them, A and B are swapped, and B is what takes time. Two CTAs divide a tile where
# there are few and enough steps. Wide tiles, whose rows of B are long, where there are more narrow ones than SMs.
_ROWS_OF_ONE_TILE, _DIVIDED_INNER = 56, 1024
_WIDEST_INNER, _WIDEST_COLUMNS = 12288, 14336
# Tiles of products with few steps, of which each CTA has at most one: the smaller ones where they suffice.
_SMALL_TILES = ((64, 64), (128, 64))
# Columns of the cluster kernel's tiles with A and B swapped -> the most rows: what wgmma multiplies at once,
# or whose sums stay in the registers that three groups of warps leave (as compiled ahead of time).
_SWAPPED_ROWS = {64: 256, 128: 256, 192: 200}
# Rows of C for which the rule weighs such tiles, and the least K, and that for clusters: those of the shapes that were
# timed. A tile of fewer rows than 32 was nowhere near the fastest.
_SWAPPED_FROM, _SWAPPED_BELOW, _SWAPPED_INNER, _SWAPPED_LEAST = 57, 2048, 256, 32
_SWAPPED_CLUSTERS_INNER = 1000
# Of as many rows and more: the variant of the other tiles -> of their clocks, what swapped tiles must not exceed.
_SWAPPED_SHARES = {CUDA: 0.975, WARP_SPECIALISED: 0.92}
# Their clusters, by the lines of L2 in which 128 bytes of a row lie. Where that is one, sharing A made nothing faster.
# Of those that take equal clocks the first: alone 1 to 7% faster, in early launches behind copies pairs, by up to 30%.
_SWAPPED_CLUSTERS = {1: ((1, 1), (2, 1)), 2: ((1, 2), (2, 1), (2, 2), (1, 1))}
_COPIED_CLUSTERS = {**_SWAPPED_CLUSTERS, 1: ((2, 1), (1, 1))}
# What an SM does in a clock for such tiles, fitted to times of 33 shapes (docs/notes/gemm.md) beside the clocks
# above: bytes that it asks L2 for where rows lie in two lines; bytes that arrive, by the lines; bytes of shared memory
# that wgmma reads and the loads write. And the rates of clusters, whose programs wait for one another, and of one
# group of warps alone.
_SWAPPED_ASKED_BYTES = 28.6
_SWAPPED_ARRIVING_BYTES = {1: 83.0, 2: 50.8}
_SWAPPED_SHARED_BYTES = 173.0
_SWAPPED_CLUSTER_RATES = {(1, 1): 1.0, (2, 1): 0.959, (1, 2): 0.959, (2, 2): 0.825}
_SWAPPED_ALONE_RATE = 0.865
# Clocks of a tile in two halves, which leave each other sums, by the clusters of halves; pairs were faster from so
# large a K on. Such were the fastest with 64 columns only.
_HALVES_CLOCKS = {(1, 1): 1_900, (1, 2): 1_900, (2, 1): 7_000}
_HALVES_PAIR_INNER, _HALVES_COLUMNS = 3_000, 64
# Of the clocks above, what halves of several tiles of rows take, and what one tile of few rows takes beside B's loads.
_TALL_HALVES, _ONE_TILE_SHARE = 1.2, 0.5
# Stages of swapped tiles of so many columns and at most so many rows: where tiles share B, loads wait for L2, and
# twelve were up to 24% faster than eight; else for DRAM, which delivers most where so many bytes are asked for.
_DEEP_COLUMNS, _DEEP_ROWS, _DEEP_STAGES, _ASKED_OF_DRAM = 64, 104, 12, 14_500_000
# As many of them as `ledger tune` is offered.
_SWAPPED_OFFERED = 16


def _one_tile_frame(shape: Shape, sms: int) -> Frame | None:
    """Return the frame of a product whose rows one tile has, None for more rows."""
    if shape["M"] > _ROWS_OF_ONE_TILE:
        return None
    rows, n_cols, n_inner = shape["M"], shape["N"], shape["K"]
    if n_inner >= _DIVIDED_INNER and 2 * ceil_div(n_cols, 64) <= sms:
        return Frame(16 * ceil_div(rows, 16), 64, swap_ab=1, split_k=2)
    width = 64
    if ceil_div(n_cols, 64) > sms:
        widest = ceil_div(n_cols, 128) > sms >= ceil_div(n_cols, 192)
        widest |= n_inner >= _WIDEST_INNER and n_cols <= _WIDEST_COLUMNS
        width = 192 if widest else 128
    return Frame(8 * ceil_div(rows, 8), width, swap_ab=1)


def _small_frame(shape: Shape, sms: int) -> Frame | None:
    """Return the frame of a product with few steps and tiles, None for others."""
    for block_m, block_n in _SMALL_TILES if shape["K"] <= SHORT_INNER else ():
        if ceil_div(shape["M"], block_m) * ceil_div(shape["N"], block_n) <= sms:
            return Frame(block_m, block_n)
    return None


def _frame_of(
    shape: Shape, sms: int, by_lines: Mapping[int, tuple[tuple[int, int], ...]] = _SWAPPED_CLUSTERS
) -> Frame | None:
    """Return what was measured or takes the fewest clocks, or None where the generic variant takes fewer.

    by_lines: clusters of swapped tiles, those first that are taken of equals.
    """
    tuned = _TUNED.get((shape["M"], shape["N"], shape["K"])) if sms == SMS["sm_90"] else None
    if chosen := _one_tile_frame(shape, sms) or tuned or _small_frame(shape, sms):
        return chosen
    clocks = {frame: gemm_rule.clocks(frame, shape, sms, even_rows=True) for frame in gemm_rule.frames()}
    if shape["M"] >= _SWAPPED_FROM and shape["K"] >= _SWAPPED_INNER:
        # Of more rows the other tiles' clocks were above what they take.
        best = min(clocks, key=clocks.__getitem__)
        share = 1.0 if shape["M"] < _SWAPPED_BELOW else _SWAPPED_SHARES[best.variant]
        clocks |= {frame: _swapped_clocks(frame, shape, sms) / share for frame in _swapped_frames(shape, by_lines)}
        return min(clocks, key=clocks.__getitem__)
    best = min(clocks, key=clocks.__getitem__)
    return None if gemm_rule.generic_clocks(shape, sms) < clocks[best] else best


def _swapped_frames(
    shape: Shape, by_lines: Mapping[int, tuple[tuple[int, int], ...]] = _SWAPPED_CLUSTERS
) -> Iterator[Frame]:
    """Yield the frames with A and B swapped: the rows of C in any number of even shares."""
    clusters = by_lines[max(lines(shape["N"]), lines(shape["K"]))]
    if shape["K"] < _SWAPPED_CLUSTERS_INNER:
        clusters = ((1, 1),)
    halves = [cluster for cluster in _HALVES_CLOCKS if cluster == (1, 1) or shape["K"] >= _HALVES_PAIR_INNER]
    for (rows, cols), split in (*((cluster, 1) for cluster in clusters), *((cluster, 2) for cluster in halves)):
        frame = Frame(0, 0, rows, cols, swap_ab=1, split_k=split)
        step = _swapped_step(frame._asdict())
        shares = range(1, ceil_div(shape["M"], rows * _SWAPPED_LEAST) + 1)
        heights = {step * ceil_div(shape["M"], step * rows * tiles) for tiles in shares}
        for block_n, most in _SWAPPED_ROWS.items():
            if split == 1 or block_n == _HALVES_COLUMNS:
                for block_m in sorted(heights, reverse=True):
                    if _SWAPPED_LEAST <= block_m <= most:
                        yield frame._replace(block_m=block_m, block_n=block_n)


def _swapped_clocks(frame: Frame, shape: Shape, sms: int) -> float:
    """Return the same as gemm_rule.clocks for a frame with A and B swapped."""
    block_m, block_n, rows, cols, _, split, *_ = frame
    n_rows, n_inner, loaded = shape["M"], shape["K"], tile_rows(frame._asdict(), shape["M"])
    slots = resident((rows * split, cols), sms) // (rows * cols * split)
    waves = ceil_div(ceil_div(n_rows, rows * block_m) * ceil_div(shape["N"], cols * block_n), slots)
    lines_a, lines_b = lines(n_inner), lines(shape["N"])
    asked_bytes = {1: gemm_rule.ASKED_BYTES[1] if waves > 1 else gemm_rule.ASKED_AT_ONCE_BYTES, 2: _SWAPPED_ASKED_BYTES}
    asked = 2 * loaded / cols / asked_bytes[lines_a] + 2 * block_n / rows / asked_bytes[lines_b]
    arriving = 2 * loaded / _SWAPPED_ARRIVING_BYTES[lines_a] + 2 * block_n / _SWAPPED_ARRIVING_BYTES[lines_b]
    # Each group of warps reads its own 64 columns of B and all rows of A.
    read = 2 * (block_n // 64) * (64 + block_m)
    in_shared = (read + 2 * (loaded + block_n)) / _SWAPPED_SHARED_BYTES
    rate = _SWAPPED_CLUSTER_RATES[rows, cols] * (_SWAPPED_ALONE_RATE if block_n == 64 else 1.0)
    multiplied = 2 * block_m * block_n / gemm_rule.TENSOR_FLOPS / rate
    inner = max(multiplied, asked, arriving, in_shared) * n_inner / split
    once = inner + gemm_rule.TILE_CLOCKS * block_m * block_n / (128 * 256)
    return waves * once + (_HALVES_CLOCKS[rows, cols] if split > 1 else 0)


def _clocks_of(frame: Frame, shape: Shape, sms: int) -> float:
    """Return about how many clocks a frame takes beside loads from DRAM."""
    if not frame.swap_ab:
        return gemm_rule.clocks(frame, shape, sms, even_rows=True)
    if shape["M"] <= _ROWS_OF_ONE_TILE:
        return _ONE_TILE_SHARE * _swapped_clocks(frame, shape, sms)
    slower = _TALL_HALVES if frame.split_k > 1 and shape["M"] > frame.block_m else 1.0
    return slower * _swapped_clocks(frame, shape, sms)


def _stages_of(frame: Frame, shape: Shape) -> int:
    """Return the most stages that are worth having."""
    if not (frame.swap_ab and frame.block_n == _DEEP_COLUMNS and frame.block_m <= _DEEP_ROWS):
        return 8
    if shape["M"] > frame.block_m:
        return _DEEP_STAGES if frame.split_k == 1 else 8
    asked = ceil_div(shape["N"], frame.block_n) * frame.split_k * 128 * (frame.block_m + frame.block_n)
    return min(max(round(_ASKED_OF_DRAM / asked), 8), _DEEP_STAGES)


def _check_swapped(config: Settings) -> None:
    block_m, block_n, step = config["block_m"], config["block_n"], _swapped_step(config)
    if not step <= block_m <= _SWAPPED_ROWS.get(block_n, 0) or block_m % step:
        most = ", ".join(f"{rows} by {cols}" for cols, rows in _SWAPPED_ROWS.items())
        raise InputError(
            f"matmul: tiles are {block_m} x {block_n} with swap_ab 1; expected rows in steps of {step}, at most {most}"
        )


def _swapped_step(config: Settings) -> int:
    """Return what a swapped tile's rows are a multiple of: 8 of each program that shares them or ends a part."""
    return 8 * int(max(config["cluster_n"], config["split_k"]))


def _offered(shape: Shape, sms: int) -> list[Frame]:
    """Return the frame of few rows, or those with A and B swapped that take the fewest clocks by the rule."""
    if few := _one_tile_frame(shape, sms):
        return [few]
    frames = _swapped_frames(shape)
    return heapq.nsmallest(_SWAPPED_OFFERED, frames, key=lambda frame: _swapped_clocks(frame, shape, sms))


GEMM = RuledGemm(
    name="matmul",
    frame_of=_frame_of,
    clocks_of=_clocks_of,
    copied_frame_of=partial(_frame_of, by_lines=_COPIED_CLUSTERS),
    stages_of=_stages_of,
    swapped_frames=_offered,
    cluster=ClusterGemm(
        name="matmul",
        source=partial(cuda_source, __name__, "cluster.cu"),
        even_tiles=True,
        swaps=True,
        check_swapped=_check_swapped,
    ),
    few_rows=FewRows("matmul"),
    residues=Residues("matmul"),
    split_k=SplitK("matmul"),
)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return a · b.

    Shapes: a (M, K), b (K, N) of one dtype on one GPU; the result (M, N).
    """
    return GEMM(a, b)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the product in float64."""
    return inputs["a"].double() @ inputs["b"].double()


TORCH = library(lambda torch, out, a, b: torch.matmul(a, b, out=out), "a", "b")

KERNEL = GEMM.kernel(
    operation=MATMUL,
    summary="matrix product",
    formula="C = A · B",
    excludes="re-reads of A and B by other tiles and partial sums exchanged between CTAs (L2), padding to whole tiles",
    tolerances=TOLERANCES,
    reference=reference,
    torch_cpu=TORCH,
    baselines={"torch_matmul": TORCH},
)
