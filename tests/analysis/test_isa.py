"""Reads small pieces of PTX and SASS as the compiler writes them."""

from __future__ import annotations

import pytest

from ledger.analysis.isa import LoadInstructions, read


@pytest.mark.parametrize(
    ("line", "family", "path"),
    [
        ("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {%f1}, %rd1;", "wgmma", "fp16_tensor"),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%f1};", "wgmma", "bf16_tensor"),
        ("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {%f1};", "wgmma", "tf32_tensor"),
        ("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%f1};", "wgmma", "fp8_tensor"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1};", "mma.sync", "bf16_tensor"),
        ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%r1};", "mma.sync", "int8_tensor"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd1};", "mma.sync", "fp64_tensor"),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1;", "tcgen05", "fp16_tensor"),
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", "scalar FMA", "fp32"),
        ("fma.rn.f16x2 %r1, %r2, %r3, %r4;", "scalar FMA", "fp16"),
        ("add.f32 %f1, %f2, %f3;", "scalar add or multiply", "fp32"),
        ("add.rn.f16x2 %r1, %r2, %r3;", "scalar add or multiply", "fp16"),
        ("add.s32 %r1, %r2, %r3;", "none", None),
    ],
)
def test_path_follows_the_multiplicands(line: str, family: str, path: str | None):
    found = read(f"\t{line}\n", "", "fp16")
    assert (found.family, found.path) == (family, path)


def test_a_matrix_instruction_decides_over_scalar_ones():
    ptx = "fma.rn.f32 %f1;\n" * 9 + "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1};\n"
    assert read(ptx, "", "fp16").path == "fp16_tensor"


def test_the_dtype_decides_what_kind_f16_leaves_open():
    assert read("tcgen05.mma.cta_group::1.kind::f16 [%r1];", "", "bf16").path == "bf16_tensor"


def test_loads_by_kind_and_width():
    ptx = (
        "ld.global.v4.b32 {%r1}, [%rd1];\nld.global.L1::evict_last.v2.b64 {%rd1}, [%rd2];\nld.global.b16 %h, [%rd];\n"
        "cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;\n"
        "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2}], [%r3];\n"
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1}], [%r2];\n"
    )
    found = read(ptx, "", "fp16")
    assert set(found.loads) == {
        LoadInstructions("bulk tensor (TMA)", None, 1),
        LoadInstructions("cp.async", 16, 1),
        LoadInstructions("ld.global", 16, 2),
        LoadInstructions("ld.global", 2, 1),
    }
    assert found.tma and found.widest_load_bytes == 16


def test_spills_are_local_stores_and_loads_by_width():
    sass = "".join(
        f"        /*{n:04x}*/                   {text} ;\n"
        for n, text in enumerate(
            ["STL.64 [R1], R2", "@P0 STL [R1+0x8], R4", "LDL.LU.128 R4, [R1]", "FFMA R0, R1, R2, R3"]
        )
    )
    found = read("fma.rn.f32 %f1;", sass, "fp32")
    assert (found.spill_store_bytes, found.spill_load_bytes) == (12, 16)
    assert found.sass == {"FFMA": 1, "LDL": 1, "STL": 2}
