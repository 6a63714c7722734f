"""Submissions that look right or fast and are not, each with the honest one it imitates. The texts are modules."""

from __future__ import annotations

from dataclasses import dataclass

from submissions import STEPS, Submission

HONEST = """
import torch


def submitted(x, w):
    for _ in range(8):
        x = (x @ w) / 12
    return x
"""
WORK = HONEST.replace("def submitted", "def work")
COPY, REPEAT, NORMS = (
    ("problem:copied", "x=fp32[256,256]"),
    ("problem:repeated", "x=fp32[256,256]"),
    ("problem:norms", "x=bf16[64,4096]"),
)


@dataclass(frozen=True)
class Pair:
    """Hold a cheat and its honest twin. said: what the refusal says."""

    name: str
    said: str
    cheat: str
    twin: str = HONEST
    problem: tuple[str, str] = STEPS

    def submission(self, source: str, device: str = "cpu") -> Submission:
        """Return one of the two."""
        return Submission(source, *self.problem, device)


def in_call(line: str, *, more: str = "") -> str:
    """Return an honest submission that also executes a line at each call."""
    return f"{WORK}\n{more}\n\ndef submitted(x, w):\n    {line}\n    return work(x, w)\n"


def _at_import(line: str) -> str:
    return f"{HONEST}\n{line}\n"


def _kept(key: str, *, also: str = "") -> str:
    """Return a submission that keeps answers by a key of its inputs."""
    return f"""{WORK}
{also}
ANSWERS = {{}}


def submitted(x, w):
    key = {key}
    if key not in ANSWERS:
        ANSWERS[key] = work(x, w)
    return ANSWERS[key]
"""


WRONG = "output is wrong"
NEW = "wrong after new values were written"
SLOW = "a call on new values takes"
REPLACED = "was replaced"

ANSWERS = (
    Pair("answer-by-shape", NEW, _kept("x.shape")),
    Pair("answer-by-pointer", NEW, _kept("x.data_ptr()")),
    Pair("answer-by-version", NEW, _kept("(x.data_ptr(), x._version, w._version)")),
    Pair("answer-by-identity", NEW, _kept("id(x)")),
    Pair("answer-by-content", SLOW, _kept("hash((x.numpy().tobytes(), w.numpy().tobytes()))")),
    Pair("answer-by-fingerprint", SLOW, _kept("tuple(x[0, :8].tolist())")),
    Pair(
        "answer-in-a-file",
        NEW,
        f"""{WORK}
import pathlib, tempfile
FOLDER = pathlib.Path(tempfile.mkdtemp())


def submitted(x, w):
    file = FOLDER / str(x.data_ptr())
    if not file.exists():
        torch.save(work(x, w), file)
    return torch.load(file)
""",
    ),
    Pair(
        "only-the-first-calls",
        "result of a timed call differs",
        f"""{WORK}
CALLS = [0]


def submitted(x, w):
    CALLS[0] += 1
    return work(x, w) if CALLS[0] < 4 else torch.zeros_like(x)
""",
    ),
    Pair(
        "memory-of-the-last-answer",
        "",
        f"""{WORK}
CALLS = [0]


def submitted(x, w):
    CALLS[0] += 1
    return work(x, w) if CALLS[0] < 4 else torch.empty_like(x)
""",
    ),
    Pair(
        "memory-of-the-reference",
        WRONG,
        HONEST.replace(
            "    for _ in range(8):\n        x = (x @ w) / 12\n    return x", "    return torch.empty_like(x)"
        ),
    ),
    Pair(
        "answer-from-the-garbage-collector",
        "result of a timed call differs",
        f"""{WORK}
import gc


def submitted(x, w):
    for one in gc.get_objects():
        if type(one) is torch.Tensor and one.dtype == torch.float64 and one.shape == x.shape:
            return one.float()
    return work(x, w)
""",
    ),
    Pair(
        "constant-within-the-tolerance",
        "same to the bit for other inputs",
        """
import torch
KEPT = []


def submitted(x):
    if not KEPT:
        KEPT.append(torch.full_like(x[:, 0], x.norm(dim=-1).mean().item()))
    return KEPT[0].clone()
""",
        "def submitted(x):\n    return x.norm(dim=-1)\n",
        NORMS,
    ),
    Pair("zeros", WRONG, "import torch\n\n\ndef submitted(x, w):\n    return torch.zeros_like(x)\n"),
    Pair(
        "seen-by-its-shape",
        WRONG,
        "import torch\n\n\ndef submitted(x, w):\n    torch.manual_seed(x.shape[0])\n    return torch.randn_like(x)\n",
    ),
)

