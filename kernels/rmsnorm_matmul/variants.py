"""Dispatches a launch configuration to its variant: launch, compilation ahead of time, shared memory, checks.

A configuration has these keys, all of them in every variant:

    variant             generic (Triton), warp_specialised (Gluon); in CUDA C++ cuda_cooperative, cuda_ping_pong, and
                        after a launch that normalises the rows cuda_normed, normed_few_rows, normed_residues and
                        normed_split_k (normed.py)
    block_b, block_o    the tile of the result
    block_k             inner positions of a K step
    split_k             CTAs that divide a tile's inner dimension; in CUDA C++ they are a cluster
    cluster_m           CTAs of a cluster along B, which share the weights by multicast (cuda_ping_pong, cuda_normed;
                        otherwise 1)
    cluster_n           CTAs of a cluster along O, which share x by multicast (cuda_normed; otherwise 1)
    swap_ab             whether the weights are wgmma's A operand, an option of cuda_normed (otherwise 0)
    stream_k            whether all clusters divide the last tiles by K steps (cuda_normed; otherwise 0)
    num_warps           warps that multiply
    num_stages          stages of the weights
    x_stages            stages of x; 0: x shares the stages of the weights
    scaling_warpgroups  warpgroups that multiply x by the gain (warp_specialised; otherwise 0)
    tma                 whether the weights are loaded by TMA; 1 but in generic and normed_few_rows
    pdl                 programmatic dependent launch; 0 in generic
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import Ahead, AheadCuda, Launch
from ledger.kernels.common import configs
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.targets import TMA_ALIGNMENT, ceil_div, device_target
from ledger.operations import RMSNORM_EPS, Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from . import cooperative, generic, normed, ping_pong, warp_specialised

if TYPE_CHECKING:
    from torch import Tensor

NAME = "rmsnorm_matmul"
VARIANTS: dict[str, Any] = {
    "generic": generic,
    "warp_specialised": warp_specialised,
    "cuda_cooperative": cooperative,
    "cuda_ping_pong": ping_pong,
    **dict.fromkeys(normed.PRODUCTS, normed),
}
CONFIG_KEYS = (
    "variant", "block_b", "block_o", "block_k", "split_k", "cluster_m", "cluster_n", "swap_ab", "stream_k", "num_warps",
    "num_stages", "x_stages", "scaling_warpgroups", "tma", "pdl",
)  # fmt: skip

_POWERS = (("block_b", 8, 256), ("block_o", 16, 256), ("block_k", 16, 256), ("num_warps", 1, 16))
_OWN_TILES = {"cuda_ping_pong": 1, **dict.fromkeys(normed.PRODUCTS, len(_POWERS))}
"""Variant -> how many of these its own check covers, since other values are right."""

_ALONE = {"cluster_n": 1, "swap_ab": 0, "stream_k": 0}
_NORMED = {"block_k": 64, "x_stages": 0, "scaling_warpgroups": 0}
NEUTRAL: dict[str, dict[str, int]] = {
    "generic": {"cluster_m": 1, **_ALONE, "x_stages": 0, "scaling_warpgroups": 0, "pdl": 0},
    "warp_specialised": {"cluster_m": 1, **_ALONE, "tma": 1},
    "cuda_cooperative": {"cluster_m": 1, **_ALONE, "block_k": 64, "x_stages": 0, "scaling_warpgroups": 0, "tma": 1},
    "cuda_ping_pong": {**_ALONE, "block_k": 64, "scaling_warpgroups": 0, "tma": 1},
    "cuda_normed": {**_NORMED, "tma": 1},
    "normed_few_rows": {"cluster_m": 1, **_ALONE, **_NORMED, "tma": 0},
    "normed_residues": {"cluster_m": 1, **_ALONE, **_NORMED, "tma": 1},
    "normed_split_k": {"cluster_m": 1, **_ALONE, **_NORMED, "tma": 1},
}
"""Variant -> the values of keys that it fixes."""


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Settings) -> Launch:
    """Allocate the workspace and return the launch."""
    return prepare(inputs, out, config, RMSNORM_EPS)


def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Settings, eps: float) -> Launch:
    """Return the same for any eps."""
    configs.check_together(NAME, together(config, out.shape[0]), device_target(out))
    launch: Launch = VARIANTS[config["variant"]].prepare(inputs, out, config, eps)
    return launch


def ahead(config: Settings, shape: Shape, dtype: Dtype, target: str) -> Ahead | AheadCuda:
    """Return what the compiler needs to compile the kernel without a GPU."""
    made: Ahead | AheadCuda = VARIANTS[config["variant"]].ahead(config, shape, dtype, target)
    return made


def shared_bytes(config: Settings, shape: Shape, dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of a CTA, in bytes; the CUDA C++ holds all of the gain."""
    return int(VARIANTS[config["variant"]].shared_bytes(config, shape, dtype))


def check_config(config: Settings, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    configs.check_keys(NAME, config, CONFIG_KEYS)
    configs.check_target(NAME, target)
    configs.check_bf16(NAME, dtype, target)
    for problem in _problems(config, shape, dtype, target):
        raise InputError(f"{NAME}: {problem}")
    configs.check_powers(NAME, config, _POWERS[_OWN_TILES.get(config["variant"], 0) :])
    if config["variant"] not in normed.PRODUCTS:
        steps = ceil_div(shape["H"], config["block_k"])
        if not 1 <= config["split_k"] <= steps:
            raise InputError(f"{NAME}: split_k is {config['split_k']}; expected 1 to the {steps} steps of block_k in H")
        configs.check_wgmma(NAME, config, target, rows="block_o")
    configs.check_ranges(NAME, config, (("num_stages", 1, 32),))
    # Unaligned weights of the variants in two launches are copied, or read by classes of rows.
    rows = {} if config["variant"] in normed.PRODUCTS else {"O": shape["O"]}
    configs.check_tma(NAME, config, target, rows=rows, size=DTYPE_BYTES[dtype], of=dtype)
    configs.check_together(NAME, together(config, shape["B"]), target)
    configs.check_shared(NAME, shared_bytes(config, shape, dtype), target, smaller="block_k")


def together(config: Settings, n_rows: int) -> int:
    """Return how many consecutive CTAs wait for each other; in other variants none waits for a later one."""
    if config["variant"] == "cuda_cooperative":
        return cooperative.together(config, n_rows)
    return int(config["split_k"]) if config["variant"] == "warp_specialised" else 1


def _problems(config: Settings, shape: Shape, dtype: Dtype, target: str) -> Iterator[str]:
    """Yield what is wrong with a configuration for its variant; the first matters."""
    variant = config["variant"]
    if variant not in VARIANTS:
        yield f"variant is {variant}; expected one of: {', '.join(VARIANTS)}"
    if config["pdl"] not in (0, 1):
        yield f"pdl is {config['pdl']}; expected 0 or 1"
    if variant != "generic":
        if target != "sm_90" or DTYPE_BYTES[dtype] != 2:
            yield f"variant is {variant} on {target} in {dtype}; expected sm_90 and fp16 or bf16"
        if variant not in normed.PRODUCTS and shape["H"] * DTYPE_BYTES[dtype] % TMA_ALIGNMENT:
            yield f"variant is {variant} with H={shape['H']}; expected a multiple of 8"
        if config["num_stages"] < 2:
            yield f"num_stages is {config['num_stages']} with variant {variant}; expected at least 2"
    for key, value in NEUTRAL[variant].items():
        if config[key] != value:
            yield f"{key} is {config[key]} with variant {variant}; expected {value}"
    yield from VARIANTS[variant].problems(config, shape, target)
