"""Tests grids of shapes and the projections of a model's configuration file, against values worked by hand."""

from __future__ import annotations

import pytest

from ledger.analysis.model_shapes import dtype_of_config, products_of_config, undivided
from ledger.analysis.shape_grid import MAX_GRID_CELLS, parse_grid
from ledger.errors import InputError

LLAMA = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def test_a_grid_expands_the_last_key_fastest_and_copies_named_sizes() -> None:
    assert parse_grid("B=1,8 H=2048,4096 O=H") == (
        {"B": 1, "H": 2048, "O": 2048},
        {"B": 1, "H": 4096, "O": 4096},
        {"B": 8, "H": 2048, "O": 2048},
        {"B": 8, "H": 4096, "O": 4096},
    )


@pytest.mark.parametrize("text", ["", "B", "B=", "B=0", "B=1 B=2", "B=x", "O=H", "B=1,,2", "B=1;2"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--grid"):
        parse_grid(text)


def test_a_refused_batch_names_its_option() -> None:
    with pytest.raises(InputError, match="--batch: B=x"):
        parse_grid("B=x", what="--batch")


def test_a_grid_is_bounded() -> None:
    sizes = ",".join(str(size) for size in range(1, 51))
    with pytest.raises(InputError, match=f"2500 cells; expected at most {MAX_GRID_CELLS}"):
        parse_grid(f"B={sizes} H={sizes}")


def test_the_projections_of_a_configuration_by_hand() -> None:
    """Llama 3.1 8B: 32 + 2 · 8 heads of 128; 2 · 14336; 128256 columns; o_proj and down are plain products."""
    found = {one.name: (one.kernel, one.inner, one.columns) for one in products_of_config(LLAMA)}
    assert found == {
        "qkv": ("rmsnorm_matmul", 4096, 6144),
        "gate_up": ("rmsnorm_matmul", 4096, 28672),
        "lm_head": ("rmsnorm_matmul", 4096, 128256),
        "o_proj": ("matmul", 4096, 4096),
        "down": ("matmul", 14336, 4096),
    }
    two = {one.name: (one.inner, one.columns) for one in products_of_config(LLAMA, 2)}
    assert two["qkv"] == (4096, 3072) and two["down"] == (7168, 4096) and two["o_proj"] == (2048, 4096)
    shapes = {one.name: one.shape(8) for one in products_of_config(LLAMA)}
    assert shapes["qkv"] == {"B": 8, "H": 4096, "O": 6144}
    assert shapes["down"] == {"M": 8, "N": 4096, "K": 14336}


def test_projections_that_the_gpus_do_not_divide_are_named() -> None:
    """3 divides neither 32 heads nor 14336 columns."""
    assert undivided(LLAMA, 2) == ()
    assert undivided(LLAMA, 3) == ("qkv", "gate_up", "o_proj", "down")


def test_the_width_of_routed_experts_gives_no_dense_projection() -> None:
    """Mixtral's intermediate_size is that of one of its 8 experts."""
    assert {one.name for one in products_of_config({**LLAMA, "num_local_experts": 8})} == {"qkv", "lm_head", "o_proj"}


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (LLAMA, "fp16"),
        ({**LLAMA, "torch_dtype": "bfloat16"}, "bf16"),
        ({**LLAMA, "dtype": "float32"}, "fp32"),
        ({"text_config": LLAMA, "torch_dtype": "bfloat16"}, "bf16"),
        ({**LLAMA, "torch_dtype": ["bfloat16"]}, "fp16"),
    ],
)
def test_the_dtype_of_a_configuration_is_the_one_it_names(config: dict[str, object], dtype: str) -> None:
    assert dtype_of_config(config) == dtype


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ([], "lacks hidden_size"),
        ({}, "lacks hidden_size"),
        ({"text_config": [1]}, "lacks hidden_size"),
        ({**LLAMA, "hidden_size": "4096"}, "hidden_size is '4096'"),
        ({**LLAMA, "kv_lora_rank": 512}, "lacks 'q_lora_rank'"),
    ],
    ids=["list", "empty", "nested", "text", "mla"],
)
def test_another_file_is_refused(config: object, words: str) -> None:
    with pytest.raises(InputError, match=f"config.json: {words}"):
        products_of_config(config)
