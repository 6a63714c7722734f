"""Compiles ahead of time as `ledger inspect` does, and tests statements about the compiled code.

A statement about Triton holds for the versions named with it; a version that differs fails the test.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from covering import builds, one_in
from typer.testing import CliRunner

from ledger.cli.app import app
from ledger.device.local_profile import profile_of_architecture
from ledger.errors import InputError
from ledger.kernel_files import load_kernel
from ledger.measure.compilation import Launched, compile_ahead, launched_with
from ledger.measure.inspection import inspect
from ledger.record_files import load_hardware

if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
    pytest.skip("torch and triton are not both installed", allow_module_level=True)

# Shapes that Triton and Gluon compile, on sm_90 too.
LARGE = {"matmul": {"M": 4096, "N": 4096, "K": 4096}, "rmsnorm_matmul": {"B": 16, "H": 98304, "O": 16384}}
PROFILE = {"sm_75": "t4", "sm_80": "a100_sxm", "sm_89": "l4", "sm_90": "h200", "sm_100": "b200"}


@cache
def inspected(name: str, target: str, dtype: Any = "fp16", **changes: int | str):
    kernel = load_kernel(name, launch=True).kernel
    return inspect(kernel, load_hardware(PROFILE[target]), shape=LARGE[name], dtype=dtype, config=changes)


FAMILY = {"sm_80": "mma.sync", "sm_89": "mma.sync", "sm_90": "wgmma", "sm_100": "tcgen05"}


def product(*axes: Any, together: int) -> list[Any]:
    """Return parameters of every combination of the axes; see `builds`."""
    cases = list(itertools.product(*axes))
    return builds(cases, ["-".join(map(str, case)) for case in cases], together)


@pytest.mark.parametrize(("name", "target"), product(LARGE, FAMILY, together=1))
def test_inspect_names_the_instruction_of_each_architecture(name: str, target: str):
    found = inspected(name, target)
    assert (found.instructions.family, found.instructions.path) == (FAMILY[target], "fp16_tensor")
    assert found.agrees
    assert (found.instructions.spill_store_bytes, found.instructions.spill_load_bytes, found.stack_bytes) == (0, 0, 0)


@pytest.mark.parametrize("dtype", one_in(3, ["fp16", "bf16", "fp32"], str))
def test_a_kernel_that_only_adds_has_the_roof_of_memory_on_any_scalar_path(dtype: str):
    kernel = load_kernel("vector_add", launch=True).kernel
    found = inspect(kernel, load_hardware("h200"), shape={"N": 1 << 20}, dtype=dtype)
    assert found.instructions.family == "scalar add or multiply"
    assert not found.wrong_roof
    boastful = replace(kernel, path=lambda *_: "fp16_tensor")
    assert inspect(boastful, load_hardware("h200"), shape={"N": 1 << 20}, dtype=dtype).wrong_roof
    unnamed = profile_of_architecture(None, "sm_90")
    assert not inspect(kernel, unnamed, shape={"N": 1 << 20}, dtype=dtype).wrong_roof


@pytest.mark.parametrize(("name", "tma"), product(LARGE, (0, 1), together=1))
def test_block_k_of_16_on_sm_90_emits_wgmma(name: str, tma: int):
    # With triton 3.7.1: one k-step of wgmma is 16 two-byte elements, so 16 is enough.
    plain = {"variant": "generic", "cluster_m": 1, "x_stages": 0, "scaling_warpgroups": 0, "pdl": 0}
    keys = load_kernel(name).kernel.config(LARGE[name], "fp16", "sm_90")
    changes = {key: value for key, value in plain.items() if key in keys}
    found = inspected(name, "sm_90", block_k=16, tma=tma, **changes)
    assert found.instructions.family == "wgmma"
    assert all("k16.f32.f16.f16" in mnemonic for mnemonic in found.instructions.ptx)
    assert found.instructions.tma == bool(tma)


@pytest.mark.parametrize("name", list(LARGE))
def test_fp16_on_sm_75_emits_no_tensor_core_instruction(name: str):
    # With triton 3.7.1: a dot for sm_75 becomes scalar fp32 multiply-adds.
    found = inspected(name, "sm_75")
    assert (found.instructions.family, found.instructions.path) == ("scalar FMA", "fp32")
    assert not {"HMMA", "IMMA"} & set(found.instructions.sass)
    # A step of 32 of a tile of 16 x 64 is 256 a thread of 4 warps.
    assert found.instructions.sass["FFMA"] >= 256
    assert found.agrees


def test_loads_are_named_with_their_width():
    assert inspected("matmul", "sm_90").instructions.tma
    ampere = inspected("matmul", "sm_80").instructions
    assert [(load.kind, load.bytes) for load in ampere.loads] == [("cp.async", 16)]
    assert ampere.widest_load_bytes == 16
    turing = inspected("matmul", "sm_75").instructions
    assert {(load.kind, load.bytes) for load in turing.loads} == {("ld.global", 16)}


def test_without_the_launchers_hints_loads_are_narrow():
    kernel = load_kernel("matmul", launch=True).kernel
    shape = LARGE["matmul"]
    config = kernel.config(shape, "fp16", "sm_80")
    ahead = kernel.ahead(config, shape, "fp16", "sm_80")
    bare = compile_ahead(ahead, "sm_80", Launched(grid=(1,), multiples=frozenset(), ones=frozenset()))
    assert not re.search(r"cp\.async\.cg\.shared\.global[^;]*, 0x10", bare.asm["ptx"])


@pytest.mark.parametrize(("name", "shape", "target"), product(LARGE, ("large", "one"), ("sm_75", "sm_90"), together=2))
def test_what_is_inspected_is_what_a_launch_compiles(name: str, shape: str, target: str, monkeypatch: Any, tmp_path):
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class NoDevice:
        """Stand in for a driver: triton's own launch path then compiles, and launches nothing."""

        def get_current_device(self) -> str:
            return target

        def get_current_stream(self, device: str) -> int:
            return 0

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", int(target[3:]), 32)

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    size = LARGE[name] if shape == "large" else dict.fromkeys(LARGE[name], 1)
    kernel = load_kernel(name, launch=True).kernel
    config = kernel.config(size, "fp16", target)
    ahead = kernel.ahead(config, size, "fp16", target)
    if not hasattr(ahead, "function"):
        pytest.skip("CUDA C++ here: a launch compiles the source that ahead names")
    ours = compile_ahead(ahead, target, launched_with(kernel, ahead, config, shape=size, dtype="fp16"))

    function, kept = ahead.function, []
    before = driver._active if hasattr(driver, "_active") else None
    driver.set_active(NoDevice())
    try:
        real = type(function).run
        function.run = lambda *args, **options: kept.append(real(function, *args, **{**options, "warmup": True}))
        inputs = {
            s.name: torch.empty(s.dims, dtype=torch.float16, device="meta") for s in kernel.operation.inputs(size)
        }
        out = torch.empty(kernel.operation.output_dims(size), dtype=torch.float16, device="meta")
        kernel.implementations["triton"](inputs, out, config)()
    finally:
        vars(function).pop("run", None)
        driver._active = before
    (theirs,) = kept
    assert ours.asm["ptx"] == theirs.asm["ptx"]
    assert ours.asm["cubin"] == theirs.asm["cubin"]


