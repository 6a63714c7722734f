"""Calls torch: for the CPU implementation of a kernel, and as the library that it is compared with on a GPU.

Imports torch, only when a launch is prepared. A kernel's functions get torch as an argument, so that its model loads
without torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError
from ledger.kernel import Config, Launch, Prepare, keeping
from ledger.records import Dtype

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["compiled", "dtype_name", "keeping", "library", "scaled_dot_product"]


def dtype_name(tensor: Tensor, kernel: str) -> Dtype:
    """Return the name of a tensor's dtype. kernel: for the message. Raises: InputError for one with no kernel."""
    import torch

    names: dict[object, Dtype] = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
    if tensor.dtype not in names:
        raise InputError(f"{kernel}: dtype is {tensor.dtype}; expected float16, bfloat16 or float32")
    return names[tensor.dtype]


def library(call: Callable[..., object], *names: str) -> Prepare:
    """Return how to prepare `call(torch, out, *inputs)`.

    call: writes to `out`, or returns its result, of which the latest is kept. names: the inputs, in order.
    """

    def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        import torch

        chosen = [inputs[name] for name in names]
        return keeping(lambda: call(torch, out, *chosen))

    return prepare


def compiled(make: Callable[[Any], Callable[..., Tensor]], *names: str, mode: str | None = None) -> Prepare:
    """Return how to prepare what torch.compile makes of a function.

    make: takes torch and returns the function to compile; a module-level function, as it is called once for each mode.
    names: the inputs that the function takes, in order.
    """

    def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        function = _compiled(make, mode)
        chosen = [inputs[name] for name in names]
        return keeping(lambda: function(*chosen))

    return prepare


@functools.cache
def _compiled(make: Callable[[Any], Callable[..., Tensor]], mode: str | None) -> Callable[..., Tensor]:
    import torch

    # One compiled function for all shapes; without this the ninth shape would silently run eagerly.
    torch._dynamo.config.recompile_limit = 1024
    function: Callable[..., Tensor] = torch.compile(make(torch), mode=mode, dynamic=False)
    return function


def scaled_dot_product(backend: str, *, causal: bool = False, decode: bool = False) -> Prepare:
    """Return how to prepare torch's scaled_dot_product_attention of q, k and v.

    backend: a name of torch.nn.attention.SDPBackend. decode: q is (B, HQ, D), one query a sequence.
    """

    def prepare(inputs: Mapping[str, Tensor], out: Tensor, config: Config) -> Launch:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        query = inputs["q"].unsqueeze(2) if decode else inputs["q"]
        k, v = inputs["k"], inputs["v"]
        grouped = query.shape[1] != k.shape[1]
        chosen = getattr(SDPBackend, backend)

        def attend() -> Tensor:
            with sdpa_kernel(chosen):
                attended: Tensor = torch.nn.functional.scaled_dot_product_attention(
                    query, k, v, is_causal=causal, enable_gqa=grouped
                )
            return attended

        return keeping(attend)

    return prepare
