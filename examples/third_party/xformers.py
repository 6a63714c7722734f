"""Offers kernels of xformers (BSD-3-Clause)."""

from xformers import ops
from xformers.ops import rmsnorm


def rms_norm(x, weight, eps):
    """Call the RMS norm."""
    return rmsnorm.rms_norm(x, weight, eps)


def rms_norm_add(x, y, weight, eps):
    """Call the RMS norm of a sum, which changes x."""
    return rmsnorm.rms_norm_add(x, y, weight, eps)


def gather_rows(table, ids):
    """Call the concatenation of selected rows."""
    return ops.index_select_cat([table], [ids]).view(-1, table.shape[1])


def matmul(a, b):
    """Call the tiled product, of one tile."""
    return ops.tiled_matmul([[a]], [[b]])[0][0]
