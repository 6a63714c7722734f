"""Names other libraries' kernels that a bench times where they are installed, by operation.

A peer gets the inputs of a cell and returns its own result, which is compared with float64 before it is timed.
Imports the libraries, only when called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from ledger.errors import MachineError
from ledger.operations import LAYERNORM_EPS, RMSNORM_EPS

if TYPE_CHECKING:
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


_PEERS: Mapping[str, tuple[Peer, ...]] = {
    "rmsnorm/1": (
        Peer("liger", "liger-kernel", _liger_rmsnorm),
        Peer("quack", "quack-kernels", _quack_rmsnorm),
        Peer("flashinfer", "flashinfer-python", _flashinfer_rmsnorm),
    ),
    "layernorm/1": (
        Peer("liger", "liger-kernel", _liger_layernorm),
        Peer("quack", "quack-kernels", _quack_layernorm),
    ),
    "softmax/1": (
        Peer("liger", "liger-kernel", _liger_softmax),
        Peer("quack", "quack-kernels", _quack_softmax),
    ),
}
