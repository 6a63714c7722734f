"""Makes a repository with one kernel and one callable, of which tests commit versions."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from measuring import this_cpu

from ledger.record_files import hardware_yaml

ROOT = Path(__file__).parents[2]
KERNEL = (ROOT / "tests" / "assets" / "slowed" / "product.py").read_text()
WHO = {f"GIT_{role}_{field}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
WRONG = ("torch.matmul(a, b, out=out)", "torch.matmul(a, b, out=out)[0] += 1")
OPS = """
import torch.nn.functional as F
import ledger


@ledger.kernel(args="x=fp32[B,512] y=fp32[B,512]", shape={"B": 64})
def swiglu(x, y):
    return F.silu(x) * y
"""


class Scratch:
    """Hold a repository with one kernel and one callable, whose versions are committed by `commit`."""

    def __init__(self, folder: Path) -> None:
        """Make the first commit."""
        self.folder = folder
        self.git("init", "-q", "-b", "main")
        (folder / "hardware").mkdir()
        (folder / "hardware" / "cpu.yaml").write_bytes(hardware_yaml(this_cpu()))
        self.commit("first", {"kernels/product.py": KERNEL, "mypkg/ops.py": OPS})

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.folder, env={**os.environ, **WHO}, check=True, capture_output=True)

    def commit(self, tag: str, files: dict[str, str | None]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", tag)
        self.git("tag", tag)

    def kernel(self, tag: str, *changes: tuple[str, str]) -> None:
        text = KERNEL
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.commit(tag, {"kernels/product.py": text})
