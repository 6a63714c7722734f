"""Offers kernels of fla-core, the kernels of flash-linear-attention (MIT). Gates and beta are the layers' own."""

import torch.nn.functional as F
from fla import ops
from fla.modules.causal_conv1d import causal_conv1d
from fla.modules.norm.fused_norm_gate import rms_norm_gated
from fla.modules.norm.l2norm import l2norm
from fla.modules.norm.layernorm import rms_norm as fla_rms_norm
from fla.modules.token_shift import token_shift as fla_token_shift


def retention(q, k, v):
    """Call the chunked retention."""
    return ops.chunk_retention(q, k, v)[0]


def parallel_retention(q, k, v):
    """Call the parallel retention."""
    return ops.parallel_retention(q, k, v)[0]


def linear_attention(q, k, v):
    """Call the chunked linear attention."""
    return ops.chunk_linear_attn(q, k, v, normalize=False)[0]


def lightning_attention(q, k, v):
    """Call the chunked lightning attention of the first of eight layers."""
    return ops.chunk_lightning_attn(q, k, v, layer_idx=0, num_layers=8)[0]


def simple_gla(q, k, v, gate):
    """Call the chunked linear attention with a gate for each head."""
    return ops.chunk_simple_gla(q, k, v, F.logsigmoid(gate))[0]


def gla(q, k, v, gate):
    """Call the chunked gated linear attention."""
    return ops.chunk_gla(q, k, v, F.logsigmoid(gate) / 16)[0]


def recurrent_gla(q, k, v, gate):
    """Call the recurrent gated linear attention."""
    return ops.fused_recurrent_gla(q, k, v, F.logsigmoid(gate) / 16)[0]


def delta_rule(q, k, v, beta):
    """Call the chunked delta rule."""
    return ops.chunk_delta_rule(q, k, v, beta.sigmoid(), use_qk_l2norm_in_kernel=True)[0]


def gated_delta_rule(q, k, v, gate, beta):
    """Call the chunked gated delta rule."""
    return ops.chunk_gated_delta_rule(q, k, v, F.logsigmoid(gate), beta.sigmoid(), use_qk_l2norm_in_kernel=True)[0]


def recurrent_gated_delta_rule(q, k, v, gate, beta):
    """Call the recurrent gated delta rule."""
    gates = {"g": F.logsigmoid(gate), "beta": beta.sigmoid()}
    return ops.fused_recurrent_gated_delta_rule(q, k, v, **gates, use_qk_l2norm_in_kernel=True)[0]


def kda(q, k, v, gate, beta):
    """Call the chunked Kimi delta attention."""
    return ops.chunk_kda(q, k, v, F.logsigmoid(gate), beta.sigmoid(), use_qk_l2norm_in_kernel=True)[0]


def hgrn(x, gate):
    """Call the recurrent gated linear recurrence."""
    return ops.fused_recurrent_hgrn(x, F.logsigmoid(gate))[0]


def attention(q, k, v):
    """Call the causal attention."""
    return ops.parallel_attn(q, k, v)


def forgetting_attention(q, k, v, gate):
    """Call the forgetting attention."""
    return ops.parallel_forgetting_attn(q, k, v, F.logsigmoid(gate))


def rms_norm(x, weight, eps):
    """Call the RMS norm."""
    return fla_rms_norm(x, weight, None, eps=eps)


def gated_rms_norm(x, gate, weight, eps):
    """Call the gated RMS norm."""
    return rms_norm_gated(x, gate, weight, None, eps=eps)


def l2_norm(x):
    """Call the norm to length one."""
    return l2norm(x)


def causal_conv(x, weight):
    """Call the short causal convolution."""
    return causal_conv1d(x, weight, activation="silu")[0]


def token_shift(x):
    """Call the token shift."""
    return fla_token_shift(x)
