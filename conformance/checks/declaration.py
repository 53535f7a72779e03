"""The flatten protocol: what an instance is made of, as compilers, checkpoints and copies read it."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ...subclasses.core.private import FakeTensor, FakeTensorMode
from ..check import check
from ..inside import inner_tensors, leaves_of
from ..outcome import MismatchError, NotApplicable
from ..structure import check_structure, has_protocol, protocol_of, rebuilt, same_bits
from ..subject import Subject

_OTHER_PROCESS = """
import pickle, sys
task = pickle.loads(sys.stdin.buffer.read())
if isinstance(task, tuple) and task[0] == "make":
    context = task[1](task[2]).__tensor_flatten__()[1]
else:
    context = task[1]
sys.stdout.buffer.write(pickle.dumps(context, 4))
"""


@check("declaration", "torch.compile fails with an internal error, or in silence runs eagerly")
def flatten_protocol_is_there(subject: Subject) -> None:
    """``__tensor_flatten__`` and ``__tensor_unflatten__`` exist, and the first gives names and a context.

    Compilers, fake tensors and ``torch.export`` take an instance apart by them; without them none of it works.
    """
    if not has_protocol(subject.cls):
        halves = "__tensor_flatten__", "__tensor_unflatten__"
        missing = [each for each in halves if not callable(getattr(subject.cls, each, None))]
        raise MismatchError(f"{subject.cls.__name__}.{missing[0]}", "a method", "there is none")
    flat = subject.new(4, 8).__tensor_flatten__()
    if not (isinstance(flat, tuple) and len(flat) == 2 and isinstance(flat[0], (list, tuple))):
        raise MismatchError("x.__tensor_flatten__()", "(a list of names, a context)", flat)
    if not flat[0] or not all(isinstance(each, str) for each in flat[0]):
        raise MismatchError("x.__tensor_flatten__()[0]", "names of attributes, one at least", flat[0])


@check("declaration", "an optional inner tensor is listed although it is None")
def flattened_names_are_tensors(subject: Subject) -> None:
    """Each name that flatten lists is that of an attribute that is a tensor now, and none is listed twice.

    An optional inner tensor is listed only while it is there: tracers read the attribute of each name.
    """
    for call, instance in _variants(subject):
        names, _ = protocol_of(instance)
        for name in names:
            held = getattr(instance, name, None)
            if not isinstance(held, torch.Tensor):
                raise MismatchError(f"{call}.{name}, which __tensor_flatten__ lists", "a tensor", repr(held))
        if len(set(names)) != len(names):
            raise MismatchError(f"{call}.__tensor_flatten__()[0]", "each name once", names)


@check("declaration", "an inner tensor is missing after torch.compile, or is baked in as a constant")
def every_inner_tensor_is_flattened(subject: Subject) -> None:
    """Each attribute of an instance that is a tensor is among the names that flatten lists.

    One that is not listed is lost in every traced function, or stays what it was when the function was traced.
    """
    for call, instance in _variants(subject):
        names, _ = protocol_of(instance)
        hidden = [name for name, held in vars(instance).items() if isinstance(held, torch.Tensor) and name not in names]
        if hidden:
            raise MismatchError(f"{call}.__tensor_flatten__()[0]", f"{hidden[0]!r} in it, which is a tensor", names)


@check("declaration", "an attribute set in the constructor is gone in compiled code")
def round_trip_keeps_every_attribute(subject: Subject) -> None:
    """Each attribute that is no tensor has its value after flatten and unflatten: all of them are in the context.

    One that is not there guards nothing, and compiled code never has it.
    """
    instance = subject.new(4, 8)
    again = rebuilt(instance)
    for name, held in vars(instance).items():
        if isinstance(held, torch.Tensor):
            continue
        if name not in vars(again) and not hasattr(type(again), name):
            raise MismatchError(f"unflatten(*flatten(x)).{name}", repr(held), "no such attribute")
        if not _equal(getattr(again, name), held):
            raise MismatchError(f"unflatten(*flatten(x)).{name}", repr(held), repr(getattr(again, name)))


@check("declaration", "TypeError: unhashable type, from a compile guard or cache")
def context_is_hashable(subject: Subject) -> None:
    """The flatten context can be hashed: it is built of immutable values.

    Compile guards and caches keep it as a key; a list or dict in it could also change under them.
    """
    for call, instance in _variants(subject):
        context = protocol_of(instance)[1]
        try:
            hash(context)
        except TypeError as error:
            raise MismatchError(f"hash({call}.__tensor_flatten__()[1])", "a number", error) from None


@check("declaration", "recompiles at each call, or uses a graph that was traced for another setting")
def context_compares_by_value(subject: Subject) -> None:
    """The contexts of two instances made alike are equal, and equal to a deep copy of themselves; hashes, too.

    Dynamo guards on a deep copy of the context: one that compares by identity recompiles at each call.
    """
    ours, theirs = (protocol_of(subject.new(4, 8))[1] for _ in range(2))
    for call, other in (("contexts of two instances made alike", theirs), ("a deep copy", copy.deepcopy(ours))):
        if not _equal(ours, other):
            raise MismatchError(f"__tensor_flatten__()[1] == that of {call}", True, f"{ours!r} and {other!r}")
        if _hashable(ours) and hash(ours) != hash(other):
            raise MismatchError(f"hash(__tensor_flatten__()[1]) == that of {call}", hash(ours), hash(other))


@check("declaration", "the compile cache is bypassed, or export can't save the program")
def context_pickles(subject: Subject) -> None:
    """The context can be pickled, and is equal to itself when it comes back."""
    context = protocol_of(subject.new(4, 8))[1]
    back = pickle.loads(pickle.dumps(context))
    if not _equal(back, context):
        raise MismatchError("pickle.loads(pickle.dumps(x.__tensor_flatten__()[1]))", repr(context), repr(back))


@check("declaration", "the compile cache never hits in a second process")
def context_pickle_is_the_same_in_another_process(subject: Subject) -> None:
    """In another process, with another hash seed, an instance made alike has a context that pickles to the same bytes.

    The key of the compile cache is made of it. A set, or an order taken from one, differs between processes.
    """
    if has_protocol(subject.cls) and protocol_of(subject.new(4, 8))[1] in (None, ()):
        return
    context = _settled(protocol_of(subject.new(4, 8))[1])
    try:
        task = pickle.dumps(("make", subject.make, subject.plain(4, 8)), 4)
        ours = pickle.dumps(protocol_of(subject.new(4, 8))[1], 4)
    except (pickle.PicklingError, AttributeError, TypeError):  # make is a lambda: the context itself has to do
        task, ours = pickle.dumps(("context", context), 4), pickle.dumps(_settled(context), 4)
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore", "-c", _OTHER_PROCESS]
    ended = subprocess.run(command, input=task, capture_output=True, env=environment, check=False)
    if ended.returncode:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise NotApplicable(f"the class can't be imported in another process: {' '.join(last)}")
    if ended.stdout != ours:
        theirs = pickle.loads(ended.stdout)
        raise MismatchError(f"pickle of the context, with PYTHONHASHSEED={seed}", repr(context), repr(theirs))


@check("declaration", "an instance that passed through torch.compile has other values or metadata")
def round_trip_keeps_values_and_metadata(subject: Subject) -> None:
    """Unflatten of what flatten gave is an instance of the class with equal metadata, context and values."""
    for call, instance in _variants(subject):
        again = rebuilt(instance)
        check_structure(subject, f"unflatten(*flatten({call}))", again, instance)
        if not same_bits(again, instance):
            raise MismatchError(f"unflatten(*flatten({call}))", "the same inner tensors", again)
        subject.same(f"values of unflatten(*flatten({call}))", again, subject.values(instance))


@check("declaration", "a rebuilt instance fails at its first op: methods use what flatten does not carry")
def rebuilt_instances_work(subject: Subject) -> None:
    """An instance put together of copies of the inner tensors is as good as the first: ops on it give the same."""
    instance = subject.new(4, 8)
    again = rebuilt(instance, lambda inner: inner.detach().clone())
    for call, function in _OPS.items():
        try:
            expected = subject.values(function(instance))
        except Exception:  # noqa: BLE001 - what x itself refuses is the matter of other checks
            continue
        subject.same(call.replace("x", "unflatten(*flatten(x))"), function(again), expected)


@check("declaration", "views and padded layouts lose their strides in compiled code")
def unflatten_uses_the_given_geometry(subject: Subject) -> None:
    """Unflatten makes an instance of the outer size and stride that it is given, whatever the inner tensors' are.

    Tracers hand it symbolic sizes, and the strides that the traced program has.
    """
    for call, instance in _variants(subject):
        for size, stride in (((4, 8), (1, 4)), ((2, 8), (8, 1))):
            if tuple(instance.shape) != (4, 8):
                continue
            again = rebuilt(instance, size=torch.Size(size), stride=stride)
            got = tuple(again.shape), again.stride()
            if got != (size, stride):
                text = f"{call}.__tensor_unflatten__(inner, context, {size}, {stride}): size and stride"
                raise MismatchError(text, (size, stride), got)


@check("declaration", "dynamic shapes are specialized, or a traced weight has lost its class")
def symbolic_sizes_survive(subject: Subject) -> None:
    """A fake copy with symbolic sizes is of the class, its inner tensors are fake, and its outer sizes symbolic."""
    instance = subject.new(4, 8)
    names, context = protocol_of(instance)
    fake = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(instance)
    if not subject.is_instance(fake):
        raise MismatchError("a fake copy of x", subject.cls, type(fake))
    if not all(isinstance(size, torch.SymInt) for size in fake.shape):
        raise MismatchError("shape of a fake copy of x with symbolic sizes", "symbolic sizes", repr(fake.shape))
    if not all(isinstance(leaf, FakeTensor) for leaf in leaves_of(fake)):
        raise MismatchError("inner tensors of a fake copy of x", "fake tensors", inner_tensors(fake))
    if protocol_of(fake)[0] != names or not _equal(protocol_of(fake)[1], context):
        raise MismatchError("__tensor_flatten__ of a fake copy of x", repr((names, context)), repr(protocol_of(fake)))


@check("declaration", "AttributeError on a partly built instance, from another thread or a mode")
def fields_are_set_before_the_object_escapes(subject: Subject) -> None:
    """When ``__new__`` returns, all inner tensors are there: flatten works on the instance at once.

    What ``__init__`` sets is missing wherever an instance is seen, or made by ``__new__`` alone, before it ran.
    """
    protocol_of(subject.new(4, 8))
    problems: list[str] = []

    def watch(frame: Any, event: str, value: Any) -> None:
        if event == "return" and frame.f_code.co_name == "__new__" and isinstance(value, subject.cls):
            sys.setprofile(None)
            try:
                names, _ = protocol_of(value)
                problems.extend(name for name in names if not isinstance(getattr(value, name, None), torch.Tensor))
            except AttributeError as error:
                problems.append(str(error))
            sys.setprofile(watch)

    plain = subject.plain(4, 8)
    sys.setprofile(watch)
    try:
        subject.make(plain)
    finally:
        sys.setprofile(None)
    if problems:
        text = f"{subject.cls.__name__}.__new__(...).__tensor_flatten__()"
        raise MismatchError(text, "inner tensors set by __new__", f"they are not there: {problems[0]}")


_OPS: dict[str, Any] = {
    "x.detach()": lambda x: x.detach(),
    "x + 1": lambda x: x + 1,
    "x.t()": lambda x: x.t(),
    "F.linear(ones(2, 8), x)": lambda x: torch.nn.functional.linear(torch.ones(2, 8, device=x.device), x),
}


def _variants(subject: Subject) -> list[tuple[str, Any]]:
    """Instances as ``make`` gives them and as ops do. What an op refuses, or answers with a plain tensor, is no matter
    here."""
    instance = subject.new(4, 8)
    protocol_of(instance)
    found = [("x", instance)]
    for call, result in (("x.detach()", instance.detach()), ("x.clone()", instance.clone())):
        if subject.is_instance(result):
            found.append((call, result))
    return found


def _settled(context: Any) -> Any:
    """After a trip through pickle equal strings are one object, or not, in the same way in each process."""
    return pickle.loads(pickle.dumps(context, 4))


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
