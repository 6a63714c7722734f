"""Lists small trials of the rowwise kernels, for the interpreter and the GPU, and their wrong twins."""

from __future__ import annotations

from mutants.checker import Trial
from mutants.kernels import Mutant

# Two programs, so that most trials give one of them several tiles.
_FEW = {"num_warps": 4, "num_stages": 1, "programs": 2, "pdl": 0}
_ONE = {"block_m": 1, "block_n": 128, **_FEW}
_TALL = {"block_m": 8, "block_n": 128, **_FEW}
_LOOP = {"block_m": 1, "block_n": 64, **_FEW}
_TALL_LOOP = {"block_m": 4, "block_n": 32, **_FEW}


def vector_add_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials with no, one and several whole blocks, and with a rest."""
    config = {"block": 64, "num_warps": 1}
    return tuple(Trial({"N": n}, dtype, config) for n in (1, 63, 64, 65, 257))


def _row_trials(dtype: str) -> tuple[Trial, ...]:
    return (
        Trial({"M": 1, "N": 1}, dtype, {**_ONE, "block_n": 1}),
        Trial({"M": 37, "N": 1}, dtype, {**_TALL, "block_n": 1}),
        Trial({"M": 3, "N": 97}, dtype, _ONE),
        Trial({"M": 19, "N": 97}, dtype, _TALL),
        Trial({"M": 16, "N": 128}, dtype, _TALL),
        Trial({"M": 3, "N": 131}, dtype, _LOOP),
        Trial({"M": 7, "N": 192}, dtype, _TALL_LOOP),
    )


def rmsnorm_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of rmsnorm."""
    return (
        *_row_trials(dtype),
        # Squares of these exceed the largest fp16.
        Trial({"M": 2, "N": 101}, dtype, _ONE, scale=256.0),
        Trial({"M": 3, "N": 103}, dtype, _LOOP, scale=256.0),
        # These are so small that eps is half of the mean of squares.
        Trial({"M": 2, "N": 101}, dtype, _ONE, scale=2.0**-10),
        Trial({"M": 3, "N": 103}, dtype, _LOOP, scale=2.0**-10),
    )


def layernorm_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of layernorm."""
    return (
        *_row_trials(dtype),
        # So small that eps is half of the variance.
        Trial({"M": 2, "N": 101}, dtype, _ONE, scale=2.0**-7),
        Trial({"M": 3, "N": 103}, dtype, _LOOP, scale=2.0**-7),
    )


def softmax_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of softmax."""
    return (
        *_row_trials(dtype),
        # exp of these exceeds the largest fp32.
        Trial({"M": 2, "N": 101}, dtype, _ONE, scale=64.0),
        Trial({"M": 3, "N": 103}, dtype, _LOOP, scale=64.0),
    )


TRIALS = {
    "vector_add": vector_add_trials,
    "rmsnorm": rmsnorm_trials,
    "layernorm": layernorm_trials,
    "softmax": softmax_trials,
}

