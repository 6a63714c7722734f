"""Compute attention of whole sequences, every query seeing every key; forward only.

Formula: y[b, h, i] = Σ_j softmax_j(q[b, h, i] · k[b, g, j] / sqrt(D)) · v[b, g, j], g = h · HKV ÷ HQ rounded down
Shapes: q, y (B, HQ, S, D), k, v (B, HKV, S, D), row-major and of one dtype (fp16 or bf16). HQ is a multiple of HKV.
Traffic: e · (B·HQ·S·D + 2·B·HKV·S·D) bytes read and e · B·HQ·S·D written, e bytes an element.
Source: FlashAttention-2, arXiv 2307.08691, algorithm 1; the products count as in its section 4.1.
The work model excludes: re-reads of k and v by each block of queries (L2),
the padding of S and D to whole tiles, the softmax (about five operations a score, none on the tensor cores) and
corrections where a running maximum rises.

Precision: scores, sums and outputs are fp32; the powers are rounded to the dtype before they meet v; one rounding at
the end. Determinism: each block of queries is one program's work in a fixed order, so the same inputs give the same
bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ledger.errors import InputError
from ledger.kernel import Ahead, Config, Kernel, Launch, Prepare, Tolerance, import_triton
from ledger.operations import FLASH_ATTENTION, Shape
from ledger.records import Dtype, Path, Work
from ledger.roofline import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

triton, tl = import_triton()

_NAME = "flash_attention"
CAUSAL = False


@triton.jit
def _load_rows(source, head, row, n_rows, n_dims, ROWS: tl.constexpr, BLOCK_D: tl.constexpr, TMA: tl.constexpr):
    if TMA:
        tile = source.load([head, row, 0]).reshape(ROWS, BLOCK_D)
    else:
        rows = row + tl.arange(0, ROWS)
        dims = tl.arange(0, BLOCK_D)
        at = (head.to(tl.int64) * n_rows + rows)[:, None] * n_dims + dims[None, :]
        tile = tl.load(source + at, mask=(rows < n_rows)[:, None] & (dims < n_dims)[None, :], other=0.0)
    return tile


@triton.jit
def _attend(
    acc,
    total,
    highest,
    q,
    k,
    v,
    kv_head,
    first,
    last,
    query_rows,
    n_rows,
    n_dims,
    scale_log2,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EDGE: tl.constexpr,
    CAUSAL: tl.constexpr,
    TMA: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    for start in tl.range(first, last, BLOCK_N, warp_specialize=SPECIALIZE):
        start = tl.multiple_of(start, BLOCK_N)
        k_tile = _load_rows(k, kv_head, start, n_rows, n_dims, BLOCK_N, BLOCK_D, TMA)
        scores = tl.dot(q, tl.trans(k_tile))
        if EDGE:
            keys = start + tl.arange(0, BLOCK_N)
            seen = (keys < n_rows)[None, :]
            if CAUSAL:
                seen = seen & (keys[None, :] <= query_rows[:, None])
            scores = tl.where(seen, scores, -float("inf"))
        # The scale is positive, so it may follow the maximum: one multiply-add a score.
        risen = tl.maximum(highest, tl.max(scores, axis=1) * scale_log2)
        powers = tl.exp2(scores * scale_log2 - risen[:, None])
        kept = tl.exp2(highest - risen)
        total = total * kept + tl.sum(powers, axis=1)
        acc = acc * kept[:, None]
        v_tile = _load_rows(v, kv_head, start, n_rows, n_dims, BLOCK_N, BLOCK_D, TMA)
        acc = tl.dot(powers.to(v_tile.dtype), v_tile, acc)
        highest = risen
    return acc, total, highest


@triton.jit
def flash_attention_kernel(
    q,
    k,
    v,
    y,
    n_rows,
    n_units,
    scale_log2,
    UNIT: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CAUSAL: tl.constexpr,
    TMA: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):
    n_dims = n_units * UNIT
    head = tl.program_id(0)
    kv_head = head // GROUP
    block = tl.program_id(1)
    if CAUSAL:
        # The last queries see the most keys; they start first, so that the short programs fill the end.
        block = tl.num_programs(1) - 1 - block
    row = block * BLOCK_M
    query_rows = row + tl.arange(0, BLOCK_M)
    q_tile = _load_rows(q, head, row, n_rows, n_dims, BLOCK_M, BLOCK_D, TMA)
    highest = tl.full((BLOCK_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), dtype=tl.float32)

    # Whole tiles that every query of the block sees need no mask.
    end = tl.minimum(row + BLOCK_M, n_rows) if CAUSAL else n_rows
    plain = (row if CAUSAL else n_rows) // BLOCK_N * BLOCK_N
    acc, total, highest = _attend(
        acc, total, highest, q_tile, k, v, kv_head, 0, plain, query_rows, n_rows, n_dims, scale_log2,
        BLOCK_N, BLOCK_D, False, CAUSAL, TMA, SPECIALIZE,
    )  # fmt: skip
    if plain < end:
        acc, total, highest = _attend(
            acc, total, highest, q_tile, k, v, kv_head, plain, end, query_rows, n_rows, n_dims, scale_log2,
            BLOCK_N, BLOCK_D, True, CAUSAL, TMA, False,
        )  # fmt: skip

    acc = acc / total[:, None]
    if TMA:
        y.store([head, row, 0], acc.to(y.dtype).reshape(1, BLOCK_M, BLOCK_D))
    else:
        dims = tl.arange(0, BLOCK_D)
        at = (head.to(tl.int64) * n_rows + query_rows)[:, None] * n_dims + dims[None, :]
        tl.store(y + at, acc.to(y.dtype.element_ty), mask=(query_rows < n_rows)[:, None] & (dims < n_dims)[None, :])


def flash_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q · kᵀ / sqrt(D)) · v.

    Shapes: q (B, HQ, S, D), k and v (B, HKV, S, D) of one dtype on one GPU; the result as q.
    """
    import torch

    inputs = {"q": q.contiguous(), "k": k.contiguous(), "v": v.contiguous()}
    out = torch.empty_like(inputs["q"])
    b, hq, s, d = q.shape
    shape = {"B": b, "HQ": hq, "HKV": k.shape[1], "S": s, "D": d}
    major, minor = torch.cuda.get_device_capability(q.device)
    config = config_for(shape, _dtype_name(q), f"sm_{major}{minor}")
    if any(tensor.data_ptr() % _TMA_ALIGNMENT for tensor in inputs.values()):
        config["tma"] = 0
    prepare_triton(inputs, out, config)()
    return out


