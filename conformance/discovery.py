"""The subject for a class: what its author did not say is found out, and what can't be checked at all is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..subclasses.core.policy import Fallback
from ..subclasses.core.wrapper import WrapperTensor
from .inside import inner_tensors, leaves_of
from .outcome import first_line, shown
from .subject import Decode, Kind, Make, Subject, SubjectError


def subject_of(
    cls: Any,
    make: Make | None = None,
    *,
    kind: Kind | str | None = None,
    decode: Decode | None = None,
    device: Any = "cpu",
    rtol: float | None = None,
) -> Subject:
    """The subject for a class; what is not given is found out.

    Raises:
        SubjectError: ``cls`` is no tensor subclass, or there is no way to make one, or to read its values.
    """
    if not (isinstance(cls, type) and issubclass(cls, torch.Tensor)) or cls is torch.Tensor:
        raise SubjectError(f"{shown(cls)} is no subclass of torch.Tensor")
    if make is None:
        if not issubclass(cls, WrapperTensor):
            raise SubjectError(f"{cls.__name__} has no from_plain: pass make, a function from a plain tensor to one")
        make = cls.from_plain
    with _as_subject_error("there is no tensor to make one of"):
        plain = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).to(device)
    with _as_subject_error("for a float32 tensor of shape (4, 8) make raises"):
        instance = make(plain.clone())
    _examine(cls, instance, plain)
    with _as_subject_error(f"what a {cls.__name__} stands for can't be found out, so pass kind"):
        kind = Kind(kind) if kind is not None else _kind_of(cls, instance)
    decode = decode or (_of_the_metadata if kind is Kind.FAKE else decoder_of(cls))
    if kind is not Kind.FAKE:
        with _as_subject_error(f"the values of a {cls.__name__} can't be read; pass decode if there is a way to"):
            _examine_values(cls, decode(instance), plain)
    return Subject(cls, make, kind, decode, torch.device(device), rtol)


@contextmanager
def _as_subject_error(text: str) -> Iterator[None]:
    try:
        yield
    except SubjectError:
        raise
    except (Exception, SystemExit) as error:
        raise SubjectError(f"{text}: {type(error).__name__}: {first_line(error)}") from error


def _examine(cls: type[torch.Tensor], instance: Any, plain: torch.Tensor) -> None:
    if not isinstance(instance, cls):
        raise SubjectError(f"make returned a {type(instance).__name__}, no {cls.__name__}")
    with _as_subject_error(f"of a {cls.__name__} its shape and inner tensors can't be asked for"):
        shape, devices = tuple(instance.shape), {leaf.device.type for leaf in leaves_of(instance)}
    if shape != tuple(plain.shape):
        raise SubjectError(f"make returned an instance of shape {shape} for a tensor of shape {tuple(plain.shape)}")
    if elsewhere := devices - {plain.device.type, "meta"}:
        where = ", ".join(sorted(elsewhere))
        raise SubjectError(f"make returned an instance on {where} for a tensor on {plain.device.type}: pass device")


def _examine_values(cls: type[torch.Tensor], values: Any, plain: torch.Tensor) -> None:
    if type(values) is not torch.Tensor or values.shape != plain.shape:
        expected = f"a plain tensor of shape {tuple(plain.shape)}"
        raise SubjectError(f"the values of a {cls.__name__} are {shown(values)}, not {expected}: pass decode")


def decoder_of(cls: type[torch.Tensor]) -> Decode:
    """How instances of ``cls`` are read: ``to_plain``, ``dequantize``, or the first inner tensor, whichever it has."""
    for name in ("to_plain", "dequantize"):
        if getattr(cls, name, None) not in (None, getattr(torch.Tensor, name, None)):
            return lambda instance: getattr(instance, name)()
    return _first_inner


def _of_the_metadata(instance: Any) -> torch.Tensor:
    """Of a fake: zeros."""
    return torch.zeros(instance.shape, dtype=instance.dtype, device=instance.device)


def _first_inner(instance: Any) -> torch.Tensor:
    inner = inner_tensors(instance)
    if not inner:
        raise SubjectError(f"{type(instance).__name__} has no inner tensor that can be found")
    first = inner[0]
    return first if type(first) is torch.Tensor else decoder_of(type(first))(first)


def _kind_of(cls: type[torch.Tensor], instance: torch.Tensor) -> Kind:
    leaves = leaves_of(instance)
    if leaves and all(leaf.is_meta for leaf in leaves):
        return Kind.FAKE
    inner = inner_tensors(instance)
    if issubclass(cls, WrapperTensor):
        is_transparent = cls.fallback is Fallback.UNWRAP
    else:
        alike = [each for each in inner if each.shape == instance.shape and each.dtype == instance.dtype]
        is_transparent = bool(inner) and len(alike) == len(inner)
    nested = [each for each in inner if type(each) is not torch.Tensor]  # around a representation: it is one, too
    if is_transparent and all(_kind_of(type(each), each) is Kind.TRANSPARENT for each in nested):
        return Kind.TRANSPARENT
    return Kind.REPRESENTATION
