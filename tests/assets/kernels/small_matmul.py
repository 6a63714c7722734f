"""Compute C = A · B on a CPU by torch; a kernel file for tests that need no GPU and no compiler."""

from __future__ import annotations

from ledger.kernel import Kernel, Tolerance
from ledger.operations import MATMUL
from ledger.records import Work
from ledger.roofline import DTYPE_BYTES


def prepare(inputs, out, config):
    import torch

    a, b = inputs["a"], inputs["b"]
    return lambda: torch.matmul(a, b, out=out)


def prepare_wrong(inputs, out, config):
    """Leave one element unwritten: the poison must show it."""
    product = inputs["a"] @ inputs["b"]
    return lambda: out.view(-1)[1:].copy_(product.view(-1)[1:])


def prepare_raising(inputs, out, config):
    raise RuntimeError("no such instruction")


def prepare_decaying(inputs, out, config):
    """Be right on the first call only, as a kernel that forgets to reset its workspace."""
    calls = [0.0]

    def launch():
        out.copy_(inputs["a"] @ inputs["b"] + calls[0])
        calls[0] += 1.0

    return launch


def prepare_crashing(inputs, out, config):
    """Read far outside of an array: on a GPU this loses the process's device context."""
    import torch

    far = torch.full((1,), 1 << 40, device=out.device)
    return lambda: out.copy_(out.view(-1)[far])


def reference(inputs):
    return inputs["a"].double() @ inputs["b"].double()


def work(shape, dtype):
    m, n, k = shape["M"], shape["N"], shape["K"]
    size = DTYPE_BYTES[dtype]
    return Work(flops=2 * m * n * k, bytes_read=size * (m * k + k * n), bytes_written=size * m * n)


KERNEL = Kernel(
    name="small_matmul",
    operation=MATMUL,
    summary="matrix product for tests",
    formula="C = A · B",
    dtypes=("fp32",),
    work=work,
    excludes="nothing",
    path=lambda dtype, target, implementation: "fp32",
    config=lambda shape, dtype, target: {},
    check_config=lambda config, shape, dtype, target: None,
    tolerances={"fp32": Tolerance(1e-4, 1e-4, "fp32 sums of some thousand terms")},
    cases=({"M": 8, "N": 8, "K": 8},),
    implementations={
        "torch-cpu": prepare,
        "wrong": prepare_wrong,
        "raising": prepare_raising,
        "decaying": prepare_decaying,
        "torch-cuda": prepare,
        "crashing": prepare_crashing,
    },
    reference=reference,
    launched="gemm|cutlass|nvjet|splitK",
    baselines={"torch-eager": prepare, "torch-matmul": prepare},
)
