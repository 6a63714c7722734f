"""Counts the operations of products, those with a vector included, by torch's counter. Imports torch, when called."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def product_counter() -> Any:
    """Return a FlopCounterMode that counts mv and dot too, and leaves out elementwise operations, as torch's does."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    vectors = {torch.ops.aten.mv: _inner_products, torch.ops.aten.dot: _inner_products}
    counter = FlopCounterMode(display=False, custom_mapping=vectors)
    # The tracker of modules is for a table by module, and cannot follow torch.autograd.grad.
    counter.mod_tracker = _Untracked()
    return counter


def _inner_products(a_shape: Sequence[int], *_: object, **_more: object) -> int:
    """Return the operations of a matrix, or a vector, times a vector."""
    return 2 * math.prod(a_shape)


class _Untracked:
    """Take the place of FlopCounterMode's tracker of modules: all operations count as global."""

    def __init__(self) -> None:
        self.parents = {"Global"}

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""
