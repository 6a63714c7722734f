"""Describes a sealed launch as equal CTAs and what each moves and computes, from shape and configuration alone. Pure.

It reads the keys of configurations by name, those of sealed records included, and knows no kernel's code. A kernel
that it does not know has its compulsory work alone. A callable that is a product gets the tiles that it is asked about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ledger.forecasters.calls import LIBRARY_TAIL, Product
from ledger.records import Case, Dtype, Work
from ledger.roofline import DTYPE_BYTES


@dataclass(frozen=True)
class Geometry:
    """Hold a launch of equal CTAs. Units: bytes, operations and elements of one step of one CTA where not said.

    steps: of a CTA, one after the other. spread: whether CTAs divide the work without a last wave; tail: the share of
    that wave's idle time that counts. tensor: operations, padding included. request: bytes requested from L2.
    served: what L2 reads of that, where CTAs beside each other ask for the same at once; 0 for all of it.
    exchanged: through shared memory. converted: elements that pass through registers on their way to the tensor cores,
    by so many converters (warpgroups). chained: dependent products of a step, each waiting for the one before.
    apart: the same of each tile after the first of an SM, whose loads and stores the next does not hide.
    promoted: sums that CUDA cores scale and add to those before while tensor cores wait. pending: steps whose loads are
    under way together, 0 where that is not known.
    exponentials: of a softmax. multiplied: products of CUDA cores. slower: times that SMs, L2 and DRAM take where
    threads copy instead of TMA. realigned: bytes of operands that a launch ahead copies so that TMA can read them.
    scattered: whether rows of the result start within a sector of 32 bytes, so that tiles write parts of sectors.
    split: CTAs that add up one result; together: in one cluster; summed: bytes that they write for a second launch,
    which adds them up, and that it reads. divided: stream-K, whose CTAs share the last tiles:
    partial: bytes of sums that one leaves for another; shares: CTAs of a tile. at_once: CTAs that run together, 0 for
    one an SM; padding: CTAs without a tile, that fill clusters. waits: dependent loads of blocks beyond the first, each
    as long as that of a block of a kilobyte. phases: dependent passes over memory. early: launch
    overlaps with the one ahead (programmatic dependent launch); ahead: it even loads most of its bytes before that one
    ends. known: whether the tiles are known.
    """

    ctas: int
    steps: float
    spread: bool = False
    tail: float = 1.0
    tensor: float = 0.0
    request: float = 0.0
    served: float = 0.0
    exchanged: float = 0.0
    converted: float = 0.0
    converters: float = 1.0
    chained: float = 0.0
    promoted: float = 0.0
    pending: int = 0
    apart: float = 0.0
    exponentials: float = 0.0
    multiplied: float = 0.0
    slower: float = 1.0
    realigned: float = 0.0
    scattered: bool = False
    split: int = 1
    together: bool = False
    summed: float = 0.0
    divided: bool = False
    partial: float = 0.0
    shares: float = 1.0
    at_once: int = 0
    padding: int = 0
    waits: float = 0.0
    phases: float = 1.0
    early: bool = False
    ahead: bool = False
    known: bool = True


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)


def number(config: Mapping[str, int | str], key: str, default: int) -> int:
    """Return a number of a configuration; the default where it has none."""
    value = config.get(key, default)
    return value if isinstance(value, int) else default


def geometry_of(case: Case, work: Work, sms: int) -> Geometry:
    """Return the launch of a case; of one that is not known, its compulsory work on all SMs."""
    found = _BY_KERNEL.get(case.kernel)
    if found is not None and case.implementation == "triton":
        try:
            made = found(case, work, sms)
            early = number(case.config, "pdl", 0) > 0
            return replace(made, early=early, ahead=made.ahead and early)
        except (KeyError, ZeroDivisionError, TypeError):
            # A configuration of another form.
            pass
    tensor = work.flops if "fp32" != case.dtype != "fp64" else 0
    return Geometry(sms, 1.0, spread=True, tensor=tensor / sms, request=work.bytes / sms, known=False)


def library_geometry(product: Product, dtype: Dtype, written: int, tall: int, wide: int, split: int) -> Geometry:
    """Return the launch of a library's product with these tiles: TMA, wgmma, no early launch.

    written: bytes of an element of the result. A library has more tiles than are tried here, so that its last wave
    idles less.
    """
    element = DTYPE_BYTES[dtype]
    deep = 128 // element
    rows, columns = product.m / _parts(product.m, tall), product.n / _parts(product.n, wide)
    return Geometry(
        ctas=product.batch * _parts(product.m, tall) * _parts(product.n, wide) * split,
        steps=_parts(_parts(product.k, deep), split),
        tail=LIBRARY_TAIL,
        tensor=2 * tall * wide * deep,
        request=element * deep * (rows + columns),
        exchanged=element * deep * (rows + wide + wide * max(tall // 128, 1) + tall * max(wide // 256, 1)),
        multiplied=_LIBRARY_FMA * rows * columns * deep if dtype in ("fp32", "fp64") else 0,
        apart=_TILE_CHAIN,
        scattered=bool(written * product.n % SECTOR_BYTES),
        split=split,
    )


def _product(case: Case, work: Work, sms: int) -> Geometry:
    shape, config = case.shape, case.config
    fused = case.kernel == "rmsnorm_matmul"
    rows, columns, inner = (shape[key] for key in ("B", "O", "H")) if fused else (shape[key] for key in ("M", "N", "K"))
    tall, wide = (int(config[key]) for key in (("block_b", "block_o") if fused else ("block_m", "block_n")))
    deep, element = int(config["block_k"]), DTYPE_BYTES[case.dtype]
    variant, high, broad = _variant(case)
    split = number(config, "split_k", 2 if config.get("stream") == 2 else 1)
    tiles_high, tiles_wide = _parts(rows, tall), _parts(columns, wide)
    tiles = tiles_high * tiles_wide
    steps = _parts(_parts(inner, deep), split)
    in_clusters = high * _parts(tiles_high, high) * broad * _parts(tiles_wide, broad)
    at_once = min(number(config, "programs", sms), sms)
    divided = bool(config.get("stream_k")) and tiles % at_once > 0
    # The rows that a tile has beyond those of the matrix are multiplied, and not loaded.
    loaded = rows / tiles_high
    converted, converters = 0.0, max(number(config, "num_warps", 4) / 4, 1.0)
    if fused:
        # Ping-pong warpgroups scale the weights, the others x; of the warp-specialised variant some do nothing else.
        converted = (wide if variant == "ping_pong" else loaded) * deep
        converters = max(number(config, "scalers", 0), number(config, "scaling_warpgroups", 0)) or converters
    few = variant == "few_rows"
    products = tall * wide * deep * _fma(case, tall * wide) if case.dtype in ("fp32", "fp64") else 0.0
    # Eight-bit operands both lie along the inner dimension.
    pitch = inner if case.kernel in _ALONG_INNER else columns
    realigned = 0.0 if fused or few else _realigned(rows, columns, inner, pitch, element, whole=variant != "residues")
    lines_a = 1.0 if realigned else _lines(inner * element)
    lines_b = 1.0 if realigned and variant != "residues" else _lines(pitch * element)
    of_a, of_b = (element * deep * each for each in (loaded * lines_a / broad, wide * lines_b / high))
    second = variant == "split_k"
    shared = _SHARED_PARTS if second else _SHARED if case.kernel in _BESIDE and not few else 0.0
    return Geometry(
        ctas=tiles * split,
        steps=steps,
        spread=bool(config.get("stream_k")) or config.get("stream") == 1,
        tensor=2 * max(tall, 8) * wide * deep,
        request=of_a + of_b,
        served=of_a / max(tiles_wide / broad, 1) ** shared + of_b / max(tiles_high / high, 1) ** shared,
        exchanged=element * deep * (loaded + wide + wide * max(tall // 128, 1) + tall * max(wide // 256, 1))
        + (_FMA_SHARED_BYTES * products if fused else 0.0),
        converted=converted,
        converters=converters,
        multiplied=products,
        chained=_FEW_CHAIN * tall if few else 0.0,
        promoted=tall * wide if case.kernel == "matmul_fp8_blocks" else 0.0,
        pending=0 if few else number(config, "num_stages", 0),
        apart=_TILE_CHAIN,
        slower=_FEW_SLOWER if few else 1.0,
        realigned=realigned,
        scattered=bool(work.bytes_written // rows % SECTOR_BYTES),
        split=split,
        summed=8.0 * rows * columns * split if second else 0.0,
        divided=divided,
        # Written once and read once, in fp32.
        partial=8.0 * tall * wide * min(at_once, tiles * steps) if divided else 0.0,
        shares=max(at_once / tiles, 1.0) if divided else 1.0,
        at_once=at_once,
        padding=0 if divided else (in_clusters - tiles) * split,
        together=variant not in ("generic", "warp_specialised"),
        # The weights do not wait for the launch ahead, where all of a tile's fit in the stages.
        ahead=variant == "ping_pong" and number(config, "num_stages", 0) >= steps,
    )


SECTOR_BYTES = 32
_LIBRARY_FMA = 0.6
"""Time that a library's products on CUDA cores take ÷ that of this project's tiles (0.6 to 0.7 of the peak)."""
_BESIDE = ("matmul", "matmul_bias_relu")
"""Products that take as long as if L2 read a part of what their CTAs ask for (it counted 0.5 to 0.9): CTAs beside each
other ask for the same at once. Of matmul_int8 it counted as little, but its time is not shorter."""
_SHARED, _SHARED_PARTS = 0.25, 0.5
"""Power of the tiles beside a CTA by which L2 reads less; that of split_k, whose CTAs beside each other have one part
of K."""
_TILE_CHAIN = 12.0
"""Waits, each as long as a dependent product, between two tiles of an SM: last product, stores, first loads."""
_ROW_PHASES: Mapping[str, float] = {"vector_add": 0.65, "rmsnorm": 0.85}
"""Passes of rows of one block: none waits for a reduction, or one does."""
_FEW_SLOWER, _FEW_CHAIN = 1.5, 0.1
"""Of the variant few_rows, whose threads copy B: times its body, waits a row and step (benchmarks/matmul-draw-h200)."""
_FMA_WARPS, _FMA_SHARED = 1.17, 4.8
"""Of products of CUDA cores: with four warps an SM, and of the fused kernel for a thread that holds one result."""
_SHARED_BYTES = 227 * 1024
_DECODE_WAITS = 26.0
"""Waits, each as long as a dependent product, for the loads of a block of positions (1.85 µs from DRAM)."""
_LATENT_WAITS, _LATENT_SUM = 14.0, 5.0
"""Such waits of a step of latent attention whose warps have roles, and the passes that add up its splits."""
_FMA_SHARED_BYTES = 2.2
"""Bytes that such products read from shared memory, each so much longer: 85% of its rate."""
_TMA_BYTES = 16


def _realigned(rows: int, columns: int, inner: int, pitch: int, element: int, *, whole: bool) -> float:
    """Return the bytes of those operands that are copied for TMA. pitch: of B; whole: not A alone, for either."""
    a, b = element * rows * inner, element * inner * columns
    of_a, of_b = element * inner % _TMA_BYTES > 0, element * pitch % _TMA_BYTES > 0
    return a * of_a + b * of_b if whole else a * (of_a or of_b)


_ALONG_INNER = ("matmul_fp8", "matmul_fp8_blocks", "matmul_int8")
_LINES = {0: 1.0, 64: 1.1, 32: 1.2, 96: 1.2}


def _lines(pitch: int) -> float:
    """Return how many times longer L2 takes for 128 bytes of a row than for a whole line: two lines, parts of sectors.

    Rows that start at any of the sectors of a line take a fifth more, those that start within one nearly twice as long.
    """
    return _LINES.get(pitch % 128, 1.9)


def _fma(case: Case, results: int) -> float:
    """Return the time of products of CUDA cores against the model's share of their peak.

    Few warps leave them idle; the fused kernel reads each operand from shared memory for as many products as a thread's
    block of results is wide.
    """
    warps = max(number(case.config, "num_warps", 4), 1)
    if case.kernel != "rmsnorm_matmul":
        return float(_FMA_WARPS * (4 / warps) ** 0.8)
    of_thread = max(results / (32 * warps), 1.0)
    tall = math.ldexp(1.0, int(math.log2(of_thread) // 2))
    return _FMA_SHARED * (1 / tall + tall / of_thread)


_NUMBERED = {0: "generic", 1: "warp_specialised", 2: "cuda", 3: "ping_pong"}


def _variant(case: Case) -> tuple[str, int, int]:
    """Return variant, and CTAs of a cluster along rows and columns; older records hold them as one number.

    Of matmul: 11 and 21 are clusters of 1 and 2 of the CUDA variant, 111 and 121 the same with A and B swapped.
    """
    config = case.config
    named = config.get("variant")
    if isinstance(named, str):
        name = "ping_pong" if named == "cuda_ping_pong" else named
        return name, max(number(config, "cluster_m", 1), 1), max(number(config, "cluster_n", 1), 1)
    pipeline = number(config, "pipeline", 0)
    if pipeline < 10:
        high = 2 if pipeline == 2 and case.kernel != "rmsnorm_matmul" else 1
        return _NUMBERED.get(pipeline, "cuda"), high, 1
    digits = [int(digit) for digit in str(pipeline)]
    return "cuda", digits[-2] if len(digits) == 3 else digits[0], digits[-1] if len(digits) == 3 else 1


def _gemv(case: Case, _work: Work, _sms: int) -> Geometry:
    element = DTYPE_BYTES[case.dtype]
    wide, deep = int(case.config["block_n"]), int(case.config["block_k"])
    together = int(number(case.config, "interleave", 1))
    return Geometry(
        ctas=together * _parts(case.shape["N"], together * wide),
        steps=1,
        spread=True,
        request=element * wide * case.shape["K"],
        waits=_parts(case.shape["K"], deep) - 1,
    )


def _rows(case: Case, _work: Work, sms: int) -> Geometry:
    rows, element = case.shape.get("M", 1), DTYPE_BYTES[case.dtype]
    # A row longer than a block is read in several steps, each of which waits for its loads.
    block = number(case.config, "block_n", case.shape["N"])
    in_rows = "block_m" in case.config
    blocks = _parts(case.shape["N"], block) if in_rows else 1
    ctas = _parts(rows, number(case.config, "block_m", 1)) if in_rows else sms
    return Geometry(
        ctas=ctas,
        steps=1,
        spread=True,
        request=2 * element * rows * case.shape["N"] / ctas,
        waits=(blocks - 1) * math.sqrt(element * block / 1024),
        phases=_ROW_PHASES.get(case.kernel, 1.0),
    )


def _decode(case: Case, _work: Work, sms: int) -> Geometry:
    shape, config, element = case.shape, case.config, DTYPE_BYTES[case.dtype]
    splits, deep = int(config["splits"]), int(config["block_s"])
    variant = config.get("variant", config.get("pipeline", 0))
    pairs, width = shape["B"] * shape["HKV"], shape["D"]
    whole = variant in (3, "split") and splits == 1
    ctas = max(pairs, sms) if whole else pairs * splits
    positions = shape["S"] * pairs / ctas
    heads = shape["HQ"] // shape["HKV"]
    stages, full = number(config, "num_stages", 1), max(ctas / sms, 1.0)
    # A stage holds keys and values; CTAs of an SM wait beside each other.
    beside = max(_SHARED_BYTES // (stages * 2 * element * deep * width), 1)
    waits = _DECODE_WAITS / stages * math.ceil(full / beside) / full if variant in (1, "software_pipelined") else 0.0
    return Geometry(
        ctas=ctas,
        steps=max(positions / deep, 1.0),
        chained=waits,
        spread=whole or ctas > sms,
        request=2 * element * deep * width,
        exponentials=heads * deep,
        multiplied=2 * heads * deep * width if case.dtype == "fp32" else 0,
        split=splits,
        together=variant not in (0, 1, "generic"),
        phases=1.5,
    )


def _latent(case: Case, _work: Work, _sms: int) -> Geometry:
    shape, config, element = case.shape, case.config, DTYPE_BYTES[case.dtype]
    splits, heads, deep = (int(config[key]) for key in ("splits", "block_h", "block_s"))
    # 512 latent and 64 rotary columns for the scores, 512 for the values.
    return Geometry(
        ctas=shape["B"] * _parts(shape["H"], heads) * splits,
        steps=_parts(_parts(shape["S"], splits), deep),
        tensor=2 * heads * deep * (576 + 512),
        request=element * deep * 576,
        exchanged=element * (deep * (576 + 576 + 512) + heads * (576 + deep)),
        chained=_LATENT_WAITS if config.get("variant") == "warp_specialised" else 2,
        exponentials=heads * deep,
        split=splits,
        phases=1.5 + _LATENT_SUM * (splits > 1),
    )


def _flash(case: Case, _work: Work, sms: int) -> Geometry:
    shape, config, element = case.shape, case.config, DTYPE_BYTES[case.dtype]
    tall, deep, width, length = int(config["block_m"]), int(config["block_n"]), shape["D"], shape["S"]
    tiles, steps = _parts(length, tall), float(_parts(length, deep))
    ctas, causal = shape["B"] * shape["HQ"] * tiles, case.kernel.endswith("causal")
    if causal:
        # The longest tile takes all steps, however few tiles there are.
        steps = max(steps * (1 + 1 / tiles) / 2, steps / max(ctas / sms, 1.0))
    return Geometry(
        ctas=ctas,
        steps=steps,
        spread=causal,
        tensor=4 * tall * deep * width,
        request=2 * element * deep * width,
        apart=_TILE_CHAIN,
        exponentials=tall * deep,
    )


_PRODUCTS = ("matmul", "matmul_bias_relu", "matmul_fp8", "matmul_fp8_blocks", "matmul_int8", "rmsnorm_matmul")
_BY_KERNEL: Mapping[str, Callable[[Case, Work, int], Geometry]] = {
    **dict.fromkeys(_PRODUCTS, _product),
    **dict.fromkeys(("rmsnorm", "softmax", "layernorm", "vector_add"), _rows),
    **dict.fromkeys(("flash_attention", "flash_attention_causal"), _flash),
    "gemv": _gemv,
    "decode_attention": _decode,
    "mla_decode": _latent,
}
