"""Lists small trials of the attention kernels, for the interpreter and the GPU, and their wrong twins."""

from __future__ import annotations

from functools import partial

from mutants.checker import Trial
from mutants.kernels import Mutant

_DECODE = {
    "block_s": 32, "splits": 1, "num_warps": 4, "num_stages": 2, "tensor_cores": 1, "tma": 0, "pdl": 0,
    "late_trigger": 0, "variant": "generic", "ctas_per_sm": 0,
}  # fmt: skip


def decode_attention_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of decode_attention: one head, groups, one and several splits, ragged keys and widths."""
    split = {**_DECODE, "splits": 3}
    plain, plain_split = {**_DECODE, "tensor_cores": 0}, {**split, "tensor_cores": 0}
    return (
        Trial({"B": 1, "HQ": 1, "HKV": 1, "S": 1, "D": 1}, dtype, _DECODE),
        Trial({"B": 2, "HQ": 6, "HKV": 2, "S": 37, "D": 32}, dtype, _DECODE),
        Trial({"B": 2, "HQ": 6, "HKV": 2, "S": 131, "D": 19}, dtype, split),
        Trial({"B": 1, "HQ": 2, "HKV": 2, "S": 128, "D": 64}, dtype, split),
        Trial({"B": 1, "HQ": 17, "HKV": 1, "S": 70, "D": 16}, dtype, {**_DECODE, "splits": 2}),
        Trial({"B": 2, "HQ": 6, "HKV": 2, "S": 39, "D": 32}, dtype, plain),
        Trial({"B": 2, "HQ": 6, "HKV": 2, "S": 127, "D": 19}, dtype, plain_split),
        # Groups that several programs share: 6 heads as 3 and 3, 5 as 3 and 2.
        Trial({"B": 2, "HQ": 12, "HKV": 2, "S": 93, "D": 16}, dtype, plain_split),
        Trial({"B": 1, "HQ": 10, "HKV": 2, "S": 43, "D": 16}, dtype, plain),
        # Scores of these exceed the exponent range of fp32.
        Trial({"B": 1, "HQ": 2, "HKV": 1, "S": 97, "D": 16}, dtype, _DECODE, scale=256.0),
        Trial({"B": 1, "HQ": 2, "HKV": 1, "S": 101, "D": 16}, dtype, split, scale=256.0),
        Trial({"B": 1, "HQ": 2, "HKV": 1, "S": 103, "D": 16}, dtype, plain_split, scale=256.0),
    )


def cuda_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of decode_attention's CUDA C++ for sm_90: clusters, then stream-K."""
    if dtype == "fp32":
        return ()

    def trial(sizes: tuple[int, ...], variant: str, splits: int, warps: int, keys: int, scale: float = 1.0) -> Trial:
        tile = {"splits": splits, "num_warps": warps, "block_s": keys, "num_stages": 1, "tma": 0, "pdl": 1}
        config = {**_DECODE, **tile, "variant": variant, "ctas_per_sm": int(variant == "cuda_stream_k")}
        return Trial(dict(zip(("B", "HQ", "HKV", "S", "D"), sizes, strict=True)), dtype, config, scale)

    cluster, stream_k = partial(trial, variant="cuda_cluster"), partial(trial, variant="cuda_stream_k", splits=1)
    return (
        cluster((1, 1, 1, 1, 64), splits=1, warps=8, keys=16),
        cluster((2, 6, 2, 37, 64), splits=2, warps=8, keys=16),
        cluster((3, 14, 2, 1031, 64), splits=8, warps=8, keys=16),
        cluster((2, 8, 2, 640, 128), splits=2, warps=8, keys=32),
        cluster((5, 5, 5, 131, 128), splits=1, warps=4, keys=32),
        # Six of eight CTAs have no key.
        cluster((1, 8, 1, 31, 64), splits=8, warps=8, keys=16),
        # Scores so far apart that references rise after a warp's first step.
        cluster((1, 8, 1, 2999, 128), splits=2, warps=2, keys=16, scale=64.0),
        stream_k((40, 8, 1, 3001, 64), warps=2, keys=16, scale=64.0),
        stream_k((2, 8, 2, 640, 128), warps=8, keys=32),
        stream_k((40, 6, 2, 257, 64), warps=8, keys=32),
        stream_k((7, 7, 7, 1999, 128), warps=8, keys=32),
        stream_k((150, 4, 1, 33, 128), warps=4, keys=32),
        stream_k((3, 8, 1, 301, 64), warps=8, keys=16, scale=64.0),
    )


