"""Defines the contract of a kernel: what a kernel file exports, and what it may call. Imports neither torch nor triton.

A kernel file, or the __init__.py of a kernel folder, exports one constant, KERNEL, whose name is that of the file or
folder. Its work model, shapes and tolerances must load on a machine without torch and triton, so it takes triton from
`import_triton` and imports torch in functions. kernel_files finds and loads kernels.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol, TypeVar

from ledger.errors import InputError, MachineError
from ledger.operations import Operation, Shape
from ledger.records import Dtype, Path, Work
from ledger.releases import TRITON
from ledger.sources.loader import read_text
from ledger.suggestions import install_command

_T = TypeVar("_T")
Config = Mapping[str, int | str]
Launch = Callable[[], None]
Prepare = Callable[[Mapping[str, Any], Any, Config], Launch]

GPU_IMPLEMENTATIONS = ("triton", "cuda", "torch")
"""What a kernel's implementation on a GPU may be called: Triton (also with variants in CUDA C++), CUDA C++, torch."""
CPU_IMPLEMENTATION = "torch-cpu"


def keeping(call: Callable[[], object]) -> Launch:
    """Return a launch of a library call that makes its own result, of which the latest is kept until the next call.

    A result dropped at once would leave its memory to the next call: the calls of a rotation over input sets would all
    write to one buffer, which stays in the cache, while what is compared with them writes to one for each set.
    """
    kept: list[object] = []

    def launch() -> None:
        # Dropped first, so that the new result can reuse the old one's memory: one buffer for each launch, not two.
        kept.clear()
        kept.append(call())

    return launch


@dataclass(frozen=True)
class Tolerance:
    """Bound |output - float64 reference| by atol + rtol · |reference|, with the reason for the two numbers."""

    atol: float
    rtol: float
    reason: str


MOST_TOLERANCE: Mapping[Dtype, float] = {
    "fp64": 1e-6, "fp32": 2e-2, "tf32": 5e-2, "fp16": 5e-2, "bf16": 0.15, "fp8_e4m3": 0.25, "int8": 0.25,
}  # fmt: skip
"""The widest tolerance by dtype, as a share of an output's root mean square: some ten roundings of a result, in fp32
those of operands in tf32. A wider one lets the result of another function pass."""


@dataclass(frozen=True)
class Ahead:
    """Say how to compile a kernel ahead of time: triton's signature, constants and options by name.

    function: the @triton.jit function. signature: argument -> triton type ("*fp16", "i32", "constexpr", a tensor
    descriptor). constants: constexpr argument -> value. options: num_warps, num_stages and the like.
    """

    function: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    options: Mapping[str, int]


class CudaProgram(Protocol):
    """Compile one kernel of CUDA C++ for a target such as sm_90; equal ones are equal and hash alike. Needs no GPU.

    Raises (its methods): InputError for a source that does not compile; MachineError without a compiler.
    """

    @property
    def entry(self) -> str:
        """Return the name of the kernel in the cubin."""

    def cubin(self, target: str) -> bytes:
        """Return the machine code."""

    def ptx(self, target: str) -> str:
        """Return the intermediate code."""

    def compiler(self) -> str:
        """Return the compiler's name and version."""


@dataclass(frozen=True)
class AheadCuda:
    """Say how to compile a kernel of CUDA C++ ahead of time, and how it is launched. Units: bytes a block."""

    source: CudaProgram
    programs: int
    threads: int
    shared_bytes: int


@dataclass(frozen=True)
class Candidate:
    """Hold a launch configuration that may be worth timing, with what the analytic model needs to know of it.

    tiles: equal pieces of work that the SMs share. tile_flops: operations of one, padding included; tile_bytes: what it
    reads of global memory, whether from DRAM or from L2.
    warps, registers (a thread), shared_bytes: of one program, as the kernel file estimates them.
    bytes_under_way: bytes of DRAM that one program has asked for and not used yet, where that limits it.
    extra_clocks: clocks that a launch takes beside its tiles, as measured, such as for sums that programs hand on.
    """

    config: Mapping[str, int | str]
    tiles: int
    tile_flops: int
    tile_bytes: int
    warps: int
    registers: int
    shared_bytes: int
    bytes_under_way: int | None = None
    extra_clocks: int = 0


def variations(config: Config, choices: Mapping[str, Sequence[int | str]]) -> Iterator[dict[str, int | str]]:
    """Yield a configuration with every combination of values for some of its keys."""
    for values in itertools.product(*choices.values()):
        yield {**config, **dict(zip(choices, values, strict=True))}


