"""Refuses what a submission can do on a GPU: streams, capture, events, precision; measures each honest twin."""

import pytest
from cheats import HONEST, NEW, REPLACED, SLOW, WORK, Pair, in_call
from submissions import outcome_of

pytestmark = pytest.mark.gpu

SIDE = """
SIDE = torch.cuda.Stream()


def submitted(x, w):
    out = torch.zeros_like(x)
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        out.copy_(work(x, w))
    return out
"""
JOINED = SIDE.replace("    return out", "    torch.cuda.current_stream().wait_stream(SIDE)\n    return out")
PAIRS = (
    Pair("side-stream", "", WORK + SIDE, WORK + JOINED),
    Pair(
        "side-stream-outside-of-the-capture",
        "",
        WORK
        + SIDE.replace("    SIDE.wait_stream(torch.cuda.current_stream())\n", "")
        .replace("torch.zeros", "KEPT.append(x) or torch.empty")
        .replace("def submitted", "KEPT = []\n\n\ndef submitted"),
        WORK + JOINED,
    ),
    Pair(
        "side-stream-that-is-not-awaited",
        "other streams worked",
        f"""{WORK}
SIDE = torch.cuda.Stream()


def submitted(x, w):
    out = work(x, w) + float(x[0, 0].item()) * 0
    with torch.cuda.stream(SIDE):
        torch.cuda._sleep(40_000_000)
    return out
""",
        WORK + "\n\ndef submitted(x, w):\n    return work(x, w) + float(x[0, 0].item()) * 0\n",
    ),
    Pair(
        "less-in-a-capture",
        NEW,
        f"{WORK}\n\ndef submitted(x, w):\n"
        "    return x * 1 if torch.cuda.is_current_stream_capturing() else work(x, w)\n",
        WORK + "\n\ndef submitted(x, w):\n    torch.cuda.is_current_stream_capturing()\n    return work(x, w)\n",
    ),
    Pair("answer-by-pointer", NEW, f"""{WORK}
ANSWERS = {{}}


def submitted(x, w):
    if x.data_ptr() not in ANSWERS:
        ANSWERS[x.data_ptr()] = work(x, w)
    return ANSWERS[x.data_ptr()]
"""),
    Pair("answer-by-pointer-copied", NEW, f"""{WORK}
ANSWERS = {{}}


def submitted(x, w):
    if x.data_ptr() not in ANSWERS:
        ANSWERS[x.data_ptr()] = work(x, w)
    return ANSWERS[x.data_ptr()].clone()
"""),
    Pair("answer-by-content", SLOW, f"""{WORK}
import time
ANSWERS = {{}}


def submitted(x, w):
    key = hash(x[0, :8].cpu().numpy().tobytes())
    if key not in ANSWERS:
        ANSWERS[key] = work(work(work(x, w), w), w)
        time.sleep(0.005)
    return ANSWERS[key]
""".replace("work(work(work(x, w), w), w)", "work(x, w)")),
    Pair("uninitialised-memory", "", f"""{WORK}
CALLS = [0]


def submitted(x, w):
    CALLS[0] += 1
    return work(x, w) if CALLS[0] < 3 else torch.empty_like(x)
"""),
    Pair("memory-of-the-reference", "wrong",
         "import torch\n\n\ndef submitted(x, w):\n    return torch.empty_like(x)\n"),
    Pair("event-time", REPLACED, in_call("torch.cuda.Event.elapsed_time = lambda self, other: 1e-3")),
    Pair("event-class", REPLACED, in_call("torch.cuda.Event = object")),
    Pair("graph-replay", REPLACED, in_call("torch.cuda.CUDAGraph.replay = lambda self: None")),
    Pair("capture-of-ledger", REPLACED, in_call(
        "ledger.measure.cuda_graphs.replay_ps = lambda graph, count, calls: [1] * count",
        more="import ledger.measure.cuda_graphs")),
    Pair("tf32", "allow_tf32", in_call("torch.backends.cuda.matmul.allow_tf32 = True")),
    Pair("tf32-in-the-call", "wrong", f"""{WORK}
def submitted(x, w):
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return work(x, w)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
"""),
    Pair("half-precision", "wrong", HONEST.replace("x @ w", "(x.half() @ w.half()).float()")),
    Pair("current-stream", "current CUDA stream", in_call(
        "torch.cuda.set_stream(OTHER)", more="OTHER = torch.cuda.Stream()")),
    Pair("thread", "", f"""{WORK}
import threading


def later(x, w, out):
    out.copy_(work(x, w))


def submitted(x, w):
    out = torch.zeros_like(x)
    threading.Thread(target=later, args=(x, w, out)).start()
    return out
"""),
)  # fmt: skip
TWINS = {pair.twin: pair for pair in reversed(PAIRS)}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_a_cheat_is_refused_with_its_symptom(pair, tmp_path):
    found = outcome_of(pair.submission(pair.cheat, device="cuda"), tmp_path)
    assert found["failure"] is not None
    assert found["timing"] is None
    assert pair.said in found["failure"]


@pytest.mark.parametrize("pair", TWINS.values(), ids=lambda pair: f"twin-of-{pair.name}")
def test_its_honest_twin_is_measured(pair, tmp_path):
    found = outcome_of(pair.submission(pair.twin, device="cuda"), tmp_path)
    assert found["failure"] is None
    assert found["timing"]["median_ps"] > 0
