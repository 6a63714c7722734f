"""Tests the verification of drand's quicknet by rounds that drand published; no network is asked."""

from __future__ import annotations

import hashlib

import pytest
from draw_attacks import ROUNDS

from ledger.analysis.draws import randomness_of, round_at, round_time
from ledger.errors import EvidenceRefused
from ledger.evidence.beacon import check_signature
from ledger.records import Pulse

pytest.importorskip("py_ecc", reason="py_ecc is not installed")

# Randomness of round 1000 as https://api.drand.sh serves it, and of 657413 in the README of drand-verify.
RANDOMNESS = {
    1000: "fe290beca10872ef2fb164d2aa4442de4566183ec51c56ff3cd603d930e54fdd",
    657413: "fc1873a13f3545aeade8401532ef5519920652eee6b0d2b19ca12643b87b3587",
}


@pytest.mark.parametrize("number", ROUNDS)
def test_a_published_round_verifies_and_gives_its_randomness(number):
    check_signature(number, ROUNDS[number])
    pulse = Pulse(schema="ledger/pulse/1", round=number, signature=ROUNDS[number], secret=None)
    assert randomness_of(pulse).hex() == RANDOMNESS[number]


def test_another_round_a_flipped_bit_and_no_point_are_refused():
    good = ROUNDS[1000]
    flipped = f"{int(good, 16) ^ (1 << 381):096x}"  # the sign of y: the point's negative
    for number, signature in ((1001, good), (1000, ROUNDS[657413]), (1000, flipped), (1000, "c0" + "0" * 94)):
        with pytest.raises(EvidenceRefused, match="is not quicknet's"):
            check_signature(number, signature)
    for bad in ("f" * 96, "0" * 96, "8" + "0" * 95):
        with pytest.raises(EvidenceRefused):
            check_signature(1000, bad)


def test_rounds_and_times():
    assert round_time(1) == 1_692_803_367 and round_time(1000) == 1_692_803_367 + 2997
    assert [round_at(round_time(1000) + late) for late in (-3, -2, 0, 1)] == [999, 1000, 1000, 1001]
    assert round_at(0) == 1
    assert hashlib.sha256(bytes.fromhex(ROUNDS[1000])).hexdigest() == RANDOMNESS[1000]
