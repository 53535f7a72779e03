"""Broken under a compiler alone: each is right when it runs eagerly, but for what its name says."""

from __future__ import annotations

# ruff: noqa: ARG003 - signatures are those of protocols
import itertools
from collections.abc import Callable
from typing import Any

import torch
from by_hand import ByHand
from subjects import Clear, Doubled
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from lamina import Fallback, WrapperTensor

aten = torch.ops.aten
F = torch.nn.functional
Made = Callable[[torch.Tensor], torch.Tensor]
Broken = tuple[type[torch.Tensor], Made]


def is_traced(values: Any) -> bool:
    if isinstance(values, (list, tuple)):
        return any(map(is_traced, values))
    return isinstance(values, (FakeTensor, FunctionalTensor))


def spoiled(name: str, spoil: Callable[[Any, Any, Any], Any], *ops: Any) -> Broken:
    """A class for which a tracer's ``ops`` do something else: ``spoil(func, args, kwargs)``."""

    def compute(cls: Any, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        return spoil(func, args, kwargs) if func in ops and is_traced(args) else func(*args, **kwargs)

    cls: Any = type(name, (ByHand,), {"compute": classmethod(compute)})
    return cls, cls


def plus_one(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs) + 1


def nothing(func: Any, args: Any, kwargs: Any) -> Any:
    return args[0]


def refused(func: Any, args: Any, kwargs: Any) -> Any:
    raise NotImplementedError(str(func))


PRODUCTS = (aten.mm.default, aten.addmm.default, aten.linear.default)  # whole, where export decomposes
OTHER_FACTORS = spoiled("OtherFactors", plus_one, aten.mul.Tensor)
NO_PRODUCTS = spoiled("NoProducts", refused, *PRODUCTS)
OTHER_PRODUCTS = spoiled("OtherProducts", plus_one, *PRODUCTS)
LOST_WRITES = spoiled("LostWrites", nothing, aten.mul_.Tensor, aten.add_.Tensor, aten.addcdiv_.default)


class NumberedContext(Clear):
    """Each instance has a context of its own."""

    number: int = 0


_numbers = itertools.count()


def numbered(values: torch.Tensor) -> torch.Tensor:
    return NumberedContext(values, next(_numbers))


class LooseGuard(WrapperTensor):
    """Its guard says that any two contexts are alike."""

    elem: torch.Tensor
    factor: float = 1.0
    fallback = Fallback.PLAIN

    @classmethod
    def encode(cls, values: torch.Tensor, **context: Any) -> LooseGuard:
        return cls(values, **context)

    def decode(self) -> torch.Tensor:
        return self.elem * self.factor

    @classmethod
    def __metadata_guard__(cls, one: Any, other: Any) -> bool:
        return True


class ListsAbsent(ByHand):
    """Has an addend, or none, which it lists all the same."""

    addend: torch.Tensor | None = None

    def __tensor_flatten__(self) -> Any:
        return ["elem", "addend"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], context: Any, size: Any, stride: Any) -> Any:
        self = cls(inner["elem"], "", size, stride)
        self.addend = inner.get("addend")
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.detach.default:
            return with_addend(args[0].elem.detach(), args[0].addend)
        plain = [each.dequantize() if isinstance(each, cls) else each for each in args]
        return func(*plain, **(kwargs or {}))

    def dequantize(self) -> torch.Tensor:  # type: ignore[override]
        return self.elem if self.addend is None else self.elem + self.addend


def with_addend(values: torch.Tensor, addend: torch.Tensor | None) -> Any:
    self: Any = ListsAbsent(values)
    self.addend = addend
    return self


class ContextOfDict(ByHand):
    """A dict is no key of a cache."""

    def __tensor_flatten__(self) -> Any:
        return ["elem"], {"tag": self.tag}

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["elem"], context["tag"], size, stride)


class LostSetting(ByHand):
    """What it is rebuilt from leaves the tag out."""

    def __tensor_flatten__(self) -> Any:
        return ["elem"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["elem"], "", size, stride)


class FixedSizes(ByHand):
    """Takes each size for a number, symbolic ones too."""

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], tag: Any, size: Any, stride: Any) -> Any:
        return cls(inner["elem"], tag, [int(each) for each in size], [int(each) for each in stride])


class BrokenAttribute(Clear):
    """To read its inner tensor breaks the graph."""

    def __getattribute__(self, name: str) -> Any:
        if name == "elem" and torch.compiler.is_compiling():
            raise AttributeError(name)
        return super().__getattribute__(name)


