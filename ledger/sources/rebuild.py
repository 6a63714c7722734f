"""Restores a closure from its manifest on another machine, and checks what is installed there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ledger.canonical import object_id
from ledger.errors import InputError
from ledger.records import KERNEL_CONTRACT, Digest, Distribution, KernelSource
from ledger.sources.closure import SHIPPED_PATH, Closure, Source, normalised
from ledger.sources.distributions import identify, is_importable


def rebuild(manifest: KernelSource, texts: Mapping[Digest, bytes], *, folder: Path, shipped: Path) -> Closure:
    """Return the closure that a manifest lists, from carried files and those that ship with this package.

    texts: carried bytes by digest. folder: where carried files are written, so that compilers and debuggers find them.
    Raises: InputError when a file is missing or has other bytes, or a distribution here is not the sealed one.
    """
    files = []
    for listed in manifest.files:
        within = listed.path.startswith(f"{SHIPPED_PATH}/")
        file = shipped / listed.path.removeprefix(f"{SHIPPED_PATH}/") if within else folder / listed.path
        data = texts.get(listed.sha256)
        if data is None and within and file.is_file():
            data = normalised(file.read_bytes())
        if data is None or object_id(data) != listed.sha256:
            got = "missing" if data is None else f"{object_id(data)[:10]}"
            raise InputError(
                f"source {listed.path}: is {got}; expected {listed.sha256[:10]}, which was sealed: install the version "
                "of ledger that wrote the order"
            )
        if not within:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
            except OSError as error:
                raise InputError(f"source {listed.path}: cannot be written ({error}); expected a free path") from error
        files.append(Source(listed.path, listed.module, data, file))
    closure = Closure(manifest.entry, tuple(files), manifest.distributions, manifest.absent, manifest.contract)
    check_installed(closure)
    return closure


def check_installed(closure: Closure) -> None:
    """Check that this machine has the contract and the distributions that a closure names. Raises: InputError."""
    if closure.contract != KERNEL_CONTRACT:
        raise InputError(f"{closure.entry}: is made for {closure.contract}; this ledger has {KERNEL_CONTRACT}")
    for sealed in closure.distributions:
        here = identify(sealed.name)
        if here != sealed:
            raise InputError(
                f"distribution {sealed.name} is {here.version} ({_short(here)}); expected {sealed.version} "
                f"({_short(sealed)}), which was sealed: install that version"
            )
    for name in closure.absent:
        if is_importable(name):
            raise InputError(f"module {name} is installed; expected none, as when {closure.entry} was sealed")


def _short(one: Distribution) -> str:
    return "compiled" if one.record_sha256 is None else f"files {one.record_sha256[:10]}"
