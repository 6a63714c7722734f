"""Writes the modules that call a solution or a reference as a callable of the ledger: text only, nothing runs. Pure.

A module is written where the source cannot be called as it is: outputs that it is given, inputs that are held because
no seal can fill them, C++ that must be built, KernelBench's constructor arguments.
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from ledger.errors import InputError
from ledger.problems.axes import parse_expression
from ledger.problems.documents import Definition, Solution

ADAPTER = "ledger_subject"
TORCH_DTYPES = frozenset(
    (
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
        *("int64", "int32", "int16", "int8", "uint8", "bool"),
    )
)
_LONGEST_SIZE = 4000
"""Characters of Python for one size, with the expressions of the axes that it names."""
CPP = (".cu", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp", ".cuh")


@dataclass(frozen=True)
class Held:
    """Say which inputs a module holds, since no seal fills them, and where their values come from.

    inputs: positions and names. values: of tensors from files, as (dtype, dims, hexadecimal). made_by: the function of
    the reference that makes them, given `sizes`.
    """

    inputs: tuple[tuple[int, str], ...] = ()
    values: Mapping[str, tuple[str, tuple[int, ...], str]] = field(default_factory=dict)
    made_by: str | None = None
    sizes: Mapping[str, int | float | bool] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the inputs."""
        return frozenset(name for _, name in self.inputs)


def module_of(path: str) -> str:
    """Return the dotted name of a Python source. Raises: InputError for a path that no import statement can name."""
    parts = PurePosixPath(path).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    if not parts or not all(part.isidentifier() and not keyword.iskeyword(part) for part in parts):
        raise InputError(f"source {path[:80]!r}: is no path of a module; expected letters, digits and _")
    return ".".join(parts)


def function_adapter(definition: Definition, solution: Solution, *, outputs_passed: bool) -> str:
    """Return a module whose run(inputs) calls a solution and returns its outputs; C++ is built on the first call."""
    names = parameters(definition)
    heads = [_docstring(definition, solution), "", "import torch"]
    if PurePosixPath(solution.path).suffix == ".py":
        heads += ["", f"from .{module_of(solution.path)} import {_identifier(solution.function)} as _kernel", ""]
    else:
        heads += [*_built(solution)]
    return "\n".join([*heads, "", *_run(definition, names, outputs_passed=outputs_passed)]) + "\n"


def held_adapter(definition: Definition, solution: Solution | None, held: Held, *, outputs_passed: bool) -> str:
    """Return a module with the modules of torch Subject and Reference, which hold inputs as buffers."""
    names = parameters(definition)
    reference = ".reference" if solution is None else "..reference"
    lines = [_docstring(definition, solution), "", "import torch", "", f"from {reference} import run as _reference"]
    if held.made_by is not None:
        lines += [f"from {reference} import {_identifier(held.made_by)} as _make"]
    if solution is not None and PurePosixPath(solution.path).suffix == ".py":
        lines += [f"from .{module_of(solution.path)} import {_identifier(solution.function)} as _kernel"]
    elif solution is not None:
        lines += [*_built(solution)]
    lines += ["", "", *_values(held), "", "", *_holder(held)]
    given = [name for original, name in names.items() if original not in held.names]
    arguments = [
        f"self.held_{position}" if original in held.names else name
        for position, (original, name) in enumerate(names.items())
    ]
    for title, call in (("Subject", "_kernel"), ("Reference", "_reference")):
        if title == "Subject" and solution is None:
            continue
        lines += ["", "", f"class {title}(_Held):", f"    def forward({', '.join(('self', *given))}):"]
        passed = outputs_passed and title == "Subject"
        lines += [
            f"        {line}" for line in _body(definition, names, call, arguments, outputs_passed=passed, held=held)
        ]
    if solution is None:
        lines += ["", "", "class Subject(Reference):", "    pass"]
    return "\n".join(lines) + "\n"


