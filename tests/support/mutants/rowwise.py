"""Lists small trials of the rowwise kernels, for the interpreter and the GPU, and their wrong twins."""

from __future__ import annotations

from mutants.checker import Trial
from mutants.kernels import Mutant

_ALL = {
    "block_m": 1,
    "block_n": 128,
    "num_warps": 4,
    "shifted_copies": 0,
    "bypass_l1": 0,
    "pipelined_loads": 0,
    "pdl": 0,
}
# The keys that a kernel's configuration has not.
_WITHOUT = {"rmsnorm": ("pipelined_loads",), "layernorm": (), "softmax": ("shifted_copies", "bypass_l1")}


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
        trial(3, 168, block_n=64, pipelined_loads=1),
        # Rows that start anywhere: nine of them meet every offset. Those of 17 columns are mostly edge, and in
        # those of 71 or 79 a vector more than the block holds goes to the edge.
        trial(9, 97),
        trial(9, 131, block_n=64),
        trial(9, 17, block_n=32),
        trial(9, 71 if dtype == "fp32" else 79, block_n=64, shifted_copies=1, bypass_l1=1, pipelined_loads=1),
        trial(9, 141, block_n=32, shifted_copies=1, bypass_l1=1, pipelined_loads=1),
        trial(9, 99, shifted_copies=1),
    )


