"""Reads from a Python or CUDA source, without running it, what else it needs. Pure.

Found are import statements and string literals that name CUDA files (.cu, .cuh). Imports that are made at run time from
names that no reader can see are refused: a seal could not cover them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ledger.errors import InputError

CUDA_SUFFIXES = (".cu", ".cuh")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_DYNAMIC_MODULES = frozenset({"importlib", "imp", "runpy", "zipimport", "pkgutil", "builtins"})
_DYNAMIC_NAMES = frozenset({"__import__", "exec", "eval", "__builtins__", "__loader__", "__spec__"})
_DYNAMIC_ATTRIBUTES = frozenset({("sys", "modules"), ("sys", "path"), ("sys", "meta_path"), ("sys", "path_hooks")})
_HARMLESS = frozenset({"importlib.metadata"})
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@dataclass(frozen=True)
class Import:
    """Hold one import statement's module.

    names: what `from module import names` takes, each perhaps a module of its own. level: dots of a relative import.
    guarded: whether it stands in a try that catches ImportError.
    """

    module: str
    names: tuple[str, ...]
    level: int
    guarded: bool
    line: int


@dataclass(frozen=True)
class Scan:
    """Hold what a source needs: its imports in order, and the CUDA files it names."""

    imports: tuple[Import, ...]
    cuda_files: tuple[str, ...]


def scan_python(data: bytes, *, what: str) -> Scan:
    """Return what a Python source imports and which CUDA files it names by literals.

    Raises: InputError for text that is no Python, and for a dynamic import.
    """
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{what}: is not Python ({error}); expected a module") from error
    visitor = _Visitor(what)
    try:
        visitor.visit(tree)
    except RecursionError as error:
        raise InputError(f"{what}: nested too deep; expected a module that a person can read") from error
    docstrings = {id(node) for node in _docstrings(tree)}
    literals = (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    )
    files = {text for text in literals if text.endswith(CUDA_SUFFIXES) and "\n" not in text and " " not in text}
    return Scan(tuple(visitor.imports), tuple(sorted(files - set(CUDA_SUFFIXES))))


def included_files(data: bytes) -> tuple[str, ...]:
    """Return the files that a CUDA source includes in double quotes."""
    return tuple(sorted(set(_INCLUDE.findall(data.decode("utf-8", "replace")))))


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value


class _Visitor(ast.NodeVisitor):
    """Collect imports, leave out blocks for type checkers only, and refuse dynamic imports."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.imports: list[Import] = []
        self._guarded = False

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(node, alias.name, (), 0)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._add(node, node.module or "", tuple(alias.name for alias in node.names), node.level)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) not in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            self.generic_visit(node)
            return
        for statement in node.orelse:
            self.visit(statement)

    def visit_Try(self, node: ast.Try) -> None:
        before = self._guarded
        self._guarded = before or any(_catches_import_error(handler) for handler in node.handlers)
        for statement in node.body:
            self.visit(statement)
        self._guarded = before
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(part)

    visit_TryStar = visit_Try  # type: ignore[assignment]  # noqa: N815

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _DYNAMIC_NAMES:
            raise self._refusal(node, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and (node.value.id, node.attr) in _DYNAMIC_ATTRIBUTES:
            raise self._refusal(node, f"{node.value.id}.{node.attr}")
        self.generic_visit(node)

    def _add(self, node: ast.Import | ast.ImportFrom, module: str, names: tuple[str, ...], level: int) -> None:
        top = module.partition(".")[0]
        if level == 0 and top in _DYNAMIC_MODULES and module not in _HARMLESS:
            raise self._refusal(node, module)
        if level == 0 and module == "sys" and {("sys", name) for name in names} & _DYNAMIC_ATTRIBUTES:
            raise self._refusal(node, f"sys.{names[0]}")
        self.imports.append(Import(module, names, level, self._guarded, node.lineno))

    def _refusal(self, node: ast.expr | ast.stmt, name: str) -> InputError:
        return InputError(
            f"{self.what}: line {node.lineno}: uses {name}; expected import statements only, so that the seal covers "
            "every source that runs"
        )


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(name, ast.Name) and name.id in _IMPORT_ERRORS for name in caught)
