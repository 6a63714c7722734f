"""Reads a problem of KernelBench, a Python file with Model, get_inputs and get_init_inputs, without running it. Pure.

Sizes come from the constants at the top of the file and from get_inputs, as far as they are arithmetic and calls such
as torch.rand(batch_size, dim). Source: ScalingIntelligence/KernelBench, README.md and src/kernelbench/dataset.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ledger.callables.argument_list import MAX_KEYS, parse_arguments, with_keys
from ledger.errors import InputError
from ledger.problems.adapters import ADAPTER, model_adapter
from ledger.problems.axes import shape_keys
from ledger.problems.cells import MAX_CELL, Cell, Skipped, Subjects
from ledger.problems.static_inputs import Made, StaticInputs, function_named


def is_problem(tree: ast.Module) -> bool:
    """Tell whether a module has the class Model and the functions get_inputs and get_init_inputs."""
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return "Model" in classes and {"get_inputs", "get_init_inputs"} <= functions


def parse_module(data: bytes, *, what: str) -> ast.Module:
    """Return the tree of a Python file. Raises: InputError."""
    try:
        return ast.parse(data.decode("utf-8-sig"))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{what}: is not Python ({error}); expected a problem of KernelBench") from error


def model_subject(data: bytes, *, name: str, package: str) -> Subjects:
    """Return the modules and the cell of a problem; where its inputs cannot be read, the reason."""
    found = Subjects(files={"problem.py": data, f"{ADAPTER}.py": model_adapter(name).encode()})
    tree = parse_module(data, what=name)
    kernel = f"{package}.{ADAPTER}:Subject"
    try:
        values = StaticInputs(tree).values()
        args, shape = _described(tree, values, kernel)
    except InputError as error:
        found.skipped.append(Skipped(name, str(error)))
    except RecursionError:
        found.skipped.append(Skipped(name, "get_inputs is nested too deep; expected plain calls"))
    else:
        found.cells.append(Cell(kernel=kernel, args=args, shape=shape, definition=name, solution=None, uuid=""))
    return found


def _described(tree: ast.Module, values: Sequence[Any], kernel: str) -> tuple[str, dict[str, int]]:
    """Return the list of arguments and the shape."""
    names = list(_parameters(tree, len(values)))
    if not any(isinstance(one, Made) and one.dtype.startswith(("fp", "bf", "int8")) for one in values):
        raise InputError("get_inputs returns no floating tensor; expected one, whose dtype selects the roof")
    fixed = _fixed_names(tree)
    used = {
        size.name: size.value
        for one in values
        if isinstance(one, Made)
        for size in one.dims
        if size.name is not None and size.name not in fixed
    }
    keys: dict[str, str] = {}
    for short in (False, True) if len(used) <= MAX_KEYS else ():
        keys = shape_keys(used, short=short)
        length = len(kernel) + 10 + sum(1 + len(key) + len(str(used[name])) for name, key in keys.items())
        if length <= MAX_CELL:
            break
    else:
        keys = {}
    listed = [f"{name}={_argument(value, keys)}" for name, value in zip(names, values, strict=True)]
    args, shape = " ".join(listed), {key: used[name] for name, key in keys.items()}
    # One list that a campaign refuses would keep all its other cells from being sealed.
    with_keys(parse_arguments(args), shape)
    return args, shape


def _argument(value: Any, keys: Mapping[str, str]) -> str:
    if isinstance(value, Made):
        dims = ",".join(keys.get(size.name or "", str(size.value)) for size in value.dims)
        return f"{value.dtype}[{dims}]" + (f"<{value.below}" if value.below is not None else "")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise InputError(f"get_inputs returns a value of type {type(value).__name__}; expected tensors and numbers")


def _parameters(tree: ast.Module, count: int) -> Iterator[str]:
    """Yield the names of forward's parameters, then numbered ones."""
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    forward = next((node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward"), None)
    names = [] if forward is None else [one.arg for one in (*forward.args.posonlyargs, *forward.args.args)][1:]
    for number in range(count):
        yield names[number] if number < len(names) and len(names[number]) <= 64 else f"input_{number}"


def _fixed_names(tree: ast.Module) -> set[str]:
    """Return the constants that get_init_inputs depends on: the model is made with them, so they are no keys."""
    needs = {
        target.id: {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found: set[str] = set()
    pending = [one.id for one in ast.walk(function_named(tree, "get_init_inputs")) if isinstance(one, ast.Name)]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += needs.get(name, ())
    # A constant that is made from one of these changes with it.
    return found | {name for name, others in needs.items() if others & found}
