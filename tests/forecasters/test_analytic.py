"""Tests the analytic forecaster: its terms by hand, and how they move with shape, configuration and device."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from ledger.forecasters import analytic
from ledger.forecasters.analytic_constants import CONSTANTS, DECLARED
from ledger.forecasters.answer import Answer, NoAnswer, Question
from ledger.forecasters.calls import ROWS
from ledger.forecasters.device_rates import rates_of
from ledger.forecasters.geometry import geometry_of
from ledger.kernel_files import load_kernel
from ledger.kernels.common.gemm_residues import FIXED
from ledger.record_files import load_hardware
from ledger.records import CaseV2, Hardware
from ledger.workflow.question import make_question

H200 = load_hardware("h200")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def asked(kernel: str, dtype: Any = "fp16", hardware: Hardware = H200, **shape: int) -> Question:
    return make_question(load_kernel(kernel).kernel, hardware, shape=shape, dtype=dtype)


def with_config(question: Question, **config: int | str) -> Question:
    case = question.case
    fields = {name: getattr(case, name) for name in type(case).model_fields}
    changed = CaseV2(**{"arguments": None, **fields, "config": {**case.config, **config}})
    return Question(changed, question.work, question.roof, question.hardware)


def said(question: Question) -> Answer:
    answer = analytic.forecast(question)
    assert isinstance(answer, Answer), answer
    return answer


def test_the_geometry_of_a_product_by_hand() -> None:
    """M=512, N=4096, K=4096 in tiles of 128 x 128 with 64 of K: 4 · 32 CTAs, 64 steps, 2·128·128·64 operations each."""
    question = with_config(asked("matmul", M=512, N=4096, K=4096), block_m=128, block_n=128, cluster_m=2, cluster_n=1)
    g = geometry_of(question.case, question.work, 132)
    assert (g.ctas, g.steps, g.tensor) == (128, 64, 2 * 128 * 128 * 64)
    # Each row of A once a CTA; those of B are shared by the two CTAs of a cluster.
    assert g.request == 2 * 64 * (128 + 128 / 2)


@pytest.mark.parametrize(
    ("size", "times"), [(4096, 1.0), (4128, 1.1), (4112, 1.2), (4144, 1.2), (4104, 1.9), (4100, 1.0)]
)
def test_rows_that_start_within_lines_and_sectors_take_longer(size: int, times: float) -> None:
    """Pitches of 0, 64, 32, 96 and 16 bytes beyond lines of 128; rows of 8200 bytes are copied into aligned ones."""
    aligned = asked("matmul", M=300, N=4096, K=4096)
    tiles = {**dict(aligned.case.config), "block_m": 100, "variant": "cuda"}
    even, odd = (with_config(one, **tiles) for one in (aligned, asked("matmul", M=300, N=size, K=size)))
    requests = [geometry_of(one.case, one.work, 132).request for one in (even, odd)]
    assert requests[1] / requests[0] == pytest.approx(times)


def test_eight_bit_products_have_both_operands_along_the_inner_dimension() -> None:
    even = asked("matmul_int8", "int8", M=4096, N=4096, K=4096)
    wide, deep = (asked("matmul_int8", "int8", M=4096, N=n, K=k) for n, k in ((4112, 4096), (4096, 4112)))
    requests = [
        geometry_of(one.case, one.work, 132).request
        for one in (with_config(each, **dict(even.case.config)) for each in (even, wide, deep))
    ]
    assert requests[1] == requests[0] and requests[2] == pytest.approx(1.9 * requests[0])


def test_a_streaming_kernel_takes_its_bytes_and_a_launch() -> None:
    """2^28 fp32 additions: 2.147 GB read and 1.074 GB written, at the shares of 4.8 TB/s that the constants name."""
    question = asked("vector_add", "fp32", N=2**28)
    found = analytic.cost(question)
    by_hand = 2**31 / (4.8e12 * CONSTANTS.read) + 2**30 / (4.8e12 * CONSTANTS.write)
    assert found.dram == pytest.approx(by_hand)
    assert found.total == pytest.approx(by_hand + found.fixed, rel=0.02)
    assert said(question).regime == "hbm-bound" and analytic.binding(found) == "DRAM"


def test_a_second_wave_costs_a_whole_one() -> None:
    one, two = (
        with_config(asked("matmul", M=128 * tiles, N=4096, K=4096), block_m=128, block_n=128, stream_k=0, split_k=1)
        for tiles in (4, 5)
    )
    assert analytic.cost(two).tensor == pytest.approx(2 * analytic.cost(one).tensor, rel=0.02)


def test_dram_does_not_wait_for_the_last_wave() -> None:
    """Five tiles on four SMs: four move four fifths of the bytes, the last tile its fifth in its own time."""
    question = asked("matmul", M=512, N=4096, K=4096)
    found = replace(analytic.cost(question), waves=1.25, whole_waves=True, l2=0.0, request=0.0, shared=0.0, convert=0.0,
                    cuda=0.0, exponentials=0.0, chain=0.0, tensor=2e-6, dram=10e-6)  # fmt: skip
    assert found.body == pytest.approx((8e-6**3 + 1e-6**3) ** (1 / 3) + (2e-6**3 + 1e-6**3) ** (1 / 3), rel=0.01)


def test_sums_that_cuda_cores_add_keep_tensor_cores_waiting_but_cool() -> None:
    """Block-scaled products take longer in a burst; under power, where the plain ones slow down, hardly at all."""
    ratios = []
    for size in (1024, 16384):
        scaled, plain = (
            with_config(
                asked(kernel, "fp8_e4m3", M=size, N=size, K=size),
                block_m=128,
                block_n=128,
                block_k=128,
                cluster_m=1,
                cluster_n=1,
                variant="cuda",
                num_stages=4,
            )
            for kernel in ("matmul_fp8_blocks", "matmul_fp8")
        )
        ratios.append(analytic.cost(scaled).tensor / analytic.cost(plain).tensor)
    assert ratios[0] > ratios[1] > 1 and ratios[0] > 1.4


def test_a_pipeline_waits_for_dram_where_its_steps_are_short() -> None:
    few = with_config(asked("matmul", M=8, N=4096, K=4096), block_m=16, block_n=16, block_k=16, num_stages=2,
                      variant="generic")  # fmt: skip
    more = with_config(few, num_stages=4)
    # The loads of the first stages arrive at the start.
    first = CONSTANTS.latency_us * 1e-6
    assert analytic.cost(few).request + first == pytest.approx(2 * (analytic.cost(more).request + first))


def test_decoding_in_blocks_waits_for_each_block_with_as_many_ctas_beside_as_shared_memory_holds() -> None:
    """144 CTAs of 132 SMs, two beside each other: 120 blocks one after the other, about 0.9 µs each."""
    question = asked("decode_attention", "bf16", B=72, D=64, HKV=2, HQ=48, S=7680)
    pipelined = with_config(question, variant="software_pipelined", block_s=64, num_stages=2, splits=1)
    assert analytic.cost(pipelined, DECLARED).chain == pytest.approx(120 * 0.92e-6, rel=0.05)


def test_few_causal_tiles_take_as_long_as_the_longest() -> None:
    one, many = (
        geometry_of(question.case, question.work, 132)
        for question in (asked("flash_attention_causal", B=b, HQ=8, HKV=8, S=1024, D=128) for b in (1, 64))
    )
    assert one.steps > 1.5 * many.steps


def test_products_of_cuda_cores_need_warps_and_in_the_fused_kernel_shared_memory() -> None:
    tiles = {"block_m": 128, "block_n": 128, "block_k": 32, "variant": "generic", "num_stages": 4}
    four, eight = (with_config(asked("matmul", "fp32", M=512, N=4096, K=4096), **tiles, num_warps=n) for n in (4, 8))
    assert analytic.cost(four).cuda == pytest.approx(2**0.8 * analytic.cost(eight).cuda)
    fused = with_config(asked("rmsnorm_matmul", "fp32", B=256, H=4096, O=6144), block_b=128, block_o=128, block_k=32,
                        variant="generic", num_warps=8)  # fmt: skip
    found = analytic.cost(fused)
    assert 0.8 * found.cuda < found.shared < found.cuda


def test_the_clock_falls_with_power_between_two_sizes() -> None:
    small, large = (analytic.cost(asked("matmul", M=size, N=size, K=size)) for size in (2048, 16384))
    assert small.clock_hz > large.clock_hz
    assert large.clock_hz / small.clock_hz == pytest.approx(CONSTANTS.sustained / CONSTANTS.tensor)


def test_split_k_adds_its_reduction_and_an_early_launch_hides_a_part() -> None:
    question = asked("rmsnorm_matmul", B=8, H=4096, O=4096)
    whole, split = (analytic.cost(with_config(question, split_k=number)) for number in (1, 2))
    assert whole.split == 0 and split.split == pytest.approx(CONSTANTS.split_cluster_us * 1e-6)
    late, early = (analytic.cost(with_config(question, pdl=number)) for number in (0, 1))
    assert early.ends < late.ends


def test_a_second_launch_adds_the_sums_of_parts_and_tiles_of_a_part_share_what_l2_reads() -> None:
    """M=384, N=512 in 6 x 4 tiles of 64 x 128, K in 8 parts: 192 CTAs, each sum of four bytes written and read."""
    tiles = {"block_m": 64, "block_n": 128, "variant": "split_k", "split_k": 8, "pdl": 1}
    question = with_config(asked("matmul", M=384, N=512, K=20480), **tiles)
    found = analytic.cost(question)
    g, sums = found.geometry, 8 * 8 * 384 * 512
    assert (g.ctas, g.steps, g.request) == (192, 40, 2 * 64 * (64 + 128))
    served = 2 * 64 * (64 / 4**0.5 + 128 / 6**0.5)
    rates = rates_of(question, CONSTANTS)
    assert found.l2 == pytest.approx(192 * 40 * served / rates.l2)
    assert found.split == pytest.approx(found.launch + found.ends + sums / rates.l2)
    assert found.l2_bytes == pytest.approx(192 * 40 * served + sums + 2 * 384 * 512)


def test_ctas_beside_each_other_ask_l2_for_the_same_at_once() -> None:
    """4 x 32 tiles of 128 x 128 in clusters of two along M: two clusters share rows of B, 32 tiles rows of A."""
    tiles = {"block_m": 128, "block_n": 128, "block_k": 64, "cluster_m": 2, "cluster_n": 1, "variant": "cuda"}
    plain, eight = (
        with_config(asked(name, dtype, M=512, N=4096, K=4096), **tiles)
        for name, dtype in (("matmul", "fp16"), ("matmul_int8", "int8"))
    )
    found, g = analytic.cost(plain), geometry_of(eight.case, eight.work, 132)
    served = 2 * 64 * (128 / 32**0.25 + 64 / 2**0.25)
    assert found.geometry.served == pytest.approx(served) and g.served == g.request
    assert found.l2 == pytest.approx(128 * 64 * served / rates_of(plain, CONSTANTS).l2)


def test_products_of_drawn_shapes_take_about_what_was_measured() -> None:
    """200 draws of shapes as models have them, with the configurations of the rule of their day; no constant is
    fitted to them."""
    rows = json.loads((BENCHMARKS / "matmul-draw-h200.json").read_text(encoding="utf-8"))["rows"]
    made = [with_config(asked("matmul", row["dtype"], **row["shape"]), **row["config"]) for row in rows]
    times = [analytic.cost(question).total for question in made]
    for way, middle, most in (("boost", 0.07, 0.21), ("chain", 0.08, 0.22)):
        pairs = zip(times, rows, strict=True)
        errors = sorted(abs(math.log(1e6 * time_s / row["us"][way]["ours"])) for time_s, row in pairs)
        assert median(errors) < middle and errors[int(0.9 * len(errors))] < most


SPLIT_K = re.compile(r"(\d+)x(\d+)@split_k-1x1-w(\d+)-k(\d+)-n(\d+)")


def _log_error(row: dict[str, Any], label: str, us: float) -> float:
    """Return ln(forecast ÷ measured) of a benchmark's row with the configuration of a label, without its sign."""
    tile = SPLIT_K.fullmatch(label)
    assert tile is not None
    block_m, block_n, num_warps, split_k, num_stages = map(int, tile.groups())
    made = with_config(
        asked("matmul", row["dtype"], **row["shape"]), variant="split_k", block_m=block_m, block_n=block_n,
        num_warps=num_warps, split_k=split_k, num_stages=num_stages, pdl=1, **FIXED, swap_ab=0,
    )  # fmt: skip
    return abs(math.log(1e6 * analytic.cost(made).total / us))


