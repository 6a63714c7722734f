"""Compute y = rmsnorm(x; g, eps) · W, for skinny batches, in one launch or, in variants with normed rows, in more.

Formula: y[b, o] = Σ_k x[b, k] · g[k] · W[k, o] / sqrt(mean_k(x[b, k]²) + eps)
Shapes: x (B, H), g (H,), W (H, O), y (B, O), all row-major and of one dtype (fp16 or bf16; fp32 in generic).
Traffic: e · (B·H + H + H·O) bytes read and e · B·O written, e bytes an element: each operand once.
Source: deferring rstd to the epilogue is FlashNorm, arXiv 2407.09577, section 2. With swap-AB (the weights are the M
side of the tensor-core tile, the batch its N side) any batch can use wgmma.
The work model excludes: re-reads of x by each column tile (L2), the split-K partial sums (write and read of
split_k · 4 · B·O bytes, L2 or distributed shared memory) and the padding of B, H and O to whole tiles.

Variants and configuration keys: variants.py. Launch rule: rule.py.
Precision: x·g is rounded once to the dtype before the product, in cuda_ping_pong g·W, where rows are normalised
first the normalised x; squares, products and partial sums are fp32; one rounding to the dtype at the end. Assumes
|x·g|, or |g·W|, is within the dtype's range (fp16: 65504).
Determinism: partial sums are added in the order of the K ranges, whichever CTA adds them, so the same inputs give the
same bits.
Programmatic dependent launch: with pdl 1 a launch begins before the previous one ends, and waits for that before it
reads x. Before the wait cuda_normed reads the gain, cuda_ping_pong gain and weights, warp_specialised and
cuda_cooperative the weights: the previous launch must not write these.
The variants named after normed rows write these to a workspace and read them back (2 · e · B·H bytes, L2), which is
left out too, as are the copy of unaligned weights that cuda_normed reads and the parts of normed_split_k.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ledger.kernel import Kernel, Tolerance
from ledger.kernels.common.baselines import compiled, dtype_name, library
from ledger.kernels.common.targets import device_target, is_tma_aligned, matmul_path
from ledger.operations import RMSNORM_EPS, RMSNORM_MATMUL, Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

from .candidates import candidates
from .normed import PRODUCT
from .rule import config_for, generic_config
from .variants import NAME, ahead, check_config, prepare, prepare_triton

if TYPE_CHECKING:
    from torch import Tensor


def rmsnorm_matmul(x: Tensor, gain: Tensor, weight: Tensor, *, eps: float = RMSNORM_EPS) -> Tensor:
    """Return rmsnorm(x; gain, eps) · weight.

    Shapes: x (B, H), gain (H,), weight (H, O) of one dtype on one GPU; the result (B, O).
    """
    import torch

    given = {"x": x, "gain": gain, "weight": weight}
    inputs = {name: tensor.contiguous() for name, tensor in given.items()}
    out = torch.empty((x.shape[0], weight.shape[1]), dtype=x.dtype, device=x.device)
    shape = {"B": x.shape[0], "H": x.shape[1], "O": weight.shape[1]}
    dtype, target = dtype_name(x, NAME), device_target(x)
    if is_tma_aligned(*inputs.values()):
        config = config_for(shape, dtype, target)
    else:
        config = {**generic_config(shape, dtype, target), "tma": 0}
    if not all(tensor.is_contiguous() for tensor in given.values()):
        # The previous launch copies an operand, which may be read early.
        config = {**config, "pdl": 0}
    prepare(inputs, out, config, eps)()
    return out


def _eager(torch: Any, out: Tensor, x: Tensor, gain: Tensor, weight: Tensor) -> None:
    """Normalise and multiply in two calls."""
    torch.matmul(torch.nn.functional.rms_norm(x, list(gain.shape), gain, RMSNORM_EPS), weight, out=out)


def _unfused(torch: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    norm = torch.nn.functional.rms_norm
    return lambda x, gain, weight: norm(x, list(gain.shape), gain, RMSNORM_EPS) @ weight


def _plain(torch: Any, out: Tensor, x: Tensor, gain: Tensor, weight: Tensor) -> None:
    """Compute the same result with torch's elementwise calls, one after the other: nothing is fused."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(dim=1, keepdim=True) + RMSNORM_EPS) * gain.float()
    torch.matmul(normed.to(x.dtype), weight, out=out)


def reference(inputs: Mapping[str, Tensor]) -> Tensor:
    """Return the result in float64."""
    import torch

    x, gain, weight = (inputs[name].double() for name in ("x", "gain", "weight"))
    return (x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + RMSNORM_EPS) * gain) @ weight


def work(shape: Shape, dtype: Dtype) -> Work:
    """Count the product, the squares and the scaling by gain and rstd; each operand moves once."""
    b, h, o = shape["B"], shape["H"], shape["O"]
    size = DTYPE_BYTES[dtype]
    # 2BHO product, 2BH squares, BH gain, BO rstd; the B divisions and roots are left out.
    flops = 2 * b * h * o + 3 * b * h + b * o
    return Work(flops=flops, bytes_read=size * (b * h + h + h * o), bytes_written=size * b * o)


CASES: tuple[dict[str, int], ...] = (
    *({"B": b, "H": h, "O": h} for b in (1, 8, 32, 128) for h in (2048, 4096, 8192)),
    {"B": 1, "H": 1, "O": 1},
    {"B": 3, "H": 97, "O": 131},
    {"B": 17, "H": 5120, "O": 13824},
    {"B": 129, "H": 1000, "O": 1003},
)

_INPUTS = ("x", "gain", "weight")

KERNEL = Kernel(
    name=NAME,
    operation=RMSNORM_MATMUL,
    summary="rmsnorm and the matrix product that follows it, for skinny batches",
    formula="y = (x · g / sqrt(mean(x²) + 1e-6)) · W",
    dtypes=("fp16", "bf16", "fp32"),
    work=work,
    excludes="re-reads of x by each column tile, split-K partial sums (both in L2), padding to whole tiles",
    path=matmul_path,
    config=config_for,
    check_config=check_config,
    tolerances={
        "fp16": Tolerance(5e-4, 3.5e-4, "x·g and y are rounded to 11 bits each; outputs have a deviation near 0.25"),
        "bf16": Tolerance(4e-3, 2.8e-3, "as fp16, with 8 bits: eight times as wide"),
        "fp32": Tolerance(2e-5, 1e-5, "up to 8192 terms are summed in 24 bits, in blocks"),
    },
    cases=CASES,
    implementations={"triton": prepare_triton, "torch-cpu": library(_plain, *_INPUTS)},
    reference=reference,
    launched=f"^rmsnorm_matmul_(kernel|warp_specialised|cooperative|ping_pong|normalise)$|{PRODUCT.launched}",
    baselines={
        "torch_eager": library(_eager, *_INPUTS),
        "torch_compile_default": compiled(_unfused, *_INPUTS, mode="default"),
        "torch_compile_max_autotune": compiled(_unfused, *_INPUTS, mode="max-autotune-no-cudagraphs"),
        "torch_matmul": library(lambda torch, out, x, weight: torch.matmul(x, weight, out=out), "x", "weight"),
    },
    ahead=ahead,
    candidates=candidates,
)
