"""Tests that what a kernel is timed against writes to a buffer of its own for each input set, as the kernel does."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from loaded_kernels import load_kernel

from ledger.kernel import Launch, keeping
from ledger.kernel_files import kernel_names

torch = pytest.importorskip("torch", reason="torch is not installed: no library to compare with")

SHAPES: dict[str, dict[str, int]] = {
    "vector_add": {"N": 131},
    "rmsnorm": {"M": 5, "N": 131},
    "layernorm": {"M": 5, "N": 131},
    "softmax": {"M": 5, "N": 131},
    "gemv": {"N": 67, "K": 131},
    "rmsnorm_matmul": {"B": 3, "H": 64, "O": 48},
    "matmul": {"M": 24, "N": 40, "K": 64},
    "matmul_bias_relu": {"M": 24, "N": 40, "K": 64},
    "matmul_int8": {"M": 24, "N": 40, "K": 64},
    "matmul_fp8": {"M": 16, "N": 48, "K": 64},
    "matmul_fp8_blocks": {"M": 16, "N": 48, "K": 256},
    "decode_attention": {"B": 2, "HQ": 4, "HKV": 4, "S": 32, "D": 64},
    "flash_attention": {"B": 1, "HQ": 2, "HKV": 2, "S": 32, "D": 64},
    "flash_attention_causal": {"B": 1, "HQ": 2, "HKV": 2, "S": 32, "D": 64},
    "mla_decode": {"B": 2, "H": 3, "S": 16},
}
BASELINES = [(name, baseline) for name in kernel_names() for baseline in load_kernel(name).kernel.baselines]
SETS = 3


class Result:
    """Stand for what a library call returns; a plain object cannot be referred to weakly."""


def test_keeping_holds_the_latest_result_and_drops_the_one_before_first() -> None:
    made: list[weakref.ref[Result]] = []

    def call() -> Result:
        assert all(one() is None for one in made), "two results of one launch were alive at once"
        result = Result()
        made.append(weakref.ref(result))
        return result

    launch = keeping(call)
    for _ in range(3):
        launch()
        assert made[-1]() is not None
    assert [one() is None for one in made] == [True, True, False]


def tensors() -> list[Any]:
    return [one for one in gc.get_objects() if type(one) is torch.Tensor]


def buffers(launches: list[Launch], outs: list[Any], rotations: int) -> set[int]:
    """Return the addresses that the calls of some rotations leave their results at, one for each launch at the end."""
    # Held, so that no later tensor takes the identity of one of these.
    known = tensors()
    for out in outs:
        out.fill_(float("nan") if out.is_floating_point() else -77)
    poison = outs[0].clone()
    for _ in range(rotations):
        for launch in launches:
            launch()
    if not torch.equal(outs[0].nan_to_num(), poison.nan_to_num()):
        return {out.data_ptr() for out in outs}
    old = {id(one) for one in (*known, poison)}
    return {one.data_ptr() for one in tensors() if id(one) not in old and one.numel() == outs[0].numel()}


@pytest.mark.parametrize(("name", "baseline"), BASELINES, ids=[f"{name}-{baseline}" for name, baseline in BASELINES])
def test_baseline_writes_to_one_buffer_for_each_input_set(name: str, baseline: str) -> None:
    from mutants.checker import Trial, fill_inputs

    from ledger.measure.inputs import torch_dtype

    kernel, shape = load_kernel(name, launch=True).kernel, SHAPES[name]
    dtype = "fp32" if "fp32" in kernel.dtypes else kernel.dtypes[0]
    sets = [fill_inputs(kernel, Trial(shape, dtype, {}), "cpu") for _ in range(SETS)]
    written = torch_dtype(kernel.operation.output_dtype(dtype))
    outs = [torch.empty(kernel.operation.output_dims(shape), dtype=written) for _ in sets]
    launches = [kernel.baselines[baseline](inputs, out, {}) for inputs, out in zip(sets, outs, strict=True)]
    # What torch.compile would compile runs as it is written: where its result goes does not depend on that.
    torch.compiler.set_stance("force_eager")
    try:
        launches[0]()
    except (RuntimeError, ValueError) as error:
        assert baseline.startswith(("sdpa-cudnn", "sdpa-flash", "sdpa-efficient", "torch_scaled_mm"))
        pytest.skip(f"{baseline} does not run on a CPU: {str(error)[:80]}")
    else:
        assert len(buffers(launches, outs, rotations=2)) == SETS
    finally:
        torch.compiler.set_stance("default")


def test_a_baseline_that_drops_its_result_is_seen() -> None:
    x = [torch.randn(64) for _ in range(SETS)]
    outs = [torch.empty(64) for _ in x]

    def dropping(one: Any) -> Launch:
        def launch() -> None:
            one.exp()

        return launch

    assert len(buffers([dropping(one) for one in x], outs, rotations=2)) == 0
    assert len(buffers([keeping(one.exp) for one in x], outs, rotations=2)) == SETS


@pytest.mark.gpu
def test_kept_results_of_a_graph_lie_apart_and_take_one_buffer_for_each_set() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from ledger.measure.cuda_graphs import capture, warm_up

    x = [torch.randn(1 << 20, device="cuda") for _ in range(SETS)]
    seen: list[int] = []

    def call(one: Any) -> Any:
        result = one.exp()
        seen.append(result.data_ptr())
        return result

    launches = [keeping(lambda one=one: call(one)) for one in x]
    warm_up(launches)
    seen.clear()
    graph = capture(launches * 4)
    assert len(set(seen[:SETS])) == SETS
    assert len(set(seen)) == SETS
    graph.replay()
    torch.cuda.synchronize()