def prepare_triton(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Make the descriptors and return the launch."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    b, hq, s, d = q.shape
    shape = {"B": b, "HQ": hq, "HKV": k.shape[1], "S": s, "D": d}
    constants = _constants(config, shape)
    operands: tuple[object, ...] = (q, k, v, out)
    if config["tma"]:
        rows = (config["block_m"], config["block_n"], config["block_n"], config["block_m"])
        operands = tuple(
            _descriptor(tensor.view(-1, s, d), [1, block, constants["BLOCK_D"]])
            for tensor, block in zip((q, k, v, out), rows, strict=True)
        )
    grid = (b * hq, -(-s // config["block_m"]))
    scale_log2 = math.log2(math.e) / math.sqrt(d)

    def launch() -> None:
        flash_attention_kernel[grid](
            *operands, s, d // constants["UNIT"], scale_log2,
            **constants, num_warps=config["num_warps"], num_stages=config["num_stages"],
        )  # fmt: skip

    return launch


def _descriptor(tensor: Tensor, block: list[int]) -> object:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(tensor, block)


def _constants(config: Config, shape: Shape) -> dict[str, int]:
    return {
        "UNIT": math.gcd(shape["D"], _WIDEST_UNIT),
        "GROUP": shape["HQ"] // shape["HKV"],
        "BLOCK_M": config["block_m"],
        "BLOCK_N": config["block_n"],
        "BLOCK_D": max(1 << (shape["D"] - 1).bit_length(), 16),
        "CAUSAL": int(CAUSAL),
        "TMA": config["tma"],
        "SPECIALIZE": config["specialize"],
    }


def _dtype_name(tensor: Tensor) -> Dtype:
    import torch

    names: dict[object, Dtype] = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
    if tensor.dtype not in names:
        raise InputError(f"{_NAME}: dtype is {tensor.dtype}; expected float16, bfloat16 or float32")
    return names[tensor.dtype]


def prepare_torch_cpu(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
    """Return torch's scaled_dot_product_attention, in fp32."""
    import torch

    q, k, v = (inputs[name] for name in ("q", "k", "v"))
    grouped = q.shape[1] != k.shape[1]

    def launch() -> None:
        out.copy_(
            torch.nn.functional.scaled_dot_product_attention(
                q.float(), k.float(), v.float(), is_causal=CAUSAL, enable_gqa=grouped
            )
        )

    return launch


def _prepare_sdpa(backend: str) -> Prepare:
    def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = (inputs[name] for name in ("q", "k", "v"))
        grouped = q.shape[1] != k.shape[1]
        chosen = getattr(SDPBackend, backend)

        def launch() -> None:
            with sdpa_kernel(chosen):
                torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=CAUSAL, enable_gqa=grouped)

        return launch

    return prepare


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
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
                if CAUSAL:
                    scores.masked_fill_(torch.arange(s, device=q.device)[None, :] > rows[:, None], -math.inf)
                out[batch, head, rows] = torch.softmax(scores, dim=-1) @ values
    return out


_REFERENCE_ROWS = 4096


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count two products of 2·D operations a query and key that it sees; each operand moves once."""
    b, hq, hkv, s, d = (shape[key] for key in ("B", "HQ", "HKV", "S", "D"))
    element = DTYPE_BYTES[dtype]
    seen = s * (s + 1) // 2 if CAUSAL else s * s
    return Work(
        flops=4 * b * hq * seen * d,
        bytes_read=element * (b * hq + 2 * b * hkv) * s * d,
        bytes_written=element * b * hq * s * d,
    )


def path(dtype: Dtype, target: str, implementation: str) -> Path:
    """Return the instruction path, as found in the compiled code (tests/test_kernel_attention.py).

    On sm_75 Triton compiles the products to scalar fp32 multiply-adds: no tensor-core instruction.
    """
    if implementation != "triton" or dtype == "fp32" or target == "sm_75":
        return "fp32"
    return "fp16_tensor" if dtype == "fp16" else "bf16_tensor"


_TMA_ALIGNMENT = 16
_TMA_TARGETS = ("sm_90", "sm_100")
_WIDEST_UNIT = 16
_SHARED_BYTES = {"sm_75": 65_536, "sm_80": 166_912, "sm_89": 101_376, "sm_90": 232_448, "sm_100": 232_448}

# (target, widest D) -> (BLOCK_M, BLOCK_N, num_warps, num_stages). On sm_90 measured on an H200 at S 6144; two programs
# a multiprocessor there, so that one's softmax runs beside the other's products.
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
_TARGETS = ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100")


def config_for(shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
    """Return the launch configuration of a shape. Raises: InputError for a target without one."""
    if target not in _TARGETS:
        raise InputError(f"{_NAME}: no launch configuration for {target}; expected one of: {', '.join(_TARGETS)}")
    _check_dtype(dtype, target)
    block_m, block_n, num_warps, num_stages = _TILES[target, 64 if shape["D"] <= 64 else 128]
    aligned = shape["D"] * DTYPE_BYTES[dtype] % _TMA_ALIGNMENT == 0
    config = {
        "block_m": block_m,
        "block_n": block_n,
        "num_warps": num_warps,
        "num_stages": num_stages,
        "tma": int(target in _TMA_TARGETS and aligned),
        "specialize": 0,
    }
    while shared_bytes(config, shape, dtype) > _SHARED_BYTES[target]:
        if config["num_stages"] > 1:
            config["num_stages"] -= 1
        else:
            smaller = "block_n" if config["block_n"] > 16 else "block_m"
            config[smaller] //= 2
    return config


def _check_dtype(dtype: Dtype, target: str) -> None:
    if dtype == "fp32":
        raise InputError(f"{_NAME}: fp32 is for CPUs, not {target}; expected fp16 or bf16")
    if target == "sm_75" and dtype == "bf16":
        raise InputError(f"{_NAME}: sm_75 has no bf16; expected fp16")


def shared_bytes(config: Config, shape: Shape, dtype: Dtype) -> int:
    """Return an upper bound of the shared memory of one program, in bytes."""
    element, block_d = DTYPE_BYTES[dtype], _constants(config, shape)["BLOCK_D"]
    queries, keys = element * config["block_m"] * block_d, element * config["block_n"] * block_d
    powers = element * config["block_m"] * config["block_n"]
    return queries + 2 * max(config["num_stages"], 1) * keys + powers + 8192


def check_config(config: Config, shape: Shape, dtype: Dtype, target: str) -> None:
    """Check that an architecture can run a configuration. Raises: InputError."""
    if set(config) != set(_CONFIG_KEYS):
        raise InputError(
            f"{_NAME}: configuration keys are {','.join(sorted(config))}; expected {','.join(_CONFIG_KEYS)}"
        )
    if target not in _SHARED_BYTES:
        raise InputError(f"{_NAME}: target {target} is unknown; expected one of: {', '.join(_SHARED_BYTES)}")
    _check_dtype(dtype, target)
    if shape["HQ"] % shape["HKV"]:
        raise InputError(
            f"{_NAME}: HQ is {shape['HQ']} with HKV {shape['HKV']}; expected a multiple: each group of query "
            "heads shares one key head"
        )
    for key, least, most in (("block_m", 16, 256), ("block_n", 16, 256), ("num_warps", 1, 16)):
        value = config[key]
        if not least <= value <= most or value & (value - 1):
            raise InputError(f"{_NAME}: {key} is {value}; expected a power of two from {least} to {most}")
    if not 1 <= config["num_stages"] <= 8:
        raise InputError(f"{_NAME}: num_stages is {config['num_stages']}; expected 1 to 8")
    if config["specialize"] not in (0, 1) or (config["specialize"] and target not in _TMA_TARGETS):
        raise InputError(f"{_NAME}: specialize is {config['specialize']}; expected 0, or 1 from sm_90 up")
    if config["tma"] not in (0, 1) or (config["tma"] and target not in _TMA_TARGETS):
        raise InputError(f"{_NAME}: tma is {config['tma']}; expected 0, or 1 from sm_90 up")
    if config["tma"] and shape["D"] * DTYPE_BYTES[dtype] % _TMA_ALIGNMENT:
        raise InputError(
            f"{_NAME}: tma is 1 with D={shape['D']} in {dtype}; expected rows of a multiple of "
            f"{_TMA_ALIGNMENT} bytes, or tma 0"
        )
    need = shared_bytes(config, shape, dtype)
    if need > _SHARED_BYTES[target]:
        raise InputError(
            f"{_NAME}: tiles need {need} bytes of shared memory; {target} has {_SHARED_BYTES[target]}: "
            "take fewer num_stages or a smaller block_n"
        )


def ahead(config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead:
    """Return what Triton needs to compile the kernel without a GPU."""
    constants = _constants(config, shape)
    rows = {"q": config["block_m"], "k": config["block_n"], "v": config["block_n"], "y": config["block_m"]}
    operands = {
        name: f"tensordesc<{dtype}[1,{block},{constants['BLOCK_D']}]>" if config["tma"] else f"*{dtype}"
        for name, block in rows.items()
    }
    sizes = {"n_rows": "i32", "n_units": "i32", "scale_log2": "fp32"}
    return Ahead(
        function=flash_attention_kernel,
        signature={**operands, **sizes, **dict.fromkeys(constants, "constexpr")},
        constants=constants,
        options={"num_warps": config["num_warps"], "num_stages": config["num_stages"]},
    )


_CONFIG_KEYS = ("block_m", "block_n", "num_warps", "num_stages", "tma", "specialize")

CASES: tuple[dict[str, int], ...] = (
    *({"B": 16384 // s, "HQ": 16, "HKV": 16, "S": s, "D": d} for s in (2048, 4096, 8192, 16384) for d in (64, 128)),
    {"B": 1, "HQ": 32, "HKV": 8, "S": 4096, "D": 128},
    {"B": 1, "HQ": 1, "HKV": 1, "S": 1, "D": 1},
    {"B": 2, "HQ": 6, "HKV": 2, "S": 1031, "D": 67},
)

KERNEL = Kernel(
    name=_NAME,
    operation=FLASH_ATTENTION,
    summary="attention of whole sequences, forward",
    formula="y = softmax(q · kᵀ / sqrt(D)) · v",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="re-reads of k and v by each block of queries (L2), padding to whole tiles, the softmax",
    path=path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp16": Tolerance(
            6e-4, 5e-4, "powers of up to 1 are rounded to 11 bits, values are up to 2; one more rounding"
        ),
        "bf16": Tolerance(5e-3, 4e-3, "as fp16, with 8 bits: eight times as wide"),
        "fp32": Tolerance(1e-5, 1e-5, "scores of up to 16 have 24 bits, and their powers as many less four"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": prepare_torch_cpu},
    reference=reference,
    launched="^flash_attention_kernel$",
    baselines={
        "sdpa-cudnn": _prepare_sdpa("CUDNN_ATTENTION"),
        "sdpa-flash": _prepare_sdpa("FLASH_ATTENTION"),
        "sdpa-efficient": _prepare_sdpa("EFFICIENT_ATTENTION"),
    },
    ahead=ahead,
)