def test_config_is_checked_before_anything_is_compiled():
    with pytest.raises(InputError, match="'block_q' is not a key of matmul"):
        inspected("matmul", "sm_90", block_q=1)
    with pytest.raises(InputError, match="wgmma computes 64 rows"):
        inspected("matmul", "sm_90", block_m=32)


def test_a_config_value_has_the_type_of_the_kernels_own():
    from dataclasses import replace

    with pytest.raises(InputError, match="--config: block_m is 'cuda'; expected an integer, as in block_m="):
        inspected("matmul", "sm_90", block_m="cuda")
    kernel = load_kernel("matmul", launch=True).kernel
    with_text = replace(kernel, config=lambda *cell: {**kernel.config(*cell), "variant": "generic"})
    with pytest.raises(InputError, match="--config: variant is 1; expected text, as in variant=generic"):
        inspect(with_text, load_hardware("h200"), shape=LARGE["matmul"], dtype="fp16", config={"variant": 1})


def test_a_chip_that_kernels_are_not_compiled_for_is_refused_by_name():
    kernel = load_kernel("matmul", launch=True).kernel
    other = load_hardware("mi300x").model_copy(update={"target": "gfx90a"})
    with pytest.raises(InputError, match="gfx90a: kernels are not compiled for it"):
        inspect(kernel, other, shape=LARGE["matmul"], dtype="fp16")


def test_a_launcher_that_needs_data_leaves_hints_assumed():
    from dataclasses import replace

    kernel = load_kernel("matmul", launch=True).kernel

    def needs_data(inputs: Any, out: Any, config: Any) -> Any:
        return inputs["a"].sum().item()

    blind = replace(kernel, implementations={"triton": needs_data})
    found = inspect(blind, load_hardware("t4"), shape=LARGE["matmul"], dtype="fp16")
    assert (found.hints, found.grid, found.waves) == ("assumed", None, None)


def test_command_prints_json_and_a_card(monkeypatch: Any):
    monkeypatch.setenv("COLUMNS", "80")
    command = ["inspect", "matmul", "--arch", "sm_90,sm_75", "--shape", "M=4096,N=4096,K=4096"]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["instruction"] for one in found] == ["wgmma", "scalar FMA"]
    assert found[0]["occupancy"]["limiter"] == "registers"
    card = CliRunner().invoke(app, command).stdout
    assert "fp16 tensor cores" in card and "fp32 cores" in card
    assert max(len(line.rstrip()) for line in card.splitlines()) <= 80


def test_command_warns_when_the_kernel_file_names_another_path(monkeypatch: Any):
    from dataclasses import replace

    import ledger.kernel_files

    real = load_kernel("matmul", launch=True)
    boastful = replace(real, kernel=replace(real.kernel, path=lambda *_: "fp16_tensor"))
    monkeypatch.setattr(ledger.kernel_files, "load_kernel", lambda *_, **__: boastful)
    done = CliRunner().invoke(app, ["inspect", "matmul", "--arch", "t4"])
    assert "the kernel file names fp16_tensor" in done.stderr.replace("\n", " ")
