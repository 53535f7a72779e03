"""``ScaledInt8Tensor``: real values as int8 with a float32 scale, usable wherever a float tensor is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..core.fields import VIEW_SOURCE
from ..core.geometry import OuterMetadata
from ..core.policy import Fallback, Gradients
from ..core.wrapper import WrapperTensor
from .checks import check_detached, check_finite, check_flag, check_inner, check_recipe, check_same_shape, check_values
from .errors import PartialViewError
from .granularity import PER_ROW, Granularity
from .numerics import Quantized, computing_dtype, dequantized, overwrite, quantized
from .rounding import NEAREST, Seed, check_source

if TYPE_CHECKING:
    from .packed import PackedInt8Tensor


class ScaledInt8Tensor(WrapperTensor):
    """Stands for ``(qdata - zero_point) * scale``, a tensor of dtype ``logical_dtype``. ``qdata`` is int8 and has its
    shape. ``scale`` is float32 and has its rank: one number for each block of values that ``granularity`` names.
    ``zero_point`` is int8, of the shape of ``scale``, or None (symmetric).

    ``ScaledInt8Tensor.quantize(t)`` makes one. Matrix products use the payload, with their other operand as
    ``activation`` says: ``"float"`` multiplies by the dequantized weight, ``"int16"`` and ``"int8"`` round the other
    operand to that many bits, ``"auto"`` takes the fastest. Views, slices, ``cat`` and conversions to other floating
    dtypes keep the payload. Any other operator runs on ``dequantize()``d values and gives a plain tensor; one that
    writes (``add_``, an optimizer) requantizes into the same memory with the tensor's own ``rounding``, so the tensor
    can be trained: as a Parameter, with a plain gradient. A block into which NaN or infinity is written reads NaN.

    ``partial`` marks a view whose scale is shared with values outside it: a write to it requantizes the tensor that it
    was cut from. One that was made by other code than a view op here (a graph input) refuses writes.

    >>> weight = ScaledInt8Tensor.quantize(torch.tensor([[1.0, -0.5], [0.0, 0.0]]))
    >>> weight.qdata
    tensor([[127, -64],
            [  0,   0]], dtype=torch.int8)
    >>> torch.ones(1, 2) @ weight.t()
    tensor([[0.4961, 0.0000]])
    """

    qdata: torch.Tensor
    scale: torch.Tensor
    zero_point: torch.Tensor | None = None
    granularity: Granularity = PER_ROW
    logical_dtype: torch.dtype = torch.float32
    rounding: str = NEAREST
    activation: str = "float"
    partial: bool = False

    fallback = Fallback.PLAIN
    gradients = Gradients.PLAIN

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Checks what ``__new__`` took.

        Raises:
            InnerTensorError: an inner tensor has a wrong dtype, shape or device.
            QuantizationError: an unknown granularity, rounding or activation, or a logical dtype that is not floating.
        """
        super().__init__(*args, **kwargs)
        check_recipe(self.granularity, self.logical_dtype, self.rounding, self.activation)
        check_flag("partial", self.partial)
        check_inner(type(self), self.qdata, self.scale, self.zero_point, self.granularity)

    @classmethod
    def outer_metadata(cls, *fields: Any) -> OuterMetadata:
        qdata, logical_dtype = fields[0], fields[4]
        return OuterMetadata(qdata.size(), qdata.stride(), qdata.storage_offset(), logical_dtype, qdata.device)

    @classmethod
    def quantize(
        cls,
        values: torch.Tensor,
        granularity: Granularity = PER_ROW,
        logical_dtype: torch.dtype | None = None,
        *,
        symmetric: bool = True,
        rounding: str = NEAREST,
        activation: str = "float",
        generator: torch.Generator | None = None,
        seed: Seed = None,
    ) -> ScaledInt8Tensor:
        """An instance that stands for ``values``, each rounded to a multiple of its block's scale. Takes no part in
        autograd; ``from_plain`` does.

        Args:
            values: any floating tensor that doesn't require grad (or under ``no_grad``).
            granularity: which values share a scale.
            logical_dtype: the dtype of the result; that of ``values`` by default.
            symmetric: False for a zero point: 255 steps from the least value (or 0) to the largest (or 0).
            rounding: ``"nearest"`` or ``"stochastic"``; in-place updates later round likewise.
            activation: what a matrix product makes of its other operand: ``"float"``, ``"int16"``, ``"int8"``,
                ``"auto"``.
            generator: where stochastic rounding draws from; by default the default generator of the device.
            seed: one integer in its place, the random numbers being a function of it; a tensor in compiled code, which
                can't take a generator.

        Raises:
            QuantizationError: ``values`` are not floating, or hold NaN or infinity (not checked while torch traces);
                an argument has none of the values named above, or both generator and seed are given.
            GridError: a group size doesn't divide its dim.
            GradientCutError: ``values`` require grad.
            LayoutError: ``values`` are sparse or nested.
        """
        check_detached(cls, values)
        return cls.encode(
            values,
            granularity=granularity,
            logical_dtype=logical_dtype,
            symmetric=symmetric,
            rounding=rounding,
            activation=activation,
            generator=generator,
            seed=seed,
        )

    @classmethod
    def encode(
        cls,
        values: torch.Tensor,
        *,
        granularity: Granularity = PER_ROW,
        logical_dtype: torch.dtype | None = None,
        symmetric: bool = True,
        rounding: str = NEAREST,
        activation: str = "float",
        generator: torch.Generator | None = None,
        seed: Seed = None,
        partial: bool = False,
        **context: Any,
    ) -> ScaledInt8Tensor:
        """Behind ``quantize`` and ``from_plain``. The result owns its memory, whatever ``partial`` says."""
        check_values(cls, values)
        check_flag("symmetric", symmetric)
        dtype = values.dtype if logical_dtype is None else logical_dtype
        check_recipe(granularity, dtype, rounding, activation)
        made = _quantized(
            values,
            granularity.blocks(values.dim()),
            dtype,
            symmetric,
            rounding=rounding,
            generator=generator,
            seed=seed,
        )
        return cls(*made, granularity, dtype, rounding, activation, **context)

    def decode(self) -> torch.Tensor:
        return dequantized(self.qdata, self.scale, self.zero_point, self.blocks, self.logical_dtype)

    def remade(self, inner: Quantized, **changed: Any) -> ScaledInt8Tensor:
        """An instance with these inner tensors, and the recipe of this one but for what is ``changed``. Nothing is
        checked."""
        cls = type(self)
        fields = {field.name: getattr(self, field.name) for field in cls.declaration.fields}
        made: ScaledInt8Tensor = cls._generated.make(cls, *{**fields, **inner._asdict(), **changed}.values())
        return made

    def matrix(self) -> Quantized:
        """The inner tensors, as ``lamina::int8_mm`` takes them."""
        return Quantized(self.qdata, self.scale, self.zero_point)

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many neighbours along each dim share a scale; -1 for all of them."""
        return self.granularity.blocks(self.dim())

    def dequantize(self) -> torch.Tensor:
        """The values as a plain tensor, in memory of its own. Differentiable. The same as ``to_plain``."""
        return self.to_plain()

    def requantize(
        self, values: torch.Tensor, *, generator: torch.Generator | None = None, seed: Seed = None
    ) -> ScaledInt8Tensor:
        """A new instance that stands for ``values``, by the recipe of this one: the same blocks share a scale (on a
        transposed tensor too), symmetric or not, with the same rounding, activation and dtype.

        Raises:
            QuantizationError: ``values`` have another shape; else as for ``quantize``.
            GradientCutError, LayoutError: as for ``quantize``.
        """
        cls = type(self)
        check_detached(cls, values)
        check_values(cls, values)
        check_same_shape(values, self.shape)
        source: Any = {"generator": generator, "seed": seed}
        symmetric = self.zero_point is None
        made = _quantized(values, self.blocks, self.dtype, symmetric, rounding=self.rounding, **source)
        return self.remade(made, partial=False)

    def with_activation(self, activation: str) -> ScaledInt8Tensor:
        """A view of this tensor whose matrix products take their other operand as ``activation`` says. Differentiable.

        Raises:
            QuantizationError: there is no such activation.
        """
        check_recipe(self.granularity, self.logical_dtype, self.rounding, activation)
        view: Any = torch.ops.aten.alias.default(self)  # not remade: a write to a partial view has to find its source
        view.activation = activation
        return view  # type: ignore[no-any-return]

    def stage(self, values: torch.Tensor) -> Callable[[], None]:
        """Requantizes ``values`` (broadcast to the shape of this tensor), to be written into the inner tensors. The
        blocks stay, also on a transposed view. A block with NaN or infinity in it becomes NaN.

        Raises:
            PartialViewError: the scale is shared with values out of reach.
        """
        return self._stage(values.to(self.dtype).expand(self.shape))

    def _stage(self, values: torch.Tensor) -> Callable[[], None]:
        if self.partial:
            return self._stage_in_source(values)
        symmetric = self.zero_point is None
        new = quantized(values, self.blocks, symmetric=symmetric, rounding=self.rounding, dtype=self.dtype)
        return lambda: overwrite(self.matrix(), new)

    def _stage_in_source(self, values: torch.Tensor) -> Callable[[], None]:
        """A new scale here would change the values outside the view: the tensor it was cut from is requantized, with
        the others exactly as they are: in float32, not rounded to the dtype."""
        if VIEW_SOURCE not in vars(self):
            raise PartialViewError(
                f"this {type(self).__name__} of shape {tuple(self.shape)} shares its scale with values outside it, "
                "and the tensor it is a view of is not known here. Write to that one, or to a clone()."
            )
        source, view = vars(self)[VIEW_SOURCE]
        qdata, scale, zero_point = source.matrix()
        whole = dequantized(qdata, scale, zero_point, source.blocks, computing_dtype(source.dtype))
        view(whole).copy_(values)
        write: Callable[[], None] = source._stage(whole)
        return write

    def pack(self) -> PackedInt8Tensor:
        """The same values in the layout of the CPU's int8 kernels (oneDNN's): faster products for frozen weights. It
        can't be written to; ``unpack()`` gives this tensor back.

        Raises:
            PackedError: it is empty or no matrix, has other scales than one for each row or one for all, is not on a
                CPU, requires grad, or has ``activation="float"``, which gains nothing; or the CPU's int8 sums saturate.
        """
        from .packed import pack

        return pack(self)

    def saved_form(self) -> torch.Tensor:
        """Itself; a partial view is saved as a tensor of its own."""
        return self.detach().clone() if self.partial else self


def _quantized(
    values: torch.Tensor, blocks: tuple[int, ...], dtype: torch.dtype, symmetric: bool, **rounding: Any
) -> Quantized:
    """``quantized`` for new tensors: values without a scale are refused."""
    check_source(**rounding)
    with torch.no_grad():
        made = quantized(values, blocks, symmetric=symmetric, dtype=dtype, **rounding)
        check_finite(values, made.scale)
    return made
