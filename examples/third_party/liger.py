"""Offers kernels of liger-kernel (BSD-2-Clause)."""

from liger_kernel.transformers import functional


def rms_norm(x, weight, eps):
    """Call the RMS norm; its backward pass keeps the gradient that it gets."""
    return functional.liger_rms_norm(x, weight, eps, in_place=False)


def fused_add_rms_norm(x, residual, weight, eps):
    """Call the RMS norm of a sum."""
    return functional.liger_fused_add_rms_norm(x, residual, weight, eps, in_place=False)


def layer_norm(x, weight, bias, eps):
    """Call the layer norm."""
    return functional.liger_layer_norm(x, weight, bias, eps)


def group_norm(x, weight, bias, groups, eps):
    """Call the group norm."""
    return functional.liger_group_norm(x, weight, bias, x.shape[1], groups, eps)


def dyt(x, alpha, gamma, beta):
    """Call the dynamic tanh."""
    return functional.liger_dyt(x, alpha, gamma, beta)


def softmax(x):
    """Call the softmax."""
    return functional.liger_softmax(x)


def sparsemax(x):
    """Call the sparsemax."""
    return functional.liger_sparsemax(x)


def swiglu(a, b):
    """Call SwiGLU."""
    return functional.liger_swiglu(a, b)


def geglu(a, b):
    """Call GEGLU."""
    return functional.liger_geglu(a, b)


def relu_squared(x):
    """Call the squared ReLU."""
    return functional.liger_relu_squared(x)


def rope(q, k, cos, sin):
    """Call the rotary embedding."""
    return functional.liger_rope(q, k, cos, sin, rotary_dim=q.shape[-1])


def cross_entropy(x, target):
    """Call the cross-entropy of each row."""
    return functional.liger_cross_entropy(x, target, reduction="none")


def linear_cross_entropy(x, weight, target):
    """Call the cross-entropy that makes its logits by chunks."""
    return functional.liger_fused_linear_cross_entropy(x, weight, target)


def kl_div(x, target):
    """Call the Kullback–Leibler divergence of each element."""
    return functional.liger_kl_div(x, target, reduction="none", log_target=True)


def jsd(x, target):
    """Call the Jensen–Shannon divergence."""
    return functional.liger_jsd(x, target)


def tvd(p, q):
    """Call the total variation distance of each element."""
    return functional.liger_tvd(p, q, reduction="none")
