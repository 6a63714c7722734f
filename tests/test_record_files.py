"""Tests hardened YAML and the files of records."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from samples import TOY, make_forecast, make_measurement

from ledger.errors import EvidenceRefused, InputError, ParseError, RecordError, UnknownName
from ledger.record_files import (
    MAX_YAML_BYTES,
    hardware_names,
    hardware_yaml,
    load_hardware,
    parse_yaml,
    read_bytes,
    read_hardware,
    read_record,
    results,
    shipped_like,
    write_atomically,
    write_record,
)
from ledger.records import Hardware, Measurement

PLAIN = {
    "no": "no",
    "off": "off",
    "Yes": "Yes",
    "010": "010",
    "0x10": "0x10",
    "0o7": "0o7",
    "1:30": "1:30",
    "1_000": "1_000",
    "2026-01-02": "2026-01-02",
    ".inf": ".inf",
    ".nan": ".nan",
    "+": "+",
    "=": "=",
    "true": True,
    "null": None,
    "~": None,
    "": None,
    "-0": 0,
    "12": 12,
    "1.50": 1.5,
    "1e3": 1000.0,
    ".5": 0.5,
    "'12'": "12",
}


@pytest.mark.parametrize(("text", "value"), PLAIN.items(), ids=PLAIN)
def test_scalars_are_those_of_yaml_1_2(text, value):
    got = parse_yaml(f"a: {text}\n".encode(), what="f.yaml")["a"]
    assert got == value and type(got) is type(value)


REFUSED = {
    "very-many-values": b"[" + b"1," * 120_000 + b"1]",
    "alias": b"a: &x [1]\nb: *x\n",
    "anchor-alone": b"a: &x 1\n",
    "billion-laughs": b"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n",
    "python-tag": b"a: !!python/object/apply:os.system ['true']\n",
    "own-tag": b"a: !secret 1\n",
    "standard-tag": b"a: !!str 1\n",
    "tag-directive": b"%TAG ! tag:x,2000:\n---\na: !y 1\n",
    "merge-key": b"<<: {a: 1}\n",
    "quoted-merge-key": b'"<<": {a: 1}\n',
    "duplicate-key": b"a: 1\nb: 2\na: 3\n",
    "duplicate-nested-key": b"a: {b: 1, 'b': 2}\n",
    "number-key": b"1: a\n",
    "boolean-key": b"true: a\n",
    "list-key": b"? [a]\n: b\n",
    "deep": b"[" * 200 + b"]" * 200,
    "very-deep": b"[" * 100_000,
    "deep-block": b"".join(b" " * i + b"a:\n" for i in range(60)),
    "infinite": b"a: 1e999\n",
    "huge-integer": b"a: " + b"9" * 5000 + b"\n",
    "byte-order-mark": b"\xef\xbb\xbfa: 1\n",
    "utf-16": "a: 1\n".encode("utf-16"),
    "latin-1": b"a: \xe9\n",
    "nul": b"a: \x00\n",
    "escape": b"a: \x1b[2J\n",
    "two-documents": b"a: 1\n---\nb: 1\n",
    "unclosed": b"a: [1\n",
    "tab-indent": b"a:\n\tb: 1\n",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_traps_are_refused_with_the_file_named(data):
    with pytest.raises(ParseError, match=r"^f\.yaml") as caught:
        parse_yaml(data, what="f.yaml")
    assert "\x1b" not in str(caught.value)


def test_large_text_is_refused():
    with pytest.raises(ParseError, match="expected at most"):
        parse_yaml(b"#" * (MAX_YAML_BYTES + 1), what="f.yaml")


def test_large_file_is_not_read_whole(tmp_path):
    path = tmp_path / "big.yaml"
    with path.open("wb") as stream:
        stream.truncate(10 * 1024**3)
    with pytest.raises(ParseError, match="larger than"):
        read_bytes(path)


def test_missing_file_and_folder_are_named(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(InputError, match=str(path)):
            read_bytes(path)


@pytest.mark.parametrize("linked", [False, True])
def test_a_named_pipe_is_refused_at_once(tmp_path, linked):
    path = tmp_path / "order.json"
    os.mkfifo(path)
    if linked:
        (tmp_path / "link").symlink_to(path)
        path = tmp_path / "link"
    with pytest.raises(InputError, match=r"is a named pipe; expected a regular file, or /dev/stdin"):
        read_bytes(path)


def test_a_device_is_refused():
    with pytest.raises(InputError, match=r"^/dev/zero: is a device; expected a regular file"):
        read_bytes(Path("/dev/zero"))


def test_a_pipe_behind_a_descriptor_is_read_to_its_end():
    reading, writing = os.pipe()
    # More than a pipe holds, so that the reader must wait for the writer.
    text = b"a" * 300_000

    def write():
        time.sleep(0.1)
        with os.fdopen(writing, "wb") as stream:
            stream.write(text)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert read_bytes(Path(f"/dev/fd/{reading}")) == text
    finally:
        thread.join()
        os.close(reading)


def test_stdin_is_read_where_it_is_piped():
    code = "from pathlib import Path; from ledger.record_files import read_bytes; print(read_bytes(Path('/dev/stdin')))"
    done = subprocess.run([sys.executable, "-c", code], input=b"x: 1", capture_output=True, check=True)
    assert done.stdout == b"b'x: 1'\n"


def test_empty_document_is_none():
    assert parse_yaml(b"# nothing\n", what="f.yaml") is None


def test_write_atomically_replaces_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "deep" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_hardware_survives_yaml(tmp_path):
    (tmp_path / "toy.yaml").write_bytes(hardware_yaml(TOY))
    assert read_hardware(tmp_path / "toy.yaml") == TOY


def test_hardware_name_is_the_stem(tmp_path):
    (tmp_path / "other.yaml").write_bytes(hardware_yaml(TOY))
    with pytest.raises(RecordError, match="stem"):
        read_hardware(tmp_path / "other.yaml")


def test_own_profile_goes_before_the_shipped_one(tmp_path):
    (tmp_path / "hardware").mkdir()
    mine = load_hardware("h200").model_copy(update={"title": "mine"})
    (tmp_path / "hardware" / "h200.yaml").write_bytes(hardware_yaml(mine))
    (tmp_path / "hardware" / "toy.yaml").write_bytes(hardware_yaml(TOY))
    assert load_hardware("h200", tmp_path).title == "mine"
    assert "toy" in hardware_names(tmp_path) and "toy" not in hardware_names()
    with pytest.raises(UnknownName, match="toy"):
        load_hardware("toy")


def test_measured_ceilings_join_and_never_replace_the_data_sheet(tmp_path):
    shipped = load_hardware("h200")
    sheet = shipped.ceilings["datasheet"]
    fake = sheet.model_copy(update={"dram_bandwidth": sheet.dram_bandwidth.model_copy(update={"value": 99.0})})
    measured = shipped.model_copy(update={"ceilings": {"datasheet": fake, "burst": fake}})
    folder = tmp_path / "hardware" / "measured"
    folder.mkdir(parents=True)
    (folder / "h200.yaml").write_bytes(hardware_yaml(measured))
    got = load_hardware("h200", tmp_path)
    assert got.ceilings["datasheet"] == sheet
    assert got.ceilings["burst"].dram_bandwidth.value == 99.0


def test_shipped_profiles_of_a_device_are_those_with_its_name_or_one_of_its_device_names():
    known = [load_hardware(name) for name in hardware_names()]
    for one in known:
        names = set(one.device_names)
        assert shipped_like(one) == tuple(o for o in known if o.name == one.name or names & set(o.device_names))


def test_every_shipped_profile_loads():
    assert all(isinstance(load_hardware(name), Hardware) for name in hardware_names())


def test_records_in_files(tmp_path):
    record = make_measurement(make_forecast())
    write_record(tmp_path / "b.json", record)
    write_record(tmp_path / "a.json", record)
    assert [path.name for path, _ in results(tmp_path)] == ["a.json", "b.json"]
    (tmp_path / "a.json").write_bytes((tmp_path / "a.json").read_bytes() + b"\n")
    with pytest.raises(EvidenceRefused):
        read_record(Measurement, tmp_path / "a.json")
    with pytest.raises(InputError, match="no measurement"):
        list(results(tmp_path / "none"))
