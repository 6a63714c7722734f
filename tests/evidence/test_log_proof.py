"""Tests inclusion proofs against RFC 6962's own recursive definition, and the texts of a log."""

from __future__ import annotations

import pytest
from public_log import audit_path, tree_hash

from ledger.errors import EvidenceRefused
from ledger.evidence.log_proof import leaf_hash, parse_body, parse_checkpoint, root_of_path

pytest.importorskip("cryptography")
LEAVES = [bytes([number]) for number in range(20)]


@pytest.mark.parametrize("size", range(1, 21))
def test_every_proof_of_every_small_tree_leads_to_its_root_at_its_index_alone(size):
    leaves = LEAVES[:size]
    root = tree_hash(leaves)
    for index in range(size):
        path = audit_path(index, leaves)
        leaf = leaf_hash(leaves[index])
        assert root_of_path(leaf, index=index, size=size, path=path) == root
        for other in range(-1, size + 2):
            if other != index:
                assert led(leaf, other, size, path) != root
        for damaged in ([*path, root], path[:-1] if path else [root], [leaf, *path]):
            assert led(leaf, index, size, damaged) != root
        assert led(leaf_hash(b"another"), index, size, path) != root


def led(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes | None:
    try:
        return root_of_path(leaf, index=index, size=size, path=path)
    except EvidenceRefused:
        return None


def test_a_node_does_not_pass_for_a_leaf():
    leaves = LEAVES[:4]
    path = audit_path(0, leaves)
    node = tree_hash(leaves[:2])
    assert led(node, 0, 2, path[1:]) == tree_hash(leaves)
    assert led(leaf_hash(leaf_hash(leaves[0]) + leaf_hash(leaves[1])), 0, 2, path[1:]) != tree_hash(leaves)


def test_a_path_of_huge_or_odd_hashes_is_refused():
    with pytest.raises(EvidenceRefused, match="hashes"):
        root_of_path(bytes(32), index=0, size=2, path=[bytes(31)])
    with pytest.raises(EvidenceRefused, match="hashes"):
        root_of_path(bytes(32), index=0, size=2**63, path=[bytes(32)] * 65)


def test_checkpoint_is_read():
    checkpoint = parse_checkpoint("log.example\n7\nAAAA\n\n\u2014 log.example BBBB\n")
    assert (checkpoint.origin, checkpoint.size, checkpoint.root) == ("log.example", 7, b"\0\0\0")


DAMAGED = [
    "",
    "a\n7\nAAAA\n",
    "a\n7\n\nx",
    "\n7\nAAAA\n\nx",
    "a\n-7\nAAAA\n\nx",
    "a\n\u0667\nAAAA\n\nx",
    "a\n7\n!\n\nx",
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_checkpoint_is_refused(text):
    with pytest.raises(EvidenceRefused, match="checkpoint"):
        parse_checkpoint(text)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"kind":"hashedrekord"}',
        b'{"kind":"hashedrekord","apiVersion":"0.0.1","spec":[]}',
        b'{"kind":"dsse","apiVersion":"0.0.1","spec":{}}',
        b'{"kind":"hashedrekord","kind":"hashedrekord","apiVersion":"0.0.1"}',
        b'{"kind":"hashedrekord","apiVersion":"0.0.2","spec":{"hashedRekordV002":{"data":{"algorithm":"SHA2_512"}}}}',
        b"[" * 2000,
    ],
)
def test_a_body_that_is_no_hashedrekord_is_refused(data):
    with pytest.raises(EvidenceRefused):
        parse_body(data)
