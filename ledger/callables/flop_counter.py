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


def elementwise_counter() -> Any:
    """Return a mode that counts elementwise operations and reductions of torch in its attribute `operations`.

    A pointwise operation counts one an element, softmax and norms as a kernel of their own would; an operation that is
    not known here, other than one that only moves data, counts eight.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]
        operations = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            tensors = [one for one in (*args, result) if isinstance(one, torch.Tensor)]
            largest = max((one.numel() for one in tensors), default=0)
            name = str(function).removeprefix("aten.").partition(".")[0].rstrip("_")
            weight = 1 if torch.Tag.pointwise in function.tags else _WEIGHTS.get(name, 8)
            self.operations += 0 if function.is_view or name in _MOVES else weight * largest
            return result

    return Mode()


_WEIGHTS = {
    "sum": 1, "mean": 1, "amax": 1, "amin": 1, "max": 1, "min": 1, "prod": 1, "cumsum": 1, "masked_fill": 1,
    "linalg_vector_norm": 2, "var": 4, "var_mean": 4, "std": 4, "_softmax": 5, "_log_softmax": 5,
    "native_layer_norm": 8, "_fused_rms_norm": 5,
}  # fmt: skip
_MOVES: frozenset[str] = frozenset(
    """
    mm bmm addmm baddbmm mv dot _scaled_mm _to_copy clone copy empty empty_like new_empty zeros zeros_like new_zeros
    ones ones_like full full_like arange cat stack index index_put index_select gather scatter repeat _unsafe_view
    constant_pad_nd lift_fresh scalar_tensor fill
    """.split()  # noqa: SIM905
)
