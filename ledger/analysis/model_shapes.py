"""Expands the models of benchmarks/model_shapes.yaml to cells of rmsnorm_matmul, in two halves. Pure.

The file states the rules: which projections follow an RMSNorm, how their columns are split over GPUs, and which half a
model is of. A launch rule is fitted on the fit half and judged on the unseen half.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ledger.errors import InputError
from ledger.records import Dtype

SCHEMA = "ledger/model-shapes/1"
TIMES_SCHEMA = "ledger/model-shapes-times/1"
"""Times of the launch rule's choice beside baselines on unseen cells, by which the rule is judged."""

Half = Literal["fit", "unseen"]
Cell = tuple[dict[str, int], Dtype]
"""A shape of rmsnorm_matmul, with the keys B, H and O, and a dtype."""

_VOCABULARY_MULTIPLE = 64
_CONFIG_DTYPES: dict[str, Dtype] = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_KEYS = ("schema", "batches", "dtypes", "gpus", "models")


@dataclass(frozen=True, order=True)
class Projection:
    """Hold the matrix of one projection on one GPU: `inner` rows (H) and `columns` (O)."""

    model: str
    name: str
    gpus: int
    inner: int
    columns: int


def half_of(model: str) -> Half:
    """Return the half that a model is of, by the SHA-256 of its name."""
    return "unseen" if hashlib.sha256(model.encode()).digest()[-1] % 2 else "fit"


def projections(document: Mapping[str, Any], *, what: str = "model shapes") -> Iterator[Projection]:
    """Yield every projection of every model on every number of GPUs that divides it. Raises: InputError."""
    if not isinstance(document, dict) or tuple(document) != _KEYS or document["schema"] != SCHEMA:
        raise InputError(f"{what}: is no document of {SCHEMA}; expected the keys {', '.join(_KEYS)}")
    for model in document["models"]:
        for gpus in document["gpus"]:
            try:
                matrices = list(_matrices(model, gpus))
            except (KeyError, TypeError) as error:
                raise InputError(f"{what}: model {model!r} lacks {error}; expected the keys of its kind") from error
            for name, inner, columns in matrices:
                yield Projection(model["name"], name, gpus, inner, columns)


