"""Configures, checks, compiles and launches row kernels: what the host does for every kernel over reduce_rows.

A row kernel reads each row of x (M, N), perhaps with vectors of scales (N,), and writes y (M, N). Imports torch, only
when called, and triton through row_reductions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import Ahead, AheadCuda, Candidate, Config, Launch
from ledger.operations import Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

from .baselines import dtype_name
from .configs import check_bf16, check_flags, check_keys, check_pdl, check_powers, check_target, check_tuned
from .configs import check_thread_elements as check_elements
from .family import Family
from .row_reductions import shifted_copies
from .row_tiles import NARROW, WORTH_COPIES, Cell, Tile, few_rows, is_ragged
from .row_variant import TARGET as VARIANT_TARGET
from .row_variant import RowVariant
from .targets import PDL_TARGETS, ceil_div, device_target, is_tma_aligned, power_of_two, sms_of, warps_on
from .triton_launch import VECTOR_BYTES, ahead, fp32_path, pdl_options, prepare

if TYPE_CHECKING:
    from torch import Tensor

MAX_THREAD_ELEMENTS = 64
"""Elements of a tile that a thread can hold in registers."""

CASES: tuple[dict[str, int], ...] = (
    {"M": 4096, "N": 4096},
    {"M": 65536, "N": 4096},
    {"M": 8192, "N": 65536},
    {"M": 65536, "N": 1},
    {"M": 1, "N": 65536},
    {"M": 1, "N": 1},
    {"M": 1009, "N": 1031},
)
"""Shapes of row kernels: aligned rows in few and in many blocks, one row, one column, one element, ragged rows."""

_COPIED_AT_ONCE = 1024


@dataclass(frozen=True, kw_only=True)
class RowKernel(Family):
    """Join a kernel over `reduce_rows` with its launch rule.

    function: the @triton.jit function, with arguments x_ptr, a pointer for each scale, y_ptr, n_rows, eps if there is
    one, and the constants of `constants`. flops: operations an element. tile: the launch rule. flags: the optional
    configuration keys that it has. options: (config, n_cols) -> launch options that change the code.
    """

    name: str
    function: Any
    flops: int
    tile: Callable[[Cell], Tile]
    scales: tuple[str, ...] = ()
    eps: float | None = None
    flags: tuple[str, ...] = ()
    options: Callable[[Config, int], dict[str, Any]] = lambda config, n_cols: {}
    variants: tuple[RowVariant, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of a configuration of the Triton function."""
        return ("block_m", "block_n", "num_warps", *self.flags, "pdl")

    dtypes: tuple[Dtype, ...] = ("fp16", "bf16", "fp32")
    path = staticmethod(fp32_path)
    cases: tuple[Mapping[str, int], ...] = CASES

    @property
    def launched(self) -> str:
        """Return a pattern of the names of what a call launches."""
        own = super().launched
        own += "|^shifted_copies$" if "shifted_copies" in self.flags else ""
        return f"{own}|^row_(cluster|ragged)_kernel$" if self.variants else own

    def work(self, shape: Shape, dtype: Dtype) -> Work:
        """Count the operations of every element; x, the scales and y move once."""
        m, n, element = shape["M"], shape["N"], DTYPE_BYTES[dtype]
        read = m * n + len(self.scales) * n
        return Work(flops=self.flops * m * n, bytes_read=element * read, bytes_written=element * m * n)

    # Configuration

    def config(self, shape: Shape, dtype: Dtype, target: str) -> Config:
        """Return the launch configuration of a shape. Raises: InputError for a target without one."""
        check_tuned(self.name, target)
        if target == VARIANT_TARGET:
            cell = self._cell(shape, dtype)
            for variant in self.variants:
                chosen = variant.config(cell)
                if chosen is not None:
                    return chosen
        return self.triton_config(shape, dtype, target)

    def _variant(self, config: Mapping[str, Any]) -> RowVariant:
        """Return the variant that a configuration names. Raises: InputError."""
        found = {variant.name: variant for variant in self.variants}
        if config["variant"] not in found:
            raise InputError(f"{self.name}: variant is {config['variant']}; expected {' or '.join(found)}, or none")
        return found[config["variant"]]

    def _cell(self, shape: Shape, dtype: Dtype) -> Cell:
        n, element = shape["N"], DTYPE_BYTES[dtype]
        vector, x_bytes = VECTOR_BYTES // element, shape["M"] * n * element
        copied = bool(self.scales) and n % vector != 0 and x_bytes >= WORTH_COPIES
        return Cell(shape["M"], n, element, vector, x_bytes, n % vector == 0, copied)

    def triton_config(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, int]:
        """Return the configuration of the Triton function."""
        cell = self._cell(shape, dtype)
        n, element, vector, copied = cell.n, cell.element, cell.vector, cell.copied
        few = few_rows(cell, len(self.scales)) if target == "sm_90" else None
        tile = few or self.tile(cell)
        block_m, block_n, num_warps = tile.block_m, tile.block_n, tile.num_warps
        if target != "sm_90":
            # Not measured there; compiled for other targets, the longest blocks spill at some N.
            block_n = min(block_n, 4096)
        # Fewer rows a tile where there are too few to give every SM two programs.
        while not few and block_m > 1 and ceil_div(cell.m, block_m) < 2 * sms_of(target):
            block_m //= 2
        if block_m < num_warps and n <= NARROW:
            # Warps without a row of their own share rows; with 4 bytes an element that makes loads too narrow.
            num_warps = block_m if element == 4 and cell.aligned and block_m > 1 else min(num_warps, 4)
        num_warps = warps_on(target, num_warps)
        while block_m > 1 and block_m * block_n > MAX_THREAD_ELEMENTS * 32 * num_warps:
            block_m //= 2
        chosen = {
            "block_m": block_m,
            "block_n": block_n,
            "num_warps": num_warps,
            "shifted_copies": int(copied and is_ragged(n, vector, block_m, copied)),
            "bypass_l1": tile.bypass_l1,
            "pipelined_loads": tile.pipelined_loads,
            "pdl": int(target in PDL_TARGETS),
        }
        return {key: chosen[key] for key in self.keys}

    def check_config(self, config: Mapping[str, Any], shape: Shape, dtype: Dtype, target: str) -> None:
        """Check that an architecture can run a configuration. Raises: InputError."""
        if self.variants and "variant" in config:
            self._variant(config).check_config(config, shape, dtype, target)
            return
        check_keys(self.name, config, self.keys)
        check_target(self.name, target)
        check_bf16(self.name, dtype, target)
        check_powers(self.name, config, (("block_m", 1, 4096), ("block_n", 1, 65_536), ("num_warps", 1, 32)))
        check_flags(self.name, config, *self.flags)
        check_pdl(self.name, config, target)
        if config.get("shifted_copies") and not is_ragged(
            shape["N"], VECTOR_BYTES // DTYPE_BYTES[dtype], config["block_m"], 1
        ):
            raise InputError(f"{self.name}: shifted_copies is 1; expected 0 but for ragged rows")
        check_elements(self.name, config, tile=("block_m", "block_n"), most=MAX_THREAD_ELEMENTS)
        if config["block_m"] > 1 and config["block_n"] < shape["N"]:
            raise InputError(
                f"{self.name}: block_m is {config['block_m']}; expected 1 where a block holds less than a row"
            )

    def candidates(self, shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
        """Yield the configurations that may be worth timing: rows in registers, in blocks and in clusters."""
        n, own = shape["N"], self.triton_config(shape, dtype, target)
        if target == VARIANT_TARGET:
            for variant in self.variants:
                yield from variant.candidates(shape, dtype)
        whole = power_of_two(n)
        tiles = itertools.product((2, 4, 8, 16, 32), (whole,), (1, 2, 4, 8, 16)) if n <= 2 * NARROW else ()
        blocks = itertools.product((1,), (512, 1024, 2048, 4096, 8192, 16_384), (1, 2, 4, 8, 16, 32))
        yield self._candidate(own, shape, dtype)
        for block_m, block_n, num_warps in itertools.chain(tiles, blocks):
            if block_n > 2 * whole:
                continue
            config = {**own, "block_m": block_m, "block_n": block_n, "num_warps": num_warps}
            if own.get("shifted_copies"):
                config["shifted_copies"] = int(is_ragged(n, VECTOR_BYTES // DTYPE_BYTES[dtype], block_m, 1))
            yield self._candidate(config, shape, dtype)

    def _candidate(self, config: Mapping[str, int], shape: Shape, dtype: Dtype) -> Candidate:
        block_m, block_n, warps, n = config["block_m"], config["block_n"], config["num_warps"], shape["N"]
        held = block_m * block_n // (32 * warps)
        return Candidate(
            config=config,
            tiles=ceil_div(shape["M"], block_m),
            tile_flops=self.flops * block_m * n,
            # All blocks of a row but the last are read twice.
            tile_bytes=DTYPE_BYTES[dtype] * block_m * (2 * n - n // ceil_div(n, block_n)),
            warps=warps,
            # Elements in fp32, the scales beside them, and some for sums and addresses.
            registers=held + held // 2 + 24,
            shared_bytes=4 * block_m * warps,
        )

    # Compiling and launching

    def constants(self, config: Mapping[str, Any], n_cols: int, element: int) -> dict[str, int]:
        """Return the constants of the function. Known when it compiles, masks that are always true disappear."""
        vector, copies = VECTOR_BYTES // element, config.get("shifted_copies", 0)
        return {
            "N_COLS": n_cols,
            "BLOCK_M": config["block_m"],
            "BLOCK_N": config["block_n"],
            "VECTOR": vector,
            "RAGGED": int(is_ragged(n_cols, vector, config["block_m"], copies)),
            "SCALE_STEP": ceil_div(n_cols, vector) * vector if copies else 1,
            "BYPASS_L1": config.get("bypass_l1", 0),
            "PIPELINED": config.get("pipelined_loads", 0),
            "WARPS": config["num_warps"],
            "PDL": config["pdl"],
        }

    def ahead(self, config: Config, shape: Shape, dtype: Dtype, target: str) -> Ahead | AheadCuda:
        """Return what the compiler needs to compile the kernel without a GPU."""
        if self.variants and "variant" in config:
            return self._variant(config).plan(config, shape, dtype, eps=self.eps).ahead(dtype)
        return ahead(
            self.function,
            ("x_ptr", *(f"{name}_ptr" for name in self.scales), "y_ptr"),
            {"n_rows": "i32"} if self.eps is None else {"n_rows": "i32", "eps": "fp32"},
            config,
            dtype=dtype,
            constants=self.constants(config, shape["N"], DTYPE_BYTES[dtype]),
            options=self.options(config, shape["N"]),
        )

    def prepare(
        self, inputs: Mapping[str, Tensor], out: Tensor, config: Mapping[str, Any], *, eps: float | None = None
    ) -> Launch:
        """Return the launch: of the shifted copies, where the configuration asks for them, and of the function."""
        x, scales = inputs["x"], [inputs[name] for name in self.scales]
        n_rows, n_cols = x.shape
        eps = self.eps if eps is None else eps
        if self.variants and "variant" in config:
            shape, dtype = {"M": n_rows, "N": n_cols}, dtype_name(x, self.name)
            return self._variant(config).plan(config, shape, dtype, eps=eps).prepare({**inputs, "y": out})
        constants = self.constants(config, n_cols, x.element_size())
        copy = None
        if config.get("shifted_copies"):
            scales, copy = _copies(scales, constants, config)
        reduce = prepare(
            self.function,
            (x, *scales, out),
            (n_rows,) if eps is None else (n_rows, eps),
            config,
            grid=ceil_div(n_rows, config["block_m"]),
            constants=constants,
            options=self.options(config, n_cols),
        )
        if copy is None:
            return reduce

        def launch() -> None:
            copy()
            reduce()

        return launch

    def __call__(self, x: Tensor, *scales: Tensor, eps: float | None = None) -> Tensor:
        """Return the result over the last dimension. Shapes: x (…, N), scales (N,) of one dtype on one GPU."""
        import torch

        flat = x.contiguous().view(-1, x.shape[-1])
        out = torch.empty_like(flat)
        inputs = {"x": flat, **{name: scale.contiguous() for name, scale in zip(self.scales, scales, strict=True)}}
        shape = {"M": flat.shape[0], "N": flat.shape[1]}
        config = self._config_for(inputs, shape, dtype_name(x, self.name))
        self.prepare(inputs, out, config, eps=eps)()
        return out.view(x.shape)

    def _config_for(self, inputs: Mapping[str, Tensor], shape: Shape, dtype: Dtype) -> Config:
        """Return the configuration of a call: of the Triton function where an address is no multiple of 16 bytes."""
        rule = self.config if is_tma_aligned(*inputs.values()) else self.triton_config
        return rule(shape, dtype, device_target(inputs["x"]))


def _copies(
    scales: Sequence[Tensor], constants: Mapping[str, int], config: Mapping[str, Any]
) -> tuple[list[Tensor], Launch]:
    """Return room for each scale shifted by 0 to VECTOR - 1 elements, and the launch that fills it.

    The first vector of a ragged row starts at one of VECTOR columns, so in one of the copies its scales are aligned.
    """
    import torch

    vector, step = constants["VECTOR"], constants["SCALE_STEP"]
    copies = torch.empty(len(scales) * vector * step, dtype=scales[0].dtype, device=scales[0].device)
    grid = (vector, ceil_div(step, _COPIED_AT_ONCE))
    fixed = {"N_COLS": constants["N_COLS"], "STEP": step, "BLOCK": _COPIED_AT_ONCE, "PDL": config["pdl"]}
    given = tuple(scales)

    def copy() -> None:
        shifted_copies[grid](given, copies, **fixed, num_warps=4, **pdl_options(config))

    return list(copies.view(len(scales), -1)), copy
