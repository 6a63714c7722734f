"""Launches attention over whole sequences, causal or not: operands, launch rule, checks, CPU implementation, reference.

Shapes: q, y (B, HQ, S, D), k, v (B, HKV, S, D), row-major and of one dtype; HQ is a multiple of HKV. The variants are
"generic", Triton for all targets, and "warp_specialized", Gluon for sm_90 and rows of 33 to 128 16-bit columns.
Imports torch and triton, only when called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import Ahead, Config, Launch, Prepare
from ledger.operations import Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

from . import configs
from .attention_device import attention_kernel, attention_pipelined
from .baselines import dtype_name, scaled_dot_product
from .launches import ahead_of, options_of
from .targets import SHARED_BYTES, SMS, TMA_ALIGNMENT, TMA_TARGETS, ceil_div, device_target, is_tma_aligned
from .tensor_maps import gluon_descriptors, gluon_types_of, triton_descriptor, triton_type

if TYPE_CHECKING:
    from torch import Tensor

CONFIG_KEYS = ("block_m", "block_n", "num_warps", "num_stages", "tma", "variant", "programs", "pingpong")
VARIANTS = ("generic", "warp_specialized")
LAUNCHED = "^attention_(kernel|pipelined)$"

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
}
# Columns of a head -> tiles of 128 keys or values that fit beside two blocks of 128 queries on sm_90.
_PIPELINED_STAGES = {64: 10, 128: 5}
# Bytes of keys and values that are in use at one time: about half of L2.
_L2_SHARE = 32 << 20
_WIDEST_UNIT = 16
_REFERENCE_ROWS = 4096


def block_d(shape: Shape) -> int:
    """Return the columns of a tile: D rounded up to a power of two."""
    return max(1 << (shape["D"] - 1).bit_length(), 16)


def shared_bytes(config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of one program, in bytes."""
    element, columns = DTYPE_BYTES[dtype], block_d(shape)
    queries, keys = element * config["block_m"] * columns, element * config["block_n"] * columns
    if config["variant"] == "warp_specialized":
        return int(2 * queries + config["num_stages"] * keys + 1024)
    exponentials = element * config["block_m"] * config["block_n"]
    return int(queries + 2 * max(config["num_stages"], 1) * keys + exponentials + 8192)


def work(shape: Shape, dtype: Dtype, *, scores: int) -> Work:
    """Count two products of 2·D operations a score, for so many scores a head; each operand moves once."""
    b, hq, hkv, s, d = (shape[key] for key in ("B", "HQ", "HKV", "S", "D"))
    element = DTYPE_BYTES[dtype]
    return Work(
        flops=4 * b * hq * scores * d,
        bytes_read=element * (b * hq + 2 * b * hkv) * s * d,
        bytes_written=element * b * hq * s * d,
    )


def _scale_log2(d: int) -> float:
    """Return the factor of a score whose exponential is then a power of two."""
    return math.log2(math.e) / math.sqrt(d)


def _shape_of(q: Tensor, k: Tensor) -> dict[str, int]:
    b, hq, s, d = q.shape
    return {"B": b, "HQ": hq, "HKV": k.shape[1], "S": s, "D": d}


