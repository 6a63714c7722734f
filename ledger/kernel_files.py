"""Finds and loads kernels: those of the repository (kernels/NAME) before those that ship with the package.

A Python file of the repository's folder without a constant KERNEL is no kernel: it is skipped.

What executes are the bytes of a kernel's closure (ledger.sources). Imports neither torch nor triton itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path as FilePath

from ledger.errors import InputError, MachineError, UnknownName
from ledger.kernel import CPU_IMPLEMENTATION, GPU_IMPLEMENTATIONS, Kernel, model_only
from ledger.kernel_folder import defines_kernel, own_folder
from ledger.operations import Shape
from ledger.records import CaseV2, Dtype, Hardware, is_gpu
from ledger.sources.closure import Closure
from ledger.sources.collector import collect
from ledger.sources.loader import load
from ledger.suggestions import unknown


@dataclass(frozen=True)
class KernelFile:
    """Hold a kernel together with the very sources it was loaded from."""

    kernel: Kernel
    closure: Closure
    shipped: bool

    @property
    def path(self) -> FilePath:
        """Return the file of the kernel's own module."""
        return self.closure.source.file

    @property
    def sha256(self) -> str:
        """Return the digest of the manifest of its sources."""
        return self.closure.sha256


_shipped_kernels: ContextVar[FilePath | None] = ContextVar("shipped_kernels", default=None)


@contextmanager
def kernels_shipped_from(root: FilePath) -> Iterator[None]:
    """Take the kernels of a checkout of this package for the shipped ones inside the block; another folder has none."""
    is_package = (root / "ledger" / "kernel_files.py").is_file() and (root / "kernels" / "common").is_dir()
    token = _shipped_kernels.set(root / "kernels" if is_package else _shipped_kernels.get())
    try:
        yield
    finally:
        _shipped_kernels.reset(token)


def shipped_folder(name: str) -> FilePath:
    """Return the folder (kernels, hardware) that came with the package: inside a wheel, beside it when editable."""
    chosen = _shipped_kernels.get()
    if name == "kernels" and chosen is not None:
        return chosen
    package = FilePath(__file__).parent
    inside = package / "shipped" / name
    return inside if inside.is_dir() else package.parent / name


def _python_files(folder: FilePath) -> Iterator[tuple[str, FilePath]]:
    """Yield the modules of a folder of kernels, whose names may be kernels."""
    for path in sorted((*folder.glob("*.py"), *folder.glob("*/__init__.py"))):
        name = path.parent.name if path.name == "__init__.py" else path.stem
        if not name.startswith("_") and name != "common" and path != folder / "__init__.py":
            yield name, path


def _own_files(root: FilePath | None) -> Iterator[tuple[str, FilePath, bool]]:
    """Yield the modules of a repository's own folder of kernels, and whether each is one."""
    if root is None or (folder := own_folder(root)).resolve() == shipped_folder("kernels").resolve():
        return
    for name, path in _python_files(folder):
        yield name, path, defines_kernel(path)


def _kernel_paths(root: FilePath | None) -> dict[str, tuple[FilePath, bool]]:
    found = {name: (path, True) for name, path in _python_files(shipped_folder("kernels"))}
    return found | {name: (path, False) for name, path, is_kernel in _own_files(root) if is_kernel}


def skipped_files(root: FilePath | None) -> tuple[FilePath, ...]:
    """Return the Python files of the repository's folder of kernels that are none. Raises: InputError."""
    return tuple(path for _, path, is_kernel in _own_files(root) if not is_kernel)


def kernel_names(root: FilePath | None = None) -> tuple[str, ...]:
    """Return the names of all kernels: the repository's and those shipped with the package."""
    return tuple(sorted(_kernel_paths(root)))


def own_kernel_names(root: FilePath) -> tuple[str, ...]:
    """Return the names of the kernels whose files lie in a repository."""
    return tuple(sorted(name for name, (path, _) in _kernel_paths(root).items() if path.is_relative_to(root)))


