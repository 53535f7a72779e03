"""The PLAIN fallback: runs an op on decoded values. Results are plain; what the op wrote is written back, or refused.

A temporary is never dropped: 50 steps of an optimizer that update copies leave the loss where it was, without a word.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .codec import decoded
from .errors import UnwrittenError
from .fields import VIEW_SOURCE, inner_tensors, is_wrapper, tensors_in
from .gradients import keep_gradient
from .policy import Fallback, Gradients
from .private import call_of, storage_id, with_math_bits
from .schema import Kind, OpFacts, value_of
from .unwrap import Runner, settle, where_views_work, written_wrappers

_log = logging.getLogger("lamina")
_told: set[tuple[type, object]] = set()
_MATRIX_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "convolution", "_scaled_mm", "_int_mm", "addbmm")


def decoding(cls: Any, facts: OpFacts) -> Runner:
    """The runner of ``facts.op`` on decoded values of ``cls``."""
    call = call_of(facts.op)
    heavy = facts.op.overloadpacket.__name__ in _MATRIX_PRODUCTS

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if heavy:
            _tell(facts, args)
        if facts.written:
            _refuse_unwritable(cls, facts, args, kwargs)
        decode = _Decode(cls)
        plain_args = [decode(a) for a in args]
        plain_kwargs = {k: decode(a) for k, a in kwargs.items()}
        out = with_math_bits(call, *plain_args, **plain_kwargs) if decode.complex else call(*plain_args, **plain_kwargs)
        if facts.written:
            _write_back(cls, facts, args, kwargs, decode)
        if Kind.VIEW in facts.kinds and _is_viewed(cls, facts, args, kwargs):
            from .decoded_view import decoded_views  # a wrapper class itself, so it stands above this module

            return decoded_views(facts, args, kwargs, out)
        return settle(facts.results, out, args, kwargs, lambda value: value) if facts.results else out

    return where_views_work(facts, run)


def _tell(facts: OpFacts, args: tuple[Any, ...]) -> None:
    """Logs once for each class that a matrix product decodes its weight: the fallback hides a hot op."""
    for wrapper in tensors_in(args):
        owner: Any = wrapper
        while _is_view(type(owner)):  # F.linear is t, then mm
            owner = owner.source
        cls = type(owner)
        if getattr(cls, "fallback", None) is Fallback.PLAIN and (cls, facts.op) not in _told:
            _told.add((cls, facts.op))
            text = "%s on %s runs on decoded values: it has no rule for these operands (said once)"
            _log.warning(text, facts.op, cls.__name__)


def _is_view(cls: type) -> bool:
    """Whether ``cls`` is ``DecodedView``, which stands above this module. No field has a name that begins so."""
    return hasattr(cls, "_l_view")


class _Decode:
    """Decodes the instances of ``cls`` in a call, each once, so that an argument given twice stays one tensor."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.same = cls.gradients is Gradients.SAME
        self.values: dict[int, torch.Tensor] = {}
        self.complex = False

    def __call__(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self(v) for v in value]
        if not isinstance(value, torch.Tensor):
            return value
        if type(value) is not self.cls:
            self.complex |= value.is_complex() or value.is_neg()
            keep_gradient(value)
            return value
        if id(value) not in self.values:
            self.values[id(value)] = decoded(value)
        plain = self.values[id(value)]
        if self.same or is_wrapper(plain):  # what arrives is of the decoded values' type
            keep_gradient(value)
        self.complex |= plain.is_complex() or plain.is_neg()
        return plain


def _is_viewed(cls: Any, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the tensor that the results are views of is one that was decoded."""
    base = facts.results[0].view_of
    return base is not None and type(value_of(base, args, kwargs)) is cls


def _refuse_unwritable(cls: Any, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if Kind.LIST_MUTATING in facts.kinds or len(facts.written) > 1:
        _refuse_overlap(cls, facts, args, kwargs)
    for _ in written_wrappers(facts.written, cls, args, kwargs):
        if torch.Tag.inplace_view in facts.op.tags:
            raise UnwrittenError(facts.op, cls, "the op changes shape or stride, and the decoded values are a copy")
        if not cls.can_encode():
            raise UnwrittenError(facts.op, cls, "the class has no encode(cls, values, **context)")


def _write_back(cls: Any, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any], decode: _Decode) -> None:
    wrappers = written_wrappers(facts.written, cls, args, kwargs)
    for wrapper in wrappers:
        values = decode.values[id(wrapper)]
        if values.shape != wrapper.shape:
            why = f"the result has shape {tuple(values.shape)}, the wrapper {tuple(wrapper.shape)}"
            raise UnwrittenError(facts.op, cls, why)
    if _is_view(cls) or any(VIEW_SOURCE in vars(w) for w in wrappers):  # views of one wrapper: one after the other
        for wrapper in wrappers:
            wrapper.store(decode.values[id(wrapper)])
        return
    for write in [wrapper.stage(decode.values[id(wrapper)]) for wrapper in wrappers]:
        write()


def _refuse_overlap(cls: Any, facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Each written argument is decoded by itself: where two show the same elements, one write would be lost."""
    seen: dict[int, list[_Shown]] = {}
    for argument in facts.written:
        given = {id(t): t for t in tensors_in(value_of(argument, args, kwargs))}  # one given twice is decoded once
        for tensor in given.values():
            if is_wrapper(tensor):
                shown = _shown(tensor)
                seen.setdefault(shown.memory, []).append(shown)
    for together in seen.values():
        if len(together) > 1:
            elements = torch.cat([shown.elements() for shown in together])
            if elements.unique().numel() != elements.numel():
                raise UnwrittenError(facts.op, cls, "two of the arguments show the same elements of one wrapper")


class _Shown(NamedTuple):
    """What a wrapper shows: itself, or the ``views``, in this order, of the ``base`` that it is a view of. ``memory``
    is the same for wrappers that may show the same elements; ``in_memory``: their places there are known."""

    base: Any
    views: list[Callable[[torch.Tensor], torch.Tensor]]
    memory: int
    in_memory: bool

    def elements(self) -> torch.Tensor:
        """The numbers of the elements that are shown: their places in memory, or counted where nothing says those."""
        counted = torch.arange(0 if self.in_memory else self.base.numel())
        numbers = _places(next(inner_tensors(self.base))) if self.in_memory else counted.view(self.base.shape)
        for view in self.views:
            numbers = view(numbers)
        return numbers.reshape(-1)


def _shown(tensor: Any) -> _Shown:
    """Decoded views know what they are views of, and so do views that a class of its own accord writes through."""
    views: list[Callable[[torch.Tensor], torch.Tensor]] = []
    while True:
        if _is_view(type(tensor)):
            views.insert(0, tensor.replay.of)
            tensor = tensor.source
        elif VIEW_SOURCE in vars(tensor):
            tensor, view = vars(tensor)[VIEW_SOURCE]
            views.insert(0, view)
        else:
            break
    first = next(inner_tensors(tensor))
    in_memory = not is_wrapper(first) and not first.is_mkldnn and first.shape == tensor.shape
    return _Shown(tensor, views, storage_id(first if in_memory else tensor), in_memory)


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """Where in its storage each element of ``tensor`` is."""
    places = torch.zeros(tensor.shape, dtype=torch.int64).add_(tensor.storage_offset())
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        places += (torch.arange(size) * stride).view(size, *(1,) * (tensor.dim() - dim - 1))
    return places
