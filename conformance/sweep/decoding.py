"""A class that stands for other values than it holds: its reference is the op on decoded operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .compare import Candidate, MismatchError, metadata, same_bits


@dataclass(frozen=True)
class DecodingCandidate(Candidate):
    """A class with ``Fallback.PLAIN`` and ``Gradients.PLAIN`` under judgement: ``unwrap`` decodes.

    Every op has to give what it gives on decoded operands, as a plain tensor, an instance, or a view of one. What is
    written to an instance is encoded again. Only what ``wrap`` can encode is wrapped: finite floating values.

    ``base``: the class of which results may be, where they are not plain. ``rewrite``: the values of an instance
    (given) once others were written to it. ``picks`` leaves more operands plain, by their values. ``loose``: the
    tolerance of operators whose values may differ, by formatted name.
    """

    base: type[torch.Tensor] = torch.Tensor
    rewrite: Callable[[Any, torch.Tensor], torch.Tensor] | None = None
    picks: Callable[[torch.Tensor], bool] = lambda _: True
    loose: Mapping[str, Callable[[torch.dtype], float]] = field(default_factory=dict)

    def takes(self, tensor: torch.Tensor) -> bool:
        strided = tensor.layout is torch.strided and not tensor.is_nested
        if not strided or not tensor.is_floating_point() or tensor.element_size() == 1:
            return False
        return bool(tensor.detach().isfinite().all()) and self.picks(tensor)

    def reference(self, plain: torch.Tensor) -> torch.Tensor:
        wrapped = self.wrap(plain.detach())
        # A tensor of its own, not a view, as the autograd leaf on the other side.
        return torch.empty_strided(wrapped.shape, wrapped.stride(), dtype=wrapped.dtype).copy_(self.unwrap(wrapped))

    def cotangent(self, plain: torch.Tensor) -> torch.Tensor:
        return plain

    def facts(self, tensor: torch.Tensor) -> dict[str, Any]:
        """All but the strides that lead to no element."""
        facts = metadata(tensor)
        if "stride" in facts:
            steps = zip(tensor.shape, tensor.stride(), strict=True)
            facts["stride"] = tuple(step for size, step in steps if size > 1 and tensor.numel() > 0)
        return facts

    def inner(self, where: str, wrapped: torch.Tensor) -> torch.Tensor:
        if type(wrapped) is torch.Tensor:
            return wrapped
        if not isinstance(wrapped, self.base):
            raise MismatchError("type", f"{where} is a {type(wrapped).__name__}")
        return self.unwrap(wrapped)

    def same(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        """The bits; one NaN is as good as another, since a payload can't keep theirs."""
        if same_bits(left, right):
            return True
        if not left.is_floating_point() or not torch.equal(left.isnan(), right.isnan()):
            return False
        return same_bits(left.masked_fill(left.isnan(), 0.0), right.masked_fill(right.isnan(), 0.0))

    def tolerance(self, op: str, dtype: torch.dtype) -> float | None:
        return self.loose[op](dtype) if op in self.loose else None

    def check_gradient(self, where: str, gradient: torch.Tensor | None) -> None:
        if gradient is not None and type(gradient) is not torch.Tensor:
            raise MismatchError("type", f"{where} is a {type(gradient).__name__}")

    def snapshot(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().clone()

    def settle(self, before: torch.Tensor | None, after: torch.Tensor, *, written: bool) -> None:
        if before is None or self.rewrite is None or before.shape != after.shape:
            return
        if written or not same_bits(before, after):
            # Not seen by the version counter: backward uses the values that the class holds.
            after.data.copy_(self.rewrite(self.wrap(before), after.detach()))
