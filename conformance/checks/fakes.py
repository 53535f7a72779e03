"""Instances without values: under torch's FakeTensorMode, on the meta device, beside default devices and dtypes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...subclasses.core.private import FakeTensor, FakeTensorMode
from ..check import check
from ..outcome import MismatchError, NotApplicable
from ..subject import Subject, leaves_of
from .printing import VALUED

ERRORS = (AssertionError, RuntimeError, TypeError, ValueError)  # torch's own for mixed modes is an AssertionError


def fake_of(mode: FakeTensorMode, instance: Any) -> Any:
    """The instance with fake inner tensors."""
    if not hasattr(instance, "__tensor_flatten__"):
        raise NotApplicable(f"{type(instance).__name__} has no __tensor_flatten__, through which torch makes it fake")
    return mode.from_tensor(instance)


def leaves(instance: Any) -> list[torch.Tensor]:
    """The tensors inside, fake ones, too."""
    if isinstance(instance, FakeTensor):
        return [instance]
    return leaves_of(instance)


def all_fake(call: str, instance: Any, mode: FakeTensorMode) -> None:
    """Raises if a leaf has values, or is another mode's."""
    for leaf in leaves(instance):
        if not isinstance(leaf, FakeTensor) or leaf.fake_mode is not mode:
            raise MismatchError(call, "leaves that are fake, and of this mode", leaf)


def _facts(tensor: torch.Tensor) -> list[Any]:
    return [type(tensor).__name__, list(tensor.shape), tensor.dtype, list(tensor.stride()), tensor.requires_grad]


def alike(call: str, got: torch.Tensor, expected: torch.Tensor) -> None:
    """Raises if they differ in class, shape, dtype, stride or requires_grad."""
    if _facts(got) != _facts(expected):
        raise MismatchError(call, _facts(expected), _facts(got))


@check("fakes", "a fake copy loses the class, the shape or requires_grad")
def from_tensor_keeps_the_class(subject: Subject) -> None:
    """``FakeTensorMode.from_tensor(x)`` is of the class, with fake leaves and the metadata of ``x``. Tracers start with
    it."""
    for grad in (False, True):
        instance = subject.new(4, 8, grad=grad)
        mode = FakeTensorMode()
        fake = fake_of(mode, instance)
        alike("FakeTensorMode().from_tensor(x)", fake, instance)
        all_fake("leaves of FakeTensorMode().from_tensor(x)", fake, mode)


OPS: dict[str, Any] = {
    "x.detach()": lambda x, _: x.detach(),
    "x.clone()": lambda x, _: x.clone(),
    "x.t()": lambda x, _: x.t(),
    "x[1:3]": lambda x, _: x[1:3],
    "torch.empty_like(x)": lambda x, _: torch.empty_like(x),
    "F.linear(a, x)": lambda x, a: torch.nn.functional.linear(a, x),
    "a[:, :4] @ x": lambda x, a: a[:, :4] @ x,
    "x + 1": lambda x, _: x + 1,
    "x.sum(0)": lambda x, _: x.sum(0),
    "x.to(torch.float64)": lambda x, _: x.to(torch.float64),
}


@check("fakes", "an op fails, or computes values, under FakeTensorMode")
def ops_run_on_fake_instances(subject: Subject) -> None:
    """Ops on a fake instance give results of the class, shape, dtype and stride that they give on a real one, and no
    leaf of them has values."""
    mode, plain = FakeTensorMode(), subject.plain(3, 8)
    fake, fake_plain = fake_of(mode, subject.new(4, 8)), mode.from_tensor(plain)
    for call, run in OPS.items():
        expected = run(subject.new(4, 8), plain)
        with mode:
            got = run(fake, fake_plain)
        all_fake(f"{call} under FakeTensorMode", got, mode)
        if subject.is_instance(expected):
            alike(f"{call} under FakeTensorMode", got, expected)
        else:
            wanted, facts = _facts(expected)[1:], _facts(got)[1:]
            if facts != wanted:
                raise MismatchError(f"{call} under FakeTensorMode", wanted, facts)


@check("fakes", "a training step fails under FakeTensorMode")
def a_training_step_runs_on_fake_instances(subject: Subject) -> None:
    """A forward and a backward on fake instances give a gradient with the metadata that a real step gives: that is how
    memory is planned."""

    def step(weight: Any, activations: torch.Tensor) -> Any:
        torch.nn.functional.linear(activations, weight).square().sum().backward()
        return weight.grad

    mode, plain = FakeTensorMode(), subject.plain(3, 8)
    expected = step(subject.new(4, 8, grad=True), plain)
    weight = fake_of(mode, subject.new(4, 8, grad=True))
    with mode:
        got = step(weight, mode.from_tensor(plain))
    if expected is None or got is None:
        raise MismatchError("F.linear(a, x).square().sum().backward(); x.grad", "gradients", [expected, got])
    all_fake("x.grad of a fake x", got, mode)
    if _facts(got)[1:3] != _facts(expected)[1:3]:
        raise MismatchError("x.grad of a fake x", _facts(expected), _facts(got))


