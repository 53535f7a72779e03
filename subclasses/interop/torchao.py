"""To torchao's ``Int8Tensor`` and back, bit for bit. torchao is imported when it is first used: that takes seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core.fields import has_values
from ..scaled_int8 import (
    Granularity,
    PerBlock,
    PerGroup,
    PerRow,
    PerTensor,
    QuantizationError,
    ScaledInt8Tensor,
)
from ..scaled_int8.checks import check_flag
from ..scaled_int8.granularity import scale_shape
from .quiet import quiet_import

# In these torchao keeps activations that our tensors do without; each changes what a layer computes.
_CALIBRATED = ("act_quant_scale", "act_quant_zero_point")


def from_torchao(
    tensor: Any, *, activation: str | None = None, symmetric: bool | None = None, rounding: str = "nearest"
) -> ScaledInt8Tensor:
    """The ``ScaledInt8Tensor`` with the payload, the scale and the zero point of a torchao ``Int8Tensor``, in memory of
    its own: it dequantizes to the same bits. Takes no part in autograd.

    >>> from torchao.quantization import Int8Tensor, PerRow
    >>> theirs = Int8Tensor.from_hp(torch.tensor([[1.0, -0.5], [0.0, 0.25]]), PerRow())
    >>> ours = from_torchao(theirs)
    >>> ours.granularity, torch.equal(ours.dequantize(), theirs.dequantize())
    (PerRow(), True)

    A model: ``lamina.wrap_parameters(model, lamina.from_torchao, where=...)``. ``reduce_range`` is not taken over: it
    keeps sums small on processors on which torchao's would overflow, and has no part in the values.

    Args:
        tensor: an ``Int8Tensor``, or a Parameter that is one.
        activation: how products take the other operand. By default ``"int8"`` if torchao quantizes activations per row
            and symmetrically, ``"float"`` if it leaves them alone; other ways can't be kept, and need this argument.
        symmetric: how the tensor is requantized when it is written to. By default symmetrically if all zero points are
            0 (torchao stores those too). While torch traces nothing can be read: the zero points are kept.
        rounding: how it is requantized, ``"nearest"`` or ``"stochastic"``. torchao doesn't requantize.

    Raises:
        QuantizationError: it isn't an ``Int8Tensor``; it quantizes activations in a way that ``ScaledInt8Tensor``
            doesn't; scales or zero points don't fit its ``block_size``; ``symmetric`` is asked for, and there are zero
            points other than 0, or it is neither True, False nor None.
    """
    _check_is(tensor, _torchao().Int8Tensor, "from_torchao", "Int8Tensor.from_hp makes one")
    if symmetric is not None:
        check_flag("symmetric", symmetric)
    chosen = _activation_of(tensor) if activation is None else activation
    if tensor.act_pre_scale is not None:
        raise _not_kept("act_pre_scale", "multiply it into the weight: ScaledInt8Tensor.quantize(w.dequantize() * s)")
    shape, blocks = tuple(tensor.shape), _blocks(tensor)
    scale = _fitted("scale", tensor.scale, shape, blocks, torch.float32)
    zero_point = tensor.zero_point
    if zero_point is not None:
        zero_point = _fitted("zero_point", zero_point, shape, blocks, torch.int8)
        zero_point = None if _is_symmetric(zero_point, symmetric) else zero_point
    elif symmetric is False:
        zero_point = torch.zeros_like(scale, dtype=torch.int8)
    granularity = granularity_of(shape, blocks)
    payload = tensor.qdata.clone(memory_format=torch.contiguous_format)
    return ScaledInt8Tensor(payload, scale, zero_point, granularity, tensor.dtype, rounding, chosen)


def to_torchao(tensor: ScaledInt8Tensor) -> Any:
    """The torchao ``Int8Tensor`` with the payload, the scale and the zero point of ``tensor`` (zeros, as torchao has
    them too, where that has none), contiguous, in memory of its own: it dequantizes to the same bits.

    ``activation="int8"`` becomes torchao's dynamic quantization per row; with any other it multiplies in floating
    point. Not taken over: ``rounding``, since torchao doesn't requantize. torchao 0.18's ``linear`` ignores the zero
    points of a weight with one scale per row or tensor: give it symmetric ones, or groups.

    >>> weight = ScaledInt8Tensor.quantize(torch.randn(4, 8))
    >>> type(to_torchao(weight)).__name__, to_torchao(weight).block_size
    ('Int8Tensor', [1, 8])

    Raises:
        QuantizationError: it isn't a ``ScaledInt8Tensor``; it has no elements, or float64 values, which torchao can't
            dequantize; its activations are int8 and its scales in groups, which torchao can't multiply.
    """
    _check_is(tensor, ScaledInt8Tensor, "to_torchao", "ScaledInt8Tensor.quantize makes one")
    if tensor.dtype is torch.float64:
        raise QuantizationError("torchao has no float64 values. Convert first: tensor.float().")
    if tensor.numel() == 0:
        raise QuantizationError(f"torchao can't dequantize a tensor without elements, of shape {tuple(tensor.shape)}.")
    blocks = block_size(tensor.shape, tensor.granularity)
    scale = _copied(tensor.scale)
    zero_point = tensor.zero_point
    return _torchao().Int8Tensor(
        _copied(tensor.qdata),
        scale,
        blocks,
        tensor.dtype,
        zero_point=torch.zeros_like(scale, dtype=torch.int8) if zero_point is None else _copied(zero_point),
        act_quant_kwargs=_activation_for(tensor, blocks),
    )


def granularity_of(shape: Sequence[int], blocks: Sequence[int]) -> Granularity:
    """What shares a scale in a tensor of ``shape`` in blocks of that many elements: rows, all, groups along the last
    dim, or blocks; the first that says it.

    >>> granularity_of((4, 8), (1, 8)), granularity_of((4, 8), (4, 8)), granularity_of((4, 8), (1, 2))
    (PerRow(), PerTensor(), PerGroup(size=2))
    """
    simple: list[Granularity] = [PerRow(), PerTensor(), *(PerGroup(block) for block in blocks[-1:])]
    whole = [-1 if block == size > 1 else block for size, block in zip(shape, blocks, strict=True)]
    return next((g for g in simple if block_size(shape, g) == list(blocks)), PerBlock(tuple(whole)))


def block_size(shape: Sequence[int], granularity: Granularity) -> list[int]:
    """How many elements share a scale along each dim.

    >>> block_size((4, 8), PerRow())
    [1, 8]
    """
    return [size if block == -1 else block for size, block in zip(shape, granularity.blocks(len(shape)), strict=True)]


def own_granularity(granularity: Any) -> Any:
    """Ours for one of torchao's, which have the same names. Anything else as it is.

    >>> import torchao.quantization
    >>> own_granularity(torchao.quantization.PerGroup(32))
    PerGroup(size=32)

    Raises:
        QuantizationError: it says something else for each number of dims.
    """
    torchao = _torchao()
    if not isinstance(granularity, torchao.granularity.Granularity):
        return granularity
    if granularity == torchao.PerTensor():
        return PerTensor()
    if granularity in (torchao.PerRow(), torchao.PerToken()):
        return PerRow()
    if isinstance(granularity, torchao.PerGroup):
        return PerGroup(granularity.group_size)
    raise QuantizationError(
        f"torchao's {granularity} depends on the number of dims. Write lamina.PerBlock(shape): how many neighbours "
        "share a scale along each dim, -1 for all."
    )


def _torchao() -> Any:
    return quiet_import("torchao.quantization")


def _int8_kwargs() -> Any:
    """How torchao says that activations become int8."""
    return quiet_import("torchao.quantization.quantize_.workflows").QuantizeTensorToInt8Kwargs


def _check_is(tensor: Any, cls: type, caller: str, advice: str) -> None:
    if not isinstance(tensor, cls):
        wanted, got = _a(cls.__name__), _a(type(tensor).__name__)
        raise QuantizationError(f"{caller} takes {wanted} ({advice}), got {got}")


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"


def _blocks(tensor: Any) -> tuple[int, ...]:
    """The block size, which divides the shape."""
    shape, blocks = tuple(tensor.shape), tuple(tensor.block_size)
    if len(shape) != len(blocks) or any(b < 1 or size % b for size, b in zip(shape, blocks, strict=True)):
        raise QuantizationError(
            f"this Int8Tensor of shape {shape} has block_size {blocks}, which doesn't divide it. torchao makes such "
            "tensors when it slices inside a block: slice by whole blocks."
        )
    return blocks


def _fitted(
    name: str, values: torch.Tensor, shape: tuple[int, ...], blocks: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """A copy of ``values``, one for each block, in ``dtype``."""
    wanted = scale_shape(shape, blocks)
    if values.numel() != torch.Size(wanted).numel():
        raise QuantizationError(
            f"{name} of shape {tuple(values.shape)} doesn't fit an Int8Tensor of shape {shape} in blocks of {blocks}, "
            f"which has {wanted} of them. torchao makes such tensors when it slices inside a block."
        )
    converted = values.reshape(wanted).to(dtype, copy=True)
    if (
        values.dtype is not dtype
        and has_values(values)
        and not torch.equal(converted.to(values.dtype), values.reshape(wanted))
    ):
        raise QuantizationError(f"{name} is {values.dtype}, with values that {dtype} doesn't have: it can't be kept.")
    return converted


def _is_symmetric(zero_point: torch.Tensor, asked: bool | None) -> bool:
    if asked is False or not has_values(zero_point):
        return asked is True
    if not bool(zero_point.any()):
        return True
    if asked:
        raise QuantizationError("symmetric=True, but this Int8Tensor has zero points other than 0. Leave it out.")
    return False


def _activation_of(tensor: Any) -> str:
    kept = [name for name in _CALIBRATED if getattr(tensor, name) is not None]
    if kept:
        raise _not_kept(kept[0], "pass activation='int8' to quantize activations per row as they come")
    kwargs, torchao = tensor.act_quant_kwargs, _torchao()
    if kwargs is None:
        return "float"
    plain = isinstance(kwargs, _int8_kwargs()) and kwargs.mapping_type is torchao.MappingType.SYMMETRIC
    if plain and kwargs.granularity in (torchao.PerRow(), torchao.PerToken()):
        return "int8"
    raise _not_kept(f"act_quant_kwargs={kwargs}", "pass activation= 'float', 'int16', 'int8' or 'auto' to choose")


def _activation_for(tensor: ScaledInt8Tensor, blocks: list[int]) -> Any:
    if tensor.activation != "int8":
        return None
    granularity = granularity_of(tensor.shape, blocks)
    if not isinstance(granularity, (PerRow, PerTensor)):
        raise QuantizationError(
            f"torchao multiplies int8 activations by weights with one scale per row or tensor, not by {granularity}. "
            "Requantize it, or convert one with another activation."
        )
    return _int8_kwargs()(_torchao().PerRow())


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _not_kept(what: str, advice: str) -> QuantizationError:
    return QuantizationError(f"this Int8Tensor has {what}, for which ScaledInt8Tensor has no equal; {advice}.")