def test_split_k_takes_about_what_was_measured() -> None:
    """The fastest of each of 154 products, and of 60 that were drawn later the one that the rule chose."""
    measured = json.loads((BENCHMARKS / "matmul-split-k-h200.json").read_text(encoding="utf-8"))
    fastest, drawn = [], []
    for row in measured["rows"]:
        us, label = min((us, label) for label, us in row["us"].items() if SPLIT_K.fullmatch(label))
        fastest.append(_log_error(row, label, us))
    for row in measured["draws"]:
        now = row["now"]
        if row["shape"]["M"] > 8 and SPLIT_K.fullmatch(now["config"]):
            drawn.append(_log_error(row, now["config"], now["boost"]))
    assert (len(fastest), len(drawn)) == (154, 60)
    for errors, middle, most in ((fastest, 0.06, 0.16), (drawn, 0.08, 0.13)):
        assert median(errors) < middle and sorted(errors)[int(0.9 * len(errors))] < most


def test_terms_add_up_and_every_one_is_shown() -> None:
    question = asked("mla_decode", "bf16", B=64, H=128, S=8192)
    answer, found = said(question), analytic.cost(question)
    by_name = {term.name: term.value for term in answer.terms}
    parts = [by_name[name] for name in ("launch", "ends", "split", "overlap")]
    assert sum(parts) + max(by_name[name] for name in ("SMs", "L2", "DRAM")) == pytest.approx(answer.time_s)
    assert by_name["SMs: tensor"] == found.tensor and by_name["waves"] == pytest.approx(128 / 132)


