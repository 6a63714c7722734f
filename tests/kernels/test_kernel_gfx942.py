"""Compiles the generic variants for AMD's gfx942 ahead of time. Nothing here ran on such a card."""

import json
import re

import pytest
from loaded_kernels import load_kernel

from ledger.analysis import amdgcn
from ledger.analysis.occupancy import occupancy
from ledger.errors import InputError, MachineError
from ledger.kernel_files import build_case
from ledger.record_files import load_hardware

pytest.importorskip("triton", reason="triton is not installed: nothing can be compiled")
pytest.importorskip("torch", reason="torch is not installed: launchers cannot be run")

PRODUCT = {"M": 4096, "N": 4096, "K": 4096}
RAGGED = {"M": 777, "N": 1001, "K": 515}
HEADS = {"B": 2, "HQ": 16, "HKV": 4, "S": 2048}
MFMA, FMA, SIMPLE = "MFMA", "scalar FMA", "scalar add or multiply"
CELLS = [
    ("vector_add", {"N": 2**20}, "fp32", SIMPLE, None),
    ("softmax", {"M": 4096, "N": 4096}, "bf16", FMA, None),
    ("rmsnorm", {"M": 4096, "N": 5001}, "fp16", FMA, None),
    ("layernorm", {"M": 4096, "N": 4096}, "fp32", FMA, None),
    ("gemv", {"N": 4096, "K": 4096}, "fp16", FMA, None),
    ("gemv", {"N": 15186, "K": 2179}, "fp16", FMA, None),
    ("matmul", PRODUCT, "fp16", MFMA, "v_mfma_f32_32x32x8_f16"),
    ("matmul", PRODUCT, "bf16", MFMA, "v_mfma_f32_32x32x8_bf16"),
    ("matmul", PRODUCT, "fp32", MFMA, "v_mfma_f32_32x32x2_f32"),
    ("matmul", RAGGED, "fp16", MFMA, "v_mfma_f32_32x32x8_f16"),
    ("matmul_bias_relu", PRODUCT, "fp16", MFMA, "v_mfma_f32_32x32x8_f16"),
    ("matmul_int8", PRODUCT, "int8", MFMA, "v_mfma_i32_32x32x16_i8"),
    ("rmsnorm_matmul", {"B": 8, "H": 4096, "O": 4096}, "fp16", MFMA, "v_mfma_f32_16x16x16_f16"),
    ("rmsnorm_matmul", {"B": 128, "H": 4096, "O": 4096}, "bf16", MFMA, "v_mfma_f32_32x32x8_bf16"),
    ("flash_attention", {**HEADS, "D": 128}, "fp16", MFMA, "v_mfma_f32_32x32x8_f16"),
    ("flash_attention_causal", {**HEADS, "D": 64}, "bf16", MFMA, "v_mfma_f32_32x32x8_bf16"),
    ("decode_attention", {**HEADS, "D": 128}, "fp16", MFMA, "v_mfma_f32_16x16x16_f16"),
]


def cell_id(cell):
    return "-".join([cell[0], *(f"{key}{size}" for key, size in cell[1].items()), cell[2]])


@pytest.mark.parametrize("cell", CELLS, ids=cell_id)
def test_a_generic_variant_compiles_without_vector_spills(cell):
    from ledger.measure.inspection import inspect

    name, shape, dtype, family, example = cell
    found = inspect(load_kernel(name, launch=True).kernel, load_hardware("mi300x"), shape=shape, dtype=dtype)
    assert found.instructions.family == family and not found.wrong_roof
    assert example is None or found.instructions.example == example
    assert found.amd is not None and found.amd.vector_spills == found.stack_bytes == 0
    assert 0 < found.registers <= 512 and 0 < found.amd.scalar_registers <= 106
    assert found.shared_bytes <= 64 * 1024 and found.occupancy.blocks >= 1
    assert found.instructions.loads
    if shape is PRODUCT:
        assert found.instructions.widest_load_bytes == 16


@pytest.mark.parametrize("name", ["mi300x", "mi325x"])
@pytest.mark.parametrize("cell", CELLS, ids=cell_id)
def test_a_launch_configuration_is_for_waves_of_64_threads(cell, name):
    kernel, hardware = load_kernel(cell[0]).kernel, load_hardware(name)
    config = build_case(kernel, hardware, shape=cell[1], dtype=cell[2]).config
    assert config.get("variant", "generic") == "generic" and not config.get("tma") and not config.get("pdl")
    # A workgroup has at most 1024 threads.
    assert 64 * int(config["num_warps"]) <= 1024


