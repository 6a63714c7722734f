"""Callables of every kind that the tests forecast: the module ops of a repository, as text."""

OPS = """
import numpy as np
import torch
import torch.nn.functional as F

import ledger


def swiglu(x, y):
    return F.silu(x) * y


def swiglu_reference(x, y):
    return x * torch.sigmoid(x) * y


def wrong_reference(x, y):
    return x * torch.sigmoid(x) * y * 1.1


def gather(table, ids, scale=1.0):
    return {"rows": table[ids] * scale, "total": ids.sum()}, ids + 1


def scale_(x, s=2.0):
    x.mul_(s)


def half_only(x):
    assert x.dtype == torch.float16
    return x + 1


def by_itself(x):
    out = torch.empty_like(x)
    np.multiply(x.numpy(), 2.0, out=out.numpy())
    return out


def into(x, out):
    np.multiply(x.numpy(), 2.0, out=out.numpy())


def into_reference(x, out):
    return x * 2


def doubled(x):
    return x * 2


def nothing(x):
    x + 1


_ANSWERS = {}


def cached(x):
    if x.shape not in _ANSWERS:
        _ANSWERS[x.shape] = x * 2
    return _ANSWERS[x.shape]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
        self.up = torch.nn.Linear(64, 128)
        self.register_buffer("offset", torch.zeros(128))
        self.register_buffer("order", torch.arange(128))

    def forward(self, x):
        return (self.up(self.norm(x)) + self.offset)[:, self.order]


class Normed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(64)

    def forward(self, x):
        return self.norm(x)


@torch.compile(dynamic=False)
def fused(x, y):
    return F.silu(x) * y + 1


@ledger.kernel(args="x=bf16[B,512] y=bf16[B,512]", shape={"B": 64}, reference="ops:swiglu_reference")
def decorated(x, y):
    return F.silu(x) * y
"""

RAW = """
import triton
import triton.language as tl


@triton.jit
def doubled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)
"""
"""The module raw: a kernel of Triton without a function around it."""
