"""A user's class on the bench: how it is made, how its values are read, and whether it nests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..conformance.discovery import subject_of
from ..conformance.inside import inner_tensors
from ..conformance.subject import Kind, SubjectError
from .named import find_object
from .subjects import MAX_LAYERS, Subject

RTOL_OF_REPRESENTATIONS = 0.01
"""Of the largest value: what rounding to 8 bits may cost where a result is stored again."""


@dataclass(frozen=True)
class Users:
    """What `--class`, `--make` and `--rtol` name."""

    cls: str
    make: str | None = None
    rtol: float | None = None

    def subject(self) -> Subject:
        """The class on the bench.

        Raises:
            NameNotFoundError: the class or the function is not there.
            SubjectError: it is no tensor subclass, or it can't be made of a tensor, or its values can't be read.
        """
        cls = find_object(self.cls)
        if not (isinstance(cls, type) and issubclass(cls, Tensor)) or cls is Tensor:
            raise SubjectError(f"{self.cls} is no subclass of torch.Tensor, but {cls!r}")
        make = find_object(self.make) if self.make else getattr(cls, "from_plain", cls)
        try:
            found = subject_of(cls, make)
        except SubjectError as error:
            hint = "" if self.make else ". Say how to make one of a plain tensor: --make module:function"
            raise SubjectError(f"{self.cls}: {error}{hint}") from None
        transparent = found.kind is Kind.TRANSPARENT
        tolerance = 0.0 if transparent else RTOL_OF_REPRESENTATIONS
        return Subject(
            cls.__qualname__,
            f"{self.cls}, made by {self.make or _named(make)}",
            make,
            _inner if transparent else found.decode,
            max_layers=MAX_LAYERS if transparent and _nests(cls, make) else 1,
            weight_only=found.kind is Kind.REPRESENTATION,
            tolerance=tolerance if self.rtol is None else self.rtol,
            has_values=found.kind is not Kind.FAKE,
            asked_for=True,
        )


def _named(make: Callable[..., Any]) -> str:
    return "its from_plain" if getattr(make, "__name__", "") == "from_plain" else "calling it"


def _inner(outer: Tensor) -> Tensor:
    """One layer less. An AttributeError for what has no layer: the bench takes it for a result that lost its own."""
    inner = [] if type(outer) is Tensor else inner_tensors(outer)
    if not inner:
        raise AttributeError(f"a {type(outer).__name__} has no inner tensor")
    return inner[0]


def _nests(cls: type[Tensor], make: Callable[[Tensor], Tensor]) -> bool:
    """Whether an instance can be made of an instance, and holds it."""
    try:
        outer = make(make(torch.ones(2, 2)))
        return isinstance(_inner(outer), cls)
    except Exception:  # noqa: BLE001  # whatever it raises: it does not nest, and one layer is measured
        return False
