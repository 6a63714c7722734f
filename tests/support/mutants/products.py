"""Lists small trials of the products with a bias, in fp8 and in int8, and their wrong twins."""

from __future__ import annotations

from typing import Any

from mutants.checker import Trial
from mutants.kernels import Mutant, promoted_mutants
from mutants.trials import all_cluster_matmul_trials

_SQUARE = {"block_m": 64, "block_n": 64, "block_k": 32, "group_m": 2, "subtiles": 1, "programs": 3, "num_warps": 4,
           "num_stages": 2, "tma": 0, "variant": "generic"}  # fmt: skip
_SHAPES = (
    {"M": 1, "N": 1, "K": 1},
    {"M": 67, "N": 131, "K": 97},
    {"M": 192, "N": 128, "K": 64},
    {"M": 65, "N": 67, "K": 1031},
)
_EVEN = {"M": 67, "N": 144, "K": 112}
# The keys of CUDA C++ that matmul_bias_relu and matmul_fp8 have, as their other variants have them.
_NO_CLUSTER = {"cluster_m": 1, "cluster_n": 1, "split_k": 1, "stream_k": 0, "pdl": 0, "swap_ab": 0}


def bias_relu_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of matmul_bias_relu: one element, primes, whole tiles, a long sum, and rows for TMA."""
    square = {**_SQUARE, **_NO_CLUSTER}
    plain = tuple(Trial(shape, dtype, square) for shape in _SHAPES)
    return (
        *plain,
        Trial(_EVEN, dtype, {**square, "tma": 1}),
        Trial(_EVEN, dtype, {**square, "tma": 1, "subtiles": 2}),
    )


def fp8_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of matmul_fp8, promoting or not, and with rows for TMA."""
    square = {**_SQUARE, **_NO_CLUSTER}
    promoting = {**square, "promote": 1}
    plain = tuple(Trial(shape, dtype, promoting) for shape in _SHAPES)
    # On a scale, for an id of its own: this one does not promote.
    fast = Trial({"M": 66, "N": 131, "K": 97}, dtype, {**square, "promote": 0})
    return (*plain, fast, Trial(_EVEN, dtype, {**promoting, "tma": 1}))


def int8_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of matmul_int8, also with rows for TMA."""
    square = {**_SQUARE, **_NO_CLUSTER}
    plain = tuple(Trial(shape, dtype, square) for shape in _SHAPES)
    return (*plain, Trial(_EVEN, dtype, {**square, "tma": 1}))


def _pipelined(dtype: str, config: dict[str, Any]) -> tuple[Trial, ...]:
    shapes = (
        {"M": 1, "N": 16, "K": 16}, _EVEN, {"M": 700, "N": 272, "K": 528}, {"M": 300, "N": 528, "K": 272},
        {"M": 67, "N": 131, "K": 97}, {"M": 300, "N": 527, "K": 272}, {"M": 300, "N": 528, "K": 271},
    )  # fmt: skip
    return tuple(Trial(shape, dtype, config) for shape in shapes)


_WIDE = {"block_m": 128, "block_n": 128, "block_k": 64, "group_m": 2, "subtiles": 2, "programs": 3, "num_warps": 4,
         "num_stages": 3, "tma": 1, "variant": "warp_specialised"}  # fmt: skip


def pipelined_bias_relu_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of matmul_bias_relu's pipelined kernel, which only sm_90 runs."""
    wide = {**_WIDE, **_NO_CLUSTER}
    return (
        *_pipelined(dtype, wide),
        Trial({"M": 200, "N": 520, "K": 264}, dtype, {**wide, "block_n": 256}),
        *all_cluster_matmul_trials(dtype),
    )


