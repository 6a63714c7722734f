"""Tests tables of many rows, which are written line by line."""

from __future__ import annotations

import io

from rich.console import Console

from ledger.render.fitted_table import Column, print_fitted
from ledger.render.tables import MANY


def printed(count: int, console_class: type[Console] = Console) -> list[str]:
    names = [f"größe{number}€" if number % 3 else f"size {number}" for number in range(count)]
    columns = [Column("name", names, right=False), Column("of\nrow", [str(number) for number in range(count)])]
    stream = io.StringIO()
    print_fitted(console_class(file=stream, width=80), columns)
    return stream.getvalue().splitlines()


def test_many_rows_are_aligned_as_few_are():
    few, many = printed(MANY), printed(MANY + 1)
    # The number of the last row is as wide as that of the one before.
    assert many[: len(few)] == few and len(many) == len(few) + 1


def test_many_rows_are_not_laid_out_by_the_console():
    class Counting(Console):
        printed = 0

        def print(self, *objects, **options):
            Counting.printed += 1
            super().print(*objects, **options)

    printed(20 * MANY, Counting)
    assert Counting.printed < 5
