"""What training does around an optimizer: gradients, averages, flat vectors, state, mixed precision, fast products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn import utils
from torch.optim import swa_utils

from ...subclasses.core.errors import FallbackError
from ...subclasses.core.policy import Fallback, strict
from ...subclasses.core.table import How, op_table
from ...subclasses.core.wrapper import WrapperTensor
from ..check import check
from ..outcome import MismatchError, NotApplicable
from ..refusal import is_refusal
from ..subject import VALUED, Subject
from .optimizers import RATE, Pair

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.mv.default)


@check("writes", "zero_grad, gradient clipping or accumulation fail on gradients of a class", kinds=VALUED)
def gradients_are_zeroed_clipped_and_summed(subject: Subject) -> None:
    """``clip_grad_norm_`` (one by one and over lists), ``clip_grad_value_``, accumulation over two backwards and
    ``zero_grad(set_to_none=False)``: gradients are what those of a plain layer are."""
    clips: dict[str, Callable[[Any], Any]] = {
        "clip_grad_norm_(..., 0.5)": lambda p: utils.clip_grad_norm_(p, 0.5),
        "clip_grad_norm_(..., 0.5, foreach=False)": lambda p: utils.clip_grad_norm_(p, 0.5, foreach=False),
        "clip_grad_norm_(..., 0.5, foreach=True)": lambda p: utils.clip_grad_norm_(p, 0.5, foreach=True),
        "clip_grad_value_(..., 0.5)": lambda p: utils.clip_grad_value_(p, 0.5),
        "nothing": len,
        "zero_grad(set_to_none=False)": lambda p: torch.optim.SGD(p).zero_grad(set_to_none=False),
    }
    for text, clip in clips.items():
        pair, norms = Pair(subject), []
        for layer in pair.layers:
            pair.backward(layer)
            pair.backward(layer)
            norms.append(clip(list(layer.parameters())))
        where = f"two backwards, then {text}"
        subject.same(f"{where}: what it returns", norms[1], norms[0], loosely=True)
        for name in ("weight", "bias"):
            grads = [getattr(layer, name).grad for layer in pair.layers]
            subject.same(f"{where}: the gradient of the {name}", grads[1], grads[0], loosely=True)


@check("writes", "an average of the weights does not follow, or fails on lerp_", kinds=VALUED)
def averages_follow_the_weights(subject: Subject) -> None:
    """``average.lerp_(w, 0.5)``, on an average of the class and on a plain one, and ``AveragedModel`` with its list
    functions."""
    first, second = subject.plain(4, 8), subject.plain(4, 8, seed=1)
    weight, wanted = subject.wrap(second), subject.reference(first).lerp_(subject.reference(second), 0.5)
    for text, average in (("average", subject.wrap(first)), ("plain average", subject.reference(first))):
        average.lerp_(weight, 0.5)
        subject.stored(f"{text}.lerp_(w, 0.5)", average, wanted)
    pair, averages = Pair(subject), list[Any]()
    for layer in pair.layers:
        average = swa_utils.AveragedModel(layer, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.5))
        average.update_parameters(layer)
        with torch.no_grad():
            layer.weight.mul_(3)
        average.update_parameters(layer)
        averages.append(average.module.weight)
    subject.stored("AveragedModel(layer).update_parameters(layer)", averages[1], averages[0], loosely=True, writes=3)


@check("writes", "vector_to_parameters changes nothing", kinds=VALUED)
def vectors_go_into_parameters(subject: Subject) -> None:
    """``parameters_to_vector`` gives the values; ``vector_to_parameters`` writes them, or says what does."""
    pair = Pair(subject)
    vectors = [utils.parameters_to_vector(layer.parameters()) for layer in pair.layers]
    subject.same("parameters_to_vector(layer.parameters())", vectors[1], vectors[0])
    vector = vectors[0].detach() * 2 + 1
    try:
        for layer in pair.layers:
            utils.vector_to_parameters(vector.clone(), layer.parameters())
    except Exception as error:
        if is_refusal(error, "copy_|swap_tensors"):
            return
        raise
    pair.same("vector_to_parameters(vector, layer.parameters()); w")


@check("writes", "an optimizer can't keep its state in the class", kinds=VALUED)
def optimizer_state_may_be_of_the_class(subject: Subject) -> None:
    """A momentum buffer that is an instance is updated in place, and the step takes its values."""
    for foreach in (False, True):
        pair, buffers = Pair(subject), []
        buffer = subject.new(4, 8, seed=6)
        for layer, state in zip(pair.layers, (subject.values(buffer).clone(), buffer), strict=True):
            optimizer = torch.optim.SGD([layer.weight], lr=RATE, momentum=0.9, foreach=foreach)
            optimizer.state[layer.weight]["momentum_buffer"] = state
            for _ in range(2):
                optimizer.zero_grad()
                pair.backward(layer)
                optimizer.step()
            buffers.append(optimizer.state[layer.weight]["momentum_buffer"])
        text = f"SGD([w], momentum=0.9, foreach={foreach}) with a buffer of the class, two steps"
        if buffers[1] is not buffer:
            raise MismatchError(f"{text}: the buffer", "the one that it was", buffers[1])
        subject.stored(f"{text}: the buffer", buffers[1], buffers[0], loosely=True, writes=2)
        pair.same(f"{text}; w", writes=3)


@check("writes", "the dtype of a wrapper is not the one it was converted to; gradients come in another", kinds=VALUED)
def a_mixed_precision_step_trains(subject: Subject) -> None:
    """One step under each policy: the weight in bfloat16, with a gradient in bfloat16; and a float32 weight under
    autocast to bfloat16, with a gradient in float32."""
    low = torch.bfloat16
    plain = subject.plain(4, 8).to(low)
    weight = subject.new(4, 8).to(low)
    if weight.dtype is not low or subject.values(weight).dtype is not low:
        raise MismatchError("w.to(torch.bfloat16).dtype", low, f"{weight.dtype}, values {subject.values(weight).dtype}")
    rows = subject.plain(3, 8, seed=4)
    for text, dtype, autocast in (("w.to(torch.bfloat16)", low, False), ("w, under autocast", torch.float32, True)):
        parameter = nn.Parameter(subject.new(4, 8).to(dtype))
        before = subject.values(parameter).clone()
        with torch.autocast(subject.device.type, low, enabled=autocast):
            result = F.linear(rows if autocast else rows.to(low), parameter)
        result.sum().backward()
        if parameter.grad is None or parameter.grad.dtype is not dtype or result.dtype is not low:
            got = "no gradient" if parameter.grad is None else f"{result.dtype}, gradient {parameter.grad.dtype}"
            raise MismatchError(f"{text}; F.linear(input, w)", f"{low}, gradient {dtype}", got)
        torch.optim.SGD([parameter], lr=RATE).step()
        expected = before.float() - RATE * rows.sum(0).expand_as(plain)
        got = subject.values(parameter).float()
        bound = 3 * subject.step(before.float()) + 0.05 * float(expected.abs().amax())
        off = float((got - expected).abs().amax())
        if not off <= bound:
            raise MismatchError(f"{text}; a step of SGD; w", f"the step of a plain weight, within {bound:.2g}", off)


@check("writes", "a fallback hides that a matrix product does not use the fast path", kinds=VALUED)
def products_with_a_rule_never_fall_back(subject: Subject) -> None:
    """A class of lamina's that has a rule for a matrix product meets it by every way to a linear layer: ``F.linear``
    with and without a bias, ``x @ w.t()``, of two and three dims. Under ``lamina.strict`` a fallback is an error."""
    cls: Any = subject.cls
    if not issubclass(cls, WrapperTensor) or cls.fallback is not Fallback.PLAIN:
        raise NotApplicable(f"{cls.__name__} has no fallback to decoded values that lamina.strict could refuse")
    table = op_table(cls)
    ruled = [op for op in _PRODUCTS if table[op].how is How.EXACT]
    if not ruled:
        raise NotApplicable(f"{cls.__name__} has no rule for a matrix product: all of them decode")
    weight = subject.new(4, 8)
    rows, batch, bias = subject.plain(3, 8), subject.plain(2, 3, 8), subject.plain(4)
    calls: dict[str, Callable[[], Any]] = {
        "F.linear(input, w)": lambda: F.linear(rows, weight),
        "F.linear(input, w, bias)": lambda: F.linear(rows, weight, bias),
        "F.linear(batch, w, bias)": lambda: F.linear(batch, weight, bias),
        "input @ w.t()": lambda: rows @ weight.t(),
        "batch @ w.t()": lambda: batch @ weight.t(),
        "torch.addmm(bias, input, w.t())": lambda: torch.addmm(bias, rows, weight.t()),
    }
    for text, call in calls.items():
        try:
            with strict():
                call()
        except FallbackError as error:
            raise MismatchError(f"with lamina.strict(): {text}", f"the rule for {ruled[0]}", error) from error
