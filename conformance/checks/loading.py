"""Pickling an instance, and saving and loading it."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..check import check
from ..outcome import MismatchError, NotApplicable
from ..subject import VALUED, Kind, Subject, addresses, inner_tensors, leaves_of
from .life import memory, overlap


def findable(subject: Subject) -> None:
    """Pickle writes a class by its name: one made inside a function has none that can be found."""
    try:
        pickle.dumps(subject.cls)
    except (pickle.PicklingError, AttributeError) as error:
        raise NotApplicable(f"no pickle can name the class: {error}. Define it at module level") from None


def saved_and_loaded(value: Any, *, weights_only: bool = False, **options: Any) -> Any:
    """``value``, saved and loaded again."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only, **options)


@check("life", "pickle gives a plain tensor, or can't rebuild the class")
def pickle_keeps_the_instance(subject: Subject) -> None:
    """``pickle`` keeps class, context, requires_grad and bits, under every protocol of today; the result has memory of
    its own, and what is one object stays one."""
    findable(subject)
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        for grad in (False, True):
            original = subject.new(4, 8, grad=grad)
            one, same = pickle.loads(pickle.dumps([original, original], protocol))
            call = f"pickle.loads(pickle.dumps(w, {protocol}))"
            subject.kept(call, one, original)
            if one is not same:
                raise MismatchError("pickle.loads(pickle.dumps([w, w]))", "one object, twice", "two objects")
            if subject.kind is not Kind.FAKE and overlap(one, original):
                raise MismatchError(call, "memory of its own", "tensors at addresses of the original")


@check("life", "torch.load(weights_only=True) refuses the class")
def weights_only_loading_keeps_the_instance(subject: Subject) -> None:
    """``torch.save`` and ``torch.load`` with its default, ``weights_only=True``, keep class, context, requires_grad and
    bits, in a Parameter too. What unpickles only without it will not be loaded by most."""
    findable(subject)
    for original in (subject.new(4, 8), subject.new(4, 8, grad=True), nn.Parameter(subject.new(4, 8))):
        call = "torch.load(file, weights_only=True)"
        try:
            loaded = saved_and_loaded(original, weights_only=True)
        except pickle.UnpicklingError as error:
            raise MismatchError(call, "the instance: call torch.serialization.add_safe_globals", _why(error)) from None
        subject.kept(call, loaded, original)


_LOAD = """
import importlib, sys, torch
for name in sys.argv[2:]:
    importlib.import_module(name)
loaded = torch.load(sys.argv[1], weights_only=True)
print(type(loaded).__qualname__, list(loaded.shape))
"""


