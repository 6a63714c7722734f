"""Runs the attention kernels in Gluon on NumPy arrays: their protocols, and wrong ones that must show.

What a NumPy run cannot show (layouts, fences, the compiler) is tested on a GPU by test_kernel_attention.py.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from covering import one_in
from loaded_kernels import load_kernel
from mutants.kernels import Mutant
from mutants.twin import load_twin
from warps import Deadlock, Descriptor, Pointer, run_specialised

from ledger.kernel import Kernel

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "triton")),
    reason="torch and triton are not both installed",
)
EMPTY = 0x7FFFDEAD
SEEDS = range(3)
Shape = dict[str, int]


DEVICE_CODE = {
    **dict.fromkeys(("flash_attention", "flash_attention_causal"), "common/attention_device.py"),
    **{name: f"{name}/device.py" for name in ("decode_attention", "mla_decode")},
}


def _module(kernel: Kernel) -> ModuleType:
    """Return the module with a kernel's device code, of those that were loaded with the kernel."""
    package, inside, _ = kernel.config.__module__.partition(".ledger.kernels.")
    module = DEVICE_CODE[kernel.name].removesuffix(".py").replace("/", ".")
    return sys.modules[f"{package}{inside}{module}"]


def _softmax(scores: Any) -> Any:
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def _empty(size: int) -> Any:
    return np.full(size, EMPTY, np.int32).view(np.float32)