def _tall_trials(kernel: str, dtype: str) -> tuple[Trial, ...]:
    """Return trials of several ragged rows a program, the last of them beyond the last row."""
    return (
        Trial({"M": 9, "N": 525}, dtype, _config(kernel, block_m=2, block_n=1024)),
        Trial({"M": 11, "N": 523}, dtype, _config(kernel, block_m=4, block_n=1024, shifted_copies=1)),
        Trial({"M": 11, "N": 1021}, dtype, _config(kernel, block_m=4, block_n=1024, shifted_copies=1)),
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


# Of elements beside which eps counts, or whose exponentials are far apart.
FAR_SCALES = {"rmsnorm": 2.0**-10, "layernorm": 2.0**-7, "softmax": 64.0}


def cluster_trials(kernel: str, dtype: str) -> tuple[Trial, ...]:
    """Return trials of the variant that keeps rows in a cluster's shared memory; rows are whole vectors of 16 bytes."""
    vector = 4 if dtype == "fp32" else 8

    def trial(m: int, vectors: int, cluster: int, warps: int, scale: float = 1.0) -> Trial:
        config = {"variant": "cuda_cluster", "cluster": cluster, "num_warps": warps, "pdl": 1}
        return Trial({"M": m, "N": vectors * vector}, dtype, config, scale)

    return (
        # CTAs with an uneven part and with none.
        trial(3, 131, 4, 2),
        trial(5, 9, 8, 1),
        # Many chunks, whole and not, and the largest cluster.
        trial(7, 4099, 2, 4),
        trial(2, 2048, 2, 1),
        trial(3, 4096, 16, 4),
        trial(40, 300, 2, 8),
        trial(3, 131, 4, 2, FAR_SCALES[kernel]),
    )


TRIALS = {
    "vector_add": vector_add_trials,
    "rmsnorm": rmsnorm_trials,
    "layernorm": layernorm_trials,
    "softmax": softmax_trials,
}


_SHARED = "common/row_reductions.py"


def _of_rows(kernel: str) -> tuple[Mutant, ...]:
    """Return wrong twins of what the row kernels share: the places of vectors and edges, and the second reading."""
    edits = (
        ("misplaced_vectors", "row = (start + VECTOR - 1) // VECTOR * VECTOR", "row = start // VECTOR * VECTOR"),
        (
            "vectors_beyond_the_block",
            "tl.minimum((N_COLS - head) // VECTOR * VECTOR - FULL * BLOCK_N, BLOCK_N)",
            "(N_COLS - head) // VECTOR * VECTOR - FULL * BLOCK_N",
        ),
        ("lost_last_column", "lane < head, edge_cols < N_COLS)", "lane < head, edge_cols < N_COLS - 1)"),
        ("edge_of_the_next_row", "lane < head, edge_cols < N_COLS)", "lane < head, edge_cols < N_COLS + 1)"),
        ("lost_first_block", "tl.range(FULL - 1, -1, -1)", "tl.range(FULL - 1, 0, -1)"),
        ("dropped_column_mask", "(cols < left) if N_COLS % BLOCK_N", "(cols >= 0) if N_COLS % BLOCK_N"),
        (
            "same_block_twice",
            'tl.load(x_tile + block * BLOCK_N, mask=whole, other=FILL, eviction_policy="evict_last")',
            'tl.load(x_tile, mask=whole, other=FILL, eviction_policy="evict_last")',
        ),
        # Several rows a program, aligned or ragged.
        (
            "misplaced_vectors_of_rows",
            "aligned = (starts + VECTOR - 1) // VECTOR * VECTOR",
            "aligned = starts // VECTOR * VECTOR",
        ),
        ("rows_as_if_aligned", "return shift + rows * N_COLS, rows", "return shift + rows * (N_COLS // 8 * 8), rows"),
        ("tile_as_if_aligned", "return shift + rows * N_COLS, rows", "return rows * N_COLS, rows"),
        (
            "dropped_row_mask",
            "rows < n_rows - tl.program_id(0) * BLOCK_M",
            "(rows < n_rows - tl.program_id(0) * BLOCK_M) | True",
        ),
        ("one_group_again", "rows = number * ROWS + tl.arange(0, ROWS)", "rows = tl.arange(0, ROWS)"),
        ("values_of_the_first_group", "held[group * CHUNKS + chunk]", "held[chunk]"),
        ("values_of_the_first_chunk", "EPILOGUE(values[chunk]", "EPILOGUE(values[0]"),
        ("dropped_column_mask_of_rows", "(chunk * WIDTH + cols < N_COLS) if", "(cols >= 0) if"),
        (
            "vectors_beyond_the_row",
            "((chunk * WIDTH + cols) // VECTOR < (N_COLS - head) // VECTOR)",
            "((chunk * WIDTH + cols) // VECTOR < N_COLS // VECTOR)",
        ),
        ("lost_last_column_of_rows", "lane < head, cols < N_COLS)", "lane < head, cols < N_COLS - 1)"),
        ("edges_beyond_the_last_row", "return cols, row_mask & tl.where(", "return cols, tl.where("),
    )
    return tuple(Mutant(kernel, *edit, _SHARED) for edit in edits)  # fmt: skip


def _of_scales(kernel: str, *names: str) -> tuple[Mutant, ...]:
    """Return wrong twins of how gain and bias are read: a copy that is not shifted, another block's or chunk's."""
    return (
        *(
            Mutant(kernel, f"unshifted_{name}", "tl.load(scale_ptrs[i] + head + cols,",
                   f"tl.load(scale_ptrs[i] + (head if i != {number} else 0) + cols,", _SHARED)
            for number, name in enumerate(names)
        ),
        Mutant(kernel, "scales_of_another_block", " scales = _load_scales(scale_tiles, block * BLOCK_N",
               " scales = _load_scales(scale_tiles, FULL * BLOCK_N", _SHARED),
        Mutant(kernel, "scales_of_another_chunk", "scales = shared[chunk]", "scales = shared[0]", _SHARED),
    )  # fmt: skip


def _of_pipelined_loads(kernel: str, *loads: tuple[str, str]) -> tuple[Mutant, ...]:
    """Return wrong twins of what is loaded for the next block: the current block once more."""
    return tuple(
        Mutant(kernel, f"same_{name}_again", f"{name}_next = {load}(block - 1) * BLOCK_N",
               f"{name}_next = {load}block * BLOCK_N", _SHARED)
        for name, load in loads
    )  # fmt: skip


MUTANTS: tuple[Mutant, ...] = (
    Mutant("vector_add", "dropped_mask", "mask = offsets < n_elements", "mask = (offsets < n_elements) | True"),
    Mutant("vector_add", "lost_last_block", 'ceil_div(shape["N"], int(config["block"]))',
           'max(shape["N"] // int(config["block"]), 1)'),
    Mutant("vector_add", "misplaced_blocks", "offsets = start + tl.arange(0, BLOCK)",
           "offsets = start // 2 + tl.arange(0, BLOCK)"),
    Mutant("rmsnorm", "fp16_squares", "if FULL > 0 else last * last, axis=1)",
           "if FULL > 0 else (last.to(tl.float16) * last.to(tl.float16)).to(tl.float32), axis=1)"),
    Mutant("rmsnorm", "fp16_squares_in_loop", "squares += sum_lanes(x * x, LANE)",
           "squares += sum_lanes((x.to(tl.float16) * x.to(tl.float16)).to(tl.float32), LANE)"),
    Mutant("rmsnorm", "fp16_squares_of_rows", "squares += values[i] * values[i]",
           "squares += (values[i].to(tl.float16) * values[i].to(tl.float16)).to(tl.float32)"),
    Mutant("rmsnorm", "mean_over_padding", "0.0, tl.rsqrt(total / N_COLS + eps)",
           "0.0, tl.rsqrt(total / ((FULL + 1) * last.shape[1]) + eps)"),
    Mutant("rmsnorm", "mean_over_padding_of_rows", "return values, edge, tl.rsqrt(total / N_COLS + eps)",
           "return values, edge, tl.rsqrt(total / (len(values) * values[0].shape[1]) + eps)"),
    Mutant("rmsnorm", "dropped_eps", "0.0, tl.rsqrt(total / N_COLS + eps)", "0.0, tl.rsqrt(total / N_COLS)"),
    Mutant("rmsnorm", "dropped_gain", "values * rstd * scales[0]", "values * rstd + 0.0 * scales[0]"),
    Mutant("rmsnorm", "lost_last_block", "state[0] + sum_lanes(last * last, LANE)", "state[0]"),
    Mutant("rmsnorm", "edges_of_all_rows_in_one_sum", "total += tl.sum(edge * edge, axis=1)",
           "total += tl.sum(edge * edge)"),
    *_of_rows("rmsnorm"),
    *_of_scales("rmsnorm", "gain"),
    Mutant("rmsnorm", "edge_left_out_of_sum", "total += tl.sum(edge * edge)\n", "total += 0.0\n"),
    Mutant("layernorm", "uncentred_squares", "total = tl.sum(last * last, axis=1)",
           "total = tl.sum((last + mean) * (last + mean), axis=1)"),
    Mutant("layernorm", "padding_in_variance", "last = tl.where(last_mask, last - mean, 0.0)", "last = last - mean"),
    Mutant("layernorm", "unshifted_variance", "squares += FULL * LANE * shift * shift - 2 * shift * deviations",
           "squares += 0.0"),
    Mutant("layernorm", "half_shifted_variance", " - 2 * shift * deviations", " - shift * deviations"),
    Mutant("layernorm", "mean_of_lanes_only", "near * (FULL * LANE) + deviations + ", "near * (FULL * LANE) + "),
    Mutant("layernorm", "unbiased_variance", "mean, tl.rsqrt(total / N_COLS + eps)",
           "mean, tl.rsqrt(total / (N_COLS - 1) + eps)"),
    Mutant("layernorm", "unbiased_variance_of_rows", "return centred, edge, tl.rsqrt(total / N_COLS + eps)",
           "return centred, edge, tl.rsqrt(total / (N_COLS - 1) + eps)"),
    Mutant("layernorm", "padding_in_variance_of_rows", "tl.where(masks[i], centred[i], 0.0)", "centred[i]"),
    Mutant("layernorm", "edge_padding_in_variance_of_rows", "edge = tl.where(edge_mask, edge - mean, 0.0)",
           "edge = edge - mean"),
    Mutant("layernorm", "dropped_bias", "scales[0] + scales[1]", "scales[0] + 0.0 * scales[1]"),
    Mutant("layernorm", "uncentred_second_read", "return x - mean", "return x"),
    Mutant("layernorm", "dropped_eps", "mean, tl.rsqrt(total / N_COLS + eps)", "mean, tl.rsqrt(total / N_COLS)"),
    Mutant("layernorm", "edges_of_all_rows_in_one_sum", "total += tl.sum(edge * edge, axis=1)",
           "total += tl.sum(edge * edge)"),
    *_of_rows("layernorm"),
    *_of_scales("layernorm", "gain", "bias"),
    *_of_pipelined_loads("layernorm", ("x", "tl.load(x_tile + "), ("scales", "_load_scales(scale_tiles, ")),
    Mutant("layernorm", "edge_padding_in_variance", "edge = tl.where(edge_mask, edge - tl.sum(mean), 0.0)",
           "edge = edge - tl.sum(mean)"),
    Mutant("softmax", "missing_max_subtraction", "powers = _exp(last - highest)", "powers = _exp(last)"),
    Mutant("softmax", "missing_max_subtraction_in_loop", "return _exp(x - highest)",
           "return _exp(x) / _exp(highest)"),
    Mutant("softmax", "uncorrected_running_sum", "lane_total = lane_total * _exp(lane_highest - safe) + ",
           "lane_total = lane_total + "),
    Mutant("softmax", "padding_in_sum", "mask=last_mask, other=FILL", "mask=last_mask, other=0.0", _SHARED),
    Mutant("softmax", "edge_padding_in_sum", "x_ptr + start + edge_cols, mask=edge_mask, other=FILL",
           "x_ptr + start + edge_cols, mask=edge_mask, other=0.0", _SHARED),
    Mutant("softmax", "padding_in_sum_of_rows", "tl.load(x_tile + offsets, mask=mask, other=FILL",
           "tl.load(x_tile + offsets, mask=mask, other=0.0", _SHARED),
    Mutant("softmax", "edge_padding_in_sum_of_rows", "x_tile + starts + edge_cols, mask=edge_mask, other=FILL",
           "x_tile + starts + edge_cols, mask=edge_mask, other=0.0", _SHARED),
    Mutant("softmax", "missing_max_subtraction_of_rows", "_exp(values[i] - highest[:, None])", "_exp(values[i])"),
    Mutant("softmax", "unscaled", "return powers * inverse", "return powers"),
    Mutant("softmax", "fp16_sum", "total = tl.sum(powers, axis=1)", "total = tl.sum(powers.to(tl.float16), axis=1)"),
    Mutant("softmax", "natural_base", "values * 1.4426950408889634", "values * 1.44"),
    Mutant("softmax", "edges_of_all_rows_in_one_sum", "total += tl.sum(edge, axis=1)", "total += tl.sum(edge)"),
    *_of_rows("softmax"),
    *_of_pipelined_loads("softmax", ("x", "tl.load(x_tile + ")),
)  # fmt: skip


def _of_clusters(kernel: str) -> tuple[Mutant, ...]:
    """Return wrong twins of what all operations of row_cluster.cu share."""
    edits = (
        ("lost_last_vectors", "for (int from = thread; from < count;", "for (int from = thread; from < count - 1;"),
        ("rows_of_the_first_cluster", "(i64)(blockIdx.x / CLUSTER) * VECTORS + first", "(i64)first"),
        ("lost_last_part", "PART = (VECTORS + CLUSTER - 1) / CLUSTER;", "PART = VECTORS / CLUSTER;"),
    )
    return (
        *(Mutant(kernel, f"cluster_{name}", find, replace, _CLUSTER) for name, find, replace in edits),
        Mutant(
            kernel,
            "cluster_forgets_the_other_ctas",
            "if (at + lane < PARTIALS) all",
            "if (at + lane < WARPS) all",
            _HEADER,
        ),
    )


_CLUSTER, _HEADER = "common/row_cluster.cu", "common/rows.cuh"
_RSTD = "rsqrtf(all.x * (1.0f / N_COLS) + eps)"
CLUSTER_MUTANTS: tuple[Mutant, ...] = (
    *(one for kernel in ("rmsnorm", "layernorm", "softmax") for one in _of_clusters(kernel)),
    *(
        Mutant(kernel, "cluster_dropped_eps", _RSTD, "rsqrtf(all.x * (1.0f / N_COLS))", _CLUSTER)
        for kernel in ("rmsnorm", "layernorm")
    ),
    Mutant(
        "rmsnorm",
        "cluster_gain_of_the_first_chunk",
        "if (from != thread) load_vectors",
        "if (from < thread) load_vectors",
        _CLUSTER,
    ),
    Mutant("rmsnorm", "cluster_dropped_gain", "v[j] * rstd * g[j]", "v[j] * rstd", _CLUSTER),
    Mutant("layernorm", "cluster_dropped_bias", "* g[j] + b[j]", "* g[j]", _CLUSTER),
    Mutant("layernorm", "cluster_uncentred_squares", "count, 0, thread, mean)", "count, 0, thread, 0.0f)", _CLUSTER),
    Mutant("layernorm", "cluster_padding_in_variance", "OP == 1 ? NOTHING : mean", "0.0f", _CLUSTER),
    Mutant("softmax", "cluster_padding_in_sum", "OP == 1 ? NOTHING : mean", "0.0f", _CLUSTER),
    Mutant("softmax", "cluster_uncorrected_running_sum", "sum.y * exp_of(sum.x - to)", "sum.y", _CLUSTER),
    Mutant("softmax", "cluster_uncorrected_sums_of_others", "a.y * exp_of(a.x - to)", "a.y", _HEADER),
    Mutant("softmax", "cluster_unscaled", "LOG2_E, -log_sum)", "LOG2_E, 0.0f)", _CLUSTER),
)
