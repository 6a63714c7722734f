"""Calls a callable on an input set: binds arguments, makes gradients, keeps results. Imports torch when called."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ledger.callables.argument_list import scalar_value
from ledger.callables.subject import Pass, Subject
from ledger.errors import CannotRun, InputError

if TYPE_CHECKING:
    import torch

_COMPILED = "_orig_mod."
PARAMETER, BUFFER, GRADIENT = "parameter:", "buffer:", "gradient:"


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a nested result, in order; numbers become tensors, None and text are left out."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, bool | int | float):
        yield torch.tensor(value)
    elif isinstance(value, Mapping):
        for key in value:
            yield from tensors_in(value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors_in(getattr(value, name))


def module_tensors(function: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters and the floating buffers of a module, each once, named as inputs; none of a function.

    Integer buffers hold positions, tables or masks: they keep the values that the module's code gives them.
    """
    import torch

    if isinstance(function, torch.nn.Module):
        for name, parameter in function.named_parameters():
            yield PARAMETER + name.removeprefix(_COMPILED), parameter
        for name, buffer in function.named_buffers():
            if buffer.is_floating_point():
                yield BUFFER + name.removeprefix(_COMPILED), buffer


def with_tensors(function: Any, inputs: Mapping[str, torch.Tensor]) -> Any:
    """Return a copy of a module that holds these parameters and buffers; a function as it is."""
    import torch

    if not isinstance(function, torch.nn.Module):
        return function
    memo: dict[int, Any] = {}
    for name, old in module_tensors(function):
        if name not in inputs:
            raise InputError(
                f"{name} of the reference is none of the callable's; expected a module with the same names"
            )
        new = inputs[name]
        if name.startswith(PARAMETER):
            new = torch.nn.Parameter(new, requires_grad=old.requires_grad)
        memo[id(old)] = new
    device = next(iter(inputs.values())).device if inputs else torch.device("cpu")
    for buffer in function.buffers():
        if id(buffer) not in memo and buffer.device != device:
            memo[id(buffer)] = buffer.to(device)
    return copy.deepcopy(function, memo)


def kept_form(value: Any) -> Any:
    """Return a result as it is kept: other containers than Python's own become a list of their tensors, at once.

    So nothing that a container computes when it is read is left for later.
    """
    import torch

    if type(value) is torch.Tensor:
        return value
    if type(value) in (tuple, list) and all(type(one) is torch.Tensor for one in value):
        return value
    return list(tensors_in(value))


class Results(list["torch.Tensor"]):
    """Hold the tensors of a result. views: of each, whether it is memory of an input that no call changed."""

    views: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Bound:
    """Hold a callable with the arguments of one call."""

    function: Callable[..., Any]
    positional: tuple[Any, ...]
    named: Mapping[str, Any]

    def __call__(self) -> Any:
        """Call it."""
        return self.function(*self.positional, **self.named)


def check_signature(function: Any, subject: Subject) -> None:
    """Check that a callable takes the arguments described, by name or by position; where it has no signature, nothing.

    Raises: CannotRun, naming what is missing.
    """
    import torch

    names = [one.name for one in subject.arguments]
    try:
        signature = inspect.signature(function.forward if isinstance(function, torch.nn.Module) else function)
    except (TypeError, ValueError):
        return
    with suppress(TypeError):
        signature.bind(**dict.fromkeys(names))
        return
    taken = [name for name in names if name in signature.parameters]
    rest = any(one.kind is one.VAR_POSITIONAL for one in signature.parameters.values())
    if taken and len(taken) < len(names) and not rest:
        raise CannotRun(
            f"{subject.name}{signature}: got {', '.join(names)}; expected --args that it takes, all by its own names "
            "or all by position"
        )
    try:
        signature.bind(*names)
    except TypeError as error:
        needed = [one.name for one in signature.parameters.values() if one.default is one.empty and one.kind in _NAMED]
        known = set(names).intersection(signature.parameters)
        missing = [name for name in needed if name not in known] if known else needed[len(names) :]
        if missing:
            raise CannotRun(f"{subject.name}: also needs {', '.join(missing)}; expected it in --args") from error
        raise CannotRun(
            f"{subject.name}{signature}: got {', '.join(names) or 'no arguments'}; expected --args that it takes "
            f"({error})"
        ) from error


_NAMED = (
    inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY,
)  # fmt: skip


def bind(function: Any, subject: Subject, inputs: Mapping[str, torch.Tensor]) -> Bound:
    """Return a call: by name where the signature has these names, else by position in the order of the arguments."""
    import torch

    values = {one.name: scalar_value(one) if one.dims is None else inputs[one.name] for one in subject.arguments}
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        inspect.signature(called).bind(**values)
    except (TypeError, ValueError):
        return Bound(function, tuple(values.values()), {})
    return Bound(function, (), values)


