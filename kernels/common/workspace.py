"""Allocates workspace in which a word is its own flag: it holds UNWRITTEN until its value is stored.

A reader polls the words that it needs and restores UNWRITTEN for the next launch: no counter and no fence is needed.
Imports torch, only when called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

UNWRITTEN = 0x7FFF_DEAD
"""Bits of a word that was not written yet: a NaN that no arithmetic gives. UNWRITTEN of hopper.cuh."""


def unwritten(words: int, like: Tensor) -> Tensor:
    """Return words of 32 bits, all UNWRITTEN, on the device of a tensor."""
    import torch

    return torch.full((words,), UNWRITTEN, dtype=torch.int32, device=like.device)
