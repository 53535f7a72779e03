"""A user's class on the layer bench: found, made, checked; what it lacks is a gap, what is wrong is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from lamina.bench.cases import CASES, EAGER
from lamina.bench.layers import Options, main, run
from lamina.bench.named import NameNotFoundError, find_object
from lamina.bench.peers import HAND_WRITTEN
from lamina.bench.timing import Settings
from lamina.bench.trials import LACKING, WRONG, Gap, Trial
from lamina.bench.users import Users
from lamina.conformance.subject import SubjectError

BRIEF = Settings(rounds=2, loop_ns=1, warmup_ns=1, refuse_above=None)
TWO_TENSOR = "torch.testing._internal.two_tensor:TwoTensor"
MODULE = """
import torch
from torch.testing._internal.two_tensor import TwoTensor

calls = []

def twins(plain):
    return TwoTensor(plain, plain.clone())

class Held(torch.Tensor):
    @staticmethod
    def __new__(cls, elem):
        if type(elem) is not torch.Tensor:
            raise TypeError("only plain ones")
        self = torch.Tensor._make_wrapper_subclass(cls, elem.shape, strides=elem.stride(), dtype=elem.dtype)
        self.elem = elem
        return self

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.mm.default:
            raise NotImplementedError("mm has no case")
        out = func(*(a.elem if isinstance(a, cls) else a for a in args), **(kwargs or {}))
        calls.append(func)
        return cls(out + 1 if func is torch.ops.aten.add.Tensor else out)

function = len
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder."""
    name = f"benched_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def trial(user: Users, op: str, layers: int = 1) -> Trial:
    return Trial(next(case for case in CASES if case.op == op), user.subject(), layers, EAGER)


def test_a_class_of_lamina_needs_no_make() -> None:
    subject = Users("lamina:LoggingTensor").subject()
    assert (subject.name, subject.max_layers, subject.tolerance) == ("LoggingTensor", 4, 0)
    for op in ("add", "t", "add_"):
        for layers in (1, 3):
            trial(Users("lamina:LoggingTensor"), op, layers).check()


def test_a_representation_wraps_the_weight_alone_and_has_a_tolerance() -> None:
    user = Users("lamina:ScaledInt8Tensor")
    subject = user.subject()
    assert (subject.weight_only, subject.max_layers) == (True, 1)
    trial(user, "linear").check()
    assert Users("lamina:ScaledInt8Tensor", rtol=0.5).subject().tolerance == 0.5


def test_a_foreign_class_that_takes_more_than_a_tensor_needs_make(module: str) -> None:
    with pytest.raises(SubjectError, match=r"missing 1 required positional argument: 'b'.*--make module:function"):
        Users(TWO_TENSOR).subject()
    user = Users(TWO_TENSOR, f"{module}:twins")
    assert user.subject().max_layers == 4
    trial(user, "add", 2).check()


def test_a_class_that_does_not_nest_has_one_layer(module: str) -> None:
    assert Users(f"{module}:Held").subject().max_layers == 1


def test_an_op_that_is_lacking_is_a_gap_and_a_wrong_one_is_refused(module: str) -> None:
    results = run(Options(("add", "mm", "detach"), user=Users(f"{module}:Held"), settings=BRIEF))
    kinds = {op: results.gap(op, "Held", 1) for op in ("add", "mm")}
    assert [gap.kind for gap in kinds.values() if isinstance(gap, Gap)] == [WRONG, LACKING]
    assert "mm has no case" in str(kinds["mm"])
    assert "off by" in str(kinds["add"])
    assert {figure.op for figure in results.figures if figure.subject == "Held"} == {"detach"}
    assert {figure.subject for figure in results.figures if figure.op == "add"} >= {"plain", HAND_WRITTEN}


def test_nothing_that_is_wrong_is_timed(module: str) -> None:
    prepared = trial(Users(f"{module}:Held"), "add").prepare()
    calls = find_object(f"{module}:calls")
    assert isinstance(prepared, Gap)
    assert calls == [torch.ops.aten.add.Tensor]  # the check's


def test_the_exit_status_tells_of_a_refusal(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--quick", "--cpu-time", "--layers", "1", "--class", f"{module}:Held"]
    assert main([*quick, "--op", "add"]) == 1
    shown = capsys.readouterr().out
    assert "Refused, so not timed" in shown
    assert "Held: add: WrongResultError: wrong result: off by" in shown
    assert next(line.split()[:2] for line in shown.splitlines() if line.startswith("Held ")) == ["Held", "wrong"]
    assert main([*quick, "--op", "mm", "--json"]) == 0
    gaps = json.loads(capsys.readouterr().out)["gaps"]
    assert ("mm", "Held", "lacking") in [(gap["op"], gap["subject"], gap["kind"]) for gap in gaps]


@pytest.mark.parametrize(
    ("cls", "make", "told"),
    [
        ("nonsense", None, "not of the form module:Class"),
        ("no_such_module:X", None, "no module named no_such_module"),
        ("lamina:NoSuch", None, "lamina has no NoSuch"),
        ("lamina:op_table", None, "is no subclass of torch.Tensor"),
        ("lamina:LoggingTensor", "math:no_such", "math has no no_such"),
        ("lamina:LoggingTensor", "builtins:len", "make returned a int"),
    ],
)
def test_what_is_not_there_is_told(cls: str, make: str | None, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--class", cls, *(["--make", make] if make else [])]) == 2
    assert told in capsys.readouterr().err


def test_make_without_a_class_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--make", "math:sqrt"])
    assert "give --class" in capsys.readouterr().err


def test_a_module_that_breaks_is_not_taken_for_missing(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}_broken.py").write_text("import no_such_thing")
    with pytest.raises(ModuleNotFoundError, match="no_such_thing"):
        find_object(f"{module}_broken:X")
    with pytest.raises(NameNotFoundError):
        find_object(f"{module}_absent:X")
