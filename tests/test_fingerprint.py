"""The digest of the code behind a class: another one for other code, wherever that stands; the same one elsewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects import Clear, Doubled

from lamina import Fallback, LoggingTensor, ScaledInt8Tensor, WrapperTensor
from lamina.subclasses.core import fingerprint as module
from lamina.subclasses.core.fingerprint import fingerprint

TYPE = """
    import torch
    from lamina import Fallback, WrapperTensor

    class Mine(WrapperTensor):
        elem: torch.Tensor
        fallback = Fallback.UNWRAP

    class Child(Mine):
        pass
    """
RULE = """
    import torch
    from mine import Mine

    @Mine.implements(torch.ops.aten.neg.default)
    def neg(op, self):
        return Mine(op(self.elem) * {factor})
    """
PRINT = """
    import torch, mine, rules
    from lamina.subclasses.core.fingerprint import fingerprint
    print(fingerprint(mine.Mine), fingerprint(mine.Child), mine.Mine(torch.ones(2))._stable_hash_for_caching())
    """


def write(folder: Path, **modules: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(code))


def printed(folder: Path) -> list[str]:
    """The prints of the class, of its child, and a cache key, with the modules of ``folder`` as they are now."""
    for name in ("mine", "rules"):
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    module._of_file.cache_clear()
    mine: Any = sys.modules["mine"]
    return [fingerprint(mine.Mine), fingerprint(mine.Child), mine.Mine(torch.ones(2))._stable_hash_for_caching()]


def printed_elsewhere(folder: Path, code: str = PRINT, **variables: str) -> list[str]:
    """What a process of its own prints, in which the modules of ``folder`` are in reach."""
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout.split()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # files of one second and one size look the same
    for name in ("mine", "rules"):
        monkeypatch.setitem(sys.modules, name, sys)  # takes away what ``printed`` puts there
    write(tmp_path, mine=TYPE, rules=RULE.format(factor=1))
    return tmp_path


def test_it_is_a_short_text() -> None:
    for cls in (ScaledInt8Tensor, LoggingTensor, Clear):
        assert re.fullmatch(r"[0-9a-f]{32}", fingerprint(cls))
        assert fingerprint(cls) == fingerprint(cls)


def test_it_is_the_same_in_every_process(folder: Path) -> None:
    """Also where dicts and sets are in another order, and in another folder."""
    first = printed(folder)
    write(folder / "moved", mine=TYPE, rules=RULE.format(factor=1))
    assert printed(folder / "moved") == first
    elsewhere = [
        printed_elsewhere(place, PYTHONHASHSEED=seed) for seed, place in (("1", folder), ("2", folder / "moved"))
    ]
    assert elsewhere[0] == elsewhere[1]
    assert elsewhere[0][:2] == first[:2]


def test_another_rule_is_another_print(folder: Path) -> None:
    before = printed(folder)
    write(folder, rules=RULE.format(factor=2))
    after = printed(folder)
    assert all(a != b for a, b in zip(before, after, strict=True)), "class, child and cache key"


def test_another_class_body_is_another_print(folder: Path) -> None:
    before = printed(folder)
    write(folder, mine=TYPE + "\n    # another comment is other code, to be safe\n")
    assert all(a != b for a, b in zip(before, printed(folder), strict=True))


def test_what_has_no_rule_of_the_class_does_not_count(folder: Path) -> None:
    before = printed(folder)
    write(folder, bystander="x = 1")
    assert printed(folder) == before


def test_a_rule_of_the_parent_counts_and_one_of_the_child_does_not_change_the_parent(folder: Path) -> None:
    before = printed(folder)
    write(folder, rules=RULE.format(factor=1).replace("import Mine", "import Child as Mine"))
    parent, child, _ = printed(folder)
    assert parent != before[0], "its rule is gone"
    write(folder, rules=RULE.format(factor=2).replace("import Mine", "import Child as Mine"))
    assert printed(folder)[0] == parent
    assert printed(folder)[1] != child


def test_code_of_lamina_counts_for_every_class(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "package", one="x = 1")
    prints = []
    monkeypatch.setattr(module, "_PACKAGE", folder / "package")
    for code in ("x = 1", "x = 2"):
        write(folder / "package", one=code)
        module._of_package.cache_clear()
        module._of_file.cache_clear()
        prints.append([fingerprint(Clear), fingerprint(Doubled)])
    monkeypatch.undo()
    module._of_package.cache_clear()
    module._of_file.cache_clear()
    assert prints[0][0] != prints[1][0]
    assert prints[0][1] != prints[1][1]


def test_all_of_lamina_is_read() -> None:
    """Kernels and helpers, too: a rule is not only the file that it stands in."""
    read = {file.name for file in module._PACKAGE.rglob("*.py")}
    assert {"products.py", "cpu.py", "activations.py", "plain.py", "fingerprint.py"} <= read


def test_a_class_typed_into_a_shell(folder: Path) -> None:
    """There is no file, and it is no error."""
    code = TYPE + "\n    from lamina.subclasses.core.fingerprint import fingerprint\n    print(fingerprint(Mine))\n"
    (text,) = printed_elsewhere(folder, code)
    assert re.fullmatch(r"[0-9a-f]{32}", text)


def test_a_rule_that_is_registered_later_counts() -> None:
    class Late(WrapperTensor):
        elem: torch.Tensor
        fallback = Fallback.UNWRAP

    assert fingerprint(Late) == fingerprint(Late)
    before = Late(torch.ones(2))._stable_hash_for_caching()
    source = Path(__file__).parent / "subjects.py"
    code = compile(
        "@Late.implements(neg)\ndef rule(op, self):\n    return Late(-self.elem)\n",
        str(source),
        "exec",
        dont_inherit=True,
    )
    exec(code, {"Late": Late, "neg": torch.ops.aten.neg.default})  # noqa: S102 - a rule of another file
    assert Late(torch.ones(2))._stable_hash_for_caching() != before


def test_the_cache_key_of_nested_wrappers_holds_the_prints_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from lamina.subclasses.core import copying

    w = LoggingTensor(ScaledInt8Tensor.quantize(torch.ones(2, 3)))
    before = w._stable_hash_for_caching()
    assert before == LoggingTensor(ScaledInt8Tensor.quantize(torch.ones(2, 3)))._stable_hash_for_caching()
    monkeypatch.setattr(copying, "fingerprint", lambda cls: "new" * (cls is ScaledInt8Tensor) or fingerprint(cls))
    assert w._stable_hash_for_caching() != before
