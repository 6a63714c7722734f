"""Compiles the CUDA C++ of a kernel and launches it. Imports cuda.bindings and torch, only when called.

A kernel has CUDA C++ in .cu and .cuh files beside its module where Triton cannot express it (clusters, distributed
shared memory). Headers that kernels share lie beside this module. Compiling needs NVRTC and no GPU.
Sources: the CUDA driver API (cuTensorMapEncodeTiled, cuLaunchKernelEx) and NVRTC's manual.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ledger.errors import InputError, MachineError, shortened
from ledger.kernel import AheadCuda, source_text
from ledger.launches import note_binary
from ledger.sources.scan import included_files

from .targets import TMA_ALIGNMENT, ceil_div

if TYPE_CHECKING:
    from torch import Tensor

Argument = Any
"""A torch tensor (its address is passed), an int (32 bits), a float (32 bits) or a tensor map."""


SHARED_HEADERS = ("hopper.cuh", "products.cuh", "cluster_gemm.cuh", "cluster_gemm_kernel.cuh")
"""The headers beside this module. Named by literals, so that a seal covers them."""


@dataclass(frozen=True)
class CudaSource:
    """Hold CUDA C++ with the macros it is compiled with.

    entry: the name of the kernel, declared extern "C". headers: name and text of each file that is included in quotes.
    """

    text: str
    entry: str
    defines: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()

    def cubin(self, target: str) -> bytes:
        """Return the machine code for a target such as sm_90. Raises: as compile_cuda."""
        return compile_cuda(self, target)

    def ptx(self, target: str) -> str:
        """Return the PTX for a target such as sm_90. Raises: as compile_cuda."""
        return compile_to_ptx(self, target)

    def compiler(self) -> str:
        """Return NVRTC's name and version. Raises: MachineError when it is not installed."""
        return compiler_version()


def cuda_source(
    module: str, file: str, *, entry: str, defines: Mapping[str, int], generated: Mapping[str, str] | None = None
) -> CudaSource:
    """Return the CUDA C++ of a file beside a kernel's module, with the headers that it includes.

    module: the kernel's __name__. file: named by a literal there, so that a seal covers it. generated: text of headers
    that are no files, by name; other headers are those shared, or lie beside the module.
    Raises: InputError for a file or header that a seal does not cover.
    """
    made, headers = generated or {}, dict[str, str]()
    text = source_text(module, file)
    pending = [text]
    while pending:
        for name in included_files(pending.pop().encode()):
            if name not in headers:
                headers[name] = made[name] if name in made else source_text(_home(module, name), name)
                pending.append(headers[name])
    macros = tuple((name, str(value)) for name, value in defines.items())
    return CudaSource(text, entry, macros, tuple(sorted(headers.items())))


def _home(module: str, header: str) -> str:
    """Return the module beside which a header lies."""
    return __name__ if header in SHARED_HEADERS else module


def _bindings() -> tuple[Any, Any]:
    """Return the driver API and NVRTC. Raises: MachineError when they are not installed."""
    try:
        from cuda.bindings import driver, nvrtc
    except ImportError as error:
        raise MachineError(
            "cuda.bindings is not installed; expected it on a machine that compiles or measures CUDA C++: "
            "pip install 'roofline-ledger[torch]'"
        ) from error
    return driver, nvrtc


def _checked(answer: tuple[Any, ...], what: str) -> Any:
    """Return what a call of the driver or of NVRTC gave. Raises: MachineError with the name of its error."""
    error, *rest = answer
    if int(error) != 0:
        raise MachineError(f"{what}: {getattr(error, 'name', error)}; expected success")
    return rest[0] if len(rest) == 1 else None


@functools.cache
def compile_cuda(source: CudaSource, target: str) -> bytes:
    """Return the cubin of a source for a target such as sm_90. Needs no GPU.

    Raises: InputError with the compiler's words for a source that does not compile; MachineError without NVRTC.
    """
    return _compile(source, target, "CUBIN")


@functools.cache
def compile_to_ptx(source: CudaSource, target: str) -> str:
    """Return the PTX of a source for a target such as sm_90. Raises: as compile_cuda."""
    return _compile(source, target.replace("sm_", "compute_"), "PTX").decode().rstrip("\0")