@dataclass(frozen=True)
class Kernel:
    """Describe a kernel: what it computes, what that costs, how it is launched and how far it may err.

    work: (shape, dtype) -> exact counts.
    path: (dtype, target, implementation) -> the instruction path that this implementation's compiler takes there.
    config: (shape, dtype, target) -> launch configuration, integers and text, from a table or a rule; never autotuned.
    check_config: (config, shape, dtype, target) -> None; raises InputError for one that the architecture cannot run.
    implementations: what a seal calls it ("triton", "cuda" or "torch" on a GPU, "torch-cpu" on a CPU) -> prepare(
        inputs, out, config), which allocates everything and returns the launch: a function without arguments that only
        launches, may be captured in a CUDA graph and called any number of times.
    reference: inputs -> output in float64 (torch tensors on any device).
    baselines: name -> prepare(inputs, out, config) of what the library offers for the same result; one that returns its
        result instead of writing `out` keeps it (`keeping`).
    ahead: (config, shape, dtype, target) -> how to compile ahead of time.
    launched: a regular expression that matches the names of the GPU kernels that one call launches.
    candidates: (shape, dtype, target) -> configurations that ledger tune may time, those that cannot run included.
    """

    name: str
    operation: Operation
    summary: str
    formula: str
    dtypes: tuple[Dtype, ...]
    work: Callable[[Shape, Dtype], Work]
    excludes: str
    path: Callable[[Dtype, str, str], Path]
    config: Callable[[Shape, Dtype, str], Config]
    check_config: Callable[[Config, Shape, Dtype, str], None]
    tolerances: Mapping[Dtype, Tolerance]
    cases: tuple[Mapping[str, int], ...]
    implementations: Mapping[str, Prepare]
    reference: Callable[[Mapping[str, Any]], Any]
    launched: str
    baselines: Mapping[str, Prepare] = field(default_factory=dict)
    ahead: Callable[[Config, Shape, Dtype, str], Ahead | AheadCuda] | None = None
    candidates: Callable[[Shape, Dtype, str], Iterable[Candidate]] | None = None

    def check_shape(self, shape: Shape) -> None:
        """Check that a shape has exactly this kernel's keys. Raises: InputError."""
        expected = set(self.operation.shape_keys)
        if set(shape) != expected:
            got = ",".join(sorted(shape)) or "none"
            raise InputError(
                f"{self.name}: shape keys are {got}; expected {','.join(self.operation.shape_keys)}, each once"
            )

    def check_offers(self, shape: Shape, dtype: Dtype) -> None:
        """Check that a cell has this kernel's shape keys and a dtype that it offers. Raises: InputError."""
        self.check_shape(shape)
        if dtype not in self.dtypes:
            raise InputError(f"{self.name}: dtype {dtype} is not offered; expected one of: {', '.join(self.dtypes)}")


_only_the_model: ContextVar[bool] = ContextVar("only_the_model", default=False)


@contextmanager
def model_only(wanted: bool) -> Iterator[None]:
    """Let `import_triton` return stand-ins for the length of a `with` block, where only a kernel's model is wanted."""
    token = _only_the_model.set(wanted)
    try:
        yield
    finally:
        _only_the_model.reset(token)


class _Inert:
    """Stand in for triton where only a kernel's model is wanted: any attribute, and a decorator that does nothing."""

    def __getattr__(self, name: str) -> _Inert:
        return self

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) and not options else self


def import_triton() -> tuple[Any, Any]:
    """Return the modules triton and triton.language, or inert stand-ins while only the model is being loaded.

    Raises: MachineError when triton is needed and not installed, or is no release with which the kernels compile.
    """
    if _only_the_model.get():
        return _Inert(), _Inert()
    # The default up to 3.9, which warns that 3.10 rounds products before they are added, unless set.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    try:
        import triton
        import triton.language
    except ImportError as error:
        raise MachineError(
            "triton is not installed; expected it on a machine that compiles or measures kernels: "
            f"{install_command('torch')}"
        ) from error
    if not TRITON.holds(triton.__version__):
        raise MachineError(
            f"triton {triton.__version__} is installed; expected {TRITON}, with which the kernels compile: "
            f"pip install '{TRITON.requirement}'"
        )
    return triton, triton.language


DEFAULTS = "__ledger_defaults__"
"""The attribute in which @ledger.kernel(...) keeps what it was given."""


class _Decorator(ModuleType):
    """Let this module be called: @ledger.kernel(args=…) on a callable of one's own."""

    def __call__(
        self,
        *,
        args: str | Callable[[Any], Any],
        shape: Mapping[str, int] | None = None,
        dtype: Dtype | None = None,
        reference: str | None = None,
        tolerance: float | None = None,
        run: str | None = None,
        flops: int | None = None,
        bytes: int | None = None,
    ) -> Callable[[_T], _T]:
        """Return a decorator that keeps defaults for `ledger predict module:name`; it does not change the callable.

        args: as --args has it, or a function of a generator. run: the pass, forward, backward or both.
        """
        given = {
            "args": args, "shape": shape, "dtype": dtype, "reference": reference, "run": run, "flops": flops,
            "bytes": bytes, "tolerance": tolerance,
        }  # fmt: skip

        def keep(function: _T) -> _T:
            setattr(function, DEFAULTS, {name: value for name, value in given.items() if value is not None})
            return function

        return keep


sys.modules[__name__].__class__ = _Decorator


def source_text(module: str, name: str) -> str:
    """Return the text of a file beside a kernel's module, such as its CUDA C++, from the sealed bytes.

    module: the module's __name__. name: a string literal there, by which the seal covers the file.
    Raises: InputError for a file that the seal does not cover, and for a module that was not loaded as a closure.
    """
    return read_text(module, name)
