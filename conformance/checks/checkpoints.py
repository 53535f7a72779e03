"""Pickling an instance, saving and loading it, and state dicts."""

from __future__ import annotations

import io
import pickle
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..check import check
from ..outcome import MismatchError, NotApplicable
from ..subject import VALUED, Kind, Subject, addresses, leaves_of
from .casting import Tied
from .life import memory, overlap


def _findable(subject: Subject) -> None:
    """Pickle writes a class by its name: one made inside a function has none that can be found."""
    try:
        pickle.dumps(subject.cls)
    except (pickle.PicklingError, AttributeError) as error:
        raise NotApplicable(f"no pickle can name the class: {error}. Define it at module level") from None


def _loaded(value: Any, *, weights_only: bool = False, **options: Any) -> Any:
    """``value``, saved and loaded again."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only, **options)


@check("life", "pickle gives a plain tensor, or can't rebuild the class")
def pickle_keeps_the_instance(subject: Subject) -> None:
    """``pickle`` keeps class, context, requires_grad and bits, under every protocol of today; the result has memory of
    its own, and what is one object stays one."""
    _findable(subject)
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        for grad in (False, True):
            original = subject.new(4, 8, grad=grad)
            one, same = pickle.loads(pickle.dumps([original, original], protocol))
            call = f"pickle.loads(pickle.dumps(w, {protocol}))"
            subject.kept(call, one, original)
            if one is not same:
                raise MismatchError("pickle.loads(pickle.dumps([w, w]))", "one object, twice", "two objects")
            if overlap(one, original):
                raise MismatchError(call, "memory of its own", "tensors at addresses of the original")


@check("life", "torch.load(weights_only=True) refuses the class")
def weights_only_loading_keeps_the_instance(subject: Subject) -> None:
    """``torch.save`` and ``torch.load`` with its default, ``weights_only=True``, keep class, context, requires_grad and
    bits, in a Parameter too. What unpickles only without it will not be loaded by most."""
    _findable(subject)
    for original in (subject.new(4, 8), subject.new(4, 8, grad=True), nn.Parameter(subject.new(4, 8))):
        call = "torch.load(file, weights_only=True)"
        try:
            loaded = _loaded(original, weights_only=True)
        except pickle.UnpicklingError as error:
            raise MismatchError(call, "the instance: call torch.serialization.add_safe_globals", _why(error)) from None
        subject.kept(call, loaded, original)


def _why(error: Exception) -> str:
    """The line of the error that says what was refused: it is not the first one."""
    lines = str(error).splitlines()
    return next((line for line in lines if "nsupported" in line or "not an allowed" in line), lines[0]).strip()


@check("life", "torch.load without weights_only breaks")
def full_loading_keeps_the_instance(subject: Subject) -> None:
    """The same with ``weights_only=False``, which runs the class's own code: another path through it."""
    _findable(subject)
    original = subject.new(4, 8, grad=True)
    loaded = _loaded({"w": original, "step": 3})["w"]
    subject.kept("torch.load(file, weights_only=False)", loaded, original)


@check("life", "a saved Parameter comes back as none, or without its attributes")
def a_loaded_parameter_keeps_its_attributes(subject: Subject) -> None:
    """A Parameter comes back as one, with the marks that a user put on it, as a plain one does."""
    _findable(subject)
    for grad in (True, False):
        parameter: Any = nn.Parameter(subject.new(4, 8), requires_grad=grad)
        parameter.no_decay = True
        loaded = _loaded(parameter)
        subject.kept("torch.load(file of nn.Parameter(w))", loaded, parameter)
        if getattr(loaded, "no_decay", None) is not True:
            raise MismatchError("torch.load(file of p).no_decay, where p.no_decay = True", True, "no such attribute")


