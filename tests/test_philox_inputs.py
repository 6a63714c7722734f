"""Tests the generator against published vectors and against a second implementation written from docs/format.md."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

from ledger.operations import OPERATIONS, fp8_scale, int8_scale, weight_exponent
from ledger.philox_inputs import (
    derive_key,
    element_integers,
    integers_of_bytes,
    integers_of_words,
    philox,
    sample_positions,
)

SEAL = hashlib.sha256(b"a seal").hexdigest()
ANCHOR = hashlib.sha256(b"an anchor").hexdigest()


def scalar_philox(counter: list[int], key: list[int]) -> list[int]:
    """Follow Salmon et al., section 3.3, word by word."""
    c, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(c[0] * 0xD2511F53, 1 << 32)
        high1, low1 = divmod(c[2] * 0xCD9E8D57, 1 << 32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) % (1 << 32), (k[1] + 0xBB67AE85) % (1 << 32)]
    return c


# Random123, kat_vectors: "philox4x32 10". The last line's counter and key are digits of pi.
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN, ids=["zeros", "ones", "pi"])
def test_philox_known_answers(counter, key, words):
    swapped = (counter[0], counter[1], counter[2], counter[3])
    assert list(philox(swapped, (key[0], key[1]))) == words
    as_arrays = tuple(np.full(3, word, dtype=np.int64) for word in swapped)
    assert [[int(x) for x in word] for word in philox(as_arrays, (key[0], key[1]))] == [[w] * 3 for w in words]


def test_philox_arrays_equal_scalars_over_random_counters():
    random = np.random.default_rng(7)
    counters = random.integers(0, 1 << 32, size=(4, 200), dtype=np.int64)
    key = (0xDEADBEEF, 0x00C0FFEE)
    words = philox(tuple(counters), key)
    for column in range(counters.shape[1]):
        expected = scalar_philox([int(x) for x in counters[:, column]], list(key))
        assert [int(word[column]) for word in words] == expected


def test_key_is_hkdf_of_rfc_5869():
    hkdf = pytest.importorskip("cryptography.hazmat.primitives.kdf.hkdf")
    from cryptography.hazmat.primitives import hashes

    info = b'{"anchor":null,"cell":"matmul-K8-M8-N8-fp16","run":3}'
    okm = hkdf.HKDF(algorithm=hashes.SHA256(), length=8, salt=b"ledger/binding/v1", info=info).derive(
        bytes.fromhex(SEAL)
    )
    key = derive_key(seal=SEAL, cell="matmul-K8-M8-N8-fp16", run=3, anchor=None)
    assert b"".join(word.to_bytes(4, "little") for word in key) == okm


def test_key_changes_with_every_input():
    base = {"seal": SEAL, "cell": "a", "run": 0, "anchor": None}
    changed = [{"seal": ANCHOR}, {"cell": "b"}, {"run": 1}, {"anchor": ANCHOR}]
    keys = {derive_key(**{**base, **change}) for change in [{}, *changed]}
    assert len(keys) == 5


@pytest.mark.parametrize("how", ["symmetric", "positive", "short", "byte"])
def test_elements_follow_the_written_definition(how):
    key = derive_key(seal=SEAL, cell="a", run=0, anchor=None)
    index = np.array([0, 1, 15, 16, 17, 4095, (1 << 36) + 5, (1 << 40) - 1], dtype=np.int64)
    got = element_integers(index, key=key, tensor=2, input_set=7, how=how)
    for i, k in zip(index.tolist(), got.tolist(), strict=True):
        block = i // 16
        words = scalar_philox([block % 2**32, block // 2**32, 2, 7], list(key))
        byte = b"".join(word.to_bytes(4, "little") for word in words)[i % 16]
        written = {
            "symmetric": 2 * byte - 255, "positive": 48 + byte % 128, "short": 2 * (byte % 16) - 15, "byte": byte - 128,
        }  # fmt: skip
        assert k == written[how]


@pytest.mark.parametrize("how", ["bell", "below"])
def test_elements_of_a_word_follow_the_written_definition(how):
    import torch

    from ledger.measure.inputs import fill
    from ledger.operations.contract import TensorSpec
    from ledger.philox_inputs import Generated

    key = derive_key(seal=SEAL, cell="a", run=0, anchor=None)
    spec = TensorSpec("x", (3, 5), Generated(how, 0, 32000 if how == "below" else None))
    got = fill(spec, key=key, number=2, sets=range(6, 8), dtype=torch.float64, device="cpu")[1].reshape(-1).tolist()
    for i, k in enumerate(got):
        word = scalar_philox([i // 4, 0, 2, 7], list(key))[i % 4]
        parts = [(word >> shift & 0xFF) // 2 for shift in (0, 8, 16, 24)]
        assert k == (sum(parts) - 254 if how == "bell" else word * 32000 // 2**32)


def test_golden_integers_of_words():
    """Frozen, as the bytes below."""
    words = np.array([0, 1, 0xFFFFFFFF, 0x80000000, 0x01020304, 0xDEADBEEF], dtype=np.int64)
    assert integers_of_words(words, "bell", below=None).tolist() == [-254, -254, 254, -190, -250, 157]
    assert integers_of_words(words, "below", below=32000).tolist() == [0, 0, 31999, 16000, 125, 27834]


def test_golden_input_bytes():
    """Frozen: the first elements of tensor 0 under the key of a fixed seal. A change here breaks every old record."""
    key = derive_key(seal="00" * 32, cell="matmul-K64-M64-N64-fp16", run=0, anchor=None)
    index = np.arange(16, dtype=np.int64)
    assert key == GOLDEN_KEY
    assert element_integers(index, key=key, tensor=0, input_set=0, how="symmetric").tolist() == GOLDEN_SYMMETRIC
    assert element_integers(index, key=key, tensor=1, input_set=3, how="positive").tolist() == GOLDEN_POSITIVE
    assert [sample_positions(j, key=key, size=4096) for j in range(8)] == GOLDEN_POSITIONS
    assert element_integers(index, key=key, tensor=0, input_set=0, how="short").tolist() == GOLDEN_SHORT
    assert element_integers(index, key=key, tensor=1, input_set=3, how="byte").tolist() == GOLDEN_BYTE


GOLDEN_KEY = (3138990110, 906471299)
GOLDEN_SYMMETRIC = [137, -83, -75, -135, 255, 205, 29, 77, -253, 229, -5, 31, -149, 35, 107, -125]
GOLDEN_POSITIVE = [70, 127, 110, 66, 157, 135, 130, 137, 60, 134, 115, 154, 168, 137, 160, 108]
GOLDEN_SHORT = [-7, -3, 5, 9, 15, -3, 13, -3, -13, -11, 11, 15, -5, -13, -5, -13]
GOLDEN_BYTE = [22, 79, -66, 18, 109, 87, -46, -39, 12, 86, -61, -22, -8, 89, 112, 60]
GOLDEN_POSITIONS = [905, 575, 1077, 881, 375, 2800, 1868, 604]


def test_positions_are_within_the_output_and_agree_between_arrays_and_integers():
    key = derive_key(seal=SEAL, cell="a", run=0, anchor=None)
    for size in (1, 2, 1000, 8192 * 8192, 2**31 - 1):
        together = sample_positions(np.arange(64, dtype=np.int64), key=key, size=size).tolist()
        assert together == [sample_positions(j, key=key, size=size) for j in range(64)]
        assert all(0 <= position < size for position in together)


def test_every_generated_value_is_exact_in_each_float_format():
    byte = np.arange(256)
    for operation, shape in (("rmsnorm_matmul/1", {"B": 1, "H": 8192, "O": 8}), ("matmul/1", {"M": 8, "N": 8, "K": 2})):
        for spec in OPERATIONS[operation].inputs(shape):
            values = integers_of_bytes(byte, spec.generated.distribution) * 2.0**spec.generated.exponent
            assert np.array_equal(values.astype(np.float16).astype(np.float64), values)
            # bf16 keeps eight significant bits: an odd integer below 256 fits.
            mantissa = np.abs(values) / 2.0**spec.generated.exponent
            assert mantissa.max() < 256


def test_every_value_of_eight_bits_is_exact_in_its_dtype():
    import torch

    for operation, dtype in (("matmul_fp8/1", torch.float8_e4m3fn), ("matmul_int8/1", torch.int8)):
        for spec in OPERATIONS[operation].inputs({"M": 2, "N": 3, "K": 4}):
            values = integers_of_bytes(np.arange(256), spec.generated.distribution) * 2.0**spec.generated.exponent
            assert np.array_equal(torch.tensor(values).to(dtype).double().numpy(), values)
            assert len(set(values)) == {torch.float8_e4m3fn: 16, torch.int8: 256}[dtype]


@pytest.mark.parametrize("inner", [1, 2, 3, 63, 64, 4095, 4096, 8191, 8192, 65536])
def test_scales_keep_outputs_of_eight_bits_near_a_third(inner):
    for scale, operation in ((fp8_scale(inner), "matmul_fp8/1"), (int8_scale(inner), "matmul_int8/1")):
        (spec, _) = OPERATIONS[operation].inputs({"M": 2, "N": 3, "K": inner})
        spread = integers_of_bytes(np.arange(256), spec.generated.distribution).std()
        assert 0.2 < scale * spread**2 * math.sqrt(inner) < 0.5
        assert math.frexp(scale)[0] == 0.5


@pytest.mark.parametrize("inner", [1, 2, 3, 63, 64, 65, 2048, 4096, 8192, 65536])
def test_weight_exponent_keeps_outputs_near_a_quarter(inner):
    spread = 147.8 * 2.0 ** weight_exponent(inner) * math.sqrt(inner)
    assert 0.14 < spread < 0.6


def test_different_seals_give_different_inputs():
    index = np.arange(1024, dtype=np.int64)
    keys = [derive_key(seal=seal, cell="a", run=0, anchor=None) for seal in (SEAL, ANCHOR)]
    first, second = (element_integers(index, key=k, tensor=0, input_set=0, how="symmetric") for k in keys)
    assert (first == second).mean() < 0.05
