"""Notices a callable that changes what times it or compares it. Imports torch, only when a guard is made.

A guard notes, before the callable's module is imported, the functions that clocks, torch and ledger consist of, and the
settings that decide precision, threads and tracing. It compares them after the import, the timing and the end.
Code of the same process can undo its changes in time, or change memory itself: this finds what stays changed.
"""

from __future__ import annotations

import builtins
import gc
import inspect
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from ledger.errors import SubjectRefused
from ledger.records import Dtype

Noted = tuple[Any, Any, Any, Any]

# torch._dynamo replaces these when it is imported.
_REPLACED_BY_TORCH = {("torch", "manual_seed"), ("torch.nn.Module", "__init__"), ("torch.nn.Module", "__setstate__")}
_PRECISION = ("torch.backends.cuda.matmul.allow_tf32", "float32 matmul precision")
"""Settings that a cell of dtype tf32 may change."""


class Guard:
    """Hold the functions and settings of a process before a callable is imported."""

    def __init__(self, dtype: Dtype) -> None:
        """Note them. dtype: of the cell."""
        self._modules = {name: sys.modules[name] for name in _module_names()}
        self._functions = dict(self._noted())
        self._settings = dict(_settings())
        self._own = _PRECISION if dtype == "tf32" else ()

    def note_settings(self) -> None:
        """Note the settings again, where measuring itself sets threads and a stream."""
        self._settings = dict(_settings())

    def check(self, when: str) -> None:
        """Check that all is as it was. when: as "while it was imported". Raises: SubjectRefused."""
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module:
                raise SubjectRefused(f"sys.modules[{name!r}] was replaced {when}; expected the module of that name")
        now = dict(self._noted())
        for key, before in self._functions.items():
            if not _same(before, now.get(key)):
                owner, name = key
                raise SubjectRefused(
                    f"{owner}.{name} was replaced {when}; expected the one of its package: remove the patch"
                )
        for owner, name in now.keys() - self._functions.keys():
            if owner.startswith("ledger") and hasattr(builtins, name):
                raise SubjectRefused(f"{owner}.{name} was added {when}; expected Python's own {name}")
        self._check_settings(when)

    def _check_settings(self, when: str) -> None:
        for name, value in _settings():
            before = self._settings.get(name)
            if value != before and name not in self._own:
                raise SubjectRefused(
                    f"{name} is {_short(value)} {when}; expected {_short(before)}, as before: set it for the call "
                    "alone, and seal tf32 with --dtype tf32"
                )

    def _noted(self) -> Iterator[tuple[tuple[str, str], Noted]]:
        for owner, container in self._containers():
            for name, value in container:
                if (owner, name) not in _REPLACED_BY_TORCH:
                    yield (owner, name), _note(value)

    def _containers(self) -> Iterator[tuple[str, Iterator[tuple[str, Any]]]]:
        """Yield what holds functions: modules, and the classes of torch and ledger that measuring uses."""
        import torch

        for name, module in self._modules.items():
            yield name, _callables(vars(module).items())
            if name.startswith("ledger."):
                for label, value in list(vars(module).items()):
                    if isinstance(value, type) and value.__module__ == name:
                        yield f"{name}.{label}", _callables(vars(value).items())
        for label, kind in (
            ("torch.Tensor", torch.Tensor),
            ("torch.nn.Module", torch.nn.Module),
            ("torch.cuda.Event", torch.cuda.Event),
            ("torch.cuda.Stream", torch.cuda.Stream),
            ("torch.cuda.CUDAGraph", torch.cuda.CUDAGraph),
            ("torch.cuda.graph", torch.cuda.graph),
        ):
            # A name that is added to a class can hide that of its base.
            yield label, ((name, value) for name in dir(kind) if _is_code(value := inspect.getattr_static(kind, name)))


def _module_names() -> list[str]:
    others = (builtins, time, gc, inspect, statistics)
    names = {"torch", "torch.cuda", "torch.nn.functional", "torch.linalg", "torch.autograd", "math", "numpy"}
    own = {name for name in sys.modules if name.startswith("ledger.") and not name.startswith("ledger.kernels")}
    return sorted((names | own | {one.__name__ for one in others}) & set(sys.modules))


def _callables(items: Any) -> Iterator[tuple[str, Any]]:
    for name, value in list(items):
        if callable(value) or isinstance(value, property | staticmethod | classmethod | ModuleType):
            yield name, value


def _is_code(value: Any) -> bool:
    return callable(value) or hasattr(type(value), "__get__")


def _note(value: Any) -> Noted:
    function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    function = inspect.unwrap(function) if isinstance(function, FunctionType) else function
    if isinstance(value, property):
        function = value.fget
    if isinstance(function, FunctionType):
        return value, function.__code__, function.__defaults__, function.__kwdefaults__
    return value, None, None, None


def _same(before: Noted, now: Noted | None) -> bool:
    return now is not None and all(one is other for one, other in zip(before, now, strict=True))


def _settings() -> Iterator[tuple[str, Any]]:
    """Yield what decides how torch computes and whether Python is watched; what cannot be read is its error."""
    import torch

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    readers: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("torch.backends.cuda.matmul.allow_tf32", lambda: matmul.allow_tf32),
        ("float32 matmul precision", torch.get_float32_matmul_precision),
        ("fp16 reduced-precision reduction", lambda: matmul.allow_fp16_reduced_precision_reduction),
        ("bf16 reduced-precision reduction", lambda: matmul.allow_bf16_reduced_precision_reduction),
        ("fp16 accumulation", lambda: getattr(matmul, "allow_fp16_accumulation", False)),
        ("torch.backends.cudnn.allow_tf32", lambda: cudnn.allow_tf32),
        ("number of torch's threads", torch.get_num_threads),
        ("default dtype of torch", torch.get_default_dtype),
        ("default device of torch", torch.get_default_device),
        ("autocast on the CPU", lambda: torch.is_autocast_enabled("cpu")),
        ("autocast on the GPU", lambda: torch.is_autocast_enabled("cuda")),
        ("gradient mode", torch.is_grad_enabled),
        ("inference mode", torch.is_inference_mode_enabled),
        ("deterministic mode", torch.are_deterministic_algorithms_enabled),
        ("number of torch function modes", torch._C._len_torch_function_stack),
        ("number of torch dispatch modes", torch._C._len_torch_dispatch_stack),
        ("sys.gettrace()", sys.gettrace),
        ("sys.getprofile()", sys.getprofile),
        ("threading.gettrace()", threading.gettrace),
        ("threading.getprofile()", threading.getprofile),
        ("garbage collection", gc.isenabled),
        ("gc.callbacks", lambda: tuple(map(id, gc.callbacks))),
        ("handler of SIGALRM", lambda: signal.getsignal(signal.SIGALRM)),
        ("handler of SIGPROF", lambda: signal.getsignal(signal.SIGPROF)),
        ("current CUDA stream", _stream),
    )
    for name, read in readers:
        try:
            yield name, read()
        # torch refuses to read a setting that two of its interfaces have set.
        except Exception as error:  # noqa: BLE001
            yield name, type(error).__name__


def _stream() -> int:
    import torch

    return int(torch.cuda.current_stream().cuda_stream) if torch.cuda.is_initialized() else 0


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