_FLASH = {
    "block_m": 32,
    "block_n": 16,
    "num_warps": 4,
    "num_stages": 2,
    "splits": 1,
    "tma": 0,
    "variant": "generic",
    "programs": 0,
    "pingpong": 0,
}


def flash_attention_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of flash_attention: one element, whole tiles, ragged sequences and widths, groups of heads."""
    if dtype == "fp32":
        return ()
    return (
        Trial({"B": 1, "HQ": 1, "HKV": 1, "S": 1, "D": 1}, dtype, _FLASH),
        Trial({"B": 1, "HQ": 2, "HKV": 2, "S": 64, "D": 32}, dtype, _FLASH),
        Trial({"B": 2, "HQ": 6, "HKV": 2, "S": 71, "D": 19}, dtype, _FLASH),
        Trial({"B": 1, "HQ": 2, "HKV": 1, "S": 37, "D": 32}, dtype, {**_FLASH, "block_n": 64}),
        # Keys divided among programs, some of which have none that a causal query sees.
        Trial({"B": 1, "HQ": 2, "HKV": 1, "S": 70, "D": 19}, dtype, {**_FLASH, "block_m": 16, "splits": 3}),
        Trial({"B": 2, "HQ": 1, "HKV": 1, "S": 131, "D": 16}, dtype, {**_FLASH, "block_n": 32, "splits": 5}),
        # Scores of these exceed the exponent range of fp32.
        Trial({"B": 1, "HQ": 2, "HKV": 1, "S": 41, "D": 16}, dtype, _FLASH, scale=256.0),
    )


def flash_cuda_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of attention's CUDA C++ for sm_90: a key, whole and ragged blocks, groups, CTAs of many blocks."""
    if dtype == "fp32":
        return ()
    config = {
        "block_m": 192, "block_n": 128, "num_warps": 16, "num_stages": 5, "splits": 1, "tma": 1, "variant": "cuda",
        "programs": 132, "pingpong": 0,
    }  # fmt: skip
    sizes = (
        (1, 1, 1, 1, 64, 1.0), (1, 2, 2, 6, 64, 1.0), (1, 2, 2, 384, 64, 1.0), (2, 6, 2, 321, 64, 1.0),
        # Several blocks a CTA, and scores so far apart that references rise again and again.
        (1, 3, 1, 1031, 40, 1.0), (2, 16, 4, 2200, 64, 1.0), (1, 4, 1, 1500, 64, 16.0), (1, 2, 1, 640, 64, 256.0),
    )  # fmt: skip
    names = ("B", "HQ", "HKV", "S", "D")
    trials = [Trial(dict(zip(names, size, strict=True)), dtype, config, scale) for *size, scale in sizes]
    few = dict(zip(names, (1, 3, 1, 700, 64), strict=True))
    return (*trials, Trial(few, dtype, {**config, "programs": 2}))


_MLA = {
    "block_h": 16, "block_s": 16, "splits": 1, "num_warps": 4, "num_stages": 1, "tma": 0, "pdl": 0,
    "variant": "generic",
}  # fmt: skip


