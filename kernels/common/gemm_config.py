"""Names the configuration keys of matrix products and counts what they imply: CTAs, rows of tiles, shared memory.

`variant` is "generic" (Triton), "warp_specialised" (Gluon, sm_90), "cuda", "few_rows", "residues" or "split_k" (CUDA
C++, sm_90). "cuda" has clusters of cluster_m by cluster_n CTAs, swap_ab (A and B swapped: a tile's rows are wgmma's
columns), split_k (CTAs that divide a tile's steps along K; the three after it have it too) and stream_k (all clusters
divide the last tiles along K).
Imports neither torch nor triton.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ledger.operations import Shape

from .targets import SHARED_BYTES, ceil_div

Settings = Mapping[str, Any]

GENERIC, WARP_SPECIALISED, CUDA, FEW_ROWS = "generic", "warp_specialised", "cuda", "few_rows"

KEYS = (
    "block_m", "block_n", "block_k", "group_m", "subtiles", "programs", "num_warps", "num_stages", "tma", "variant",
)  # fmt: skip
CUDA_DEFAULTS = {"cluster_m": 1, "cluster_n": 1, "split_k": 1, "stream_k": 0, "pdl": 0, "swap_ab": 0}
"""Keys of kernels that have CUDA C++, with their values in the other variants."""

GROUP = 8
"""Rows of tiles, of a cluster or of a CTA, that share the columns of B which they read while these are in L2."""

CLUSTERS = ((1, 1), (2, 1), (2, 2), (4, 1))
"""Clusters along M and N that launch rules choose from."""


def resident(cluster: tuple[int, int], sms: int) -> int:
    """Return how many CTAs of such clusters a chip holds at once: a cluster lies within a group of SMs.

    Of those of four and of eight an H200 with 132 SMs holds 120, as its driver says; other chips are taken to hold the
    same share.
    """
    return sms if math.prod(cluster) < 4 else sms * 10 // 11 // 4 * 4


def cluster_of(config: Settings) -> tuple[int, int]:
    """Return the CTAs of a cluster along M and along N."""
    return config["cluster_m"], config["cluster_n"]


def swapped(config: Settings) -> bool:
    """Tell whether A and B are swapped."""
    return bool(config.get("swap_ab"))


def lines(columns: int) -> int:
    """Return in how many lines of L2 128 bytes of a row of so many 2-byte elements lie."""
    return 1 if columns % 64 == 0 else 2


def cuda_threads(config: Settings) -> int:
    """Return the threads of a CTA of the CUDA C++: the warps that multiply, and four of which one loads."""
    return int(32 * config["num_warps"] + 128)


def cuda_tiles(config: Settings, shape: Shape) -> int:
    """Return the tiles of the CUDA C++: one for each CTA of as many clusters as cover the matrix."""
    rows, cols = cluster_of(config)
    return int(
        rows * cols * ceil_div(shape["M"], rows * config["block_m"]) * ceil_div(shape["N"], cols * config["block_n"])
    )


def cuda_ctas(config: Settings, shape: Shape) -> int:
    """Return the CTAs of a launch of the CUDA C++."""
    rows, cols = cluster_of(config)
    tiles = cuda_tiles(config, shape) // (rows * cols)
    if config["split_k"] > 1:
        return int(rows * cols * config["split_k"] * tiles)
    pieces = tiles * ceil_div(shape["K"], config["block_k"]) if config["stream_k"] else tiles
    return int(rows * cols * min(pieces, config["programs"] // (rows * cols)))


def row_step(config: Settings) -> int:
    """Return what the rows of tiles are a multiple of: those stored at once."""
    return 8 if swapped(config) else 16


def tile_rows(config: Settings, n_rows: int) -> int:
    """Return the rows of each tile of the CUDA C++: even shares in whole steps."""
    rows, step = config["cluster_m"], row_step(config)
    return int(step * ceil_div(n_rows, step * rows * ceil_div(n_rows, rows * config["block_m"])))


def group_rows(config: Settings, shape: Shape) -> int:
    """Return how many rows of clusters' tiles form a group: groups are of equal size, at most GROUP."""
    tiles_m = ceil_div(shape["M"], config["cluster_m"] * config["block_m"])
    return ceil_div(tiles_m, ceil_div(tiles_m, GROUP))


def ring_bytes(config: Settings, element: int) -> int:
    """Return the shared memory of all stages, in bytes. element: bytes of an element of A and B."""
    return int(config["num_stages"] * element * config["block_k"] * (config["block_m"] + config["block_n"]))


def store_bytes(num_warps: int) -> int:
    """Return the bytes through which results of the CUDA C++ leave, of so many warps that multiply.

    Each stores through two buffers of 16 rows by 64 columns, or four together through two of 64.
    """
    return num_warps * 2 * 16 * 64 * 2


def stores_in_ring(config: Settings, element: int) -> bool:
    """Tell whether results of a swapped tile leave through the ring, beside which no room is left.

    A CTA then has one tile.
    """
    if not swapped(config) or config["split_k"] > 1:
        return False
    needed: int = ring_bytes(config, element) + store_bytes(config["num_warps"]) + 16 * config["num_stages"]
    return needed > SHARED_BYTES["sm_90"]


def few_rows_bytes(config: Settings) -> int:
    """Return the shared memory of a CTA of the variant few_rows, in bytes: all stages, of which a row takes 144."""
    return int(config["num_stages"] * 144 * (config["block_k"] + config["block_m"]))


def shared_bytes(config: Settings, element: int, output: int) -> int:
    """Return an upper bound of the shared memory of a CTA, in bytes. element, output: bytes of one of A, one of C."""
    ring, tile = ring_bytes(config, element), config["block_m"] * config["block_n"]
    if config["variant"] == FEW_ROWS:
        return few_rows_bytes(config)
    if config["variant"] == CUDA:
        # Half of the accumulators of a split tile come from the other CTA, to where the ring was.
        store = store_bytes(config["num_warps"])
        used = max(ring, 2 * tile + store) if config["split_k"] > 1 else ring + store
        if stores_in_ring(config, element):
            used = max(ring, store)
        return int(used + 16 * config["num_stages"])
    # With TMA the result leaves through a buffer of its own; without, through what the loop has left. The last terms
    # cover barriers.
    if config["tma"]:
        return int(ring + output * tile // config["subtiles"] + 1024)
    return int(max(ring, 4 * config["block_m"] * (config["block_n"] + 8)) + 64)
