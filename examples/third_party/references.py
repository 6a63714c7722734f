"""Defines what the third-party kernels compute, in plain torch: the references of subjects.yaml.

A reference runs in any floating dtype: in float64 for the comparison, on meta tensors for the work. It returns what the
kernel returns, then the arguments that the kernel changes, in the order of the arguments.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

# Rows


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x over its root mean square, times a weight. Shapes: x (…, H), weight (H,)."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def gemma_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return an RMS norm whose weight is stored less one."""
    return rms_norm(x, 1 + weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the RMS norm of a sum, and the sum."""
    total = x + residual
    return rms_norm(total, weight, eps), total


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return an RMS norm times SiLU of a gate."""
    return rms_norm(x, weight, eps) * F.silu(gate)


def l2_norm(x: Tensor) -> Tensor:
    """Return rows of length one."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Return a layer norm over the last dimension; weight and bias may be wider than x."""
    return F.layer_norm(x, x.shape[-1:], weight.to(x.dtype), bias.to(x.dtype), eps)


def group_norm(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
    """Return a group norm. Shapes: x (N, C, L), weight and bias (C,)."""
    return F.group_norm(x, groups, weight, bias, eps)


def dyt(x: Tensor, alpha: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Return a dynamic tanh (arXiv 2503.10622)."""
    return torch.tanh(alpha * x) * gamma + beta


def softmax(x: Tensor) -> Tensor:
    """Return a softmax over the last dimension."""
    return torch.softmax(x, -1)


def sparsemax(x: Tensor) -> Tensor:
    """Return the projection of each row onto the simplex (arXiv 1602.02068)."""
    ordered = x.sort(-1, descending=True).values
    cumulated = ordered.cumsum(-1) - 1
    ranks = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    support = (ordered * ranks > cumulated).sum(-1, keepdim=True)
    return (x - cumulated.gather(-1, support - 1) / support).clamp_min(0)


# Elements


def swiglu(a: Tensor, b: Tensor) -> Tensor:
    """Return SiLU(a) times b."""
    return F.silu(a) * b


def geglu(a: Tensor, b: Tensor) -> Tensor:
    """Return GELU(a), by tanh, times b."""
    return F.gelu(a, approximate="tanh") * b


def silu_and_mul(x: Tensor) -> Tensor:
    """Return SiLU of the first half of each row times the second half."""
    return swiglu(*x.chunk(2, -1))


def gelu_and_mul(x: Tensor) -> Tensor:
    """Return GELU, by tanh, of the first half of each row times the second half."""
    return geglu(*x.chunk(2, -1))


def relu_squared(x: Tensor) -> Tensor:
    """Return the square of the positive part."""
    return x.clamp_min(0).square()


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Return q and k rotated by halves. Shapes: q (B, H, S, 2 D), k (B, G, S, 2 D), cos and sin (1, S, D)."""
    halves = (x.chunk(2, -1) for x in (q, k))
    cos, sin = cos[:, None], sin[:, None]
    turned = [torch.cat((a * cos - b * sin, b * cos + a * sin), -1) for a, b in halves]
    return turned[0], turned[1]


def rope_cached(positions: Tensor, query: Tensor, key: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
    """Return query and key rotated by halves. Shapes: (T, H · D), cache (P, D): cosines, then sines."""
    cos, sin = (part[:, None] for part in cache[positions].chunk(2, -1))
    turned = []
    for x in (query, key):
        a, b = x.view(x.shape[0], -1, cache.shape[1]).chunk(2, -1)
        turned.append(torch.cat((a * cos - b * sin, b * cos + a * sin), -1).reshape(x.shape))
    return turned[0], turned[1]


def token_shift(x: Tensor) -> Tensor:
    """Return each token's predecessor less the token. Shapes: (B, T, D)."""
    return F.pad(x, (0, 0, 1, -1)) - x


def causal_conv(x: Tensor, weight: Tensor) -> Tensor:
    """Return SiLU of a causal convolution of each channel. Shapes: x (B, T, D), weight (D, W)."""
    width = weight.shape[1]
    padded = F.pad(x, (0, 0, width - 1, 0))
    return F.silu(sum(padded[:, i : i + x.shape[1]] * weight[:, i] for i in range(width)))


def scan(gates: Tensor, tokens: Tensor) -> Tensor:
    """Return h[t] = sigmoid(gates[t]) · h[t - 1] + tokens[t]. Shapes: (B, D, T)."""
    gates = gates.sigmoid()
    state, states = torch.zeros_like(tokens[..., 0]), []
    for t in range(tokens.shape[-1]):
        state = gates[..., t] * state + tokens[..., t]
        states.append(state)
    return torch.stack(states, -1)


# Losses


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    """Return each row's loss. Shapes: x (N, V), target (N,)."""
    return F.cross_entropy(x, target, reduction="none")


def linear_cross_entropy(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Return the mean loss of the logits x · weightᵀ. Shapes: x (N, H), weight (V, H), target (N,)."""
    return F.cross_entropy(x @ weight.T, target)


def linear_cross_entropy_rows(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """Return each row's loss of the logits x · weightᵀ."""
    return F.cross_entropy(x @ weight.T, target, reduction="none")


def kl_div(x: Tensor, target: Tensor) -> Tensor:
    """Return each element's divergence; both are logarithms."""
    return F.kl_div(x, target, reduction="none", log_target=True)


def jsd(x: Tensor, target: Tensor) -> Tensor:
    """Return the Jensen–Shannon divergence per row; both are logarithms."""
    p, q = x.exp(), target.exp()
    middle = ((p + q) / 2).log()
    return (p * (x - middle) + q * (target - middle)).sum() / (2 * x.shape[0])


def tvd(p: Tensor, q: Tensor) -> Tensor:
    """Return each element's share of the total variation distance."""
    return (p - q).abs() / 2


# Products


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return a product. Shapes: a (M, K), b (K, N)."""
    return a @ b


def matmul_relu(a: Tensor, b: Tensor) -> Tensor:
    """Return the positive part of a product."""
    return (a @ b).clamp_min(0)


def grouped_matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return one product for each group. Shapes: a (G, M, K), b (G, N, K)."""
    return a @ b.mT


def int8_matmul(a: Tensor, b: Tensor) -> Tensor:
    """Return a · bᵀ of int8 matrices in int32."""
    return (a.double() @ b.double().T).to(torch.int32)


def int8_matmul_scaled(a: Tensor, b: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Return a · bᵀ of int8 matrices times a scale for each row and column. Shapes: row (M, 1), column (1, N)."""
    return (a.to(row.dtype) @ b.to(row.dtype).T) * row * column


def scaled_matmul(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """Return a · bᵀ of fp8 matrices times two scales, in bf16."""
    product = (a.to(scale_a.dtype) @ b.to(scale_a.dtype).T) * scale_a * scale_b
    return product if product.dtype == torch.float64 else product.bfloat16()


def blockwise_matmul(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """Return a · bᵀ of fp8 matrices with scales of a's 1 × 128 and b's 128 × 128 blocks, in torch's default dtype."""
    kind = torch.promote_types(a_scale.dtype, torch.get_default_dtype())
    wide = a.to(kind) * a_scale.to(kind).repeat_interleave(128, 1)
    return wide @ (b.to(kind) * b_scale.to(kind).repeat_interleave(128, 0).repeat_interleave(128, 1)).T


def w4a16_matmul(x: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
    """Return x times int4 weights, eight in an int32 along K, less 8, scaled by groups of 128 along K."""
    shifts = torch.arange(0, 32, 4, device=packed.device)
    values = ((packed[:, None, :] >> shifts[:, None]) & 15) - 8
    weights = values.reshape(-1, packed.shape[1]).to(scales.dtype) * scales.repeat_interleave(128, 0)
    return x @ weights


# Quantisation


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 rows and their largest magnitudes. Shapes: x (M, N)."""
    largest = x.abs().amax(-1)
    return torch.round(x * (127 / largest[:, None])).to(torch.int8), largest


def quantize_int8(x: Tensor, scale: Tensor) -> Tensor:
    """Return x over |scale| + 0.01 in int8. Shapes: scale (1,)."""
    return torch.round(x / (scale.abs() + 0.01)).clamp(-128, 127).to(torch.int8)


def quantize_blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return fp8 blocks of 128 along rows, and their scales. Shapes: x (M, N)."""
    blocks = x.view(x.shape[0], -1, 128)
    scales = blocks.abs().amax(-1) / 448
    values = (blocks / scales[..., None]).view_as(x)
    exact = x.dtype == torch.float64
    return values if exact else values.to(torch.float8_e4m3fn), scales if exact else scales.float()


def scale_product(product: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return an int8 product times its rows' and columns' largest magnitudes ÷ 127, in fp16."""
    scaled = product.to(rows.dtype) * rows[:, None] * columns / 127**2
    return scaled if rows.dtype == torch.float64 else scaled.half()


def dequantize_blocks(values: Tensor, largest: Tensor, code: Tensor) -> Tensor:
    """Return code[value] times the largest magnitude of its block of 256, in fp16. Shapes: values (N,), code (256,)."""
    found = code[values.long()] * largest.repeat_interleave(256)
    return found if code.dtype == torch.float64 else found.half()


def gemv_4bit(x: Tensor, packed: Tensor, largest: Tensor, code: Tensor) -> Tensor:
    """Return x times 4-bit weights, two in a byte, scaled by blocks of 64. Shapes: x (1, K), packed (N · K ÷ 2, 1)."""
    nibbles = torch.cat((packed >> 4, packed & 15), 1).long()
    weights = (code[nibbles].flatten() * largest.repeat_interleave(64)).view(-1, x.shape[1])
    return x @ weights.to(x.dtype).T


# Moved data


def gather_rows(table: Tensor, ids: Tensor) -> Tensor:
    """Return rows of a table. Shapes: table (V, H), ids (N,)."""
    return table[ids]


# Attention: q (B, H, S, D), k and v (B, G, S, D)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q · kᵀ ÷ √D) · v."""
    return _attention(q, k, v, lambda i, j: None)


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal attention."""
    return _attention(q, k, v, lambda i, j: i >= j)


def window_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Return causal attention to the last `window` keys."""
    return _attention(q, k, v, lambda i, j: (i >= j) & (i - j < window))


def softcap_attention(q: Tensor, k: Tensor, v: Tensor, cap: float) -> Tensor:
    """Return causal attention whose scores are bounded by a tanh."""
    return _attention(q, k, v, lambda i, j: i >= j, score=lambda s: cap * torch.tanh(s / cap))


def smoothed_attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return attention, and the keys less their mean, which gives the same attention."""
    return attention(q, k, v), k - k.mean(2, keepdim=True)


def token_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention. Shapes: q (B, S, H, D), k and v (B, S, G, D)."""
    return attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)


def causal_token_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal attention of (B, S, H, D)."""
    return causal_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)


def decode(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention of one token. Shapes: q (H, D), k and v (S, G, D)."""
    return token_attention(q[None, None], k[None], v[None])[0, 0]


def prefill(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal attention of one sequence. Shapes: q (S, H, D), k and v (S, G, D)."""
    return causal_token_attention(q[None], k[None], v[None])[0]


def forgetting_attention(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
    """Return causal attention of (B, S, H, D), scores less the decay between two tokens. Shapes: gate (B, S, H)."""
    total = F.logsigmoid(gate).cumsum(1).transpose(1, 2).to(v.dtype)
    bias = total[..., :, None] - total[..., None, :]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return _attention(q, k, v, lambda i, j: i >= j, score=lambda s: s + bias).transpose(1, 2)


def paged_attention(q: Tensor, k: Tensor, v: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """Return attention of a token a row to lengths + 1 keys in pages. Shapes: q (B, H, D), k and v (P, page, G, D)."""
    outputs = []
    for row in range(q.shape[0]):
        keys, values = (x[table[row]].flatten(0, 1).transpose(0, 1)[None] for x in (k, v))
        places = torch.arange(keys.shape[2], device=q.device)
        hidden = (places > lengths[row])[None, None, None]
        outputs.append(_attention(q[row][None, :, None], keys, values, lambda i, j, hidden=hidden: ~hidden)[0, :, 0])
    return torch.stack(outputs)


def _attention(q, k, v, visible, score=lambda s: s):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = score(q @ k.mT / math.sqrt(q.shape[-1]))
    mask = visible(torch.arange(q.shape[2], device=q.device)[:, None], torch.arange(k.shape[2], device=q.device))
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -math.inf), -1) @ v


# Linear attention: q and k (B, T, H, K), v (B, T, H, V), q scaled by 1 ÷ √K


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return linear attention, not normalised."""
    return _decaying(q, k, v, torch.zeros_like(q[..., 0]))


def retention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return a retention: linear attention with one decay for each head (arXiv 2307.08621)."""
    heads = torch.arange(q.shape[2], device=q.device, dtype=q.dtype)
    return _decaying(q, k, v, torch.log1p(-torch.exp2(-5 - heads)).expand(q.shape[:3]))


def lightning_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return lightning attention of the first of eight layers (arXiv 2401.04658)."""
    heads = torch.arange(q.shape[2], device=q.device, dtype=q.dtype)
    return _decaying(q, k, v, (-8 / q.shape[2] * heads).expand(q.shape[:3]))


def simple_gla(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
    """Return linear attention with a decay for each token and head. Shapes: gate (B, T, H)."""
    return _decaying(q, k, v, F.logsigmoid(gate))


def gla(q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
    """Return gated linear attention (arXiv 2312.06635). Shapes: gate (B, T, H, K)."""
    return _recurrent(q, k, v, F.logsigmoid(gate) / 16, None)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    """Return the delta rule of keys of length one (arXiv 2406.06484). Shapes: beta (B, T, H)."""
    return _recurrent(l2_norm(q), l2_norm(k), v, None, beta.sigmoid())


def gated_delta_rule(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor) -> Tensor:
    """Return the gated delta rule (arXiv 2412.06464). Shapes: gate and beta (B, T, H)."""
    return _recurrent(l2_norm(q), l2_norm(k), v, F.logsigmoid(gate)[..., None], beta.sigmoid())


def kda(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor) -> Tensor:
    """Return Kimi delta attention (arXiv 2510.26692). Shapes: gate (B, T, H, K), beta (B, T, H)."""
    return _recurrent(l2_norm(q), l2_norm(k), v, F.logsigmoid(gate), beta.sigmoid())


def hgrn(x: Tensor, gate: Tensor) -> Tensor:
    """Return a gated linear recurrence of each channel (arXiv 2311.04823). Shapes: (B, T, D)."""
    return scan(gate.transpose(1, 2), x.transpose(1, 2)).transpose(1, 2)


def _decaying(q, k, v, log_decay):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    total = log_decay.to(v.dtype).cumsum(1).transpose(1, 2)
    scores = q @ k.mT / math.sqrt(q.shape[-1]) * torch.exp(total[..., :, None] - total[..., None, :]).tril()
    return (scores.tril() @ v).transpose(1, 2)


def _recurrent(q, k, v, log_decay, beta):
    state, outputs = v.new_zeros(k.shape[0], k.shape[2], k.shape[3], v.shape[-1]), []
    log_decay, beta = (None if x is None else x.to(v.dtype) for x in (log_decay, beta))
    for t in range(q.shape[1]):
        if log_decay is not None:
            state = state * log_decay[:, t].exp()[..., None]
        value = v[:, t]
        if beta is not None:
            value = (value - (k[:, t, :, None] @ state)[:, :, 0]) * beta[:, t, :, None]
        state = state + k[:, t, :, :, None] * value[:, :, None]
        outputs.append((q[:, t, :, None] @ state)[:, :, 0] / math.sqrt(q.shape[-1]))
    return torch.stack(outputs, 1)
