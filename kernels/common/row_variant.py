"""Describes what the variants of row kernels in CUDA C++ share: a cluster takes one row, each of its CTAs a part.

sm_90 alone. Imports torch, only when called.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ledger.kernel import Candidate
from ledger.operations import Shape
from ledger.records import Dtype
from ledger.roofline import DTYPE_BYTES

from .configs import check_keys, check_pdl, check_powers, check_shared, check_target
from .cuda import CudaSource
from .plans import CudaPlan
from .row_tiles import Cell
from .targets import SHARED_BYTES, ceil_div

if TYPE_CHECKING:
    from torch import Tensor

KEYS = ("variant", "cluster", "num_warps", "pdl")
TARGET = "sm_90"
MAX_CLUSTER = 16
PARTIAL_BYTES, BARRIER_BYTES = 8, 8
"""Bytes in shared memory of a partial result and of an mbarrier."""

RowOperation = Literal["rmsnorm", "softmax", "layernorm"]
_OPERATIONS: tuple[RowOperation, ...] = ("rmsnorm", "softmax", "layernorm")


@dataclass(frozen=True)
class RowVariant(ABC):
    """Hold a variant of one row kernel. scales: names of the inputs beside x."""

    operation: RowOperation
    scales: tuple[str, ...]
    name: ClassVar[str]

    @abstractmethod
    def config(self, cell: Cell) -> dict[str, int | str] | None:
        """Return the launch configuration of a cell, None where the Triton function is faster."""

    @abstractmethod
    def check_rows(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> None:
        """Check that a configuration suits the rows of a shape. Raises: InputError."""

    @abstractmethod
    def shared_bytes(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
        """Return the shared memory of a CTA, in bytes."""

    @abstractmethod
    def source(self, defines: tuple[tuple[str, int], ...]) -> CudaSource:
        """Return the CUDA C++ with some macros, by name."""

    @abstractmethod
    def worth_trying(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> bool:
        """Tell whether a configuration may be worth timing."""

    @abstractmethod
    def registers(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype) -> int:
        """Return about how many registers a thread needs."""

    def sizes(self, shape: Shape) -> tuple[int, ...]:
        """Return the integers that the kernel takes behind the tensors."""
        return ()

    @property
    def reductions(self) -> int:
        """Return how many times the threads of a row combine their results."""
        return 2 if self.operation == "layernorm" else 1

    def chosen(self, cluster: int, warps: int) -> dict[str, int | str]:
        """Return the configuration with so many CTAs of a cluster and warps of a CTA."""
        return {"variant": self.name, "cluster": cluster, "num_warps": warps, "pdl": 1}

    def check_config(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> None:
        """Check that an architecture can run a configuration. Raises: InputError."""
        check_keys(self.operation, config, KEYS)
        check_target(self.operation, target, (TARGET,), lacks="row clusters")
        check_powers(self.operation, config, (("cluster", 2, MAX_CLUSTER), ("num_warps", 1, 32)))
        check_pdl(self.operation, config, target)
        self.check_rows(config, shape, dtype)
        shared = self.shared_bytes(config, shape, dtype)
        check_shared(self.operation, shared, target, smaller="part of a row: a larger cluster")

    def candidates(self, shape: Shape, dtype: Dtype) -> Iterator[Candidate]:
        """Yield the configurations that may be worth timing on sm_90."""
        element = DTYPE_BYTES[dtype]
        for cluster, warps in itertools.product((2, 4, 8, 16), (4, 8, 16)):
            config, part = self.chosen(cluster, warps), ceil_div(shape["N"], cluster)
            shared = self.shared_bytes(config, shape, dtype)
            if shared <= SHARED_BYTES[TARGET] and self.worth_trying(config, shape, dtype):
                yield Candidate(
                    config=config, tiles=shape["M"] * cluster, tile_flops=5 * part, tile_bytes=element * part,
                    warps=warps, registers=self.registers(config, shape, dtype), shared_bytes=shared,
                )  # fmt: skip

    def plan(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, *, eps: float | None = None) -> CudaPlan:
        """Return the launch of a configuration. eps: None only where the operation has none."""

        def arguments(tensors: Mapping[str, Tensor]) -> list[Any]:
            return [*(tensors[name] for name in ("x", *self.scales, "y")), *self.sizes(shape), float(eps or 0.0)]

        defines = {
            "OP": _OPERATIONS.index(self.operation),
            "N_COLS": shape["N"],
            "ELEMENT": DTYPE_BYTES[dtype],
            "BF16": int(dtype == "bf16"),
            "CLUSTER": config["cluster"],
            "THREADS": 32 * config["num_warps"],
        }
        return CudaPlan(
            source=self.source(tuple(defines.items())),
            ctas=shape["M"] * config["cluster"],
            threads=32 * config["num_warps"],
            shared_bytes=self.shared_bytes(config, shape, dtype),
            arguments=arguments,
            overlap=bool(config["pdl"]),
        )
