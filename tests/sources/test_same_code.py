"""Tests how far two versions of a kernel's sources differ: not at all, in comments, in GPU code, in host code."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.errors import InputError
from ledger.sources.closure import Closure, Source
from ledger.sources.same_code import difference

TEXT = '''"""Say what it is."""
import triton

BLOCK = 4


@triton.jit
def kernel(x, n: int):
    """Copy."""
    y = x


def launch(x):
    """Launch it."""
    return kernel[(1,)](x, BLOCK)
'''


def closure(text: str, cuda: str = "__global__ void f() {}") -> Closure:
    files = (
        Source("kernels/one.cu", None, cuda.encode(), Path("one.cu")),
        Source("kernels/one.py", "kernels.one", text.encode(), Path("one.py")),
    )
    return Closure("kernels.one", files)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (("", ""), "none"),
        (('"""Say what it is."""', '"""Say more."""'), "comments"),
        (("BLOCK = 4", "BLOCK = 4  # columns\n"), "comments"),
        (('"""Launch it."""', '"""Start it."""'), "comments"),
        (("y = x", "y = x + 1"), "gpu-code"),
        (("n: int", "n"), "host-code"),  # what is specialised on
        (("BLOCK = 4", "BLOCK = 8"), "host-code"),
        (("(x, BLOCK)", "(x + 0, BLOCK)"), "host-code"),
    ],
)
def test_difference_of_a_change(change: tuple[str, str], found: str):
    assert difference(closure(TEXT), closure(TEXT.replace(*change))) == found


def test_a_cuda_source_is_gpu_code_and_a_new_file_is_not():
    assert difference(closure(TEXT), closure(TEXT, cuda="__global__ void f() { }")) == "gpu-code"
    more = closure(TEXT)
    other = Closure(more.entry, (*more.files, Source("kernels/two.py", "kernels.two", b"", Path("two.py"))))
    assert difference(more, other) == "host-code"


def test_what_is_no_python_is_named():
    with pytest.raises(InputError, match=r"kernels/one\.py: is not Python"):
        difference(closure(TEXT), closure("def ("))
