"""Variants for sm_90 that normalise the rows of x into a workspace first, and then multiply.

Host side of normalise.cu and normalise_ragged.cu, which round the rows once to the dtype, and of the product, one of
matmul's: in cuda_normed the cluster GEMM (product.cu), which reads a copy of weights whose rows are unaligned; in
normed_few_rows and normed_residues the products of few rows that read such weights as they lie; in normed_split_k that
of few tiles, with a launch that adds its parts. The keys of a configuration are those of common/gemm_config.py, with
block_b for block_m and block_o for block_n. With pdl 1 each launch begins before the one ahead of it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import AheadCuda, Launch
from ledger.kernels.common import configs, gemm_config, pad_rows
from ledger.kernels.common.baselines import dtype_name
from ledger.kernels.common.configs import Settings
from ledger.kernels.common.cuda import cuda_source, prepare_ahead
from ledger.kernels.common.gemm_cluster import ClusterGemm
from ledger.kernels.common.gemm_few_rows import FewRows
from ledger.kernels.common.gemm_residues import RESIDUES, Residues, classes_of, in_class
from ledger.kernels.common.gemm_rule import RuledGemm
from ledger.kernels.common.gemm_split_k import SPLIT_K, SplitK
from ledger.kernels.common.targets import ceil_div, device_target, sms_of
from ledger.operations import Shape
from ledger.records import Dtype

from .cost import product_shape

if TYPE_CHECKING:
    from torch import Tensor

NAME = "rmsnorm_matmul"
PRODUCTS = {
    "cuda_normed": gemm_config.CUDA, "normed_few_rows": gemm_config.FEW_ROWS, "normed_residues": RESIDUES,
    "normed_split_k": SPLIT_K,
}  # fmt: skip
"""Variant -> that of its product."""

_THREADS = 256
_MOST_VECTORS = 8
"""Loads of 16 bytes of a row, and of the gain, that a thread keeps in registers."""

_RAGGED_THREADS = {2048: 256, 8192: 512, 1 << 31: 1024}
"""Of a row of at most so many columns, in normalise_ragged.cu."""

_MOST_HELD, _HELD_STEP = 200 << 10, 8 << 10
"""Bytes of a row that shared memory holds, and of which it takes multiples."""

_CLUSTER = ClusterGemm(name=NAME, source=partial(cuda_source, __name__, "product.cu"))
OF_FEW_ROWS, _BY_RESIDUES, DIVIDED = FewRows(NAME), Residues(NAME), SplitK(NAME)
PRODUCT = RuledGemm(
    name=NAME, dtypes=("fp16", "bf16"), cluster=_CLUSTER, few_rows=OF_FEW_ROWS, residues=_BY_RESIDUES, split_k=DIVIDED
)  # fmt: skip
_OWN = {"block_b": "block_m", "block_o": "block_n"}
"""Keys that have another name in configurations of the product."""

_SHARED = (
    "block_k", "num_warps", "num_stages", "tma", "cluster_m", "cluster_n", "split_k", "stream_k", "swap_ab", "pdl",
)  # fmt: skip


def product_settings(config: Settings, n_rows: int, sms: int) -> dict[str, Any]:
    """Return a configuration with the keys of the product. n_rows: of x. sms: of the chip. Raises: InputError."""
    configs.check_positive(NAME, config, "cluster_m", "block_b")
    made = {
        **{key: config[key] for key in _SHARED}, **{theirs: config[own] for own, theirs in _OWN.items()},
        "subtiles": 1, "variant": PRODUCTS[config["variant"]], "programs": sms, "group_m": 1,
    }  # fmt: skip
    if config["variant"] != "cuda_normed":
        return made
    made["programs"] = gemm_config.resident((config["cluster_m"], config["cluster_n"]), sms)
    return {**made, "group_m": gemm_config.group_rows(made, {"M": n_rows})}


def own_settings(product: Settings) -> dict[str, Any]:
    """Return the keys of a configuration that are the product's, and the variant; KeyError where no variant has it."""
    variant = {theirs: own for own, theirs in PRODUCTS.items()}[product["variant"]]
    named = {own: product[theirs] for own, theirs in _OWN.items()}
    return {"variant": variant, **named, **{key: product[key] for key in _SHARED}}


