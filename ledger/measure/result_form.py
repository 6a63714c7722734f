"""Checks what a callable returned: plain tensors, memory of their own, settled. Imports torch, only when called."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ledger.callables.calls import Call, Results
from ledger.errors import SubjectRefused

if TYPE_CHECKING:
    import torch

_SETTLING_S = 0.02
_ELEMENTS_THAT_DIFFER = 8


def frozen(call: Call) -> list[torch.Tensor]:
    """Return copies of the latest results, made at once. Raises: SubjectRefused for what is no plain tensor."""
    require_plain(call.returned())
    return [one.clone() for one in call.results()]


def require_plain(returned: Sequence[Any]) -> None:
    """Check that results are torch's own tensors, with its own methods. Raises: SubjectRefused."""
    import torch

    methods = set(dir(torch.Tensor))
    for number, one in enumerate(returned):
        if type(one) not in (torch.Tensor, torch.nn.Parameter):
            kind = f"{type(one).__module__}.{type(one).__qualname__}"
            raise SubjectRefused(
                f"result {number} is of type {kind}; expected torch.Tensor, since a subclass can compute when it is "
                "read: return value.as_subclass(torch.Tensor)"
            )
        if changed := sorted(methods & set(vars(one)) - {"grad"}):
            raise SubjectRefused(f"result {number} has its own attribute {changed[0]}; expected that of torch.Tensor")


def require_settled(call: Call, copies: Sequence[torch.Tensor]) -> None:
    """Check that results have not changed since they were copied. Raises: SubjectRefused."""
    time.sleep(_SETTLING_S)
    results = call.results()
    for number in range(min(len(call.returned()), len(copies))):
        if not same_bits(results[number], copies[number]):
            raise SubjectRefused(
                f"result {number} changed after the call had returned; expected a call that ends with its work: join "
                "threads, and make the current stream wait for others"
            )


def require_own_memory(results: Sequence[Any], references: Sequence[Any]) -> None:
    """Check that results are no views of inputs where the reference's are not. Raises: SubjectRefused."""
    if not (isinstance(results, Results) and isinstance(references, Results)):
        return
    for number, (got, expected) in enumerate(zip(results.views, references.views, strict=False)):
        if got and not expected and results[number].numel() > 1:
            raise SubjectRefused(
                f"result {number} is memory of an input, or has fewer elements in memory than its shape; expected "
                "memory of its own, as the reference's"
            )


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors hold the same bits, NaN included."""
    import torch

    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    raw = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return bool(torch.equal(*raw))


def unchanged(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Return whether two results that could differ are the same to the bit; a few elements may be so by chance."""
    enough = sum(tensor.numel() for tensor in one) >= _ELEMENTS_THAT_DIFFER
    return enough and len(one) == len(other) and all(same_bits(a, b) for a, b in zip(one, other, strict=True))
