"""Static values as JSON, and back: what comes back equals what was saved, in type too."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any

import torch

from .classes import name_of

Classes = Mapping[str, type]
_AS_JSON = (NoneType, bool, int, str)
_SEQUENCES: dict[type, str] = {tuple: "tuple", torch.Size: "size", frozenset: "frozenset"}
_OF_TORCH = (torch.dtype, torch.layout, torch.memory_format)
# By a table, not by getattr: torch imports some of its parts when their names are read.
_TORCH = {str(value): value for value in vars(torch).values() if isinstance(value, _OF_TORCH)}


class ValueFormatError(ValueError):
    """A value that has no form in JSON here, or a form that is none of a value. The caller says where."""


def to_json(value: Any, classes: Classes) -> Any:
    """``value`` in types that JSON has. Enums and dataclasses have to be among ``classes``.

    Raises:
        ValueFormatError: it can't be told, or would come back as something else.
    """
    written = _written(value, classes)
    if _written(from_json(written, classes), classes) != written:
        raise ValueFormatError(f"{value!r} is not what its own fields make: {written!r}")
    return written


def _written(value: Any, classes: Classes) -> Any:
    kind = type(value)
    if kind in _AS_JSON:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is list:
        return [_written(item, classes) for item in value]
    if kind is dict:
        return {"dict": [[_written(key, classes), _written(item, classes)] for key, item in value.items()]}
    if kind in _SEQUENCES:
        items = [_written(item, classes) for item in value]
        return {_SEQUENCES[kind]: sorted(items, key=repr) if kind is frozenset else items}
    if kind in _OF_TORCH:
        return {"torch": str(value)}
    if kind is torch.device:
        return {"device": str(value)}
    return _written_object(value, classes)


def _written_object(value: Any, classes: Classes) -> Any:
    kind = type(value)
    name = name_of(kind)
    if not isinstance(value, enum.Enum) and not is_dataclass(value):
        raise ValueFormatError(f"{value!r} is a {name}, which has no form in JSON")
    if classes.get(name) is not kind:
        raise ValueFormatError(f"{name} is not among the classes that may be read here: {', '.join(classes) or 'none'}")
    if isinstance(value, enum.Enum):
        return {"enum": name, "member": value.name}
    return {
        "object": name,
        "fields": {f.name: _written(getattr(value, f.name), classes) for f in fields(value) if f.init},
    }


def from_json(written: Any, classes: Classes) -> Any:
    """The value that ``to_json`` was given.

    Raises:
        ValueFormatError: ``written`` is nothing that it wrote.
    """
    if type(written) in _AS_JSON or type(written) is float:
        return written
    if type(written) is list:
        return [from_json(item, classes) for item in written]
    try:
        read = _READERS[next(iter(written))]
        return read(written, classes)
    except ValueFormatError:
        raise
    except (AttributeError, LookupError, StopIteration, TypeError, ValueError, RuntimeError) as error:
        raise ValueFormatError(f"{written!r} is no value that lamina wrote ({error!r})") from error


def _sequence(kind: Callable[..., Any], tag: str) -> Callable[[Any, Classes], Any]:
    return lambda written, classes: kind(from_json(item, classes) for item in written[tag])


def _dict(written: Any, classes: Classes) -> Any:
    return {from_json(key, classes): from_json(item, classes) for key, item in written["dict"]}


def _float(written: Any, classes: Classes) -> float:
    return float(written["float"])


def _of_torch(written: Any, classes: Classes) -> Any:
    return _TORCH[written["torch"]]


def _device(written: Any, classes: Classes) -> torch.device:
    return torch.device(written["device"])


def _enum(written: Any, classes: Classes) -> Any:
    return _known(written["enum"], enum.Enum, classes)[written["member"]]


def _object(written: Any, classes: Classes) -> Any:
    cls: Any = _known(written["object"], object, classes)
    if not is_dataclass(cls):
        raise ValueFormatError(f"{written['object']} is no dataclass")
    make: Any = cls
    return make(**{name: from_json(item, classes) for name, item in written["fields"].items()})


def _known(name: str, base: type, classes: Classes) -> Any:
    cls = classes.get(name)
    if cls is None or not issubclass(cls, base):
        raise ValueFormatError(
            f"no class {name} is known here; those that may be read are {', '.join(classes) or 'none'}. If it is a "
            f"subclass of one of them, write `import {name.partition(':')[0]}` first"
        )
    return cls


_READERS: dict[str, Callable[[Any, Classes], Any]] = {
    **{tag: _sequence(kind, tag) for kind, tag in _SEQUENCES.items()},
    "dict": _dict,
    "float": _float,
    "torch": _of_torch,
    "device": _device,
    "enum": _enum,
    "object": _object,
}