def pipelined_fp8_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of matmul_fp8's pipelined kernel: steps of 128 and 256, promoting and not."""
    wide = {**_WIDE, **_NO_CLUSTER}
    promoting = {**wide, "block_k": 128, "promote": 1}
    fast = {**wide, "block_k": 128, "block_n": 256, "subtiles": 4, "promote": 0}
    return (
        *_pipelined(dtype, promoting),
        Trial({"M": 200, "N": 528, "K": 1040}, dtype, {**promoting, "block_k": 256}),
        Trial({"M": 201, "N": 528, "K": 272}, dtype, fast),
        *cluster_fp8_trials(dtype),
    )


def cluster_fp8_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of matmul_fp8's CUDA C++: ragged edges, odd and even numbers of steps, whole and divided tiles."""
    whole = {
        "block_m": 128, "block_n": 128, "block_k": 128, "group_m": 8, "subtiles": 1, "programs": 132, "num_warps": 8,
        "num_stages": 6, "promote": 1, "tma": 1, "variant": "cuda", **_NO_CLUSTER, "cluster_m": 2, "pdl": 1,
    }  # fmt: skip
    few = {"programs": 6, "group_m": 2, "num_stages": 2}
    return (
        Trial({"M": 1, "N": 16, "K": 16}, dtype, whole),
        Trial({"M": 700, "N": 272, "K": 528}, dtype, {**whole, **few, "pdl": 0}),
        Trial({"M": 1000, "N": 1512, "K": 2064}, dtype, {**whole, "stream_k": 1}),
        Trial({"M": 513, "N": 784, "K": 1040}, dtype, {**whole, **few, "stream_k": 1}),
        Trial({"M": 1, "N": 16, "K": 16}, dtype, {**whole, "stream_k": 1}),
        Trial({"M": 700, "N": 271, "K": 529}, dtype, whole),
        Trial({"M": 513, "N": 784, "K": 1043}, dtype, {**whole, **few, "stream_k": 1}),
        # Even tiles of other sizes; one step at a time; clusters of one, of two by two and of four.
        Trial({"M": 577, "N": 784, "K": 1040}, dtype, {**whole, "cluster_m": 1}),
        Trial({"M": 391, "N": 208, "K": 656}, dtype, {**whole, "block_n": 192, "num_stages": 4, "pdl": 0}),
        Trial({"M": 577, "N": 784, "K": 912}, dtype, {**whole, "block_m": 192, "num_warps": 12, "num_stages": 4}),
        Trial({"M": 2100, "N": 1312, "K": 272}, dtype, {**whole, **few, "programs": 8, "cluster_n": 2}),
        Trial({"M": 700, "N": 400, "K": 1040}, dtype, {**whole, "block_m": 64, "num_warps": 4, "cluster_m": 4}),
        *_swapped_fp8_trials(dtype, whole, few),
    )


