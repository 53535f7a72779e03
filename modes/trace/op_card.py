"""All that there is to say of one operator: where it comes from, what computes it, how it is differentiated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from ...subclasses.core.private import OpOverload, bridges_to, has_decomposition, schema_of
from ...subclasses.core.table import op_table
from .operators import named, overload_of, written
from .packaged import autocast_policies, declaration_of, derivatives_of
from .slots import Kernel, slots_of

_AUTOCASTS = ("AutocastCPU", "AutocastCUDA")


@dataclass(frozen=True)
class OpCard:
    """``variants``: how the schema makes Python functions and methods. ``structured``: the overload that it shares its
    kernel and shape function with, or "itself". ``kernels``: the C++ function for each backend, as declared, for that
    overload where it has one. ``derivatives``: argument to formula; ``result`` is that of forward mode. ``autocast``:
    key to what is known of it. ``bridges``: the C++ modules through which Python reaches it. ``types``: a class to how
    it answers.
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
    """
    op = overload_of(name)
    full = op.name()
    bare = written(full).partition("::")[2]
    declared = (declaration_of(bare) or {}) if full.startswith("aten::") else {}
    delegate = declared.get("structured_delegate")
    kernels = (_kernels(declaration_of(delegate) or {}) if delegate else {}) | _kernels(declared)
    return OpCard(
        full,
        str(schema_of(op)),
        [written(each) for each in named(full.partition(".")[0])],
        [each.strip() for each in declared.get("variants", "function" if declared else "").split(",") if each.strip()],
        sorted(str(tag).rpartition(".")[2] for tag in op.tags),
        delegate or ("itself" if declared.get("structured") else None),
        kernels,
        derivatives_of(bare) if full.startswith("aten::") else {},
        _autocast(full, bare),
        bridges_to(bare.partition(".")[0]),
        _decomposition(op),
        {cls.__name__: _answer(cls, op) for cls in types},
    )


def _kernels(declared: dict[str, Any]) -> dict[str, str]:
    """Backend to function; several backends may share an entry."""
    entries = declared.get("dispatch", {}).items()
    return {key.strip(): str(value) for keys, value in entries for key in keys.split(",")}


def _autocast(full: str, bare: str) -> dict[str, str]:
    slots, policies = slots_of(full), autocast_policies()
    found = {}
    for key in _AUTOCASTS:
        slot = slots.get(key)
        if slot is None or slot.kernel in (Kernel.FALLTHROUGH, Kernel.FALLBACK):
            found[key] = "passed over: no cast"
            continue
        policy = policies.get(bare) or policies.get(bare.partition(".")[0]) if key == "AutocastCUDA" else None
        found[key] = f"casts to {policy} ({slot.place})" if policy else f"has a kernel ({slot.place})"
    return found


def _decomposition(op: OpOverload) -> str:
    if any(slot.kernel is Kernel.IMPLICIT for slot in slots_of(op.name()).values()):
        return "composite: its kernel is made of other operators"
    return "a Python one, for compilers" if has_decomposition(op) else "none"


def _answer(cls: type, op: OpOverload) -> str:
    entry = op_table(cls)[op]
    where = f" ({entry.where.rpartition('/')[2]})" if entry.where else ""
    return f"{entry.how.value} {entry.name}{where}"