def execute(closure: Closure, *, launch: bool, shipped: bool) -> KernelFile:
    """Return the kernel of a closure; `launch` asks for the real triton, otherwise only the model is usable.

    Raises: InputError when the sources break the contract; MachineError when triton is missing.
    """
    path = closure.source.path
    try:
        with model_only(not launch):
            module = load(closure, variant="" if launch else "_model")
    except MachineError:
        raise
    # A kernel's module may raise anything, SystemExit included.
    except (Exception, SystemExit) as error:
        raise InputError(f"{path}: cannot be loaded ({type(error).__name__}: {error}); see CONTRIBUTING.md") from error
    kernel = getattr(module, "KERNEL", None)
    if not isinstance(kernel, Kernel):
        raise InputError(f"{path}: no constant KERNEL of type ledger.kernel.Kernel; expected exactly one")
    name = closure.entry.rpartition(".")[2]
    if kernel.name != name:
        raise InputError(f"{path}: KERNEL.name is {kernel.name!r}; expected the name of its file, {name!r}")
    return KernelFile(kernel, closure, shipped)


def load_kernel_file(
    path: FilePath, *, root: FilePath | None = None, launch: bool = False, shipped: bool = False
) -> KernelFile:
    """Load one kernel file with the sources that it imports from the work tree `root`. Raises: as `execute`."""
    return execute(collect(path, root=root, shipped=shipped_folder("kernels")), launch=launch, shipped=shipped)


def kernel_closure(name: str, root: FilePath | None = None) -> tuple[Closure, bool]:
    """Return the sources of a kernel, the repository's before the shipped one, and whether it is shipped; runs nothing.

    Raises: UnknownName, InputError.
    """
    paths = _kernel_paths(root)
    if name not in paths:
        ordinary = {own: file for own, file, is_kernel in _own_files(root) if not is_kernel}
        if name in ordinary:
            raise UnknownName(f"{ordinary[name]}: no constant KERNEL; expected a kernel file, as `ledger new` writes")
        raise UnknownName(unknown("kernel", name, sorted(paths)))
    path, shipped = paths[name]
    folder = path.parent.parent if path.name == "__init__.py" else path.parent
    if (folder / f"{name}.py").is_file() and (folder / name / "__init__.py").is_file():
        raise InputError(f"kernel {name!r} is both {name}.py and {name}/__init__.py in {folder}; expected one of them")
    return collect(path, root=root, shipped=shipped_folder("kernels")), shipped


def load_kernel(name: str, root: FilePath | None = None, *, launch: bool = False) -> KernelFile:
    """Load a kernel by name, the repository's before the shipped one. Raises: UnknownName, InputError."""
    closure, shipped = kernel_closure(name, root)
    return execute(closure, launch=launch, shipped=shipped)


def implementation_for(kernel: Kernel, hardware: Hardware) -> str:
    """Return which implementation runs on a device: triton, cuda or torch on a GPU, torch-cpu on a CPU.

    Raises: InputError for a kernel that has none.
    """
    fitting = GPU_IMPLEMENTATIONS if is_gpu(hardware.target) else (CPU_IMPLEMENTATION,)
    found = next((name for name in fitting if name in kernel.implementations), None)
    if found is None:
        have, wanted = ", ".join(kernel.implementations) or "none", " or ".join(fitting)
        raise InputError(
            f"{kernel.name} has no {wanted} implementation for {hardware.name}; its implementations are: {have}"
        )
    return found


def build_case(kernel: Kernel, hardware: Hardware, *, shape: Shape, dtype: Dtype, threads: int | None = None) -> CaseV2:
    """Return the case of a cell, with the launch configuration that this kernel would use there.

    Raises: InputError for shape keys, a dtype or a configuration that the kernel or the chip does not have.
    """
    kernel.check_offers(shape, dtype)
    implementation = implementation_for(kernel, hardware)
    launched = implementation in GPU_IMPLEMENTATIONS
    config = kernel.config(shape, dtype, hardware.chip) if launched else {}
    if launched:
        kernel.check_config(config, shape, dtype, hardware.chip)
    return CaseV2(
        kernel=kernel.name,
        shape=dict(shape),
        dtype=dtype,
        hardware=hardware.name,
        implementation=implementation,
        config=dict(config),
        threads=threads,
        arguments=None,
    )