class OtherValues(Doubled):
    """A tracer reads the inner tensor for the values."""

    def to_plain(self) -> torch.Tensor:
        return self.elem if is_traced(self.elem) else super().to_plain()


def breaking(values: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return Clear(values)


class LostClass(Clear):
    """A tracer gets the inner tensor for a detached instance."""


@LostClass.implements(aten.clone.default)
def clone(op: Any, self: Any, memory_format: Any = None) -> Any:
    copy = op(self.elem, memory_format=memory_format)
    return copy if is_traced(self.elem) else LostClass(copy)


class OtherFunction(Clear):
    """A function-level rule that Dynamo passes by."""


@OtherFunction.implements_function(F.gelu)
def gelu(func: Any, input: Any, approximate: str = "none") -> Any:  # noqa: A002 - as in its signature
    result = func(input, approximate=approximate)
    return result if torch.compiler.is_compiling() else result + 1


class NoBiasByKeyword(ByHand):
    """Takes the bias from the third place only."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.linear and "input" in kwargs:
            args, kwargs = (kwargs["input"], kwargs["weight"]), {}
        return super().__torch_function__(func, types, args, kwargs)


class OddOnStrides(ByHand):
    """In place, a tracer's instance that is not contiguous is left as it was."""

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        left = func is aten.mul_.Tensor and is_traced(args) and not args[0].is_contiguous()
        return args[0] if left else func(*args, **kwargs)


class CopiedViews(ByHand):
    """A tracer gets a copy in place of a transposed view."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.t.default and is_traced(args[0].elem):
            return cls(args[0].elem.t().clone())
        return super().__torch_dispatch__(func, types, args, kwargs)


class NoStrides(ByHand):
    """Has no ``as_strided``."""

    @classmethod
    def compute(cls, func: Any, args: Any, kwargs: Any, wrapped: Any) -> Any:
        if func is aten.as_strided.default:
            raise NotImplementedError("as_strided")
        return func(*args, **kwargs)


BROKEN: dict[str, Broken] = {
    "compiled_equals_eager": OTHER_FACTORS,
    "inductor_equals_eager": OTHER_FACTORS,
    "attributes_trace": (BrokenAttribute, BrokenAttribute),
    "values_are_read_in_a_graph": (OtherValues, OtherValues.from_plain),
    "instances_are_made_in_a_graph": (Clear, breaking),
    "instances_are_returned_from_a_graph": (LostClass, LostClass),
    "slices_trace": spoiled("OtherSlices", plus_one, aten.slice.Tensor),
    "functions_agree_in_a_graph": (OtherFunction, OtherFunction),
    "linear_traces": (NoBiasByKeyword, NoBiasByKeyword),
    "nests_compile": OTHER_FACTORS,
    "equal_instances_share_a_graph": (NumberedContext, numbered),
    "changed_context_is_compiled_anew": (LooseGuard, LooseGuard.from_plain),
    "optional_inner_tensors_are_guarded": (ListsAbsent, lambda p: with_addend(p - 1, torch.ones_like(p))),
    "context_suits_the_compile_cache": (ContextOfDict, ContextOfDict),
    "context_holds_every_setting": (LostSetting, lambda p: LostSetting(p, "a tag")),
    "changed_batch_shares_a_graph": (FixedSizes, FixedSizes),
    "marked_batch_shares_a_graph": (FixedSizes, FixedSizes),
    "plain_tangents_are_taken": (ByHand, ByHand),
    "wrapped_tangents_are_taken": (ByHand, ByHand),
    "a_backward_through_one_of_two_results": (ByHand, ByHand),
    "training_steps_compile": OTHER_PRODUCTS,
    "optimizer_steps_compile": LOST_WRITES,
    "partly_wrapped_models_compile_again": (ByHand, ByHand),
    "frozen_weights_are_folded": OTHER_PRODUCTS,
    "inputs_are_written": LOST_WRITES,
    "non_contiguous_inputs_are_written": (OddOnStrides, OddOnStrides),
    "geometry_is_changed_in_place": spoiled("LostGeometry", nothing, aten.t_.default),
    "inputs_that_share_are_written": LOST_WRITES,
    "returned_views_alias_their_input": (CopiedViews, CopiedViews),
    "own_geometry_can_be_asked_for": (NoStrides, NoStrides),
}