def _matrices(model: Mapping[str, Any], gpus: int) -> Iterator[tuple[str, int, int]]:
    """Yield name, H and O of a model's projections."""
    hidden = model["hidden_size"]
    yield from _attention(model, gpus)
    shared = model.get("n_shared_experts", 0) * model.get("moe_intermediate_size", 0)
    for width in (model.get("intermediate_size", 0), shared):
        if width and width % gpus == 0:
            yield "gate_up", hidden, 2 * width // gpus
    vocabulary = -(-model["vocab_size"] // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE
    yield "lm_head", hidden, vocabulary // gpus


def _attention(model: Mapping[str, Any], gpus: int) -> Iterator[tuple[str, int, int]]:
    hidden, query = model["hidden_size"], model["num_attention_heads"]
    if "kv_lora_rank" in model:
        rank, kv_rank, rope = model["q_lora_rank"], model["kv_lora_rank"], model["qk_rope_head_dim"]
        yield "q_kv_a", hidden, rank + kv_rank + rope
        if query % gpus == 0:
            yield "q_b", rank, query // gpus * (model["qk_nope_head_dim"] + rope)
            yield "kv_b", kv_rank, query // gpus * (model["qk_nope_head_dim"] + model["v_head_dim"])
        return
    key_value = model["num_key_value_heads"]
    # Fewer key-value heads than GPUs: each GPU gets a copy of one.
    even = key_value % gpus == 0 or gpus % key_value == 0
    if query % gpus == 0 and even:
        yield "qkv", hidden, model["head_dim"] * (query // gpus + 2 * max(1, key_value // gpus))


def cells(document: Mapping[str, Any], half: Half | None = None, *, what: str = "model shapes") -> tuple[Cell, ...]:
    """Return the distinct cells of a half, or of both, ordered by H, O, B and dtype. Raises: InputError.

    H and O that models of both halves have are of the fit half.
    """
    found = list(projections(document, what=what))
    of_fit = {(one.inner, one.columns) for one in found if half_of(one.model) == "fit"}
    of_all = {(one.inner, one.columns) for one in found}
    chosen = {None: of_all, "fit": of_fit, "unseen": of_all - of_fit}[half]
    return tuple(
        ({"B": rows, "H": inner, "O": columns}, dtype)
        for inner, columns in sorted(chosen)
        for rows in document["batches"]
        for dtype in document["dtypes"]
    )


def drawn(population: Iterable[Cell], count: int, *, seed: str = "") -> Sequence[Cell]:
    """Return the `count` cells with the least SHA-256 of the seed and the cell's name."""

    def digest(cell: Cell) -> bytes:
        shape, dtype = cell
        name = f"B={shape['B']},H={shape['H']},O={shape['O']},{dtype}"
        return hashlib.sha256(f"{seed}{name}".encode()).digest()

    return sorted(population, key=digest)[:count]


@dataclass(frozen=True)
class Product:
    """Hold one projection of a model as a kernel's sizes: `inner` rows of weights and `columns`."""

    name: str
    kernel: Literal["rmsnorm_matmul", "matmul"]
    inner: int
    columns: int

    def shape(self, batch: int) -> dict[str, int]:
        """Return the shape of the kernel for so many rows of activations."""
        if self.kernel == "rmsnorm_matmul":
            return {"B": batch, "H": self.inner, "O": self.columns}
        return {"M": batch, "N": self.columns, "K": self.inner}


def products_of_config(config: Any, gpus: int = 1, *, what: str = "config.json") -> tuple[Product, ...]:
    """Return the dense projections of a Hugging Face config.json on one of so many GPUs; routed experts are left out.

    Those that follow an RMSNorm are rmsnorm_matmul's; o_proj and down, whose rows are split, are matmul's.
    Raises: InputError.
    """
    model = _decoder(config)
    wanted = ("hidden_size", "num_attention_heads", "vocab_size")
    lacking = [key for key in wanted if not isinstance(model.get(key), int) or model[key] < 1]
    if lacking:
        key = lacking[0]
        wrong = f"{key} is {model[key]!r:.60}" if key in model else f"lacks {key}"
        raise InputError(f"{what}: {wrong}; expected the config.json of a decoder, with {', '.join(wanted)}")
    sizes = {key: value for key, value in model.items() if isinstance(value, int)}
    if sizes.get("num_local_experts", 1) > 1:
        # The width of an expert, as in Mixtral.
        sizes.pop("intermediate_size", None)
    heads = sizes["num_attention_heads"]
    sizes.setdefault("head_dim", sizes["hidden_size"] // heads)
    sizes.setdefault("num_key_value_heads", heads)
    try:
        found = [Product(name, "rmsnorm_matmul", inner, columns) for name, inner, columns in _matrices(sizes, gpus)]
    except (KeyError, ZeroDivisionError) as error:
        raise InputError(f"{what}: lacks {error}; expected the keys of its kind of attention") from error
    hidden, width = sizes["hidden_size"], sizes.get("intermediate_size", 0)
    value_width = sizes.get("v_head_dim", sizes["head_dim"])
    if heads % gpus == 0:
        found.append(Product("o_proj", "matmul", heads // gpus * value_width, hidden))
    if width and width % gpus == 0:
        found.append(Product("down", "matmul", width // gpus, hidden))
    return tuple(found)


def undivided(config: Any, gpus: int, *, what: str = "config.json") -> tuple[str, ...]:
    """Return the projections of a configuration that so many GPUs do not divide. Raises: InputError."""
    there = {one.name for one in products_of_config(config, gpus, what=what)}
    return tuple(dict.fromkeys(one.name for one in products_of_config(config, what=what) if one.name not in there))


def dtype_of_config(config: Any) -> Dtype:
    """Return the dtype that a configuration names, of those that the projections are computed in; else fp16."""
    model = _decoder(config)
    named = model.get("dtype") or model.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype")
    return _CONFIG_DTYPES.get(named, "fp16") if isinstance(named, str) else "fp16"


def _decoder(config: Any) -> Mapping[str, Any]:
    """Return the part of a configuration that describes the decoder of text; nothing where there is none."""
    model = config.get("text_config", config) if isinstance(config, dict) else {}
    return model if isinstance(model, dict) else {}
