"""Forecasts a launch plus the slowest of its SMs, L2 and DRAM, term by term, from shape and configuration. Pure.

    launch       an empty node of a graph as the profile measured it; early launches hide a part
    ends         the first loads to arrive and the last stores to leave, once a dependent pass over memory
    waited       loads of a row's further blocks, which nothing hides
    split        adding up what several CTAs computed of one result: through memory (stream-K too), within a cluster, or
                 by a second launch
    SMs          waves x steps x the slowest of: tensor cores, bytes requested from L2, bytes through shared memory,
                 elements converted in registers, products of CUDA cores; and what these do not hide: exponentials,
                 the latency of products that wait for one another, and the first step of a pipeline
    L2           all requested bytes, those that CTAs beside each other request at once in part; DRAM: compulsory reads
                 and writes, and what a wave of tiles reads again

Of a callable that is a product the fastest tiles count, as a library would choose them; any other takes longer than its
compulsory work, by its kind (calls.py).

SMs, L2 and DRAM overlap, in the full waves and in the last; near equality they slow each other, which a norm of
exponent `overlap` models. The clock of the tensor cores falls with power: from its burst value for launches up to
`short_s` to its sustained one. Left out: bank conflicts, the number of stages, TLB misses, temperature.

Constants: analytic_constants.py. What a profile measured is taken from it; a profile without it gets the H200's share
of the datasheet, which is told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ledger.analysis.regime import ResourceLoads, decide
from ledger.forecasters.analytic_constants import CONSTANTS, Constants
from ledger.forecasters.answer import Answer, NoAnswer, Question, Term
from ledger.forecasters.calls import (
    LIBRARY_S,
    NORMING_S,
    SLOWER,
    SPLIT_S,
    UNALIGNED_S,
    Kind,
    Product,
    described,
    tiles_of,
)
from ledger.forecasters.device_rates import Rates, rates_of, tensor_rate
from ledger.forecasters.geometry import Geometry, geometry_of, library_geometry
from ledger.records import Regime, is_gpu
from ledger.roofline import memory_side, percent_of_roof

NAME = "analytic"
VERSION = "5"


@dataclass(frozen=True)
class Cost:
    """Hold the terms of a time, in seconds; those of the SMs each as if it alone limited them. l2_bytes: requested.

    kind: what its time is to be multiplied by, of a kernel whose tiles are not known.
    """

    launch: float
    ends: float
    waited: float
    split: float
    tensor: float
    request: float
    shared: float
    convert: float
    cuda: float
    exponentials: float
    chain: float
    l2: float
    dram: float
    waves: float
    whole_waves: bool
    clock_hz: float
    l2_bytes: float
    dram_bytes: float
    tensor_flops: float
    overlap: float
    geometry: Geometry
    kind: Kind | None = None

    @property
    def sm(self) -> float:
        """Return the time of the SMs."""
        return max(self.tensor, self.request, self.shared, self.convert, self.cuda) + self.exponentials + self.chain

    @property
    def body(self) -> float:
        """Return the time of SMs, L2 and DRAM in overlap."""
        turns = math.floor(self.waves)
        rest = self.waves - turns
        if not self.whole_waves or not turns or not rest or self.geometry.tail < 1.0:
            return self._overlap(self.sm, self.l2, self.dram)
        # The last wave moves less and computes as long as any.
        sm, l2, dram = self.sm / (turns + 1), self.l2 / self.waves, self.dram / self.waves
        return turns * self._overlap(sm, l2, dram) + self._overlap(sm, rest * l2, rest * dram)

    def _overlap(self, *parts: float) -> float:
        longest = max(parts)
        if not longest:
            return 0.0
        total = sum((part / longest) ** self.overlap for part in parts)
        return float(self.geometry.slower * longest * total ** (1 / self.overlap))

    @property
    def fixed(self) -> float:
        """Return what a launch takes beside that."""
        return self.launch + self.ends + self.waited + self.split

    @property
    def total(self) -> float:
        """Return the time of the launch."""
        return self.fixed + self.body


def cost(question: Question, k: Constants = CONSTANTS) -> Cost:
    """Return the terms of a question's time."""
    rates = rates_of(question, k)
    g = geometry_of(question.case, question.work, rates.sms)
    if g.known:
        return _cost(question, g, rates, k)
    # A variant that records have, and the kernel has not.
    if question.case.config.get("variant") == "library" and question.case.kernel == "rmsnorm_matmul":
        return _normed_library_cost(question, rates, k)
    call = described(question.case, question.work)
    if call.product is not None:
        return replace(_library_cost(question, call.product, rates, k), kind=call.kind)
    found = _cost(question, g, rates, k)
    more = call.kind.launches - 1
    steps = call.kind.step_us * 1e-6 * question.case.shape.get("T", 1)
    return replace(
        found,
        launch=found.launch * (1 + more),
        ends=found.ends * (1 + more / 2),
        chain=steps,
        dram=found.dram if question.work.bytes_written else question.work.bytes / math.sqrt(rates.read * rates.write),
        kind=call.kind,
    )


