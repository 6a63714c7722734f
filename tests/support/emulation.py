"""Finds a compiler that runs CUDA C++ on a CPU, with the headers of tests/emulated."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest

EMULATED = Path(__file__).parents[1] / "emulated"
COMMAND = ("-std=c++20", "-O1", "-w", "-pthread")


@functools.cache
def compiler() -> str | None:
    """Return a compiler that has std::barrier and _Float16, or None."""
    found = shutil.which("g++")
    probe = [str(found), *COMMAND, f"-I{EMULATED}", "-x", "c++", "-fsyntax-only", "-"]
    text = '#include <barrier>\n#include "cuda.h"\nint main() {}\n'
    usable = found and subprocess.run(probe, input=text, capture_output=True, text=True, check=False).returncode == 0
    return found if usable else None


needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler with std::barrier and _Float16")