@check("life", "torch.load(mmap=True) reads all, or gives garbage", kinds=VALUED)
def memory_mapped_loading_keeps_the_instance(subject: Subject) -> None:
    """``mmap=True`` maps the file: the same instance comes, and a write to it does not reach the file."""
    _findable(subject)
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
    _findable(subject)
    original = subject.new(4, 8)
    one, other = _loaded([original, original.detach()])
    subject.kept("torch.load(file of [w, w.detach()])[0]", one, original)
    if addresses(one) != addresses(other):
        raise MismatchError("torch.load(file of [w, w.detach()])", "two over one memory", "each with memory of its own")
    view = original[1:3]
    one, shown = _loaded([original, view])
    if subject.kind is Kind.TRANSPARENT and memory(view) & memory(original) and not memory(shown) & memory(one):
        raise MismatchError("torch.load(file of [w, w[1:3]])", "two over one memory", "each with memory of its own")
    subject.same("torch.load(file of [w, w[1:3]])[1]", shown, subject.values(view))


@check("life", "map_location moves some of the tensors inside")
def loading_maps_every_leaf(subject: Subject) -> None:
    """``map_location`` holds for the instance and for all tensors inside: as a name, and as a function (or
    an error says that it takes none)."""
    _findable(subject)
    original = subject.new(4, 8)
    name = str(subject.device)
    subject.kept(f"torch.load(file, map_location={name!r})", _loaded(original, map_location=name), original)
    try:
        loaded = _loaded(original, map_location=lambda storage, _: storage)
    except RuntimeError as error:  # torch's own way of rebuilding a wrapper takes none
        if "map_location" not in str(error):
            raise
    else:
        subject.kept("torch.load(file, map_location=function)", loaded, original)
    loaded = _loaded(original, map_location="meta")
    devices = {leaf.device.type for leaf in [loaded, *leaves_of(loaded)]}
    if type(loaded) is not type(original) or devices != {"meta"}:
        raise MismatchError("devices of torch.load(file, map_location='meta') and inside", ["meta"], sorted(devices))


@check("life", "state_dict has other keys, or copies")
def a_state_dict_names_each_parameter_once(subject: Subject) -> None:
    """One entry a parameter, of the class, under the parameter's own name, over its memory; with ``keep_vars`` the
    Parameter itself. Trainers, shards and checkpoints rely on these names."""
    layer = subject.layer()
    state = layer.state_dict()
    if list(state) != ["weight", "bias"]:
        raise MismatchError("list(layer.state_dict())", ["weight", "bias"], list(state))
    weight: Any = state["weight"]
    if type(weight) is not type(layer.weight) or weight.requires_grad:
        wanted = f"a {subject.cls.__name__} that does not require grad"
        raise MismatchError("layer.state_dict()['weight']", wanted, weight)
    subject.same("layer.state_dict()['weight']", weight, subject.reference(subject.plain(4, 8)))
    if addresses(weight) != addresses(layer.weight):
        raise MismatchError("layer.state_dict()['weight']", "an alias of layer.weight", "memory of its own")
    if layer.state_dict(keep_vars=True)["weight"] is not layer.weight:
        raise MismatchError("layer.state_dict(keep_vars=True)['weight'] is layer.weight", True, False)


def _other(subject: Subject, *, wrapped: bool) -> Any:
    """A layer with another weight, wrapped or plain."""
    layer = nn.Linear(8, 4, device=subject.device)
    plain = subject.plain(4, 8, seed=5)
    layer.weight = nn.Parameter(subject.wrap(plain) if wrapped else plain)
    return layer


@check("life", "a plain checkpoint can't be loaded into wrapped parameters", kinds=VALUED)
def a_plain_checkpoint_loads_into_instances(subject: Subject) -> None:
    """``load_state_dict`` writes plain values into a wrapped parameter, which stays one, the same object; the values of
    an instance into a plain one; and those of one instance into another."""
    for wrapped, target in ((False, True), (True, False), (True, True)):
        source = _other(subject, wrapped=wrapped)
        layer: Any = subject.layer() if target else nn.Linear(8, 4, device=subject.device)
        kinds = ["wrapped" if each else "plain" for each in (wrapped, target)]
        call = "load_state_dict of a {} weight into a {} one".format(*kinds)
        before = layer.weight
        try:
            layer.load_state_dict(source.state_dict())
        except RuntimeError as error:  # its first line only says that there are errors
            raise MismatchError(call, "the values, copied", " ".join(str(error).split())) from error
        if layer.weight is not before or subject.is_instance(layer.weight) != target:
            raise MismatchError(call, f"the {kinds[1]} Parameter that was there", layer.weight)
        if not layer.weight.requires_grad:
            raise MismatchError(f"{call}; weight.requires_grad", True, False)
        if target and not wrapped:
            subject.stored(call, layer.weight, source.weight.detach())
        else:
            subject.same(call, layer.weight, subject.values(source.weight).detach())
        if overlap(layer.weight, source.weight):
            raise MismatchError(call, "a copy of the values", "memory of the checkpoint")