def _normed_library_cost(question: Question, rates: Rates, k: Constants) -> Cost:
    """Return the terms of a launch that normalises x, and of the library's product after it."""
    rows, columns, inner = (question.case.shape[key] for key in ("B", "O", "H"))
    found = _library_cost(question, Product(1, rows, columns, inner, (inner, columns)), rates, k)
    return replace(found, launch=found.launch + NORMING_S)


def _library_cost(question: Question, product: Product, rates: Rates, k: Constants) -> Cost:
    """Return the terms of a library's product: those of its fastest tiles, slower where rows are not aligned."""
    dtype = question.case.dtype
    written = question.work.bytes_written // (product.batch * product.m * product.n)
    slower = SLOWER.get(product.alignment) if dtype in ("fp16", "bf16") else None
    tried = (
        _by_library(_cost(question, library_geometry(product, dtype, written, *tiles), rates, k), slower)
        for tiles in tiles_of(product, rates.sms)
    )
    return min(tried, key=lambda one: one.total)


def _by_library(found: Cost, slower: tuple[float, float] | None) -> Cost:
    """Return a cost with what a library adds, splits included. slower: times that SMs and DRAM take."""
    split = found.geometry.split
    added = SPLIT_S[0] + SPLIT_S[1] * math.log2(split) if split > 1 else 0.0
    if slower is None:
        return replace(found, ends=found.ends + LIBRARY_S, split=added)
    slowed = {name: getattr(found, name) * slower[0] for name in ("tensor", "request", "shared", "l2")}
    return replace(found, ends=found.ends + UNALIGNED_S, split=added, dram=found.dram * slower[1], **slowed)


def _cost(question: Question, g: Geometry, rates: Rates, k: Constants) -> Cost:
    """Return the terms of a launch."""
    work = question.work
    full = (g.ctas + g.padding) / (g.at_once or rates.sms)
    least = max(full, (1 / g.steps if g.divided else 1.0) if g.known else 0.0)
    waves = least if g.spread else least + g.tail * (math.ceil(full) - least)
    turns = waves * g.steps
    sms, clock = rates.sms, rates.clock_hz
    flops, served = (each * g.ctas * g.steps for each in (g.tensor, g.served or g.request))
    rate = tensor_rate(work.flops, rates, k)
    # Tensor cores that wait for sums in between draw less power.
    tensor = max(g.tensor * sms / rate, g.tensor * sms / rates.burst + g.promoted / (k.promoted * clock))
    dram_bytes = work.bytes_read + _read_again(g, work.bytes_read, rates)
    left = _left_by_early(g, k)
    ends = k.ends_us * 1e-6 * g.phases * left
    if g.realigned:
        ends += rates.launch_s + k.ends_us * 1e-6 + 2 * g.realigned / math.sqrt(rates.read * rates.write)
    return Cost(
        launch=rates.launch_s * left,
        ends=ends,
        waited=k.waited_us * 1e-6 * g.waits,
        split=_split_s(g, rates, k),
        tensor=turns * tensor if "_tensor" in question.roof.path else 0.0,
        request=max(turns * g.request / (k.request * clock), _latency_s(g, turns, k)),
        shared=turns * g.exchanged / (k.shared * clock),
        convert=turns * g.converted / (k.convert * g.converters * clock),
        cuda=turns * 2 * g.multiplied * sms / (rates.burst * k.products) if g.multiplied else 0.0,
        exponentials=turns * g.exponentials / (k.exponentials * clock),
        chain=(turns * g.chained + max(waves - 1, 0.0) * g.apart) * k.chain / clock + _fill_s(g, rates, k),
        l2=served / rates.l2,
        dram=dram_bytes / rates.read + work.bytes_written / rates.write * (k.scattered if g.scattered else 1.0),
        waves=full,
        whole_waves=not g.spread,
        clock_hz=clock * rate / rates.burst if g.tensor else clock,
        l2_bytes=served + g.summed + work.bytes_written,
        dram_bytes=dram_bytes + work.bytes_written,
        tensor_flops=flops,
        overlap=k.overlap,
        geometry=g,
    )