def compiler_version() -> str:
    """Return NVRTC's name and version. Raises: MachineError when it is not installed."""
    _, nvrtc = _bindings()
    try:
        _, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as error:
        raise MachineError(
            "NVRTC is not installed; expected it where CUDA C++ is compiled (it comes with torch for CUDA): "
            "pip install nvidia-cuda-nvrtc"
        ) from error
    return f"nvrtc {major}.{minor}"


def _buffer(size: int) -> bytes:
    """Return bytes of their own for NVRTC to write into: Python keeps one object for all bytes of length 1."""
    return b" " * max(size, 2)


def _compile(source: CudaSource, architecture: str, form: str) -> bytes:
    _, nvrtc = _bindings()
    compiler_version()
    # In a folder that does not exist, so that a quoted include finds nothing but the headers given here.
    name = f"/sealed-cuda-sources/{source.entry}".encode()
    names, texts = ([one[at].encode() for one in source.headers] for at in (0, 1))
    program = _checked(nvrtc.nvrtcCreateProgram(source.text.encode(), name, len(names), texts, names), "NVRTC")
    try:
        return _built(nvrtc, program, source, architecture, form)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _built(nvrtc: Any, program: Any, source: CudaSource, architecture: str, form: str) -> bytes:
    # The suffix gives wgmma, and with it code for this architecture alone.
    suffix = "a" if architecture.endswith(("_90", "_100")) else ""
    options = [f"--gpu-architecture={architecture}{suffix}", "-std=c++17", "-lineinfo"]
    options += [f"-D{macro}={value}" for macro, value in source.defines]
    (failed,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    log = _buffer(_checked(nvrtc.nvrtcGetProgramLogSize(program), "NVRTC"))
    nvrtc.nvrtcGetProgramLog(program, log)
    if int(failed) != 0:
        words = log.decode(errors="replace").strip("\0 \n")
        raise InputError(f"{source.entry}: the CUDA C++ does not compile for {architecture}: {shortened(words, 2000)}")
    size, fetch = getattr(nvrtc, f"nvrtcGet{form}Size"), getattr(nvrtc, f"nvrtcGet{form}")
    made = _buffer(_checked(size(program), "NVRTC"))
    fetch(program, made)
    return made


@functools.cache
def _primary_context(device: int) -> Any:
    """Return the context that torch and the CUDA runtime use on a device; it is kept as long as the process."""
    driver, _ = _bindings()
    return _checked(driver.cuDevicePrimaryCtxRetain(device), f"the context of device {device}")


def _need_context(device: int) -> None:
    """Make the device's context current in this thread, if none is. Assumes: the driver has been initialised."""
    driver, _ = _bindings()
    if int(_checked(driver.cuCtxGetCurrent(), "the current context")) == 0:
        _checked(driver.cuCtxSetCurrent(_primary_context(device)), f"taking the context of device {device}")


@functools.cache
def _function(source: CudaSource, target: str, shared_bytes: int, device: int) -> Any:
    """Return the loaded kernel of a source on one device; a module lives as long as the process."""
    driver, _ = _bindings()
    module = _checked(
        driver.cuModuleLoadData(compile_cuda(source, target)), f"loading {source.entry} on device {device}"
    )
    function = _checked(driver.cuModuleGetFunction(module, source.entry.encode()), f"finding {source.entry}")
    limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    _checked(driver.cuFuncSetAttribute(function, limit, shared_bytes), f"{shared_bytes} bytes of shared memory")
    if "__cluster_dims__" in source.text:
        larger = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        _checked(driver.cuFuncSetAttribute(function, larger, 1), "clusters of more than 8 CTAs")
    return function


@dataclass(frozen=True)
class TensorMap:
    """Hold the driver's tensor map with the tensor in which it points: a launch keeps both."""

    encoded: Any
    tensor: Tensor


def _stride_bytes(tensor: Tensor, dimension: int) -> int:
    """Return the bytes from one index to the next. Of a single one nothing uses it, but the driver checks it."""
    stride: int = tensor.stride(dimension) * tensor.element_size()
    return ceil_div(stride, TMA_ALIGNMENT) * TMA_ALIGNMENT if tensor.shape[dimension] == 1 else stride


def tensor_map(tensor: Tensor, box: tuple[int, int], *, promotion: Literal[128, 256] = 256) -> TensorMap:
    """Return the tensor map by which the copy engine moves boxes of row-major matrices in 128-byte swizzle.

    Shapes: tensor (rows, columns), or (matrices, rows, columns), of fp16, bf16, fp8 or int8, 16-byte aligned with a row
    pitch of a multiple of 16 bytes; box (rows, columns) of one matrix, its columns at most 128 bytes. What lies outside
    the matrix is loaded as zero and not stored.
    promotion: bytes that L2 fetches at once for a miss.
    Raises: MachineError when the driver refuses.
    """
    import torch

    driver, _ = _bindings()
    kinds = driver.CUtensorMapDataType
    kind = {
        torch.float16: kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        torch.bfloat16: kinds.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        torch.float8_e4m3fn: kinds.CU_TENSOR_MAP_DATA_TYPE_UINT8,
        torch.int8: kinds.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    }[tensor.dtype]
    swizzles, promotions = driver.CUtensorMapSwizzle, driver.CUtensorMapL2promotion
    sizes = [*reversed(tensor.shape)]
    strides = [_stride_bytes(tensor, dimension) for dimension in reversed(range(len(sizes) - 1))]
    extent = [box[1], box[0], 1][: len(sizes)]
    encoded = _checked(
        driver.cuTensorMapEncodeTiled(
            kind,
            len(sizes),
            tensor.data_ptr(),
            [driver.cuuint64_t(size) for size in sizes],
            [driver.cuuint64_t(stride) for stride in strides],
            [driver.cuuint32_t(size) for size in extent],
            [driver.cuuint32_t(1)] * len(sizes),
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzles.CU_TENSOR_MAP_SWIZZLE_128B if box[0] > 1 else swizzles.CU_TENSOR_MAP_SWIZZLE_NONE,
            promotions.CU_TENSOR_MAP_L2_PROMOTION_L2_128B
            if promotion == 128
            else promotions.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ),
        "encoding a tensor map",
    )
    return TensorMap(encoded, tensor)


def _parameter(value: Argument) -> tuple[int, Any]:
    """Return the address of a parameter's bytes, with what must live as long as they are used."""
    if hasattr(value, "data_ptr"):
        held: Any = ctypes.c_void_p(value.data_ptr())
        return ctypes.addressof(held), (held, value)
    if isinstance(value, TensorMap):
        return int(value.encoded.getPtr()), value
    held = ctypes.c_float(value) if isinstance(value, float) else ctypes.c_int(value)
    return ctypes.addressof(held), held


def prepare_cuda(
    source: CudaSource,
    *,
    programs: int,
    threads: int,
    shared_bytes: int,
    arguments: Sequence[Argument],
    overlap: bool,
) -> Callable[[], None]:
    """Return the launch of a kernel on torch's current stream and device.

    programs, threads: the one-dimensional grid and block. overlap: programmatic dependent launch, by which the kernel
    may begin before the one ahead of it ends; its text must then wait where it needs to.
    Raises: MachineError when the driver refuses; InputError for a source that does not compile.
    """
    import torch

    driver, _ = _bindings()
    device = torch.cuda.current_device()
    _need_context(device)
    major, minor = torch.cuda.get_device_capability(device)
    target = f"sm_{major}{minor}"
    function = _function(source, target, shared_bytes, device)
    note_binary("cuda", source.entry, compile_cuda(source, target))
    addresses, held = zip(*(_parameter(value) for value in arguments), strict=True)
    parameters = (ctypes.c_void_p * len(addresses))(*addresses)
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = programs, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes = shared_bytes
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = int(overlap)
    config.attrs, config.numAttrs = [attribute], 1
    kept = (held, parameters)

    def launch() -> None:
        config.hStream = torch.cuda.current_stream().cuda_stream
        _checked(driver.cuLaunchKernelEx(config, function, ctypes.addressof(kept[1]), 0), f"launching {source.entry}")

    return launch


def prepare_ahead(ahead: AheadCuda, arguments: Sequence[Argument], *, overlap: bool) -> Callable[[], None]:
    """Return the launch of what `ahead` describes. Raises: as prepare_cuda."""
    assert isinstance(ahead.source, CudaSource)
    return prepare_cuda(
        ahead.source,
        programs=ahead.programs,
        threads=ahead.threads,
        shared_bytes=ahead.shared_bytes,
        arguments=arguments,
        overlap=overlap,
    )
