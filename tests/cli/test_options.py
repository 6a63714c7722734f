"""Tests the values of options: shapes and launch configurations."""

import pytest

from ledger.cli.options import parse_config, parse_shape, percent_number
from ledger.errors import InputError


def test_parse_shape_reads_positive_integers():
    assert parse_shape("B=32, H=4096") == {"B": 32, "H": 4096}


@pytest.mark.parametrize("text", ["", "B", "B=", "=3", "B=0", "B=-1", "B=²", "B=1.5", "B=x", "B=1,", "B=" + "9" * 16])
def test_parse_shape_refuses_what_is_no_positive_integer(text: str):
    with pytest.raises(InputError, match="expected KEY=POSITIVE_INTEGER"):
        parse_shape(text)


def test_parse_config_reads_integers_and_text():
    assert parse_config("variant=cuda_ping_pong,block_k=64, swap_ab=0") == {
        "variant": "cuda_ping_pong",
        "block_k": 64,
        "swap_ab": 0,
    }


@pytest.mark.parametrize("text", ["", "variant", "variant=", "=cuda", "variant=CUDA", "block_k=-1", "block_k=1.5"])
def test_parse_config_refuses_what_is_neither(text: str):
    with pytest.raises(InputError, match="expected KEY=INTEGER or KEY=NAME, as in block_k=16,variant=cuda"):
        parse_config(text)


@pytest.mark.parametrize("parse", [parse_shape, parse_config])
def test_duplicate_keys_are_refused(parse):
    with pytest.raises(InputError, match="duplicate key 'B'; expected each key once"):
        parse("B=1,B=2")


def test_a_percent_may_have_its_sign():
    assert (percent_number("60%"), percent_number("62.5")) == (60, 62.5)


@pytest.mark.parametrize("text", ["sixty", "%", "60%%", ""])
def test_what_is_no_percent_is_refused(text: str):
    with pytest.raises(InputError, match="as in 60 or 60%"):
        percent_number(text)
