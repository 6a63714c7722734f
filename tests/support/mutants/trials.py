"""Lists the small trials that the interpreter and the GPU both run: ones, primes, whole tiles, ragged edges."""

from __future__ import annotations

from typing import Any

from mutants.attention import flash_cuda_trials, mla_cluster_trials
from mutants.checker import Trial

_SKINNY = {"block_b": 16, "block_o": 64, "block_k": 32, "num_warps": 4, "num_stages": 2}
# The keys of the products' CUDA C++, as the other variants have them.
_NO_CUDA = {"cluster_m": 1, "cluster_n": 1, "swap_ab": 0, "split_k": 1, "stream_k": 0, "pdl": 0}
# The same of rmsnorm_matmul's.
_ALONE = {"cluster_n": 1, "swap_ab": 0, "stream_k": 0}
_GENERIC = {"variant": "generic", "cluster_m": 1, **_ALONE, "x_stages": 0, "scaling_warpgroups": 0, "pdl": 0}
_SQUARE = {"block_m": 64, "block_n": 64, "block_k": 32, "group_m": 2, "programs": 3, "num_warps": 4, "num_stages": 2,
           "variant": "generic", **_NO_CUDA}  # fmt: skip


def rmsnorm_matmul_trials(dtype: str, *, tma: bool) -> tuple[Trial, ...]:
    """Return trials of rmsnorm_matmul; without tma also those whose rows have an odd size."""
    whole = {**_SKINNY, **_GENERIC, "split_k": 1, "tma": 0}
    split = {**_SKINNY, **_GENERIC, "split_k": 3, "tma": 0}
    trials = [
        Trial({"B": 1, "H": 1, "O": 1}, dtype, whole),
        Trial({"B": 3, "H": 97, "O": 131}, dtype, whole),
        Trial({"B": 3, "H": 97, "O": 131}, dtype, split),
        Trial({"B": 17, "H": 127, "O": 67}, dtype, split),
        Trial({"B": 16, "H": 128, "O": 128}, dtype, whole),
        # Squares of these exceed the largest fp16.
        Trial({"B": 2, "H": 101, "O": 64}, dtype, whole, scale=256.0),
        # These are so small that eps is half of the mean of squares.
        Trial({"B": 2, "H": 101, "O": 64}, dtype, whole, scale=2.0**-10),
    ]
    if tma:
        trials += [
            Trial({"B": 5, "H": 97, "O": 136}, dtype, {**whole, "tma": 1}),
            Trial({"B": 5, "H": 97, "O": 136}, dtype, {**split, "tma": 1}),
        ]
    return tuple(trials)


def many_tiles_trial(dtype: str) -> Trial:
    """Return a trial of rmsnorm_matmul's generic variant with more tiles split along K than any GPU runs at once.

    The first CTA of all tiles is scheduled before any other, so a CTA that does not wait finds nothing of the others.
    """
    return Trial({"B": 3, "H": 97, "O": 300_000}, dtype, {**_SKINNY, **_GENERIC, "split_k": 3, "tma": 0})


def pipelined_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of rmsnorm_matmul's warp-specialised variant, which only sm_90 runs."""
    one = {
        "block_b": 8, "block_o": 64, "block_k": 64, "split_k": 1, "num_warps": 4, "num_stages": 3, "tma": 1,
        "variant": "warp_specialised", "cluster_m": 1, "x_stages": 4, "scaling_warpgroups": 1, "pdl": 1, **_ALONE,
    }  # fmt: skip
    two = {**one, "block_b": 32, "split_k": 2, "scaling_warpgroups": 2}
    wide = {**one, "block_b": 128, "block_o": 128, "split_k": 4, "num_warps": 8, "scaling_warpgroups": 2}
    return (
        Trial({"B": 1, "H": 8, "O": 8}, dtype, one),
        Trial({"B": 3, "H": 104, "O": 136}, dtype, one),
        Trial({"B": 8, "H": 1024, "O": 64}, dtype, {**one, "pdl": 0}),
        Trial({"B": 17, "H": 1000, "O": 200}, dtype, two),
        Trial({"B": 67, "H": 1096, "O": 264}, dtype, two),
        Trial({"B": 97, "H": 1032, "O": 328}, dtype, wide),
        Trial({"B": 2, "H": 104, "O": 64}, dtype, one, scale=256.0),
        Trial({"B": 2, "H": 200, "O": 64}, dtype, two, scale=2.0**-10),
    )


