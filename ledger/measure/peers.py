"""Names other libraries' kernels that a bench times where they are installed, by operation.

A peer gets the inputs of a cell and returns its own result, which is compared with float64 before it is timed. What a
library plans on the host for a shape, and copies into its own layout, is done before. Imports the libraries, only when
called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from ledger.errors import MachineError
from ledger.operations import LAYERNORM_EPS, MLA_LATENT, MLA_ROPE, MLA_SCALE, RMSNORM_EPS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Call = Callable[[], Any]
"""Computes the result and returns it, as a tensor of the output's shape."""


@dataclass(frozen=True)
class Peer:
    """Hold a library's way to compute an operation.

    name: as rows name it. distribution: what pip installs. prepare: (inputs by name) -> the call; it may copy the
    inputs into the library's own layout.
    """

    name: str
    distribution: str
    prepare: Callable[[Mapping[str, Tensor]], Call]

    @property
    def release(self) -> str | None:
        """Return the distribution and its version, None where it is not installed."""
        try:
            return f"{self.distribution} {version(self.distribution)}"
        except PackageNotFoundError:
            return None

    def call(self, inputs: Mapping[str, Tensor]) -> Call:
        """Return the call. Raises: MachineError where the library is not installed; whatever the library raises."""
        if self.release is None:
            raise MachineError(f"not installed; pip install {self.distribution}")
        return self.prepare(inputs)


def peers_of(operation: str) -> tuple[Peer, ...]:
    """Return the peers of an operation, such as softmax/1; none where no library is known."""
    return _PEERS.get(operation, ())


def _liger_rmsnorm(inputs: Mapping[str, Tensor]) -> Call:
    from liger_kernel.ops import LigerRMSNormFunction

    # "gemma": all arithmetic in fp32 and one rounding, as ours.
    return lambda: LigerRMSNormFunction.apply(inputs["x"], inputs["gain"], RMSNORM_EPS, 0.0, "gemma")


def _liger_layernorm(inputs: Mapping[str, Tensor]) -> Call:
    from liger_kernel.ops import LigerLayerNormFunction

    return lambda: LigerLayerNormFunction.apply(inputs["x"], inputs["gain"], inputs["bias"], LAYERNORM_EPS)


def _liger_softmax(inputs: Mapping[str, Tensor]) -> Call:
    from liger_kernel.ops import LigerSoftmaxFunction

    return lambda: LigerSoftmaxFunction.apply(inputs["x"])


def _quack_rmsnorm(inputs: Mapping[str, Tensor]) -> Call:
    from quack import rmsnorm

    return lambda: rmsnorm(inputs["x"], inputs["gain"], eps=RMSNORM_EPS)


def _quack_layernorm(inputs: Mapping[str, Tensor]) -> Call:
    from quack.rmsnorm import layernorm_fwd

    gain, bias = inputs["gain"].float(), inputs["bias"].float()
    return lambda: layernorm_fwd(inputs["x"], gain, bias, eps=LAYERNORM_EPS)


def _quack_softmax(inputs: Mapping[str, Tensor]) -> Call:
    from quack import softmax

    return lambda: softmax(inputs["x"])


def _flashinfer_rmsnorm(inputs: Mapping[str, Tensor]) -> Call:
    from flashinfer.norm import rmsnorm

    out = inputs["x"].clone()
    return lambda: rmsnorm(inputs["x"], inputs["gain"], RMSNORM_EPS, out=out)


@functools.cache
def _workspace(device: torch.device) -> Tensor:
    """Return FlashInfer's workspace for partial sums, 128 MiB: calls follow one another, so all share it."""
    import torch

    return torch.empty(128 << 20, dtype=torch.uint8, device=device)


def _flashinfer_decode(inputs: Mapping[str, Tensor]) -> Call:
    import torch
    from flashinfer.decode import BatchDecodeWithPagedKVCacheWrapper

    q, k, v = (inputs[name] for name in ("q", "k", "v"))
    sequences, heads, keys, columns = k.shape
    # A sequence is one page.
    counts = torch.arange(sequences + 1, dtype=torch.int32, device=q.device)
    wrapper = BatchDecodeWithPagedKVCacheWrapper(_workspace(q.device), "HND", use_tensor_cores=q.shape[1] > heads)
    full = torch.full((sequences,), keys, dtype=torch.int32, device=q.device)
    wrapper.plan(counts, counts[:-1], full, q.shape[1], heads, columns, keys, q_data_type=q.dtype, kv_data_type=k.dtype)
    return lambda: wrapper.run(q, (k, v))


