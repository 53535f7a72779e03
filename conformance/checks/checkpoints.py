"""State dicts: of instances and of plain tensors, into the one and the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..check import check
from ..outcome import MismatchError
from ..subject import VALUED, Subject, addresses, leaves_of
from .casting import Tied
from .life import overlap
from .loading import findable, saved_and_loaded


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
    findable(subject)
    model = Tied(subject.layer())
    state = saved_and_loaded(model.state_dict())
    if addresses(state["one.weight"]) != addresses(state["other.weight"]):
        raise MismatchError("the tied weights of a loaded state dict", "two over one memory", "each with its own")
    fresh = Tied(_other(subject, wrapped=True))
    fresh.load_state_dict(state)
    subject.kept("load_state_dict(torch.load(file)); weight", fresh.one.weight, model.one.weight)
    whole = saved_and_loaded(model.one)
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