def cluster_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of rmsnorm_matmul's CUDA C++, which only sm_90 runs: ragged edges, split-K, many tiles."""
    one = {
        "block_b": 128, "block_o": 256, "block_k": 64, "split_k": 1, "num_warps": 8, "num_stages": 4, "tma": 1,
        "variant": "cuda_cooperative", "cluster_m": 1, "x_stages": 0, "scaling_warpgroups": 0, "pdl": 1, **_ALONE,
    }  # fmt: skip
    two = {**one, "block_o": 128, "split_k": 2, "num_stages": 6}
    narrow = {**one, "block_o": 64, "split_k": 2, "num_stages": 9}
    half = {**one, "block_b": 64, "block_o": 128, "split_k": 2, "num_stages": 9}
    ping_pong = {**one, "variant": "cuda_ping_pong", "block_b": 64, "block_o": 64, "num_warps": 16, "num_stages": 12}
    ping_pong["x_stages"] = 8
    few = {**ping_pong, "block_b": 8, "split_k": 2, "num_stages": 20, "x_stages": 20}
    many = {**ping_pong, "block_b": 128, "split_k": 2, "num_stages": 8}
    wide = {**ping_pong, "block_o": 128, "num_stages": 8}
    eight = {"num_warps": 8, "num_stages": 6, "x_stages": 5}
    # Pairs of row tiles that share the weights.
    pair = {"cluster_m": 2}
    # Rows normalised first, then the cluster GEMM, without swap-AB and with it.
    normed = {**one, "variant": "cuda_normed", "block_o": 128, "num_stages": 5}
    swapped = {**normed, "swap_ab": 1}
    short = {**swapped, "block_b": 32, "num_stages": 8}
    return (
        Trial({"B": 1, "H": 8, "O": 8}, dtype, one),
        Trial({"B": 1, "H": 72, "O": 8}, dtype, two),
        Trial({"B": 123, "H": 1000, "O": 328}, dtype, one),
        Trial({"B": 123, "H": 1000, "O": 328}, dtype, two),
        Trial({"B": 97, "H": 1032, "O": 136}, dtype, {**narrow, "pdl": 0}),
        Trial({"B": 128, "H": 2048, "O": 1024}, dtype, narrow),
        Trial({"B": 59, "H": 1000, "O": 328}, dtype, half),
        Trial({"B": 59, "H": 1000, "O": 328}, dtype, {**half, "split_k": 1}),
        Trial({"B": 59, "H": 520, "O": 264}, dtype, {**half, "block_o": 256, "split_k": 1, "num_stages": 4}),
        Trial({"B": 3, "H": 192, "O": 520}, dtype, {**one, "block_o": 64}),
        # Fewer steps than stages, and than column tiles that share squares; groups of them that are not whole.
        Trial({"B": 127, "H": 2000, "O": 2040}, dtype, {**half, "block_o": 64, "num_stages": 13}),
        Trial({"B": 128, "H": 4104, "O": 1160}, dtype, {**half, "pdl": 0}),
        # More tiles than SMs: a CTA takes one after the other.
        Trial({"B": 2100, "H": 264, "O": 4104}, dtype, one),
        Trial({"B": 300, "H": 1000, "O": 1000}, dtype, two),
        Trial({"B": 65, "H": 104, "O": 64}, dtype, one, scale=256.0),
        Trial({"B": 65, "H": 200, "O": 128}, dtype, two, scale=2.0**-10),
        # Split-K with 256 columns, whose partial sums take more than a stage.
        Trial({"B": 123, "H": 1000, "O": 328}, dtype, {**one, "split_k": 2}),
        Trial({"B": 300, "H": 2120, "O": 1000}, dtype, {**one, "split_k": 2, "pdl": 0}),
        # Ping-pong warpgroups: fewer steps than groups; one row tile, two and four that share the weights, three.
        Trial({"B": 1, "H": 8, "O": 8}, dtype, {**few, "split_k": 1}),
        Trial({"B": 59, "H": 1000, "O": 328}, dtype, ping_pong),
        Trial({"B": 123, "H": 1000, "O": 328}, dtype, {**ping_pong, **pair}),
        Trial({"B": 128, "H": 4104, "O": 1160}, dtype, {**ping_pong, **pair, "num_stages": 11, "x_stages": 0}),
        Trial({"B": 200, "H": 520, "O": 264}, dtype, {**wide, **pair, "block_b": 56}),
        Trial(
            {"B": 150, "H": 2000, "O": 136},
            dtype,
            {**ping_pong, "num_warps": 8, "num_stages": 5, "x_stages": 0, "pdl": 0},
        ),
        Trial({"B": 65, "H": 104, "O": 64}, dtype, {**ping_pong, **pair}, scale=256.0),
        Trial({"B": 65, "H": 200, "O": 128}, dtype, {**ping_pong, **pair}, scale=2.0**-10),
        # Their split-K: two, four and eight CTAs, one without a step, ragged rows.
        Trial({"B": 1, "H": 72, "O": 8}, dtype, few),
        Trial({"B": 5, "H": 4096, "O": 520}, dtype, {**few, "split_k": 8}),
        Trial(
            {"B": 17, "H": 2056, "O": 264},
            dtype,
            {**few, "block_b": 24, "split_k": 4, "num_stages": 16, "x_stages": 12},
        ),
        Trial({"B": 72, "H": 4104, "O": 1160}, dtype, {**ping_pong, "block_b": 72, "split_k": 2, "num_warps": 8}),
        Trial({"B": 123, "H": 1000, "O": 328}, dtype, many),
        Trial({"B": 100, "H": 2048, "O": 1048}, dtype, {**many, "block_b": 104, "pdl": 0}),
        # Their tiles of 128 columns: split-K, whose partial sums reuse the stages; 16 and 8 warps; many rows.
        Trial({"B": 33, "H": 2000, "O": 1064}, dtype, {**wide, "block_b": 40, "split_k": 2}),
        Trial(
            {"B": 123, "H": 1000, "O": 328},
            dtype,
            {**wide, "block_b": 128, "split_k": 2, "num_stages": 6, "x_stages": 6},
        ),
        Trial({"B": 130, "H": 1032, "O": 1160}, dtype, {**wide, **eight, "block_b": 136, "num_stages": 7}),
        Trial({"B": 190, "H": 1032, "O": 200}, dtype, {**ping_pong, **eight, "block_b": 192, "x_stages": 6}),
        # Weights scaled a step ahead: one step and two, odd and even, one group and two; most rows, shared stages,
        # split-K, weights that row tiles share or each load, more tiles than SMs.
        Trial({"B": 40, "H": 64, "O": 128}, dtype, {**wide, **eight, "block_b": 40}),
        Trial({"B": 123, "H": 72, "O": 200}, dtype, {**wide, **eight, "block_b": 128}),
        Trial(
            {"B": 250, "H": 1000, "O": 328},
            dtype,
            {**wide, **eight, **pair, "block_b": 128, "num_stages": 7, "x_stages": 6},
        ),
        Trial({"B": 250, "H": 520, "O": 328}, dtype, {**wide, **eight, "block_b": 128, "num_stages": 7, "x_stages": 6}),
        Trial({"B": 250, "H": 1032, "O": 328}, dtype, {**wide, **eight, **pair, "block_b": 128, "x_stages": 0}),
        Trial(
            {"B": 250, "H": 2000, "O": 328},
            dtype,
            {**wide, **eight, "block_b": 256, "split_k": 2, "num_stages": 5, "x_stages": 4},
        ),
        Trial({"B": 300, "H": 1032, "O": 136}, dtype, {**wide, **eight, **pair, "block_b": 152, "x_stages": 6}),
        Trial(
            {"B": 70, "H": 1000, "O": 17000}, dtype, {**wide, **eight, "block_b": 72, "num_stages": 9, "x_stages": 8}
        ),
        Trial(
            {"B": 300, "H": 1000, "O": 264},
            dtype,
            {**ping_pong, **eight, **pair, "block_b": 152, "num_stages": 8, "x_stages": 6},
        ),
        Trial({"B": 59, "H": 72, "O": 64}, dtype, {**ping_pong, "num_warps": 8}),
        Trial({"B": 440, "H": 1096, "O": 200}, dtype, {**ping_pong, **eight, **pair, "block_b": 224, "x_stages": 6}),
        # Few rows, which each CTA squares for itself: more steps than stages, shared stages or separate, ragged rows.
        Trial({"B": 29, "H": 3000, "O": 200}, dtype, {**few, **eight, "block_b": 32, "num_stages": 17, "x_stages": 0}),
        Trial({"B": 13, "H": 4104, "O": 72}, dtype, {**few, "block_b": 16, "num_stages": 8, "x_stages": 4, "pdl": 0}),
        Trial(
            {"B": 21, "H": 2000, "O": 136}, dtype, {**few, "block_b": 24, "split_k": 1, "num_stages": 5, "x_stages": 0}
        ),
        # Rows normalised first: one row, fewer steps than stages, ragged edges, clusters, split-K, stream-K, more tiles
        # than SMs, rows that do not fit into registers.
        Trial({"B": 1, "H": 8, "O": 8}, dtype, normed),
        Trial({"B": 123, "H": 1000, "O": 328}, dtype, normed),
        Trial({"B": 59, "H": 1000, "O": 328}, dtype, {**normed, "block_b": 64, "num_warps": 4, "pdl": 0}),
        Trial({"B": 250, "H": 2000, "O": 328}, dtype, {**normed, "split_k": 2}),
        Trial({"B": 190, "H": 4104, "O": 1160}, dtype, {**normed, "block_b": 192, "num_warps": 12, "num_stages": 4}),
        Trial(
            {"B": 500, "H": 1096, "O": 4104}, dtype, {**normed, **pair, "block_o": 256, "num_stages": 4, "stream_k": 1}
        ),
        Trial(
            {"B": 300, "H": 520, "O": 1000}, dtype, {**normed, **pair, "block_o": 192, "cluster_n": 2, "num_stages": 4}
        ),
        Trial({"B": 2100, "H": 264, "O": 4104}, dtype, {**normed, "block_o": 256, "num_stages": 4}),
        Trial({"B": 70, "H": 9000, "O": 520}, dtype, {**normed, "block_b": 64, "num_warps": 4, **pair}),
        Trial({"B": 70, "H": 9000, "O": 520}, dtype, {**normed, "block_b": 192, "num_warps": 12, "num_stages": 4}),
        Trial({"B": 59, "H": 1000, "O": 328}, dtype, {**swapped, "block_b": 64, "block_o": 64, "num_warps": 4}),
        Trial({"B": 97, "H": 8200, "O": 264}, dtype, {**swapped, "block_b": 104, "pdl": 0}),
        Trial({"B": 300, "H": 1032, "O": 1160}, dtype, {**swapped, **pair, "block_b": 104}),
        Trial({"B": 200, "H": 520, "O": 264}, dtype, {**swapped, "block_b": 96, "cluster_n": 2}),
        Trial({"B": 250, "H": 2000, "O": 328}, dtype, {**swapped, "block_b": 256, "split_k": 2, "num_stages": 4}),
        Trial({"B": 256, "H": 4104, "O": 5128}, dtype, {**swapped, **pair, "cluster_n": 2, "stream_k": 1}),
        Trial(
            {"B": 65, "H": 104, "O": 64}, dtype, {**swapped, "block_b": 80, "block_o": 64, "num_warps": 4}, scale=256.0
        ),
        Trial({"B": 65, "H": 200, "O": 128}, dtype, normed, scale=2.0**-10),
        # Few rows to a tile.
        Trial({"B": 1, "H": 8, "O": 8}, dtype, {**short, "block_b": 8}),
        Trial({"B": 4, "H": 4104, "O": 520}, dtype, {**short, "block_b": 8, "block_o": 64, "num_warps": 4}),
        Trial({"B": 13, "H": 2000, "O": 136}, dtype, {**short, "block_b": 16, "cluster_n": 2}),
        Trial({"B": 29, "H": 20008, "O": 200}, dtype, {**short, "split_k": 2}),
        # Results leave through the stages; five warpgroups.
        Trial({"B": 250, "H": 2000, "O": 1032}, dtype, {**swapped, "num_stages": 7}),
        Trial(
            {"B": 139, "H": 1000, "O": 4104},
            dtype,
            {**swapped, "block_b": 72, "block_o": 64, "num_warps": 4, "num_stages": 13},
        ),
        Trial(
            {"B": 90, "H": 1032, "O": 2568},
            dtype,
            {**short, "block_b": 96, "block_o": 320, "num_warps": 20, "num_stages": 4},
        ),
        # Four CTAs side by side; three warpgroups.
        Trial({"B": 99, "H": 1000, "O": 520}, dtype, {**short, "block_b": 104, "cluster_n": 4, "num_stages": 6}),
        Trial(
            {"B": 130, "H": 1032, "O": 1160},
            dtype,
            {**short, "block_b": 72, "block_o": 192, "num_warps": 12, "num_stages": 5},
        ),
        Trial(
            {"B": 45, "H": 1000, "O": 10008},
            dtype,
            {**short, "block_b": 48, "block_o": 64, "num_warps": 4, "stream_k": 1},
        ),
        Trial({"B": 59, "H": 1000, "O": 328}, dtype, {**short, "swap_ab": 0, "block_b": 64, "num_warps": 4, "pdl": 0}),
        Trial({"B": 700, "H": 2120, "O": 264}, dtype, {**short, **pair, "swap_ab": 0, "block_b": 128, "num_stages": 5}),
        Trial({"B": 65, "H": 104, "O": 64}, dtype, {**short, "block_b": 80, "num_stages": 7}, scale=256.0),
        *_unaligned_trials(dtype, normed, swapped),
    )