class Call:
    """Call a subject on one input set; the latest result is kept until the next call.

    forward: the results of the callable and the inputs that it changed. backward: the gradients of its inputs and
    parameters, from a forward pass that is made once. both: a forward pass, its results and its gradients.
    """

    def __init__(self, function: Any, subject: Subject, inputs: Mapping[str, torch.Tensor], *, run: Pass) -> None:
        """Bind the arguments; a backward pass also makes its forward pass."""
        self.inputs = inputs
        self._run: Pass = run
        self._versions = {name: tensor._version for name, tensor in inputs.items()}
        self._kept: list[Any] = []
        self._written: frozenset[str] = frozenset()
        self._gradients = [tensor for name, tensor in inputs.items() if name.startswith(GRADIENT)]
        if run != "forward":
            inputs = {name: _leaf(name, tensor) for name, tensor in inputs.items()}
        made = with_tensors(function, inputs)
        self._bound = bind(made, subject, inputs)
        self._leaves = list(_leaves(inputs, made)) if run != "forward" else []
        self._outputs: list[torch.Tensor] = []
        self._prepare()

    def __call__(self) -> None:
        """Call it. Raises: whatever the callable raises; InputError for a pass backward that nothing needs."""
        import torch

        # Dropped first, so that the new result can reuse the old one's memory.
        self._kept.clear()
        if self._run == "forward":
            with torch.no_grad():
                self._kept.append(kept_form(self._bound()))
        elif self._run == "backward":
            self._kept.append(self._backward(self._outputs))
        else:
            outputs = self._forward()
            self._kept.append((outputs, self._backward(outputs)))

    def results(self) -> Results:
        """Return the tensors of the latest result, in order, then the inputs that were changed in place."""
        found = self.returned()
        ids = {id(tensor) for tensor in found}
        written = self.changed()
        changed = [tensor for tensor in written if id(tensor) not in ids]
        results = Results(tensor.detach() for tensor in (*found, *changed))
        read = {_memory(tensor) for tensor in self.inputs.values()} - {_memory(tensor) for tensor in written}
        results.views = tuple(_memory(one) in read or _repeats(one) for one in results)
        return results

    def returned(self) -> list[torch.Tensor]:
        """Return the tensors of the latest result as the callable returned them."""
        return list(tensors_in(self._kept))

    def renewable(self) -> tuple[str, ...]:
        """Return the inputs that may get other values between calls: a forward pass that is made once keeps its own."""
        if self._run == "backward":
            return tuple(name for name in self.inputs if name.startswith(GRADIENT))
        return tuple(name for name in self.inputs if not name.startswith((PARAMETER, BUFFER)))

    @property
    def writes(self) -> bool:
        """Tell whether a call changes an input."""
        return bool(self.changed())

    def changed(self) -> list[torch.Tensor]:
        """Return the inputs that a call has changed in place."""
        versions = self._versions
        return [
            tensor for name, tensor in self.inputs.items() if name in self._written or tensor._version != versions[name]
        ]

    def differing(self, inputs: Mapping[str, torch.Tensor]) -> frozenset[str]:
        """Return the names of the inputs that have other values than these."""
        import torch

        return frozenset(name for name, tensor in self.inputs.items() if not torch.equal(tensor.detach(), inputs[name]))

    def note_written(self, names: frozenset[str]) -> None:
        """Count inputs as changed by every call, as a kernel does without telling torch."""
        self._written = names

    def _prepare(self) -> None:
        self._outputs = self._forward() if self._run == "backward" else []

    def differentiable(self) -> list[torch.Tensor]:
        """Return the results of a forward pass that take a gradient."""
        return self._forward()

    def restore(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Give every input its first value again, in the same memory; a backward pass makes its forward pass again."""
        import torch

        with torch.no_grad():
            for name, tensor in self.inputs.items():
                tensor.detach().copy_(inputs[name])
        self._versions = {name: tensor._version for name, tensor in self.inputs.items()}
        self._kept.clear()
        self._prepare()

    def _forward(self) -> list[torch.Tensor]:
        import torch

        with torch.enable_grad():
            return [tensor for tensor in tensors_in(self._bound()) if tensor.requires_grad]

    def _backward(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        import torch

        if not outputs or not self._leaves:
            raise InputError("backward: no result needs a gradient; expected --pass forward")
        if len(self._gradients) != len(outputs):
            raise InputError(
                f"backward: {len(outputs)} results need a gradient; expected {len(self._gradients)}, as on meta tensors"
            )
        retain = self._run == "backward"
        found = torch.autograd.grad(
            outputs, self._leaves, self._gradients, retain_graph=retain, allow_unused=True, materialize_grads=False
        )
        return [gradient for gradient in found if gradient is not None]


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _repeats(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has more elements than memory, as an expanded one."""
    return bool(tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes())


def _leaf(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that shares memory and takes a gradient, where an argument can have one."""
    plain = name.startswith((PARAMETER, BUFFER, GRADIENT)) or not tensor.is_floating_point()
    return tensor if plain else tensor.detach().requires_grad_()


def _leaves(inputs: Mapping[str, torch.Tensor], made: Any) -> Iterator[torch.Tensor]:
    import torch

    yield from (tensor for tensor in inputs.values() if tensor.requires_grad)
    if isinstance(made, torch.nn.Module):
        yield from (parameter for parameter in made.parameters() if parameter.requires_grad)
