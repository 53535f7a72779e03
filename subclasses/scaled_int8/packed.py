"""``PackedInt8Tensor``: a frozen int8 weight in the layout that the CPU's kernels are fastest with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..core.fields import tensors_in
from ..core.geometry import OuterMetadata
from ..core.policy import Fallback, Gradients
from ..core.private import OpOverload
from ..core.schema import Kind, facts_of, value_of
from ..core.wrapper import WrapperTensor
from . import layout
from .errors import PackedError
from .granularity import PER_ROW, Granularity
from .kernels.integers import SUMS_ARE_EXACT
from .numerics import FLOATING, Quantized
from .rounding import NEAREST
from .tensor import ScaledInt8Tensor

aten = torch.ops.aten
_INNER = ("packed", "scale", "zero_point")
_SQUARE = torch.empty((2, 2), device="meta")
# Arguments of a conversion with which the layout stays.
_KEEPS: dict[str, tuple[Any, ...]] = {
    "layout": (None, torch.strided),
    "pin_memory": (None, False),
    "memory_format": (None, torch.preserve_format),
}


class PackedInt8Tensor(WrapperTensor):
    """A matrix that stands for the same values as the ``ScaledInt8Tensor`` of which ``pack()`` made it. Its payload is
    in the kernels' layout only, so there is nothing that could go stale, and no second copy.

    It is frozen: whatever would write to it raises ``PackedError``. Cloned or saved it is a ``ScaledInt8Tensor`` again.
    Matrix products with it run in compiled graphs, too; any other operator runs on decoded values.

    ``packed``: the payload of shape (N, K), opaque. ``scale``, ``zero_point``: of shape (N, 1) or (1, 1).
    ``transposed``: the tensor is the (K, N) view, as ``linear`` takes it.
    """

    packed: torch.Tensor
    scale: torch.Tensor
    zero_point: torch.Tensor | None = None
    granularity: Granularity = PER_ROW
    logical_dtype: torch.dtype = torch.float32
    rounding: str = NEAREST
    activation: str = "float"
    transposed: bool = False

    fallback = Fallback.PLAIN
    gradients = Gradients.PLAIN

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuses: whatever could be given, only ``pack`` knows how it has to look.

        Raises:
            PackedError: always.
        """
        raise PackedError(f"{cls.__name__} has no constructor: ScaledInt8Tensor.quantize(values).pack() makes one.")

    @classmethod
    def encode(cls, values: torch.Tensor, **context: Any) -> Any:
        """Refuses: see the constructor.

        Raises:
            PackedError: always.
        """
        return cls(values)

    @classmethod
    def outer_metadata(cls, *fields: Any) -> OuterMetadata:
        matrix, logical_dtype, transposed = fields[0], fields[4], fields[7]
        columns, rows = matrix.size()
        size, stride = ((columns, rows), (1, columns)) if transposed else ((rows, columns), (columns, 1))
        return OuterMetadata(size, stride, 0, logical_dtype, matrix.device)

    def decode(self) -> torch.Tensor:
        plain = self._portable().decode()
        return plain.t() if self.transposed else plain

    def dequantize(self) -> torch.Tensor:
        """The values as a plain tensor, in memory of its own. The same as ``to_plain``."""
        return self.to_plain()

    def unpack(self) -> ScaledInt8Tensor:
        """The tensor that was packed, bit for bit, in memory of its own."""
        portable: Any = self._portable()
        return portable.t() if self.transposed else portable  # type: ignore[no-any-return]

    def matrix(self) -> Quantized:
        """The inner tensors, as ``lamina::int8_mm`` takes them: packed for the transposed view only."""
        if not self.transposed:
            return Quantized(layout.unpacked(self.packed), self.scale, self.zero_point)
        return Quantized(self.packed, self.scale.t(), None if self.zero_point is None else self.zero_point.t())

    def stage(self, values: torch.Tensor) -> Callable[[], None]:
        """Refuses: the layout is for frozen weights.

        Raises:
            PackedError: always.
        """
        raise _frozen(self)

    def share_memory_(self) -> Any:
        """Refuses: the layout has no memory that processes could share.

        Raises:
            PackedError: always.
        """
        raise PackedError(f"a {type(self).__name__} can't be shared between processes: share unpack(), and pack there.")

    def is_shared(self) -> bool:
        """False: see ``share_memory_``."""
        return False

    def saved_form(self) -> torch.Tensor:
        """The portable tensor: the layout belongs to one kind of machine."""
        return self.unpack()

    def _portable(self) -> ScaledInt8Tensor:
        qdata, scale = layout.unpacked(self.packed), self.scale.clone()
        zero_point = None if self.zero_point is None else self.zero_point.clone()
        recipe = (self.granularity, self.logical_dtype, self.rounding, self.activation)
        made: ScaledInt8Tensor = ScaledInt8Tensor._generated.make(
            ScaledInt8Tensor, qdata, scale, zero_point, *recipe, False
        )
        return made


def _frozen(tensor: torch.Tensor) -> PackedError:
    return PackedError(
        f"this {type(tensor).__name__} of shape {tuple(tensor.shape)} is frozen. Call unpack() (lamina.unpack_(module) "
        "for parameters), write, and pack again."
    )


