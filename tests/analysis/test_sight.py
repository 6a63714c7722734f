"""Tests what counts as a neighbour, as one device and as a measured shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import TOY, callable_case, failed, make_forecast, make_hardware, make_measurement, quantity

from ledger.analysis.sight import Devices, counts_as_blind, is_neighbour, measured_shapes, shape_of, sizes_of, worst
from ledger.analysis.sight_names import sight_name

SIZES = st.dictionaries(st.sampled_from("BHO"), st.integers(1, 2**53 - 1), min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("shape", "other", "near"),
    [
        ({"B": 4, "H": 64}, {"B": 4, "H": 64}, True),
        ({"B": 4, "H": 64}, {"B": 8, "H": 64}, True),
        ({"B": 4, "H": 64}, {"B": 2, "H": 128}, True),
        ({"B": 4, "H": 64}, {"B": 9, "H": 64}, False),
        ({"B": 4, "H": 64}, {"B": 4, "H": 31}, False),
        ({"B": 4, "H": 64}, {"B": 4, "K": 64}, False),
        ({"B": 4, "H": 64}, {"B": 4}, False),
    ],
)
def test_a_neighbour_has_every_size_within_a_factor_of_two(shape, other, near):
    assert is_neighbour(shape_of(shape), shape_of(other)) is near


@given(SIZES, SIZES)
def test_neighbours_are_mutual(shape, other):
    assert is_neighbour(shape_of(shape), shape_of(other)) == is_neighbour(shape_of(other), shape_of(shape))
    assert is_neighbour(shape_of(shape), shape_of(shape))


def test_the_worst_sight_is_the_one_that_knew_most():
    assert worst(["near", "blind", None]) == "near"
    assert worst(["blind", "informed", "near"]) == "informed"
    assert worst([None]) is worst([]) is None
    assert [sight_name(sight) for sight in ("blind", None)] == ["blind", "undeclared"]
    assert [counts_as_blind(sight) for sight in ("blind", None, "near", "informed")] == [True, True, False, False]


def test_numbers_in_the_arguments_of_a_callable_are_sizes():
    narrow, twice, wide = (callable_case(f"x=fp16[B,{size}]", B=256) for size in (64, 128, 1024))
    assert sizes_of(wide) == (("B", 256), ("x.1", 1024))
    assert is_neighbour(sizes_of(narrow), sizes_of(twice)) and not is_neighbour(sizes_of(narrow), sizes_of(wide))
    assert measured_shapes(make_measurement(make_forecast(case=wide))) == (sizes_of(wide),)
    assert sizes_of(callable_case("x=fp16[B,H]", B=2, H=3)) == (("B", 2), ("H", 3))
    huge = "*".join(["9" * 15] * 8)
    assert sizes_of(callable_case(f"x=fp16[{huge}]", B=2)) == (("B", 2), ("x.0", 2**53)), "it fits the index"


def test_interventions_time_shapes_of_half_a_size():
    made = make_forecast(shape={"B": 8, "H": 64, "O": 1})
    halves = {f"half_{axis}_{what}": 1_000_000 for axis in ("B", "O", "Z") for what in ("ps", "flops", "bytes")}
    record = make_measurement(made, interventions={"cold_ps": 2_000_000, **halves})
    own = shape_of({"B": 8, "H": 64, "O": 1})
    assert measured_shapes(record) == (own, shape_of({"B": 4, "H": 64, "O": 1})), "O = 1 has no half, Z is no size"
    assert measured_shapes(make_measurement(made, interventions={"cold_ps": "?"})) == (own,)
    assert measured_shapes(failed(made)) == ()


# Devices: a name, a device name or all figures in common

SLOWER = {"datasheet": {"peaks": {"fp32": quantity(10.0, "TFLOP/s")}, "dram_bandwidth": quantity(0.5, "TB/s")}}
OTHER = {"name": "other", "device_names": ["Other 1"]}


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({**OTHER, "device_names": ["toy  1"], "ceilings": SLOWER}, True),
        ({**OTHER}, True),
        ({**OTHER, "ceilings": SLOWER}, False),
        ({**OTHER, "target": "sm_80"}, False),
        ({**OTHER, "device_names": ["Toy 1"], "target": "sm_80"}, False),
    ],
    ids=["device name", "figures", "other figures", "figures of another target", "device name of another target"],
)
def test_profiles_of_one_device_are_joined(changes, same):
    devices = Devices([TOY, make_hardware(**changes)])
    assert (devices.of("toy") == devices.of("other")) is same
    assert devices.of("toy") != devices.of("unheard of")


def test_a_chain_of_profiles_is_one_device():
    names = [f"p{number}" for number in range(2_000)]
    links = [
        make_hardware(name=name, device_names=[f"D{number}", f"D{number + 1}"], ceilings=SLOWER, target=f"sm_{number}")
        for number, name in enumerate(names)
    ]
    joined = [profile.model_copy(update={"target": "sm_90", "ceilings": TOY.ceilings}) for profile in links]
    devices = Devices(joined)
    assert len({devices.of(name) for name in names}) == 1
    apart = Devices(links)
    assert len({apart.of(name) for name in names}) == len(names)
