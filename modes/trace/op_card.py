"""All that there is to say of one operator: where it comes from, what computes it, how it is differentiated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from ...subclasses.core.private import OpOverload, bridges_to, decomposition_of, require, schema_of
from ...subclasses.core.table import op_table
from .autocast import DEVICES, Policy, observed_policy
from .handlers import place_of
from .operators import named, overload_of, written
from .packaged import declaration_of, derivatives_of, kernels_of
from .slots import Kernel, Slot, registered_of, slots_of


@dataclass(frozen=True)
class OpCard:
    """``variants``: how the schema makes Python functions and methods. ``structured``: the overload that it shares its
    kernel and shape function with, or "itself". ``kernels``: the C++ function for each backend, as declared, for that
    overload where it has one; of an operator that torch doesn't declare, where its kernels are registered.
    ``derivatives``: argument to formula; ``result`` is that of forward mode; "composite" and "all": what stands in for
    formulas, where the composite kernel runs and everywhere.
    ``autocast``: key to what was observed of it. ``bridges``: the C++ modules through which Python reaches it.
    ``types``: a class to how it answers.
    """

    name: str
    schema: str
    overloads: list[str]
    variants: list[str]
    tags: list[str]
    structured: str | None
    kernels: dict[str, str]
    derivatives: dict[str, str]
    autocast: dict[str, str]
    bridges: list[str]
    decomposition: str
    types: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As plain types."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [self.schema]
        lines += [
            f"  overloads      {', '.join(self.overloads)}",
            f"  variants       {', '.join(self.variants) or '-'}",
        ]
        lines += [f"  tags           {', '.join(self.tags) or '-'}", f"  structured     {self.structured or 'no'}"]
        for title, entries in (
            ("kernels", self.kernels),
            ("derivatives", self.derivatives),
            ("autocast", self.autocast),
            ("types", self.types),
        ):
            lines += [f"  {title:<14} {key}: {value}" for key, value in entries.items()] or [f"  {title:<14} -"]
        lines += [f"  from Python    {', '.join(self.bridges) or 'torch.ops only, or made of other functions'}"]
        return "\n".join([*lines, f"  decomposition  {self.decomposition}"])


def op_card(name: str, types: Iterable[type] = ()) -> OpCard:
    """The card of an operator, such as ``aten::addmm`` or ``aten::add.Tensor``. ``types``: wrapper classes of lamina's
    whose answer to it is of interest.

    Raises:
        UnknownOperatorError: there is no such operator; the text has near ones.
        MissingSourcesError: this build of torch lacks the declarations, or PyYAML is not installed.
        UnseenError: this build of torch doesn't show its tables.
    """
    require("dispatch tables", "what is registered")
    op = overload_of(name)
    full = op.name()
    bare = written(full).partition("::")[2]
    slots = slots_of(full)
    own = full.startswith("aten::")
    declared = (declaration_of(bare) or {}) if own else {}
    return OpCard(
        full,
        str(schema_of(op)),
        [written(each) for each in named(full.partition(".")[0])],
        [each.strip() for each in declared.get("variants", "function" if declared else "").split(",") if each.strip()],
        sorted(str(tag).rpartition(".")[2] for tag in op.tags),
        declared.get("structured_delegate") or ("itself" if declared.get("structured") else None),
        kernels_of(bare) if declared else {key: f"({place})" for key, place in registered_of(full).items()},
        _derivatives(op, derivatives_of(bare) if own else {}, slots.get("AutogradCPU")),
        {key: _autocast(op, key, slots.get(key)) for key in DEVICES},
        bridges_to(bare.partition(".")[0]) if own else [],
        _decomposition(op, slots),
        {cls.__name__: _answer(cls, op) for cls in types},
    )


def _derivatives(op: OpOverload, formulas: dict[str, str], slot: Slot | None) -> dict[str, str]:
    """The formulas, and what stands in for them: a composite kernel may have some, for backends with their own one."""
    kernel = Kernel.MISSING if slot is None else slot.kernel
    if kernel is Kernel.IMPLICIT:
        return {**formulas, "composite": "those of the operators that its kernel is made of"}
    if formulas or kernel is not Kernel.AUTOGRAD or slot is None:
        return formulas
    return {} if op.name().startswith("aten::") else {"all": f"by the autograd kernel ({slot.place})"}


def _autocast(op: OpOverload, key: str, slot: Slot | None) -> str:
    if slot is None or slot.kernel in (Kernel.FALLTHROUGH, Kernel.FALLBACK):
        return "passed over: no cast"
    try:
        policy = observed_policy(op, key)
    except Exception as error:  # noqa: BLE001 - anyone's kernel, which may refuse the arguments: the card says so
        return f"has a kernel, which could not be observed: {type(error).__name__}: {error} ({slot.place})"
    now = f", now {torch.get_autocast_dtype(DEVICES[key])}" if policy is Policy.LOWER_PRECISION_FP else ""
    return f"{policy.name.lower()}: {policy.value}{now} (observed; {slot.place})"


def _decomposition(op: OpOverload, slots: dict[str, Slot]) -> str:
    composite = next((slot for slot in slots.values() if slot.kernel is Kernel.IMPLICIT), None)
    python = decomposition_of(op)
    found = [f"composite: its kernel is made of other operators ({composite.place})"] if composite else []
    if python is not None:
        found.append(f"in Python, for compilers: {python.__module__}.{python.__qualname__} ({place_of(python)})")
    return "; ".join(found) or "none"


def _answer(cls: type, op: OpOverload) -> str:
    entry = op_table(cls)[op]
    where = f" ({entry.where.rpartition('/')[2]})" if entry.where else ""
    return f"{entry.how.value} {entry.name}{where}"
