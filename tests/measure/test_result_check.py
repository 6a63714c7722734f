"""Refuses a compiled callable that compiles again during the rotation; the rest is in tests/callables."""

import pytest
import torch

from ledger.measure.result_check import compiled_once


def test_a_compilation_during_the_rotation_is_refused_and_a_stable_program_is_not():
    @torch.compile(dynamic=False, backend="eager")
    def scaled(x, factor):
        return x * factor

    x, factors = torch.ones(4), [2.0]

    def launch() -> None:
        scaled(x, int(factors[0]))

    launch()
    with compiled_once([launch]):
        for _ in range(5):
            launch()
    with pytest.raises(Exception, match=r"recompil|Recompil|compiled again"), compiled_once([launch]):
        factors[0] = 3.0
        launch()


def test_more_programs_than_torch_keeps_are_refused_before_the_rotation():
    @torch.compile(dynamic=False, backend="eager")
    def scaled(x, factor):
        return x * factor

    x = torch.ones(4)
    launches = [lambda factor=factor: scaled(x, factor) for factor in range(2, 40)]
    launches[0]()
    # A baseline of this process may have raised torch's own limit.
    limited = torch._dynamo.config.patch(recompile_limit=8)
    with limited, pytest.raises(Exception, match=r"limit"), compiled_once(launches):
        pytest.fail("the rotation must not begin")
