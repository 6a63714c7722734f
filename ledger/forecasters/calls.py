"""Says what the name, the arguments and the work of a callable tell of its launches. Pure.

A product of two matrices is taken to be a library's, which picks among tiles. Others have a kind, by the words of
their names: how many kernels a call launches, and how many times as long it takes as its compulsory work says, 80% and
the median. Kinds marked `timed` rest on calls of torch on an H200 (benchmarks/h200.json, matmul-draw-h200.json,
model-shapes-fit-h200.json), whose times chose them; the others on reading such kernels: what they store between
passes, how many steps follow each other. Nobody has timed those here, so their intervals are wide.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ledger.callables.argument_list import dims_of
from ledger.records import Case, CaseV2, Work


class Kind(NamedTuple):
    """Hold how calls of a kind take time: launches, and how many times their cost; 80% and the median.

    traffic: whether what takes longer is traffic beyond the compulsory one. timed: whether such calls were timed.
    step_us: of kinds that go along a sequence of T steps one by one, a step.
    """

    name: str
    words: tuple[str, ...]
    low: float
    median: float
    high: float
    launches: int = 1
    traffic: bool = False
    timed: bool = False
    step_us: float = 0.0


LIBRARY = Kind("library product", (), 0.88, 1.0, 1.15, timed=True)
UNALIGNED = Kind("product of unaligned rows", (), 0.77, 1.0, 1.26, timed=True)
INT8_LIBRARY = Kind("library product of int8", (), 1.2, 1.55, 1.9, timed=True)
OTHER_PRODUCT = Kind("product of Triton", (), 1.0, 1.3, 2.0)
BACKWARD_ROWS = Kind("backward pass of rows", (), 1.05, 1.35, 2.3, launches=2, traffic=True)
BACKWARD = Kind("backward pass of attention", (), 1.5, 2.2, 3.2, launches=3)
ROWS = Kind("rows", (), 1.0, 1.1, 1.45, traffic=True, timed=True)
OTHER = Kind("other", (), 1.05, 1.5, 2.8, launches=2)
KINDS = (
    Kind("sequence, step by step", ("recurrent",), 0.5, 1.0, 2.5, step_us=0.8),
    Kind("product and its loss", ("linear_cross_entropy",), 1.3, 2.2, 5.0, launches=20),
    Kind("tiles of a product and its loss", ("linear_cross_entropy_rows",), 1.2, 1.6, 2.6, launches=3),
    Kind("attention by cuDNN or FlashInfer", ("torch_kernels:attention", "torch_kernels:causal_attention",
         "flash4", "prefill"), 1.1, 1.3, 1.7, timed=True),
    Kind("decoding of few queries", ("decode", "paged_attention"), 1.0, 1.25, 2.2, launches=2, timed=True),
    Kind("attention of int8", ("sage",), 1.8, 3.0, 4.5, launches=3),
    Kind("attention by Triton", ("attention", "flex_causal", "flex_window", "flex_softcap"), 1.4, 1.95, 2.7),
    Kind("quadratic retention", ("parallel_retention",), 1.8, 2.7, 4.5, launches=2),
    Kind("chunks of a recurrence", ("retention", "linear_attention", "lightning_attention", "gla", "simple_gla",
         "delta_rule", "gated_delta_rule", "kda"), 1.8, 3.0, 6.0, launches=6, traffic=True),
    Kind("scan", ("scan", "cumsum", "hgrn"), 1.05, 1.5, 3.0, traffic=True),
    Kind("sorted rows", ("sparsemax", "sort"), 3.0, 8.0, 20.0, launches=6, traffic=True),
    Kind("loss in passes", ("cross_entropy", "kl_div", "jsd", "tvd"), 1.05, 1.7, 3.0, launches=2, traffic=True),
    Kind("rotary embedding", ("rope",), 1.05, 1.6, 2.4, launches=2, traffic=True),
    Kind("groups in two passes", ("group_norm",), 1.1, 1.7, 3.0, traffic=True),
    Kind("quantisation", ("quantize",), 1.0, 1.25, 2.2, traffic=True),
    Kind("weights of four bits", ("w4a16", "gemv_4bit"), 1.2, 2.2, 6.0),
    Kind("convolution", ("conv2d",), 1.1, 1.5, 2.2, launches=3),
)  # fmt: skip
"""The first kind counts of which all names hold a word; a longer word goes before a shorter one."""

LIBRARY_TAIL, SPLIT_S = 0.2, (1.5e-6, 0.4e-6)
"""Of a library's product: the share of the last wave's idle time that counts; what splits of K take, once and for each
doubling."""
LIBRARY_S, UNALIGNED_S = 0.2e-6, 1.5e-6
"""What a library's product takes beside the tiles that would be fastest, and one whose rows are not aligned."""
NORMING_S = 3.4e-6
"""What a launch takes that normalises the rows ahead of a library's product."""
SLOWER = {1: (6.0, 3.8), 2: (3.4, 1.8), 4: (3.4, 1.8)}
"""Elements of 16 bits to which rows are aligned -> times the SMs and DRAM take: without TMA, element by element."""
_FEW = 8
"""Operations a byte below which a call without a kind of its own is one of rows."""
_ALIGNED = 8
_TILES = ((64, 64), (64, 128), (64, 192), (128, 64), (128, 128), (128, 192), (128, 256), (256, 64), (256, 128))
_SPLITS, _FEW_SPLITS = (1, 2, 3, 4, 6, 8, 16, 32), (1, 2, 3, 4, 6, 8)


