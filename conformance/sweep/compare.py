"""Comparison of a wrapped run with the plain run: the first difference is raised as a MismatchError."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

ROUNDINGS = 4  # how many machine epsilons a reordered sum may be off


class MismatchError(AssertionError):
    """The wrapped run differs from the plain one: ``kind`` in one word, and the details."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class UnforeseenError(Exception):
    """What a written operand stands for can't be said: the case is left out."""


@dataclass(frozen=True)
class Candidate:
    """A transparent class under judgement: ``wrap`` makes an instance of ``cls``, ``unwrap`` gives the inner tensor.

    The methods are what else is judged differently in classes that decode (``decoding.py``).
    """

    cls: type[torch.Tensor]
    wrap: Callable[[torch.Tensor], torch.Tensor]
    unwrap: Callable[[Any], torch.Tensor]

    @property
    def plain_gradients(self) -> bool:
        """Whether the gradient of an instance may be plain."""
        return False

    def takes(self, tensor: torch.Tensor) -> bool:  # noqa: ARG002
        """Whether ``wrap`` can wrap it; others stay plain in the wrapped run."""
        return True

    def reference(self, plain: torch.Tensor) -> torch.Tensor:
        """What stands in the plain run for an operand that is wrapped in the other."""
        return plain

    def cotangent(self, plain: torch.Tensor) -> torch.Tensor:
        """What is fed to the wrapped run's backward."""
        return self.wrap(plain)

    def facts(self, tensor: torch.Tensor) -> dict[str, Any]:
        """The metadata of a result, in which it has to agree with the plain one."""
        return metadata(tensor)

    def inner(self, where: str, wrapped: torch.Tensor) -> torch.Tensor:
        """The plain tensor in a result, whose metadata has to be that of ``wrapped``."""
        if not isinstance(wrapped, self.cls):
            raise MismatchError("type", f"{where} is a {type(wrapped).__name__}")
        inner = self.unwrap(wrapped)
        _require_same(f"{where} outside", metadata(inner), metadata(wrapped), "inside")
        return inner

    def same(self, left: torch.Tensor, right: torch.Tensor) -> bool:
        return same_bits(left, right)

    def check_gradient(self, where: str, gradient: torch.Tensor | None) -> None:
        """Raises where a gradient has a type that results may have, and gradients not."""

    def snapshot(self, tensor: torch.Tensor) -> Any:  # noqa: ARG002
        """What ``settle`` needs to know of an operand of the plain run before the call."""
        return None

    def settle(self, before: Any, after: torch.Tensor, *, written: bool) -> None:
        """Gives an operand the values that the class could hold, if the plain run wrote it: surely, or it differs."""

    def tolerance(self, op: str, dtype: torch.dtype) -> float | None:  # noqa: ARG002
        """How far values may be off where bits differ, in parts of the largest value of a result; None: not at all."""
        return None


class Values(Enum):
    """How values are compared."""

    BITS = "bits"
    ROUNDING = "rounding"
    IGNORED = "ignored"


class Plain(Enum):
    """Where a plain tensor is accepted in place of an instance of the class."""

    NEVER = "never"
    ZEROS = "zeros"
    ALWAYS = "always"