def _unaligned_trials(dtype: str, normed: dict[str, Any], swapped: dict[str, Any]) -> tuple[Trial, ...]:
    """Return trials whose rows of x, or of the weights, or both are unaligned: copies, few rows, classes of rows."""
    few = {
        **normed, "variant": "normed_few_rows", "block_b": 8, "block_o": 64, "num_warps": 8, "num_stages": 3, "tma": 0,
    }  # fmt: skip
    wide = {**normed, "variant": "normed_residues", "block_b": 128, "block_o": 128, "num_stages": 2}
    narrow = {**wide, "block_o": 64, "num_warps": 4}
    divided = {**wide, "variant": "normed_split_k", "block_b": 64, "split_k": 3, "num_stages": 3}
    return (
        Trial({"B": 123, "H": 1001, "O": 331}, dtype, normed),
        Trial({"B": 70, "H": 9001, "O": 520}, dtype, {**normed, "block_b": 64, "num_warps": 4}),
        Trial({"B": 59, "H": 1003, "O": 328}, dtype, {**swapped, "block_b": 64, "block_o": 64, "num_warps": 4}),
        Trial({"B": 300, "H": 1032, "O": 1158}, dtype, {**swapped, "cluster_m": 2, "block_b": 104, "pdl": 0}),
        Trial({"B": 1, "H": 1, "O": 1}, dtype, few),
        Trial({"B": 5, "H": 131, "O": 70}, dtype, {**few, "pdl": 0}),
        Trial({"B": 57, "H": 777, "O": 1003}, dtype, {**few, "block_b": 64, "split_k": 2, "num_stages": 4}),
        Trial({"B": 8, "H": 4096, "O": 67}, dtype, {**few, "split_k": 8}),
        Trial({"B": 1, "H": 8, "O": 3}, dtype, {**narrow, "block_b": 8}),
        Trial({"B": 13, "H": 200, "O": 131}, dtype, {**wide, "block_b": 16, "split_k": 2, "pdl": 0}),
        Trial({"B": 64, "H": 398, "O": 68}, dtype, {**wide, "block_b": 64, "split_k": 4}),
        Trial({"B": 128, "H": 1000, "O": 190}, dtype, {**wide, "split_k": 2}),
        Trial({"B": 130, "H": 513, "O": 70}, dtype, {**narrow, "block_b": 48, "split_k": 3, "num_stages": 3}),
        Trial({"B": 29, "H": 20001, "O": 77}, dtype, {**narrow, "block_b": 32, "split_k": 16, "num_stages": 4}),
        Trial({"B": 60, "H": 1001, "O": 200}, dtype, divided),
        Trial({"B": 123, "H": 2000, "O": 328}, dtype, {**divided, "split_k": 5, "pdl": 0}),
        Trial({"B": 65, "H": 103, "O": 67}, dtype, {**wide, "block_b": 72}, scale=256.0),
        Trial({"B": 65, "H": 203, "O": 129}, dtype, {**few, "block_b": 72}, scale=2.0**-10),
    )