@pytest.mark.parametrize(("name", "shape", "dtype"), [cell[:3] for cell in CELLS[4:7]], ids=lambda value: str(value))
def test_occupancy_is_what_the_compiler_prints(name, shape, dtype):
    from ledger.measure.compilation import compile_triton

    kernel, hardware = load_kernel(name, launch=True).kernel, load_hardware("mi300x")
    config = kernel.config(shape, dtype, "gfx942")
    made = compile_triton(kernel.ahead(config, shape, dtype, "gfx942"), "gfx942", None)
    printed = re.search(r"^; Occupancy: (\d+)$", made.assembly, re.MULTILINE)
    fits = occupancy(hardware, registers=made.resources.registers, shared_bytes=0, warps=1)
    # The compiler counts waves a SIMD and knows nothing of the LDS, which is allotted at launch.
    assert fits.limits["registers"] == 4 * int(printed[1])


def test_what_gfx942_has_no_code_for_is_refused_with_the_reason():
    from ledger.measure.inspection import inspect

    mi300x = load_hardware("mi300x")
    with pytest.raises(InputError, match="no launch configuration for gfx942; expected one with fp8 instructions"):
        build_case(load_kernel("matmul_fp8").kernel, mi300x, shape=PRODUCT, dtype="fp8_e4m3")
    with pytest.raises(InputError, match="mla_decode: no launch configuration for gfx942"):
        build_case(load_kernel("mla_decode").kernel, mi300x, shape={"B": 1, "H": 128, "S": 8192}, dtype="bf16")
    matmul = load_kernel("matmul", launch=True).kernel
    for variant in ("cuda", "warp_specialised"):
        with pytest.raises(InputError, match="sm_90"):
            inspect(matmul, mi300x, shape=PRODUCT, dtype="fp16", config={"variant": variant})
    with pytest.raises(InputError, match=r"gfx950: kernels are not compiled for it; expected one of: .*gfx942"):
        inspect(matmul, mi300x.model_copy(update={"target": "gfx950"}), shape=PRODUCT, dtype="fp16")


def test_cuda_sources_are_refused_for_amd():
    from ledger.measure.compilation import compile_cuda

    with pytest.raises(InputError, match=r"gfx942: the variant is CUDA C\+\+, for NVIDIA's targets"):
        compile_cuda(None, "gfx942")


def test_inspect_prints_mfma_registers_and_lds(monkeypatch, tmp_path, capsys):
    from typer.testing import CliRunner

    from ledger.cli.app import app

    arguments = ["inspect", "matmul", "--arch", "gfx942", "--shape", "M=512,N=512,K=512", "--dtype", "bf16"]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    (found,) = json.loads(done.stdout)
    assert found["instruction"] == "MFMA" and found["path"] == found["named_path"] == "bf16_tensor"
    assert found["instructions"]["amdgcn"][found["example"]] > 0 and "ptx" not in found["instructions"]
    assert found["amd"]["accumulation_registers"] >= 0 and found["shared_bytes"] > 0
    text = CliRunner().invoke(app, arguments, env={"COLUMNS": "140"}).stdout
    assert "MFMA" in text and re.search(r"\d+ VGPR, \d+ AGPR, \d+ SGPR", text)


def test_assembly_is_read_by_its_opcodes():
    text = "\n".join(
        [
            "\tglobal_load_dwordx4 v[0:3], v[4:5], off",
            "\tbuffer_load_ushort v1, v2, s[0:3], 0 offen",
            "\tglobal_load_lds_dword v[0:1], off",
            "\tscratch_store_dwordx2 off, v[0:1], s32",
            "\tscratch_load_dword v0, off, s32",
            "\tv_mfma_f32_32x32x16_fp8_fp8 v[0:15], v[16:17], v[18:19], v[0:15]",
            "\tv_fma_f32 v0, v1, v2, v3",
        ]
    )
    found = amdgcn.read(text)
    assert (found.family, found.path) == ("MFMA", "fp8_tensor")
    assert {(one.kind, one.bytes) for one in found.loads} == {
        ("global_load", 16), ("buffer_load", 2), ("global_load_lds", 4)
    }  # fmt: skip
    assert (found.spill_store_bytes, found.spill_load_bytes) == (8, 4)
    for name, path in {
        "v_mfma_f32_16x16x16_f16": "fp16_tensor",
        "v_mfma_f32_32x32x8_bf16_1k": "bf16_tensor",
        "v_mfma_f32_16x16x4_4b_f32": "fp32",
        "v_mfma_f32_16x16x8_xf32": "tf32_tensor",
        "v_mfma_f64_16x16x4_f64": "fp64_tensor",
        "v_mfma_i32_16x16x32_i8": "int8_tensor",
        "v_smfmac_f32_32x32x16_f16": "fp16_tensor",
    }.items():
        assert amdgcn.read(f"\t{name} v[0:3], v[4:5], v[6:7], v[0:3]").path == path, name
    with pytest.raises(MachineError, match=r"names no \.vgpr_count"):
        amdgcn.resources(text)