@dataclass
class Comparison:
    """How strictly one case is compared. ``rounded``: whether values were equal only within the tolerance."""

    candidate: Candidate
    values: Values = Values.BITS
    plain: Plain = Plain.NEVER
    tolerance: float | None = None
    rounded: bool = False

    def trees(self, where: str, plain: Any, wrapped: Any) -> None:
        """Results: the same containers, and leaf by leaf the same tensors and Python values."""
        plain_leaves, plain_spec = tree_flatten(plain)
        wrapped_leaves, wrapped_spec = tree_flatten(wrapped)
        if plain_spec != wrapped_spec:
            raise MismatchError("structure", f"{where} is {wrapped_spec} and not {plain_spec}")
        slack = 0.0 if self.tolerance is None else self.tolerance * _largest(plain_leaves)
        for index, (expected, got) in enumerate(zip(plain_leaves, wrapped_leaves, strict=True)):
            if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
                self.tensors(f"{where} {index}", expected, got, slack)
            elif not _same_value(expected, got):
                raise MismatchError("python value", f"{where} {index} is {_short(got)} and not {_short(expected)}")

    def tensors(self, where: str, plain: torch.Tensor, wrapped: torch.Tensor, slack: float = 0.0) -> None:
        """One tensor: its class, the outer metadata, the inner metadata, the bits."""
        inner = wrapped if self._accepts_plain(wrapped) else self.candidate.inner(where, wrapped)
        expected, got = self.candidate.facts(plain), self.candidate.facts(wrapped)
        if self.values is Values.ROUNDING:
            expected.pop("stride", None)
        _require_same(where, expected, got, "the plain run")
        if plain.requires_grad != wrapped.requires_grad:
            raise MismatchError("requires_grad", f"{where} has {wrapped.requires_grad}, plain {plain.requires_grad}")
        if not self._equal_values(plain.detach(), inner.detach(), slack):
            raise MismatchError("values", f"{where}, {plain.dtype} {tuple(plain.shape)}, differs from the plain run")

    def _accepts_plain(self, tensor: torch.Tensor) -> bool:
        if type(tensor) is not torch.Tensor:
            return False
        zeros = self.plain is Plain.ZEROS and tensor.layout is torch.strided and not tensor.any()
        return zeros or self.plain is Plain.ALWAYS or not self.candidate.takes(tensor)

    def _equal_values(self, plain: torch.Tensor, inner: torch.Tensor, slack: float) -> bool:
        if self.values is Values.IGNORED or self.candidate.same(plain, inner):
            return True
        if self.values is Values.ROUNDING:
            rounding = ROUNDINGS * torch.finfo(plain.dtype).eps
            return torch.allclose(plain, inner, rtol=rounding, atol=rounding, equal_nan=True)
        if not slack or not plain.is_floating_point() or not torch.allclose(plain, inner, 0.0, slack, equal_nan=True):
            return False
        self.rounded = True
        return True


def _largest(leaves: Sequence[Any]) -> float:
    """The largest finite magnitude in floating tensors."""
    dense = [t.detach().to_dense() for t in leaves if isinstance(t, torch.Tensor) and t.is_floating_point()]
    return max((float(t.abs().nan_to_num(0.0, 0.0, 0.0).max()) for t in dense if t.numel()), default=0.0)


def aliases(
    plain_inputs: Sequence[torch.Tensor],
    plain_outputs: Sequence[torch.Tensor],
    wrapped_inputs: Sequence[torch.Tensor],
    wrapped_outputs: Sequence[torch.Tensor],
) -> None:
    """An output shares its storage with an input, or is a view, exactly where it does so in the plain run."""
    for index, (plain, wrapped) in enumerate(zip(plain_outputs, wrapped_outputs, strict=True)):
        if plain.layout is not torch.strided:
            continue
        if plain._is_view() != wrapped._is_view():
            raise MismatchError("alias", f"output {index}: _is_view() is {wrapped._is_view()}")
        # Arguments that share a storage count as one: each gets a wrapper, hence an outer storage, of its own.
        groups: dict[int, set[int]] = {}
        for plain_input, wrapped_input in zip(plain_inputs, wrapped_inputs, strict=True):
            if plain_input.layout is torch.strided:
                groups.setdefault(_storage(plain_input), set()).add(_storage(wrapped_input))
        for storage, outer in groups.items():
            if (_storage(plain) == storage) != (_storage(wrapped) in outer):
                raise MismatchError("alias", f"output {index}: storage shared in one of the runs only")


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal to the last bit: signed zeros and NaNs count as the bits they are."""
    return torch.equal(_bytes(left), _bytes(right))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor.detach() if tensor.layout is torch.strided else tensor.detach().to_dense()
    # Not `contiguous()`: one element counts as contiguous whatever its stride, and `view` then refuses.
    flat = dense.resolve_conj().resolve_neg().reshape(-1).clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8)


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def metadata(tensor: torch.Tensor) -> dict[str, Any]:
    facts = {
        "shape": tuple(tensor.shape),
        "dtype": tensor.dtype,
        "layout": tensor.layout,
        "device": tensor.device,
        "conj bit": tensor.is_conj(),
        "neg bit": tensor.is_neg(),
    }
    if tensor.layout is torch.strided:
        facts["stride"] = tensor.stride()
        facts["offset"] = tensor.storage_offset()
    return facts


def _require_same(where: str, expected: dict[str, Any], got: dict[str, Any], source: str) -> None:
    for fact, value in expected.items():
        if got.get(fact) != value:
            raise MismatchError(fact, f"{where} has {got.get(fact)}, {source} {value}, shape {expected['shape']}")


def _same_value(expected: Any, got: Any) -> bool:
    if type(expected) is not type(got):
        return False
    if isinstance(expected, float) and math.isnan(expected):
        return math.isnan(got)
    return bool(expected == got)


def _short(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, torch.Tensor) else repr(value)[:60]
