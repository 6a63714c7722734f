"""Says in flashinfer-trace's words what tensors and scalars a sealed case has: axes, inputs, outputs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.callables.argument_list import dims_of, scalar_value
from ledger.errors import InputError
from ledger.operations import Operation
from ledger.problems.cells import DTYPES
from ledger.records import Argument, Case, CaseV2

_NAMES = {ours: theirs for theirs, ours in DTYPES.items() if ours not in ("fp64", "uint8")} | {"tf32": "float32"}
_SCALARS = {"int": "int64", "float": "float32", "bool": "bool"}


@dataclass(frozen=True)
class Tensors:
    """Hold what an exported definition says of its tensors. axes: sizes by name; formulas: what an axis stands for."""

    axes: Mapping[str, int]
    formulas: Mapping[str, str]
    inputs: Mapping[str, dict[str, Any]]
    outputs: Mapping[str, dict[str, Any]]
    scalars: Mapping[str, int | float | bool]
    keys: Mapping[str, tuple[str, int]]


def tensors_of(case: Case, operation: Operation | None) -> Tensors:
    """Return the tensors of a case: of a callable from its arguments, of a kernel from its operation.

    Raises: InputError for a dtype or an argument that the format has not.
    """
    if isinstance(case, CaseV2) and case.arguments is not None:
        return _of_arguments(case, case.arguments)
    if operation is None:
        raise InputError(f"{case.kernel}: its operation is not known here; expected the kernel that defines it")
    return _of_operation(case, operation)


def _of_arguments(case: Case, arguments: Sequence[Argument]) -> Tensors:
    axes: dict[str, int] = {}
    formulas: dict[str, str] = {}
    inputs: dict[str, dict[str, Any]] = {}
    scalars: dict[str, int | float | bool] = {}
    for one in arguments:
        if one.dims is None:
            value = scalar_value(one)
            if not isinstance(value, bool | int | float):
                raise InputError(
                    f"{case.kernel}: argument {one.name} is {one.value!r}; expected a number: the format has no other"
                )
            inputs[one.name], scalars[one.name] = {"shape": None, "dtype": _SCALARS[one.dtype]}, value
            continue
        names = [_axis_name(dim) for dim in one.dims]
        axes.update(zip(names, dims_of(one, case.shape), strict=True))
        formulas.update({name: dim for name, dim in zip(names, one.dims, strict=True) if name != dim})
        inputs[one.name] = {"shape": names, "dtype": _dtype(one.dtype, case)}
        if one.below is not None:
            inputs[one.name]["description"] = f"integers from 0 to {one.below - 1}"
    return Tensors(axes, formulas, inputs, {}, scalars, {})


def _axis_name(dim: str) -> str:
    """Return the name of an axis for a dimension, as 2*H: x2_H; a key of the shape stays."""
    plain = dim.replace(" ", "")
    return plain if plain.isidentifier() else "x" + re.sub(r"\W", "_", plain)


def _of_operation(case: Case, operation: Operation) -> Tensors:
    """Name each dimension by the key of the shape that it follows, seen at a second shape; others by their place."""
    probe = {key: size * (number + 2) for number, (key, size) in enumerate(case.shape.items())}
    specs = operation.inputs(case.shape)
    try:
        others = operation.inputs(probe)
        other_dims = operation.output_dims(probe)
    except (InputError, ValueError, ArithmeticError):
        others, other_dims, probe = specs, operation.output_dims(case.shape), dict(case.shape)
    axes: dict[str, int] = {}
    keys: dict[str, tuple[str, int]] = {}

    def named(name: str, dims: Sequence[int], seen: Sequence[int]) -> list[str]:
        found = []
        for place, (size, other) in enumerate(zip(dims, seen, strict=True)):
            fits = [key for key in case.shape if (case.shape[key], probe[key]) == (size, other)]
            axis = fits[0] if fits else f"{name}_{place}"
            if fits and name:
                keys.setdefault(axis, (name, place))
            axes[axis] = size
            found.append(axis)
        return found

    inputs = {
        one.name: {"shape": named(one.name, one.dims, two.dims), "dtype": _dtype(one.dtype or case.dtype, case)}
        for one, two in zip(specs, others, strict=True)
    }
    known = dict(keys)
    output = named("output", operation.output_dims(case.shape), other_dims)
    outputs = {"output": {"shape": output, "dtype": _dtype(operation.output_dtype(case.dtype), case)}}
    return Tensors(axes, {}, inputs, outputs, {}, known)


def _dtype(dtype: str, case: Case) -> str:
    if dtype not in _NAMES:
        raise InputError(
            f"{case.kernel}: dtype {dtype} is none of flashinfer-trace; expected one of {', '.join(_NAMES)}"
        )
    return _NAMES[dtype]
