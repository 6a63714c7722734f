"""Reads argument lists, and fits keys and sizes to them."""

import pytest

from ledger.callables.argument_list import (
    dims_of,
    first_dtype,
    keys_of,
    parameter_spec,
    parse_arguments,
    scalar_value,
    tensor_spec,
    with_keys,
)
from ledger.callables.recorded_arguments import described
from ledger.errors import InputError

LIST = "x=fp16[B, 2*H] ids=i64[B]<32000 eps=1e-6 n=3 exact=true bias=none mode=tanh"


def test_arguments_are_read_in_order_with_dtypes_bounds_and_scalars():
    x, ids, *scalars = parse_arguments(LIST)
    assert (x.name, x.dtype, x.dims, x.below) == ("x", "fp16", ("B", "2*H"), None)
    assert (ids.dtype, ids.dims, ids.below) == ("int64", ("B",), 32000)
    assert [scalar_value(one) for one in scalars] == [1e-6, 3, True, None, "tanh"]
    assert keys_of((x, ids)) == ("B", "H")
    assert dims_of(x, {"B": 3, "H": 5}) == (3, 10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "expected NAME=DTYPE"),
        ("x=fp17[B]", "fp17"),
        ("x=fp16[B] x=fp16[B]", "duplicate argument 'x'"),
        ("x=fp16", "got 'fp16'; expected DTYPE[DIM,…]"),
        ("x=fp16[B", "got 'fp16[B'; expected DTYPE[DIM,…]"),
        ("x=fp16[B,]", "dimension ''; expected a number, a key"),
        ("x=i64[B]", "no bound; expected <N after an integer tensor"),
        ("x=fp16[B]<4", "bound for integers only"),
        ("x=i8[B]<300", "expected 1 to 128 for int8"),
        (f"x=i64[B]<{'9' * 5000}", "expected 1 to 2147483648 for int64"),
        ("x=fp16[B+1]", "expected a number, a key"),
        ("1x=fp16[B]", "name"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused_with_the_argument(text: str, said: str):
    with pytest.raises(InputError, match=r"argument|--args") as caught:
        parse_arguments(text)
    assert said in str(caught.value)


def test_every_key_must_be_given_and_used():
    arguments = parse_arguments("x=fp16[B,H]")
    with pytest.raises(InputError, match="no size for H"):
        with_keys(arguments, {"B": 1})
    with pytest.raises(InputError, match="key K is in no dimension"):
        with_keys(arguments, {"B": 1, "H": 2, "K": 3})


def test_sizes_without_keys_become_keys_and_equal_sizes_the_same_one():
    arguments, shape = with_keys(parse_arguments("x=fp16[8,64] y=fp16[64,1] s=fp32[]"), {})
    assert shape == {"N0": 8, "N1": 64}
    assert [one.dims for one in arguments] == [("N0", "N1"), ("N1", "1"), ()]
    assert [dims_of(one, shape) for one in arguments] == [(8, 64), (64, 1), ()]


@pytest.mark.parametrize("text", ["x=fp32[]", "x=fp32[0]", "x=fp32[1]", "x=fp32[1] y=fp32[0,1]", "x=fp32[8,64]"])
def test_arguments_with_their_shape_are_the_same_when_read_again(text):
    arguments, shape = with_keys(parse_arguments(text), {})
    assert with_keys(arguments, shape) == (arguments, shape) and len(shape) > 0


def test_a_key_that_no_dimension_names_is_refused():
    with pytest.raises(InputError, match="key N0 is in no dimension"):
        with_keys(parse_arguments("x=fp32[1]"), {"N0": 1})


def test_the_dtype_of_the_cell_is_the_first_floating_one():
    assert first_dtype(parse_arguments("i=i64[B]<4 x=bf16[B] y=fp32[B]")) == "bf16"
    with pytest.raises(InputError, match="--dtype"):
        first_dtype(parse_arguments("i=i64[B]<4"))


def test_a_function_of_a_generator_describes_the_same_arguments():
    def step(table, ids, scale=1.0):
        raise NotImplementedError

    made = described(lambda g: (g.bell(100, 64, dtype="fp16"), g.integers(8, high=100), 0.5), step)
    assert made == parse_arguments("table=fp16[100,64] ids=i64[8]<100 scale=0.5")
    with pytest.raises(InputError, match="of type object"):
        described(lambda _g: (object(),), step)


def test_fills_are_exact_in_the_dtype_and_parameters_scale_with_the_row():
    assert tensor_spec(parse_arguments("x=fp8_e4m3[4]")[0], {}).generated.distribution == "short"
    for inner, low, high in ((64, 0.4, 0.83), (4096, 0.4, 0.83), (11008, 0.4, 0.83)):
        generated = parameter_spec("parameter:weight", (8, inner), "fp32").generated
        assert low <= 147.8 * 2.0**generated.exponent * inner**0.5 <= high
