"""Reads from a Python or CUDA source, without running it, what else it needs. Pure.

Found are import statements and string literals that name CUDA files (.cu, .cuh). Imports that are made at run time from
names that no reader can see are refused: a seal could not cover them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import resolve_name

from ledger.errors import InputError

CUDA_SUFFIXES = (".cu", ".cuh")
MAX_FILE_NAME = 200
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_DYNAMIC_MODULES = frozenset({"importlib", "imp", "runpy", "zipimport", "pkgutil", "builtins", "pydoc"})
_DYNAMIC_NAMES = frozenset({"__import__", "exec", "eval", "compile", "__builtins__", "__loader__", "__spec__"})
_DYNAMIC_ATTRIBUTES = frozenset({"__import__", "__builtins__", "__loader__", "import_module", "exec_module"})
_OF_SYS = frozenset({"modules", "path", "meta_path", "path_hooks", "path_importer_cache", "*"})
_HARMLESS = frozenset({"importlib.metadata"})
# Kernels share files: each is read once a process. Larger ones are not kept in memory.
_KEPT_BYTES = 64 * 1024
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
    return (_scan_once if len(data) <= _KEPT_BYTES else _scan)(data, what)


def _scan(data: bytes, what: str) -> Scan:
    try:
        # The text that is executed: a coding line has no effect (loader).
        tree = ast.parse(data.decode("utf-8-sig"))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{what}: is not Python ({error}); expected a module") from error
    visitor = _Visitor(what)
    try:
        visitor.visit(tree)
    except RecursionError as error:
        raise InputError(f"{what}: nested too deep; expected a module that a person can read") from error
    nodes = list(ast.walk(tree))
    docstrings = {id(node) for node in _docstrings(nodes)}
    literals = (
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    )
    files = {text for text in literals if text.lower().endswith(CUDA_SUFFIXES) and "\n" not in text}
    for name in files:
        if len(name) > MAX_FILE_NAME or not re.fullmatch(r"[\w./ +-]*\w\.cuh?", name, re.IGNORECASE):
            raise InputError(
                f"{what}: has the text {name[:80]!r}; expected the whole name of a CUDA file in one literal, so that "
                "the seal covers it"
            )
    return Scan(tuple(visitor.imports), tuple(sorted(files)))


_scan_once = lru_cache(maxsize=256)(_scan)


def imported_modules(one: Import, *, module: str, is_package: bool) -> Iterator[tuple[str, bool]]:
    """Yield each module that an import statement may load, and whether it is perhaps only an attribute.

    module: the dotted name of the importing module. Raises: ImportError for a relative import above the top.
    """
    name = one.module
    if one.level:
        package = module if is_package else module.rpartition(".")[0]
        name = resolve_name("." * one.level + name, package)
    yield name, False
    for attribute in one.names:
        if attribute != "*":
            yield f"{name}.{attribute}", True


def included_files(data: bytes) -> tuple[str, ...]:
    """Return the files that a CUDA source includes in double quotes."""
    return tuple(sorted(set(_INCLUDE.findall(data.decode("utf-8", "replace")))))


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[ast.Constant]:
    for node in nodes:
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
        self._typing = False
        self._sys = {"sys"}

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name == "sys" and alias.asname:
                self._sys.add(alias.asname)
            self._add(node, alias.name, (), 0)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self._add(node, node.module or "", tuple(alias.name for alias in node.names), node.level)

    def visit_If(self, node: ast.If) -> None:
        if not re.fullmatch(r"(\w+\.)?TYPE_CHECKING", ast.unparse(node.test)):
            self.generic_visit(node)
            return
        # Never executed: its imports are left out, but not its other names.
        self._typing = True
        for statement in node.body:
            self.visit(statement)
        self._typing = False
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

    def visit_With(self, node: ast.With) -> None:
        before = self._guarded
        self._guarded = before or any(_suppresses_import_error(item.context_expr) for item in node.items)
        self.generic_visit(node)
        self._guarded = before

    def visit_Name(self, node: ast.Name) -> None:
        bound = not isinstance(node.ctx, ast.Load)
        if node.id in _DYNAMIC_NAMES or (bound and node.id == "TYPE_CHECKING"):
            raise self._refusal(node, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        of_sys = isinstance(node.value, ast.Name) and node.value.id in self._sys and node.attr in _OF_SYS
        bound = not isinstance(node.ctx, ast.Load) and node.attr == "TYPE_CHECKING"
        if node.attr in _DYNAMIC_ATTRIBUTES or of_sys or bound:
            raise self._refusal(node, ast.unparse(node)[:80])
        self.generic_visit(node)

    def _add(self, node: ast.Import | ast.ImportFrom, module: str, names: tuple[str, ...], level: int) -> None:
        top = module.partition(".")[0]
        if self._typing:
            return
        if level == 0 and top in _DYNAMIC_MODULES and module not in _HARMLESS:
            raise self._refusal(node, module)
        loaded = set(names) & (_OF_SYS if module == "sys" else _DYNAMIC_MODULES | _DYNAMIC_NAMES | {"sys"})
        if level == 0 and loaded:
            raise self._refusal(node, f"{module}.{min(loaded)}")
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


def _suppresses_import_error(expression: ast.expr) -> bool:
    if not isinstance(expression, ast.Call) or not ast.unparse(expression.func).endswith("suppress"):
        return False
    return any(isinstance(name, ast.Name) and name.id in _IMPORT_ERRORS for name in expression.args)
