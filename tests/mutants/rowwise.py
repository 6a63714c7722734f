"""Lists small trials of the rowwise kernels, for the interpreter and the GPU, and their wrong twins."""

from __future__ import annotations

from mutants.checker import Trial
from mutants.kernels import Mutant

_ALL = {"block_m": 1, "block_n": 128, "num_warps": 4, "copies": 0, "far": 0, "pipe": 0, "pdl": 0}
# The keys that a kernel's configuration has not.
_WITHOUT = {"rmsnorm": ("pipe",), "layernorm": (), "softmax": ("copies", "far")}


def _config(kernel: str, **changes: int) -> dict[str, int]:
    return {key: value for key, value in {**_ALL, **changes}.items() if key not in _WITHOUT[kernel]}


def vector_add_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials with no, one and several whole blocks, and with a rest."""
    config = {"block": 64, "num_warps": 1, "pdl": 0}
    return tuple(Trial({"N": n}, dtype, config) for n in (1, 63, 64, 65, 257))


def _row_trials(kernel: str, dtype: str) -> tuple[Trial, ...]:
    def trial(m: int, n: int, **changes: int) -> Trial:
        return Trial({"M": m, "N": n}, dtype, _config(kernel, **changes))

    return (
        trial(1, 1, block_n=1),
        trial(37, 1, block_m=8, block_n=1),
        trial(19, 97, block_m=8),
        trial(16, 128, block_m=8),
        trial(7, 192, block_m=4, block_n=256),
        trial(7, 600, block_m=2, block_n=1024),
        # More rows than one load of all warps covers.
        trial(31, 200, block_m=16, block_n=256),
        trial(3, 160, block_n=64),
        trial(3, 168, block_n=64, pipe=1),
        # Rows that start anywhere: nine of them meet every offset. Those of 17 columns are mostly edge, and in
        # those of 71 or 79 a vector more than the block holds goes to the edge.
        trial(9, 97),
        trial(9, 131, block_n=64),
        trial(9, 17, block_n=32),
        trial(9, 71 if dtype == "fp32" else 79, block_n=64, copies=1, far=1, pipe=1),
        trial(9, 141, block_n=32, copies=1, far=1, pipe=1),
        trial(9, 99, copies=1),
    )


def _tall_trials(kernel: str, dtype: str) -> tuple[Trial, ...]:
    """Return trials of several ragged rows a program, the last of them beyond the last row."""
    return (
        Trial({"M": 9, "N": 525}, dtype, _config(kernel, block_m=2, block_n=1024)),
        Trial({"M": 11, "N": 523}, dtype, _config(kernel, block_m=4, block_n=1024, copies=1)),
        Trial({"M": 11, "N": 1021}, dtype, _config(kernel, block_m=4, block_n=1024, copies=1)),
        Trial({"M": 15, "N": 523}, dtype, _config(kernel, block_m=8, block_n=1024)),
    )


def _scaled_trials(kernel: str, dtype: str, scale: float) -> tuple[Trial, ...]:
    """Return a trial of one block and one of several, with the first input scaled."""
    return (
        Trial({"M": 2, "N": 101}, dtype, _config(kernel), scale),
        Trial({"M": 3, "N": 103}, dtype, _config(kernel, block_n=64), scale),
    )


def rmsnorm_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of rmsnorm, some whose squares exceed the largest fp16, some where eps is half of their mean."""
    scaled = (_scaled_trials("rmsnorm", dtype, scale) for scale in (256.0, 2.0**-10))
    rows = _row_trials("rmsnorm", dtype) + _tall_trials("rmsnorm", dtype)
    return rows + tuple(trial for trials in scaled for trial in trials)


def layernorm_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of layernorm, some so small that eps is half of the variance."""
    rows = _row_trials("layernorm", dtype) + _tall_trials("layernorm", dtype)
    return rows + _scaled_trials("layernorm", dtype, 2.0**-7)


def softmax_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of softmax, some whose exponential exceeds the largest fp32."""
    rows = _row_trials("softmax", dtype) + _tall_trials("softmax", dtype)
    return rows + _scaled_trials("softmax", dtype, 64.0)