@check("life", "a checkpoint loads only where an instance was made before", quick=False)
def a_fresh_process_loads_with_weights_only(subject: Subject) -> None:
    """A process that has imported the class's module, and no more, loads an instance with ``weights_only=True``: what
    has to be registered is registered by the import. That is how a server starts."""
    findable(subject)
    instance = subject.new(4, 8).cpu()
    modules = sorted({cls.__module__ for cls in classes_in(instance)})
    if "__main__" in modules:
        raise NotApplicable("the class is defined in a script: another process can't import it")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "w.pt")
        torch.save(instance, path)
        done = subprocess.run(
            [sys.executable, "-c", _LOAD, str(path), *modules],
            capture_output=True,
            text=True,
            check=False,
            timeout=50,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    expected = f"{subject.cls.__qualname__} [4, 8]"
    if done.returncode or done.stdout.strip() != expected:
        got = done.stdout.strip() or _why(RuntimeError(done.stderr.strip() or "nothing"))
        raise MismatchError(f"import {', '.join(modules)}; torch.load(file, weights_only=True)", expected, got)


def classes_in(instance: Any) -> set[type]:
    """The classes of all layers."""
    if type(instance) in (torch.Tensor, nn.Parameter):
        return set()
    return {type(instance)}.union(*map(classes_in, inner_tensors(instance)))


def _why(error: Exception) -> str:
    """The line of the error that says what was refused: it is not the first one."""
    lines = str(error).splitlines()
    return next((line for line in lines if "nsupported" in line or "not an allowed" in line), lines[-1]).strip()


@check("life", "torch.load without weights_only breaks")
def full_loading_keeps_the_instance(subject: Subject) -> None:
    """The same with ``weights_only=False``, which runs the class's own code: another path through it."""
    findable(subject)
    original = subject.new(4, 8, grad=True)
    loaded = saved_and_loaded({"w": original, "step": 3})["w"]
    subject.kept("torch.load(file, weights_only=False)", loaded, original)


@check("life", "a saved Parameter comes back as none, or without its attributes")
def a_loaded_parameter_keeps_its_attributes(subject: Subject) -> None:
    """A Parameter comes back as one, with the marks that a user put on it, as a plain one does."""
    findable(subject)
    for grad in (True, False):
        parameter: Any = nn.Parameter(subject.new(4, 8), requires_grad=grad)
        parameter.no_decay = True
        loaded = saved_and_loaded(parameter)
        subject.kept("torch.load(file of nn.Parameter(w))", loaded, parameter)
        if getattr(loaded, "no_decay", None) is not True:
            raise MismatchError("torch.load(file of p).no_decay, where p.no_decay = True", True, "no such attribute")


@check("life", "torch.load(mmap=True) reads all, or gives garbage", kinds=VALUED)
def memory_mapped_loading_keeps_the_instance(subject: Subject) -> None:
    """``mmap=True`` maps the file: the same instance comes, and a write to it does not reach the file."""
    findable(subject)
    original = subject.new(4, 8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "w.pt")
        torch.save(original, path)
        mapped = torch.load(path, mmap=True, weights_only=False)
        subject.kept("torch.load(path, mmap=True)", mapped, original)
        for leaf in leaves_of(mapped):
            leaf.zero_()
        again = torch.load(path, weights_only=False)
        subject.kept("torch.load(path), after a write to what was mapped", again, original)


@check("life", "a file holds twice what two tensors share", kinds=VALUED)
def saving_keeps_what_is_shared(subject: Subject) -> None:
    """Two instances over one memory share it after loading, too, and the file holds it once: tied weights. A
    view of one comes back with its values (a representation may save it as a tensor of its own)."""
    findable(subject)
    original = subject.new(4, 8)
    one, other = saved_and_loaded([original, original.detach()])
    subject.kept("torch.load(file of [w, w.detach()])[0]", one, original)
    if addresses(one) != addresses(other):
        raise MismatchError("torch.load(file of [w, w.detach()])", "two over one memory", "each with memory of its own")
    view = original[1:3]
    one, shown = saved_and_loaded([original, view])
    if subject.kind is Kind.TRANSPARENT and memory(view) & memory(original) and not memory(shown) & memory(one):
        raise MismatchError("torch.load(file of [w, w[1:3]])", "two over one memory", "each with memory of its own")
    subject.same("torch.load(file of [w, w[1:3]])[1]", shown, subject.values(view))


@check("life", "map_location moves some of the tensors inside", kinds=VALUED)
def loading_maps_every_leaf(subject: Subject) -> None:
    """``map_location`` holds for the instance and for all tensors inside: as a name, and as a function (or
    an error says that it takes none)."""
    findable(subject)
    original = subject.new(4, 8)
    name = str(subject.device)
    subject.kept(f"torch.load(file, map_location={name!r})", saved_and_loaded(original, map_location=name), original)
    try:
        loaded = saved_and_loaded(original, map_location=lambda storage, _: storage)
    except RuntimeError as error:  # torch's own way of rebuilding a wrapper takes none
        if "map_location" not in str(error):
            raise
    else:
        subject.kept("torch.load(file, map_location=function)", loaded, original)
    loaded = saved_and_loaded(original, map_location="meta")
    devices = {leaf.device.type for leaf in [loaded, *leaves_of(loaded)]}
    if type(loaded) is not type(original) or devices != {"meta"}:
        raise MismatchError("devices of torch.load(file, map_location='meta') and inside", ["meta"], sorted(devices))
