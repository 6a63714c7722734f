"""Computes the sizes of axes, and names that a seal, a module and a shape can hold. Pure."""

from __future__ import annotations

import ast
import hashlib
import keyword
import re
from collections.abc import Callable, Iterable, Mapping

from ledger.errors import InputError
from ledger.problems.documents import Axis

MAX_EXPRESSION = 300
_LARGEST = 2**53
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,15}")


def axis_size(name: str, axes: Mapping[str, Axis], given: Mapping[str, int]) -> int:
    """Return the size of an axis, or of digits, in a workload. Raises: InputError where it has none."""
    # Each axis is computed once: a chain of expressions that name the next axis many times takes for ever otherwise.
    known: dict[str, int] = {}

    def size_of(name: str, depth: int) -> int:
        if name not in known:
            known[name] = _size_of(name, axes, given, lambda other: size_of(other, depth + 1), depth=depth)
        return known[name]

    return size_of(name, 0)


def _size_of(
    name: str, axes: Mapping[str, Axis], given: Mapping[str, int], size_of: Callable[[str], int], *, depth: int
) -> int:
    if name not in axes:
        return int(name)
    axis = axes[name]
    if axis.value is not None:
        return axis.value
    if axis.expression is None:
        if name not in given:
            raise InputError(f"axis {name}: the workload gives no size; expected one")
        return given[name]
    if depth > 16:
        raise InputError(f"axis {name}: its expression refers to itself; expected sizes that can be computed")
    return evaluate(
        axis.expression, lambda other: size_of(other) if other in axes else _unknown(other, given, axis.expression)
    )


def _unknown(name: str, given: Mapping[str, int], expression: str | None) -> int:
    if name not in given:
        raise InputError(f"expression {str(expression)[:80]!r}: {name[:40]!r} is no axis; expected axes and numbers")
    return given[name]


def parse_expression(text: str) -> ast.expr:
    """Return the tree of an arithmetic expression over names. Raises: InputError for anything else."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body if len(text) <= MAX_EXPRESSION else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or not all(isinstance(node, _ALLOWED) for node in ast.walk(tree)):
        raise InputError(f"expression {text[:80]!r}: expected axes, integers and + - * // % **")
    return tree


_ALLOWED = (
    ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.Load, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv,
    ast.Mod, ast.Pow, ast.UAdd, ast.USub,
)  # fmt: skip


def evaluate(text: str, size: Callable[[str], int]) -> int:
    """Return the value of an arithmetic expression, from 0 to 2**53. Raises: InputError."""
    value = _value(parse_expression(text), size, text)
    if not 0 <= value <= _LARGEST:
        raise InputError(f"expression {text[:80]!r}: is {value}; expected a size")
    return value


def _value(node: ast.expr, size: Callable[[str], int], text: str) -> int:
    if isinstance(node, ast.Name):
        return size(node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return int(node.value)
    if isinstance(node, ast.UnaryOp):
        value = _value(node.operand, size, text)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, size, text), _value(node.right, size, text)
        result = _combined(node.op, left, right)
        if result is not None and abs(result) <= _LARGEST:
            return result
    raise InputError(f"expression {text[:80]!r}: has no whole value below 2**53; expected one")


def _combined(operator: ast.operator, left: int, right: int) -> int | None:
    if isinstance(operator, ast.Add | ast.Sub):
        return left + right if isinstance(operator, ast.Add) else left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if isinstance(operator, ast.Pow):
        return int(left**right) if 0 <= right <= 64 else None
    if right == 0:
        return None
    if isinstance(operator, ast.Mod):
        return left % right
    return left // right if isinstance(operator, ast.FloorDiv) or left % right == 0 else None


def slug(name: str, *, limit: int, taken: Iterable[str] = ()) -> str:
    """Return a name for a module or folder, of small letters, digits and _; a changed one ends in its digest."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    plain = plain if plain and not plain[0].isdigit() else f"p{plain}"
    if plain == name and len(plain) <= limit and not keyword.iskeyword(plain) and plain not in taken:
        return plain
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{plain[: limit - 7].strip('_')}_{digest}"


def shape_keys(names: Iterable[str], *, short: bool) -> dict[str, str]:
    """Return a key of a shape for each axis: its name where it fits, else its first letters. short: initials."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        plain = plain if plain[:1].isascii() and plain[:1].isalpha() else f"n{plain}"
        if short and len(plain) > 3:
            plain = "".join(part[0] for part in plain.split("_") if part)
            plain = plain if plain[0].isalpha() else f"n{plain}"
        key, number = plain[:16].rstrip("_"), 1
        while key in found.values() or not _KEY.fullmatch(key):
            number += 1
            key = f"{plain[: 16 - len(str(number))].rstrip('_')}{number}"
        found[name] = key
    return found
