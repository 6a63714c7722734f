"""Writes a kernel file that works as it is into the repository's folder of kernels, for its author to change."""

from __future__ import annotations

import keyword
import re
from pathlib import Path as FilePath

from ledger.errors import InputError
from ledger.kernel_files import kernel_names
from ledger.kernel_folder import own_folder
from ledger.record_files import write_atomically

_TEMPLATE = FilePath(__file__).parent.parent / "templates" / "kernel.txt"
_PLACEHOLDER = "NEW_KERNEL"


def kernel_text(name: str) -> str:
    """Return the text of a new kernel file."""
    return _TEMPLATE.read_text(encoding="utf-8").replace(_PLACEHOLDER, name)


def write_kernel(name: str, root: FilePath) -> FilePath:
    """Write NAME.py into the folder of kernels and return its path; nothing is committed.

    Raises: InputError for a name that no kernel can have, one that is taken, or a file that cannot be written.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name) or keyword.iskeyword(name) or name == "common":
        raise InputError(
            f"kernel {name!r}: expected a name of small letters, digits and _ that starts with a letter and is neither "
            "a word of Python nor common"
        )
    folder = own_folder(root)
    path = folder / f"{name}.py"
    if path.exists() or (folder / name).exists():
        raise InputError(f"{path if path.exists() else folder / name}: exists; expected a name that is free")
    if name in kernel_names(root):
        raise InputError(f"kernel {name!r} ships with the package; expected another name, so that both can be forecast")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, kernel_text(name).encode())
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); expected a folder of one's own") from error
    return path