def _flash(module: ModuleType, shape: Shape, seed: int, *, causal: bool = False) -> float:
    """Return the largest error of blocks of 2·16 queries and 32 or 16 keys, three programs, two launches."""
    heads, group, s, d, keys, pingpong, tail, slots = (
        shape[key] for key in ("heads", "group", "S", "D", "keys", "pingpong", "tail", "slots")
    )
    random = np.random.default_rng(seed)
    q, k, v = (random.standard_normal((n, s, d)).astype(np.float16) for n in (heads, heads // group, heads // group))
    scores = np.einsum("hid,hjd->hij", q.astype(float), np.repeat(k, group, 0).astype(float)) / math.sqrt(d)
    if causal:
        scores = np.where(np.tril(np.ones((s, s), bool)), scores, -np.inf)
    expected = _softmax(scores) @ np.repeat(v, group, 0).astype(float)
    block_d = 16 if tail else max(16, 1 << (d - 1).bit_length())
    fetched, worst = np.zeros(1, np.int32), 0.0
    for launch in range(2):
        y = np.full((heads, s, d), np.nan, np.float16)
        operands = [
            Descriptor(a, [1, n, columns])
            for columns in (block_d, tail or block_d)
            for a, n in ((q, 16), (k, keys), (v, keys), (y, 16))
        ]
        scale = np.float32(math.log2(math.e) / math.sqrt(d))
        sizes = (s, heads, 2, scale, group, int(causal), 9 if pingpong else 3, slots, pingpong, tail)
        programs = min(3, heads * -(-s // 32))
        run_specialised(
            module, "attention_warp_specialised", (programs,), [*operands, Pointer(fetched), *sizes], seed + launch
        )
        worst = max(worst, _error(y, expected))
    return worst


def _mla(module: ModuleType, shape: Shape, seed: int) -> float:
    """Return the largest error of tiles of 8 heads, 16 keys and 4 · 32 + 16 columns, two launches."""
    b, h, s, splits, gain = (shape[key] for key in ("B", "H", "S", "splits", "gain"))
    random = np.random.default_rng(seed)
    q, cache = (random.standard_normal((b, n, 144)).astype(np.float16) for n in (h, s))
    q *= np.float16(gain)
    expected = _softmax(q.astype(float) @ cache.astype(float).transpose(0, 2, 1) / 12) @ cache[:, :, :128]
    blocks, worst = -(-h // 8), 0.0
    partial, stats = _empty(b * blocks * splits * 8 * 128), _empty(b * blocks * splits * 8 * 4)
    for launch in range(2):
        y = np.full((b, h, 128), np.nan, np.float16)
        blocks_of = ((q, 8, 32), (q, 8, 16), (cache, 16, 32), (cache, 16, 16), (y, 8, 32))
        operands = [Descriptor(a, [1, rows, columns]) for a, rows, columns in blocks_of]
        pointers = [Pointer(a) for a in (y.reshape(-1), partial, stats)]
        sizes = (h, s, np.float32(math.log2(math.e) / 12), splits, 1)
        run_specialised(
            module, "mla_decode_warp_specialised", (blocks, splits, b), [*operands, *pointers, *sizes], seed + launch
        )
        worst = max(worst, _error(y, expected), _left_behind(partial, stats))
    return worst


def _decode(module: ModuleType, shape: Shape, seed: int) -> float:
    """Return the largest error of tiles of 16 keys, two launches."""
    heads, group, s, d, splits = (shape[key] for key in ("heads", "group", "S", "D", "splits"))
    random = np.random.default_rng(seed)
    q, k, v = (random.standard_normal((heads, n, d)).astype(np.float16) for n in (group, s, s))
    expected = _softmax(q.astype(float) @ k.astype(float).transpose(0, 2, 1) / math.sqrt(d)) @ v.astype(float)
    whole = {"HQ": heads * group, "HKV": heads, "D": d}
    launch = sys.modules[module.__name__.replace(".device", ".launch")]
    config = {"splits": splits, "num_stages": 2, "pdl": 1, "late_trigger": 0}
    constants = launch.pipelined_constants(config, whole)
    slots, worst = heads * constants["READERS"] * splits * constants["ROWS"], 0.0
    partial, stats = _empty(slots * constants["COLS"]), _empty(slots * 2)
    block_g, block_d = max(8, 1 << (group - 1).bit_length()), 1 << (d - 1).bit_length()
    for turn in range(2):
        y = np.full((heads, group, d), np.nan, np.float16)
        operands = [Descriptor(a, [1, n, block_d]) for a, n in ((q, block_g), (k, 16), (v, 16))]
        pointers = [Pointer(a) for a in (y.reshape(-1), partial, stats)]
        sizes = (s, d, np.float32(math.log2(math.e) / math.sqrt(d)), *constants.values())
        run_specialised(
            module,
            "decode_attention_software_pipelined",
            (heads * splits,),
            [*operands, *pointers, *sizes],
            seed + turn,
        )
        worst = max(worst, _error(y, expected), _left_behind(partial, stats))
    return worst


def _error(y: Any, expected: Any) -> float:
    return math.inf if np.isnan(y).any() else float(np.abs(y.astype(float) - expected).max())


def _left_behind(*workspaces: Any) -> float:
    """Return infinity when a workspace is not as the next launch needs it."""
    return 0.0 if all((space.view(np.int32) == EMPTY).all() for space in workspaces) else math.inf


RUNS: dict[str, Callable[[ModuleType, Shape, int], float]] = {
    "flash_attention": _flash,
    "flash_attention_causal": functools.partial(_flash, causal=True),
    "mla_decode": _mla,
    "decode_attention": _decode,
}
_FLASH = tuple(
    {"heads": heads, "group": group, "S": s, "D": d, "keys": keys, "pingpong": pingpong, "tail": tail, "slots": slots}
    for keys, pingpong, tail, slots, sizes in (
        *(
            (keys, pingpong, 0, 2, ((1, 1, 1, 16), (2, 1, 64, 16), (6, 3, 71, 19), (4, 2, 130, 32), (2, 2, 200, 16)))
            for keys, pingpong in ((32, 0), (32, 1), (16, 0))
        ),
        # Columns in two parts: of one width, and a second that is half of the first; one or two blocks of queries.
        (16, 0, 16, 1, ((2, 2, 71, 32), (3, 1, 130, 27))),
        (32, 1, 8, 1, ((2, 2, 71, 24), (6, 1, 130, 19))),
        # One tile of keys and many blocks a program.
        (32, 0, 8, 1, ((12, 1, 20, 19),)),
        (16, 0, 8, 2, ((2, 2, 71, 24), (3, 1, 130, 19))),
    )
    for heads, group, s, d in sizes
)
SHAPES: dict[str, tuple[Shape, ...]] = {
    "flash_attention": _FLASH,
    "flash_attention_causal": _FLASH,
    "mla_decode": tuple(
        # With a gain of 16 maxima rise by more than what is left uncorrected.
        dict(zip(("B", "H", "S", "splits", "gain"), sizes, strict=True))
        for sizes in ((1, 1, 1, 1, 1), (2, 11, 37, 1, 1), (1, 8, 67, 2, 1), (2, 9, 70, 4, 16), (1, 8, 99, 1, 16))
    ),
    "decode_attention": tuple(
        dict(zip(("heads", "group", "S", "D", "splits"), sizes, strict=True))
        for sizes in (
            (1, 1, 4, 16, 1), (4, 3, 37, 19, 1), (4, 3, 131, 19, 3), (2, 1, 128, 64, 8), (1, 6, 70, 16, 4),
            (2, 8, 97, 32, 2), (1, 4, 200, 32, 13),
        )
    ),
}  # fmt: skip
CASES = [
    pytest.param(name, shape, id="-".join((name, *(f"{key}{value}" for key, value in shape.items()))))
    for name, shapes in SHAPES.items()
    for shape in shapes
]
# One rounding to fp16 of results below 4, and of exponentials up to 1 that weigh values below 5.
TOLERANCE = 5e-3


@pytest.mark.parametrize(("name", "shape"), CASES)
@pytest.mark.parametrize("seed", one_in(4, SEEDS, str))
def test_attention_in_gluon_is_right_in_any_order(name: str, shape: Shape, seed: int) -> None:
    assert RUNS[name](_module(load_kernel(name, launch=True).kernel), shape, seed) < TOLERANCE


def _flash_mutants(name: str) -> tuple[Mutant, ...]:
    arrive = "                hopper.mbarrier.arrive(order.index(1 - PART), count=1)\n"
    edits = (
        ("values_not_waited_for",
               "            hopper.mbarrier.wait(full.index(v_stage), (done + 1) // STAGES & 1)\n", ""),
        ("tile_held_by_one_half_only",
               "hopper.mbarrier.init(empty.index(i), count=2)", "hopper.mbarrier.init(empty.index(i), count=1)"),
        ("wrong_phase",
               "wait(empty.index(stage), (done // STAGES & 1) ^ 1)", "wait(empty.index(stage), done // STAGES & 1)"),
        ("counter_not_reset", "gl.store(fetched_ptr, 0)", "pass"),
        ("queries_overwritten",
               "        hopper.mbarrier.wait(q_empty.index(slot), (turn // SLOTS & 1) ^ 1)\n        blocks",
               "        blocks"),
        ("last_message_too_early",
               "    hopper.mbarrier.wait(q_empty.index(slot), (turn // SLOTS & 1) ^ 1)\n    blocks", "    blocks"),
        ("result_not_waited_for", "        hopper.tma.store_wait(0)\n", ""),
        ("turn_not_passed_on",
               f"            if PINGPONG:\n{arrive}            products", "            products"),
        ("uncorrected_output", "acc = acc * gl.convert_layout(correction, o_rows)[:, None]", "acc = acc * 1.0"),
        ("product_not_waited_for",
               "hopper.warpgroup_mma_wait(PARTS, deps=(pending,))",
               "hopper.warpgroup_mma_wait(PARTS + 1, deps=(pending,))"),
        ("last_tile_unmasked",
               'scores = gl.where(visible, scores, -float("inf"))', "scores = scores + 0.0"),
        ("tail_uncorrected", "tail = tail * gl.convert_layout(correction, tail_rows)[:, None]", "tail = tail * 1.0"),
        ("tail_of_the_first_columns", "[head, row, source.block_shape[2]]", "[head, row, 0]"),
    )  # fmt: skip
    return tuple(Mutant(name, *edit, DEVICE_CODE[name]) for edit in edits)


MUTANTS: tuple[Mutant, ...] = (
    *_flash_mutants("flash_attention"),
    *_flash_mutants("flash_attention_causal"),
    Mutant("flash_attention_causal", "diagonal_of_the_last_tile", "if i < MASKED:", "if i < 1:",
           DEVICE_CODE["flash_attention_causal"]),
    Mutant("flash_attention_causal", "no_key_seen", "-1e30 if MASKED > 1 else", "",
           DEVICE_CODE["flash_attention_causal"]),
    *(
        Mutant("mla_decode", *edit, "mla_decode/device.py")
        for edit in (
            ("piece_released_early",
             "        acc = hopper.warpgroup_mma_wait(1, deps=(pending,))\n"
             "        hopper.mbarrier.arrive(empty.index(slot), count=1)\n",
             "        hopper.mbarrier.arrive(empty.index(slot), count=1)\n"
             "        acc = hopper.warpgroup_mma_wait(1, deps=(pending,))\n"),
            ("product_not_waited_for",
             "hopper.warpgroup_mma_wait(1, deps=(pending,))", "hopper.warpgroup_mma_wait(2, deps=(pending,))"),
            ("piece_not_waited_for", "hopper.mbarrier.wait(full.index(stage * 3 + piece - 1), phase)", "pass"),
            ("wrong_phase", "phase = (i // 2 & 1) ^ 1", "phase = i // 2 & 1"),
            ("exponentials_not_waited_for", "hopper.mbarrier.wait(p_full.index(stage), i // 2 & 1)", "pass"),
            ("held_back_for_scores_that_never_come", "& 1, pred=i + 1 < steps)", "& 1)"),
            ("statistics_signalled_too_early",
             "    stats.index(0).store(reference)\n    stats.index(1).store(total)\n"
             "    hopper.mbarrier.arrive(stats_full, count=1)\n",
             "    hopper.mbarrier.arrive(stats_full, count=1)\n"
             "    stats.index(0).store(reference)\n    stats.index(1).store(total)\n"),
            ("uncorrected_output", "            acc = acc * correction\n", "            acc = acc * 1.0\n"),
            ("uncorrected_sum", "total = total * correction + gl.sum(exponentials, axis=1)",
             "total = total + gl.sum(exponentials, axis=1)"),
            ("unmasked_keys", "if at + BLOCK_S > n_keys:", "if at + BLOCK_S > n_keys + 99:"),
            ("parts_not_waited_for",
             "waiting = any_of(gl.max(is_unwritten(values).to(gl.int32), axis=2))", "waiting = 0"),
            ("parts_not_emptied", "gl.store(partial_ptrs + chunk * COLS, reset)", "pass"),
        )
    ),
    *(
        Mutant("decode_attention", *edit, "decode_attention/device.py")
        for edit in (
            ("values_not_waited_for", "hopper.mbarrier.wait(v_full.index(stage), phase)", "pass"),
            ("wrong_phase", "phase = step // STAGES & 1", "phase = 0"),
            ("wrong_tile", "head, step + STAGES, first, last)", "head, step + STAGES - 1, first, last)"),
            ("unmasked_keys", "* BLOCK_S + keys < n_keys)[:, None]", "* BLOCK_S + keys < n_keys + 99)[:, None]"),
            ("parts_not_emptied", "gl.store(maxima_ptrs + ROWS, reset, mask=known)", "pass"),
            ("absent_rows_waited_for",
             "known = (part < SPLITS) & (element // BLOCK_D + row < GROUP)", "known = (part < SPLITS) & (row >= 0)"),
        )
    ),
)  # fmt: skip


@pytest.mark.parametrize("mutant", one_in(9, MUTANTS, lambda mutant: f"{mutant.kernel}-{mutant.name}"))
def test_run_of_gluon_rejects_mutant(mutant: Mutant, tmp_path: Path) -> None:
    module = _module(load_twin(mutant, tmp_path))
    assert any(_rejected(module, mutant.kernel, shape, seed) for shape in SHAPES[mutant.kernel] for seed in SEEDS)


def _rejected(module: ModuleType, name: str, shape: Shape, seed: int) -> bool:
    try:
        return not RUNS[name](module, shape, seed) < TOLERANCE
    except (Deadlock, AssertionError):
        return True