def _swapped_fp8_trials(dtype: str, whole: dict[str, Any], few: dict[str, int]) -> tuple[Trial, ...]:
    """Return trials with A and B swapped: two steps and one at a time, every cluster, halves, results in the ring."""
    two = {**whole, "swap_ab": 1, "block_m": 72, "num_stages": 6, "cluster_m": 1}
    one, three = {**two, "block_n": 64, "num_warps": 4}, {**two, "block_n": 192, "num_warps": 12, "num_stages": 5}
    wide = {**two, "block_n": 256, "num_warps": 16, "num_stages": 4}
    return (
        Trial({"M": 1, "N": 16, "K": 16}, dtype, {**two, "block_m": 8}),
        Trial({"M": 17, "N": 80, "K": 272}, dtype, {**one, "block_m": 24}),
        Trial({"M": 5, "N": 80, "K": 128}, dtype, {**one, "block_m": 8, "num_stages": 12}),
        Trial({"M": 777, "N": 528, "K": 1040}, dtype, {**two, "block_m": 136}),
        Trial({"M": 411, "N": 272, "K": 400}, dtype, {**two, "block_m": 40, "pdl": 0}),
        Trial({"M": 700, "N": 784, "K": 912}, dtype, {**two, "block_m": 200, "num_stages": 4}),
        Trial({"M": 300, "N": 208, "K": 656}, dtype, {**three, "block_m": 80}),
        Trial({"M": 300, "N": 208, "K": 656}, dtype, {**three, "block_m": 136}),
        Trial({"M": 177, "N": 1008, "K": 1040}, dtype, {**wide, "block_m": 48}),
        Trial({"M": 177, "N": 1008, "K": 1040}, dtype, {**wide, "block_m": 88}),
        Trial({"M": 2100, "N": 1312, "K": 272}, dtype, {**two, **few}),
        Trial({"M": 777, "N": 1312, "K": 272}, dtype, {**one, **few, "block_m": 152, "cluster_m": 2}),
        Trial({"M": 300, "N": 528, "K": 3008}, dtype, {**two, "block_m": 152, "cluster_m": 2, "num_stages": 5}),
        Trial({"M": 391, "N": 208, "K": 592}, dtype, {**one, "block_m": 80, "cluster_n": 2}),
        Trial({"M": 171, "N": 208, "K": 144}, dtype, {**one, "block_m": 88, "cluster_n": 2}),
        Trial({"M": 700, "N": 272, "K": 528}, dtype, {**three, "block_m": 128, "cluster_m": 2, "cluster_n": 2}),
        Trial({"M": 203, "N": 528, "K": 1008}, dtype, {**one, "block_m": 104, "cluster_n": 4, "pdl": 0}),
        Trial({"M": 300, "N": 1312, "K": 528}, dtype, {**three, "block_m": 80, "cluster_m": 2, "cluster_n": 4}),
        # Results that leave through the ring, also as rows that TMA cannot store.
        Trial({"M": 203, "N": 3008, "K": 1008}, dtype, {**three, "block_m": 104, "num_stages": 6}),
        Trial({"M": 391, "N": 202, "K": 1008}, dtype, {**three, "block_m": 104, "num_stages": 6, "pdl": 0}),
        # Tiles divided among all clusters, and between two programs that end half of the rows each.
        Trial({"M": 2100, "N": 1312, "K": 272}, dtype, {**two, **few, "stream_k": 1, "cluster_m": 2}),
        Trial({"M": 1, "N": 16, "K": 16}, dtype, {**two, "block_m": 16, "split_k": 2}),
        Trial({"M": 300, "N": 1312, "K": 1040}, dtype, {**two, "block_m": 160, "num_stages": 5, "split_k": 2}),
        Trial({"M": 777, "N": 527, "K": 1001}, dtype, {**two, "block_m": 112, "split_k": 2, "cluster_m": 2}),
    )  # fmt: skip


def pipelined_int8_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of matmul_int8's pipelined kernel, with one and with two instructions a row of a tile."""
    narrow = {**_WIDE, **_NO_CLUSTER, "block_k": 128}
    wide = {**narrow, "block_n": 256, "subtiles": 4}
    wide_trials = (Trial({"M": 200, "N": n, "K": 1040}, dtype, wide) for n in (528, 527))
    return (*_pipelined(dtype, narrow), *wide_trials, *cluster_int8_trials(dtype))