def mla_decode_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of mla_decode: one key, blocks of heads and keys that are not full, one and several splits."""
    if dtype == "fp32":
        return ()
    return (
        Trial({"B": 1, "H": 1, "S": 1}, dtype, _MLA),
        Trial({"B": 2, "H": 19, "S": 37}, dtype, _MLA),
        Trial({"B": 2, "H": 17, "S": 67}, dtype, {**_MLA, "splits": 3}),
        # Scores of these exceed the exponent range of fp32.
        Trial({"B": 1, "H": 3, "S": 41}, dtype, _MLA, scale=256.0),
    )


def mla_cluster_trials(dtype: str) -> tuple[Trial, ...]:
    """Return trials of mla_decode's CUDA C++ for sm_90: whole and ragged tiles, from one to more than the stages."""
    if dtype == "fp32":
        return ()
    config = {**_MLA, "block_h": 64, "block_s": 64, "num_warps": 16, "num_stages": 2, "tma": 1, "pdl": 1}
    config["variant"] = "cuda"
    sizes = (
        (1, 128, 1, 1.0), (1, 128, 64, 1.0), (2, 128, 65, 1.0), (3, 256, 128, 1.0), (2, 128, 191, 1.0),
        (1, 384, 577, 1.0), (2, 128, 1999, 1.0),
        # More CTAs than are resident at once, and scores so far apart that references rise again and again.
        (70, 128, 331, 1.0), (2, 128, 1087, 16.0), (1, 128, 640, 256.0),
    )  # fmt: skip
    # Splits of one tile and of several, not as many each; two blocks of two clusters.
    split = (
        (1, 128, 1024, 16, 1.0), (2, 128, 1031, 16, 1.0), (1, 128, 4160, 64, 1.0), (1, 256, 1999, 16, 1.0),
        (3, 128, 1700, 16, 16.0), (1, 128, 4200, 64, 256.0), (1, 128, 2200, 32, 256.0), (2, 128, 3000, 32, 16.0),
        (1, 128, 256, 4, 1.0), (3, 256, 1031, 4, 16.0), (1, 128, 512, 8, 1.0), (2, 128, 777, 8, 256.0),
        # What the launch rule takes, whole and ragged.
        (1, 128, 8192, 64, 1.0), (1, 128, 12345, 64, 1.0), (1, 128, 8192, 32, 1.0), (1, 128, 2049, 32, 1.0),
        (2, 128, 4099, 32, 1.0), (1, 256, 2048, 32, 1.0), (4, 128, 4096, 16, 1.0), (3, 128, 5001, 16, 16.0),
    )  # fmt: skip
    return (
        *(Trial({"B": b, "H": h, "S": s}, dtype, config, scale) for b, h, s, scale in sizes),
        *(
            Trial({"B": b, "H": h, "S": s}, dtype, {**config, "splits": n}, scale)
            for b, h, s, n, scale in (split if dtype == "bf16" else ())
        ),
    )


TRIALS = {
    "decode_attention": decode_attention_trials,
    "flash_attention": flash_attention_trials,
    "flash_attention_causal": flash_attention_trials,
    "mla_decode": mla_decode_trials,
}


def _heads(*sizes: tuple[int, int, int, int, int]) -> tuple[dict[str, int], ...]:
    return tuple(dict(zip(("B", "HQ", "HKV", "S", "D"), size, strict=True)) for size in sizes)


_FLASH_SHAPES = _heads(
    (1, 2, 1, 1, 128), (1, 2, 1, 127, 128), (1, 2, 1, 129, 128), (2, 6, 2, 63, 64), (2, 6, 2, 257, 64),
    (2, 16, 16, 2500, 128), (1, 32, 8, 2200, 64), (1, 3, 1, 333, 40), (1, 2, 2, 700, 96), (3, 2, 2, 515, 120),
    (1, 6, 2, 131, 32), (1, 3, 1, 300, 256), (2, 16, 4, 1100, 200), (1, 1, 1, 1900, 64), (1, 2, 1, 1500, 128),
    (9, 16, 16, 129, 128), (5, 32, 4, 65, 96), (3, 64, 32, 257, 64), (2, 70, 10, 131, 256), (9, 16, 2, 127, 176),
    # Tiles of 128 keys with 192 columns, and causal 256 columns of a long sequence; several blocks a CTA.
    (2, 16, 4, 1031, 184), (1, 6, 2, 3100, 256),
)  # fmt: skip
# Shapes that their own rule configures: on sm_90 most take a variant that other targets lack.
ODD_SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "flash_attention": _FLASH_SHAPES,
    "flash_attention_causal": _FLASH_SHAPES,
    "decode_attention": _heads(
        (1, 17, 1, 70, 16), (6, 32, 8, 777, 128), (2, 7, 1, 5001, 64), (1, 64, 4, 3000, 128), (1, 16, 2, 900, 256),
        (2, 32, 32, 300, 128), (1, 32, 8, 1, 128), (1, 32, 8, 63, 80), (1, 6, 2, 65, 40), (3, 9, 3, 12345, 120),
        (1, 64, 2, 999, 128), (2, 8, 2, 1031, 131),
    ),
    "mla_decode": tuple(
        {"B": b, "H": h, "S": s}
        for b, h, s in ((2, 128, 64), (2, 128, 65), (5, 128, 1000), (1, 64, 700), (2, 16, 1300), (70, 128, 300),
                        (40, 128, 900), (1, 128, 8192), (2, 128, 2049), (4, 128, 4133))
    ),
}  # fmt: skip

