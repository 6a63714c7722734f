"""Derives from an operation which tensors a call takes and which sizes they must share. Pure; imports no torch.

An operation gives the dimensions of its inputs for a shape. Here the shape follows from tensors instead: which
dimension is which key is read from the operation once, with a distinct number for each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ledger.errors import InputError
from ledger.operations import Operation

_FIRST, _SECOND = 1_000_003, 2_000_003
"""Distinct sizes for each key start here: no constant of an operation is as large."""
_BLOCKS, _APART = (128,), 1009
"""Blocks whose number a dimension may be, and from one key's size to the next one's."""


@dataclass(frozen=True)
class Signature:
    """Hold the inputs and the result of an operation.

    A dimension is a key of the shape, a number, or a key by blocks such as "K/128", rounded up. dtypes: of inputs that
    do not have the case's.
    """

    name: str
    operation: Operation
    inputs: tuple[tuple[str, tuple[str | int, ...]], ...]
    output: tuple[str | int, ...]
    dtypes: tuple[str | None, ...]

    @property
    def rows(self) -> bool:
        """Tell whether the first input's first dimension, which may then be several, is the result's and no other's."""
        (_, first), *others = self.inputs
        elsewhere = [dim for _, dims in others for dim in dims]
        matrices = len(first) == 2 and len(self.output) == 2
        return matrices and self.output[0] == first[0] and first[0] not in (*elsewhere, first[1])

    @property
    def flat(self) -> bool:
        """Tell whether inputs and result are vectors of one length, which may then have any dimensions."""
        return len(self.output) == 1 and {dims for _, dims in self.inputs} == {self.output}

    def shape_of(self, sizes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Return the shape that inputs of some sizes have, in the order of the operation's keys.

        Raises: InputError for sizes that do not fit one another.
        """
        found: dict[str, Any] = {}
        source: dict[str, str] = {}
        for (name, dims), given in zip(self.inputs, sizes, strict=True):
            if len(given) != len(dims):
                raise InputError(f"{self._wrong(name, given)}; expected {_text(dims)}")
            for dim, size in zip(dims, given, strict=True):
                if isinstance(dim, int):
                    if size != dim:
                        raise InputError(f"{self._wrong(name, given)}; expected {_text(dims)}")
                elif "/" in dim:
                    key, block = dim.split("/")
                    if key in found and size != _blocks(found[key], int(block)):
                        wanted = f"{_text(dims)} with {key}={found[key]}, rounded up"
                        raise InputError(f"{self._wrong(name, given)}; expected {wanted}")
                elif dim not in found:
                    found[dim], source[dim] = size, name
                    if size == 0:
                        raise InputError(f"{self._wrong(name, given)}; expected {_text(dims)}, {dim} at least 1")
                elif size != found[dim]:
                    wanted = f"{_text(dims)} with {dim}={found[dim]}, as {source[dim]} has"
                    raise InputError(f"{self._wrong(name, given)}; expected {wanted}")
        return {key: found[key] for key in self.operation.shape_keys}

    def _wrong(self, name: str, given: Sequence[Any]) -> str:
        return f"{self.name}: {name} has shape ({', '.join(map(str, given))})"


def signature_of(name: str, operation: Operation) -> Signature:
    """Return the signature of an operation whose dimensions are keys, constants or keys by blocks."""

    def named(first: Sequence[int], second: Sequence[int]) -> tuple[str | int, ...]:
        dims: list[str | int] = []
        for one, other in zip(first, second, strict=True):
            assert (one in keys) == (one != other), f"{name}: dimension {one} is neither a key nor a constant"
            dims.append(keys.get(one, one))
        return tuple(dims)

    probes = [{key: start + _APART * at for at, key in enumerate(operation.shape_keys)} for start in (_FIRST, _SECOND)]
    keys = {size: key for key, size in probes[0].items()}
    # Far enough apart for their blocks to be distinct too.
    keys |= {_blocks(size, block): f"{key}/{block}" for block in _BLOCKS for key, size in probes[0].items()}
    inputs = [operation.inputs(probe) for probe in probes]
    return Signature(
        name=name,
        operation=operation,
        inputs=tuple((one.name, named(one.dims, other.dims)) for one, other in zip(*inputs, strict=True)),
        output=named(*(operation.output_dims(probe) for probe in probes)),
        dtypes=tuple(one.dtype for one in inputs[0]),
    )


def _blocks(size: Any, block: int) -> Any:
    return -(-size // block)


def _text(dims: Sequence[str | int]) -> str:
    return f"({', '.join(map(str, dims))})"
