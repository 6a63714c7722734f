"""Offers torch's products as callables, so that a library's kernels are forecast as others are.

ledger predict examples.torch_products:matmul --args 'a=fp16[M,K] b=fp16[K,N]' --shape M=96,N=5120,K=1280 --hw h200 …
"""

import torch
from torch.nn.functional import linear as of_layer


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a × b."""
    return torch.matmul(a, b)


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x × weightᵀ, as a layer of a model has it."""
    return of_layer(x, weight)