MUTANTS: tuple[Mutant, ...] = (
    Mutant("vector_add", "dropped_mask", "mask = offsets < n_elements", "mask = (offsets < n_elements) | True"),
    Mutant("vector_add", "lost_last_block", "grid = (-(-n_elements // config[\"block\"]),)",
           "grid = (max(n_elements // config[\"block\"], 1),)"),
    Mutant("vector_add", "misplaced_blocks", "offsets = start + tl.arange(0, BLOCK)",
           "offsets = start // 2 + tl.arange(0, BLOCK)"),
    Mutant("rmsnorm", "fp16_squares", "rstd = tl.rsqrt(tl.sum(x * x, axis=1) / N_COLS + eps)",
           "xh = x.to(tl.float16)\n        rstd = tl.rsqrt(tl.sum((xh * xh).to(tl.float32), axis=1) / N_COLS + eps)"),
    Mutant("rmsnorm", "fp16_squares_in_loop", "squares += x32 * x32", "squares += (x * x).to(tl.float32)"),
    Mutant("rmsnorm", "mean_over_padding", "tl.sum(x * x, axis=1) / N_COLS", "tl.sum(x * x, axis=1) / BLOCK_N"),
    Mutant("rmsnorm", "dropped_eps", "tl.sum(squares, axis=1) / N_COLS + eps", "tl.sum(squares, axis=1) / N_COLS"),
    Mutant("rmsnorm", "dropped_gain", "y = x * rstd[:, None] * gain.to(tl.float32)[None, :]",
           "y = x * rstd[:, None] + 0.0 * gain[None, :]"),
    Mutant("rmsnorm", "dropped_column_mask", "mask = row_mask & _columns_left(0, N_COLS, BLOCK_N)[None, :]",
           "mask = row_mask & (_columns_left(0, N_COLS, BLOCK_N) | True)[None, :]"),
    Mutant("rmsnorm", "dropped_row_mask", "row_mask = _rows_left(n_rows, first, BLOCK_M)",
           "row_mask = _rows_left(n_rows, first, BLOCK_M) | True"),
    Mutant("rmsnorm", "lost_last_block",
           "for start in tl.range(0, N_COLS, BLOCK_N, loop_unroll_factor=4):\n            mask",
           "for start in tl.range(0, N_COLS - BLOCK_N, BLOCK_N, loop_unroll_factor=4):\n            mask"),
    Mutant("layernorm", "uncentred_squares", "rstd = tl.rsqrt(tl.sum(centred * centred, axis=1) / N_COLS + eps)",
           "rstd = tl.rsqrt(tl.sum(x * x, axis=1) / N_COLS + eps)"),
    Mutant("layernorm", "padding_in_variance", "centred = tl.where(mask, x - mean[:, None], 0.0)",
           "centred = x - mean[:, None]"),
    Mutant("layernorm", "padding_in_deviations", "apart = tl.where(mask, x.to(tl.float32) - near[:, None], 0.0)",
           "apart = x.to(tl.float32) - near[:, None]"),
    Mutant("layernorm", "unshifted_variance", "tl.sum(squares, axis=1) / N_COLS - shift * shift + eps",
           "tl.sum(squares, axis=1) / N_COLS + eps"),
    Mutant("layernorm", "mean_of_first_block", "mean = near + shift", "mean = near"),
    Mutant("layernorm", "unbiased_variance",
           "tl.sum(squares, axis=1) / N_COLS - shift",
           "tl.sum(squares, axis=1) / (N_COLS - 1) - shift"),
    Mutant("layernorm", "dropped_bias", "gain.to(tl.float32)[None, :] + bias.to(tl.float32)[None, :]",
           "gain.to(tl.float32)[None, :] + 0.0 * bias.to(tl.float32)[None, :]"),
    Mutant("layernorm", "dropped_eps", "- shift * shift + eps", "- shift * shift"),
    Mutant("layernorm", "dropped_column_mask", "mask = row_mask & _columns_left(0, N_COLS, BLOCK_N)[None, :]",
           "mask = row_mask & (_columns_left(0, N_COLS, BLOCK_N) | True)[None, :]"),
    Mutant("softmax", "missing_max_subtraction", "powers = tl.exp(x - highest)", "powers = tl.exp(x)"),
    Mutant("softmax", "missing_max_subtraction_in_loop", "y = tl.exp(x.to(tl.float32) - highest) * inverse",
           "y = tl.exp(x.to(tl.float32)) * inverse / tl.exp(highest)"),
    Mutant("softmax", "uncorrected_running_sum", "lane_total = lane_total * tl.exp(lane_highest - safe) + ",
           "lane_total = lane_total + "),
    Mutant("softmax", "padding_in_sum",
           "x = tl.load(x_tile, mask=mask, other=-float(\"inf\"), eviction_policy=\"evict_first\")",
           "x = tl.load(x_tile, mask=mask, other=0.0, eviction_policy=\"evict_first\")"),
    Mutant("softmax", "dropped_column_mask", "mask = row_mask & _columns_left(0, N_COLS, BLOCK_N)[None, :]",
           "mask = row_mask & (_columns_left(0, N_COLS, BLOCK_N) | True)[None, :]"),
    Mutant("softmax", "unscaled", "y = powers * (1.0 / tl.sum(powers, axis=1, keep_dims=True))",
           "y = powers"),
    Mutant("softmax", "fp16_sum", "tl.sum(powers, axis=1, keep_dims=True)",
           "tl.sum(powers.to(tl.float16), axis=1, keep_dims=True)"),
)  # fmt: skip
