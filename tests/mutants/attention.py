"""Lists small trials of the attention kernels, for the interpreter and the GPU, and their wrong twins."""

from __future__ import annotations

from mutants.checker import Trial
from mutants.kernels import Mutant

_DECODE = {"block_s": 32, "splits": 1, "num_warps": 4, "num_stages": 2, "dot": 1, "tma": 0, "pdl": 0}


def decode_attention_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of decode_attention: one head, groups, one and several splits, keys and widths that fill no tile."""
    split = {**_DECODE, "splits": 3}
    plain, plain_split = {**_DECODE, "dot": 0}, {**split, "dot": 0}
    return (
        Trial({"B": 1, "HQ": 1, "HKV": 1, "S": 1, "D": 1}, dtype, _DECODE),
        Trial({"B": 2, "HQ": 6, "HKV": 2, "S": 37, "D": 32}, dtype, _DECODE),
        Trial({"B": 2, "HQ": 6, "HKV": 2, "S": 131, "D": 19}, dtype, split),
        Trial({"B": 1, "HQ": 2, "HKV": 2, "S": 128, "D": 64}, dtype, split),
        Trial({"B": 1, "HQ": 17, "HKV": 1, "S": 70, "D": 16}, dtype, {**_DECODE, "splits": 2}),
        Trial({"B": 2, "HQ": 6, "HKV": 2, "S": 39, "D": 32}, dtype, plain),
        Trial({"B": 2, "HQ": 6, "HKV": 2, "S": 127, "D": 19}, dtype, plain_split),
        # Scores of these exceed the exponent range of fp32.
        Trial({"B": 1, "HQ": 2, "HKV": 1, "S": 97, "D": 16}, dtype, _DECODE, scale=256.0),
        Trial({"B": 1, "HQ": 2, "HKV": 1, "S": 101, "D": 16}, dtype, split, scale=256.0),
        Trial({"B": 1, "HQ": 2, "HKV": 1, "S": 103, "D": 16}, dtype, plain_split, scale=256.0),
    )


TRIALS = {"decode_attention": decode_attention_trials}

MUTANTS: tuple[Mutant, ...] = (
    Mutant("decode_attention", "missing_max_subtraction", "powers = tl.exp2(scores - risen[None, :])",
           "powers = tl.exp2(scores) * tl.exp2(-risen)[None, :]"),
    Mutant("decode_attention", "dropped_key_mask", "scores = tl.where((keys < n_keys)[:, None], scores, -float(\"inf\"))",
           "scores = scores + 0.0"),
    Mutant("decode_attention", "unscaled_scores", "q_columns, input_precision=PRECISION) * scale_log2",
           "q_columns, input_precision=PRECISION)"),
    Mutant("decode_attention", "natural_exponent", "scale_log2 = math.log2(math.e) / math.sqrt(d)",
           "scale_log2 = 1.0 / math.sqrt(d)"),
    Mutant("decode_attention", "uncorrected_sum", "total = total * kept + tl.sum(powers, axis=0)",
           "total = total + tl.sum(powers, axis=0)"),
    Mutant("decode_attention", "uncorrected_output", "acc * kept[None, :], input_precision", "acc, input_precision"),
    Mutant("decode_attention", "unscaled_output", "y = result / total[:, None]", "y = result"),
    Mutant("decode_attention", "racy_split", "if arrived == SPLITS - 1:", "if split == 0:"),
    Mutant("decode_attention", "counter_not_reset", "tl.store(arrivals_ptr + head, 0)", "pass"),
    Mutant("decode_attention", "unweighted_splits", "weights = tl.exp2(highs - top[None, :])",
           "weights = tl.where(known, 1.0, 0.0)"),
    Mutant("decode_attention", "lost_last_step", "last = (split + 1) * steps // SPLITS",
           "last = tl.maximum((split + 1) * steps // SPLITS - split // 2, first + 1)"),
    Mutant("decode_attention", "wrong_key_head", "cache_row = head.to(tl.int64) * n_keys",
           "cache_row = (head // 2).to(tl.int64) * n_keys"),
)  # fmt: skip
