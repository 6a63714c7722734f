"""Expands a grid of shapes, as 'B=1,8,32 H=2048,4096 O=H', in written order. Pure."""

from __future__ import annotations

import itertools
import math
import re

from ledger.errors import InputError

MAX_GRID_CELLS = 2_000


def parse_grid(text: str, *, what: str = "--grid") -> tuple[dict[str, int], ...]:
    """Return the shapes of a grid: sizes of a key, or another key whose size it has. `what` is named in errors.

    Raises: InputError.
    """
    sizes: dict[str, tuple[int, ...]] = {}
    same: dict[str, str] = {}
    for part in text.split():
        key, found, value = part.partition("=")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,15}", key) or not found or key in sizes or key in same:
            raise InputError(f"{what}: got {part[:60]!r}; expected each key once, as in 'B=1,8,32 H=2048,4096 O=H'")
        if re.fullmatch(r"[1-9][0-9]{0,11}(,[1-9][0-9]{0,11})*", value):
            sizes[key] = tuple(int(size) for size in value.split(","))
        else:
            same[key] = value
    for key, other in same.items():
        if other not in sizes:
            raise InputError(f"{what}: {key}={other[:40]}; expected sizes, or a key that has them")
    if not sizes:
        raise InputError(f"{what}: no sizes; expected a grid, as in 'B=1,8,32 H=2048,4096 O=H'")
    count = math.prod(map(len, sizes.values()))
    if count > MAX_GRID_CELLS:
        raise InputError(f"{what}: {count} cells; expected at most {MAX_GRID_CELLS}")
    found_shapes = (dict(zip(sizes, chosen, strict=True)) for chosen in itertools.product(*sizes.values()))
    return tuple({**shape, **{key: shape[other] for key, other in same.items()}} for shape in found_shapes)