def _left_by_early(g: Geometry, k: Constants) -> float:
    """Return the share of a launch and its ends that an early launch leaves."""
    return k.ahead if g.ahead else k.early if g.early else 1.0


def _latency_s(g: Geometry, turns: float, k: Constants) -> float:
    """Return how long loads that are under way together make steps wait, beyond the first of them, which ends count."""
    return k.latency_us * 1e-6 * max(turns / g.pending - 1, 0.0) if g.pending else 0.0


def _fill_s(g: Geometry, rates: Rates, k: Constants) -> float:
    """Return how long the first step of a pipeline passes each of its stages, one after the other."""
    if not g.pending:
        return 0.0
    clock = rates.clock_hz
    clocks = g.request / k.request + g.exchanged / k.shared + g.converted / (k.convert * g.converters)
    return k.fill * (clocks / clock + g.tensor * rates.sms / rates.burst)


def _split_s(g: Geometry, rates: Rates, k: Constants) -> float:
    """Return what CTAs that add up one result take beside their products."""
    if g.summed:
        return _left_by_early(g, k) * (rates.launch_s + k.ends_us * 1e-6) + g.summed / rates.l2
    if g.divided:
        return 1e-6 * (k.split_memory_us + k.share_us * (g.shares - 1)) + g.partial / (k.partial * rates.l2)
    return (k.split_cluster_us if g.together else k.split_memory_us) * 1e-6 if g.split > 1 else 0.0


def _read_again(g: Geometry, read: int, rates: Rates) -> float:
    """Return the bytes that waves read from DRAM again where L2 does not hold what they share.

    A wave of square blocks of tiles reads its rows and columns once; of several waves each reads its own.
    """
    waves = g.ctas / rates.sms
    if not g.tensor or waves <= 1 or read <= rates.l2_bytes:
        return 0.0
    # A block of n tiles shares rows and columns: it reads 1 / sqrt(n) of what its CTAs request.
    a_wave = rates.sms * g.steps * g.request / math.sqrt(rates.sms)
    return float(max(waves * a_wave - read, 0.0))


def forecast(question: Question) -> Answer | NoAnswer:
    """Return the forecast of a GPU's cell; of no other device."""
    if not is_gpu(question.hardware.target):
        return NoAnswer(NAME, VERSION, f"{question.hardware.name} is no GPU")
    return answer_of(question, cost(question), rates_of(question))


def expected_s(found: Cost) -> float:
    """Return the time that a cost gives, of a callable the median of its kind."""
    return found.total * (1.0 if found.kind is None else found.kind.median)