def model_adapter(what: str) -> str:
    """Return a module with KernelBench's Model, made with the arguments of its own get_init_inputs."""
    return (
        f'"""Makes the Model of {_plain(what)} as KernelBench does."""\n\n'
        "from .problem import Model, get_init_inputs\n\n\n"
        "class Subject(Model):\n"
        "    def __init__(self):\n"
        "        made = get_init_inputs()\n"
        "        if isinstance(made, dict):\n"
        "            super().__init__(**made)\n"
        "        elif len(made) == 2 and isinstance(made[0], list) and isinstance(made[1], dict):\n"
        "            super().__init__(*made[0], **made[1])\n"
        "        else:\n"
        "            super().__init__(*made)\n"
    )


def parameters(definition: Definition) -> dict[str, str]:
    """Return the name of a Python parameter for each input."""
    found: dict[str, str] = {}
    for position, name in enumerate(definition.inputs):
        plain = name.isidentifier() and name.isascii() and not keyword.iskeyword(name) and len(name) <= 64
        right = plain and not name.startswith("_") and name not in ("self", "torch") and name not in found.values()
        found[name] = name if right else f"input_{position}"
    return found


def _run(definition: Definition, names: Mapping[str, str], *, outputs_passed: bool) -> list[str]:
    body = _body(definition, names, "_kernel", list(names.values()), outputs_passed=outputs_passed, held=Held())
    return ["", f"def run({', '.join(names.values())}):", *(f"    {line}" for line in body)]


def _body(
    definition: Definition, names: Mapping[str, str], call: str, arguments: Sequence[str], *, outputs_passed: bool,
    held: Held,
) -> list[str]:  # fmt: skip
    if not outputs_passed:
        return [f"return {call}({', '.join(arguments)})"]
    tensors = dict(zip(names, arguments, strict=True))
    device = next((tensors[name] for name, one in definition.inputs.items() if one.dims is not None), None)
    if device is None:
        raise InputError("no input is a tensor; expected one, which says on which device the outputs are")
    made = []
    for name, one in definition.outputs.items():
        if one.dtype not in TORCH_DTYPES:
            raise InputError(f"output {name}: dtype {one.dtype[:40]} is not one of torch; expected a plain dtype")
        sizes = "".join(f"{_dim(dim, definition, tensors, held)}, " for dim in one.dims or ())
        made.append(f"torch.empty(({sizes}), dtype=torch.{one.dtype}, device={device}.device)")
    listed = "".join(f"\n    {one}," for one in made)
    return [
        *f"_results = ({listed}\n)".split("\n"),
        f"{call}({', '.join((*arguments, '*_results'))})",
        "return _results",
    ]