TRIALS = {
    "vector_add": vector_add_trials,
    "rmsnorm": rmsnorm_trials,
    "layernorm": layernorm_trials,
    "softmax": softmax_trials,
}


def _of_rows(kernel: str, *, first: str = "start") -> tuple[Mutant, ...]:
    """Return wrong twins of what the row kernels share: the places of vectors and edges, and the second reading."""
    return (
        Mutant(kernel, "misplaced_vectors", f"({first} + VECTOR - 1) // VECTOR * VECTOR\n",
               f"{first} // VECTOR * VECTOR\n"),
        Mutant(kernel, "vectors_beyond_the_block",
               "tl.minimum((N_COLS - head) // VECTOR * VECTOR - FULL * BLOCK_N, BLOCK_N)",
               "(N_COLS - head) // VECTOR * VECTOR - FULL * BLOCK_N"),
        Mutant(kernel, "lost_last_column", "lane < head, edge_cols < N_COLS)", "lane < head, edge_cols < N_COLS - 1)"),
        Mutant(kernel, "edge_of_the_next_row", "lane < head, edge_cols < N_COLS)",
               "lane < head, edge_cols < N_COLS + 1)"),
        Mutant(kernel, "lost_first_block", "tl.range(FULL - 1, -1, -1)", "tl.range(FULL - 1, 0, -1)"),
    )  # fmt: skip


def _of_several_rows(kernel: str, edges: str) -> tuple[Mutant, ...]:
    """Return wrong twins of how a program takes several whole rows, aligned or ragged."""
    return (
        Mutant(kernel, "misplaced_vectors_of_rows", "aligned = (starts + VECTOR - 1) // VECTOR * VECTOR",
               "aligned = starts // VECTOR * VECTOR"),
        Mutant(kernel, "rows_as_if_aligned", "return shift + rows * N_COLS, rows",
               "return shift + rows * (N_COLS // 8 * 8), rows"),
        Mutant(kernel, "tile_as_if_aligned", "return shift + rows * N_COLS, rows", "return rows * N_COLS, rows"),
        Mutant(kernel, "dropped_row_mask", "rows < n_rows - tl.program_id(0) * BLOCK_M",
               "(rows < n_rows - tl.program_id(0) * BLOCK_M) | True"),
        Mutant(kernel, "one_group_again", "rows = number * ROWS + tl.arange(0, ROWS)", "rows = tl.arange(0, ROWS)"),
        Mutant(kernel, "dropped_column_mask_of_rows", "(chunk * WIDTH + cols < N_COLS) if", "(cols >= 0) if"),
        Mutant(kernel, "vectors_beyond_the_row", "((chunk * WIDTH + cols) // VECTOR < (N_COLS - head) // VECTOR)",
               "((chunk * WIDTH + cols) // VECTOR < N_COLS // VECTOR)"),
        Mutant(kernel, "lost_last_column_of_rows", "lane < head, cols < N_COLS)", "lane < head, cols < N_COLS - 1)"),
        Mutant(kernel, "edges_beyond_the_last_row", "return cols, row_mask & tl.where(", "return cols, tl.where("),
        Mutant(kernel, "edges_of_all_rows_in_one_sum", f"total += tl.sum({edges}, axis=1)",
               f"total += tl.sum({edges})"),
    )  # fmt: skip


def _of_scale(kernel: str, name: str, load: str, pointers: str) -> tuple[Mutant, ...]:
    """Return wrong twins of how a gain or bias is read: a copy that is not shifted, another block's."""
    return (
        Mutant(kernel, f"unshifted_{name}", f"{name}_ptr + head + cols, mask", f"{name}_ptr + cols, mask"),
        Mutant(kernel, f"{name}_of_another_block", f" {name} = {load}({pointers} + block * BLOCK_N",
               f" {name} = {load}({pointers} + FULL * BLOCK_N"),
    )  # fmt: skip


def _of_pipe(kernel: str, *names: tuple[str, str]) -> tuple[Mutant, ...]:
    """Return wrong twins of what is read ahead: the block at hand once more."""
    return tuple(
        Mutant(kernel, f"same_{name}_again", f"{name}_next = {load} + (block - 1) * BLOCK_N",
               f"{name}_next = {load} + block * BLOCK_N")
        for name, load in names
    )  # fmt: skip


