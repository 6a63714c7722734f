"""Compute y = a + b with EXTRA thousandths of the work done twice: a slow-down whose size is known."""

from __future__ import annotations

from ledger.kernel import Kernel, Tolerance, import_triton
from ledger.operations import VECTOR_ADD
from ledger.records import Work
from ledger.roofline import DTYPE_BYTES

triton, tl = import_triton()

EXTRA = 0
BLOCK = 2048


@triton.jit
def stream_kernel(a_ptr, b_ptr, y_ptr, n_elements, n_tiles, BLOCK: tl.constexpr):
    offsets = (tl.program_id(0) % n_tiles) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    a = tl.load(a_ptr + offsets, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(y_ptr + offsets, (a + b).to(y_ptr.dtype.element_ty), mask=mask)


def prepare(inputs, out, config):
    a, b = inputs["a"], inputs["b"]
    tiles = -(-a.numel() // BLOCK)
    programs = tiles + round(tiles * EXTRA / 1000)
    return lambda: stream_kernel[(programs,)](a, b, out, a.numel(), tiles, BLOCK=BLOCK, num_warps=8)


def prepare_cpu(inputs, out, config):
    import torch

    a, b = inputs["a"], inputs["b"]
    extra = round(a.numel() * EXTRA / 1000)
    first, second, again = a[:extra], b[:extra], out[:extra]

    def launch():
        torch.add(a, b, out=out)
        if extra:
            torch.add(first, second, out=again)

    return launch


def work(shape, dtype):
    size = DTYPE_BYTES[dtype] * shape["N"]
    return Work(flops=shape["N"], bytes_read=2 * size, bytes_written=size)


KERNEL = Kernel(
    name="stream",
    operation=VECTOR_ADD,
    summary="sum for tests of a comparison",
    formula="y = a + b",
    dtypes=("fp16", "fp32"),
    work=work,
    excludes="the work that is done twice",
    path=lambda dtype, target, implementation: "fp32",
    config=lambda shape, dtype, target: {},
    check_config=lambda config, shape, dtype, target: None,
    tolerances={
        "fp16": Tolerance(1e-3, 1e-3, "one rounding to fp16"),
        "fp32": Tolerance(1e-6, 1e-6, "one rounding to fp32"),
    },
    cases=({"N": 2**22}, {"N": 2**25}),
    implementations={"triton": prepare, "torch-cpu": prepare_cpu},
    reference=lambda inputs: inputs["a"].double() + inputs["b"].double(),
    launched="stream_kernel",
)