def matmul_trials(dtype: str, *, tma: bool) -> tuple[Trial, ...]:
    """Return trials of matmul; without tma also those whose rows have an odd size."""
    whole = {**_SQUARE, "subtiles": 1, "tma": 0}
    trials = [
        Trial({"M": 1, "N": 1, "K": 1}, dtype, whole),
        Trial({"M": 67, "N": 131, "K": 97}, dtype, whole),
        Trial({"M": 192, "N": 128, "K": 64}, dtype, whole),
        Trial({"M": 65, "N": 67, "K": 1031}, dtype, whole),
    ]
    if tma:
        trials += [
            Trial({"M": 67, "N": 136, "K": 104}, dtype, {**whole, "tma": 1}),
            Trial({"M": 67, "N": 136, "K": 104}, dtype, {**whole, "tma": 1, "subtiles": 2}),
        ]
    return tuple(trials)


def pipelined_matmul_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of matmul's pipelined kernel, which only sm_90 runs."""
    one = {
        "block_m": 128, "block_n": 128, "block_k": 64, "group_m": 2, "subtiles": 1, "programs": 3, "num_warps": 4,
        "num_stages": 3, "tma": 1, "variant": "warp_specialised", **_NO_CUDA,
    }  # fmt: skip
    return (
        Trial({"M": 1, "N": 8, "K": 8}, dtype, one),
        Trial({"M": 67, "N": 136, "K": 104}, dtype, one),
        Trial({"M": 700, "N": 264, "K": 520}, dtype, one),
        Trial({"M": 700, "N": 520, "K": 264}, dtype, {**one, "block_n": 256, "subtiles": 2}),
        # Rows that TMA reads copies of, and of C rows that it cannot store.
        Trial({"M": 67, "N": 131, "K": 97}, dtype, one),
        Trial({"M": 700, "N": 522, "K": 263}, dtype, {**one, "block_n": 256, "subtiles": 2}),
    )


