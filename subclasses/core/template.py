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

from .declaration import Declaration, Field, Role
from .private import make_wrapper


class OuterMetadata(NamedTuple):
    """What the outer tensor says of itself. ``size``, ``stride`` and ``storage_offset`` count elements."""

    size: torch.Size | tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int
    dtype: torch.dtype
    device: torch.device


class Generated(NamedTuple):
    make: Callable[..., Any]  # make(cls, *fields): trusted arguments, nothing is checked
    flatten: Callable[[Any], tuple[list[str], tuple[Any, ...]]]
    unflatten: Callable[..., Any]  # unflatten(cls, inner, context, outer_size, outer_stride)
    rewrap: Callable[..., Any]  # rewrap(cls, like, *inner): the context is that of ``like``


_TEMPLATE = """\
def make(cls, {parameters}):
    {metadata}
    self = make_wrapper(cls, {outer})
    {store}
    return self


def flatten(self):
    return {names}, {context}


def unflatten(cls, inner, context, outer_size, outer_stride):
    {unpack}
    {metadata}
    self = make_wrapper(cls, {traced_outer})
    {store}
    return self


def rewrap(cls, {rewrap_parameters}):
    {take_context}
    {metadata}
    self = make_wrapper(cls, {outer})
    {store}
    return self
"""

_counter = itertools.count()


def generate(name: str, declaration: Declaration, overridden: bool) -> Generated:
    """Compiles the four functions. ``overridden``: the class says its outer metadata in ``outer_metadata``."""
    text = _TEMPLATE.format(**_pieces(declaration, overridden))
    filename = f"<lamina {name} #{next(_counter)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    scope: dict[str, Any] = {"make_wrapper": make_wrapper, "strided": torch.strided}
    exec(compile(text, filename, "exec"), scope)  # noqa: S102 - our own text, no input in it but identifiers
    functions = [scope[f] for f in Generated._fields]
    for function in functions:
        function.__qualname__ = f"{name}.{function.__name__}"
    return Generated(*functions)


def _pieces(declaration: Declaration, overridden: bool) -> dict[str, str]:
    fields = declaration.fields
    names = [f.name for f in fields]
    lines = "\n    ".join
    if overridden:
        metadata = f"size, stride, offset, dtype, device = cls.outer_metadata({', '.join(names)})"
        outer = "size, stride, offset, None, dtype, strided, device"
        traced = "outer_size, outer_stride, offset, None, dtype, strided, device"
    else:
        first = declaration.inner[0]
        e = f"{first.name}[0]" if first.role is Role.RUN else first.name
        metadata = f"first = {e}"
        outer = "first.size(), first.stride(), first.storage_offset(), None, first.dtype, strided, first.device"
        traced = "outer_size, outer_stride, first.storage_offset(), None, first.dtype, strided, first.device"
    return {
        "parameters": ", ".join(names),
        "metadata": metadata,
        "outer": outer,
        "traced_outer": traced,
        "store": lines(_store(f) for f in fields),
        "names": _names(declaration),
        "context": f"({''.join(_guard(f) for f in fields)})",
        "unpack": lines(_unpack(declaration)),
        "rewrap_parameters": ", ".join(["like", *(f.name for f in declaration.inner)]),
        "take_context": lines(f"{f.name} = like.{f.name}" for f in declaration.context),
    }


def _store(field: Field) -> str:
    if field.role is Role.RUN:
        parts = f"{{f'{field.name}_{{i}}': t for i, t in enumerate({field.name})}}"
        return f"self.__dict__.update({parts}, {field.name}_count=len({field.name}))"
    return f"self.{field.name} = {field.name}"


def _names(declaration: Declaration) -> str:
    parts = []
    for f in declaration.inner:
        if f.role is Role.INNER:
            parts.append(f"'{f.name}'")
        elif f.role is Role.OPTIONAL:
            parts.append(f"*(['{f.name}'] if self.{f.name} is not None else [])")
        else:
            parts.append(f"*[f'{f.name}_{{i}}' for i in range(self.{f.name}_count)]")
    return f"[{', '.join(parts)}]"


def _guard(field: Field) -> str:
    """The entry of ``field`` in the flatten context: whatever of it decides the structure or a result."""
    if field.role is Role.OPTIONAL:
        return f"self.{field.name} is not None, "
    if field.role is Role.RUN:
        return f"self.{field.name}_count, "
    return f"self.{field.name}, " if field.role is Role.CONTEXT else ""


def _unpack(declaration: Declaration) -> list[str]:
    guarded = [f for f in declaration.fields if f.role is not Role.INNER]
    lines = [f"{''.join(f'{_held(f)}, ' for f in guarded)} = context"] if guarded else []
    for f in declaration.inner:
        if f.role is Role.INNER:
            lines.append(f"{f.name} = inner['{f.name}']")
        elif f.role is Role.OPTIONAL:
            lines.append(f"{f.name} = inner['{f.name}'] if has_{f.name} else None")
        else:
            lines.append(f"{f.name} = tuple(inner[f'{f.name}_{{i}}'] for i in range({f.name}_count))")
    return lines


def _held(field: Field) -> str:
    return {Role.OPTIONAL: f"has_{field.name}", Role.RUN: f"{field.name}_count"}.get(field.role, field.name)
