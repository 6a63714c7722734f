"""Builds kernels that are one Triton function on a grid of one dimension, with tensors of one dtype.

Imports torch, only when called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.kernel import Ahead, Candidate, Config, Launch, variations
from ledger.operations import Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

from . import configs, triton_launch
from .baselines import dtype_name
from .family import Family
from .targets import PDL_TARGETS, device_target, warps_on

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SingleLaunch(Family):
    """Hold what differs between such kernels. The function takes the inputs, the output, sizes and constants.

    inputs: their names, in order. output: the name of the output. ranges: configuration key, beside pdl, -> least and
    most of a power of two. tile: the launch rule, (shape, dtype) -> those keys. counts: (shape) -> operations, elements
    read, elements written. grid: (configuration, shape) -> programs. sizes: (shape) -> arguments that are numbers.
    constants: (configuration, shape, bytes of an element) -> constexpr arguments. choices: values that `ledger tune`
    tries. estimate: (configuration, shape, bytes of an element) -> what a Candidate needs beside configuration and
    warps. thread_tile: keys of a tile's extents and how many of its elements a thread can hold. check:
    (configuration, shape, dtype) -> None, raises InputError for what ranges do not exclude.
    """

    name: str
    function: Any
    inputs: tuple[str, ...]
    output: str = "y"
    cases: tuple[Mapping[str, int], ...]
    ranges: Mapping[str, tuple[int, int]]
    tile: Callable[[Shape, Dtype], dict[str, int]]
    counts: Callable[[Shape], tuple[int, int, int]]
    grid: Callable[[Config, Shape], int]
    sizes: Callable[[Shape], Mapping[str, int]]
    constants: Callable[[Config, Shape, int], dict[str, int]]
    choices: Mapping[str, Sequence[int]]
    estimate: Callable[[Mapping[str, Any], Shape, int], dict[str, int]]
    thread_tile: tuple[tuple[str, str], int] | None = None
    check: Callable[[Mapping[str, Any], Shape, Dtype], None] | None = None
    dtypes: tuple[Dtype, ...] = ("fp16", "bf16", "fp32")
    path = staticmethod(triton_launch.fp32_path)

    def work(self, shape: Shape, dtype: Dtype) -> Work:
        """Count operations and bytes; each operand moves once."""
        flops, read, written = self.counts(shape)
        return Work(flops=flops, bytes_read=DTYPE_BYTES[dtype] * read, bytes_written=DTYPE_BYTES[dtype] * written)

    def config(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
        """Return the launch configuration of a shape. Raises: InputError for a target without one."""
        configs.check_tuned(self.name, target)
        tile = self.tile(shape, dtype)
        return {**tile, "num_warps": warps_on(target, tile["num_warps"]), "pdl": int(target in PDL_TARGETS)}

    def check_config(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> None:
        """Check that an architecture can run a configuration. Raises: InputError."""
        configs.check_keys(self.name, config, (*self.ranges, "pdl"))
        configs.check_target(self.name, target)
        configs.check_bf16(self.name, dtype, target)
        configs.check_powers(self.name, config, [(key, *ends) for key, ends in self.ranges.items()])
        if self.thread_tile:
            tile, most = self.thread_tile
            configs.check_thread_elements(self.name, config, tile=tile, most=most)
        configs.check_pdl(self.name, config, target)
        if self.check:
            self.check(config, shape, dtype)

    def candidates(self, shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
        """Yield the configurations that may be worth timing."""
        for config in variations(self.config(shape, dtype, target), self.choices):
            estimate = self.estimate(config, shape, DTYPE_BYTES[dtype])
            yield Candidate(config=config, tiles=self.grid(config, shape), warps=int(config["num_warps"]), **estimate)

    def ahead(self, config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead:
        """Return what Triton needs to compile the kernel without a GPU."""
        pointers = [f"{name}_ptr" for name in (*self.inputs, self.output)]
        sizes, constants = self.sizes(shape), self.constants(config, shape, DTYPE_BYTES[dtype])
        return triton_launch.ahead(
            self.function, pointers, dict.fromkeys(sizes, "i32"), config, dtype=dtype, constants=constants
        )

    def prepare(self, inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        """Return the launch."""
        tensors = [inputs[name] for name in self.inputs]
        return self._launch(tensors, out, config, self._shape_of(tensors))

    def _launch(self, tensors: Sequence[Tensor], out: Tensor, config: Config, shape: Shape) -> Launch:
        return triton_launch.prepare(
            self.function, (*tensors, out), [*self.sizes(shape).values()], config, grid=self.grid(config, shape),
            constants=self.constants(config, shape, out.element_size()),
        )  # fmt: skip

    def _shape_of(self, tensors: Sequence[Tensor]) -> Shape:
        """Return the shape that the last input has: N, or N and K of a matrix."""
        return dict(zip("NK", tensors[-1].shape, strict=False))

    def __call__(self, *tensors: Tensor) -> Tensor:
        """Return the result of contiguous tensors of one dtype on one GPU, in the order of the inputs."""
        import torch

        shape = self._shape_of(tensors)
        out = torch.empty(shape["N"], dtype=tensors[0].dtype, device=tensors[0].device)
        config = self.config(shape, dtype_name(tensors[0], self.name), device_target(tensors[0]))
        self._launch(tensors, out, config, shape)()
        return out
