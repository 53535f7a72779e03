"""The functions that are generated for each class: ``make``, ``flatten`` and ``unflatten``.

They are straight lines without a loop or a check, since every op of a wrapper runs ``make`` once. The text is kept in
``linecache``, so that it shows in tracebacks and debuggers.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .carried import CARRIED, device_under
from .declaration import Declaration, Field, Role
from .geometry import carry_bits, traced_stride
from .private import MIXES_UP_STRIDES, make_wrapper, never_compile


class Generated(NamedTuple):
    make: Callable[..., Any]  # make(cls, *fields): trusted arguments, nothing is checked
    flatten: Callable[[Any], tuple[list[str], tuple[Any, ...]]]
    unflatten: Callable[..., Any]  # unflatten(cls, inner, context, outer_size, outer_stride)
    rewrap: Callable[..., Any]  # rewrap(cls, like, *inner): the context is that of ``like``


# The template's own names begin with _l_, which no field may: a field called `first` or `self` is fine.
_TEMPLATE = """\
def make(_l_cls, {parameters}):
    {metadata}
    _l_self = _l_make(_l_cls, {outer})
    {store}
    return _l_self


def flatten(_l_self):
    return {names}, {context}


def unflatten(_l_cls, _l_inner, _l_context, _l_outer_size, _l_outer_stride):
    {unpack}
    {metadata}
    _l_self = _l_make(_l_cls, {traced_outer})
    {store}
    {carry}
    return _l_self


def rewrap(_l_cls, {rewrap_parameters}):
    {take_context}
    {metadata}
    _l_self = _l_make(_l_cls, {outer})
    {store}
    return _l_self
"""

_TRACED_STRIDE = (
    "_l_traced({held}, {geometry}, _l_outer_size, _l_outer_stride)" if MIXES_UP_STRIDES else "_l_outer_stride"
)
_counter = itertools.count()


def generate(name: str, declaration: Declaration, overridden: bool) -> Generated:
    """Compiles the four functions. ``overridden``: the class says its outer metadata in ``outer_metadata``."""
    text = _TEMPLATE.format(**_pieces(declaration, overridden))
    filename = f"<lamina {name} #{next(_counter)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {"_l_make": make_wrapper, "_l_strided": torch.strided, "_l_carry": carry_bits}
    scope |= {"_l_carried": CARRIED, "_l_under": device_under, "_l_type": type}
    scope |= {"_l_traced": traced_stride}
    scope |= {"_l_enumerate": enumerate, "_l_len": len, "_l_range": range, "_l_tuple": tuple}
    exec(compile(text, filename, "exec"), scope)  # noqa: S102 - our own text, no input in it but identifiers
    functions = [scope[f] for f in Generated._fields]
    for function in functions:
        function.__qualname__ = f"{name}.{function.__name__}"
        never_compile(function)  # AOTAutograd calls them at run time, between the pieces of a compiled step
    return Generated(*functions)


def _pieces(declaration: Declaration, overridden: bool) -> dict[str, str]:
    fields = declaration.fields
    names = [f.name for f in fields]
    lines = "\n    ".join
    first = declaration.inner[0]
    held = f"{first.name}[0]" if first.role is Role.RUN else first.name
    if overridden:
        metadata = f"_l_size, _l_stride, _l_offset, _l_dtype, _l_device = _l_cls.outer_metadata({', '.join(names)})"
        device = f"_l_device if _l_type({held}) not in _l_carried else _l_under(_l_cls, {held})"
        geometry, rest = "_l_size, _l_stride", f"_l_offset, None, _l_dtype, _l_strided, {device}"
        carry = ""
    else:
        metadata = f"_l_first = {held}"
        device = "_l_first.device if _l_type(_l_first) not in _l_carried else _l_under(_l_cls, _l_first)"
        geometry = "_l_first.size(), _l_first.stride()"
        rest = f"_l_first.storage_offset(), None, _l_first.dtype, _l_strided, {device}"
        carry = "if _l_first.is_conj() or _l_first.is_neg(): _l_carry(_l_self, _l_first)"
    return {
        "parameters": ", ".join(names),
        "metadata": metadata,
        "outer": f"{geometry}, {rest}",
        "traced_outer": f"_l_outer_size, {_TRACED_STRIDE.format(held=held, geometry=geometry)}, {rest}",
        "store": lines(_store(f) for f in fields),
        "carry": carry,
        "names": _names(declaration),
        "context": f"({''.join(_guard(f) for f in fields)})",
        "unpack": lines(_unpack(declaration)),
        "rewrap_parameters": ", ".join(["_l_like", *(f.name for f in declaration.inner)]),
        "take_context": lines(f"{f.name} = _l_like.{f.name}" for f in declaration.context),
    }


def _store(field: Field) -> str:
    if field.role is Role.RUN:
        parts = f"{{f'{field.name}_{{i}}': t for i, t in _l_enumerate({field.name})}}"
        return f"_l_self.__dict__.update({parts}, {field.name}_count=_l_len({field.name}))"
    return f"_l_self.{field.name} = {field.name}"


def _names(declaration: Declaration) -> str:
    parts = []
    for f in declaration.inner:
        if f.role is Role.INNER:
            parts.append(f"'{f.name}'")
        elif f.role is Role.OPTIONAL:
            parts.append(f"*(['{f.name}'] if _l_self.{f.name} is not None else [])")
        else:
            parts.append(f"*[f'{f.name}_{{i}}' for i in _l_range(_l_self.{f.name}_count)]")
    return f"[{', '.join(parts)}]"


def _guard(field: Field) -> str:
    """The entry of ``field`` in the flatten context: whatever of it decides the structure or a result."""
    if field.role is Role.OPTIONAL:
        return f"_l_self.{field.name} is not None, "
    if field.role is Role.RUN:
        return f"_l_self.{field.name}_count, "
    return f"_l_self.{field.name}, " if field.role is Role.CONTEXT else ""


def _unpack(declaration: Declaration) -> list[str]:
    guarded = [f for f in declaration.fields if f.role is not Role.INNER]
    lines = [f"{''.join(f'{_held(f)}, ' for f in guarded)} = _l_context"] if guarded else []
    for f in declaration.inner:
        if f.role is Role.INNER:
            lines.append(f"{f.name} = _l_inner['{f.name}']")
        elif f.role is Role.OPTIONAL:
            lines.append(f"{f.name} = _l_inner['{f.name}'] if _l_has_{f.name} else None")
        else:
            lines.append(f"{f.name} = _l_tuple(_l_inner[f'{f.name}_{{i}}'] for i in _l_range(_l_{f.name}_count))")
    return lines


def _held(field: Field) -> str:
    return {Role.OPTIONAL: f"_l_has_{field.name}", Role.RUN: f"_l_{field.name}_count"}.get(field.role, field.name)
