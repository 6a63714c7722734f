"""Prepares this package's kernels, and the library calls they are compared with, as candidates for a ceiling.

A ceiling is the best of the calls that are known, and its condition names the call. Inputs are those of a record. A
kernel is compared with float64 first. Imports torch, only when called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ledger.kernel import Launch
from ledger.kernel_files import build_case, load_kernel
from ledger.measure.contestants import OURS, line_up, shape_list
from ledger.records import DeviceFacts, Dtype, Hardware, Work


@dataclass(frozen=True)
class Candidate:
    """Hold one way to do some work on cold inputs; launches: one for each input set."""

    name: str
    launches: Sequence[Launch]
    work: Work


def kernel_candidates(
    name: str, shape: Mapping[str, int], dtype: Dtype, *, hardware: Hardware, facts: DeviceFacts, baselines: bool
) -> list[Candidate]:
    """Return a kernel for one cell and, on request, its baselines but those of torch.compile, which take longest.

    Raises: LedgerError when the kernel does not offer the cell or is wrong here.
    """
    kernel = load_kernel(name, launch=True).kernel
    case = build_case(kernel, hardware, shape=shape, dtype=dtype)
    eager = frozenset(one.replace("-", "_") for one in kernel.baselines if baselines and "compile" not in one)
    lined = line_up(kernel, case, facts, device="cuda", only=eager, contexts=("back-to-back",))
    work = kernel.work(shape, dtype)
    return [
        Candidate(
            f"{name if one.name == OURS else one.name} {shape_list(case)} {dtype}", list(one.rounds.launches), work
        )
        for one in lined.contestants
        if one.agrees is not False
    ]
