"""The errors of lamina: classes that derive from what torch users expect, and carry their data as attributes."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class LaminaError(Exception):
    """The root of every error that lamina raises on purpose."""


class DeclarationError(LaminaError, ValueError):
    """The body of a wrapper class can't be turned into a type. Raised while the class is created."""

    def __init__(self, cls_name: str, problem: str, advice: str) -> None:
        self.cls_name, self.problem, self.advice = cls_name, problem, advice
        super().__init__(f"{cls_name}: {problem}. {advice}")


class RegistrationError(LaminaError, ValueError):
    """A rule can't be registered: wrong kind of key, or a signature that is not the schema's."""


class RuleConflictError(RegistrationError):
    """A class has a rule for this key already."""

    def __init__(self, cls_name: str, key: object, old: str, new: str) -> None:
        self.cls_name, self.key, self.old, self.new = cls_name, key, old, new
        super().__init__(
            f"{cls_name} has a rule for {key} already, at {old}; a second one comes from {new}. "
            "Delete one of them, or register the second with override=True."
        )


class MissingRuleError(LaminaError, NotImplementedError):
    """No class among the arguments has an answer for this operator. Never a plain ``NotImplemented``:
    Python's operators would turn that into ``a == b`` being ``False``."""

    def __init__(self, op: object, classes: Iterable[type], why: str, arguments: str, near: str, advice: str) -> None:
        self.op, self.classes = op, tuple(classes)
        names = ", ".join(c.__name__ for c in self.classes)
        super().__init__(f"{op} has no rule for {names}: {why}\n  called with {arguments}\n{near}  {advice}")


class RuleTypeError(LaminaError, RuntimeError):
    """A TypeError left a rule or the op under it. It carries the original as ``__cause__``; it is no TypeError itself,
    because Python's operators swallow those (``a == b`` would be ``False``)."""

    def __init__(self, op: object, cls: type, where: str, error: TypeError) -> None:
        self.op, self.cls, self.where = op, cls, where
        super().__init__(f"{op} on {cls.__name__} (rule at {where}) raised TypeError: {error}")


class FallbackError(LaminaError, RuntimeError):
    """A fallback was reached inside ``lamina.strict()``."""

    def __init__(self, op: object, cls: type, policy: str) -> None:
        self.op, self.cls, self.policy = op, cls, policy
        super().__init__(
            f"{op} on {cls.__name__} reached the {policy} fallback inside lamina.strict(). Register a rule for it "
            f"(@{cls.__name__}.implements(torch.ops.{op})), or leave the strict scope."
        )


class GradientCutError(LaminaError, RuntimeError):
    """A wrapper was about to be built from a tensor that requires grad: the gradient would end there without a word."""

    def __init__(self, cls: type, field: str, tensor: torch.Tensor) -> None:
        self.cls, self.field = cls, field
        super().__init__(
            f"{cls.__name__}(...) got a tensor of shape {tuple(tensor.shape)} that requires grad as {field!r}: "
            "an inner tensor takes no part in autograd, so its gradient would be lost. Use "
            f"{cls.__name__}.from_plain(tensor), which is differentiable, or pass tensor.detach()."
        )


class InnerTensorError(LaminaError, ValueError):
    """An inner tensor, or a context value, is not what the declaration says."""


class LayoutError(LaminaError, ValueError):
    """An inner tensor has a layout (sparse, nested, mkldnn) that a strided wrapper can't describe."""

    def __init__(self, cls: type, field: str, layout: torch.layout) -> None:
        self.cls, self.field, self.layout = cls, field, layout
        super().__init__(
            f"{cls.__name__} holds strided tensors only, and {field!r} has layout {layout}. Convert it first "
            "(tensor.to_dense(), or torch.nested.to_padded_tensor)."
        )


class PlainOnlyError(LaminaError, RuntimeError):
    """Something that reads memory was asked of a wrapper, which has none of its own."""

    def __init__(self, what: str, cls: type) -> None:
        self.what, self.cls = what, cls
        super().__init__(
            f"{what} needs memory that can be read, and {cls.__name__} is a wrapper: it has no storage of its own. "
            "Call .to_plain() first."
        )


class DataSwapError(LaminaError, RuntimeError):
    """``w.data = other`` can't be honoured for this pair of tensors."""


