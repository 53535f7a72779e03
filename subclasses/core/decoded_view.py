"""What a view op gives where a class decodes: a view that is replayed, so that a write to it reaches the wrapper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from .codec import decoded
from .geometry import OuterMetadata, carry_bits
from .policy import Fallback, Gradients
from .private import OpOverload, share_storage
from .schema import OpFacts, value_of
from .wrapper import WrapperTensor

aten = torch.ops.aten


@dataclass(frozen=True)
class View:
    """One call of a view op, less the tensor: ``args`` has None in its place. ``index`` for ops that return lists."""

    op: OpOverload
    place: int
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    index: int | None
    outer: OuterMetadata

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """The view of ``values``."""
        args = (*self.args[: self.place], values, *self.args[self.place + 1 :])
        out = self.op(*args, **dict(self.kwargs))
        return out if self.index is None else out[self.index]  # type: ignore[no-any-return]


class DecodedView(WrapperTensor):
    """A view of a wrapper's decoded values. Reading it gives plain tensors; writing to it writes to the wrapper.

    It keeps no values: each op decodes ``source`` and replays the view. A plain copy instead would swallow writes:
    ``w[0] = 7`` would change nothing, without a word.
    """

    source: torch.Tensor
    replay: View

    fallback = Fallback.PLAIN
    gradients = Gradients.PLAIN
    _l_view: ClassVar[bool] = True  # by which the PLAIN fallback knows it

    @classmethod
    def outer_metadata(cls, *fields: Any) -> OuterMetadata:
        outer: OuterMetadata = fields[1].outer
        return outer._replace(device=fields[0].device)

    def decode(self) -> torch.Tensor:
        return self.replay.of(decoded(self.source))

    def stage(self, values: torch.Tensor) -> Callable[[], None]:
        whole = decoded(self.source)
        self.replay.of(whole).copy_(values)
        return self.source.stage(whole)  # type: ignore[attr-defined, no-any-return]

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        source = self.source
        while isinstance(source, DecodedView):
            source = source.source
        return f"view of {type(source).__name__}: {self.decode()!r}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return memo.setdefault(id(self), self.to_plain())

    def saved_form(self) -> torch.Tensor:
        return self.to_plain()


@DecodedView.implements(aten.clone.default)
def clone(op: OpOverload, self: Any, *, memory_format: torch.memory_format | None = None) -> torch.Tensor:
    return op(self.decode(), memory_format=memory_format)  # type: ignore[no-any-return]


@DecodedView.implements(aten._to_copy.default)
def to_copy(op: OpOverload, self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    return op(self.decode(), *args, **kwargs)  # type: ignore[no-any-return]


# Views of the same shape, by these ops, are the whole tensor: it keeps its class.
_PARTS = frozenset((aten.view.default, aten.expand.default, aten.slice.Tensor, aten.split.Tensor))


def decoded_views(facts: OpFacts, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """The results of a view op on decoded values, each as a view of the wrapper that was decoded."""
    argument = facts.results[0].view_of
    assert argument is not None
    source = value_of(argument, args, kwargs)
    if not isinstance(source, DecodedView):  # an alias: the wrapper itself may be transposed in place
        source = aten.alias.default(source)
    call = tuple(_frozen(a) for i, a in enumerate(args) if i != argument.index)
    call = (*call[: argument.index], None, *call[argument.index :])

    def view(values: torch.Tensor, index: int | None) -> Any:
        outer = OuterMetadata(values.size(), values.stride(), values.storage_offset(), values.dtype, values.device)
        if facts.op in _PARTS and values.size() == source.size():
            return aten.alias.default(source)  # DTensor views its local tensor so, and FSDP2 takes the only chunk
        replay = View(facts.op, argument.index, call, tuple(kwargs.items()), index, outer)
        result = DecodedView._generated.make(DecodedView, source, replay)
        carry_bits(result, values)
        share_storage(result, source)
        return result

    return [view(o, i) for i, o in enumerate(out)] if facts.results[0].listed else view(out, None)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