LATER = (
    Pair(
        "thread-that-ends-later",
        "",
        f"""{WORK}
import threading


def submitted(x, w):
    out = torch.empty_like(x)
    threading.Thread(target=lambda: out.copy_(work(x, w))).start()
    return out
""",
        f"""{WORK}
import threading


def submitted(x, w):
    out = torch.empty_like(x)
    thread = threading.Thread(target=lambda: out.copy_(work(x, w)))
    thread.start()
    thread.join()
    return out
""",
    ),
    Pair(
        "thread-after-the-first-calls",
        "",
        f"""{WORK}
import threading, time
CALLS = [0]


def later(x, w, out):
    time.sleep(0.002)
    out.copy_(work(x, w))


def submitted(x, w):
    CALLS[0] += 1
    if CALLS[0] < 3:
        return work(x, w)
    out = torch.empty_like(x)
    threading.Thread(target=later, args=(x, w, out)).start()
    return out
""",
    ),
    Pair(
        "pool-that-is-not-awaited",
        "",
        f"""{WORK}
from concurrent.futures import ThreadPoolExecutor
POOL = ThreadPoolExecutor(1)


def submitted(x, w):
    out = torch.zeros_like(x)
    POOL.submit(lambda: out.copy_(work(x, w)))
    return out
""",
        f"""{WORK}
from concurrent.futures import ThreadPoolExecutor
POOL = ThreadPoolExecutor(1)


def submitted(x, w):
    return POOL.submit(work, x, w).result()
""",
    ),
    Pair(
        "lazy-subclass",
        "is of type",
        f"""{WORK}
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        args = [work(*one.parts) if isinstance(one, Lazy) else one for one in args]
        return function(*args, **(kwargs or {{}}))


def submitted(x, w):
    out = torch.empty_like(x).as_subclass(Lazy)
    out.__dict__["parts"] = (x, w)
    return out
""",
        f"""{WORK}
class Own(torch.Tensor):
    pass


def submitted(x, w):
    return work(x.as_subclass(Own), w).as_subclass(torch.Tensor)
""",
    ),
    Pair(
        "lazy-wrapper",
        "is of type",
        f"""{WORK}
class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, x, w):
        made = torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype)
        made.parts = (x, w)
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        args = [work(*one.parts) if isinstance(one, cls) else one for one in args]
        return function(*args, **(kwargs or {{}}))


def submitted(x, w):
    return Wrapper(x, w)
""",
    ),
    Pair(
        "method-of-one-tensor",
        "has its own attribute",
        f"""{WORK}
def submitted(x, w):
    out = torch.empty_like(x)
    out.clone = lambda: work(x, w)
    out.detach = lambda: work(x, w)
    return out
""",
    ),
    Pair(
        "container-that-computes",
        WRONG,
        f"""{WORK}
class Later(tuple):
    reads = 0

    def __iter__(self):
        x, w = self[0], self[1]
        self.reads += 1
        yield torch.zeros_like(x) if self.reads < 2 else work(x, w)


def submitted(x, w):
    return Later((x, w))
""",
        f"{WORK}\n\ndef submitted(x, w):\n    return [work(x, w)]\n",
    ),
    Pair(
        "input-as-result",
        "is memory of an input",
        "def submitted(x):\n    return x.view(x.shape)\n",
        "def submitted(x):\n    return x * 1\n",
        COPY,
    ),
    Pair(
        "expanded-result",
        "fewer elements in memory",
        "def submitted(x):\n    return x.mean(0, keepdim=True).expand(x.shape)\n",
        "def submitted(x):\n    return x.mean(0, keepdim=True).expand(x.shape).contiguous()\n",
        REPEAT,
    ),
    Pair(
        "inputs-set-to-zero",
        WRONG,
        "def submitted(x, w):\n    x.zero_()\n    return x.clone()\n",
    ),
    Pair(
        "input-changed-later",
        "",
        f"""{WORK}
CALLS = [0]


def submitted(x, w):
    CALLS[0] += 1
    if CALLS[0] > 3:
        x.numpy().fill(0)
        return x.clone()
    return work(x, w)
""",
    ),
)