def cluster_matmul_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of matmul's CUDA C++, which only sm_90 runs: ragged edges, whole tiles in turn and divided ones."""
    whole = {
        "block_m": 128, "block_n": 256, "block_k": 64, "group_m": 8, "subtiles": 1, "programs": 132, "num_warps": 8,
        "num_stages": 4, "tma": 1, "variant": "cuda", **_NO_CUDA, "cluster_m": 2, "pdl": 1,
    }  # fmt: skip
    narrow = {**whole, "block_n": 128, "num_stages": 6}
    stream, narrow_stream = {**whole, "stream_k": 1}, {**narrow, "stream_k": 1}
    # Few programs take many tiles each, and of the last ones a tile and a bit; many share a tile between three or four.
    few = {"programs": 6, "group_m": 2, "num_stages": 2}
    tall = {**whole, "block_m": 192, "block_n": 192, "num_warps": 12, "num_stages": 3}
    low = {**whole, "block_m": 64, "num_warps": 4, "num_stages": 5}
    # Two programs divide the steps of a tile between them.
    halves = {**whole, "block_n": 192, "num_stages": 5, "split_k": 2}
    return (
        Trial({"M": 1, "N": 8, "K": 8}, dtype, whole),
        Trial({"M": 67, "N": 136, "K": 104}, dtype, narrow),
        Trial({"M": 700, "N": 264, "K": 520}, dtype, {**whole, **few}),
        Trial({"M": 1000, "N": 1512, "K": 2056}, dtype, stream),
        Trial({"M": 1, "N": 8, "K": 8}, dtype, stream),
        Trial({"M": 300, "N": 520, "K": 3000}, dtype, narrow_stream),
        Trial({"M": 2100, "N": 1304, "K": 200}, dtype, {**stream, **few}),
        Trial({"M": 513, "N": 776, "K": 1032}, dtype, {**narrow_stream, **few}),
        Trial({"M": 2100, "N": 1304, "K": 200}, dtype, {**narrow, **few, "pdl": 0}),
        # An odd number of boxes of 64 columns, of a pair and of one program; one tile after the other.
        Trial({"M": 2100, "N": 1304, "K": 200}, dtype, {**whole, **few, "block_n": 192}),
        Trial({"M": 700, "N": 264, "K": 520}, dtype, {**tall, **few, "cluster_m": 1}),
        Trial({"M": 2100, "N": 1304, "K": 200}, dtype, {**tall, **few, "stream_k": 1}),
        Trial({"M": 577, "N": 776, "K": 1032}, dtype, {**tall, "stream_k": 1, "cluster_m": 1}),
        Trial({"M": 300, "N": 520, "K": 3000}, dtype, {**low, "stream_k": 1}),
        Trial({"M": 2100, "N": 1304, "K": 200}, dtype, {**low, **few, "cluster_m": 1}),
        # Clusters of two by two, of four and of five, the last with boxes that do not divide.
        Trial({"M": 2100, "N": 1304, "K": 200}, dtype, {**whole, **few, "programs": 8, "cluster_n": 2}),
        Trial({"M": 577, "N": 776, "K": 1032}, dtype, {**narrow_stream, "cluster_n": 2, "programs": 120}),
        Trial({"M": 700, "N": 264, "K": 520}, dtype, {**tall, "cluster_n": 2}),
        Trial({"M": 1000, "N": 1512, "K": 2056}, dtype, {**low, "cluster_m": 4}),
        Trial({"M": 2100, "N": 1304, "K": 200}, dtype, {**low, **few, "block_n": 192, "programs": 8, "cluster_m": 4}),
        Trial({"M": 300, "N": 1304, "K": 520}, dtype, {**low, "cluster_m": 5}),
        Trial({"M": 391, "N": 200, "K": 584}, dtype, {**low, "block_n": 192, "cluster_m": 1, "cluster_n": 2}),
        Trial({"M": 577, "N": 776, "K": 1032}, dtype, {**halves, "cluster_n": 2, "pdl": 0}),
        # One step: the first of two programs has none.
        Trial({"M": 1, "N": 8, "K": 8}, dtype, halves),
        Trial({"M": 1000, "N": 1512, "K": 2056}, dtype, {**halves, "cluster_m": 1}),
        Trial({"M": 700, "N": 264, "K": 520}, dtype, {**halves, "block_n": 256, "num_stages": 4, "pdl": 0}),
        Trial({"M": 577, "N": 776, "K": 1032}, dtype, {**tall, "num_stages": 4, "split_k": 2, "cluster_m": 1}),
        Trial({"M": 391, "N": 200, "K": 584}, dtype, {**low, "block_n": 64, "num_stages": 2, "split_k": 2}),
        *_unaligned(dtype, whole, {**tall, "stream_k": 1}, {**narrow, **few, "pdl": 0}, halves),
    )


