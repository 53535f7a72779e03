"""Broken under inference_mode, torch.func and autocast."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from subjects import Clear, Doubled
from torch.utils._pytree import tree_map_only

aten = torch.ops.aten


class ViewsNeedGrad(Clear):
    """A view under inference_mode raises."""


@ViewsNeedGrad.implements(aten.transpose.int, aten.slice.Tensor)
def view_outside(op: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    if self.elem.is_inference():
        raise RuntimeError("not under inference_mode")
    return ViewsNeedGrad(op(self.elem, *args, **kwargs))


class AddsNothing(Clear):
    """``add`` and ``add_`` leave what was made under inference_mode as it is."""


@AddsNothing.implements(aten.add.Tensor)
def add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
    return AddsNothing(self.elem.clone() if self.elem.is_inference() else op(self.elem, other, alpha=alpha))


@AddsNothing.implements(aten.add_.Tensor)
def add_in_place(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
    if not self.elem.is_inference():
        op(self.elem, other, alpha=alpha)
    return self


class ComposesWrongly(Clear):
    """An operator that arrives whole is computed with other values."""


def compose_wrongly(cls: Any, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    out = super(ComposesWrongly, cls).__torch_dispatch__(op, types, args, kwargs)
    return out + 1 if op is aten.matmul.default else out


# A body that defines it is refused.
ComposesWrongly.__torch_dispatch__ = classmethod(compose_wrongly)  # type: ignore[assignment]


class Perishable(Clear):
    """What was made under inference_mode can't be multiplied outside of it."""


@Perishable.implements(aten.mul.Tensor)
def multiply_inside(op: Any, self: Any, other: Any) -> Any:
    if self.elem.is_inference():
        raise RuntimeError("made under inference_mode")
    return Perishable(op(self.elem, other))


class TracesRaw(Doubled):
    """While it is traced, a slice is one of the payload."""


@TracesRaw.implements(aten.slice.Tensor)
def slice_raw(op: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    return op(self.to_plain() if type(self.elem) is torch.Tensor else self.elem, *args, **kwargs)


class MultipliesRaw(Doubled):
    """Its products are those of the payload, which it also gives as its transpose, and so are its derivatives."""


@MultipliesRaw.implements(aten.mul.Tensor, aten.t.default)
def multiply_raw(op: Any, self: Any, *others: Any, **kwargs: Any) -> Any:
    return op(*tree_map_only(MultipliesRaw, lambda each: each.elem, (self, *others)), **kwargs)


class WideProducts(Clear):
    """Its products are float32, whatever autocast says."""


@WideProducts.implements(aten.mm.default, aten.addmm.default)
def multiply_wide(op: Any, self: Any, *others: Any, **kwargs: Any) -> Any:
    operands = tree_map_only(WideProducts, lambda each: each.elem, (self, *others))
    return WideProducts(op(*tree_map_only(torch.Tensor, torch.Tensor.float, operands), **kwargs))


class CutsItsGradient(Clear):
    """A linear layer gives it no gradient."""


@CutsItsGradient.implements_function(F.linear)
def cut_linear(func: Any, input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002 - torch's name
    return func(input, weight.detach(), bias)


class StaysAsItWas(Clear):
    """``zero_`` writes nothing."""


@StaysAsItWas.implements(aten.zero_.default)
def stay(op: Any, self: Any) -> Any:
    return self


class StaysScaled(Clear):
    """Its gradients are never unscaled, nor looked at."""


@StaysScaled.implements(aten._amp_foreach_non_finite_check_and_unscale_.default)
def stay_scaled(op: Any, self: Any, found_inf: Any, inv_scale: Any) -> None:
    return None


BROKEN: dict[str, tuple[type[torch.Tensor], Any]] = {
    "inference_mode_takes_views": (ViewsNeedGrad, ViewsNeedGrad),
    "inference_mode_computes": (AddsNothing, AddsNothing),
    "composite_ops_agree_in_all_modes": (ComposesWrongly, ComposesWrongly),
    "inference_mode_writes": (AddsNothing, AddsNothing),
    "inference_results_can_be_used_outside": (Perishable, Perishable),
    "inference_mode_in_a_module_compiles": (TracesRaw, TracesRaw.from_plain),
    "func_gradients_are_right_or_refused": (MultipliesRaw, MultipliesRaw.from_plain),
    "vmap_is_right_or_refused": (MultipliesRaw, MultipliesRaw.from_plain),
    "func_jvp_is_right_or_refused": (MultipliesRaw, MultipliesRaw.from_plain),
    "linearize_is_right_or_refused": (MultipliesRaw, MultipliesRaw.from_plain),
    "functional_call_takes_instances": (MultipliesRaw, MultipliesRaw.from_plain),
    "autocast_gives_the_dtype": (WideProducts, WideProducts),
    "autocast_gradients_are_those_of_plain": (CutsItsGradient, CutsItsGradient),
    "autocast_compiles": (WideProducts, WideProducts),
    "autocast_caches_the_weight_rightly": (StaysAsItWas, StaysAsItWas),
    "grad_scaler_steps_and_skips": (StaysScaled, StaysScaled),
}
