"""Builds the kernels of attention over whole sequences, causal or not: launch rule, checks, plans of the launches.

Shapes: q, y (B, HQ, S, D), k, v (B, HKV, S, D), row-major and of one dtype; HQ is a multiple of HKV. The variants are
"generic", Triton for all targets, which may divide the keys of a block of queries among programs; for sm_90 and 16-bit
rows "warp_specialised", Gluon for 65 to 256 columns, and "cuda", CUDA C++ for 33 to 64 columns. Imports torch, only
when called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ledger.errors import InputError
from ledger.kernel import Kernel
from ledger.operations import Operation, Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

from . import attention_cuda, configs
from .attention_device import attention_kernel, attention_warp_specialised
from .attention_family import WIDEST_UNIT, Family, scale_log2, sdpa_baselines, sdpa_cpu
from .decode import check_splits, counted_workspaces
from .launches import constants_of, options_of
from .plans import CudaPlan, Operand, Plan, Workspace
from .targets import SHARED_BYTES, TMA_ALIGNMENT, TMA_TARGETS, ceil_div, sms_of

if TYPE_CHECKING:
    from torch import Tensor

KEYS = ("block_m", "block_n", "num_warps", "num_stages", "splits", "tma", "variant", "programs", "pingpong")
VARIANTS = ("generic", "warp_specialised", "cuda")

CASES: tuple[Shape, ...] = (
    *({"B": 16384 // s, "HQ": 16, "HKV": 16, "S": s, "D": d} for s in (2048, 4096, 8192, 16384) for d in (64, 128)),
    {"B": 1, "HQ": 32, "HKV": 8, "S": 4096, "D": 128},
    {"B": 1, "HQ": 1, "HKV": 1, "S": 1, "D": 1},
    {"B": 2, "HQ": 6, "HKV": 2, "S": 1031, "D": 67},
)

# (target, widest D) -> (block_m, block_n, num_warps, num_stages). On sm_90 measured on an H200 at S = 6144; two
# programs an SM there, so that the softmax of one overlaps the products of the other.
_TILES = {
    ("sm_75", 64): (32, 32, 8, 1),
    ("sm_75", 128): (32, 16, 8, 1),
    ("sm_80", 64): (128, 64, 8, 2),
    ("sm_80", 128): (128, 32, 8, 2),
    ("sm_89", 64): (64, 64, 4, 2),
    ("sm_89", 128): (64, 64, 4, 2),
    ("sm_90", 64): (64, 128, 4, 2),
    ("sm_90", 128): (128, 64, 4, 2),
    ("sm_100", 64): (128, 64, 8, 2),
    ("sm_100", 128): (128, 64, 8, 2),
    ("gfx942", 64): (128, 64, 4, 1),
    ("gfx942", 128): (128, 32, 4, 1),
}
# Columns of a tile on sm_90 -> variant, keys and stages of a tile: the most that fit beside the blocks of queries, two
# up to 128 columns and one of more. Measured on an H200, as are the exceptions below (benchmarks/drawn-h200.json).
_SPECIALISED = {
    attention_cuda.COLUMNS: ("cuda", attention_cuda.BLOCK_N, attention_cuda.STAGES),
    128: ("warp_specialised", 128, 5),
    192: ("warp_specialised", 128, 3),
    256: ("warp_specialised", 64, 5),
}
# The same for short sequences of 192 columns, of which large tiles leave more unused; queries up to which they are
# short, causal ones where CTAs have several blocks. For causal sequences of 256 columns, where the next queries are
# loaded early: queries up to which they are, and stages.
_SMALL_TILES, _SHORT, _SHORT_CAUSAL = (64, 5), 768, 1024
_EARLY_QUERIES, _EARLY_STAGES = 3072, 3
_FIXED = {
    "warp_specialised": {"block_m": 128, "num_warps": 4},
    "cuda": {
        "block_m": attention_cuda.BLOCK_M, "block_n": attention_cuda.BLOCK_N, "num_warps": attention_cuda.WARPS,
    },
}  # fmt: skip


class _Few(NamedTuple):
    """Hold the times of few blocks of queries, in microseconds, by columns of a tile; fitted on an H200.

    step: 128 keys (64 of more than 128 columns) and 64 queries in Triton. specialised: the same keys and a block there.
    split: what each part of divided keys adds. programs: of Triton that share an SM. Source:
    benchmarks/drawn-h200.json.
    """

    step: float
    specialised: float
    split: float
    programs: int


# Rows of fewer than 33 columns have no specialised variant.
_FEW_BLOCKS = {
    32: _Few(1.27, math.inf, 0.3, 2),
    64: _Few(1.27, 1.63, 0.3, 2),
    128: _Few(1.55, 1.55, 0.7, 1),
    192: _Few(2.25, 1.1, 1.9, 2),
    256: _Few(2.25, 1.37, 1.9, 2),
}
# Beside them: the time of two programs on an SM over that of one; microseconds of dividing keys at all, and by which
# the specialised variants begin later; the share of their time that causal blocks take; the least steps divided.
_CROWDED, _DIVIDED, _LATER, _CAUSAL, _LEAST_STEPS = 1.35, 2.0, 0.8, 0.9, 6
# Of 64 columns: microseconds of 64 keys for four programs of 64 queries on an SM.
_FOUR_PROGRAMS = 1.28
# Bytes of keys and values that are in use at one time: about half of L2.
_L2_SHARE = 32 << 20
# Shared memory of the Gluon kernel beside its tiles, and keys of a tile, at most.
_BARRIERS, _MOST_KEYS = 1024, 128
_REFERENCE_ROWS = 4096
_MOST_SPLITS = 16


def block_d(shape: Shape) -> int:
    """Return the columns of a tile: D rounded up to a power of two."""
    return max(1 << (shape["D"] - 1).bit_length(), 16)


def _tail(shape: Shape) -> int:
    """Return the columns beyond the first 128 that the specialised variant keeps in tiles of their own."""
    return 0 if shape["D"] <= 128 else 64 if shape["D"] <= 192 else 128


def _specialised_columns(shape: Shape) -> int:
    """Return the columns of a tile of the specialised variants."""
    return 128 + _tail(shape) if 128 < shape["D"] <= 256 else block_d(shape)


def _slots(config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
    """Return for how many blocks of queries a CTA of the Gluon kernel has room: two where they fit, or one."""
    width = DTYPE_BYTES[dtype] * _specialised_columns(shape)
    held = 2 * config["block_m"] * width + config["num_stages"] * config["block_n"] * width + _BARRIERS
    return 2 if held <= SHARED_BYTES["sm_90"] else 1


def shared_bytes(config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of a program, in bytes."""
    if config["variant"] == "cuda":
        return attention_cuda.shared_bytes(config)
    specialised = config["variant"] == "warp_specialised"
    width = DTYPE_BYTES[dtype] * (_specialised_columns(shape) if specialised else block_d(shape))
    queries, keys = config["block_m"] * width, config["block_n"] * width
    if specialised:
        return int(_slots(config, shape, dtype) * queries + config["num_stages"] * keys + _BARRIERS)
    exponentials = DTYPE_BYTES[dtype] * config["block_m"] * config["block_n"]
    return int(queries + 2 * max(config["num_stages"], 1) * keys + exponentials + 8192)


