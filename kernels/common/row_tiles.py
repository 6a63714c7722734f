"""Holds what launch rules of row kernels choose from: a cell, its tile, and tables of tiles. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .targets import power_of_two

NARROW = 1024
"""Most columns of rows of which launch rules give a program several."""

TILE_BYTES = 4096
"""Bytes of x in a tile of several rows, unless a table says otherwise."""

WORTH_COPIES = 1 << 24
"""Bytes of x from which the microsecond that shifted copies of the scales take pays."""

SMALL_BYTES = 1 << 24
"""Bytes of x below which starting programs is what takes the time of narrow rows."""

FEW_BYTES = 1 << 25
"""Bytes of x up to which larger blocks pay, as all of x is soon read."""

FEW_ROWS, FEWEST_ROWS, FEW_NARROW_ROWS = 528, 132, 2048
"""Most rows that count as few, as fewest, and as few of at most NARROW columns."""

MOST_WHOLE = 8192
"""Most columns of few rows that one block holds."""

_BLOCKS = ((4096, 1024, 8), (12_288, 2048, 8), (2**31, 4096, 16))


class Tile(NamedTuple):
    """Hold what a launch rule chooses for a shape.

    block_m: rows of a program; more than 1 only where block_n holds a row. block_n: columns of a block. bypass_l1:
    whether scales are read past the L1. pipelined_loads: whether the second read loads the next block before it stores.
    """

    block_n: int
    num_warps: int
    bypass_l1: int = 0
    pipelined_loads: int = 0
    block_m: int = 1


class Cell(NamedTuple):
    """Hold what launch rules ask of a shape and dtype. Units: bytes. copied: whether shifted copies would pay."""

    m: int
    n: int
    element: int
    vector: int
    x_bytes: int
    aligned: bool
    copied: bool


def up_to(table: Sequence[tuple[int, ...]], n: int) -> tuple[int, ...]:
    """Return the rest of the first entry (most, rest…) with n <= most."""
    return next(tuple(rest) for most, *rest in table if n <= most)


def between(table: Sequence[tuple[int, ...]], n: int, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    """Return the rest of the first entry (least, most, rest…) with least < n <= most."""
    return next((tuple(rest) for least, most, *rest in table if least < n <= most), otherwise)


def whole_rows(
    tile: Tile, cell: Cell, *, tiles: Sequence[tuple[int, ...]] = (), tile_bytes: int = TILE_BYTES, num_warps: int = 4
) -> Tile:
    """Return a tile with several whole rows: one program a row could not be started fast enough, more than 0.8 a ns.

    tiles: (least, most, rows, warps) for rows of least < N <= most columns of 2 bytes; others get tile_bytes.
    """
    block_n = power_of_two(cell.n)
    chosen = max(tile_bytes // (block_n * cell.element), 1), num_warps
    block_m, warps = between(tiles, cell.n, chosen) if cell.element == 2 else chosen
    return tile._replace(block_m=block_m, block_n=block_n, num_warps=warps)


def default_tile(cell: Cell) -> Tile:
    """Return a tile that suits any reduction, untuned: narrow rows whole, several a program, others in blocks."""
    tile = Tile(*up_to(_BLOCKS, cell.n))
    narrow = cell.n <= NARROW and (cell.element == 2 or cell.aligned or cell.n <= NARROW // 2)
    return whole_rows(tile, cell) if narrow else tile


def few_rows(cell: Cell, scales: int) -> Tile | None:
    """Return the tile of so few rows that the time of one program decides; None for more. scales: vectors beside x.

    Measured on an H200 (benchmarks/drawn-h200.json): a warp for each narrow row, whole rows in one block.
    """
    block_n = power_of_two(cell.n)
    if block_n <= NARROW:
        if cell.m > FEW_NARROW_ROWS:
            return None
        return Tile(block_n, 4, block_m=4) if block_n <= NARROW // 4 else Tile(block_n, 1)
    if cell.m > FEW_ROWS:
        return None
    fewest = cell.m <= FEWEST_ROWS
    if cell.n > MOST_WHOLE:
        return _few_long(cell.n, scales, fewest=fewest) if not cell.aligned and cell.element == 2 else None
    if not cell.aligned and scales > 1 and cell.n > (4 if fewest else 2) * NARROW:
        return None
    return Tile(block_n, min(block_n // 256, 16))


def _few_long(n: int, scales: int, *, fewest: bool) -> Tile | None:
    """Return the tile of few long rows that start anywhere."""
    if n <= 4 * MOST_WHOLE:
        return Tile(2048, 16)
    if not fewest:
        return None
    return Tile(4096 if n <= 8 * MOST_WHOLE or scales > 1 else 8192, 32)


def is_ragged(n_cols: int, vector: int, block_m: int, copies: int) -> bool:
    """Tell whether rows start anywhere and are read as the aligned vectors within them and an edge on either side."""
    several = vector == 8 and n_cols > (NARROW // 8 if copies else NARROW // 2)
    return n_cols % vector != 0 and n_cols >= 2 * vector and (block_m == 1 or several)
