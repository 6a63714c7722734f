"""Describes arguments by a function of a generator, as lambda g: (g.bell(8, 4096), 1e-6). Imports no torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.callables.argument_list import parse_arguments, scalar_kind, tensor_argument
from ledger.canonical import record_errors
from ledger.errors import InputError
from ledger.records import Argument

Arguments = str | Callable[["Generator"], Any]
"""A text as --args takes it, or a function that asks a generator for tensors."""


@dataclass(frozen=True)
class Tensor:
    """Hold a tensor that was asked for. dims: numbers, or text with keys of the shape."""

    dims: tuple[int | str, ...]
    dtype: str
    below: int | None = None


class Generator:
    """Describe tensors that a seal fills later."""

    def bell(self, *dims: int | str, dtype: str = "fp32") -> Tensor:
        """Return a floating tensor with a standard deviation of 1.15, at most 4 in size."""
        return Tensor(dims, dtype)

    def integers(self, *dims: int | str, high: int, dtype: str = "int64") -> Tensor:
        """Return a tensor of integers from 0 to high - 1."""
        return Tensor(dims, dtype, high)


def described(wanted: Arguments, function: Any = None) -> tuple[Argument, ...]:
    """Return arguments from a text or a function of a generator.

    function: the callable, whose signature names what the result of `wanted` gives by position. A mapping gives names.
    Raises: InputError.
    """
    if isinstance(wanted, str):
        return parse_arguments(wanted)
    made = wanted(Generator())
    if isinstance(made, Mapping):
        return tuple(_argument(name, value) for name, value in made.items())
    values = tuple(made) if isinstance(made, Sequence) and not isinstance(made, str) else (made,)
    names = list(_names(function, len(values)))
    return tuple(_argument(name, value) for name, value in zip(names, values, strict=True))


def _names(function: Any, count: int) -> Iterator[str]:
    """Yield the names of the first parameters of a signature, then numbered ones; of a module those of its forward."""
    forward = getattr(function, "forward", None)
    try:
        parameters = list(inspect.signature(forward if callable(forward) else function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if isinstance(function, type):
        parameters = parameters[1:]
    named = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    for number in range(count):
        yield named[number] if number < len(named) else f"argument{number}"


def _argument(name: str, value: Any) -> Argument:
    with record_errors(f"argument {name}"):
        if isinstance(value, Tensor):
            bound = None if value.below is None else str(value.below)
            return tensor_argument(name, value.dtype, [str(dim) for dim in value.dims], bound)
        if value is None or isinstance(value, bool | int | float | str):
            text = str(value)
            return Argument(name=name, dtype=scalar_kind(text), dims=None, below=None, value=text)
    raise InputError(f"argument {name}: of type {type(value).__name__}; expected g.bell(…), g.integers(…) or a scalar")