MUTANTS: tuple[Mutant, ...] = (
    Mutant("vector_add", "dropped_mask", "mask = offsets < n_elements", "mask = (offsets < n_elements) | True"),
    Mutant("vector_add", "lost_last_block", "grid = (-(-n_elements // config[\"block\"]),)",
           "grid = (max(n_elements // config[\"block\"], 1),)"),
    Mutant("vector_add", "misplaced_blocks", "offsets = start + tl.arange(0, BLOCK)",
           "offsets = start // 2 + tl.arange(0, BLOCK)"),
    Mutant("rmsnorm", "fp16_squares", "if FULL > 0 else last * last, axis=1)",
           "if FULL > 0 else (last.to(tl.float16) * last.to(tl.float16)).to(tl.float32), axis=1)"),
    Mutant("rmsnorm", "fp16_squares_in_loop", "squares += _by_lane(x * x, LANE)",
           "squares += _by_lane((x.to(tl.float16) * x.to(tl.float16)).to(tl.float32), LANE)"),
    Mutant("rmsnorm", "fp16_squares_of_rows", "            squares += x * x\n",
           "            squares += (x.to(tl.float16) * x.to(tl.float16)).to(tl.float32)\n"),
    Mutant("rmsnorm", "mean_over_padding", "\n    rstd = tl.rsqrt(total / N_COLS + eps)",
           "\n    rstd = tl.rsqrt(total / ((FULL + 1) * BLOCK_N) + eps)"),
    Mutant("rmsnorm", "mean_over_padding_of_rows", "        rstd = tl.rsqrt(total / N_COLS + eps)[:, None]",
           "        rstd = tl.rsqrt(total / BLOCK_N + eps)[:, None]"),
    Mutant("rmsnorm", "dropped_eps", "\n    rstd = tl.rsqrt(total / N_COLS + eps)",
           "\n    rstd = tl.rsqrt(total / N_COLS)"),
    Mutant("rmsnorm", "dropped_gain_of_rows", "chunk] * rstd * gain, mask)", "chunk] * rstd + 0.0 * gain, mask)"),
    Mutant("rmsnorm", "dropped_gain", "last * rstd * gain, last_mask", "last * rstd + 0.0 * gain, last_mask"),
    Mutant("rmsnorm", "dropped_column_mask", "(cols < left) if N_COLS % BLOCK_N", "(cols >= 0) if N_COLS % BLOCK_N"),
    Mutant("rmsnorm", "lost_last_block", "squares + _by_lane(last * last, LANE)", "squares"),
    *_of_rows("rmsnorm"),
    *_of_several_rows("rmsnorm", "edge * edge"),
    *_of_scale("rmsnorm", "gain", "_load_gain", "gains"),
    Mutant("rmsnorm", "edge_left_out_of_sum", "total += tl.sum(edge * edge)\n",
           "total += 0.0\n"),
    Mutant("layernorm", "uncentred_squares", "total = tl.sum(last * last, axis=1)",
           "total = tl.sum((last + mean) * (last + mean), axis=1)"),
    Mutant("layernorm", "padding_in_variance", "last = tl.where(last_mask, last - mean, 0.0)", "last = last - mean"),
    Mutant("layernorm", "unshifted_variance", "squares += FULL * LANE * shift * shift - 2 * shift * deviations",
           "squares += 0.0"),
    Mutant("layernorm", "half_shifted_variance", " - 2 * shift * deviations", " - shift * deviations"),
    Mutant("layernorm", "mean_of_lanes_only", "near * (FULL * LANE) + deviations + ", "near * (FULL * LANE) + "),
    Mutant("layernorm", "unbiased_variance", "\n    rstd = tl.rsqrt(total / N_COLS + eps)",
           "\n    rstd = tl.rsqrt(total / (N_COLS - 1) + eps)"),
    Mutant("layernorm", "unbiased_variance_of_rows", "        rstd = tl.rsqrt(total / N_COLS + eps)",
           "        rstd = tl.rsqrt(total / (N_COLS - 1) + eps)"),
    Mutant("layernorm", "padding_in_variance_of_rows", "tl.where(mask, held[group * CHUNKS + chunk] - mean, 0.0)",
           "held[group * CHUNKS + chunk] - mean"),
    Mutant("layernorm", "dropped_bias_of_rows", "mean) * rstd * gain + bias, mask)",
           "mean) * rstd * gain + 0.0 * bias, mask)"),
    Mutant("layernorm", "edge_padding_in_variance_of_rows", "edge = tl.where(edge_mask, edge - mean, 0.0)",
           "edge = edge - mean"),
    Mutant("layernorm", "dropped_bias", "last * rstd * gain + bias, last_mask",
           "last * rstd * gain + 0.0 * bias, last_mask"),
    Mutant("layernorm", "dropped_eps", "\n    rstd = tl.rsqrt(total / N_COLS + eps)",
           "\n    rstd = tl.rsqrt(total / N_COLS)"),
    Mutant("layernorm", "dropped_column_mask", "(cols < left) if N_COLS % BLOCK_N", "(cols >= 0) if N_COLS % BLOCK_N"),
    *_of_rows("layernorm", first="row"),
    *_of_several_rows("layernorm", "edge * edge"),
    *_of_scale("layernorm", "gain", "_load_scale", "gains"),
    *_of_scale("layernorm", "bias", "_load_scale", "biases"),
    *_of_pipe("layernorm", ("x", "tl.load(x_tile"), ("gain", "_load_scale(gains"), ("bias", "_load_scale(biases")),
    Mutant("layernorm", "edge_padding_in_variance", "edge = tl.where(edge_mask, edge - tl.sum(mean), 0.0)",
           "edge = edge - tl.sum(mean)"),
    Mutant("softmax", "missing_max_subtraction", "powers = _exp(last - highest)", "powers = _exp(last)"),
    Mutant("softmax", "missing_max_subtraction_in_loop", "_exp(x_again - highest) * inverse",
           "_exp(x_again) * inverse / _exp(highest)"),
    Mutant("softmax", "uncorrected_running_sum", "lane_total = lane_total * _exp(lane_highest - safe) + ",
           "lane_total = lane_total + "),
    Mutant("softmax", "padding_in_sum", "mask=last_mask, other=NONE", "mask=last_mask, other=0.0"),
    Mutant("softmax", "edge_padding_in_sum", "x_ptr + start + edge_cols, mask=edge_mask, other=NONE",
           "x_ptr + start + edge_cols, mask=edge_mask, other=0.0"),
    Mutant("softmax", "padding_in_sum_of_rows", "tl.load(x_tile + places, mask=mask, other=NONE",
           "tl.load(x_tile + places, mask=mask, other=0.0"),
    Mutant("softmax", "edge_padding_in_sum_of_rows", "x_tile + starts + edge_cols, mask=edge_mask, other=NONE",
           "x_tile + starts + edge_cols, mask=edge_mask, other=0.0"),
    Mutant("softmax", "missing_max_subtraction_of_rows", "_exp(held[group * CHUNKS + chunk] - highest[:, None])",
           "_exp(held[group * CHUNKS + chunk])"),
    Mutant("softmax", "unscaled_rows", "powers[chunk] * inverse[:, None], mask", "powers[chunk], mask"),
    Mutant("softmax", "dropped_column_mask", "(cols < left) if N_COLS % BLOCK_N", "(cols >= 0) if N_COLS % BLOCK_N"),
    Mutant("softmax", "unscaled", "_store(y_tile + FULL * BLOCK_N, powers * inverse, last_mask)",
           "_store(y_tile + FULL * BLOCK_N, powers, last_mask)"),
    Mutant("softmax", "fp16_sum", "total = tl.sum(powers, axis=1)", "total = tl.sum(powers.to(tl.float16), axis=1)"),
    Mutant("softmax", "natural_base", "values * 1.4426950408889634", "values * 1.44"),
    *_of_rows("softmax"),
    *_of_several_rows("softmax", "edge_powers"),
    *_of_pipe("softmax", ("x", "tl.load(x_tile")),
)  # fmt: skip
