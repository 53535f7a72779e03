"""``ScaledInt8Config``: with it, torchao's ``quantize_`` makes weights that are ``ScaledInt8Tensor``s."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from ..parameters import wrap_parameters
from ..scaled_int8 import Granularity, QuantizationError, ScaledInt8Tensor
from ..scaled_int8.checks import check_flag, check_recipe
from ..scaled_int8.granularity import PER_ROW
from .quiet import quiet_import
from .torchao import own_granularity


@dataclass(frozen=True)
class ScaledInt8Config:
    """How torchao's ``quantize_`` makes weights ``ScaledInt8Tensor``s: by ``ScaledInt8Tensor.quantize``.

    >>> import torchao.quantization
    >>> model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> torchao.quantization.quantize_(model, ScaledInt8Config(activation="int16"))
    >>> type(model[0].weight).__name__
    'ScaledInt8Tensor'

    The weights are wrapped as ``wrap_parameters`` does it: each stays the Parameter that it is, tied to the same
    others, in the same optimizer, and trainable if it was (torchao's own configurations freeze weights). A weight that
    is a ``ScaledInt8Tensor`` already, by way of a tie, stays as it is. ``filter_fn`` chooses other modules than linear
    ones, and torchao's ``FqnToConfig`` parameters of any name. The first instance imports torchao, which takes seconds.

    Args:
        granularity: which values share a scale; torchao's objects of these names are taken too.
        symmetric: without zero points.
        rounding: ``"nearest"`` or ``"stochastic"``, now and whenever the weight is written to.
        activation: how products take the other operand: ``"float"``, ``"int16"``, ``"int8"`` or ``"auto"``.
    """

    granularity: Granularity = PER_ROW
    symmetric: bool = True
    rounding: str = "nearest"
    activation: str = "float"

    def __new__(cls, *args: Any, **kwargs: Any) -> ScaledInt8Config:
        """Registers the class with torchao, which looks handlers up by it; unpickling and copying come by here too."""
        _register(cls)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Takes torchao's granularities for ours, and checks the recipe.

        Raises:
            QuantizationError: an unknown granularity, rounding or activation; ``symmetric`` is no bool.
        """
        object.__setattr__(self, "granularity", own_granularity(self.granularity))
        check_flag("symmetric", self.symmetric)
        check_recipe(self.granularity, torch.float32, self.rounding, self.activation)

    def quantize(self, values: torch.Tensor) -> ScaledInt8Tensor:
        """``values`` as this configuration says."""
        recipe = {field.name: getattr(self, field.name) for field in fields(ScaledInt8Config)}
        return ScaledInt8Tensor.quantize(values, **recipe)


def quantize_module(module: nn.Module, config: ScaledInt8Config, *, parameter_name: str = "weight") -> nn.Module:
    """What ``quantize_`` calls for each module, or parameter, that was chosen.

    Raises:
        QuantizationError: the module has no such parameter, or it is in another quantized type.
    """
    weight = getattr(module, parameter_name, None)
    if isinstance(weight, ScaledInt8Tensor):
        return module
    if not isinstance(weight, nn.Parameter):
        own = ", ".join(name for name, _ in module.named_parameters(recurse=False)) or "none"
        raise QuantizationError(
            f"quantize_ was to quantize {parameter_name!r} of a {type(module).__name__}, which has no such parameter "
            f"(it has {own}). Choose modules by filter_fn, or parameters by torchao's FqnToConfig."
        )
    if isinstance(weight, quiet_import("torchao.utils").TorchAOBaseTensor):
        raise QuantizationError(
            f"{parameter_name!r} of this {type(module).__name__} is a torchao {type(weight).__name__} already. An "
            f"Int8Tensor can be converted: module.{parameter_name} = nn.Parameter(lamina.from_torchao("
            f"module.{parameter_name}))."
        )
    return wrap_parameters(module, config.quantize, where=lambda name, owner, parameter: parameter is weight)


def _register(cls: type[ScaledInt8Config]) -> None:
    quiet_import("torchao.core.config").AOBaseConfig.register(cls)
    quiet_import("torchao.quantization").quant_api.register_quantize_module_handler(cls)(quantize_module)
