"""Casting an instance, and a module that holds one: after it was compiled, averaged, or handed to an optimizer."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..check import check
from ..outcome import KnownLimit, MismatchError
from ..subject import VALUED, Kind, Subject

DTYPES = (torch.float16, torch.bfloat16, torch.float64)


@check("life", ".half(), .to(bfloat16) ignored", kinds=VALUED)
def dtype_conversions_are_followed(subject: Subject) -> None:
    """``half``, ``bfloat16``, ``double``, ``to`` and ``type`` give that dtype, and values rounded to it. One that is
    ignored trains in another precision than was asked for, silently."""
    instance = subject.new(4, 8)
    plain = subject.reference(subject.plain(4, 8))
    ways: dict[str, Callable[[Any], Any]] = {
        "w.half()": lambda w: w.half(),
        "w.bfloat16()": lambda w: w.bfloat16(),
        "w.double()": lambda w: w.double(),
        "w.to(torch.bfloat16)": lambda w: w.to(torch.bfloat16),
        "w.to(dtype=torch.float16, copy=True)": lambda w: w.to(dtype=torch.float16, copy=True),
        "w.type(torch.float64)": lambda w: w.type(torch.float64),
        "w.to(another)": lambda w: w.to(torch.zeros(1, dtype=torch.float64, device=w.device)),
        "w.half().float()": lambda w: w.half().float(),
    }
    for call, way in ways.items():
        _same_rounded(subject, call, way(instance), way(plain))


def _same_rounded(subject: Subject, call: str, got: Any, expected: torch.Tensor) -> None:
    """The values may be computed from parts that were rounded to the dtype each."""
    if subject.kind is Kind.REPRESENTATION and expected.is_floating_point():
        rounding = 4 * max(torch.finfo(expected.dtype).eps, torch.finfo(torch.float32).eps)
        rounding = max(rounding, 4 * torch.finfo(torch.float16).eps) if ".half()." in call else rounding
        subject = replace(subject, rtol=max(subject.rtol or 0.0, rounding))
    subject.same(call, got, expected)


@check("life", "module.half() is ignored, or unwraps the parameter", kinds=VALUED)
def a_module_is_cast(subject: Subject) -> None:
    """``module.half()``, ``.bfloat16()``, ``.double()`` and ``.to(dtype)`` convert the wrapped weight: it is of the
    class and a Parameter, of the new dtype, and the layer runs."""
    for dtype in DTYPES:
        for call, cast in _casts(dtype):
            layer = cast(subject.layer())
            weight = layer.weight
            if not (subject.is_instance(weight) and isinstance(weight, nn.Parameter) and weight.requires_grad):
                wanted = f"a Parameter that is a {subject.cls.__name__} and requires grad"
                raise MismatchError(f"{call}.weight", wanted, weight)
            _same_rounded(subject, f"{call}.weight", weight, subject.reference(subject.plain(4, 8)).to(dtype))
        _runs(subject, f"layer.to({dtype})", layer)


def _casts(dtype: torch.dtype) -> Iterator[tuple[str, Callable[[nn.Module], Any]]]:
    name = {torch.float16: "half", torch.bfloat16: "bfloat16", torch.float64: "double"}[dtype]
    yield f"layer.{name}()", lambda layer: getattr(layer, name)()
    yield f"layer.to({dtype})", lambda layer: layer.to(dtype)


def _runs(subject: Subject, call: str, layer: Any, compiled: Any = None) -> None:
    """The layer gives what a plain one with its values gives."""
    x = subject.plain(3, 8, seed=1).to(layer.weight.dtype)
    got = layer(x) if compiled is None else compiled(x)
    eps = torch.finfo(x.dtype).eps
    loose = replace(subject, rtol=max(subject.rtol or 0.0, 16 * eps))
    loose.same(f"{call}; layer(x)", got, F.linear(x, subject.values(layer.weight), layer.bias.detach()))


@check("life", "a buffer is unwrapped by a cast, or missing in the state dict", kinds=VALUED)
def a_buffer_is_cast(subject: Subject) -> None:
    """An instance as a buffer is cast with its module, stays of the class, and stands in the state dict and in a deep
    copy: quantized tables and running statistics are buffers."""
    module: Any = nn.Module()
    module.register_buffer("table", subject.new(4, 8))
    plain = subject.reference(subject.plain(4, 8))
    for call, cast, dtype in (
        ("module.state_dict()['table']", module, torch.float32),
        ("copy.deepcopy(module).table", copy.deepcopy(module), torch.float32),
        ("module.bfloat16().table", copy.deepcopy(module).bfloat16(), torch.bfloat16),
    ):
        table = cast.state_dict()["table"]
        if not subject.is_instance(table):
            raise MismatchError(call, subject.cls, type(table))
        _same_rounded(subject, call, table, plain.to(dtype))


@check("life", "a module can't be cast once there is an optimizer", kinds=VALUED)
def a_module_is_cast_beside_an_optimizer(subject: Subject) -> None:
    """The Parameter object is the one that it was after a cast, and the optimizer that holds it trains the layer on."""
    layer: Any = subject.layer()
    held = layer.weight
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    layer.double()
    if layer.weight is not held:
        raise MismatchError("p = layer.weight; layer.double(); layer.weight is p", True, False)
    before = subject.values(layer.weight).clone()
    layer(subject.plain(3, 8, seed=1).double()).sum().backward()
    optimizer.step()
    if torch.equal(subject.values(layer.weight), before):
        raise MismatchError(
            "layer.double(); loss.backward(); optimizer.step()", "another weight", "the weight as it was"
        )


@check("life", "module.to() drops hooks and attributes of a parameter", kinds=VALUED)
def a_cast_parameter_keeps_its_marks(subject: Subject) -> None:
    """Attributes and gradient hooks of a Parameter outlive a move of its module, as those of a plain one do: optimizers
    and sharding read the ones and hang on the others. Of a class with the flatten protocol torch exchanges the
    whole Parameter, and drops them: a known limit."""
    layer: Any = subject.layer()
    calls: list[int] = []
    layer.weight.no_decay = True
    layer.weight.register_hook(lambda _: calls.append(1))
    layer.to(subject.device)
    layer(subject.plain(3, 8, seed=1)).sum().backward()
    lost = [] if hasattr(layer.weight, "no_decay") else ["p.no_decay"]
    lost += [] if calls else ["the hook of p"]
    if lost and hasattr(subject.cls, "__tensor_flatten__"):
        raise KnownLimit(
            f"Module.to, .half and so on swap a wrapped parameter, and lose {' and '.join(lost)}: set again"
        )
    if lost:
        raise MismatchError("layer.to(device)", "attributes and hooks of p = layer.weight, kept", f"lost: {lost}")


@check("life", "an averaged (EMA) model can't be moved or cast", kinds=VALUED)
def a_module_is_cast_beside_its_average(subject: Subject) -> None:
    """A module and an average of it (``swa_utils.AveragedModel``) can each be cast, whichever comes first."""
    layer: Any = subject.layer()
    average = torch.optim.swa_utils.AveragedModel(layer)
    average.update_parameters(layer)
    for call, module, weight in (
        ("layer.double()", layer, lambda: layer.weight),
        ("AveragedModel(layer).double()", average, lambda: average.module.weight),
    ):
        module.double()
        if not subject.is_instance(weight()) or weight().dtype is not torch.float64:
            raise MismatchError(f"{call}, weight", f"a {subject.cls.__name__} in float64", weight())
    subject.same("the weight of AveragedModel(layer)", average.module.weight, subject.values(layer.weight))


@check("life", "a compiled module can't be cast", kinds=VALUED, seconds=120)
def a_compiled_module_is_cast(subject: Subject) -> None:
    """A module that has run compiled, forward and backward, can be cast, runs on compiled, and gives the new dtype."""
    layer: Any = subject.layer()
    compiled: Any = torch.compile(layer, backend="aot_eager")
    compiled(subject.plain(3, 8, seed=1)).sum().backward()
    layer.zero_grad(set_to_none=True)
    layer.double()
    _runs(subject, "torch.compile(layer)(x); layer.double()", layer, compiled)


@check("life", "a cast that torch refuses does not say why", kinds=VALUED)
def a_cast_that_is_refused_is_explained(subject: Subject) -> None:
    """Where somebody holds a weak reference to a wrapped parameter, torch can't swap it. The cast works all the same,
    or the error, or its cause, says so; and nothing is half done."""
    layer: Any = subject.layer()
    reference = weakref.ref(layer.weight)
    try:
        layer.double()
    except RuntimeError as error:
        text = f"{error} {error.__cause__ or ''} {error.__context__ or ''}"
        if "weakref" not in text and "weak reference" not in text:
            raise MismatchError(
                "weakref.ref(layer.weight); layer.double()", "an error that says weakref", error
            ) from None
    weight, is_kept = layer.weight, layer.weight is reference()
    if not is_kept:
        raise MismatchError("p = layer.weight; layer.double(); layer.weight is p", True, False)
    expected = subject.reference(subject.plain(4, 8)).to(weight.dtype)
    _same_rounded(subject, "weakref.ref(layer.weight); layer.double(); layer.weight", weight, expected)


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.one, self.other = layer, nn.Linear(8, 4, device=layer.weight.device)
        self.other.weight = layer.weight


@check("life", "tied weights come apart")
def tied_weights_stay_tied(subject: Subject) -> None:
    """Two layers with one Parameter have one after a cast and in a deep copy, and ``parameters()`` gives it once."""
    model = Tied(subject.layer())
    for call, tied in (("copy.deepcopy(model)", copy.deepcopy(model)), ("model.double()", model.double())):
        if tied.one.weight is not tied.other.weight:
            raise MismatchError(f"{call}: one.weight is other.weight", True, False)
        if not subject.is_instance(tied.one.weight):
            raise MismatchError(f"{call}: one.weight", subject.cls, type(tied.one.weight))