class ShardingError(LaminaError, RuntimeError):
    """An inner tensor does not follow dim 0 of its wrapper, so a shard of the one is no shard of the other."""

    def __init__(self, cls: type, inner: tuple[int, ...], outer: tuple[int, ...]) -> None:
        self.cls, self.inner, self.outer = cls, inner, outer
        super().__init__(
            f"a {cls.__name__} of shape {outer} holds an inner tensor of shape {inner}, and sharding cuts dim 0 of "
            "both. Keep the rank and dim 0 of the values in every inner tensor (a scale of shape (rows, 1)), or "
            "override fsdp_pre_all_gather and fsdp_post_all_gather."
        )


class UnevenShardingError(LaminaError, RuntimeError):
    """Torch shards uneven rows only where every inner tensor has the shape of the wrapper."""

    def __init__(self, cls: type, rows: int, world_size: int) -> None:
        self.cls, self.rows, self.world_size = cls, rows, world_size
        super().__init__(
            f"{rows} rows of a {cls.__name__} don't go evenly on {world_size} ranks, and torch can't gather uneven "
            "shards of several inner tensors. Pad dim 0 to a multiple, or leave this parameter out of fully_shard."
        )


class DataDependentError(LaminaError, RuntimeError):
    """An operator needs values where there are none. ``site``: the line of the program that asked; None if unknown."""

    def __init__(self, op: object, operands: str, site: str | None, advice: str) -> None:
        self.op, self.site, self.advice = op, site, advice
        where = f" at {site}" if site else ""
        super().__init__(f"{op}{where} needs values, and {operands} has none. {advice}")


class MissingFakeKernelError(LaminaError, NotImplementedError):
    """Nothing says which metadata an operator's results have."""

    def __init__(self, op: object, problem: str, advice: str) -> None:
        self.op = op
        super().__init__(f"{op} {problem}. {advice}")


class RuleResultError(LaminaError, RuntimeError):
    """A rule returned what its op can't have as a result."""

    def __init__(self, op: object, cls: type, where: str, problem: str) -> None:
        self.op, self.cls, self.where = op, cls, where
        super().__init__(f"the rule of {cls.__name__} for {op} at {where} {problem}")


class CodecError(LaminaError, NotImplementedError):
    """An author's ``decode`` or ``encode`` is missing, or returned what it can't have meant."""

    def __init__(self, cls: type, method: str, problem: str) -> None:
        self.cls, self.method = cls, method
        super().__init__(
            f"{cls.__name__}.{method} {problem}. A method decode(self) returns a tensor with the shape and dtype of "
            f"the wrapper (outer_metadata says which), a classmethod encode(cls, values, **context) a {cls.__name__}."
        )


class UnbuiltError(LaminaError, AttributeError):
    """An instance without fields: made by ``as_subclass`` or ``_make_subclass``, which know no wrapper."""

    def __init__(self, cls: type, field: str) -> None:
        self.cls, self.field = cls, field
        super().__init__(f"this {cls.__name__} has no {field!r}: make it by {cls.__name__}(...), not by as_subclass()")


class FunctorchError(LaminaError, RuntimeError):
    """A wrapper was about to be made of a tensor that belongs to a running torch.func transform."""

    def __init__(self, cls: type, field: str) -> None:
        self.cls, self.field = cls, field
        super().__init__(
            f"{cls.__name__}: {field!r} belongs to a torch.func transform (grad, vmap, ...), and torch can't give a "
            "wrapper a storage inside one. Make the wrapper outside, and pass it in or close over it."
        )


class GeometryError(LaminaError, RuntimeError):
    """An op addresses memory by stride, and the decoded values are laid out otherwise than the wrapper says."""

    def __init__(self, cls: type, op: object, outer: tuple[int, ...], decoded: tuple[int, ...]) -> None:
        self.cls, self.op, self.outer, self.decoded = cls, op, outer, decoded
        super().__init__(
            f"{op} on a {cls.__name__} with strides {outer}, whose decoded values have strides {decoded}, would read "
            "other elements than asked. Use views by shape (view, slice, transpose), or .to_plain() first."
        )


class UnwrittenError(LaminaError, RuntimeError):
    """A fallback can't write its result back, and will not drop it."""

    def __init__(self, op: object, cls: type, why: str) -> None:
        self.op, self.cls = op, cls
        super().__init__(
            f"{op} writes to a {cls.__name__}, and the result can't be stored there: {why}. No wrapper was "
            f"changed. Register a rule (@{cls.__name__}.implements(torch.ops.{op})), or work on .to_plain()."
        )
