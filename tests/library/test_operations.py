"""Tests the shipped kernels as torch operations: against float64, fake, compiled, and refusing what does not fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mutants.checker import Trial, fill_inputs

torch = pytest.importorskip("torch")

import ledger.kernels  # noqa: E402
from ledger.errors import InputError  # noqa: E402
from ledger.kernel_files import kernel_closure, kernel_names, load_kernel  # noqa: E402
from ledger.library.operations import _rule, callable_of  # noqa: E402

ROOT = Path(__file__).parents[2]
SIZES = {"M": 19, "N": 40, "K": 72, "B": 3, "H": 24, "O": 41, "HQ": 6, "HKV": 2, "S": 37, "D": 16}
CALLS = [(name, dtype) for name in kernel_names() for dtype in load_kernel(name).kernel.dtypes]


def cell(name: str, dtype: str, device: str = "cpu") -> tuple[Any, dict[str, Any]]:
    kernel = load_kernel(name).kernel
    shape = {key: SIZES[key] for key in kernel.operation.shape_keys}
    return kernel, fill_inputs(kernel, Trial(shape, dtype, {}), device)


def assert_right(kernel: Any, dtype: str, inputs: dict[str, Any], out: Any) -> None:
    expected, bound = kernel.reference(inputs), kernel.tolerances[dtype]
    assert out.shape == expected.shape
    assert ((out.double() - expected).abs() <= bound.atol + bound.rtol * expected.abs()).all()


@pytest.mark.parametrize(("name", "dtype"), CALLS)
def test_call_is_the_reference_on_a_cpu(name: str, dtype: str):
    kernel, inputs = cell(name, dtype)
    assert_right(kernel, dtype, inputs, callable_of(name)(*inputs.values()))
    assert_right(kernel, dtype, inputs, callable_of(name)(**inputs))


@pytest.mark.parametrize("name", kernel_names())
def test_operation_passes_torchs_own_check_and_compiles_whole(name: str):
    _, inputs = cell(name, load_kernel(name).kernel.dtypes[-1])
    tensors = tuple(inputs.values())
    function = callable_of(name)
    tests = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    # torch's check of a schema compares inputs by arithmetic that a CPU lacks in fp8.
    tests = tests[1:] if tensors[0].dtype == torch.float8_e4m3fn else tests
    torch.library.opcheck(getattr(torch.ops.ledger, name).default, tensors, test_utils=tests)
    # The limit of recompilations is that of a function, and all kernels share this one.
    torch._dynamo.reset()
    compiled = torch.compile(lambda *given: function(*given).float() + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*tensors), function(*tensors).float() + 1)


def test_call_compiles_with_sizes_that_vary():
    function = callable_of("rmsnorm_matmul")
    compiled = torch.compile(lambda *given: function(*given) * 2, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (3, 5, 11):
        x, gain, weight = torch.randn(rows, 8), torch.ones(8), torch.randn(8, 4)
        assert torch.equal(compiled(x, gain, weight), function(x, gain, weight) * 2)


def test_fake_result_has_the_size_and_dtype_of_the_real_one():
    for name, dtype in CALLS:
        _, inputs = cell(name, dtype)
        real = callable_of(name)(*inputs.values())
        fake = callable_of(name)(*(tensor.to("meta") for tensor in inputs.values()))
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride()), name


def test_inputs_need_not_be_contiguous_and_may_have_leading_dimensions():
    function = ledger.kernels.rmsnorm_matmul
    x, gain, weight = torch.randn(2, 3, 5, 8), torch.rand(16)[::2], torch.randn(4, 8).t()
    expected = torch.nn.functional.rms_norm(x, [8], gain, 1e-6) @ weight
    assert torch.allclose(function(x, gain, weight), expected, atol=1e-5)
    assert torch.allclose(function(x.transpose(0, 2), gain, weight), expected.transpose(0, 2), atol=1e-5)
    assert function(x[0, 0, 0], gain, weight).shape == (4,)
    a = torch.randn(4, 6)
    assert torch.equal(ledger.kernels.vector_add(a, a.t().contiguous().t()), a + a)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"weight": torch.ones(5, 4)}, InputError, r"weight has shape \(5, 4\); expected \(H, O\) with H=8, as x has"),
        ({"gain": torch.ones(8).double()}, InputError, "gain has dtype torch.float64; expected torch.float32, as x"),
        ({"x": torch.ones(3, 8).double()}, InputError, "x has dtype torch.float64; expected one of: torch.float16"),
        ({"gain": torch.ones(8, device="meta")}, InputError, "gain has device meta; expected cpu|x has device cpu"),
        ({"x": torch.ones(0, 8)}, InputError, "B at least 1"),
        ({"x": torch.ones(3, 8, requires_grad=True)}, InputError, "no backward; call it under torch.no_grad"),
        ({"other": torch.ones(1)}, TypeError, "rmsnorm_matmul takes x, gain, weight; got x, gain, weight, other"),
    ],
)
def test_call_refuses_inputs_that_do_not_fit(change, error, message):
    given = {"x": torch.ones(3, 8), "gain": torch.ones(8), "weight": torch.ones(8, 4), **change}
    with pytest.raises(error, match=message):
        ledger.kernels.rmsnorm_matmul(**given)


def test_call_refuses_heads_that_are_no_groups():
    q, k = torch.ones(1, 3, 4, 8), torch.ones(1, 2, 4, 8)
    with pytest.raises(InputError, match="HQ is 3; expected a multiple of HKV, 2"):
        ledger.kernels.flash_attention(q, k, k)


def test_no_gradient_is_lost_in_silence_but_no_grad_is_enough():
    x = torch.ones(3, 8, requires_grad=True)
    with torch.no_grad():
        assert ledger.kernels.softmax(x).shape == (3, 8)


def test_importing_the_package_or_a_name_loads_torch_only_for_a_kernel():
    code = (
        "import sys, json, ledger.kernels\nbefore = 'torch' in sys.modules\nlisted = 'gemv' in dir(ledger.kernels)\n"
        "import ledger.kernels.common\nfrom ledger.kernels.rmsnorm_matmul import rule\n"
        "shared = 'torch' in sys.modules\n"
        "from ledger.kernels import rmsnorm_matmul\nimport torch\n"
        "y = rmsnorm_matmul(torch.ones(1, 8), torch.ones(8), torch.ones(8, 2))\n"
        "try:\n    from ledger.kernels import absent\nexcept ImportError as error:\n    said = str(error)\n"
        "print(json.dumps([before, listed, shared, list(y.shape), said]))\n"
    )
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    before, listed, shared, dims, said = json.loads(done.stdout)
    assert (before, listed, shared, dims) == (False, True, False, [1, 2])
    assert "absent" in said


@pytest.mark.parametrize("name", kernel_names())
def test_what_makes_kernels_callable_is_not_sealed_with_them(name: str):
    paths = {source.path for source in kernel_closure(name)[0].files}
    assert not [path for path in paths if path == "ledger/kernels/__init__.py" or path.startswith("ledger/library")]


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_no_call_reads_an_operand_before_the_launch_ahead_has_ended(dtype):
    kernel = load_kernel("rmsnorm_matmul").kernel
    rules = [kernel.config(case, dtype, "sm_90") for case in kernel.cases]
    assert dtype == "fp32" or any(rule["pdl"] for rule in rules)
    for case, rule in zip(kernel.cases, rules, strict=True):
        assert _rule(kernel, case, dtype, "sm_90") == {**rule, "pdl": 0}


# On a GPU

gpu = pytest.mark.gpu


def need_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


def offered(name: str, dtype: str) -> bool:
    kernel = load_kernel(name).kernel
    major, minor = torch.cuda.get_device_capability()
    shape = {key: SIZES[key] for key in kernel.operation.shape_keys}
    try:
        _rule(kernel, shape, dtype, f"sm_{major}{minor}")  # type: ignore[arg-type]
    except InputError:
        return False
    return True


@gpu
@pytest.mark.parametrize(("name", "dtype"), CALLS)
def test_call_is_the_reference_on_a_gpu_each_time(name: str, dtype: str):
    need_gpu()
    if not offered(name, dtype):
        pytest.skip(f"{name} {dtype}: not for this architecture")
    kernel, inputs = cell(name, dtype, "cuda")
    first = next(iter(inputs.values()))
    for _ in range(6):
        # New values at the same addresses: a launch that is kept must read them.
        first.copy_((-first.double()).clamp_(max=127.0) if first.dtype == torch.int8 else -first.double())
        assert_right(kernel, dtype, inputs, callable_of(name)(*inputs.values()))


@gpu
@pytest.mark.parametrize("name", kernel_names())
def test_repeated_calls_on_a_gpu_keep_no_memory_but_workspaces(name: str):
    need_gpu()
    dtype = load_kernel(name).kernel.dtypes[0]
    if not offered(name, dtype):
        pytest.skip(f"{name} {dtype}: not for this architecture")
    _, inputs = cell(name, dtype, "cuda")
    for _ in range(8):
        callable_of(name)(*inputs.values())
    held = torch.cuda.memory_allocated()
    for _ in range(50):
        callable_of(name)(*inputs.values())
    assert torch.cuda.memory_allocated() == held


@gpu
@pytest.mark.parametrize("name", kernel_names())
def test_call_is_right_in_a_cuda_graph_on_new_values(name: str):
    need_gpu()
    dtype = load_kernel(name).kernel.dtypes[0]
    if not offered(name, dtype):
        pytest.skip(f"{name} {dtype}: not for this architecture")
    kernel, inputs = cell(name, dtype, "cuda")
    function = callable_of(name)
    for _ in range(3):
        function(*inputs.values())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = function(*inputs.values())
    first = next(iter(inputs.values()))
    for _ in range(3):
        first.copy_((-first.double()).clamp_(max=127.0) if first.dtype == torch.int8 else -first.double())
        graph.replay()
        assert_right(kernel, dtype, inputs, out)
        assert_right(kernel, dtype, inputs, function(*inputs.values()))


@gpu
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_call_is_right_compiled_on_a_gpu(mode: str):
    need_gpu()
    kernel, inputs = cell("rmsnorm_matmul", "fp16", "cuda")
    function = callable_of("rmsnorm_matmul")
    compiled = torch.compile(lambda *given: function(*given) * 2, fullgraph=True, mode=mode)
    for _ in range(6):
        inputs["x"].neg_()
        assert_right(kernel, "fp16", inputs, compiled(*inputs.values()) / 2)


@gpu
def test_call_is_right_on_a_gpu_for_inputs_of_any_layout_and_on_another_stream():
    need_gpu()
    kernel, inputs = cell("rmsnorm_matmul", "fp16", "cuda")
    apart = {name: torch.stack([one, one], dim=-1)[..., 0] for name, one in inputs.items()}
    unaligned = {}
    for name, one in inputs.items():
        room = torch.empty(one.numel() + 1, dtype=one.dtype, device="cuda")
        unaligned[name] = room[1:].view(one.shape).copy_(one)
    side = torch.cuda.Stream()
    for given in (apart, unaligned):
        assert_right(kernel, "fp16", inputs, callable_of("rmsnorm_matmul")(**given))
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            results = [callable_of("rmsnorm_matmul")(**given) for _ in range(4)]
        torch.cuda.synchronize()
        for out in results:
            assert_right(kernel, "fp16", inputs, out)


@gpu
def test_call_sees_weights_that_the_call_before_wrote():
    need_gpu()
    size = 4096
    x = torch.randn(8, size, device="cuda").half()
    gain, left = torch.ones(size, device="cuda").half(), torch.randn(size, size, device="cuda").half() / 64
    for number in range(20):
        right = torch.randn(size, size, device="cuda").half() / 64
        weight = ledger.kernels.matmul(left, right)
        out = ledger.kernels.rmsnorm_matmul(x, gain, weight)
        torch.cuda.synchronize()
        again = ledger.kernels.rmsnorm_matmul(x, gain, weight)
        assert torch.equal(out, again), number
