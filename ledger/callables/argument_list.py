"""Reads a callable's arguments, as x=fp16[B,2*H] ids=i64[B]<32000 eps=1e-6, and computes their sizes. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ledger.canonical import record_errors
from ledger.errors import InputError
from ledger.operations import Shape, TensorSpec
from ledger.philox_inputs import Generated
from ledger.records import Argument, Dtype
from ledger.suggestions import unknown

FLOATING = ("fp64", "fp32", "fp16", "bf16", "fp8_e4m3")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "bool")
_ALIASES = {"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8"}
_LARGEST = {"int8": 2**7, "int16": 2**15, "int32": 2**31, "int64": 2**31, "uint8": 2**8, "bool": 2}
_BELL = Generated("bell", -6)
_SHORT = Generated("short", -3)
_MOST_DIGITS = 15
MAX_ELEMENTS = 2**40
MAX_KEYS = 12

_TENSOR = re.compile(r"([a-z][a-z0-9_]*)\[([^\[\]]*)\](?:<(.+))?")
_FACTOR = re.compile(r"[0-9]{1,15}|[A-Za-z][A-Za-z0-9_]{0,15}")


def parse_arguments(text: str) -> tuple[Argument, ...]:
    """Return the arguments that a text lists, separated by blanks: NAME=DTYPE[DIM,…], with <N after integers, or
    NAME=VALUE.

    Raises: InputError, naming the argument.
    """
    found = [_argument(part) for part in _parts(text)]
    names = [argument.name for argument in found]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"--args: duplicate argument {repeated[0]!r}; expected each once")
    return tuple(found)


def _parts(text: str) -> Iterator[str]:
    """Yield the NAME=… of a text; blanks within brackets do not separate."""
    yield from re.sub(r"\s+(?=[^\[\]]*\])", "", text).split()


def _argument(part: str) -> Argument:
    name, equals, value = part.partition("=")
    if not (name and equals and value):
        raise InputError(
            f"--args: got {part!r}; expected NAME=DTYPE[DIM,…] or NAME=VALUE, as in x=fp16[B,2*H] eps=1e-6"
        )
    with record_errors(f"--args: {part}"):
        match = _TENSOR.fullmatch(value)
        if match is None:
            _require_scalar(name, value)
            return Argument(name=name, dtype=scalar_kind(value), dims=None, below=None, value=value)
        return tensor_argument(name, match[1], match[2].split(",") if match[2] else (), match[3])


def _require_scalar(name: str, value: str) -> None:
    """Check that a value is no tensor that is written wrongly. Raises: InputError."""
    if value in (*all_dtypes(), *_ALIASES) or "[" in value or "]" in value:
        raise InputError(f"argument {name}: got {value!r}; expected DTYPE[DIM,…], as in fp16[B,2*H], or a value")


def tensor_argument(name: str, dtype: str, dims: Sequence[str], bound: str | None) -> Argument:
    """Return a tensor as an argument; bound: exclusive, as digits, for integers. Raises: InputError."""
    kind = _ALIASES.get(dtype, dtype)
    if kind not in (*FLOATING, *INTEGERS):
        raise InputError(f"argument {name}: {unknown('dtype', dtype, all_dtypes())}")
    for dim in dims:
        factors(dim, what=f"argument {name}")
    if kind in FLOATING and bound is not None:
        raise InputError(f"argument {name}: has a bound and is {kind}; expected a bound for integers only")
    below = "2" if kind == "bool" and bound is None else bound
    if kind in INTEGERS and (below is None or not below.isascii() or not below.isdigit()):
        raise InputError(
            f"argument {name}: {'no bound' if below is None else f'bound {below!r}'}; expected <N after an integer "
            "tensor, as in i64[B]<32000"
        )
    if below is not None and (len(below) > _MOST_DIGITS or not 1 <= int(below) <= _LARGEST[kind]):
        raise InputError(f"argument {name}: bound is {below[:40]}; expected 1 to {_LARGEST[kind]} for {kind}")
    return Argument(name=name, dtype=kind, dims=tuple(dims), below=None if below is None else int(below), value=None)


def all_dtypes() -> tuple[str, ...]:
    """Return the names of the dtypes that a tensor argument can have."""
    return (*FLOATING, *INTEGERS)


def scalar_kind(text: str) -> str:
    """Return what a scalar is: int, float, bool, none or text."""
    if text in ("true", "false", "True", "False"):
        return "bool"
    if text in ("none", "None"):
        return "none"
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return "int"
    try:
        return "float" if math.isfinite(float(text)) else "text"
    except ValueError:
        return "text"


def scalar_value(argument: Argument) -> int | float | bool | str | None:
    """Return the value of a scalar argument."""
    text = argument.value or ""
    if argument.dtype == "bool":
        return text.lower() == "true"
    if argument.dtype == "none":
        return None
    return int(text) if argument.dtype == "int" else float(text) if argument.dtype == "float" else text


def factors(dim: str, *, what: str) -> list[str]:
    """Return the numbers and keys that a dimension multiplies. Raises: InputError."""
    found = dim.replace(" ", "").split("*")
    if not all(_FACTOR.fullmatch(factor) for factor in found):
        raise InputError(f"{what}: dimension {dim!r}; expected a number, a key of the shape or a product such as 2*H")
    return found


def keys_of(arguments: Iterable[Argument]) -> tuple[str, ...]:
    """Return the keys of the shape that dimensions name, in the order of their first use."""
    used = (factor for one in arguments for dim in one.dims or () for factor in factors(dim, what=one.name))
    return tuple(dict.fromkeys(factor for factor in used if not factor.isdigit()))


def dims_of(argument: Argument, shape: Shape) -> tuple[int, ...]:
    """Return the sizes of a tensor argument. Raises: InputError for a key that the shape lacks."""
    sizes = []
    for dim in argument.dims or ():
        product = 1
        for factor in factors(dim, what=f"argument {argument.name}"):
            if not factor.isdigit() and factor not in shape:
                raise InputError(f"argument {argument.name}: dimension {dim} needs {factor}; expected it in --shape")
            product *= int(factor) if factor.isdigit() else shape[factor]
        sizes.append(product)
    if math.prod(sizes) > MAX_ELEMENTS:
        raise InputError(f"argument {argument.name}: {math.prod(sizes)} elements; expected at most {MAX_ELEMENTS}")
    return tuple(sizes)


def with_keys(arguments: tuple[Argument, ...], shape: Mapping[str, int]) -> tuple[tuple[Argument, ...], dict[str, int]]:
    """Return arguments and a shape that fit each other: every key is used, and there is one at least.

    Where no dimension names a key, each size above 1 becomes one: N0, N1, … in the order of their first use; where
    there is none, N0 is 1, which scalars and empty tensors do not name. Raises: InputError.
    """
    used = keys_of(arguments)
    if not used and dict(shape) == {"N0": 1} and not any(size for one in arguments for size in dims_of(one, {})):
        return arguments, dict(shape)
    if unused := sorted(set(shape) - set(used)):
        raise InputError(f"--shape: key {unused[0]} is in no dimension of --args; expected {','.join(used) or 'none'}")
    if missing := [key for key in used if key not in shape]:
        raise InputError(f"--shape: no size for {missing[0]}, which --args names; expected {','.join(used)}")
    if used:
        return arguments, dict(shape)
    sizes = dict.fromkeys(size for one in arguments for size in dims_of(one, {}) if size > 1)
    if len(sizes) > MAX_KEYS:
        raise InputError(f"--args: {len(sizes)} sizes; expected keys for them, as in x=fp16[B,H] with --shape B=8,H=64")
    names = {size: f"N{number}" for number, size in enumerate(sizes)} or {1: "N0"}
    named = [
        one.model_copy(update={"dims": tuple(names.get(size, str(size)) for size in dims_of(one, {}))})
        if one.dims is not None
        else one
        for one in arguments
    ]
    return tuple(named), {name: size for size, name in names.items()}


def first_dtype(arguments: Iterable[Argument]) -> Dtype:
    """Return the dtype of the first floating tensor, else of the first int8 one. Raises: InputError for neither."""
    kinds = [one.dtype for one in arguments if one.dims is not None]
    for kind in (*(kind for kind in kinds if kind in FLOATING), *(kind for kind in kinds if kind == "int8")):
        return kind  # type: ignore[return-value]
    raise InputError("--dtype: not given, and no argument is a floating tensor; expected the dtype of the arithmetic")


def tensor_spec(argument: Argument, shape: Shape) -> TensorSpec:
    """Return how a tensor argument is filled: floats near a standard deviation of 1, integers below their bound."""
    generated = Generated("below", 0, argument.below) if argument.below is not None else _BELL
    if argument.dtype == "fp8_e4m3":
        generated = _SHORT
    return TensorSpec(argument.name, dims_of(argument, shape), generated, argument.dtype)


def parameter_spec(name: str, dims: tuple[int, ...], dtype: str) -> TensorSpec:
    """Return how a parameter or buffer is filled, so that outputs stay finite.

    Matrices: a standard deviation of 0.4 to 0.8 ÷ √(inputs of a row). Vectors: from 0.375 to 1.37, biases near 0.3.
    """
    inner = math.prod(dims[1:])
    if len(dims) > 1:
        generated = Generated("symmetric", -8 - max(inner, 1).bit_length() // 2)
    elif name.endswith("bias"):
        generated = Generated("bell", -8)
    else:
        generated = Generated("positive", -7)
    return TensorSpec(name, dims, _SHORT if dtype == "fp8_e4m3" else generated, dtype)
