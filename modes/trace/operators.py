"""Operators by their names, and what to say of a name that is none."""

from __future__ import annotations

from difflib import get_close_matches
from functools import partial

import torch

from ...subclasses.core.private import OpOverload, all_operator_names, require


class UnknownOperatorError(LookupError):
    """There is no operator of that name. The text has near ones."""

    def __init__(self, name: str, near: list[str]) -> None:
        self.name, self.near = name, near
        hint = f"Near: {', '.join(near)}" if near else "Write it as aten::addmm or aten.add.Tensor"
        super().__init__(f"there is no operator {name!r}. {hint}.")


def overload_of(name: str) -> OpOverload:
    """The overload that a name means: ``aten::add.Tensor``, ``aten.add.Tensor``, ``add.Tensor``; without an overload,
    the default one, or the only one.

    Raises:
        UnknownOperatorError: there is none, or several and no default.
        UnseenError: this build of torch doesn't name its operators.
    """
    require("the names of operators")
    found = named(name)
    chosen = [each for each in found if _overload(each) == "default"] or found
    if len(chosen) == 1:
        return _resolved(chosen[0])
    raise UnknownOperatorError(name, [written(each) for each in found] or near_operators(name))


def named(name: str) -> list[str]:
    """The full names that a name can mean: all overloads where it has none."""
    namespace, base, overload = _split(name)
    all_names = [each for each in all_operator_names() if each.startswith(f"{namespace}::{base}")]
    wanted = [each for each in all_names if _split(each)[1] == base]
    if overload is None:
        return sorted(wanted)
    return [each for each in wanted if _overload(each) == overload]


def written(name: str) -> str:
    """As C++ writes it: ``aten::addmm``, and not ``aten::addmm.default``."""
    return name.removesuffix(".default")


def _split(name: str) -> tuple[str, str, str | None]:
    text = name.removeprefix("torch.ops.")
    if "::" in text:
        namespace, _, rest = text.partition("::")
    else:
        namespace, dot, rest = text.partition(".")
        known = {each.partition("::")[0] for each in all_operator_names()}
        if not dot or namespace not in known:
            namespace, rest = "aten", text
    base, _, overload = rest.partition(".")
    return namespace, base, overload or None


def _overload(name: str) -> str:
    return name.partition("::")[2].partition(".")[2] or "default"


def _resolved(name: str) -> OpOverload:
    namespace, base, _ = _split(name)
    found: OpOverload = getattr(getattr(getattr(torch.ops, namespace), base), _overload(name))
    return found


def near_operators(name: str) -> list[str]:
    """Operators with a similar name."""
    namespace, base, _ = _split(name)
    bases = {f"{_split(each)[0]}::{_split(each)[1]}" for each in all_operator_names()}
    near = partial(get_close_matches, n=5, cutoff=0.6)
    return near(f"{namespace}::{base}", bases)
