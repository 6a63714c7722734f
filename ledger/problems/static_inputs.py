"""Computes what a Python function returns that makes tensors, from its text: arithmetic and calls as torch.rand(b, n).

It serves KernelBench's get_inputs. Nothing is executed; what is not arithmetic or a known call is refused. Pure.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ledger.errors import InputError
from ledger.problems.cells import DTYPES

_FILLED = frozenset({"rand", "randn", "zeros", "ones", "empty"})
_SAME_SHAPE = frozenset(
    (
        *("softmax", "log_softmax", "sigmoid", "abs", "exp", "log", "tril", "triu", "cuda", "cpu"),
        *("contiguous", "clone", "detach", "clamp", "sqrt", "rand_like", "randn_like"),
    )
)
_CASTS = {
    "float": "fp32", "double": "fp64", "half": "fp16", "bfloat16": "bf16", "long": "int64", "int": "int32",
    "bool": "bool",
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod,
}  # fmt: skip
_LARGEST = 2**53
_MOST_ITEMS = 1000


@dataclass(frozen=True)
class Size:
    """Hold a dimension: its value, and the constant that names it where one does."""

    value: int
    name: str | None = None


@dataclass(frozen=True)
class Made:
    """Hold a tensor that get_inputs makes: its dims, its dtype, and the bound of its integers."""

    dims: tuple[Size, ...]
    dtype: str = "fp32"
    below: int | None = None


def function_named(tree: ast.Module, name: str) -> ast.FunctionDef:
    """Return a function at the top of a module."""
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)


class StaticInputs:
    """Compute what get_inputs returns, from constants, arithmetic and the calls that make tensors."""

    def __init__(self, tree: ast.Module) -> None:
        """Compute the constants at the top of a module, as far as they can be."""
        self.tree = tree
        self.names: dict[str, Any] = {}
        for node in tree.body:
            if isinstance(node, ast.Assign):
                self._assign(node, optional=True)

    def values(self) -> list[Any]:
        """Return the list that get_inputs returns. Raises: InputError for what cannot be read."""
        for node in function_named(self.tree, "get_inputs").body:
            if isinstance(node, ast.Assign):
                self._assign(node, optional=False)
            elif isinstance(node, ast.Return) and node.value is not None:
                found = self.value(node.value)
                if not isinstance(found, list | tuple):
                    raise self._unreadable(node)
                return list(found)
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                raise self._unreadable(node)
        raise InputError("get_inputs returns nothing; expected a list")

    def _assign(self, node: ast.Assign, *, optional: bool) -> None:
        try:
            value = self.value(node.value)
        except InputError:
            if not optional:
                raise
            return
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.names[target.id] = value
            elif isinstance(target, ast.Tuple) and isinstance(value, list | tuple):
                for name, item in zip(target.elts, value, strict=False):
                    if isinstance(name, ast.Name):
                        self.names[name.id] = item
            elif not optional:
                raise self._unreadable(node)

    def value(self, node: ast.expr) -> Any:
        """Return a number, a tuple, a list or a tensor. Raises: InputError."""
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None):
            # Beyond are infinity and integers so long that Python refuses to write them.
            if isinstance(node.value, int | float) and not abs(node.value) <= _LARGEST:
                raise self._unreadable(node)
            return node.value
        if isinstance(node, ast.Name) and node.id in self.names:
            return self.names[node.id]
        if isinstance(node, ast.Tuple | ast.List):
            items: list[Any] = []
            for element in node.elts:
                items += self._items(element)
                if len(items) > _MOST_ITEMS:
                    raise self._unreadable(node)
            return tuple(items) if isinstance(node, ast.Tuple) else items
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            return self._combined(
                ast.Sub() if isinstance(node.op, ast.USub) else ast.Add(), 0, self.value(node.operand), node
            )
        if isinstance(node, ast.BinOp):
            return self._combined(node.op, self.value(node.left), self.value(node.right), node)
        if isinstance(node, ast.Attribute):
            return self._attribute(self.value(node.value), node)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise self._unreadable(node)

    def _items(self, node: ast.expr) -> list[Any]:
        if isinstance(node, ast.Starred):
            found = self.value(node.value)
            if isinstance(found, list | tuple) and len(found) <= _MOST_ITEMS:
                return list(found)
            raise self._unreadable(node)
        return [self.value(node)]

    def _combined(self, op: ast.operator, left: Any, right: Any, node: ast.expr) -> Any:
        if isinstance(left, Made) or isinstance(right, Made):
            return self._elementwise(left, right, node)
        how = _OPERATORS.get(type(op))
        if how is None or not all(isinstance(one, int | float) for one in (left, right)):
            raise self._unreadable(node)
        try:
            result = how(left, right)
        except (ZeroDivisionError, OverflowError) as error:
            raise self._unreadable(node) from error
        if not abs(result) <= _LARGEST:
            raise self._unreadable(node)
        return result

    def _elementwise(self, left: Any, right: Any, node: ast.expr) -> Made:
        """Return the result of an operation of tensors of one shape, or of a tensor and a number."""
        tensors = [one for one in (left, right) if isinstance(one, Made)]
        tensors = [one for one in tensors if one.dims] or tensors
        sizes = {tuple(size.value for size in one.dims) for one in tensors}
        if len(sizes) != 1 or not all(isinstance(one, Made | int | float) for one in (left, right)):
            raise self._unreadable(node)
        return next((one for one in tensors if one.below is None), tensors[0])

    def _attribute(self, value: Any, node: ast.Attribute) -> Any:
        if isinstance(value, Made) and node.attr == "shape":
            return value.dims
        if isinstance(value, Made) and node.attr in ("T", "mT") and len(value.dims) >= 2:
            return replace(value, dims=(*value.dims[:-2], value.dims[-1], value.dims[-2]))
        raise self._unreadable(node)

    def _call(self, node: ast.Call) -> Any:
        if not isinstance(node.func, ast.Attribute):
            raise self._unreadable(node)
        name = node.func.attr
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "torch":
            if name in _FILLED:
                return Made(self._dims(node.args, node), self._dtype(node, "fp32"))
            if name == "randint" and len(node.args) in (2, 3):
                low, high = (0, node.args[0]) if len(node.args) == 2 else (self.value(node.args[0]), node.args[1])
                bound = self.value(high)
                if low != 0 or not isinstance(bound, int):
                    raise self._unreadable(node)
                return Made(self._dims(node.args[-1:], node), self._dtype(node, "int64"), bound)
            target = self.value(node.args[0]) if node.args else None
        else:
            target = self.value(node.func.value)
        if not isinstance(target, Made):
            raise self._unreadable(node)
        if name in _CASTS:
            floating = _CASTS[name].startswith(("fp", "bf"))
            below = None if floating else 2 if name == "bool" else target.below
            return replace(target, dtype=_CASTS[name], below=below)
        if name not in _SAME_SHAPE:
            raise self._unreadable(node)
        return target

    def _dims(self, nodes: Sequence[ast.expr], call: ast.expr) -> tuple[Size, ...]:
        """Return the dims of torch.rand(2, n) or torch.rand((2, n)), with the constants that name them."""
        found: list[Size] = []
        for node in nodes:
            if isinstance(node, ast.Tuple | ast.List):
                found += self._dims(node.elts, call)
                continue
            items = self._items(node)
            items = list(items[0]) if len(items) == 1 and isinstance(items[0], list | tuple) else items
            name = node.id if isinstance(node, ast.Name) else None
            for item in items:
                size = item if isinstance(item, Size) else Size(item, name if len(items) == 1 else None)
                if isinstance(size.value, bool) or not isinstance(size.value, int) or size.value < 1:
                    raise self._unreadable(call)
                found.append(size)
        return tuple(found)

    def _dtype(self, node: ast.Call, default: str) -> str:
        for keyword in node.keywords:
            if keyword.arg == "dtype":
                name = _text_of(keyword.value).removeprefix("torch.")
                if name not in DTYPES:
                    raise self._unreadable(node)
                return DTYPES[name]
            if keyword.arg not in ("device", "requires_grad"):
                raise self._unreadable(node)
        return default

    def _unreadable(self, node: ast.AST) -> InputError:
        text = _text_of(node)[:80]
        return InputError(
            f"get_inputs: {text!r} cannot be read without running it; expected constants and calls such as "
            "torch.rand(batch_size, dim): forecast it with --args"
        )


def _text_of(node: ast.AST) -> str:
    try:
        return ast.unparse(node)
    # An integer that is too long to write.
    except ValueError:
        return type(node).__name__
