"""Tiny problems of one's own in the form of benchmarks, and writers of folders of them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

REFERENCE = """
import torch


def run(x, w, eps):
    mean = x.float().pow(2).mean(-1, keepdim=True)
    return (x * torch.rsqrt(mean + eps) * w).to(x.dtype)
"""

SOLUTION = """
import torch


def run(x, w, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w
"""

WRITES = """
def norm(x, w, eps, out):
    out.copy_(x * ((x * x).mean(-1, keepdim=True) + eps).rsqrt() * w)
"""

GATHER = """
def make(sizes, device):
    import torch

    return {"ids": torch.arange(sizes["n"], device=device) % sizes["rows"], "table": torch.randn(sizes["rows"], 4)}


def run(table, ids):
    return table[ids.long()]
"""

MODEL = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, scale):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = scale

    def forward(self, x, mask):
        return self.linear(x) * self.scale * mask


batch_size = 8
features = 2 * 16
scale = 0.5


def get_inputs():
    x = torch.rand(batch_size, features)
    return [x, torch.randint(0, 2, (batch_size, features)).bool()]


def get_init_inputs():
    return [features, scale]
"""


def definition(**changes: Any) -> dict[str, Any]:
    """Return the definition of a row-wise norm, with a field that no schema has."""
    return {
        "name": "norm_h64",
        "op_type": "norm",
        "axes": {"rows": {"type": "var"}, "hidden": {"type": "const", "value": 64}},
        "inputs": {
            "x": {"shape": ["rows", "hidden"], "dtype": "float32"},
            "w": {"shape": ["hidden"], "dtype": "float32"},
            "eps": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["rows", "hidden"], "dtype": "float32"}},
        "reference": REFERENCE,
        "unknown": {"kept": [1, 1.0, 1e-7, None, "é"]},
        **changes,
    }


def solution(name: str = "fused", **changes: Any) -> dict[str, Any]:
    """Return a solution of it in Python that returns its output."""
    spec = {
        "language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run",
        "destination_passing_style": False, "dependencies": [],
    }  # fmt: skip
    made = {"name": name, "definition": "norm_h64", "author": "a", "spec": spec}
    return {**made, "sources": [{"path": "main.py", "content": SOLUTION}], "extra": True, **changes}


def writing_solution() -> dict[str, Any]:
    """Return a solution that is given its output."""
    one = solution("writes", sources=[{"path": "src/kernel.py", "content": WRITES}])
    return {**one, "spec": {**one["spec"], "entry_point": "src/kernel.py::norm", "destination_passing_style": True}}


def workload(rows: int = 8, uuid: str = "w0", **changes: Any) -> dict[str, Any]:
    """Return a line of workloads."""
    inputs = {"x": {"type": "random"}, "w": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-05}}
    inner = {"axes": {"rows": rows}, "inputs": inputs, "uuid": uuid, **changes}
    return {"definition": "norm_h64", "solution": None, "workload": inner, "evaluation": None}


def write_set(
    folder: Path, definitions: list[Any], solutions: list[Any], traces: list[Any], *, layout: str = "flashinfer-trace"
) -> Path:
    """Write a folder of problems in one of the two layouts, and return it."""
    if layout == "one folder":
        for one in definitions:
            _write(folder / one["name"] / "definition.json", json.dumps(one))
            for item in solutions:
                _write(folder / one["name"] / f"solution_{item['name']}.json", json.dumps(item))
            inner = [json.dumps(line["workload"]) for line in traces]
            _write(folder / one["name"] / "workload.jsonl", "\n".join(inner) + "\n")
        return folder
    for one in definitions:
        _write(folder / "definitions" / one["op_type"] / f"{one['name']}.json", json.dumps(one, indent=2))
    for item in solutions:
        _write(folder / "solutions" / f"{item['name']}.json", json.dumps(item))
    if traces:
        _write(folder / "workloads" / "all.jsonl", "\n".join(json.dumps(line) for line in traces) + "\n")
    return folder


def write_safetensors(path: Path, key: str, dtype: str, dims: list[int], data: bytes) -> None:
    """Write a safetensors file of one tensor."""
    header = json.dumps({key: {"dtype": dtype, "shape": dims, "data_offsets": [0, len(data)]}}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
