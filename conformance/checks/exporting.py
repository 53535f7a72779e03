"""``torch.export`` of modules with wrapped parameters, and what is in the program afterwards."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim, ExportedProgram, export

from ...subclasses.core.private import TRACERS, package_ahead_of_time
from ..check import check
from ..graphs import eagerly, needs_the_protocol, plain_of
from ..outcome import KnownLimit, MismatchError, NotApplicable, first_line
from ..subject import VALUED, Kind, Subject, leaves_of
from .compiled_steps import model_of
from .compiling import needs_a_compiler

DECOMPOSED = "run_decompositions() of torch 2.13 loses count of wrapped inputs and outputs that hold several tensors"


def _exported(subject: Subject, model: nn.Module, *, strict: bool = False, **options: Any) -> ExportedProgram:
    """The program for a model that runs, frozen: an inner tensor of integers can't require grad."""
    for each in (*model.parameters(), *model.buffers()):
        needs_the_protocol(each)
    eagerly(model, _input(subject))
    return export(model, (_input(subject),), strict=strict, **options)


def _input(subject: Subject, rows: int = 5) -> torch.Tensor:
    return subject.plain(rows, 8, seed=20 + rows)


class _Plain(nn.Module):
    """Layers, and then the values of what it gives: a program's results are best plain."""

    def __init__(self, subject: Subject, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers.eval()
        self.cls = subject.cls
        self.read = next(iter(_readers(subject).values()), subject.decode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.layers(x)
        values: torch.Tensor = self.read(result) if isinstance(result, self.cls) else result
        return values


def _frozen(subject: Subject) -> nn.Module:
    return _Plain(subject, model_of(subject, grad=False))


def _readers(subject: Subject) -> dict[str, Any]:
    """The ways to plain values that code in a model has: methods of the class, and matrices inside."""
    instance = subject.new(4, 8)
    needs_the_protocol(instance)
    names = ("to_plain", "dequantize")
    methods = [n for n in names if getattr(subject.cls, n, None) not in (None, getattr(torch.Tensor, n, None))]
    inner = [n for n in instance.__tensor_flatten__()[0] if getattr(instance, n).shape == (4, 8)]
    return {**{f"w.{n}()": _calling(n) for n in methods}, **{f"w.{n}": _getting(n) for n in inner}}


def _same_outputs(subject: Subject, call: str, program: Any, model: nn.Module, rows: tuple[int, ...] = (5,)) -> None:
    for each in rows:
        x = _input(subject, each)
        got, expected = program(x), model(x)
        subject.same(f"{call}, {each} rows", plain_of(subject, got), plain_of(subject, expected), loosely=True)


@check("export", "torch.export fails on a model with wrapped parameters: users unwrap by hand", kinds=VALUED)
def modules_export(subject: Subject) -> None:
    """Not strict, the default: the program computes what the module computes."""
    model = _frozen(subject)
    _same_outputs(subject, "export(model)(x)", _exported(subject, model).module(), model)


@check("export", "torch.export with strict=True fails on a model with wrapped parameters", kinds=VALUED)
def modules_export_strictly(subject: Subject) -> None:
    """Strict export runs Dynamo first: it traces the class's code with tensors of the tracer."""
    model = _frozen(subject)
    program = _exported(subject, model, strict=True)
    _same_outputs(subject, "export(model, strict=True)(x)", program.module(), model)


@check("export", "a model whose wrapped parameters require grad can't be exported", kinds=VALUED)
def trainable_modules_export(subject: Subject) -> None:
    """Parameters that require grad, as in training: export takes the model as it is."""
    model = _Plain(subject, model_of(subject))
    program = _exported(subject, model)
    _same_outputs(subject, "export(trainable model)(x)", program.module(), model)


@check(
    "export", "the exported program still holds instances, and the class has to be there where it runs", kinds=VALUED
)
def programs_hold_plain_tensors(subject: Subject) -> None:
    """After ``run_decompositions()``, strict or not, state and constants are plain, the graph has values of plain
    tensors only, and each old name is part of a new one, so that a checkpoint can be mapped."""
    for strict in (False, True):
        model = _frozen(subject)
        program = _exported(subject, model, strict=strict).run_decompositions()
        call = f"export(model, strict={strict}).run_decompositions()"
        _same_outputs(subject, f"{call}(x)", program.module(), model)
        for name, value in _held(program):
            if type(value) not in (torch.Tensor, nn.Parameter):
                raise MismatchError(f"{call}: {name}", "a plain tensor", type(value))
        for node in program.graph.nodes:
            value = node.meta.get("val")
            if subject.is_instance(value):
                raise MismatchError(f"{call}: value of node {node.name}", "a plain tensor", type(value))
        for name, _ in model.named_parameters():
            owner, _, own = name.rpartition(".")
            if not any(new.startswith(owner) and own in new.split(".") for new in program.state_dict):
                raise MismatchError(
                    f"{call}.state_dict", f"a name with {owner} and {own} in it", list(program.state_dict)
                )


def _held(program: ExportedProgram) -> Iterator[tuple[str, Any]]:
    yield from program.state_dict.items()
    yield from program.constants.items()


@check(
    "export",
    "constants of the program are fake tensors, or tensors that a handler made while it was traced",
    kinds=VALUED,
)
def no_constants_are_left_behind(subject: Subject) -> None:
    """Handlers make no tensors from Python values on the way: each is a constant of the program, and where it was made
    by a tracer a fake one, which fails when the program is saved or run."""
    for strict in (False, True):
        program = _exported(subject, _frozen(subject), strict=strict)
        for label, each in (("", program), (".run_decompositions()", program.run_decompositions())):
            for name, value in _held(each):
                if isinstance(value, TRACERS) or _is_fake_inside(value):
                    raise MismatchError(f"export(model){label}: {name}", "a real tensor", type(value))
            if each.constants:
                raise MismatchError(f"export(model){label}.constants", "none", list(each.constants))


def _is_fake_inside(value: Any) -> bool:
    names = value.__tensor_flatten__()[0] if hasattr(value, "__tensor_flatten__") else []
    return any(isinstance(getattr(value, name), TRACERS) for name in names)


@check("export", "handlers read values (item, tolist) while export traces them", kinds=VALUED)
def nothing_is_read_while_exporting(subject: Subject) -> None:
    """The program reads no value into Python: an ``item()`` in a handler makes one that depends on the data of the
    weight, or fails."""
    program = _exported(subject, _frozen(subject)).run_decompositions()
    reads = ("aten._local_scalar_dense.default", "aten.item.default")
    readers = [node.name for node in program.graph.nodes if str(node.target) in reads]
    if readers:
        raise MismatchError("nodes of export(model).run_decompositions()", "none that reads a value", readers)


@check("export", "a saved program doesn't load, or computes something else", kinds=VALUED)
def programs_are_saved(subject: Subject) -> None:
    """``torch.export.save`` and ``load``, of the program as it was exported and of the decomposed one."""
    model = _frozen(subject)
    program = _exported(subject, model)
    for call, each in (("", program), (".run_decompositions()", program.run_decompositions())):
        file = io.BytesIO()
        torch.export.save(each, file)
        file.seek(0)
        loaded = torch.export.load(file).module()
        _same_outputs(subject, f"load(save(export(model){call}))(x)", loaded, model)


@check("export", "a dynamic batch is specialized to the example's, or refused", kinds=VALUED)
def batches_stay_dynamic(subject: Subject) -> None:
    """``Dim("batch")`` beside wrapped weights: one program for all batches, decomposed too."""
    model = _frozen(subject)
    program = _exported(subject, model, dynamic_shapes=({0: Dim("batch", min=2, max=64)},))
    for call, each in (("", program), (".run_decompositions()", program.run_decompositions())):
        _same_outputs(subject, f"export(model, batch){call}(x)", each.module(), model, (5, 3, 9))


class _Asking(nn.Module):
    """Reads its weight in all the ways that code outside a linear layer does."""

    def __init__(self, weight: torch.Tensor, read: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.read = read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.read(self.weight).to(x.dtype))


@check("export", "the traced weight has lost the class's methods and attributes", kinds=VALUED)
def traced_weights_keep_their_methods(subject: Subject) -> None:
    """While export traces, the weight has the class: its ``dequantize()`` or ``to_plain()``, and the tensors inside by
    their names."""
    reads = _readers(subject)
    if not reads:
        raise NotApplicable("no method that gives plain values, and no inner matrix of the outer shape")
    for strict in (False, True):
        for label, read in reads.items():
            model = _Asking(subject.new(4, 8), read)
            program = _exported(subject, model, strict=strict)
            _same_outputs(subject, f"export(F.linear(x, {label}), strict={strict})(x)", program.module(), model)


def _calling(name: str) -> Any:
    return lambda weight: getattr(weight, name)()


def _getting(name: str) -> Any:
    return lambda weight: getattr(weight, name)


class _Buffered(nn.Module):
    """An instance as a buffer, and views of it."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.get_buffer("table"))


@check("export", "an instance in a buffer is exported as a constant, or not at all", kinds=VALUED)
def buffers_export(subject: Subject) -> None:
    """A wrapped buffer is state of the program, as a plain one is."""
    model = _Plain(subject, _Buffered(subject.new(4, 8)))
    for strict in (False, True):
        program = _exported(subject, model, strict=strict)
        call = f"export(model with a wrapped buffer, strict={strict})"
        _same_outputs(subject, f"{call}(x)", program.module(), model)
        _same_outputs(subject, f"{call}.run_decompositions()(x)", program.run_decompositions().module(), model)


class _Through(nn.Module):
    """Takes and gives what it is handed."""

    def forward(self, x: Any) -> Any:
        return x * 2


@check(
    "export",
    "an instance as the input or output of an exported program: an internal error, or wrong values",
    kinds=VALUED,
)
def instances_pass_the_boundary(subject: Subject) -> None:
    """An instance as the example input: the program takes one and computes the same; or export refuses, and says so.
    Decomposed, it takes the plain tensors inside, and gives such."""
    instance, model = subject.new(4, 8), _Through()
    needs_the_protocol(instance)
    eagerly(model, instance)
    try:
        program = export(model, (instance,))
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        if not any(word in str(error) for word in (subject.cls.__name__, "subclass", "dequantize", "unwrap")):
            raise
        return
    other = subject.new(4, 8, seed=1)
    expected = model(other)
    _same_result(subject, "export(model, (x,))(y)", program.module()(other), expected)
    try:
        got = program.run_decompositions().module()(*leaves_of(other))
    except (IndexError, ValueError) as error:
        raise KnownLimit(f"{DECOMPOSED}: {first_line(error)}") from error
    if subject.kind is Kind.TRANSPARENT or not subject.is_instance(expected):
        _same_result(subject, "export(model, (x,)).run_decompositions()(*tensors inside y)", got, expected)


def _same_result(subject: Subject, call: str, got: Any, expected: Any) -> None:
    subject.same(call, plain_of(subject, got), plain_of(subject, expected), loosely=True)


@check("export", "AOTInductor fails on a program with wrapped weights", kinds=VALUED, quick=False, seconds=300)
def programs_are_packaged(subject: Subject) -> None:
    """Compiled ahead of time, packaged, loaded and run for several batches."""
    needs_a_compiler()
    model = _frozen(subject)
    program = _exported(subject, model, dynamic_shapes=({0: Dim("batch", min=2, max=64)},))
    with tempfile.TemporaryDirectory() as folder:
        run = package_ahead_of_time(program, Path(folder) / "model.pt2")
        _same_outputs(subject, "AOTInductor(export(model))(x)", run, model, (5, 9))
