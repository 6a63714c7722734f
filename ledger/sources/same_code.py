"""Compares two closures of one subject: whether they differ in comments only, or in GPU code only. Runs nothing.

Docstrings, comments and blank lines change nothing that runs. The body of a @triton.jit or @gluon.jit function and a
CUDA source are GPU code, which only a compiler can compare; everything else is host code.
"""

from __future__ import annotations

import ast
from typing import Literal

from ledger.errors import InputError
from ledger.sources.closure import Closure, Source

Difference = Literal["none", "comments", "gpu-code", "host-code"]


def difference(base: Closure, head: Closure) -> Difference:
    """Return how far two closures differ, the least of: not at all, in comments, in GPU code, in host code.

    Raises: InputError for a source that is not Python.
    """
    if base.sha256 == head.sha256:
        return "none"
    if _frame(base) != _frame(head):
        return "host-code"
    pairs = [(one, other) for one, other in zip(base.files, head.files, strict=True) if one.data != other.data]
    if all(one.module is not None and _tree(one) == _tree(other) for one, other in pairs):
        return "comments"
    if all(one.module is None or _tree(one, host=True) == _tree(other, host=True) for one, other in pairs):
        return "gpu-code"
    return "host-code"


def _frame(closure: Closure) -> tuple[object, ...]:
    """Return what a closure consists of beside the bytes of its files."""
    files = tuple((source.path, source.module) for source in closure.files)
    return closure.entry, closure.contract, closure.distributions, closure.absent, files


def _tree(source: Source, *, host: bool = False) -> str:
    """Return the syntax tree of a Python source as text, without docstrings and, for `host`, without GPU code."""
    try:
        tree = ast.parse(source.data.decode("utf-8-sig"))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{source.path}: is not Python ({error}); expected a module") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:]
            if host and isinstance(node, ast.FunctionDef) and any(map(_is_jit, node.decorator_list)):
                node.body = []
    return ast.dump(tree)


def _is_jit(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2] == "jit"
