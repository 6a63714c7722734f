"""Says where a repository keeps its own kernels, and which Python files there are kernels. Reads files; runs nothing.

The folder is kernels/, or `kernels` of [tool.ledger] in the repository's pyproject.toml.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path as FilePath
from pathlib import PurePosixPath
from typing import Any

from ledger.errors import InputError

DEFAULT = "kernels"
_MAX_BYTES = 2_000_000


def own_folder(root: FilePath) -> FilePath:
    """Return the folder of a repository's own kernels, which need not exist. Raises: InputError."""
    named = _setting(root / "pyproject.toml")
    path = PurePosixPath(named)
    if path.is_absolute() or not path.parts or not all(part.isidentifier() for part in path.parts):
        raise InputError(
            f"pyproject.toml: tool.ledger.kernels is {named!r}; expected a folder below the repository's root whose "
            'parts are names of Python packages, such as "my/kernels"'
        )
    return root / path


def _setting(file: FilePath) -> str:
    if not file.is_file():
        return DEFAULT
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise InputError(f"{file}: larger than {_MAX_BYTES} bytes; expected a project file")
        document: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); expected a project file") from error
    # RecursionError: values nested too deep.
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{file}: is not TOML ({error}); expected a project file") from error
    table = document.get("tool", {}).get("ledger", {}) if isinstance(document.get("tool", {}), dict) else {}
    named = table.get("kernels", DEFAULT) if isinstance(table, dict) else DEFAULT
    if not isinstance(named, str):
        raise InputError(f"{file}: tool.ledger.kernels is {named!r}; expected a folder as text")
    return named


def defines_kernel(path: FilePath) -> bool:
    """Tell whether a Python file binds the name KERNEL at its top level; unreadable Python that names it may."""
    try:
        with path.open("rb") as stream:
            text = stream.read(_MAX_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return True
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return re.search(r"^KERNEL\b", text, re.MULTILINE) is not None
    return any("KERNEL" in _bound(statement) for statement in tree.body)


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds, also within its branches."""
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(statement):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names |= {alias.asname or alias.name for alias in node.names}
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    return names
