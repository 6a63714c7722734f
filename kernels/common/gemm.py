"""Builds kernels that compute a matrix product with an epilogue: launch, checks, ahead-of-time compilation, candidates.

Shapes: a (M, K); b (K, N), or (N, K) where b_rows is set; c (M, N); all row-major. gemm_config has the configuration
keys, gemm_device the loops, gemm_cluster the CUDA C++. Imports torch and triton, only when called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import Ahead, AheadCuda, Candidate, Launch, Tolerance
from ledger.operations import Shape
from ledger.records import Dtype, Work
from ledger.roofline import DTYPE_BYTES

from . import configs, gemm_few_rows, gemm_residues, gemm_split_k, pad_rows
from .baselines import dtype_name
from .family import Family
from .gemm_cluster import ClusterGemm
from .gemm_config import (
    CUDA,
    CUDA_DEFAULTS,
    FEW_ROWS,
    GENERIC,
    GROUP,
    KEYS,
    WARP_SPECIALISED,
    Settings,
    lines,
    shared_bytes,
    tile_rows,
)
from .gemm_device import gemm_kernel, gemm_pipelined, identity
from .gemm_few_rows import FewRows
from .gemm_residues import RESIDUES, Residues, residues_bytes
from .gemm_split_k import SPLIT_K, SplitK, split_k_bytes
from .gemm_tiles import RAGGED, TILES, Tile, waves_cost
from .launches import MATRIX_SIZES, ahead_of, constants_of, options_of
from .targets import (
    SHARED_BYTES,
    SM_REGISTERS,
    TMA_ALIGNMENT,
    TMA_TARGETS,
    ceil_div,
    device_target,
    is_tma_aligned,
    matmul_path,
    sms_of,
)
from .tensor_maps import gluon_descriptors, gluon_types, triton_descriptor, triton_type

if TYPE_CHECKING:
    from torch import Tensor

_RANGES = (
    ("block_m", 16, 256), ("block_n", 16, 256), ("block_k", 16, 256), ("num_warps", 1, 16), ("subtiles", 1, 4),
)  # fmt: skip
_TRITON_TYPES = {"fp8_e4m3": "fp8e4nv", "int8": "i8"}
# A warpgroup has 232 registers a thread; with one-byte operands 128 of them hold accumulators.
_GROUP_ELEMENTS = 128 * 128

# Choices that are kept: a call asks for one each time.
_KEPT = 1024

COPIED_FROM = 65
"""Rows of C from which on an unaligned B is copied. With fewer the copy takes longer than reading B as it is."""


def product_cases(inner: int) -> tuple[dict[str, int], ...]:
    """Return the cases of products: cubes, one element, primes, a small aligned one of `inner` steps, few rows."""
    return (
        {"M": 4096, "N": 4096, "K": 4096},
        {"M": 8192, "N": 8192, "K": 8192},
        {"M": 1, "N": 1, "K": 1},
        {"M": 127, "N": 129, "K": 131},
        {"M": 1000, "N": 1512, "K": inner},
        {"M": 16, "N": 14336, "K": 4096},
    )


TOLERANCES: dict[Dtype, Tolerance] = {
    "fp16": Tolerance(1e-4, 5e-4, "one rounding to 11 bits; the sum is fp32"),
    "bf16": Tolerance(1e-4, 4e-3, "one rounding to 8 bits; the sum is fp32"),
    "fp32": Tolerance(2e-5, 1e-5, "up to 8192 terms are summed in 24 bits, in blocks"),
}
"""Tolerances of products that are summed in fp32 and rounded once."""


@dataclass(frozen=True, kw_only=True)
class Gemm(Family):
    """Hold what differs between kernels over the shared loops.

    dtypes: of A and B. epilogue: the function of a tile's accumulators (gemm_device). epilogue_flops: its operations an
    element of C. bias: whether there is an input bias (N). scale: (K) -> the number that the epilogue gets. b_rows:
    whether B is (N, K). output: the dtype of C, if not that of A. tiles, ragged: target -> tiles of the generic
    variant, and where rows are no multiple of 16 bytes. cluster: the CUDA C++. few_rows, residues: those of few rows,
    mostly unaligned ones. split_k: that of few tiles and many steps.
    more: (target) -> further keys. lacks, having: what an unknown target may lack and the others have, for messages.
    """

    name: str
    dtypes: tuple[Dtype, ...] = ("fp16", "bf16", "fp32")
    epilogue: Any = identity
    epilogue_flops: int = 0
    bias: bool = False
    scale: Callable[[int], float] | None = None
    b_rows: bool = False
    output: Dtype | None = None
    tiles: Mapping[str, tuple[Tile, ...]] = field(default_factory=lambda: TILES)
    ragged: Mapping[str, tuple[Tile, ...]] = field(default_factory=lambda: RAGGED)
    cluster: ClusterGemm | None = None
    few_rows: FewRows | None = None
    residues: Residues | None = None
    split_k: SplitK | None = None
    more: Callable[[str], Mapping[str, int]] = lambda target: {}
    lacks: str = ""
    having: str = ""
    _chosen: dict[tuple[int, int, int, Dtype, str, int], dict[str, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    path = staticmethod(matmul_path)
    cases: tuple[Mapping[str, int], ...] = product_cases(2056)

    @property
    def launched(self) -> str:
        """Return a pattern of the names of what a call launches."""
        names = ["gemm_(kernel|pipelined)", pad_rows.ENTRY]
        names += [f"{self.name}_cluster"] if self.cluster else []
        names += [gemm_few_rows.ENTRY] if self.few_rows else []
        names += [gemm_residues.ENTRY, gemm_residues.GATHER] if self.residues else []
        names += [gemm_split_k.ENTRY, gemm_split_k.SUM] if self.split_k else []
        return "|".join(f"^{name}$" for name in names)

    def config(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
        """Return the launch configuration of a shape. Raises: InputError for a target without one."""
        # A target is equal to its name, whatever the SMs of the chip; a name alone has none.
        asked = (shape["M"], shape["N"], shape["K"], dtype, target, getattr(target, "sms", 0))
        if asked not in self._chosen:
            if len(self._chosen) >= _KEPT:
                self._chosen.clear()
            self._chosen[asked] = self._fastest(shape, dtype, target)
        return dict(self._chosen[asked])

    def _fastest(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
        """Choose the launch configuration of a shape: here, of the generic variant; families over this one have rules.

        Raises: InputError for a target without one.
        """
        return self.generic_config(shape, dtype, target)

    def candidates(self, shape: Shape, dtype: Dtype, target: str) -> Iterator[Candidate]:
        """Yield the configurations that may be worth timing: here, the one of the rule."""
        yield self.candidate(self.config(shape, dtype, target), shape, dtype)

    def work(self, shape: Shape, dtype: Dtype) -> Work:
        """Count a multiply-add (two operations) for each (m, n, k) and the epilogue; each operand moves once."""
        m, n, k = shape["M"], shape["N"], shape["K"]
        return Work(
            flops=2 * m * n * k + self.epilogue_flops * m * n,
            bytes_read=DTYPE_BYTES[dtype] * (m * k + k * n + (n if self.bias else 0)),
            bytes_written=self.output_bytes(dtype) * m * n,
        )

    def output_bytes(self, dtype: Dtype) -> int:
        """Return the bytes of an element of C."""
        return DTYPE_BYTES[self.output or dtype]

    # Configuration

    def generic_config(self, shape: Shape, dtype: Dtype, target: str) -> dict[str, Any]:
        """Return the configuration of the generic variant. Raises: InputError for a target without one."""
        configs.check_tuned(self.name, target, tuple(self.tiles), having=self.having)
        aligned = self._is_aligned(shape, dtype)
        tiles = self.tiles[target] if aligned else self.ragged.get(target, self.tiles[target])
        block_m, block_n, block_k, num_warps, num_stages, _ = min(tiles, key=waves_cost(shape, target))
        config: dict[str, Any] = {
            "block_m": block_m,
            "block_n": block_n,
            "block_k": block_k // 2 if dtype == "fp32" else block_k,
            "group_m": GROUP,
            "subtiles": 1,
            "programs": sms_of(target),
            "num_warps": num_warps,
            "num_stages": num_stages,
            "tma": int(target in TMA_TARGETS and aligned),
            "variant": GENERIC,
            **self.cuda_defaults,
            **self.more(target),
        }
        while self.shared_bytes(config, dtype) > SHARED_BYTES[target] and config["num_stages"] > 1:
            config["num_stages"] -= 1
        return config

    @property
    def cuda_defaults(self) -> dict[str, int]:
        """Return the keys of the CUDA C++, if there is any, as the other variants have them."""
        return CUDA_DEFAULTS if self.cluster else {}

    def _rows(self, shape: Shape, dtype: Dtype) -> tuple[tuple[str, int, int], ...]:
        """Return the rows that TMA moves: shape key, elements of a row, bytes of an element."""
        return (("N", shape["N"], self.output_bytes(dtype)), ("K", shape["K"], DTYPE_BYTES[dtype]))

    def _is_aligned(self, shape: Shape, dtype: Dtype) -> bool:
        return not any(length * size % TMA_ALIGNMENT for _, length, size in self._rows(shape, dtype))

    def pads(self, shape: Shape, dtype: Dtype, target: str) -> bool:
        """Tell whether rows of a shape are unaligned and the rule lets TMA read copies of them."""
        # In fp32 stores without TMA spill registers: 2048 x 4099 x 4096 took 3.4 ms, not 1.9, on an H200.
        if target not in pad_rows.TARGETS or dtype == "fp32" or self._is_aligned(shape, dtype):
            return False
        columns = shape["K" if self.b_rows else "N"]
        return columns * DTYPE_BYTES[dtype] % TMA_ALIGNMENT == 0 or shape["M"] >= COPIED_FROM

    def padded(self, shape: Shape, dtype: Dtype) -> Shape:
        """Return a shape with the row pitches that TMA sees, which its configuration is chosen for."""
        return {**shape, **{key: pad_rows.padded(length, size) for key, length, size in self._rows(shape, dtype)}}

    def _is_direct(self, config: Settings, n_cols: int, dtype: Dtype) -> bool:
        """Tell whether C is stored without TMA."""
        return not config["tma"] or n_cols * self.output_bytes(dtype) % TMA_ALIGNMENT > 0

    def shared_bytes(self, config: Settings, dtype: Dtype, n_cols: int = 1) -> int:
        """Return an upper bound of the shared memory of a CTA, in bytes. n_cols: of B, which one variant asks for."""
        if config["variant"] == RESIDUES:
            return residues_bytes(config, n_cols)
        if config["variant"] == SPLIT_K:
            return split_k_bytes(config)
        return shared_bytes(config, DTYPE_BYTES[dtype], self.output_bytes(dtype))

    def check_config(self, config: Settings, shape: Shape, dtype: Dtype, target: str) -> None:
        """Check that an architecture can run a configuration. Raises: InputError."""
        more = self.more(target)
        configs.check_keys(self.name, config, (*KEYS, *self.cuda_defaults, *more))
        variant = config["variant"]
        variants = {CUDA: self.cluster, FEW_ROWS: self.few_rows, RESIDUES: self.residues, SPLIT_K: self.split_k}
        own = [name for name, has in variants.items() if has]
        if variant not in (GENERIC, WARP_SPECIALISED, *own):
            raise InputError(
                f"{self.name}: variant is {variant!r}; expected {', '.join((GENERIC, WARP_SPECIALISED, *own))}"
            )
        configs.check_target(self.name, target, tuple(self.tiles), lacks=self.lacks)
        configs.check_bf16(self.name, dtype, target)
        if variant == CUDA and self.cluster:
            self.cluster.check(config, shape, dtype, target)
        elif variant == FEW_ROWS and self.few_rows:
            self.few_rows.check(config, shape, dtype, target)
        elif variant == RESIDUES and self.residues:
            self.residues.check(config, shape, dtype, target)
        elif variant == SPLIT_K and self.split_k:
            self.split_k.check(config, shape, dtype, target)
        else:
            configs.check_powers(self.name, config, _RANGES)
            configs.check_wgmma(self.name, config, target)
            self._check_variant(config, dtype, target)
        configs.check_positive(self.name, config, "num_stages", "group_m", "programs")
        configs.check_flags(self.name, config, *more)
        for key, length, size in self._rows(shape, dtype):
            # Where unaligned rows can be copied, TMA reads any.
            rows = {} if target in pad_rows.TARGETS else {key: length}
            configs.check_tma(self.name, config, target, rows=rows, size=size, of=dtype)
        configs.check_shared(self.name, self.shared_bytes(config, dtype, shape["N"]), target)

    def _check_variant(self, config: Settings, dtype: Dtype, target: str) -> None:
        """Check what the generic and the warp-specialised variant cannot run. Raises: InputError."""
        variant, tma, subtiles = config["variant"], config["tma"], config["subtiles"]
        if any(config[key] != value for key, value in self.cuda_defaults.items()):
            wanted = ", ".join(f"{key} {value}" for key, value in self.cuda_defaults.items())
            raise InputError(f"{self.name}: variant is {variant}; expected {wanted}")
        if not tma and subtiles != 1:
            raise InputError(f"{self.name}: subtiles is {subtiles} without tma; expected 1, or tma 1")
        if variant == GENERIC or DTYPE_BYTES[dtype] == 2:
            configs.check_ranges(self.name, config, (("subtiles", 1, 2),))
        if variant == GENERIC:
            return
        if target != "sm_90" or dtype == "fp32" or not tma:
            raise InputError(
                f"{self.name}: variant is {variant} on {target} in {dtype} with tma {tma}; expected sm_90, 8 or 16 "
                "bits and tma 1"
            )
        if config["num_warps"] != 4 or config["block_m"] < 128 or config["num_stages"] < 2:
            raise InputError(
                f"{self.name}: variant is {variant}; expected 4 warps, block_m at least 128 and 2 stages or more"
            )
        promote = config.get("promote", 0)
        elements = config["block_m"] // 2 * config["block_n"] * (1 + promote)
        if DTYPE_BYTES[dtype] == 1 and elements > _GROUP_ELEMENTS:
            raise InputError(
                f"{self.name}: variant is {variant}, promote is {promote} with a tile of {config['block_m']} × "
                f"{config['block_n']}; a warpgroup keeps {elements} sums in its registers, expected at most "
                f"{_GROUP_ELEMENTS}"
            )

    # Candidates

    def deepest(self, config: Settings, dtype: Dtype, target: str) -> Iterator[Settings]:
        """Yield a configuration with as many stages as fit, from 2 to 8, and with one less."""
        fit = [n for n in range(2, 9) if self._fits({**config, "num_stages": n}, dtype, target)]
        for n in fit[-2:]:
            yield {**config, "num_stages": n}

    def _fits(self, config: Settings, dtype: Dtype, target: str) -> bool:
        return self.shared_bytes(config, dtype) <= SHARED_BYTES[target]

    def candidate(self, config: Settings, shape: Shape, dtype: Dtype) -> Candidate:
        """Return a configuration with what the analytic model needs to know of it."""
        block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
        inner = block_k * ceil_div(shape["K"], block_k)
        # The warp-specialised variant is three warpgroups that share all registers of an SM.
        warps, registers = 12, 168
        if config["variant"] in (GENERIC, FEW_ROWS, RESIDUES, SPLIT_K):
            warps = config["num_warps"]
            # The accumulators, and some for addresses and operands in flight.
            registers = block_m * block_n // (32 * warps) + 48
        tiles = ceil_div(shape["M"], block_m) * ceil_div(shape["N"], block_n)
        read_m, read_n, parts, extra = block_m, block_n, 1, 0
        if config["variant"] in (FEW_ROWS, RESIDUES, SPLIT_K):
            parts = config["split_k"]
        if config["variant"] == SPLIT_K:
            extra = gemm_split_k.extra_clocks(config, shape)
        if config["variant"] == CUDA and self.cluster:
            rows, cols = config["cluster_m"], config["cluster_n"]
            warps, registers = config["num_warps"] + 4, min(168, SM_REGISTERS // (32 * (config["num_warps"] + 4)))
            tiles = rows * cols * ceil_div(shape["M"], rows * block_m) * ceil_div(shape["N"], cols * block_n)
            # Of its tiles a CTA reads a share; the others of its cluster read the rest for it.
            read_m, read_n = tile_rows(config, shape["M"]) // cols, block_n // rows
            # Stream-K divides tiles by steps: as many equal pieces as steps.
            parts, extra = config["split_k"], 0
            if config["stream_k"]:
                parts, extra = inner // block_k, self.cluster.divided_clocks
        # Rows of a box that lie in two lines of L2 take both.
        lines_of = lines if config["tma"] and DTYPE_BYTES[dtype] == 2 else lambda columns: 1
        read = read_m * lines_of(shape["K"]) + read_n * lines_of(shape["N"])
        return Candidate(
            config=config,
            tiles=tiles * parts,
            tile_flops=2 * block_m * block_n * inner // parts,
            tile_bytes=DTYPE_BYTES[dtype] * read * inner // parts,
            warps=warps,
            registers=registers,
            shared_bytes=self.shared_bytes(config, dtype, shape["N"]),
            extra_clocks=extra,
        )

    # Compiling and launching

    def ahead(self, config: Settings, shape: Shape, dtype: Dtype, target: str) -> Ahead | AheadCuda:
        """Return what the compiler needs to compile the kernel without a GPU."""
        if config["variant"] == CUDA and self.cluster:
            return self.cluster.ahead(config, shape, dtype)
        if config["variant"] == FEW_ROWS and self.few_rows:
            return self.few_rows.ahead(config, shape, dtype)
        if config["variant"] == RESIDUES and self.residues:
            return self.residues.ahead(config, shape, dtype)
        if config["variant"] == SPLIT_K and self.split_k:
            return self.split_k.ahead(config, shape, dtype)
        direct = self._is_direct(config, shape["N"], dtype)
        function, constants, options = self._compiled_as(config, direct=direct)
        kind, written = (_TRITON_TYPES.get(one, one) for one in (dtype, self.output or dtype))
        kinds = {"a": (kind, DTYPE_BYTES[dtype]), "b": (kind, DTYPE_BYTES[dtype])}
        kinds["c"] = (written, self.output_bytes(dtype))
        operands = {name: f"*{kinds[name][0]}" for name in "abc"}
        blocks = self._blocks(config, direct=direct)
        if config["variant"] == WARP_SPECIALISED:
            operands |= gluon_types(kinds, blocks)
        elif config["tma"]:
            operands |= {name: triton_type(kinds[name][0], block) for name, block in blocks.items()}
        # A number or vector that the kernel has not is a constant, None, and no argument of the launch.
        absent = {key: None for key, has in (("bias", self.bias), ("scale", self.scale)) if not has}
        arguments = {**operands, "bias": f"*{kind}", "scale": "fp32", **MATRIX_SIZES}
        return ahead_of(function, arguments, constants={**constants, **absent}, options=options)

    def _compiled_as(self, config: Settings, *, direct: bool) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        """Return the function of a configuration in Triton or Gluon, its constants and its options."""
        fixed = {
            "EPILOGUE": self.epilogue, "B_ROWS": int(self.b_rows), "PROMOTE": config.get("promote", 0),
            "DIRECT": int(direct),
        }  # fmt: skip
        if config["variant"] == WARP_SPECIALISED:
            constants = {"STAGES": config["num_stages"], **constants_of(config, "group_m")}
            return gemm_pipelined, {**fixed, **constants}, options_of(config, stages=False)
        constants = constants_of(config, "block_m", "block_n", "block_k", "group_m", "subtiles", "tma")
        return gemm_kernel, {**fixed, **constants}, options_of(config)

    def _blocks(self, config: Settings, *, direct: bool) -> dict[str, list[int]]:
        """Return the blocks that TMA moves."""
        block_m, block_n, block_k = config["block_m"], config["block_n"], config["block_k"]
        # Two warpgroups of the Gluon function multiply and store half of the rows each.
        rows = block_m // 2 if config["variant"] == WARP_SPECIALISED else block_m
        b_block = [block_n, block_k] if self.b_rows else [block_k, block_n]
        c_block = {} if direct else {"c": [rows, block_n // config["subtiles"]]}
        return {"a": [block_m, block_k], "b": b_block, **c_block}

    def prepare(self, inputs: Mapping[str, Tensor], out: Tensor, config: Settings) -> Launch:
        """Make the descriptors and return the launch, with the operation's scale."""
        scale = self.scale(inputs["a"].shape[1]) if self.scale else None
        return self._launcher(inputs, out, config, scale=scale)

    def _launcher(self, inputs: Mapping[str, Tensor], out: Tensor, config: Settings, *, scale: float | None) -> Launch:
        a, b, bias = inputs["a"], inputs["b"], inputs["bias"] if self.bias else None
        if not config["tma"] or config["variant"] == RESIDUES:
            return self._product(a, b, bias, out, config, scale=scale)
        (a, b), copy = pad_rows.pad_rows((a, b), overlap=bool(config.get("pdl")))
        if copy is None:
            return self._product(a, b, bias, out, config, scale=scale)
        # The product begins before the copy has ended.
        early = {"pdl": 1} if config["variant"] == CUDA else {}
        product = self._product(a, b, bias, out, {**config, **early}, scale=scale)

        def launch() -> None:
            copy()
            product()

        return launch

    def _product(
        self, a: Tensor, b: Tensor, bias: Tensor | None, out: Tensor, config: Settings, *, scale: float | None
    ) -> Launch:
        """Return the launch of operands that TMA can read, if the configuration has it read them."""
        if config["variant"] == CUDA and self.cluster:
            return self.cluster.prepare(a, b, out, config, dtype=self._dtype_of(a), bias=bias, scale=scale)
        if config["variant"] == FEW_ROWS and self.few_rows:
            return self.few_rows.prepare(a, b, bias, out, config, self._dtype_of(a))
        if config["variant"] == RESIDUES and self.residues:
            return self.residues.prepare(a, b, bias, out, config, self._dtype_of(a))
        if config["variant"] == SPLIT_K and self.split_k:
            return self.split_k.prepare(a, b, bias, out, config, self._dtype_of(a), scale=scale)
        (n_rows, n_inner), n_cols = a.shape, out.shape[1]
        grid = (min(ceil_div(n_rows, config["block_m"]) * ceil_div(n_cols, config["block_n"]), config["programs"]),)
        direct = self._is_direct(config, n_cols, self._dtype_of(a))
        function, constants, options = self._compiled_as(config, direct=direct)
        tensors, blocks = {"a": a, "b": b, "c": out}, self._blocks(config, direct=direct)
        described: list[object] = []
        if config["variant"] == WARP_SPECIALISED:
            described = gluon_descriptors(tensors, blocks)
        elif config["tma"]:
            described = [triton_descriptor(tensors[name], block) for name, block in blocks.items()]
        operands = [*described, *list(tensors.values())[len(described) :]]

        def launch() -> None:
            function[grid](*operands, bias, scale, n_rows, n_cols, n_inner, **constants, **options)

        return launch

    def _dtype_of(self, tensor: Tensor) -> Dtype:
        import torch

        bytewise: dict[object, Dtype] = {torch.float8_e4m3fn: "fp8_e4m3", torch.int8: "int8"}
        dtype = bytewise.get(tensor.dtype) or dtype_name(tensor, self.name)
        if dtype not in self.dtypes:
            raise InputError(f"{self.name}: dtype is {tensor.dtype}; expected one of: {', '.join(self.dtypes)}")
        return dtype

    def __call__(self, a: Tensor, b: Tensor, bias: Tensor | None = None, *, scale: float | None = None) -> Tensor:
        """Return the result of tensors on one GPU, all of one dtype of the kernel. Raises: InputError."""
        import torch

        given = {"a": a, "b": b} if bias is None else {"a": a, "b": b, "bias": bias}
        inputs = {name: tensor.contiguous() for name, tensor in given.items()}
        (dtype, *_), target = [self._dtype_of(tensor) for tensor in given.values()], device_target(a)
        written = {"fp16": torch.float16, "fp32": torch.float32}.get(self.output or "", a.dtype)
        out = torch.empty((a.shape[0], b.shape[0 if self.b_rows else 1]), dtype=written, device=a.device)
        shape = {"M": out.shape[0], "N": out.shape[1], "K": a.shape[1]}
        config = self.config(shape, dtype, target)
        # Operands can be copied, the bias is read where it lies.
        copies = target in pad_rows.TARGETS and dtype != "fp32" and shape["M"] >= COPIED_FROM
        copied = ("a",) if config["variant"] == RESIDUES else ("a", "b") if copies else ()
        if not is_tma_aligned(*(tensor for name, tensor in inputs.items() if name not in copied)):
            config = {**self.generic_config(shape, dtype, target), "tma": 0}
            if self.few_rows and self.few_rows.serves(shape["M"], dtype, target):
                config = self.few_rows.config(config, shape)
        self._launcher(inputs, out, config, scale=scale)()
        return out