@check("fakes", "tensors of two fake modes are mixed without a word")
def fake_modes_do_not_mix(subject: Subject) -> None:
    """An op on instances of two fake modes raises, as it does for plain fake tensors: shapes of two traces have nothing
    to do with each other."""
    first, second = FakeTensorMode(), FakeTensorMode()
    one, other = fake_of(first, subject.new(4, 8)), fake_of(second, subject.new(4, 8))
    plain = second.from_tensor(subject.plain(3, 8))
    runs: dict[str, Callable[[], Any]] = {
        "torch.cat([x, y])": lambda: torch.cat([one, other]),
        "F.linear(a, x)": lambda: torch.nn.functional.linear(plain, one),
    }
    for call, run in runs.items():
        try:
            got = run()
        except ERRORS:
            continue
        raise MismatchError(f"{call} of two fake modes", "an error", got)


@check("fakes", "a real input goes through a fake mode and comes out real", kinds=VALUED)
def real_instances_do_not_pass_a_fake_mode(subject: Subject) -> None:
    """Under ``FakeTensorMode`` an op on a real instance raises, or gives a fake result where the mode takes real
    inputs; it never computes values, and ``to`` with nothing to do is no way around that."""
    instance = subject.new(4, 8)
    for call, run in (
        ("x.to(torch.float64)", lambda: instance.to(torch.float64)),
        ("x.clone()", instance.clone),
        ("x.to(x.device, copy=True)", lambda: instance.to(instance.device, copy=True)),
    ):
        for lenient in (False, True):
            mode = FakeTensorMode(allow_non_fake_inputs=lenient)
            try:
                with mode:
                    got = run()
            except ERRORS:
                if lenient:
                    raise
                continue
            all_fake(f"{call} of a real x, under FakeTensorMode(allow_non_fake_inputs={lenient})", got, mode)


@check("fakes", "constructors and Parameters fail under a fake mode")
def constructors_work_under_a_fake_mode(subject: Subject) -> None:
    """``make`` of a fake tensor is an instance with fake leaves, and ``nn.Parameter`` of it is one of the class: that
    is how a model too large for the machine is built."""
    expected, mode = subject.new(4, 8), FakeTensorMode()
    with mode:
        instance = subject.make(torch.randn(4, 8, device=subject.device))
        parameter = torch.nn.Parameter(instance)
    alike("make(torch.randn(4, 8)) under FakeTensorMode", instance.detach(), expected.detach())
    all_fake("make(torch.randn(4, 8)) under FakeTensorMode", instance, mode)
    if not (isinstance(parameter, torch.nn.Parameter) and subject.is_instance(parameter) and parameter.requires_grad):
        raise MismatchError("nn.Parameter(x) under FakeTensorMode", f"a {subject.cls.__name__} Parameter", parameter)


@check("fakes", "constructors and Parameters fail on the meta device")
def constructors_work_on_the_meta_device(subject: Subject) -> None:
    """``make`` of a tensor on the meta device is an instance with leaves there, and ``nn.Parameter`` of it is one of
    the class."""
    expected = subject.new(4, 8)
    instance: Any = subject.make(torch.empty(4, 8, device="meta"))
    alike("make(torch.empty(4, 8, device='meta'))", instance.detach(), expected.detach())
    for leaf in leaves_of(instance):
        if not leaf.is_meta:
            raise MismatchError("leaves of make(meta tensor)", "tensors on meta", leaf.device)
    parameter = torch.nn.Parameter(instance)
    if not (isinstance(parameter, torch.nn.Parameter) and subject.is_instance(parameter)):
        raise MismatchError("nn.Parameter(make(meta tensor))", f"a {subject.cls.__name__} Parameter", parameter)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@check("fakes", "an inner tensor lands on the default device, or in the default dtype", kinds=VALUED)
def constructors_ignore_the_defaults(subject: Subject) -> None:
    """``make`` and ops give the same inside ``torch.device("meta")`` and with another default dtype: inner tensors
    follow the tensor that was given. Model loaders build everything inside such a context."""
    plain, expected = subject.plain(4, 8), subject.new(4, 8)
    product = torch.nn.functional.linear(subject.plain(3, 8), expected)
    facts = [(leaf.dtype, leaf.device) for leaf in leaves_of(expected)]
    for name, context in (
        ('torch.device("meta")', lambda: torch.device("meta")),
        ("torch.set_default_dtype(torch.float64)", lambda: _default_dtype(torch.float64)),
    ):
        activations = subject.plain(3, 8)
        with context():
            instance = subject.wrap(plain)
        found = [(leaf.dtype, leaf.device) for leaf in leaves_of(instance)]
        if found != facts:
            raise MismatchError(f"leaves of make(plain) with {name}", facts, found)
        with context():
            got = torch.nn.functional.linear(activations, instance)
        subject.same(f"make(plain) with {name}", instance, subject.values(expected))
        subject.same(f"F.linear(a, x) with {name}", got, subject.values(product))


@check("fakes", "deepcopy of a fake wrapper makes it real, or gives it a mode of its own")
def deepcopy_keeps_a_fake_instance_fake(subject: Subject) -> None:
    """A deep copy of a module that holds a fake instance holds a fake instance of the same mode, with or without that
    mode on."""
    mode = FakeTensorMode()
    module: Any = torch.nn.Module()
    module.weight = torch.nn.Parameter(fake_of(mode, subject.new(4, 8)))
    copies = [("copy.deepcopy(module)", copy.deepcopy(module))]
    with mode:
        copies.append(("copy.deepcopy(module) under its FakeTensorMode", copy.deepcopy(module)))
    for call, copied in copies:
        alike(f"{call}.weight", copied.weight, module.weight)
        all_fake(f"{call}.weight", copied.weight, mode)
        if copied.weight is module.weight:
            raise MismatchError(f"{call}.weight", "a copy", "the same object")
