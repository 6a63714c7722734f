"""Builds the kernel that a file exports from what a family of kernels shares. Imports neither torch nor triton."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ledger.kernel import Ahead, AheadCuda, Candidate, Config, Kernel, Launch, Prepare, Tolerance
from ledger.operations import Operation, Shape
from ledger.records import Dtype, Path, Work


class Family:
    """Say what a family of kernels brings to the contract of ledger.kernel.Kernel, under the same names.

    prepare: the launch of the implementation "triton". cases: those of every kernel of the family.
    """

    name: str
    dtypes: tuple[Dtype, ...]
    cases: tuple[Mapping[str, int], ...]
    work: Callable[[Shape, Dtype], Work]
    path: Callable[[Dtype, str, str], Path]
    config: Callable[[Shape, Dtype, str], Config]
    check_config: Callable[[Config, Shape, Dtype, str], None]
    prepare: Callable[[Mapping[str, Any], Any, Config], Launch]
    ahead: Callable[[Config, Shape, Dtype, str], Ahead | AheadCuda]
    candidates: Callable[[Shape, Dtype, str], Iterable[Candidate]]

    @property
    def launched(self) -> str:
        """Return a pattern of the names of what a call launches."""
        return f"^{self.name}_kernel$"

    def kernel(
        self,
        *,
        operation: Operation,
        summary: str,
        formula: str,
        excludes: str,
        tolerances: Mapping[Dtype, Tolerance],
        reference: Callable[[Mapping[str, Any]], Any],
        torch_cpu: Prepare,
        baselines: Mapping[str, Prepare],
    ) -> Kernel:
        """Return the kernel that a file exports. torch_cpu: its implementation on a CPU."""
        return Kernel(
            name=self.name,
            operation=operation,
            summary=summary,
            formula=formula,
            dtypes=self.dtypes,
            work=self.work,
            excludes=excludes,
            path=self.path,
            config=self.config,
            check_config=self.check_config,
            tolerances=tolerances,
            cases=self.cases,
            implementations={"triton": self.prepare, "torch-cpu": torch_cpu},
            reference=reference,
            launched=self.launched,
            baselines=baselines,
            ahead=self.ahead,
            candidates=self.candidates,
        )