@check("life", "loading by swapping loses the class", kinds=VALUED)
def a_checkpoint_loads_by_swapping(subject: Subject) -> None:
    """With ``torch.__future__.set_swap_module_params_on_conversion(True)`` a checkpoint is loaded by exchanging
    tensors: the Parameter stays the object and the class that it was, whether values come plain or wrapped."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        for wrapped in (False, True):
            layer, source = subject.layer(), _other(subject, wrapped=wrapped)
            held = layer.weight
            layer.load_state_dict(source.state_dict())
            call = f"load_state_dict of a {'wrapped' if wrapped else 'plain'} weight, by swapping"
            if layer.weight is not held or not subject.is_instance(held) or not isinstance(held, nn.Parameter):
                raise MismatchError(call, f"the Parameter that was there, a {subject.cls.__name__}", layer.weight)
            subject.stored(call, held, subject.values(source.weight).detach())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


@check("life", "load_state_dict(assign=True) swaps out the class", kinds=VALUED)
def an_assigned_checkpoint_is_taken_whole(subject: Subject) -> None:
    """With ``assign=True`` an instance in the state dict becomes the Parameter, class and bits; in a layer on the meta
    device as well, which is how large models are loaded."""
    source = _other(subject, wrapped=True)
    for where in ("cpu", "meta"):
        layer: Any = nn.Linear(8, 4, device=where)
        layer.load_state_dict(source.state_dict(), assign=True)
        call = f"load_state_dict(assign=True) into a layer on {where}"
        subject.kept(f"{call}; weight", layer.weight, source.weight)
        if addresses(layer.weight) != addresses(source.weight):
            raise MismatchError(call, "the tensors of the checkpoint themselves", "copies")


@check("life", "a whole model can't be saved and loaded", kinds=VALUED)
def a_module_is_saved_and_loaded(subject: Subject) -> None:
    """The state dict of a model with tied weights goes through a file and into a fresh model, bit by bit; the tie holds
    in both; and so does a module pickled whole."""
    _findable(subject)
    model = Tied(subject.layer())
    state = _loaded(model.state_dict())
    if addresses(state["one.weight"]) != addresses(state["other.weight"]):
        raise MismatchError("the tied weights of a loaded state dict", "two over one memory", "each with its own")
    fresh = Tied(_other(subject, wrapped=True))
    fresh.load_state_dict(state)
    subject.kept("load_state_dict(torch.load(file)); weight", fresh.one.weight, model.one.weight)
    whole = _loaded(model.one)
    subject.kept("torch.load(file of a module); weight", whole.weight, model.one.weight)


@check("life", "to_empty and load after a meta device fail", kinds=VALUED)
def a_module_comes_back_from_the_meta_device(subject: Subject) -> None:
    """``module.to("meta")`` keeps class and frees memory, ``to_empty`` gives memory again, ``load_state_dict`` the
    values that were saved."""
    layer: Any = subject.layer()
    saved = {name: value.clone() for name, value in layer.state_dict().items()}
    layer.to("meta")
    devices = {leaf.device.type for leaf in [layer.weight, *leaves_of(layer.weight)]}
    if not subject.is_instance(layer.weight) or devices != {"meta"}:
        raise MismatchError("layer.to('meta').weight", f"a {subject.cls.__name__}, all on meta", layer.weight)
    layer.to_empty(device=subject.device)
    layer.load_state_dict(saved)
    subject.same("to('meta'), to_empty('cpu'), load_state_dict; weight", layer.weight, subject.values(saved["weight"]))
    if not subject.is_instance(layer.weight):
        raise MismatchError("to('meta'), to_empty('cpu'), load_state_dict; weight", subject.cls, type(layer.weight))