def pack(weight: ScaledInt8Tensor) -> PackedInt8Tensor:
    """``weight`` in the layout of the CPU's int8 kernels. Behind ``ScaledInt8Tensor.pack``.

    Raises:
        PackedError: see ``problem_of``.
    """
    problem = problem_of(weight)
    if problem:
        raise PackedError(f"a {type(weight).__name__} of shape {tuple(weight.shape)} can't be packed: {problem}.")
    zero_point = None if weight.zero_point is None else weight.zero_point.clone()
    recipe = (weight.granularity, weight.logical_dtype, weight.rounding, weight.activation)
    made: PackedInt8Tensor = PackedInt8Tensor._generated.make(
        PackedInt8Tensor, layout.packed(weight.qdata), weight.scale.clone(), zero_point, *recipe, False
    )
    return made


def problem_of(weight: ScaledInt8Tensor) -> str | None:
    """Why ``weight`` can't be packed, and what to do; None if it can."""
    problem = None
    if weight.requires_grad and torch.is_grad_enabled():
        problem = "it requires grad, and the layout is for frozen weights: call requires_grad_(False) first"
    elif weight.dim() != 2 or 0 in weight.shape:
        problem = "the layout is for matrices"
    elif tuple(weight.scale.shape) not in ((weight.shape[0], 1), (1, 1)):
        problem = "the kernels take one scale for each row, or one for all: quantize with PerRow() or PerTensor()"
    elif weight.activation == "float":
        problem = (
            'activation="float" multiplies by decoded values, and decoding the layout is slow: pack '
            'weight.with_activation("int16"), which is as accurate to 85 dB, or "int8" or "auto"'
        )
    elif weight.device.type != "cpu":
        problem = f"it is on {weight.device}, and the layout is for the CPU"
    elif not torch.backends.mkldnn.is_available():
        problem = "this build of torch has no oneDNN"
    elif not SUMS_ARE_EXACT:
        problem = "the int8 sums of this CPU saturate (it has no VNNI instructions), and all products run as floats"
    return problem


@PackedInt8Tensor.implements(aten.detach.default, aten.alias.default, aten.lift_fresh.default)
def same(op: OpOverload, self: Any) -> Any:
    return _made(self)


@PackedInt8Tensor.implements(aten.t.default)
def t(op: OpOverload, self: Any) -> Any:
    return _made(self, transposed=not self.transposed)


@PackedInt8Tensor.implements(aten.transpose.int)
def transpose(op: OpOverload, self: Any, dim0: int, dim1: int) -> Any:
    op(_SQUARE, dim0, dim1)  # refuses dims that are none
    return _made(self, transposed=self.transposed != (dim0 % 2 != dim1 % 2))


@PackedInt8Tensor.implements(aten.permute.default)
def permute(op: OpOverload, self: Any, dims: Sequence[int]) -> Any:
    op(_SQUARE, dims)
    return _made(self, transposed=self.transposed != (dims[0] % 2 == 1))


@PackedInt8Tensor.implements(aten.as_strided.default)
def as_strided(
    op: OpOverload, self: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    """So compiled code replays views: this one and the transposed one have the layout."""
    for transposed in (self.transposed, not self.transposed):
        view = _made(self, transposed=transposed)
        if (tuple(size), tuple(stride), storage_offset or 0) == (tuple(view.shape), view.stride(), 0):
            return view
    return PackedInt8Tensor.super_rule(op)(self, size, stride, storage_offset)


@PackedInt8Tensor.implements(Kind.INPLACE, Kind.OUT, Kind.LIST_MUTATING)
def write(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Refuses before anything is computed: plain tensors of a list would have been written by then."""
    for argument in facts_of(op).written:
        for tensor in tensors_in(value_of(argument, args, kwargs)):
            if isinstance(tensor, PackedInt8Tensor):
                raise _frozen(tensor)
    return PackedInt8Tensor.super_rule(op)(*args, **kwargs)


@PackedInt8Tensor.implements(aten.is_pinned.default)
def is_pinned(op: OpOverload, self: Any, device: torch.device | None = None) -> bool:
    return False


@PackedInt8Tensor.implements(aten._pin_memory.default)
def pin_memory(op: OpOverload, self: Any, device: torch.device | None = None) -> Any:
    return op(self.unpack(), device)


@PackedInt8Tensor.implements(aten.clone.default)
def clone(op: OpOverload, self: Any, *, memory_format: torch.memory_format | None = None) -> Any:
    return op(self.unpack(), memory_format=memory_format)


@PackedInt8Tensor.implements(aten.new_empty.default)
def new_empty(op: OpOverload, self: Any, size: Sequence[int], **how: Any) -> Any:
    return op(self.unpack(), size, **how)


@PackedInt8Tensor.implements(aten.empty_like.default)
def empty_like(op: OpOverload, self: Any, **how: Any) -> Any:
    return op(self.unpack(), **how)


@PackedInt8Tensor.implements(aten._to_copy.default)
def convert(op: OpOverload, self: Any, *, dtype: torch.dtype | None = None, **how: Any) -> Any:
    """Another floating dtype is a label, and the layout stays. For another device, or for a copy, it is unpacked."""
    stays = how.get("device") in (None, self.device) and all(how.get(name) in keeps for name, keeps in _KEEPS.items())
    if stays and dtype in FLOATING and dtype is not self.dtype:
        return _made(self, logical_dtype=dtype)
    return op(self.unpack(), dtype=dtype, **how)


def _made(self: Any, **changed: Any) -> Any:
    """A view: the same packed payload. Detached by itself: the layout has no aliases."""
    cls = type(self)
    fields = {field.name: getattr(self, field.name) for field in cls.declaration.fields}
    inner = {name: None if (held := fields[name]) is None else held.detach() for name in _INNER}
    return cls._generated.make(cls, *{**fields, **inner, **changed}.values())