def _unaligned(dtype: str, *configs: dict[str, Any]) -> tuple[Trial, ...]:
    """Return trials with rows that TMA reads copies of, of A, of B or of both, and of C rows that it cannot store."""
    shapes = ((1, 1, 1), (577, 777, 1031), (700, 264, 517), (391, 202, 584))
    return tuple(
        Trial({"M": m, "N": n, "K": k}, dtype, config) for (m, n, k), config in zip(shapes, configs, strict=True)
    )


def swapped_matmul_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of the same with A and B swapped: rows of tiles in eights, in every cluster."""
    two = {
        "block_m": 160, "block_n": 128, "block_k": 64, "group_m": 8, "subtiles": 1, "programs": 132, "num_warps": 8,
        "num_stages": 4, "tma": 1, "variant": "cuda", **_NO_CUDA, "swap_ab": 1, "pdl": 1,
    }  # fmt: skip
    few = {"programs": 6, "group_m": 2, "num_stages": 2}
    one, three = {**two, "block_n": 64, "num_warps": 4}, {**two, "block_n": 192, "num_warps": 12, "num_stages": 3}
    return (
        Trial({"M": 1, "N": 8, "K": 8}, dtype, {**two, "block_m": 8}),
        Trial({"M": 17, "N": 72, "K": 136}, dtype, {**one, "block_m": 24}),
        # The last tile begins 16 rows before its own; 8 rows before; pieces of 64 rows that are not whole.
        Trial({"M": 777, "N": 520, "K": 1000}, dtype, two),
        Trial({"M": 411, "N": 264, "K": 200}, dtype, {**two, "block_m": 40, "pdl": 0}),
        Trial({"M": 300, "N": 200, "K": 104}, dtype, {**three, "block_m": 152}),
        Trial({"M": 700, "N": 776, "K": 520}, dtype, {**two, "block_m": 256}),
        # One tile after the other.
        Trial({"M": 2100, "N": 1304, "K": 200}, dtype, {**two, **few}),
        Trial({"M": 777, "N": 1304, "K": 200}, dtype, {**one, **few, "block_m": 256, "cluster_m": 2}),
        Trial({"M": 1000, "N": 776, "K": 136}, dtype, {**three, **few, "block_m": 200, "pdl": 0}),
        # Clusters: one above the other, side by side, both; boxes that do not divide.
        Trial({"M": 300, "N": 520, "K": 3000}, dtype, {**two, "block_m": 152, "cluster_m": 2}),
        Trial({"M": 300, "N": 520, "K": 520}, dtype, {**three, "block_m": 104, "cluster_m": 3}),
        Trial({"M": 391, "N": 200, "K": 584}, dtype, {**one, "block_m": 80, "cluster_n": 2}),
        # Shares of 44 rows, no multiple of the 8 of a swizzle.
        Trial({"M": 171, "N": 200, "K": 136}, dtype, {**one, "block_m": 88, "cluster_n": 2}),
        Trial({"M": 700, "N": 264, "K": 520}, dtype, {**three, "block_m": 192, "cluster_m": 2, "cluster_n": 2}),
        Trial({"M": 300, "N": 1304, "K": 520}, dtype, {**two, "block_m": 64, "cluster_m": 5}),
        Trial({"M": 2100, "N": 1304, "K": 200}, dtype, {**two, **few, "programs": 8, "cluster_m": 2, "cluster_n": 2}),
        Trial({"M": 1000, "N": 1512, "K": 2056}, dtype, {**one, "block_m": 128, "cluster_m": 4}),
        # Four side by side, which load shares of 2, 26 and 38 rows; one tile after the other.
        Trial({"M": 5, "N": 200, "K": 136}, dtype, {**one, "block_m": 8, "cluster_n": 4}),
        Trial({"M": 203, "N": 520, "K": 1000}, dtype, {**one, "block_m": 104, "cluster_n": 4, "pdl": 0}),
        Trial({"M": 300, "N": 1304, "K": 520}, dtype, {**three, "block_m": 152, "cluster_m": 2, "cluster_n": 4}),
        Trial(
            {"M": 2100, "N": 1304, "K": 200},
            dtype,
            {**one, **few, "programs": 16, "block_m": 200, "cluster_m": 2, "cluster_n": 4},
        ),
        # Results that leave through the ring, also as rows that TMA cannot store; four and five warpgroups.
        Trial({"M": 203, "N": 3000, "K": 1000}, dtype, {**three, "block_m": 104, "num_stages": 6}),
        Trial({"M": 391, "N": 202, "K": 1000}, dtype, {**three, "block_m": 104, "num_stages": 6, "pdl": 0}),
        Trial({"M": 300, "N": 520, "K": 1000}, dtype, {**two, "num_stages": 6, "cluster_m": 2, "cluster_n": 4}),
        Trial({"M": 177, "N": 1000, "K": 1000}, dtype, {**two, "block_n": 256, "num_warps": 16, "block_m": 88}),
        Trial({"M": 90, "N": 4104, "K": 520}, dtype, {**two, "block_n": 320, "num_warps": 20, "block_m": 96}),
        Trial(
            {"M": 177, "N": 1000, "K": 136},
            dtype,
            {**two, "block_n": 256, "num_warps": 16, "block_m": 96, "num_stages": 2, "cluster_m": 2, "cluster_n": 2},
        ),
        # Tiles divided among all clusters, and between two programs that end half of the rows each.
        Trial({"M": 1, "N": 8, "K": 8}, dtype, {**two, "stream_k": 1}),
        Trial({"M": 2100, "N": 1304, "K": 200}, dtype, {**two, **few, "stream_k": 1, "cluster_m": 2}),
        Trial({"M": 513, "N": 776, "K": 1032}, dtype, {**three, "block_m": 200, "stream_k": 1, "pdl": 0}),
        Trial({"M": 1, "N": 8, "K": 8}, dtype, {**two, "block_m": 16, "split_k": 2}),
        *_unaligned(dtype, {**two, "block_m": 8}, two, {**one, "block_m": 80, "cluster_n": 2}, {**two, "split_k": 2}),
        Trial({"M": 300, "N": 1304, "K": 1032}, dtype, {**two, "split_k": 2}),
        Trial({"M": 777, "N": 520, "K": 1000}, dtype, {**two, "block_m": 208, "split_k": 2, "cluster_m": 2}),
        Trial(
            {"M": 300, "N": 776, "K": 520},
            dtype,
            {**three, "block_m": 112, "split_k": 2, "cluster_m": 2, "cluster_n": 2},
        ),
    )


def all_cluster_matmul_trials(dtype: str) -> tuple[Trial, ...]:
    """Return the trials of matmul's CUDA C++, without and with swap-AB."""
    return (*cluster_matmul_trials(dtype), *swapped_matmul_trials(dtype))


CLUSTER_TRIALS = {
    "rmsnorm_matmul": cluster_trials,
    "matmul": all_cluster_matmul_trials,
    "mla_decode": mla_cluster_trials,
    "flash_attention": flash_cuda_trials,
    "flash_attention_causal": flash_cuda_trials,
}
PIPELINED_TRIALS = {"rmsnorm_matmul": pipelined_trials, "matmul": pipelined_matmul_trials}
TRIALS = {"rmsnorm_matmul": rmsnorm_matmul_trials, "matmul": matmul_trials}
