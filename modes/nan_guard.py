"""NanGuard: which operator was the first to make a NaN or an infinity."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from ..subclasses.core.call_site import call_site
from ..subclasses.core.fields import leaf_tensors, tensors_in
from ..subclasses.core.private import OpOverload, strided_parts
from ..subclasses.core.schema import facts_of, value_of
from ..subclasses.logging_tensor.module_path import module_path
from ..subclasses.logging_tensor.phase import current_phase, unwatch_optimizers, watch_optimizers
from ..subclasses.logging_tensor.record import Phase, describe_call, joined, name_of, text_of
from .dispatch_mode import WatchingDispatchMode

OnFound = Literal["raise", "warn", "keep"]
# Their results hold whatever was in memory.
_UNINITIALIZED = ("aten::empty", "aten::new_empty", "aten::resize", "aten::set_", "aten::_empty_affine")


@dataclass(frozen=True)
class NonFinite:
    """One operator that made a NaN or an infinity of operands without.

    ``op``: with overload; ``kind``: "NaN" or "infinity"; ``count``: of how many elements; ``module``: the path of the
    module that ran (in the backward, of the one whose forward made the node); ``site``: file and line.
    """

    op: str
    kind: str
    count: int
    phase: Phase
    module: str | None
    site: str | None
    call: str

    def __str__(self) -> str:
        where = f" in module {self.module}" if self.module else ""
        site = f", at {self.site}" if self.site else ""
        return f"{self.op} made {self.count} x {self.kind} in the {self.phase}{where}{site}: {self.call}"


class NonFiniteError(ArithmeticError):
    """A NaN or an infinity was made. ``found`` tells where."""

    def __init__(self, found: NonFinite) -> None:
        self.found = found
        super().__init__(f"{found}. NanGuard(on_found='keep') goes on, and lists all.")


class NonFiniteWarning(UserWarning):
    """A NaN or an infinity was made."""


class NanGuard(WatchingDispatchMode):
    """Raises at the operator that makes the first NaN or infinity of operands that have none: in the forward, the
    backward or the optimizer. An operator that passes one on is not named, nor one that was given an infinity as an
    argument, as the filling of a mask is. Wrappers are looked at by their inner tensors.

    ``on_found``: "raise" a ``NonFiniteError``, "warn" once for each place, or "keep": go on, and list all in ``found``.
    ``infinity=False`` looks for NaN alone.

    Each result is read, which on a GPU waits for it. Under ``torch.compile``: as DispatchLog; what compiled code fuses
    is seen by its results only.

    Raises:
        NonFiniteError: inside the scope, from the operator's call.
        ValueError: ``on_found`` is none of the three.

    >>> import torch
    >>> with NanGuard(on_found="keep") as guard:
    ...     _ = torch.log(torch.tensor([-1.0, 1.0]))
    >>> guard.found[0].op, guard.found[0].kind, guard.found[0].count
    ('aten::log', 'NaN', 1)
    """

    def __init__(self, *, on_found: OnFound = "raise", infinity: bool = True) -> None:
        super().__init__()
        if on_found not in ("raise", "warn", "keep"):
            raise ValueError(f"on_found = {on_found!r}; it is one of 'raise', 'warn' and 'keep'")
        self.found: list[NonFinite] = []
        self._on_found, self._infinity = on_found, infinity

    def see(self, func: Any, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if not isinstance(func, OpOverload) or func.name().startswith(_UNINITIALIZED):
            return run(*args, **kwargs)
        # Written operands are looked at before: afterwards they are results.
        written = [value_of(each, tuple(args), dict(kwargs)) for each in facts_of(func).written]
        before = {_state(tensors_in(each))[0] for each in written}
        path = module_path(makes_nodes=True)
        result = run(*args, **kwargs)
        kind, count = _state({id(each): each for each in tensors_in((result, *written))}.values())
        if kind is not None and (kind == "NaN" or self._infinity):
            read = [value for value in (*args, *kwargs.values()) if not any(value is each for each in written)]
            before |= {_state(tensors_in(read))[0], _given(read)}
            if "NaN" not in before and kind not in before:
                self._report(_finding(func, kind, count, path, args, kwargs))
        return result

    def _report(self, found: NonFinite) -> None:
        known = any((each.op, each.site, each.kind) == (found.op, found.site, found.kind) for each in self.found)
        self.found.append(found)
        if self._on_found == "raise":
            raise NonFiniteError(found)
        if self._on_found == "warn" and not known:
            warnings.warn(str(found), NonFiniteWarning, stacklevel=2)

    def _begin(self) -> None:
        watch_optimizers()

    def _end(self, *, raising: bool) -> None:  # noqa: ARG002 - nothing to complete, so nothing to raise
        unwatch_optimizers()


def _finding(
    func: OpOverload, kind: str, count: int, path: str | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> NonFinite:
    inputs, keywords = describe_call(args, kwargs)
    given = [*map(text_of, inputs), *(f"{name}={text_of(value)}" for name, value in keywords)]
    name = joined(*name_of(func))
    return NonFinite(name, kind, count, current_phase(), path, call_site(), f"{name}({', '.join(given)})")


def _state(tensors: Iterable[torch.Tensor]) -> tuple[str | None, int]:
    """NaN before infinity, with the number of elements that are; None where all are finite, or can't be read."""
    nans = infinities = 0
    for tensor in tensors:
        for part in (part for leaf in leaf_tensors(tensor) for part in strided_parts(leaf)):
            if part.is_meta or not (part.is_floating_point() or part.is_complex()):
                continue
            values = part.detach()
            if not bool(values.isfinite().all()):
                nans += int(values.isnan().sum())
                infinities += int(values.isinf().sum())
    return ("NaN", nans) if nans else ("infinity", infinities) if infinities else (None, 0)


def _given(values: Iterable[Any]) -> str | None:
    """Whether a number among the arguments is a NaN or an infinity."""
    numbers = [each for each in values if isinstance(each, float) and not math.isfinite(each)]
    return None if not numbers else "NaN" if any(map(math.isnan, numbers)) else "infinity"
