"""The rules of the house that no linter knows: sizes, the direction of imports, one folder for private torch API."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path for init in ROOT.glob("*/__init__.py") for path in init.parent.rglob("*.py"))
# A part may import itself and what stands before it.
ORDER = ["subclasses", "modes", "conformance", "bench", "front"]
# In subclasses/, these bring types together; any other module or folder there stands on core alone.
TOGETHER = {"__init__", "interop", "packing", "parameters"}
# The one folder that may use private torch API; the part that writes wrappers as one does without lamina; and that of
# torch's operator samples, which are nowhere but in torch.testing._internal.
PRIVATE_API = ("subclasses/core/private/", "bench/", "conformance/sweep/")

CORE = ROOT / "subclasses" / "core"
# DecodedView is a wrapper itself, and the fallback that makes one is below all wrappers.
CORE_IMPORTS_DOWN = {("plain", "decoded_view"), ("compiling", "tangent")}

each_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())


def dotted(path: Path) -> str:
    """The import name of a folder or module of the package, `__init__` written out."""
    part, *rest = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(["lamina", *([] if part == "front" else [part]), *rest])


def part_of(name: str) -> str:
    return next((part for part in ORDER if f"{name}.".startswith(f"lamina.{part}.")), "front")


def imports(path: Path) -> Iterator[str]:
    """The full name of each thing that a module imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), dotted(path.parent))
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imports_of_lamina(path: Path) -> list[str]:
    return [name for name in imports(path) if name.partition(".")[0] == "lamina"]


def is_private_torch(name: str) -> bool:
    head, *rest = name.split(".")
    return head == "torch" and any(part.startswith("_") and not part.endswith("__") for part in rest)


def names_of_torch(path: Path) -> Iterator[str]:
    """Every dotted name that a module imports or writes out."""
    yield from imports(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


# Tensors and modules have private attributes as well; an operator may have the name of one.
PRIVATE_ATTRIBUTES = {
    name
    for owner in (torch.Tensor, torch.nn.Module())
    for name in dir(owner)
    if name.startswith("_") and not name.startswith("__") and not hasattr(torch.ops.aten, name)
}


def private_attributes(path: Path) -> set[str]:
    return {name.rpartition(".")[2] for name in names_of_torch(path)} & PRIVATE_ATTRIBUTES


def test_there_are_modules_to_look_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in MODULES} >= {"front", "subclasses", "modes", "bench"}


def test_the_parts_of_the_house_are_known() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in MODULES} <= set(ORDER), "give a new part its place in ORDER"


@each_module
def test_module_and_its_functions_are_short(path: Path) -> None:
    source = path.read_text()
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert len(source.splitlines()) <= 300
    assert {name: lines for name, lines in lengths.items() if lines > 50} == {}


@each_module
def test_imports_point_down(path: Path) -> None:
    own = part_of(dotted(path))
    up = [name for name in imports_of_lamina(path) if ORDER.index(part_of(name)) > ORDER.index(own)]
    # Measurements go through the front door, as a user's code does.
    assert [name for name in up if not (own == "bench" and part_of(name) == "front")] == []


def test_imports_in_the_core_point_up_the_list_of_its_readme() -> None:
    heads = [line.split("|")[1] for line in (CORE / "README.md").read_text().splitlines() if line.startswith("| `")]
    listed = [name for head in heads for name in re.findall(r"`(\w+)(?:\.py|/)`", head)]
    modules = {name: list((CORE / name).glob("*.py")) or [CORE / f"{name}.py"] for name in listed}
    there = [path.stem for path in CORE.glob("*.py")] + [init.parent.name for init in CORE.glob("*/__init__.py")]
    assert sorted([*listed, "__init__"]) == sorted(there)
    core = "lamina.subclasses.core."
    imported = {
        (module, name.removeprefix(core).partition(".")[0])
        for module in listed
        for path in modules[module]
        for name in imports_of_lamina(path)
        if name.startswith(core)
    }
    assert {(a, b) for a, b in imported if a != b and listed.index(a) <= listed.index(b)} == CORE_IMPORTS_DOWN


@each_module
def test_types_stand_on_the_core_alone(path: Path) -> None:
    folder, *rest = path.relative_to(ROOT).with_suffix("").parts
    if folder != "subclasses" or rest[0] in TOGETHER:
        return
    allowed = {"core", rest[0]}
    beside = [name.split(".")[2] for name in imports_of_lamina(path) if name.startswith("lamina.subclasses.")]
    assert set(beside) <= allowed


@each_module
def test_private_torch_api_stays_in_one_folder(path: Path) -> None:
    if path.relative_to(ROOT).as_posix().startswith(PRIVATE_API):
        return
    assert sorted({name for name in names_of_torch(path) if is_private_torch(name)}) == []
    assert private_attributes(path) == set()


def test_private_torch_api_is_recognized() -> None:
    private = [path for path in MODULES if path.parent == CORE / "private"]
    assert any(is_private_torch(name) for path in private for name in names_of_torch(path))
    assert "_backward_hooks" in set[str]().union(*map(private_attributes, private))
    assert not is_private_torch("torch.Tensor.__torch_dispatch__")