PATCHES = (
    Pair("clock-at-a-call", REPLACED, in_call("time.perf_counter_ns = lambda: 0", more="import time")),
    Pair("clock-at-import", REPLACED, _at_import("import time\ntime.monotonic = lambda: 0.0"),
         _at_import("import time\nSTARTED = time.monotonic()")),
    Pair("event-time", REPLACED, _at_import("torch.cuda.Event.elapsed_time = lambda self, other: 1e-3")),
    Pair("synchronize", REPLACED, _at_import("torch.cuda.synchronize = lambda *_: None")),
    Pair("method-of-tensors", REPLACED, in_call("torch.Tensor.__le__ = lambda one, other: one == one")),
    Pair("method-hidden-in-a-subclass", "", in_call("torch.Tensor.double = lambda one: one.new_zeros(1)")),
    Pair("allclose", REPLACED, _at_import("torch.allclose = torch.isclose = lambda *_, **__: True")),
    Pair("reference-function", WRONG, """
import sys
import torch


def submitted(x, w):
    for name, module in list(getattr(sys, "mod" + "ules").items()):
        if name.endswith("problem"):
            module.steps = lambda x, w: torch.zeros_like(x)
    return torch.zeros_like(x)
"""),
    Pair("comparison-of-ledger", REPLACED, in_call(
        "ledger.measure.result_check.compare_results = print", more="import ledger.measure.result_check")),
    Pair("code-of-ledger", REPLACED, in_call(
        "timer.CpuRounds._run.__code__ = fake.__code__",
        more="from ledger.measure import timer\n\n\ndef fake(self, calls, now=None):\n    return 1\n")),
    Pair("default-of-ledger", REPLACED, in_call(
        "timer.CpuRounds._run.__defaults__ = (lambda: 0,)", more="from ledger.measure import timer")),
    Pair("name-that-hides-a-builtin", "was added", in_call(
        "ledger.measure.result_check.bool = lambda value: True", more="import ledger.measure.result_check")),
    Pair("module-time", "sys.modules", in_call(
        "LOADED['time'] = type(sys)('time')", more="import sys\nLOADED = getattr(sys, 'mod' + 'ules')")),
    Pair("builtins", REPLACED, in_call("setattr(print.__self__, 'bool', lambda value: 1)")),
    Pair("guard-itself", REPLACED, in_call(
        "ledger.measure.fresh_values.check_timed_calls = print", more="import ledger.measure.fresh_values")),
)  # fmt: skip

SETTINGS = (
    Pair("gc-callback", "gc.callbacks", _at_import("import gc\ngc.callbacks.append(lambda *_: None)"),
         _at_import("import gc\ngc.collect()")),
    Pair("settrace", "gettrace", _at_import("import sys\nsys.settrace(lambda *_: None)")),
    Pair("setprofile", "getprofile", in_call("sys.setprofile(lambda *_: None)", more="import sys")),
    Pair("alarm", "SIGALRM", _at_import("import signal\nsignal.signal(signal.SIGALRM, lambda *_: None)")),
    Pair("tf32", "allow_tf32", _at_import("torch.backends.cuda.matmul.allow_tf32 = True"),
         _at_import("assert not torch.backends.cuda.matmul.allow_tf32")),
    Pair("matmul-precision", "allow_tf32", in_call("torch.set_float32_matmul_precision('medium')")),
    Pair("autocast", "autocast", _at_import("torch.autocast('cpu', dtype=torch.bfloat16).__enter__()"),
         f"{WORK}\n\ndef submitted(x, w):\n"
         "    with torch.autocast('cpu', enabled=False):\n        return work(x, w)\n"),
    Pair("default-dtype", "torch.", in_call("torch.set_default_dtype(torch.float16)")),
    Pair("more-threads", "number of torch's threads", in_call("torch.set_num_threads(2)")),
    Pair("function-mode", "function modes", _at_import(
        "class Mode(torch.overrides.TorchFunctionMode):\n"
        "    def __torch_function__(self, function, types, args=(), kwargs=None):\n"
        "        return function(*args, **(kwargs or {})) \n\n\nMode().__enter__()")),
    Pair("lower-precision", WRONG, HONEST.replace("x @ w", "x.bfloat16() @ w.bfloat16()").replace(
        "    return x", "    return x.float()")),
    Pair("compiles-again", "ecompil", f"""{WORK}
CALLS = [0]


@torch.compile(dynamic=False, backend="eager")
def counted(x, number):
    return x + number * 0


def submitted(x, w):
    CALLS[0] += 1
    return counted(work(x, w), CALLS[0] // 4)
""", f"""{WORK}
@torch.compile(dynamic=False, backend="eager")
def added(x):
    return x + 0


def submitted(x, w):
    return added(work(x, w))
"""),
)  # fmt: skip

UNSEALED = (
    "import sys\n\n\ndef submitted(x, w):\n    sys.modules.clear()\n    return x\n",
    "import builtins\n\n\ndef submitted(x, w):\n    builtins.bool = print\n    return x\n",
)
"""Refused before they are sealed."""
PAIRS = (*ANSWERS, *LATER, *PATCHES, *SETTINGS)