def normalise_ahead(shape: Shape, dtype: Dtype, *, classes: int = 1) -> AheadCuda:
    """Return the launch that normalises the rows. shape: B and H of it are read. classes: of normalise_ragged.cu."""
    h, defines, source, threads, shared = shape["H"], {"BF16": int(dtype == "bf16")}, "normalise.cu", _THREADS, 0
    if classes > 1 or h % 8:
        source, threads = "normalise_ragged.cu", next(n for most, n in _RAGGED_THREADS.items() if h <= most)
        held = 2 * h <= _MOST_HELD
        # In few sizes: each is loaded by itself.
        shared = ceil_div(2 * h, _HELD_STEP) * _HELD_STEP if held else 0
        vector = 8 if h % 8 == 0 else 2 if h % 2 == 0 else 1
        defines |= {"CLASSES": classes, "VECTOR": vector, "THREADS": threads, "HELD": int(held)}
    else:
        defines["VECTORS"] = min(ceil_div(h, 8 * threads), _MOST_VECTORS)
    made = cuda_source(__name__, source, entry="rmsnorm_matmul_normalise", defines=defines)
    return AheadCuda(made, programs=shape["B"], threads=threads, shared_bytes=shared)


def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Settings, eps: float) -> Launch:
    """Allocate the normalised rows and return the launches."""
    x, weight = inputs["x"], inputs["weight"]
    (n_rows, n_inner), dtype, target = x.shape, dtype_name(x, NAME), device_target(x)
    settings, shape = product_settings(config, n_rows, target.sms), {"M": n_rows, "N": weight.shape[1], "K": n_inner}
    # The configuration may be of a chip with more SMs, on which each CTA has one tile.
    PRODUCT.check_config(settings, _seen(config, shape, "K"), dtype, target)
    classes, in_row = 1, n_inner
    if config["variant"] == "normed_residues":
        classes, in_row = classes_of(shape["N"]), in_class(shape)
    elif config["variant"] != "normed_few_rows":
        in_row = pad_rows.padded(n_inner, x.element_size())
    normed = x.new_empty((n_rows, classes * in_row))
    ahead = normalise_ahead({"B": n_rows, "H": n_inner}, dtype, classes=classes)
    sizes = [n_inner] if classes == 1 and n_inner % 8 == 0 else [n_inner, in_row]
    early = bool(config["pdl"])
    rows = prepare_ahead(ahead, [x, inputs["gain"], normed, *sizes, float(eps)], overlap=early)
    if config["variant"] == "normed_residues":
        return _in_turn(rows, _BY_RESIDUES.prepare_gathered(normed, weight, out, settings, dtype))
    if config["variant"] == "normed_few_rows":
        return _in_turn(rows, OF_FEW_ROWS.prepare(normed, weight, None, out, settings, dtype))
    if config["variant"] == "normed_split_k":
        return _in_turn(rows, DIVIDED.prepare(normed, weight, None, out, settings, dtype))
    (weight,), copy = pad_rows.pad_rows((weight,), overlap=early)
    seen = normed[:, :n_inner]
    product = _CLUSTER.prepare(seen, weight, out, settings, dtype=dtype, bias=None, scale=None)
    return _in_turn(*([copy] if copy else []), rows, product)


def _seen(config: Settings, shape: Shape, key: str) -> Shape:
    """Return the shape of the product: normed_split_k multiplies rows to the end of their pitch. key: of the inner."""
    inner = pad_rows.padded(shape[key], 2) if config["variant"] == "normed_split_k" else shape[key]
    return {**shape, key: inner}


def _in_turn(*launches: Launch) -> Launch:
    def launch() -> None:
        for one in launches:
            one()

    return launch


def ahead(config: Settings, shape: Shape, dtype: Dtype, target: str) -> AheadCuda:
    """Return the CUDA C++ of the product and how it is launched."""
    settings = product_settings(config, shape["B"], sms_of(target))
    made = PRODUCT.ahead(settings, product_shape(shape), dtype, target)
    assert isinstance(made, AheadCuda)
    return made


def shared_bytes(config: Settings, shape: Shape, dtype: Dtype) -> int:
    """Return the shared memory of a CTA of the product, in bytes."""
    return PRODUCT.shared_bytes(product_settings(config, 1, 1), dtype, shape["O"])


def problems(config: Settings, shape: Shape, target: str) -> Iterator[str]:
    """Yield what is wrong with a configuration: what the product refuses, and weights that have no classes of rows."""
    if config["variant"] == "normed_residues" and classes_of(shape["O"]) == 1:
        yield f"variant is normed_residues with O={shape['O']}; expected no multiple of 8"
    try:
        settings = product_settings(config, shape["B"], sms_of(target))
        PRODUCT.check_config(settings, product_shape(_seen(config, shape, "H")), "fp16", target)
    except InputError as error:
        yield str(error).removeprefix("rmsnorm_matmul: ")
