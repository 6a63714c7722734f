"""Tests the names that an unknown one suggests, and where the package says that it comes from."""

from __future__ import annotations

from importlib.metadata import distribution
from typing import get_args

import pytest

from ledger.record_files import hardware_names
from ledger.records import Dtype, Regime
from ledger.suggestions import install_command, nearest, unknown

CHOICES = {"dtype": get_args(Dtype), "regime": get_args(Regime), "hardware": hardware_names()}


@pytest.mark.parametrize(
    ("what", "got", "meant"),
    [
        ("dtype", "float16", "fp16"), ("dtype", "half", "fp16"), ("dtype", "bfloat16", "bf16"),
        ("dtype", "float32", "fp32"), ("dtype", "fp8", "fp8_e4m3"), ("dtype", "FP16", "fp16"),
        ("regime", "memory", "hbm-bound"), ("regime", "memory_bound", "hbm-bound"),
        ("regime", "compute", "compute-bound"),
        ("regime", "latency", "latency-bound"), ("regime", "hmb-bound", "hbm-bound"),
        ("hardware", "h100", "h100_sxm"), ("hardware", "H200", "h200"), ("hardware", "a100", "a100_sxm"),
        ("hardware", "4090", "rtx_4090"), ("hardware", "rtx5090", "rtx_5090"),
    ],
)  # fmt: skip
def test_a_name_that_is_not_known_suggests_the_one_meant(what: str, got: str, meant: str):
    assert nearest(got, CHOICES[what])[0] == meant
    message = unknown(what, got, CHOICES[what])
    assert message.startswith(f"{what} {got!r} is not known (did you mean {meant}")
    assert all(choice in message for choice in CHOICES[what])


@pytest.mark.parametrize("got", ["", "xyzzy", "\x1b[31m", "a" * 10_000])
def test_a_name_that_is_like_none_suggests_none(got: str):
    assert "did you mean" not in unknown("dtype", got, CHOICES["dtype"])


def test_an_extra_is_installed_from_where_the_package_was():
    command = install_command("plot")
    assert command.startswith("pip install '") and command.endswith("[plot]'")
    if "file://" in (distribution("roofline-ledger").read_text("direct_url.json") or ""):
        assert "/" in command


def test_the_name_that_shares_most_comes_first():
    assert nearest("rmsnorm_matmul_fp8", ["rmsnorm", "rmsnorm_matmul"]) == ["rmsnorm_matmul", "rmsnorm"]
