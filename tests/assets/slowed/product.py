"""Compute C = A · B with EXTRA thousandths of the products done twice: a slow-down whose size is known."""

from __future__ import annotations

from ledger.kernel import Kernel, Tolerance, import_triton
from ledger.operations import MATMUL
from ledger.records import Work
from ledger.roofline import DTYPE_BYTES

triton, tl = import_triton()

EXTRA = 0
TILE_M, TILE_N, TILE_K = 128, 128, 32


@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, N, K, blocks, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    n_tiles = N // BLOCK_N
    rows = (tl.program_id(0) // n_tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = (tl.program_id(0) % n_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for block in range(blocks):
        depth = (block * BLOCK_K) % K + tl.arange(0, BLOCK_K)
        # Blocks beyond K are loaded and multiplied, and count nothing.
        scale = tl.where(block * BLOCK_K < K, 1.0, 0.0)
        a = tl.load(a_ptr + rows[:, None] * K + depth[None, :])
        b = tl.load(b_ptr + depth[:, None] * N + columns[None, :])
        total = tl.dot((a * scale).to(a.dtype), b, total)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(c_ptr.dtype.element_ty))


def prepare(inputs, out, config):
    a, b = inputs["a"], inputs["b"]
    (m, k), n = a.shape, b.shape[1]
    blocks = k // TILE_K + round(k // TILE_K * EXTRA / 1000)
    return lambda: product_kernel[(m // TILE_M * (n // TILE_N),)](
        a, b, out, n, k, blocks, BLOCK_M=TILE_M, BLOCK_N=TILE_N, BLOCK_K=TILE_K, num_warps=8, num_stages=4
    )


def prepare_cpu(inputs, out, config):
    import torch

    a, b = inputs["a"], inputs["b"]
    extra = a[: round(a.shape[0] * EXTRA / 1000)]
    again = torch.empty(extra.shape[0], b.shape[1], dtype=a.dtype)

    def launch():
        torch.matmul(a, b, out=out)
        if extra.shape[0]:
            torch.matmul(extra, b, out=again)

    return launch


def work(shape, dtype):
    m, n, k = shape["M"], shape["N"], shape["K"]
    size = DTYPE_BYTES[dtype]
    return Work(flops=2 * m * n * k, bytes_read=size * (m * k + k * n), bytes_written=size * m * n)


KERNEL = Kernel(
    name="product",
    operation=MATMUL,
    summary="matrix product for tests of a comparison",
    formula="C = A · B",
    dtypes=("fp16", "fp32"),
    work=work,
    excludes="the products that are done twice",
    path=lambda dtype, target, implementation: "fp16_tensor" if implementation == "triton" else "fp32",
    config=lambda shape, dtype, target: {},
    check_config=lambda config, shape, dtype, target: None,
    tolerances={
        "fp16": Tolerance(1e-3, 1e-3, "fp32 sums, one rounding to fp16"),
        "fp32": Tolerance(1e-4, 1e-4, "fp32 sums of some thousand terms"),
    },
    cases=({"M": 512, "N": 512, "K": 512}, {"M": 4096, "N": 2048, "K": 4096}),
    implementations={"triton": prepare, "torch-cpu": prepare_cpu},
    reference=lambda inputs: inputs["a"].double() @ inputs["b"].double(),
    launched="product_kernel",
)