def regime_at(question: Question, found: Cost, rates: Rates, time_s: float) -> Regime | None:
    """Return the regime that rule regime/1 gives the loads which a cost implies in a time."""
    bandwidth = question.roof.bandwidth_bytes_per_s
    kind = found.kind
    # What makes such calls slower is traffic that their compulsory work does not count.
    moved = found.dram_bytes * (kind.median if kind is not None and kind.traffic else 1.0)
    loads = ResourceLoads(
        dram_milli=_milli(moved / (bandwidth * time_s)),
        # What passes DRAM passes L2, and loads it a little more.
        l2_milli=_milli(max(found.l2_bytes / rates.l2, CONSTANTS.l2_of_dram * moved / bandwidth) / time_s),
        smem_milli=_milli(CONSTANTS.shared_load * found.shared / time_s),
        arithmetic_milli=_milli(_arithmetic(question, found) / time_s),
    )
    regime, _, _ = decide(
        loads,
        call_ps=max(1, round(time_s * 1e12)),
        launch_ps=round(found.launch * 1e12),
        left_of_ridge=memory_side(question.work, question.roof),
    )
    return regime


def answer_of(question: Question, found: Cost, rates: Rates) -> Answer:
    """Return the answer that a cost gives, with its terms."""
    work, kind = question.work, found.kind
    time_s = expected_s(found)
    terms = (
        *(Term(name, getattr(found, name), "s") for name in ("launch", "ends", "waited", "split")),
        Term("SMs", found.sm, "s"),
        Term("L2", found.l2, "s"),
        Term("DRAM", found.dram, "s"),
        Term("overlap", found.body - max(found.sm, found.l2, found.dram), "s"),
        *(
            Term(f"SMs: {name}", getattr(found, name), "s")
            for name in ("tensor", "request", "shared", "convert", "cuda", "exponentials", "chain")
            if getattr(found, name)
        ),
        Term("waves", found.waves, "1"),
        Term("clock", found.clock_hz, "Hz"),
        Term("L2 requests", found.l2_bytes, "B"),
        Term("DRAM traffic", found.dram_bytes, "B"),
        *([Term(kind.name, kind.median, "1")] if kind else []),
    )
    low, high = interval(question, found)
    return Answer(
        forecaster=NAME,
        version=VERSION,
        regime=regime_at(question, found, rates, time_s),
        percent=percent_of_roof(work, question.roof, time_s),
        time_s=time_s,
        terms=terms,
        assumes=(*rates.assumed, *assumed(kind), "cold operands, launches of a graph back to back"),
        low=low,
        high=high,
    )


def assumed(kind: Kind | None) -> tuple[str, ...]:
    """Return what a forecast of a callable assumes, in words."""
    if kind is None:
        return ()
    known = "as calls of its kind on an H200" if kind.timed else "none of its kind was timed"
    return (f"compulsory work and the kind of the call alone ({kind.name}; {known})",)


def interval(question: Question, found: Cost, times: float = 1.0) -> tuple[float | None, float | None]:
    """Return the percents that 80% of calls of a kind reach, at so many times their cost; none of known tiles."""
    kind = found.kind
    if kind is None:
        return None, None
    low, high = (
        percent_of_roof(question.work, question.roof, found.total * times * one) for one in (kind.high, kind.low)
    )
    return low, high


def _arithmetic(question: Question, found: Cost) -> float:
    """Return the time of the arithmetic at the peak of the clock that the launch runs at."""
    if found.tensor_flops:
        return found.tensor * CONSTANTS.tensor / CONSTANTS.clock_of_tensor
    return question.work.flops / question.roof.peak_flop_per_s


def _milli(share: float) -> int:
    return round(1e5 * share)


def binding(found: Cost) -> str:
    """Return the name of the longest term: launch, ends, split, L2, DRAM, or that of the SMs."""
    of_sms = ("tensor", "request", "shared", "convert", "cuda")
    longest = max(of_sms, key=lambda name: float(getattr(found, name)))
    parts = {
        "launch and ends": found.fixed,
        f"SMs: {longest}": found.sm,
        "L2": found.l2,
        "DRAM": found.dram,
    }
    return max(parts, key=lambda name: parts[name])
