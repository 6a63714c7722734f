"""Tests the counter of products on the three that torch has: of matrices, of a matrix and a vector, of vectors."""

import pytest

from ledger.callables.flop_counter import product_counter

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be counted")


def counted(call) -> int:
    with product_counter() as counter:
        call()
    return counter.get_total_flops()


def test_products_count_two_operations_a_multiply_add():
    a, b, x = torch.ones(3, 5), torch.ones(5, 7), torch.ones(5)
    assert counted(lambda: a @ b) == 2 * 3 * 5 * 7
    assert counted(lambda: a @ x) == 2 * 3 * 5
    assert counted(lambda: x @ x) == 2 * 5
    assert counted(lambda: torch.relu(a) + 1) == 0