def cluster_int8_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of matmul_int8's CUDA C++: the swapped ones of matmul_fp8, their rows in sixteens, and more."""
    trials = []
    for trial in cluster_fp8_trials(dtype):
        config = {key: value for key, value in trial.config.items() if key != "promote"}
        if config["swap_ab"]:
            rows = 16 * (-(-config["block_m"] // 16))
            fewer = int(rows == 112 and config["num_stages"] == 6)
            trials.append(
                Trial(trial.shape, dtype, {**config, "block_m": rows, "num_stages": config["num_stages"] - fewer})
            )
    config = {**trials[0].config, "num_stages": 4}
    return (
        *trials,
        Trial({"M": 700, "N": 527, "K": 1040}, dtype, {**config, "block_m": 256}),
        Trial({"M": 1, "N": 16, "K": 16}, dtype, {**config, "block_m": 16, "stream_k": 1}),
        Trial({"M": 67, "N": 131, "K": 97}, dtype, {**config, "block_m": 80}),
    )


TRIALS = {"matmul_bias_relu": bias_relu_trials, "matmul_fp8": fp8_trials, "matmul_int8": int8_trials}
PIPELINED_TRIALS = {
    "matmul_bias_relu": pipelined_bias_relu_trials,
    "matmul_fp8": pipelined_fp8_trials,
    "matmul_int8": pipelined_int8_trials,
}

# The loops are shared; a kernel's own file has its epilogue.
_DEVICE = "common/gemm_device.py"
_SUM = 'acc = tl.dot(a_tile, b_tile, acc, input_precision="ieee", out_dtype=ACC)'
_RECTIFIED = "return tl.where(total < 0.0, 0.0, total)"
_LOST_STEP = ("for step in tl.range(tiles_k):", "for step in tl.range(tiles_k - 1):", _DEVICE)
_UNSCALED = ("return acc.to(tl.float32) * scale", "return acc.to(tl.float32) + 0.0 * scale", _DEVICE)


def _of_both(name: str) -> tuple[Mutant, ...]:
    """Return the wrong twins that the two eight-bit kernels share."""
    return (
        Mutant(name, "dropped_inner_masks", "(inner < n_inner)[None, :],", "((inner < n_inner)[None, :] | True),",
               _DEVICE),
        Mutant(name, "dropped_column_mask", "(cols < n_cols)[None, :]", "((cols < n_cols)[None, :] | True)", _DEVICE),
        Mutant(name, "short_last_group", "group_rows = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)",
               "group_rows = GROUP_M", _DEVICE),
        Mutant(name, "lost_last_step", *_LOST_STEP),
        Mutant(name, "columns_of_the_first_tile", "_load_rows(b, cols, inner,", "_load_rows(b, cols - col, inner,",
               _DEVICE),
        Mutant(name, "unscaled_epilogue", *_UNSCALED),
    )  # fmt: skip


MUTANTS: tuple[Mutant, ...] = (
    Mutant("matmul_bias_relu", "dropped_bias", "total = acc + bias", "total = acc"),
    Mutant("matmul_bias_relu", "relu_before_bias", _RECTIFIED, "return tl.where(acc < 0.0, 0.0, acc) + bias"),
    Mutant("matmul_bias_relu", "dropped_relu", _RECTIFIED, "return total"),
    Mutant("matmul_bias_relu", "bias_of_the_first_tile", "tl.load(bias + cols,", "tl.load(bias + cols - col,", _DEVICE),
    Mutant("matmul_bias_relu", "bias_of_the_row", "added.to(tl.float32)[None, :]",
           "added.to(tl.float32)[:, None]", _DEVICE),
    Mutant("matmul_bias_relu", "lost_last_step", *_LOST_STEP),
    *_of_both("matmul_fp8"),
    Mutant("matmul_fp8", "sum_of_the_last_step_alone", "acc += tl.dot(", "acc = tl.dot(", _DEVICE),
    *_of_both("matmul_int8"),
    Mutant("matmul_int8", "sum_in_16_bits", _SUM, f"{_SUM}.to(tl.int16).to(tl.int32)", _DEVICE),
)  # fmt: skip

# Of the Gluon kernels, which the interpreter cannot run.
_BIAS_CUDA, _FP8_CUDA = "matmul_bias_relu/cluster.cu", "matmul_fp8/cluster.cu"
_INT8_CUDA = "matmul_int8/cluster.cu"
_GEMM, _GEMM_KERNEL = "common/cluster_gemm.cuh", "common/cluster_gemm_kernel.cuh"
# Of the result of fp8 products that is changed over.
_FIRST_PAIR = "{}(acc[k], acc[k + 1]), PACKED(acc[k + 2], acc[k + 3]),\n                        PACKED(acc[l]"
PIPELINED_MUTANTS: tuple[Mutant, ...] = (
    Mutant("matmul_bias_relu", "pipelined_dropped_bias", "added = loaded.to(gl.float32)[None, :]",
           "added = 0.0 * loaded.to(gl.float32)[None, :]", _DEVICE),
    Mutant("matmul_bias_relu", "pipelined_relu_before_bias", _RECTIFIED,
           "return tl.where(acc < 0.0, 0.0, acc) + bias"),
    Mutant("matmul_bias_relu", "pipelined_bias_of_the_first_tile", "cols = col + gl.arange",
           "cols = 0 * col + gl.arange", _DEVICE),
    Mutant("matmul_bias_relu", "cluster_dropped_bias",
           "at + DIRECT < n_cols ? *(const u32*)(bias + at) : 0u", "0u", _BIAS_CUDA),
    Mutant("matmul_bias_relu", "cluster_bias_of_the_first_tile", "(const u32*)(bias + at)",
           "(const u32*)(bias + at - col)", _BIAS_CUDA),
    Mutant("matmul_bias_relu", "cluster_relu_before_bias", "one = rectified(one + (", "one = (max(one, 0.f) + (",
           _BIAS_CUDA),
    Mutant("matmul_bias_relu", "cluster_changed_over_bias_of_the_column_before", "two[i / 2 % 2]", "two[i % 2]",
           _BIAS_CUDA),
    Mutant("matmul_bias_relu", "cluster_changed_over_bias_of_the_first_warp", "EPILOGUE(acc, at + mine,",
           "EPILOGUE(acc, at,", _GEMM_KERNEL),
    Mutant("matmul_fp8", "pipelined_unscaled_epilogue", *_UNSCALED),
    Mutant("matmul_fp8", "pipelined_sums_promoted_twice", "use_acc=False", "use_acc=step > 0", _DEVICE),
    Mutant("matmul_fp8", "cluster_unscaled_epilogue", "DEVICE u32 packed_scaled(float lo, float hi, float scale) {",
           "DEVICE u32 packed_scaled(float lo, float hi, float scale) {\n    scale = 1.f;", _FP8_CUDA),
    *promoted_mutants("cluster"),
    Mutant("matmul_fp8", "cluster_changed_over_unscaled", _FIRST_PAIR.format("PACKED"), _FIRST_PAIR.format("packed"),
           _GEMM_KERNEL),
    *(
        Mutant("matmul_fp8", f"cluster_{name}_tile_lost_its_early_columns",
               f"own_col < at + 64 && at < n_cols) store(&c_map, at, {row},",
               f"own_col <= at && at < n_cols) store(&c_map, at, {row},", _GEMM_KERNEL)
        for name, row in (("swapped", "to"), ("plain", "row"))
    ),
    Mutant("matmul_fp8", "cluster_forgets_the_other_parts", "acc[4 * k] += sum_of<Sum>(v.x);", "",
           _GEMM),
    Mutant("matmul_int8", "pipelined_unscaled_epilogue", *_UNSCALED),
    Mutant("matmul_int8", "cluster_unscaled", "((float)(sum) * scale)", "((float)(sum))", _INT8_CUDA),
    Mutant("matmul_int8", "cluster_columns_of_the_first_eight", "first_col + i / 2 % 2 * 8", "first_col", _GEMM_KERNEL),
    Mutant("matmul_int8", "cluster_rows_of_the_first_eight", "first_row + i / 4 * 8 + i % 2", "first_row + i % 2",
           _GEMM_KERNEL),
    Mutant("matmul_int8", "cluster_other_part_forgotten", "own[i] + sum_of<Sum>(r[i])", "own[i]", _GEMM),
    Mutant("matmul_int8", "pipelined_third_part_over_the_second", "row + TOP, col + 2 * COLS", "row + TOP, col + COLS",
           _DEVICE),
)  # fmt: skip