def test_a_profile_without_measurements_says_what_is_assumed() -> None:
    answer = said(asked("matmul", hardware=load_hardware("b200"), M=4096, N=4096, K=4096))
    assert any("H200's shares" in text for text in answer.assumes)
    assert said(asked("matmul", M=4096, N=4096, K=4096)).time_s > answer.time_s


def test_a_kernel_that_is_not_known_has_its_compulsory_work() -> None:
    question = asked("vector_add", "fp32", N=2**20)
    case = CaseV2(
        kernel="module:name", shape={"N": 2**20}, dtype="fp32", hardware="h200", implementation="cuda", config={},
        threads=None, arguments=(),
    )  # fmt: skip
    answer = said(Question(case, question.work, question.roof, question.hardware))
    assert any("compulsory work and the kind of the call alone (rows;" in text for text in answer.assumes)
    least = analytic.cost(Question(case, question.work, question.roof, question.hardware)).total
    assert answer.time_s == pytest.approx(ROWS.median * least)
    assert answer.low is not None and answer.high is not None
    assert (answer.low / answer.percent, answer.high / answer.percent) == pytest.approx(
        (ROWS.median / ROWS.high, ROWS.median / ROWS.low)
    )


def test_no_gpu_no_answer() -> None:
    from measuring import this_cpu

    cpu = this_cpu()
    question = asked("matmul", "fp32", cpu, M=64, N=64, K=64)
    assert isinstance(analytic.forecast(question), NoAnswer)


