"""Reads the function that a solution names, of Python or of C++ that torch binds: as text only, nothing runs. Pure."""

from __future__ import annotations

import ast
import re

from ledger.errors import InputError
from ledger.problems.documents import Definition, Solution


def check_run(source: str, name: str) -> ast.FunctionDef | None:
    """Return the function of a source, None where it is another name at the top. Raises: InputError for neither."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"source is not Python ({error}); expected a module with {name}") from error
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    named = {one.id for node in tree.body for one in ast.walk(node) if isinstance(one, ast.Name)}
    bound = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    if name not in named | bound:
        raise InputError(f"source has no function {name[:80]!r} at its top; expected one")
    return None


def outputs_passed(solution: Solution, definition: Definition) -> bool:
    """Tell whether a solution is given its outputs: as it says, else as its function's parameters show."""
    if solution.outputs_passed is not None:
        return solution.outputs_passed
    source = solution.sources[solution.path]
    count = _python_parameters if solution.path.endswith(".py") else _cpp_parameters
    found = count(source, solution.function)
    return found is None or found >= len(definition.inputs) + len(definition.outputs)


def _python_parameters(source: str, name: str) -> int | None:
    """Return how many parameters a function has, 0 where it takes any number, None where it is not found."""
    try:
        function = check_run(source, name)
    except InputError:
        return None
    if function is None:
        return None
    return 0 if function.args.vararg is not None else len(function.args.posonlyargs) + len(function.args.args)


def _cpp_parameters(source: str, name: str) -> int | None:
    """Return the same of the function that pybind11 binds to a name."""
    bound = re.search(rf'\.def\(\s*"{re.escape(name)}"\s*,\s*&?(\w+)', source)
    function = re.escape(bound[1] if bound else name)
    found = re.search(rf"\b{function}\s*\(([^(){{}};]*(?:\([^()]*\)[^(){{}};]*)*)\)\s*\{{", source)
    if found is None:
        return None
    listed = [one for one in found[1].split(",") if one.strip()]
    return 0 if any("args" in one for one in listed) else len(listed)
