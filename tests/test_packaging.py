"""What a user gets: the wheel holds the tree, `import lamina` stays light, the front door's names are there."""

from __future__ import annotations

import inspect
import json
import shutil
import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from types import FunctionType, ModuleType
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

import lamina

ROOT = Path(__file__).resolve().parent.parent
PARTS = sorted(init.parent for init in ROOT.glob("*/__init__.py"))
DOCUMENTED = (FunctionType, classmethod, staticmethod, property)
# Parts of torch that cost over 100 ms and that `import torch` leaves out.
SLOW_PARTS = {"torch._dynamo", "torch._inductor", "torch.testing._internal", "torch.utils.tensorboard"}


def part_files(folder: Path) -> set[str]:
    """The wheel's names of all files in one part of the package."""
    top = "lamina" if folder.name == "front" else f"lamina/{folder.name}"
    return {
        f"{top}/{file.relative_to(folder).as_posix()}"
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """The wheel, built from a copy of the tree, with what is installed here."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in PARTS:
        shutil.copytree(folder, copy / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist"]
    built = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = (copy / "dist").iterdir()
    return ZipFile(path)


def requirements(wheel: ZipFile) -> list[Requirement]:
    metadata = Parser().parsestr(read(wheel, "METADATA"))
    return [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]


def read(wheel: ZipFile, name: str) -> str:
    (path,) = (path for path in wheel.namelist() if path.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def test_wheel_holds_the_files_of_the_tree(wheel: ZipFile) -> None:
    in_tree = set[str]().union(*map(part_files, PARTS))
    in_wheel = {name for name in wheel.namelist() if ".dist-info/" not in name}
    missing, extra = sorted(in_tree - in_wheel), sorted(in_wheel - in_tree)
    assert not missing, f"add the folder to packages, or the file to package-data, in pyproject.toml: {missing}"
    assert not extra, f"in the wheel, but not in the tree: {extra}"
    assert {"lamina/py.typed", "lamina/subclasses/core/README.md"} <= in_wheel


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {module.parent for part in PARTS for module in part.rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_no_folder_at_the_root_hides_the_installed_package() -> None:
    assert not (ROOT / "lamina").exists(), "Python started in the root would import it instead of the installed package"


def test_wheel_has_license_and_command(wheel: ZipFile) -> None:
    assert read(wheel, "licenses/LICENSE").startswith("BSD 3-Clause License")
    assert "lamina = lamina.cli:main" in read(wheel, "entry_points.txt")


def test_constraints_pin_each_requirement_within_its_range(wheel: ZipFile) -> None:
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pins = [Requirement(line) for line in lines if line]
    ours = {pin.name: pin for pin in pins if pin.marker is None or pin.marker.evaluate()}
    required = {requirement.name: requirement for requirement in requirements(wheel) if requirement.name != "lamina"}
    assert sorted(ours) == sorted(required)
    for name, pin in ours.items():
        ((operator, version),) = ((each.operator, each.version) for each in pin.specifier)
        assert operator == "=="
        assert required[name].specifier.contains(version), f"{pin} is outside of {required[name]}"


def test_import_lamina_stays_light(tmp_path: Path) -> None:
    code = """
import json, sys
import torch
before = set(sys.modules)
import lamina
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    added = set(json.loads(ran.stdout))
    packages = {name.partition(".")[0] for name in added} - sys.stdlib_module_names
    assert "lamina" in packages
    assert packages <= {"lamina", "torch", "numpy"}, "import other packages where they are used"
    assert added & SLOW_PARTS == set()


def test_exported_names() -> None:
    assert lamina.__all__ == sorted(lamina.__all__)
    assert [name for name in lamina.__all__ if not hasattr(lamina, name)] == []
    found = [
        name for name, value in vars(lamina).items() if not (name.startswith("_") or isinstance(value, ModuleType))
    ]
    assert set(found) - {"annotations"} <= set(lamina.__all__), "a name of the front door is not in lamina.__all__"


def test_every_error_and_warning_can_be_caught_by_a_public_name() -> None:
    public = [*vars(lamina).values(), *vars(lamina.modes).values()]
    raised = {
        value
        for name, module in list(sys.modules.items())
        if name.startswith(("lamina.subclasses", "lamina.modes"))
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, (lamina.LaminaError, Warning))
    }
    assert lamina.CodecError in raised
    assert sorted(error.__name__ for error in raised if error not in public) == []


def test_public_names_and_their_methods_say_what_they_are() -> None:
    exported = [(name, getattr(lamina, name)) for name in lamina.__all__]
    classes = [(name, value) for name, value in exported if isinstance(value, type)]
    methods = [
        (f"{name}.{member}", getattr(cls, member))
        for name, cls in classes
        for member, value in vars(cls).items()
        if not member.startswith("_") and isinstance(value, DOCUMENTED)
    ]
    assert [name for name, value in exported + methods if not inspect.getdoc(value)] == []