_DEVICE = "common/attention_device.py"
_SCALE = "common/attention_family.py"
_DECODE_DEVICE, _MLA_DEVICE = "decode_attention/device.py", "mla_decode/device.py"
MUTANTS: tuple[Mutant, ...] = (
    *(
        Mutant("decode_attention", *edit, _DECODE_DEVICE)
        for edit in (
            ("missing_max_subtraction", "exponentials = tl.exp2(scores - new_maximum[None, :])",
             "exponentials = tl.exp2(scores) * tl.exp2(-new_maximum)[None, :]"),
            ("uncorrected_sum", "total = total * correction + tl.sum(exponentials, axis=0)",
             "total = total + tl.sum(exponentials, axis=0)"),
            ("lost_last_step", "last = (split + 1) * steps // SPLITS",
             "last = tl.maximum((split + 1) * steps // SPLITS - split // 2, first + 1)"),
            ("dropped_key_mask", "scores = tl.where((keys < n_keys)[:, None], scores, -float(\"inf\"))",
             "scores = scores + 0.0"),
            ("unscaled_scores", "input_precision=\"ieee\") * scale_log2", "input_precision=\"ieee\")"),
            ("uncorrected_output", "acc * correction[None, :], input_precision", "acc, input_precision"),
            ("unscaled_output", "y = result / total[:, None]", "y = result"),
            ("racy_split", "if arrives_last(arrivals_ptr, head, SPLITS):", "if split == 0:"),
            ("counter_not_reset", "tl.store(arrivals_ptr + head, 0)", "pass"),
            ("unweighted_splits", "weights = tl.exp2(maxima - top[None, :])",
             "weights = tl.where(known, 1.0, 0.0)"),
            ("wrong_key_head", "cache_row = key_head.to(tl.int64) * n_keys",
             "cache_row = (key_head // 2).to(tl.int64) * n_keys"),
            ("first_share_again", "share = head % SHARERS * GROUP", "share = head % SHARERS * 0"),
            ("last_share_taken_for_full", "live = tl.minimum(HEADS - share, GROUP)", "live = GROUP"),
        )
    ),
    Mutant("decode_attention", "natural_exponent", "return math.log2(math.e) / math.sqrt(d)",
           "return 1.0 / math.sqrt(d)", _SCALE),
    *(
        mutant
        for kernel in ("flash_attention", "flash_attention_causal")
        for mutant in (
            Mutant(kernel, "missing_max_subtraction",
                   "exponentials = tl.exp2(scores * scale_log2 - new_maximum[:, None])",
                   "exponentials = tl.exp2(scores * scale_log2) * tl.exp2(-new_maximum)[:, None]", _DEVICE),
            Mutant(kernel, "dropped_key_mask", "seen = (keys < n_rows)[None, :]",
                   "seen = (keys < n_rows + 1000)[None, :] & (query_rows < n_rows + 1000)[:, None]", _DEVICE),
            Mutant(kernel, "uncorrected_output", "acc = acc * correction[:, None]", "acc = acc * 1.0", _DEVICE),
            Mutant(kernel, "uncorrected_sum", "total = total * correction + tl.sum", "total = total + tl.sum", _DEVICE),
            Mutant(kernel, "unscaled_output", "acc = acc / total[:, None]", "acc = acc / 1.0", _DEVICE),
            Mutant(kernel, "natural_exponent", "return math.log2(math.e) / math.sqrt(d)",
                   "return 1.0 / math.sqrt(d)", _SCALE),
            Mutant(kernel, "racy_split", "if not arrives_last(arrivals_ptr, tile, SPLITS):", "if split != 0:", _DEVICE),
            Mutant(kernel, "counter_not_reset", "tl.store(arrivals_ptr + tile, 0)", "pass", _DEVICE),
            Mutant(kernel, "unweighted_splits",
                   "weight = tl.exp2(tl.load(of_part, cache_modifier=\".cg\") - maximum)",
                   "weight = tl.exp2(0.0 * maximum)", _DEVICE),
            Mutant(kernel, "lost_last_split", "((split + 1) * tiles // SPLITS * BLOCK_N, end)",
                   "((split + 1) * tiles // SPLITS * BLOCK_N, end - BLOCK_N)", _DEVICE),
            Mutant(kernel, "lost_edge", "if plain < end:", "if plain + BLOCK_N <= end:", _DEVICE),
            Mutant(kernel, "wrong_key_head", "kv_head = head // GROUP",
                   "kv_head = head % (tl.num_programs(0) // GROUP)", _DEVICE),
        )
        if (kernel, mutant.name) != ("flash_attention_causal", "dropped_key_mask")
    ),
    Mutant("flash_attention_causal", "dropped_diagonal", "seen = seen & (keys[None, :] <= query_rows[:, None])",
           "seen = seen & (keys[None, :] <= query_rows[:, None] + 1000)", _DEVICE),
    Mutant("flash_attention_causal", "strict_diagonal", "keys[None, :] <= query_rows[:, None]",
           "(keys[None, :] < query_rows[:, None]) | (keys[None, :] == 0)", _DEVICE),
    Mutant("flash_attention_causal", "mask_from_the_next_tile",
           "plain = (row if CAUSAL else n_rows) // BLOCK_N * BLOCK_N",
           "plain = (row + BLOCK_M if CAUSAL else n_rows) // BLOCK_N * BLOCK_N", _DEVICE),
    *(
        Mutant("mla_decode", *edit, _MLA_DEVICE)
        for edit in (
            ("missing_max_subtraction", "exponentials = tl.exp2(scores - new_maximum[:, None])",
             "exponentials = tl.exp2(scores) * tl.exp2(-new_maximum)[:, None]"),
            ("dropped_key_mask", "scores = tl.where((keys < n_keys)[None, :], scores, -float(\"inf\"))",
             "scores = scores + 0.0"),
            ("dropped_rope", "scores = tl.dot(q_rope, tl.trans(rope_tile))",
             "scores = 0.0 * tl.dot(q_rope, tl.trans(rope_tile))"),
            ("uncorrected_output", "acc * correction[:, None])", "acc)"),
            ("racy_split", "if arrives_last(arrivals_ptr, tile, SPLITS):", "if split == 0:"),
            ("counter_not_reset", "tl.store(arrivals_ptr + tile, 0)", "pass"),
            ("unweighted_splits", "weight = tl.exp2(tl.load(stats, cache_modifier=\".cg\") - maximum)",
             "weight = tl.exp2(0.0 * maximum)"),
        )
    ),
    Mutant("mla_decode", "scale_of_the_whole_width", "math.log2(math.e) * MLA_SCALE",
           "math.log2(math.e) * 576**-0.5", "mla_decode/launch.py"),
)  # fmt: skip

