"""Callables for a GPU, as text: the module ops of a repository, and the campaigns that forecast them."""

OPS = """
import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def swiglu(x, y):
    return F.silu(x) * y


def gather(table, ids):
    return table[ids], ids + 1


def scale_(x):
    x.mul_(2.0)


def three_steps(a, b):
    return (a @ b).relu().sum(dim=1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(1024, 2048, dtype=torch.float16)
        self.down = torch.nn.Linear(2048, 1024, dtype=torch.float16)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


@torch.compile(dynamic=False)
def fused(x, y):
    return F.silu(x) * y + 1


class Compiled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.compile(Net(), dynamic=False)

    def forward(self, x):
        return self.net(x)


@triton.jit
def _scaled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 3.0, mask=at < n)


def scaled(x):
    y = torch.empty_like(x)
    _scaled[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


def scaled_reference(x):
    return x * 3


def waits(x):
    return x / x.abs().max().item()


def synchronises(x):
    y = x * 2
    torch.cuda.synchronize()
    return y


_CALLS = [0]


@torch.compile(dynamic=False)
def _counted(x, number):
    return x + number * 0


def recompiles(x):
    _CALLS[0] += 1
    return _counted(x, _CALLS[0] // 15)


def after(x):
    return x + 1


def beside(x):
    # 40 ms on another stream, which the timed one does not wait for.
    other = torch.cuda.Stream()
    y = x + float(x[0].item()) * 0
    with torch.cuda.stream(other):
        torch.cuda._sleep(80_000_000)
    return y
"""

CAMPAIGNS = (
    """
campaign: gpu_callables
hardware: PROFILE
cells:
  - {kernel: 'ops:swiglu', args: 'x=fp16[B,8192] y=fp16[B,8192]', shape: {B: 2048}, regime: hbm-bound, pct: 85}
  - {kernel: 'ops:three_steps', args: 'a=fp16[M,2048] b=fp16[2048,M]', shape: {M: 2048},
     regime: compute-bound, pct: 40}
  - {kernel: 'ops:fused', args: 'x=fp16[B,4096] y=fp16[B,4096]', shape: {B: 4096}, regime: hbm-bound, pct: 85}
  - {kernel: 'ops:Net', args: 'x=fp16[B,1024]', shape: {B: 512}, pass: both, regime: latency-bound, pct: 20}
  - {kernel: 'ops:recompiles', args: 'x=fp32[N]', shape: {N: 4194304}, regime: hbm-bound, pct: 80}
""",
    """
campaign: gpu_callables
hardware: PROFILE
cells:
  - {kernel: 'ops:gather', args: 'table=fp16[V,4096] ids=i64[B]<4096', shape: {V: 4096, B: 16384},
     regime: hbm-bound, pct: 70}
  - {kernel: 'ops:scale_', args: 'x=fp32[N]', shape: {N: 16777216}, regime: hbm-bound, pct: 85}
  - {kernel: 'ops:Net', args: 'x=fp16[B,1024]', shape: {B: 512}, regime: latency-bound, pct: 20}
  - {kernel: 'ops:waits', args: 'x=fp32[N]', shape: {N: 4194304}, regime: latency-bound, pct: 20}
  - {kernel: 'ops:beside', args: 'x=fp32[N]', shape: {N: 4194304}, regime: hbm-bound, pct: 80}
""",
    """
campaign: gpu_callables
hardware: PROFILE
cells:
  - {kernel: 'ops:Net', args: 'x=fp16[B,1024]', shape: {B: 512}, pass: backward, regime: latency-bound, pct: 20}
  - {kernel: 'ops:scaled', args: 'x=fp32[N]', shape: {N: 16777216}, flops: 16777216, bytes: 134217728,
     reference: 'ops:scaled_reference', regime: hbm-bound, pct: 88}
  - {kernel: 'ops:synchronises', args: 'x=fp32[N]', shape: {N: 4194304}, regime: latency-bound, pct: 30}
  - {kernel: 'ops:after', args: 'x=bf16[N]', shape: {N: 16777216}, tolerance: 0.05, regime: hbm-bound, pct: 85}
""",
    """
campaign: gpu_callables
hardware: PROFILE
cells:
  - {kernel: 'ops:Compiled', args: 'x=fp16[B,1024]', shape: {B: 512}, regime: latency-bound, pct: 20}
  - {kernel: 'decode_step:DecodeStep', args: 'ids=i64[B]<8192 keys=bf16[2,B,2,S,64] values=bf16[2,B,2,S,64]',
     shape: {B: 8, S: 1024}, regime: latency-bound, pct: 10}
""",
)
"""Measured at the same time, each in a ledger of its own; the first one with counters."""