def _flashinfer_mla(inputs: Mapping[str, Tensor]) -> Call:
    import torch
    from flashinfer.mla import BatchMLAPagedAttentionWrapper

    q, cache = inputs["q"], inputs["cache"]
    sequences, keys, _ = cache.shape
    counts = torch.arange(sequences + 1, dtype=torch.int32, device=q.device)
    wrapper = BatchMLAPagedAttentionWrapper(_workspace(q.device), backend="fa3")
    wrapper.plan(
        qo_indptr=counts,
        kv_indptr=counts,
        kv_indices=counts[:-1],
        kv_len_arr=torch.full((sequences,), keys, dtype=torch.int32, device=q.device),
        num_heads=q.shape[1],
        head_dim_ckv=MLA_LATENT,
        head_dim_kpe=MLA_ROPE,
        page_size=keys,
        causal=False,
        sm_scale=MLA_SCALE,
        q_data_type=q.dtype,
        kv_data_type=cache.dtype,
    )
    split = [part.contiguous() for both in (q, cache) for part in both.split([MLA_LATENT, MLA_ROPE], -1)]
    parts = dict(zip(("q_nope", "q_pe", "ckv_cache", "kpe_cache"), split, strict=True))
    return lambda: wrapper.run(**parts)


def _flashinfer_prefill(*, causal: bool) -> Callable[[Mapping[str, Tensor]], Call]:
    def prepare(inputs: Mapping[str, Tensor]) -> Call:
        import torch
        from flashinfer.prefill import BatchPrefillWithRaggedKVCacheWrapper

        q, k, v = (inputs[name] for name in ("q", "k", "v"))
        sequences, heads, rows, columns = q.shape
        starts = rows * torch.arange(sequences + 1, dtype=torch.int32, device=q.device)
        wrapper = BatchPrefillWithRaggedKVCacheWrapper(_workspace(q.device), "NHD", backend="fa3")
        wrapper.plan(
            starts, starts, heads, k.shape[1], columns, causal=causal, q_data_type=q.dtype, kv_data_type=k.dtype
        )
        # Rows of all sequences, then heads.
        ragged = [x.transpose(1, 2).reshape(sequences * rows, -1, columns) for x in (q, k, v)]
        return lambda: wrapper.run(*ragged).view(sequences, rows, heads, columns).transpose(1, 2)

    return prepare


def _flashinfer_fp8_blocks(inputs: Mapping[str, Tensor]) -> Call:
    import torch
    from flashinfer.gemm import fp8_blockscale_gemm_sm90

    a, b, a_scale, b_scale = (inputs[name] for name in ("a", "b", "a_scale", "b_scale"))
    # Other rows of the scales lie elsewhere than it reads them.
    if a.shape[0] % 4 or b.shape[0] % 64 or b.shape[1] % 128:
        raise MachineError("fp8_blockscale_gemm_sm90 takes M in multiples of 4, N of 64 and K of 128")
    out = torch.empty(a.shape[0], b.shape[0], dtype=torch.bfloat16, device=a.device)
    # DeepGEMM's kernel. It reads the scales of A as (K / 128, M), which is the layout here.
    return lambda: fp8_blockscale_gemm_sm90(a, b, a_scale, b_scale, out=out)


def _flash_attention_4(*, causal: bool) -> Callable[[Mapping[str, Tensor]], Call]:
    def prepare(inputs: Mapping[str, Tensor]) -> Call:
        from flash_attn.cute import flash_attn_func

        # Rows, then heads.
        q, k, v = (inputs[name].transpose(1, 2).contiguous() for name in ("q", "k", "v"))
        return lambda: flash_attn_func(q, k, v, causal=causal)[0].transpose(1, 2)

    return prepare


def _attention_peers(*, causal: bool) -> tuple[Peer, ...]:
    return (
        _flashinfer(_flashinfer_prefill(causal=causal)),
        Peer("flash_attention_4", "flash-attn-4", _flash_attention_4(causal=causal)),
    )


def _flashinfer(prepare: Callable[[Mapping[str, Tensor]], Call]) -> Peer:
    return Peer("flashinfer", "flashinfer-python", prepare)


_PEERS: Mapping[str, tuple[Peer, ...]] = {
    "rmsnorm/1": (
        Peer("liger", "liger-kernel", _liger_rmsnorm),
        Peer("quack", "quack-kernels", _quack_rmsnorm),
        _flashinfer(_flashinfer_rmsnorm),
    ),
    "layernorm/1": (
        Peer("liger", "liger-kernel", _liger_layernorm),
        Peer("quack", "quack-kernels", _quack_layernorm),
    ),
    "softmax/1": (
        Peer("liger", "liger-kernel", _liger_softmax),
        Peer("quack", "quack-kernels", _quack_softmax),
    ),
    "decode_attention/1": (_flashinfer(_flashinfer_decode),),
    "mla_decode/1": (_flashinfer(_flashinfer_mla),),
    "flash_attention/1": _attention_peers(causal=False),
    "flash_attention_causal/1": _attention_peers(causal=True),
    "matmul_fp8_blocks/1": (_flashinfer(_flashinfer_fp8_blocks),),
}