class Product(NamedTuple):
    """Hold the sizes of a product: batch × [M, K] × [K, N]. pitches: elements between rows of A and of B."""

    batch: int
    m: int
    n: int
    k: int
    pitches: tuple[int, int]

    @property
    def alignment(self) -> int:
        """Return to how many elements both rows are aligned: 1, 2, 4 or 8."""
        return math.gcd(*self.pitches, _ALIGNED)


@dataclass(frozen=True)
class Described:
    """Hold what is known of a callable."""

    kind: Kind
    product: Product | None


def described(case: Case, work: Work) -> Described:
    """Return what is known of a callable; of a kernel whose tiles are not known, that it is another."""
    if not isinstance(case, CaseV2) or case.arguments is None:
        return Described(OTHER, None)
    product = product_of(case, work)
    if product is not None:
        return Described(_product_kind(case, product), product)
    return Described(_kind(case, work), None)


def _product_kind(case: Case, product: Product) -> Kind:
    module = case.kernel.partition(":")[0]
    library = any(word in module for word in ("torch", "bnb", "cublas"))
    if not library:
        return OTHER_PRODUCT
    if case.dtype == "int8":
        return INT8_LIBRARY
    return LIBRARY if product.alignment == _ALIGNED else UNALIGNED


def _kind(case: Case, work: Work) -> Kind:
    backward = case.config.get("pass", "forward") != "forward"
    rows = work.flops <= _FEW * work.bytes
    if backward and rows:
        return BACKWARD_ROWS
    name = case.kernel.rpartition(".")[2] if "." in case.kernel.partition(":")[0] else case.kernel
    found = [(len(word), -place) for place, one in enumerate(KINDS) for word in one.words if _holds(name, word)]
    kind = KINDS[-max(found)[1]] if found else (ROWS if rows else OTHER)
    return BACKWARD if backward and "attention" in kind.name else kind


def _holds(name: str, word: str) -> bool:
    """Tell whether a name holds a word, whole between underscores and dots."""
    return re.search(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", name) is not None


def product_of(case: Case, work: Work) -> Product | None:
    """Return the sizes of the product that a callable's arguments and work are; None of any other callable."""
    if not isinstance(case, CaseV2) or case.arguments is None or case.config.get("pass", "forward") != "forward":
        return None
    sizes = [dims_of(one, case.shape) for one in case.arguments if one.dims is not None]
    # Beside the matrices there may be scales, which are smaller.
    largest = sorted(range(len(sizes)), key=lambda place: math.prod(sizes[place]), reverse=True)[:2]
    operands = [sizes[place] for place in sorted(largest) if len(sizes[place]) in (2, 3)]
    if len(operands) < 2 or len(operands[0]) != len(operands[1]):
        return None
    (*batch, m, k), (*others, rows, columns) = operands
    if batch != others:
        return None
    number = math.prod(batch)
    for inner, n in ((rows, columns), (columns, rows)):
        if inner == k and work.flops == 2 * number * m * n * k:
            return Product(number, m, n, k, (k, columns))
    return None


def product_sizes(case: Case, work: Work, keys: Mapping[str, tuple[str, str, str]]) -> tuple[int, int, int] | None:
    """Return M, N and K of a kernel whose keys of these sizes are given, or of a callable that is one product."""
    if case.kernel in keys:
        m, n, k = (case.shape[key] for key in keys[case.kernel])
        return m, n, k
    found = product_of(case, work)
    return None if found is None or found.batch > 1 else (found.m, found.n, found.k)


@lru_cache(maxsize=4096)
def tiles_of(product: Product, sms: int) -> tuple[tuple[int, int, int], ...]:
    """Return the tiles and splits of K among which a library picks, of either orientation."""
    return tuple(_tiles(product, sms))


def _tiles(product: Product, sms: int) -> Iterator[tuple[int, int, int]]:
    for tall, wide in _TILES:
        for high, broad in {(tall, wide), (wide, tall)}:
            tiles = product.batch * -(-product.m // high) * -(-product.n // broad)
            for split in _SPLITS if product.alignment == _ALIGNED else _FEW_SPLITS:
                if split == 1 or (tiles <= sms and product.k // 64 // split >= 4):
                    yield high, broad, split