# Wrong twins of the CUDA C++, with the number of the run in test_attention_cuda.py that shows each on a CPU.
CUDA_MUTANTS: tuple[tuple[int, Mutant], ...] = tuple(
    (run, Mutant("decode_attention", name, find, replace, file="decode_attention/decode.cu"))
    for run, name, find, replace in (
        (1, "unmasked_keys", "if (at + BLOCK_S > n_keys) {", "if (at + BLOCK_S > n_keys + 99) {"),
        (5, "uncorrected_output", "acc[i][0] *= even; acc[i][1] *= odd;", "acc[i][1] *= odd;"),
        (5, "uncorrected_sum", "total *= correction;", ""),
        (5, "correction_of_another_head", "correction, quad * 8 + 4)", "correction, quad * 8)"),
        (9, "queries_of_the_head_before", "if (STREAM_K && own_step < 0) load_q();", ""),
        (2, "values_of_the_step_before", "if (steps_left > 0) load_v();", "if (steps_left > WARPS) load_v();"),
        (5, "unweighted_parts", "const float a = weight(stats.x, top), b", "const float a = 1.f, b"),
        (6, "parts_not_emptied", "from[e + j] = __uint_as_float(UNWRITTEN);", ""),
        (6, "stats_not_emptied", "i < ((int)blockIdx.x - writer) * 2 * GROUP", "i < 0"),
        (6, "one_part_too_few", "w = writer; w < (int)blockIdx.x;", "w = writer + 1; w < (int)blockIdx.x;"),
        (4, "sent_to_the_wrong_place", "&received[rank].values[e % SHARE]", "&received[rank].values[e]"),
        (3, "keyless_part_counted",
         "reference == -INFINITY ? 0.f : exp2_approx", "reference == INFINITY ? 0.f : exp2_approx"),
        (8, "parts_of_the_first_only",
         "w < (int)blockIdx.x; w += PARTS_IN_FLIGHT", "w <= writer; w += PARTS_IN_FLIGHT"),
        (1, "undivided_result", "const float share = 1.f / sum;", "const float share = 1.f;"),
    )
)  # fmt: skip
# Only where CTAs really run at once does a result without its wait differ; and what is not emptied shows in the
# workspace, which a GPU's trial does not see, and in the next result by chance.
GPU_MUTANTS: tuple[Mutant, ...] = (
    *(mutant for _, mutant in CUDA_MUTANTS if not mutant.name.endswith("_not_emptied")),
    Mutant("decode_attention", "parts_not_waited_for", "} while (waiting);", "} while (false);",
           file="decode_attention/decode.cu"),
)  # fmt: skip
