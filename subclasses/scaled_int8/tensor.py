"""``ScaledInt8Tensor``: real values as int8 with a float32 scale, usable wherever a float tensor is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..core.geometry import OuterMetadata
from ..core.policy import Fallback, Gradients
from ..core.wrapper import WrapperTensor
from .checks import check_detached, check_finite, check_inner, check_recipe, check_same_shape, check_values
from .granularity import PER_ROW, Granularity
from .numerics import dequantized, quantized


class ScaledInt8Tensor(WrapperTensor):
    """Stands for ``qdata * scale``, a tensor of dtype ``logical_dtype``. ``qdata`` is int8 and has its shape;
    ``scale`` is float32 and has its rank, with size 1 along each dim whose values share a scale.

    ``ScaledInt8Tensor.quantize(t)`` makes one. Matrix products use the payload, transposing is lazy, conversions to
    other floating dtypes keep the payload. Any other operator runs on ``dequantize()``d values and gives a plain
    tensor; one that writes (``add_``, an optimizer) requantizes into the same memory, so the tensor can be trained: as
    a Parameter, with a plain gradient. A row into which NaN or infinity is written reads NaN.

    >>> weight = ScaledInt8Tensor.quantize(torch.tensor([[1.0, -0.5], [0.0, 0.0]]))
    >>> weight.qdata
    tensor([[127, -64],
            [  0,   0]], dtype=torch.int8)
    >>> torch.ones(1, 2) @ weight.t()
    tensor([[0.4961, 0.0000]])
    """

    qdata: torch.Tensor
    scale: torch.Tensor
    granularity: Granularity = PER_ROW
    logical_dtype: torch.dtype = torch.float32

    fallback = Fallback.PLAIN
    gradients = Gradients.PLAIN

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Checks what ``__new__`` took.

        Raises:
            InnerTensorError: ``qdata`` or ``scale`` has a wrong dtype, shape or device.
            QuantizationError: an unknown granularity, or a logical dtype that is not floating.
        """
        super().__init__(*args, **kwargs)
        check_recipe(self.granularity, self.logical_dtype)
        check_inner(type(self), self.qdata, self.scale)

    @classmethod
    def outer_metadata(cls, *fields: Any) -> OuterMetadata:
        qdata, _, _, logical_dtype = fields
        return OuterMetadata(qdata.size(), qdata.stride(), qdata.storage_offset(), logical_dtype, qdata.device)

    @classmethod
    def quantize(
        cls, values: torch.Tensor, granularity: Granularity = PER_ROW, logical_dtype: torch.dtype | None = None
    ) -> ScaledInt8Tensor:
        """An instance that stands for ``values``, each rounded to a multiple of its scale, ``amax(|row|) / 127``. Takes
        no part in autograd; ``from_plain`` does.

        Args:
            values: any floating tensor that doesn't require grad (or under ``no_grad``).
            granularity: which values share a scale.
            logical_dtype: the dtype of the result; that of ``values`` by default.

        Raises:
            QuantizationError: ``values`` are not floating, or hold NaN or infinity (not checked while torch traces);
                the granularity is unknown; the logical dtype is not floating.
            GradientCutError: ``values`` require grad.
            LayoutError: ``values`` are sparse or nested.
        """
        check_detached(cls, values)
        return cls.encode(values, granularity=granularity, logical_dtype=logical_dtype)

    @classmethod
    def encode(
        cls,
        values: torch.Tensor,
        *,
        granularity: Granularity = PER_ROW,
        logical_dtype: torch.dtype | None = None,
        **context: Any,
    ) -> ScaledInt8Tensor:
        check_values(cls, values)
        dtype = values.dtype if logical_dtype is None else logical_dtype
        check_recipe(granularity, dtype)
        with torch.no_grad():
            qdata, scale = quantized(values, granularity.scale_shape(values.shape))
            check_finite(values, scale)
        return cls(qdata, scale, granularity, dtype, **context)

    def decode(self) -> torch.Tensor:
        return dequantized(self.qdata, self.scale, self.logical_dtype)

    def dequantize(self) -> torch.Tensor:
        """The values as a plain tensor, in memory of its own. Differentiable. The same as ``to_plain``."""
        return self.to_plain()

    def requantize(self, values: torch.Tensor) -> ScaledInt8Tensor:
        """A new instance that stands for ``values``, by the recipe of this one: the same dims share a scale (on a
        transposed tensor too), and the dtype is the same.

        Raises:
            QuantizationError: ``values`` have another shape; else as for ``quantize``.
            GradientCutError, LayoutError: as for ``quantize``.
        """
        cls = type(self)
        check_detached(cls, values)
        check_values(cls, values)
        check_same_shape(values, self.shape)
        with torch.no_grad():
            qdata, scale = quantized(values, tuple(self.scale.shape))
            check_finite(values, scale)
        made: ScaledInt8Tensor = cls._generated.rewrap(cls, self, qdata, scale)
        return made

    def stage(self, values: torch.Tensor) -> Callable[[], None]:
        """Requantizes ``values`` (broadcast to the shape of this tensor), to be written into ``qdata`` and ``scale``.
        The dims that share a scale stay, also on a transposed view. A row with NaN or infinity in it becomes NaN."""
        qdata, scale = quantized(values.to(self.dtype).expand(self.shape), tuple(self.scale.shape))

        def write() -> None:
            self.qdata.copy_(qdata)
            self.scale.copy_(scale)

        return write
