"""Builds the Kernel of an attention kernel from what is its own: operation, plan of a launch, launch rule, work model.

Also what all attention kernels have in common on the host: tolerances, the scale of scores, torch's implementations.
Imports torch, only when called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.kernel import Ahead, AheadCuda, Config, Kernel, Launch, Prepare, Tolerance
from ledger.operations import Operation, Shape
from ledger.records import Dtype

from .baselines import dtype_name, scaled_dot_product
from .plans import CudaPlan, Plan
from .targets import attention_path, device_target, is_tma_aligned

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCES: dict[Dtype, Tolerance] = {
    "fp16": Tolerance(6e-4, 5e-4, "exponentials of up to 1 are rounded to 11 bits, values are up to 2; then once more"),
    "bf16": Tolerance(5e-3, 4e-3, "as fp16, with 8 bits: eight times as wide"),
    "fp32": Tolerance(1e-5, 1e-5, "scores of up to 16 keep 21 bits or more, and their exponentials as many less four"),
}
"""Bounds of the error of every attention kernel."""

WIDEST_UNIT = 16
"""Elements: a row's length is passed as a multiple of the largest power of two up to this that divides it."""


def scale_log2(d: int) -> float:
    """Return the factor of scores over D columns whose exponentials are then powers of two."""
    return math.log2(math.e) / math.sqrt(d)


def sdpa_baselines(*, causal: bool = False, decode: bool = False, math_backend: bool = False) -> dict[str, Prepare]:
    """Return torch's implementations of scaled_dot_product_attention, by name."""
    backends = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
    backends |= {"math": "MATH"} if math_backend else {}
    return {f"sdpa-{name}": scaled_dot_product(one, causal=causal, decode=decode) for name, one in backends.items()}


def sdpa_cpu(*, causal: bool = False, decode: bool = False) -> Prepare:
    """Return how to prepare torch's scaled_dot_product_attention in fp32. decode: q is (B, HQ, D)."""

    def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        import torch

        attend = torch.nn.functional.scaled_dot_product_attention
        q, k, v = (inputs[name] for name in ("q", "k", "v"))
        grouped = q.shape[1] != k.shape[1]

        def launch() -> None:
            queries = q.float().unsqueeze(2) if decode else q.float()
            result = attend(queries, k.float(), v.float(), is_causal=causal, enable_gqa=grouped)
            out.copy_(result.squeeze(2) if decode else result)

        return launch

    return prepare


@dataclass(frozen=True)
class Family:
    """Hold how an attention kernel is launched.

    plan: (config, shape, dtype, target) -> the launch of the configuration's variant. shape: inputs -> shape.
    config: (shape, dtype, target) -> the launch configuration. generic: the same, of the variant in Triton, which takes
    tensors of any alignment with tma 0. check: (config, shape, dtype, target) -> None; raises InputError.
    """

    name: str
    plan: Callable[[Mapping[str, Any], Shape, Dtype, str], Plan | CudaPlan]
    shape: Callable[[Mapping[str, Tensor]], dict[str, int]]
    config: Callable[[Shape, Dtype, str], Config]
    generic: Callable[[Shape, Dtype, str], Config]
    check: Callable[[Config, Shape, Dtype, str], None]

    def prepare(self, inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        """Allocate the workspaces and return the launch."""
        dtype = dtype_name(out, self.name)
        return self.plan(config, self.shape(inputs), dtype, device_target(out)).prepare({**inputs, "y": out})

    def ahead(self, config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead | AheadCuda:
        """Return what the compiler needs to compile the kernel without a GPU."""
        return self.plan(config, shape, dtype, target).ahead(dtype)

    def call(self, dims: tuple[int, ...], **tensors: Tensor) -> Tensor:
        """Return the result, of some dimensions, for inputs by name on one GPU."""
        inputs = {name: tensor.contiguous() for name, tensor in tensors.items()}
        q = inputs["q"]
        shape, dtype, target = self.shape(inputs), dtype_name(q, self.name), device_target(q)
        config = self.config(shape, dtype, target)
        if not is_tma_aligned(*inputs.values()):
            config = {**self.generic(shape, dtype, target), "tma": 0}
        out = q.new_empty(dims)
        self.prepare(inputs, out, config)()
        return out

    def kernel(self, operation: Operation, *, cpu: Prepare, **own: Any) -> Kernel:
        """Return the Kernel. cpu: its implementation in torch; own: the fields of Kernel that are its own."""
        return Kernel(
            name=self.name,
            operation=operation,
            dtypes=("fp16", "bf16", "fp32"),
            path=attention_path,
            config=self.config,
            check_config=self.check,
            tolerances=TOLERANCES,
            implementations={"triton": self.prepare, "torch-cpu": cpu},
            ahead=self.ahead,
            **own,
        )