def test_fitted_constants_stay_near_what_was_declared() -> None:
    for name in CONSTANTS._fields:
        assert 0.5 < getattr(CONSTANTS, name) / getattr(DECLARED, name) < 2, name


def test_forecasts_of_an_h100_by_constants_of_an_h200() -> None:
    """96 shapes of models, drawn; every fourth, by the rule of 2026-11-24, which took torch.matmul for some: 5%."""
    rows = json.loads((BENCHMARKS / "model_shapes-h100.json").read_text(encoding="utf-8"))["rows"][::4]
    errors = []
    for row in rows:
        question = asked(row["kernel"], row["dtype"], load_hardware("h100_sxm"), **row["shape"])
        question = with_config(question, **row["config"])
        assert analytic.cost(question).geometry.known and analytic.cost(question).kind is None
        errors.append(abs(said(question).time_s * 1e6 / row["contexts_us"]["back-to-back"]["ours"] - 1))
    assert median(errors) < 0.06 and sorted(errors)[-3] < 0.25


def test_operands_that_tma_cannot_read_are_copied_ahead() -> None:
    aligned, rows, columns = (asked("matmul", M=2048, N=4096 + n, K=4096 + k) for n, k in ((0, 0), (0, 1), (1, 0)))
    known = [analytic.cost(one) for one in (aligned, rows, columns)]
    assert [one.geometry.realigned for one in known] == [0, 2 * 2048 * 4097, 2 * 4096 * 4097]
    assert known[0].ends < known[1].ends < known[2].ends


