"""Notes which compiled kernels a call launches: their language, name and the SHA-256 of their machine code.

A measurement records them, so that a reader sees which variant really ran. Triton tells through its hooks; compile and
launch code of CUDA C++ calls `note_binary`. Imports triton only where a recording begins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

from ledger.records import Binary

_recorded: ContextVar[list[Binary] | None] = ContextVar("recorded", default=None)
_loaded: dict[int, Binary] = {}
"""Triton's kernels by the driver's handle of the function, as they were loaded in this process."""


def note_binary(language: Literal["triton", "gluon", "cuda"], name: str, code: bytes) -> None:
    """Record that a call launches compiled code, where somebody is recording."""
    if _recorded.get() is None:
        return
    _note(Binary(language=language, name=name, sha256=hashlib.sha256(code).hexdigest()))


def _note(binary: Binary) -> None:
    recorded = _recorded.get()
    if recorded is not None and binary not in recorded:
        recorded.append(binary)


@contextmanager
def recording() -> Iterator[list[Binary]]:
    """Yield the list to which compiled kernels are added while they are prepared and launched, each once."""
    recorded: list[Binary] = []
    token = _recorded.set(recorded)
    hooks = _launch_hook()
    try:
        if hooks is not None:
            hooks.add(_launched)
        yield recorded
    finally:
        if hooks is not None:
            hooks.remove(_launched)
        _recorded.reset(token)


def watch_loads() -> None:
    """Keep a note of every kernel that Triton loads from now on; call it before the first launch of the process."""
    runtime = _triton_runtime()
    if runtime is not None and _loaded_by_triton not in runtime.kernel_load_end_hook.calls:
        runtime.kernel_load_end_hook.add(_loaded_by_triton)


def _triton_runtime() -> Any:
    try:
        from triton import knobs
    except ImportError:
        return None
    return knobs.runtime


def _launch_hook() -> Any:
    runtime = _triton_runtime()
    return None if runtime is None else runtime.launch_enter_hook


def _loaded_by_triton(module: object, function: int, name: str, metadata_group: dict[str, str], hash: str) -> None:
    del module, hash
    stages = {Path(file).suffix: file for file in metadata_group}
    code = next((Path(metadata_group[file]) for suffix, file in stages.items() if suffix in (".cubin", ".hsaco")), None)
    if code is not None and code.is_file():
        language: Literal["triton", "gluon"] = "triton" if ".ttir" in stages else "gluon"
        sha256 = hashlib.sha256(code.read_bytes()).hexdigest()
        _loaded[function] = Binary(language=language, name=name, sha256=sha256)


def _launched(metadata: Any) -> None:
    found = _loaded.get(metadata.get()["function"])
    if found is not None:
        _note(found)