def _dim(name: str, definition: Definition, tensors: Mapping[str, str], held: Held, depth: int = 0) -> str:
    """Return Python that computes the size of an axis from the inputs. Raises: InputError where none tells."""
    if name not in definition.axes:
        return str(int(name))
    for tensor, one in definition.inputs.items():
        if one.dims is not None and name in one.dims:
            return f"{tensors[tensor]}.shape[{one.dims.index(name)}]"
    axis = definition.axes[name]
    if axis.value is not None:
        return str(axis.value)
    if axis.expression is None or depth > 16:
        if name in held.sizes:
            return str(int(held.sizes[name]))
        raise InputError(f"axis {name}: is of an output only; expected one that an input has")
    tree = parse_expression(axis.expression)
    replaced = {
        node.id: _dim(node.id, definition, tensors, held, depth + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and (node.id in definition.axes)
    }
    if sum(len(replaced.get(node.id, "")) for node in ast.walk(tree) if isinstance(node, ast.Name)) > _LONGEST_SIZE:
        raise InputError(f"axis {name}: its expression is longer than {_LONGEST_SIZE} characters; expected less")
    return f"int({ast.unparse(_Renamed(replaced).visit(tree))})"


class _Renamed(ast.NodeTransformer):
    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.texts:
            raise InputError(f"expression: {node.id[:40]!r} is no axis; expected axes and numbers")
        return ast.parse(self.texts[node.id], mode="eval").body


def _values(held: Held) -> list[str]:
    if held.made_by is not None:
        return [
            "def _values():",
            "    # The problem's own code makes these, from a fixed seed: no seal can fill them.",
            "    with torch.random.fork_rng(devices=[]):",
            "        torch.manual_seed(0)",
            f'        return _make({dict(held.sizes)!r}, torch.device("cpu"))',
        ]
    lines = ["def _values():", "    # From a file of the problem.", "    return {"]
    for name, (dtype, dims, digits) in held.values.items():
        if dtype == "bool":
            made = f"torch.frombuffer(bytearray.fromhex({digits!r}), dtype=torch.uint8).bool()"
        else:
            made = f"torch.frombuffer(bytearray.fromhex({digits!r}), dtype=torch.{dtype})"
        lines.append(f"        {name!r}: {made}.reshape({tuple(dims)!r}),")
    return [*lines, "    }"]


def _holder(held: Held) -> list[str]:
    return [
        "class _Held(torch.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        made = _values()",
        f"        for position, name in {list(held.inputs)!r}:",
        "            if isinstance(made[name], torch.Tensor):",
        '                self.register_buffer(f"held_{position}", made[name])',
        "            else:",
        '                setattr(self, f"held_{position}", made[name])',
    ]


def _built(solution: Solution) -> list[str]:
    flags = solution.flags
    compiled = [path for path in sorted(solution.sources) if path.endswith(_COMPILED)]
    texts = [f"    ({path!r}, {content!r})," for path, content in sorted(solution.sources.items())]
    return [
        "import hashlib",
        "import pathlib",
        "",
        "_SOURCES = (",
        *texts,
        ")",
        "_MODULES = {}",
        "",
        "",
        "def _module():",
        "    if not _MODULES:",
        "        if not torch.cuda.is_available():",
        f"            raise RuntimeError({_cannot(solution)!r})",
        "        from torch.utils import cpp_extension",
        "",
        "        digest = hashlib.sha256(repr(_SOURCES).encode()).hexdigest()[:16]",
        '        name = f"ledger_problem_{digest}"',
        '        folder = pathlib.Path(cpp_extension._get_build_directory(name, False)) / "sources"',
        "        for path, content in _SOURCES:",
        "            (folder / path).parent.mkdir(parents=True, exist_ok=True)",
        "            (folder / path).write_text(content)",
        "        _MODULES[name] = cpp_extension.load(",
        "            name=name,",
        f"            sources=[str(folder / path) for path in {compiled!r}],",
        "            extra_include_paths=[str(folder)],",
        f"            extra_cflags={list(flags.get('cflags', ()))!r},",
        f"            extra_cuda_cflags={list(flags.get('cuda_cflags', ('-O3', '--use_fast_math')))!r},",
        f"            extra_ldflags={list(flags.get('ld_flags', ('-lcuda',)))!r},",
        "        )",
        "    return next(iter(_MODULES.values()))",
        "",
        "",
        "def _kernel(*arguments):",
        "    # Compiled code does not check where a tensor is: a tensor without memory has the address 0.",
        "    if not all(one.is_cuda for one in arguments if isinstance(one, torch.Tensor)):",
        f"        raise RuntimeError({_cannot(solution)!r})",
        f"    return _module().{_identifier(solution.function)}(*arguments)",
        "",
    ]


_COMPILED = (".cu", ".cpp", ".cc", ".cxx", ".c")


def _cannot(solution: Solution) -> str:
    return f"solution {_plain(solution.name)} is C++ or CUDA; expected a CUDA device and nvcc to build it"


def _identifier(name: str) -> str:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise InputError(f"function {name[:80]!r}: is no name of Python; expected letters, digits and _")
    return name


def _docstring(definition: Definition, solution: Solution | None) -> str:
    which = "the reference" if solution is None else f"solution {_plain(solution.name)}"
    return f'"""Calls {which} of {_plain(definition.name)}; written by: ledger import."""'


def _plain(text: str) -> str:
    return "".join(one if one.isascii() and (one.isalnum() or one in " _.-") else "_" for one in text)[:80]