def test_rows_of_a_result_that_start_within_a_sector_are_written_slower() -> None:
    """1 GB is written; 12,600 columns of fp16 are 787.5 sectors of 32 bytes."""
    whole, part = (analytic.cost(asked("matmul", M=40_000, N=columns, K=64)) for columns in (12_608, 12_600))
    assert (whole.geometry.scattered, part.geometry.scattered) == (False, True)
    assert part.dram / whole.dram == pytest.approx(CONSTANTS.scattered, rel=0.03)


def test_a_tile_after_the_first_of_an_sm_waits_for_its_own_loads() -> None:
    one, many = (analytic.cost(asked("flash_attention", B=b, HQ=16, HKV=16, S=512, D=128)) for b in (1, 64))
    assert one.chain == 0 and one.waves < 1
    assert many.chain == pytest.approx((many.waves - 1) * 12 * CONSTANTS.chain / many.clock_hz, rel=0.25)


def test_a_row_that_is_read_in_blocks_waits_for_each() -> None:
    whole, read_in_blocks = (analytic.cost(asked("rmsnorm", M=1688, N=columns)) for columns in (1024, 1136))
    assert whole.waited == 0
    assert read_in_blocks.waited == pytest.approx(2 * CONSTANTS.waited_us * 1e-6)


def test_clusters_that_fill_no_wave_leave_multiprocessors_idle() -> None:
    """17 x 152 tiles in clusters of 2 x 2 are 2,736 CTAs, of which 120 run at once."""
    question = asked("matmul", "bf16", M=2152, N=29048, K=952)
    tiles = {"block_m": 128, "block_n": 192, "block_k": 64, "variant": "cuda", "num_stages": 4}
    clustered = analytic.cost(with_config(question, **tiles, cluster_m=2, cluster_n=2, programs=120))
    alone = analytic.cost(with_config(question, **tiles, cluster_m=1, cluster_n=1, programs=132))
    assert (clustered.waves, alone.waves) == (pytest.approx(2736 / 120), pytest.approx(2584 / 132))
    assert clustered.tensor == pytest.approx(23 / 20 * alone.tensor)


def test_stream_k_pays_for_the_sums_that_its_ctas_leave_each_other() -> None:
    question = asked("matmul_fp8_blocks", "fp8_e4m3", M=272, N=656, K=7680)
    tiles = {"block_m": 128, "block_n": 128, "block_k": 128, "variant": "cuda", "num_stages": 6, "programs": 132}
    whole, divided = (analytic.cost(with_config(question, **tiles, stream_k=one)) for one in (0, 1))
    assert divided.tensor < 0.15 * whole.tensor, "18 tiles on 132 multiprocessors"
    assert whole.split == 0
    assert divided.split > 5e-6