def _section(shape: Shape) -> int:
    """Return how many query heads may be in flight at once so that their keys and values stay in L2."""
    heads = _L2_SHARE // (4 * shape["S"] * block_d(shape))
    return max(1, heads) * (shape["HQ"] // shape["HKV"])


def _blocks(config: Mapping[str, Any], shape: Shape) -> dict[str, list[int]]:
    columns = block_d(shape)
    # Two warpgroups take half of the queries each.
    rows = config["block_m"] // 2 if config["variant"] == "warp_specialized" else config["block_m"]
    queries, keys = [1, rows, columns], [1, config["block_n"], columns]
    return {"q": queries, "k": keys, "v": keys, "y": queries}


@dataclass(frozen=True)
class Attention:
    """Hold what differs between the kernels over this code.

    pingpong: (columns of a tile) -> whether two warpgroups alternate in issuing their products.
    """

    name: str
    causal: bool
    pingpong: Callable[[int], bool]

    # Launch rule

    def config(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, int | str]:
        """Return the launch configuration of a shape. Raises: InputError for a target without one."""
        generic = self._generic_config(shape, dtype, target)
        if target != "sm_90" or not generic["tma"] or block_d(shape) not in _PIPELINED_STAGES:
            return generic
        return {
            **generic, "block_m": 128, "block_n": 128, "num_warps": 4,
            "num_stages": _PIPELINED_STAGES[block_d(shape)], "variant": "warp_specialized", "programs": SMS[target],
            "pingpong": int(self.pingpong(block_d(shape))),
        }  # fmt: skip

    def _generic_config(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
        configs.check_tuned(self.name, target)
        configs.check_16_bits(self.name, dtype, target)
        block_m, block_n, num_warps, num_stages = _TILES[target, 64 if shape["D"] <= 64 else 128]
        aligned = shape["D"] * DTYPE_BYTES[dtype] % TMA_ALIGNMENT == 0
        if not aligned and target != "sm_75":
            # Rows loaded element by element need registers for their addresses: other tiles spill.
            block_m, block_n, num_warps, num_stages = 32, 32 if shape["D"] <= 128 else 16, 8, 1
        config: dict[str, Any] = {
            "block_m": block_m,
            "block_n": block_n,
            "num_warps": num_warps,
            "num_stages": num_stages,
            "tma": int(target in TMA_TARGETS and aligned),
            "variant": "generic",
            "programs": 0,
            "pingpong": 0,
        }
        while shared_bytes(config, shape, dtype) > SHARED_BYTES[target]:
            if config["num_stages"] > 1:
                config["num_stages"] -= 1
            else:
                smaller = "block_n" if config["block_n"] > 16 else "block_m"
                config[smaller] //= 2
        return config

    def check_config(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> None:
        """Check that an architecture can run a configuration. Raises: InputError."""
        configs.check_keys(self.name, config, CONFIG_KEYS)
        configs.check_target(self.name, target)
        configs.check_16_bits(self.name, dtype, target)
        configs.check_groups(self.name, shape)
        configs.check_powers(self.name, config, (("block_m", 16, 256), ("block_n", 16, 256), ("num_warps", 1, 16)))
        configs.check_ranges(self.name, config, (("num_stages", 1, 16),))
        configs.check_tma(
            self.name, config, target, rows={"D": shape["D"]}, size=DTYPE_BYTES[dtype], of=dtype
        )  # fmt: skip
        self._check_variant(config, shape, target)
        configs.check_shared(self.name, shared_bytes(config, shape, dtype), target, smaller="block_n")

    def _check_variant(self, config: Mapping[str, Any], shape: Shape, target: str) -> None:
        variant = config["variant"]
        if variant not in VARIANTS or (variant == "warp_specialized" and (target != "sm_90" or not config["tma"])):
            raise InputError(
                f"{self.name}: variant is {variant!r} on {target}; expected generic, or warp_specialized on sm_90 with "
                "tma 1"
            )
        if variant == "generic":
            if config["programs"] or config["pingpong"]:
                raise InputError(
                    f"{self.name}: programs and pingpong are for the warp_specialized variant; expected 0 and 0"
                )
            return
        if config["block_m"] != 128 or config["num_warps"] != 4 or block_d(shape) not in _PIPELINED_STAGES:
            raise InputError(
                f"{self.name}: variant is warp_specialized with D={shape['D']}; expected D from 33 to 128, block_m 128 "
                "and 4 warps"
            )
        if config["num_stages"] < 3 or config["programs"] < 1 or config["pingpong"] not in (0, 1):
            raise InputError(
                f"{self.name}: variant is warp_specialized; expected 3 stages or more, programs from 1 and pingpong 0 "
                "or 1"
            )

    # Launches

    def call(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the result of tensors on one GPU. Shapes: as the module says."""
        import torch

        inputs = {"q": q.contiguous(), "k": k.contiguous(), "v": v.contiguous()}
        out = torch.empty_like(inputs["q"])
        shape, dtype, target = _shape_of(q, k), dtype_name(q, self.name), device_target(q)
        config = self.config(shape, dtype, target)
        if not is_tma_aligned(*inputs.values()):
            config = {**self._generic_config(shape, dtype, target), "tma": 0}
        self.prepare_triton(inputs, out, config)()
        return out

    def prepare_triton(self, inputs: Mapping[str, Tensor], out: Tensor, config: Mapping[str, Any]) -> Launch:
        """Make the descriptors and return the launch."""
        shape = _shape_of(inputs["q"], inputs["k"])
        tensors = {**inputs, "y": out}
        flat = {name: tensor.view(-1, shape["S"], shape["D"]) for name, tensor in tensors.items()}
        if config["variant"] == "warp_specialized":
            return self._prepare_pipelined(flat, shape, config)
        constants, options = self._constants(config, shape), options_of(config)
        operands: list[object] = [tensors[name] for name in ("q", "k", "v", "y")]
        if config["tma"]:
            operands = [triton_descriptor(flat[name], block) for name, block in _blocks(config, shape).items()]
        grid = (shape["B"] * shape["HQ"], ceil_div(shape["S"], config["block_m"]))
        sizes = (shape["S"], shape["D"] // constants["UNIT"], _scale_log2(shape["D"]))

        def launch() -> None:
            attention_kernel[grid](*operands, *sizes, **constants, **options)

        return launch

    def _prepare_pipelined(self, flat: Mapping[str, Tensor], shape: Shape, config: Mapping[str, Any]) -> Launch:
        import torch

        operands = gluon_descriptors(flat, _blocks(config, shape))
        fetched = torch.zeros(1, dtype=torch.int32, device=flat["y"].device)
        heads = shape["B"] * shape["HQ"]
        programs = (min(heads * ceil_div(shape["S"], config["block_m"]), config["programs"]),)
        sizes = (shape["S"], heads, _section(shape), _scale_log2(shape["D"]))
        constants, options = self._pipelined_constants(config, shape), options_of(config, stages=False)

        def launch() -> None:
            attention_pipelined[programs](*operands, fetched, *sizes, **constants, **options)

        return launch

    def _constants(self, config: Mapping[str, Any], shape: Shape) -> dict[str, int]:
        return {
            "UNIT": math.gcd(shape["D"], _WIDEST_UNIT),
            "GROUP": shape["HQ"] // shape["HKV"],
            "BLOCK_M": config["block_m"],
            "BLOCK_N": config["block_n"],
            "BLOCK_D": block_d(shape),
            "CAUSAL": int(self.causal),
            "TMA": config["tma"],
        }

    def _pipelined_constants(self, config: Mapping[str, Any], shape: Shape) -> dict[str, int]:
        return {
            "GROUP": shape["HQ"] // shape["HKV"],
            "CAUSAL": int(self.causal),
            "STAGES": config["num_stages"],
            "PINGPONG": config["pingpong"],
        }

    def ahead(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> Ahead:
        """Return what Triton needs to compile the kernel without a GPU."""
        blocks = _blocks(config, shape)
        if config["variant"] == "warp_specialized":
            sizes = {"fetched_ptr": "*i32", "n_rows": "i32", "n_heads": "i32", "section": "i32", "scale_log2": "fp32"}
            return ahead_of(
                attention_pipelined,
                {**gluon_types_of(dtype, blocks), **sizes},
                constants=self._pipelined_constants(config, shape),
                options=options_of(config, stages=False),
            )
        operands = {name: triton_type(dtype, block) if config["tma"] else f"*{dtype}" for name, block in blocks.items()}
        return ahead_of(
            attention_kernel,
            {**operands, "n_rows": "i32", "n_units": "i32", "scale_log2": "fp32"},
            constants=self._constants(config, shape),
            options=options_of(config),
        )

    # What it is compared with

    @property
    def baselines(self) -> dict[str, Prepare]:
        """Return torch's implementations of the same result."""
        backends = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
        return {f"sdpa-{name}": scaled_dot_product(backend, causal=self.causal) for name, backend in backends.items()}

    def prepare_torch_cpu(self, inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        """Return torch's scaled_dot_product_attention, in fp32."""
        import torch

        q, k, v = (inputs[name] for name in ("q", "k", "v"))
        grouped = q.shape[1] != k.shape[1]

        def launch() -> None:
            attended = torch.nn.functional.scaled_dot_product_attention(
                q.float(), k.float(), v.float(), is_causal=self.causal, enable_gqa=grouped
            )
            out.copy_(attended)

        return launch

    def reference(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the result in float64, a block of queries of one head at a time to spare memory."""
        import torch

        q, k, v = inputs["q"], inputs["k"], inputs["v"]
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
