"""Reads one tensor of a safetensors file, and refuses files of another form."""

import json
import struct
from pathlib import Path

import pytest
from problem_texts import write_safetensors

from ledger.errors import InputError
from ledger.problems.safetensors import read_tensor


def test_tensor_is_read_with_its_dtype_dims_and_bytes(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    data = struct.pack("<3i", 0, 2, 5)
    write_safetensors(path, "indptr", "I32", [3], data)
    found = read_tensor(path, "indptr", most=100)
    assert (found.dtype, found.dims, found.data) == ("int32", (3,), data)
    with pytest.raises(InputError, match="at most 8"):
        read_tensor(path, "indptr", most=8)
    with pytest.raises(InputError, match="'other' is missing"):
        read_tensor(path, "other", most=100)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "I32", "shape": [3], "data_offsets": [0, 8]},
        {"dtype": "I32", "shape": [2], "data_offsets": [8, 0]},
        {"dtype": "I99", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "I32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "I32", "shape": [2**60], "data_offsets": [0, 2**62]},
        {"dtype": "I32", "shape": [2], "data_offsets": [0, 8, 9]},
        {"dtype": "I32", "shape": "2", "data_offsets": [0, 8]},
        {"dtype": "I32", "shape": [10], "data_offsets": [0, 40]},
        7,
    ],
    ids=str,
)
def test_entry_of_another_form_is_refused(tmp_path: Path, entry: object):
    header = json.dumps({"a": entry}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(InputError, match=r"a\.safetensors"):
        read_tensor(path, "a", most=1000)


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, struct.pack("<Q", 4) + b"[1]", struct.pack("<Q", 3) + b"{}"])
def test_file_without_a_header_is_refused(tmp_path: Path, data: bytes):
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with pytest.raises(InputError):
        read_tensor(path, "a", most=1000)
