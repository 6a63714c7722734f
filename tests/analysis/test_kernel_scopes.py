"""Puts scopes into sources and sums up traces in the form that Proton writes."""

import ast
import gzip
import json
from pathlib import Path

import pytest

from ledger.analysis.inside_trace import scopes_of
from ledger.analysis.kernel_scopes import MODULE, has_phases, instrumented, kinds_in, names_called, partitions
from ledger.errors import ParseError
from ledger.records import Work

ASSETS = Path(__file__).parents[1] / "assets" / "inside"
GLUON = '''def multiply_tiles(ring, full, acc, n):
    """Multiply."""
    total = acc * 2
    for i in range(n):
        mbarrier.wait(full.index(i), 0)
        acc = warpgroup_mma(ring.index(i), ring.index(i), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        if i > 2:
            tma.store_wait(0)
    tma.async_copy_shared_to_global(total, [0, 0], acc)
'''


def nothing(name):
    return frozenset()


def records(text):
    """Return the scopes of instrumented source in the order of their records: +name, -name."""
    calls = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call)]
    found = [one for one in calls if ast.unparse(one.func).startswith(f"{MODULE}.")]
    found.sort(key=lambda one: one.lineno)
    return [("+" if one.func.attr == "enter_scope" else "-") + one.args[0].value for one in found]


def test_phases_of_gluon_are_scopes_within_their_loop():
    text, scopes = instrumented(GLUON, first_line=11, open_loops=True, kinds_of=nothing)
    # The function is at line 11 of its file, so that its loop is at line 14.
    name = "multiply_tiles {} {}".format
    assert records(text) == [
        "+" + name("loop", 14), "+" + name("wait", 15), "-" + name("wait", 15), "+" + name("multiply", 16),
        "-" + name("multiply", 16), "+" + name("wait", 17), "-" + name("wait", 17), "+" + name("wait", 19),
        "-" + name("wait", 19), "-" + name("loop", 14), "+" + name("store", 20), "-" + name("store", 20),
    ]  # fmt: skip
    assert scopes[name("multiply", 16)] == "multiply" and scopes[name("loop", 14)] is None


def test_without_the_records_the_source_is_what_it_was():
    for open_loops in (False, True):
        text, _ = instrumented(GLUON, first_line=1, open_loops=open_loops, kinds_of=nothing)
        bare = "\n".join(line for line in text.splitlines() if MODULE not in line)
        assert ast.dump(ast.parse(bare)) == ast.dump(ast.parse(GLUON))


def test_a_loop_of_triton_is_one_phase_and_statements_of_one_kind_share_a_scope():
    source = (
        "def k(p, q, n):\n    a = tl.load(p)\n    b = tl.load(q)\n    for i in range(n):\n        a = tl.dot(a, b)\n"
        "    tl.store(p, a)\n    return\n"
    )
    text, scopes = instrumented(source, first_line=1, open_loops=False, kinds_of=nothing)
    assert records(text) == ["+k load 2", "-k load 2", "+k loop 4", "-k loop 4", "+k store 6", "-k store 6"]
    assert scopes == {"k load 2": "load", "k loop 4": None, "k store 6": "store"}


def test_functions_called_by_name_give_their_kinds_and_those_with_phases_are_left_open():
    known = {"fetch": frozenset({"load"}), "whole": frozenset({"load", "store"})}
    source = "def k(p):\n    x = fetch(p)\n    whole(x)\n"
    text, scopes = instrumented(
        source, first_line=1, open_loops=False, kinds_of=lambda name: known.get(name, frozenset())
    )
    assert list(scopes) == ["k load 2"] and "whole(x)" in text
    assert kinds_in(source, lambda name: known.get(name, frozenset())) == {"load", "store"}
    assert has_phases(known["whole"]) and not has_phases(known["fetch"])
    assert names_called(source) == {"fetch", "whole"}


def test_warps_of_a_specialised_kernel_are_found_and_the_call_is_no_scope():
    source = "def k(a, b):\n    gl.warp_specialize([(multiply, (a,)), (load, (b,))], [4], [24])\n"
    assert partitions(source) == ("multiply", "load")
    assert instrumented(source, first_line=1, open_loops=True, kinds_of=nothing)[1] == {}


def event(name, cta, warp, ts, dur):
    return {
        "name": name,
        "ph": "X",
        "pid": f"k Core{cta} CTA{cta}",
        "tid": f"warp {warp} (line 0)",
        "ts": ts,
        "dur": dur,
    }


KINDS = {
    "k load 2": "load",
    "k multiply 5": "multiply",
    "k multiply 7": "multiply",
    "k loop 4": None,
    "k store 9": "store",
}


def test_scopes_have_clocks_shares_and_the_work_of_their_kind():
    events = [
        event("k load 2", 0, 0, 10.0, 1.0), event("k multiply 5", 0, 0, 11.0, 2.0), event("k load 2", 0, 0, 13.0, 3.0),
        event("k multiply 5", 0, 0, 16.0, 4.0), event("k load 2", 1, 4, 0.0, 2.0),
        event("k multiply 7", 1, 4, 2.0, 2.0),
        {"name": "k load 2", "ph": "X", "pid": "host", "tid": "1", "ts": 0, "dur": 9}, {"ph": "M"},
    ]  # fmt: skip
    found = scopes_of({"traceEvents": events}, KINDS, Work(flops=8000, bytes_read=600, bytes_written=100), ctas=2)
    load, first, second = found
    assert (load.name, load.kind, load.count, load.ctas, load.warps) == ("k load 2", "load", 3, 2, 2)
    assert load.clocks == 2000  # the median of 1, 3 and 2 us at 1000 clocks a microsecond
    # 4 of 10 us in one warp, 2 of 4 in the other.
    assert load.share == pytest.approx((40 + 50) / 2) and load.flops is None and load.bytes == 300
    # Of two CTAs each does half of the products, in all its scopes that multiply.
    assert first.flops == second.flops == 4000 and first.bytes is None


@pytest.mark.parametrize("trace", [[], {}, {"traceEvents": []}, {"traceEvents": [event("other", 0, 0, 0, 1)]}])
def test_a_trace_without_the_scopes_is_refused(trace):
    with pytest.raises(ParseError, match=r"^trace: "):
        scopes_of(trace, KINDS, Work(flops=1, bytes_read=1, bytes_written=1), ctas=1)


def test_a_trace_of_an_h200_has_loads_and_products_in_different_warps():
    """CTAs 0 and 7 of 132 of flash_attention B=2 HQ=HKV=16 S=1024 D=128 fp16, as Proton of Triton 3.6.0 wrote them."""
    trace = json.loads(gzip.decompress((ASSETS / "flash_attention.json.gz").read_bytes()))
    names = {event["name"] for event in trace["traceEvents"]}
    words = {"load": "load", "wait": "wait", "multiply": "multiply", "store": "store", "loop": None}
    kinds = {name: words[name.split()[1]] for name in names}
    found = {
        one.name: one for one in scopes_of(trace, kinds, Work(flops=1320, bytes_read=132, bytes_written=132), ctas=132)
    }
    assert found["_load_tiles load 180"].warps == 1 and found["_attend_half multiply 283"].warps == 8
    assert found["_attend_half multiply 283"].flops == 10 and found["_load_tiles load 180"].bytes == 1
    assert all(one.ctas <= 2 and 0 < one.clocks < 20_000 for one in found.values())
