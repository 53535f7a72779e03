"""Broken in how they are pickled, saved, loaded (loading.py) and listed in a state dict (checkpoints.py)."""

from __future__ import annotations

from typing import Any

import torch
from subjects import Clear

aten = torch.ops.aten


class SavedPlain(Clear):
    """Saved as a plain tensor."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.detach().to_plain().__reduce_ex__(protocol)


def untrusted(cls: Any, elem: torch.Tensor, requires_grad: bool, attributes: dict[str, Any]) -> Any:
    """Rebuilds an instance; torch was not told that it may be called."""
    result = cls(elem).requires_grad_(requires_grad)
    vars(result).update(attributes)
    return result


def _reduced(self: Any, elem: torch.Tensor) -> Any:
    attributes = {name: value for name, value in vars(self).items() if name in ("_is_param", "no_decay")}
    return untrusted, (type(self), elem, self.requires_grad, attributes)


class Untrusted(Clear):
    """Rebuilt by a function that ``weights_only`` refuses."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _reduced(self, self.elem)


def trusted_late(cls: Any, elem: torch.Tensor) -> Any:
    """Rebuilds an instance; registered by what saves one."""
    return cls(elem)


class TrustedLate(Clear):
    """What rebuilds it is registered once one was saved: too late for a process that only loads."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        torch.serialization.add_safe_globals([trusted_late])
        return trusted_late, (type(self), self.elem)


class ComesBackFrozen(Clear):
    """Saved without requires_grad."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return untrusted, (type(self), self.elem, False, {})


class ComesBackBare(Clear):
    """Saved without the user's attributes."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        parameter = {name: value for name, value in vars(self).items() if name == "_is_param"}
        return untrusted, (type(self), self.elem, self.requires_grad, parameter)


class SavedApart(Clear):
    """What shares memory is saved twice."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _reduced(self, self.elem.clone())


def _of_list(cls: Any, values: list[Any], requires_grad: bool) -> Any:
    return cls(torch.tensor(values)).requires_grad_(requires_grad)


class SavedAsList(Clear):
    """Saved as Python numbers: no location can be mapped."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _of_list, (type(self), self.elem.tolist(), self.requires_grad)


class DetachesCopies(Clear):
    """``detach`` copies."""


@DetachesCopies.implements(aten.detach.default)
def detach_copy(op: Any, self: Any) -> Any:
    return type(self)(self.elem.clone())


class IgnoresCopies(Clear):
    """``copy_`` writes nothing."""


@IgnoresCopies.implements(aten.copy_.default)
def copy_nothing_(op: Any, self: Any, src: Any, non_blocking: bool = False) -> Any:
    return self


class LoadsPlain(Clear):
    """Takes what it is loaded with in its place, whatever that is."""

    def module_load(self, other: torch.Tensor, assign: bool = False) -> torch.Tensor:
        return other.detach() if assign else other.detach().clone()


class EmptiesToPlain(Clear):
    """``empty_like`` gives a plain tensor."""


@EmptiesToPlain.implements(aten.empty_like.default)
def empty_plain(op: Any, self: Any, **how: Any) -> Any:
    return op(self.elem, **how)


BROKEN = {
    "pickle_keeps_the_instance": (SavedPlain, SavedPlain),
    "weights_only_loading_keeps_the_instance": (Untrusted, Untrusted),
    "a_fresh_process_loads_with_weights_only": (TrustedLate, TrustedLate),
    "full_loading_keeps_the_instance": (ComesBackFrozen, ComesBackFrozen),
    "a_loaded_parameter_keeps_its_attributes": (ComesBackBare, ComesBackBare),
    "memory_mapped_loading_keeps_the_instance": (SavedPlain, SavedPlain),
    "saving_keeps_what_is_shared": (SavedApart, SavedApart),
    "loading_maps_every_leaf": (SavedAsList, SavedAsList),
    "a_state_dict_names_each_parameter_once": (DetachesCopies, DetachesCopies),
    "a_plain_checkpoint_loads_into_instances": (IgnoresCopies, IgnoresCopies),
    "a_checkpoint_loads_by_swapping": (LoadsPlain, LoadsPlain),
    "an_assigned_checkpoint_is_taken_whole": (DetachesCopies, DetachesCopies),
    "a_module_is_saved_and_loaded": (SavedApart, SavedApart),
    "a_module_comes_back_from_the_meta_device": (EmptiesToPlain, EmptiesToPlain),
}