def shape_of(inputs: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the shape of inputs."""
    b, hq, s, d = inputs["q"].shape
    return {"B": b, "HQ": hq, "HKV": inputs["k"].shape[1], "S": s, "D": d}


def _section(shape: Shape) -> int:
    """Return how many query heads may be in flight at once so that their keys and values stay in L2."""
    heads = _L2_SHARE // (4 * shape["S"] * _specialised_columns(shape))
    return max(1, heads) * (shape["HQ"] // shape["HKV"])


def _operands(config: Mapping[str, Any], shape: Shape) -> dict[str, Operand]:
    s, d, tail = shape["S"], shape["D"], _tail(shape)
    specialised = config["variant"] == "warp_specialised"
    columns = 128 if specialised and tail else block_d(shape)
    queries, keys = ((shape["B"] * shape[heads], s, d) for heads in ("HQ", "HKV"))
    # Two warpgroups take half of the queries each.
    rows = config["block_m"] // 2 if specialised else config["block_m"]
    views = {"q": (rows, queries), "k": (config["block_n"], keys), "v": (config["block_n"], keys), "y": (rows, queries)}

    def of(name: str, columns: int) -> Operand:
        block_rows, view = views[name]
        return Operand(name, (1, block_rows, columns) if config["tma"] else None, view)

    operands = {name: of(name, columns) for name in views}
    if specialised:
        # Without a tail its arguments are not read.
        operands |= {f"{name}_tail": of(name, tail or columns) for name in views}
    return operands


@dataclass(frozen=True)
class Attention:
    """Hold what differs between the kernels over this code.

    scores: S -> scores of a head that are needed. pingpong: whether two warpgroups alternate in issuing their products
    with 128 columns.
    """

    name: str
    causal: bool
    scores: Callable[[int], int]
    pingpong: bool

    @property
    def family(self) -> Family:
        """Return how the kernel is launched."""
        return Family(self.name, self.plan, shape_of, self.config, self.generic_config, self.check_config)

    def call(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the result for tensors on one GPU. Shapes: as the module says."""
        return self.family.call(tuple(q.shape), q=q, k=k, v=v)

    def kernel(self, operation: Operation, *, summary: str, formula: str, excludes: str) -> Kernel:
        """Return the Kernel. excludes: what its work model excludes beside what it does in both kernels."""
        return self.family.kernel(
            operation,
            cpu=sdpa_cpu(causal=self.causal),
            summary=summary,
            formula=formula,
            work=self.work,
            excludes=f"{excludes}re-reads of k and v by each block of queries (L2), padding to tiles, the softmax",
            cases=CASES,
            reference=self.reference,
            launched="^attention_(kernel|warp_specialised|cuda)$",
            baselines=sdpa_baselines(causal=self.causal),
        )

    def work(self, shape: Shape, dtype: Dtype) -> Work:
        """Count two products of 2·D operations for each score that is needed; each operand moves once."""
        b, hq, hkv, s, d = (shape[key] for key in ("B", "HQ", "HKV", "S", "D"))
        row_bytes = DTYPE_BYTES[dtype] * d
        return Work(
            flops=4 * b * hq * self.scores(s) * d,
            bytes_read=row_bytes * (b * hq + 2 * b * hkv) * s,
            bytes_written=row_bytes * b * hq * s,
        )

    # Launch rule

    def config(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, int | str]:
        """Return the launch configuration of a shape. Raises: InputError for a target without one."""
        generic = self.generic_config(shape, dtype, target)
        if target != "sm_90" or not generic["tma"]:
            return generic
        few = self._few_blocks(generic, shape, sms_of(target))
        if few is not None or _specialised_columns(shape) not in _SPECIALISED:
            return few or generic
        return {**generic, **self._specialised(shape, sms_of(target))}

    def _specialised(self, shape: Shape, sms: int) -> dict[str, Any]:
        """Return what the specialised variants have in their configuration."""
        columns, s = _specialised_columns(shape), shape["S"]
        variant, block_n, stages = _SPECIALISED[columns]
        fixed = _FIXED[variant]
        if columns == 192:
            several = shape["B"] * shape["HQ"] * ceil_div(s, fixed["block_m"]) > sms
            if s <= (_SHORT_CAUSAL * several if self.causal else _SHORT):
                block_n, stages = _SMALL_TILES
        elif columns == 256 and self.causal and s <= _EARLY_QUERIES:
            stages = _EARLY_STAGES
        return {
            "block_n": block_n, **fixed, "num_stages": stages, "variant": variant, "programs": sms,
            "pingpong": int(self.causal if columns == 192 else self.pingpong and columns == 128),
        }  # fmt: skip

    def _few_blocks(self, generic: dict[str, Any], shape: Shape, sms: int) -> dict[str, Any] | None:
        """Return the configuration of Triton's variant where it takes less time than the specialised one, or None."""
        columns = max(_specialised_columns(shape), 32)
        if columns not in _FEW_BLOCKS:
            return None
        times, s, heads = _FEW_BLOCKS[columns], shape["S"], shape["B"] * shape["HQ"]
        wide, block_n = columns > 128, 64 if columns > 128 or s <= 64 else 128
        blocks, steps, splits = heads * ceil_div(s, 64), ceil_div(s, 64 if wide else 128), 1

        def taken(splits: int) -> float:
            crowded = _CROWDED if blocks * splits > sms else 1.0
            divided = _DIVIDED + times.split * splits if splits > 1 else 0.0
            return crowded * times.step * ceil_div(steps, splits) + divided

        together = times.programs * sms
        if blocks <= together:
            most = min(together // blocks, steps, _MOST_SPLITS) if steps >= _LEAST_STEPS else 1
            splits = min(range(1, most + 1), key=taken)
            least = taken(splits)
        elif columns == 64 and not self.causal:
            # Specialised CTAs may leave most SMs of the last wave idle.
            block_n, least = 64, _FOUR_PROGRAMS * ceil_div(s, 64) * ceil_div(blocks, 4 * sms)
        else:
            return None
        if columns in _SPECIALISED:
            rows = _FIXED[_SPECIALISED[columns][0]]["block_m"]
            waves = ceil_div(heads * ceil_div(s, rows), sms)
            if least > _LATER + times.specialised * steps * waves * (_CAUSAL if self.causal else 1.0):
                return None
        return {
            **generic, "block_m": 64, "block_n": block_n, "num_warps": 4, "num_stages": 1 if wide else 2,
            "splits": splits,
        }  # fmt: skip

    def generic_config(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
        """Return the launch configuration of the generic variant. Raises: InputError for a target without one."""
        configs.check_tuned(self.name, target)
        configs.check_16_bits(self.name, dtype, target)
        block_m, block_n, num_warps, num_stages = _TILES[target, 64 if shape["D"] <= 64 else 128]
        aligned = shape["D"] * DTYPE_BYTES[dtype] % TMA_ALIGNMENT == 0
        if not aligned and target != "sm_75":
            # Rows loaded element by element need registers for their addresses: other tiles spill.
            block_m, block_n, num_warps, num_stages = 32, 32 if shape["D"] <= 128 else 16, 8, 1
        tma = int(target in TMA_TARGETS and aligned)
        values = (block_m, block_n, num_warps, num_stages, 1, tma, VARIANTS[0], 0, 0)
        config: dict[str, Any] = dict(zip(KEYS, values, strict=True))
        while shared_bytes(config, shape, dtype) > SHARED_BYTES[target]:
            if config["num_stages"] > 1:
                config["num_stages"] -= 1
            elif max(config["block_m"], config["block_n"]) > 16:
                smaller = "block_n" if config["block_n"] > 16 else "block_m"
                config[smaller] //= 2
            else:
                raise InputError(
                    f"{self.name}: D is {shape['D']} on {target}, whose shared memory does not hold 16 such rows of "
                    "queries and keys; expected a smaller D"
                )
        return config

    def check_config(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> None:
        """Check that an architecture can run a configuration. Raises: InputError."""
        configs.check_keys(self.name, config, KEYS)
        configs.check_target(self.name, target)
        configs.check_16_bits(self.name, dtype, target)
        configs.check_groups(self.name, shape)
        powers = (("block_m", 16, 256), ("block_n", 16, 256), ("num_warps", 1, 16))
        configs.check_powers(self.name, config, powers[1:] if config["variant"] == "cuda" else powers)
        configs.check_ranges(self.name, config, (("num_stages", 1, 16),))
        rows = {"D": shape["D"]}
        configs.check_tma(self.name, config, target, rows=rows, size=DTYPE_BYTES[dtype], of=dtype)
        self._check_variant(config, shape, target)
        configs.check_shared(self.name, shared_bytes(config, shape, dtype), target, smaller="block_n")

    def _check_variant(self, config: Mapping[str, Any], shape: Shape, target: str) -> None:
        variant = config["variant"]
        if variant not in VARIANTS or (variant != "generic" and (target != "sm_90" or not config["tma"])):
            raise InputError(
                f"{self.name}: variant is {variant!r} on {target}; expected generic, or warp_specialised or cuda on "
                "sm_90 with tma 1"
            )
        if variant == "generic":
            if config["programs"] or config["pingpong"]:
                raise InputError(
                    f"{self.name}: programs and pingpong are not for the generic variant; expected 0 and 0"
                )
            check_splits(self.name, config, shape["S"], most=_MOST_SPLITS, step="block_n")
            if config["splits"] > 1 and config["block_m"] > config["block_n"]:
                # Of the keys of a split a query might see none.
                raise InputError(
                    f"{self.name}: block_m is {config['block_m']} with {config['splits']} splits; expected at most "
                    f"block_n, {config['block_n']}"
                )
            return
        fixed, columns = _FIXED[variant], [width for width, (one, *_) in _SPECIALISED.items() if one == variant]
        if any(config[key] != value for key, value in fixed.items()) or _specialised_columns(shape) not in columns:
            raise InputError(
                f"{self.name}: variant is {variant} with D={shape['D']}; expected D from {columns[0] // 2 + 1} to "
                f"{columns[-1]}, {', '.join(f'{key} {value}' for key, value in fixed.items())}"
            )
        if config["block_n"] > _MOST_KEYS:
            raise InputError(
                f"{self.name}: block_n is {config['block_n']} with variant {variant}; expected at most {_MOST_KEYS}, "
                "whose scores registers hold"
            )
        orders = (0,) if variant == "cuda" else (0, 1)
        if (
            config["num_stages"] < 3
            or config["splits"] != 1
            or config["programs"] < 1
            or config["pingpong"] not in orders
        ):
            raise InputError(
                f"{self.name}: variant is {variant}; expected 3 stages or more, splits 1, programs from 1 and pingpong "
                f"{' or '.join(map(str, orders))}"
            )

    # Launches

    def plan(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> Plan | CudaPlan:
        """Return the launch of a configuration; the dtype is that of the tensors."""
        if config["variant"] == "cuda":
            return attention_cuda.cuda_plan(config, shape, dtype, causal=self.causal, section=_section(shape))
        operands, group = _operands(config, shape), shape["HQ"] // shape["HKV"]
        heads, blocks = shape["B"] * shape["HQ"], ceil_div(shape["S"], config["block_m"])
        if config["variant"] == "warp_specialised":
            return Plan(
                function=attention_warp_specialised,
                grid=(min(heads * blocks, config["programs"]),),
                operands=operands,
                workspaces={"fetched_ptr": Workspace("i32", 1, 0)},
                sizes={
                    "n_rows": shape["S"], "n_heads": heads, "section": _section(shape),
                    "scale_log2": scale_log2(shape["D"]),
                },
                constants={
                    "GROUP": group, "CAUSAL": int(self.causal), "STAGES": config["num_stages"],
                    "SLOTS": _slots(config, shape, dtype), "PINGPONG": config["pingpong"], "TAIL": _tail(shape),
                },
                options=options_of(config, stages=False),
                gluon=True,
            )  # fmt: skip
        unit = math.gcd(shape["D"], WIDEST_UNIT)
        return Plan(
            function=attention_kernel,
            grid=(heads, blocks, config["splits"]),
            operands=operands,
            workspaces=counted_workspaces(
                tiles=heads * blocks, splits=config["splits"], rows=config["block_m"], columns=block_d(shape)
            ),
            sizes={"n_rows": shape["S"], "n_units": shape["D"] // unit, "scale_log2": scale_log2(shape["D"])},
            constants={
                "UNIT": unit, "GROUP": group, **constants_of(config, "block_m", "block_n"), "BLOCK_D": block_d(shape),
                "SPLITS": config["splits"], "CAUSAL": int(self.causal), "TMA": config["tma"],
            },
            options=options_of(config),
        )  # fmt: skip

    def reference(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the result in float64, a block of queries of one head at a time to spare memory."""
        import torch

        q, k, v = (inputs[name] for name in "qkv")
        b, hq, s, d = q.shape
        group = hq // k.shape[1]
        out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
        for batch in range(b):
            for head in range(hq):
                keys, values = k[batch, head // group].double(), v[batch, head // group].double()
                for first in range(0, s, _REFERENCE_ROWS):
                    rows = torch.arange(first, min(first + _REFERENCE_ROWS, s), device=q.device)
                    scores = q[batch, head, rows].double() @ keys.T / math.sqrt(d)
                    if self.causal:
                        scores.masked_fill_(torch.arange(s, device=q.device)[None, :] > rows[:, None], -math.inf)
                    out[batch, head, rows] = torch.softmax(scores, dim=-1) @ values
        return out
