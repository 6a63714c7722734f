"""Tests which cells benchmarks/model_shapes.yaml gives, against values worked by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ledger.analysis.model_shapes import cells, drawn, half_of, projections
from ledger.errors import InputError
from ledger.record_files import parse_yaml

FILE = Path(__file__).parents[2] / "benchmarks" / "model_shapes.yaml"
DOCUMENT = parse_yaml(FILE.read_bytes(), what=FILE.name)


def matrices(model: str, gpus: int) -> dict[str, tuple[int, int]]:
    return {
        one.name: (one.inner, one.columns) for one in projections(DOCUMENT) if (one.model, one.gpus) == (model, gpus)
    }


def document(*models: Mapping[str, Any]) -> dict[str, Any]:
    return {**DOCUMENT, "models": list(models)}


def toy(name: str, **changes: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 1000}
    return {"name": name, **sizes, **changes}


# Sizes from configuration files, the products worked by hand.


@pytest.mark.parametrize(
    ("model", "gpus", "expected"),
    [
        # 32 + 2 · 8 heads of 128; 2 · 14336.
        ("Llama-3.1-8B", 1, {"qkv": (4096, 6144), "gate_up": (4096, 28672), "lm_head": (4096, 128256)}),
        # 8 query heads and one key-value head of 8 on each of 8 GPUs: (8 + 2) · 128.
        ("Llama-3.1-70B", 8, {"qkv": (8192, 1280), "gate_up": (8192, 7168), "lm_head": (8192, 16032)}),
        # 2 key-value heads on 8 GPUs: each holds a copy of one, (4 + 2) · 128.
        ("glm-4-9b", 8, {"qkv": (4096, 768), "gate_up": (4096, 3424), "lm_head": (4096, 18944)}),
        # 9 heads do not divide by 2: no qkv. The vocabulary 49155 is filled up to 49216.
        ("SmolLM2-135M", 2, {"gate_up": (576, 1536), "lm_head": (576, 24576)}),
        ("granite-3.1-8b", 8, {"qkv": (4096, 768), "gate_up": (4096, 3200), "lm_head": (4096, 6152)}),
        # Routed experts are left out.
        ("Mixtral-8x7B-v0.1", 4, {"qkv": (4096, 1536), "lm_head": (4096, 8000)}),
    ],
)
def test_projections_are_as_worked_by_hand(model: str, gpus: int, expected: dict[str, tuple[int, int]]) -> None:
    assert matrices(model, gpus) == expected


def test_projections_of_mla_split_the_heads_and_not_the_ranks() -> None:
    found = {
        (one.name, one.gpus, one.inner, one.columns) for one in projections(DOCUMENT) if one.model == "DeepSeek-V3"
    }
    # 1536 + 512 + 64; 128 heads of 128 + 64, and of 128 + 128; the dense and the shared feed-forward network.
    assert {("q_kv_a", 1, 7168, 2112), ("q_kv_a", 8, 7168, 2112)} <= found
    assert {("q_b", 1, 1536, 24576), ("q_b", 8, 1536, 3072), ("kv_b", 4, 512, 8192)} <= found
    assert {("gate_up", 1, 7168, 36864), ("gate_up", 1, 7168, 4096), ("gate_up", 8, 7168, 512)} <= found


def test_cells_are_many_distinct_and_of_known_models() -> None:
    found = cells(DOCUMENT)
    names = [str(one) for one in found]
    assert len(DOCUMENT["models"]) >= 15
    assert len(found) >= 600
    assert len(set(names)) == len(names)
    assert all(shape["O"] % 8 == 0 and shape["H"] % 8 == 0 for shape, _ in found)
    assert {shape["B"] for shape, _ in found} >= {1, 512}
    assert {dtype for _, dtype in found} == {"fp16", "bf16"}


def test_halves_divide_all_cells_and_share_no_matrix() -> None:
    fit, unseen = ({(s["H"], s["O"]) for s, _ in cells(DOCUMENT, half)} for half in ("fit", "unseen"))
    assert not fit & unseen
    assert len(cells(DOCUMENT, "fit")) + len(cells(DOCUMENT, "unseen")) == len(cells(DOCUMENT))
    assert min(len(cells(DOCUMENT, half)) for half in ("fit", "unseen")) >= 600


def test_a_matrix_of_both_halves_is_of_the_fit_half() -> None:
    # SHA-256: a ends in …bb, which is odd; c in …c6, which is even.
    assert (half_of("a"), half_of("c")) == ("unseen", "fit")
    both = document(toy("a", intermediate_size=256), toy("c"))
    fit, unseen = ({(s["H"], s["O"]) for s, _ in cells(both, half)} for half in ("fit", "unseen"))
    assert (512, 1536) in fit
    # Only a has a gate_up projection: 512, 256, 128 and 64 columns.
    assert unseen == {(512, 512), (512, 256), (512, 128), (512, 64)} - fit


def test_a_draw_does_not_depend_on_the_order_and_a_larger_one_begins_with_a_smaller() -> None:
    found = cells(DOCUMENT, "unseen")
    ten = drawn(found, 10)
    assert drawn(reversed(found), 10) == ten
    assert drawn(found, 96)[:10] == ten
    assert drawn(found, 10, seed="again") != ten
    assert len({shape["B"] for shape, _ in drawn(found, 96)}) == 12


@pytest.mark.parametrize(
    "broken",
    [
        [],
        {**DOCUMENT, "schema": "ledger/model-shapes/2"},
        document({"name": "a", "hidden_size": 512}),
        document(toy("a", vocab_size=None)),
    ],
)
def test_what_is_no_document_of_model_shapes_is_refused(broken: Any) -> None:
    with pytest.raises(InputError, match="expected"):
        cells(broken)
