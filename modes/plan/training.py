"""The training step of a model that a factory makes: batch, optimizer and dtype named, as on the command line."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Adafactor, Adagrad, Adam, AdamW, Optimizer, RMSprop
from torch.utils.checkpoint import checkpoint

from ...subclasses.core.errors import LaminaError
from ...subclasses.parameters import wrap_parameters
from ...subclasses.scaled_int8 import ScaledInt8Tensor
from ..fake import FakeLikeMode
from .devices import device_named
from .ledger import Step
from .plan import Plan
from .step import plan_step

OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], Optimizer]] = {
    "adamw": AdamW,
    "adam": Adam,
    "sgd": partial(SGD, lr=1e-3),
    "momentum": partial(SGD, lr=1e-3, momentum=0.9),
    "adafactor": Adafactor,
    "adagrad": Adagrad,
    "rmsprop": RMSprop,
}
LARGEST_BATCH = 1 << 60  # elements: their bytes must be a number of 64 bits
NO_OPTIMIZER = "none"
"""Forward alone, without gradients."""


class TrainingError(LaminaError, ValueError):
    """What is asked for is no training step: the factory, the batch, the optimizer or the dtype."""


@dataclass(frozen=True)
class Training:
    """A training step to plan.

    ``factory`` is called without arguments, while ``dtype`` is torch's default, and returns the model. ``batch``: the
    shape of its input, which is int64 where the model begins with an embedding, else of ``dtype``. The loss is what the
    model's own ``loss(batch)`` gives, if it has that method; what ``forward`` returns, if it is one number; the cross
    entropy of its scores for tokens; else the mean of what it returns.

    ``checkpointing``: each of the model's repeated blocks is computed anew in the backward. ``int8``: the weights of
    linear layers in the blocks are ScaledInt8Tensors.
    """

    factory: Callable[[], nn.Module]
    batch: tuple[int, ...]
    optimizer: str = "adamw"
    dtype: torch.dtype = torch.float32
    checkpointing: bool = False
    int8: bool = False

    def __post_init__(self) -> None:
        """Everything that can be checked before the model is made."""
        if self.optimizer not in (*OPTIMIZERS, NO_OPTIMIZER):
            known = ", ".join((*OPTIMIZERS, NO_OPTIMIZER))
            raise TrainingError(f"there is no optimizer {self.optimizer!r} here: there are {known}.")
        if not self.batch or any(size < 1 for size in self.batch):
            raise TrainingError(f"a batch has a shape of numbers above 0, such as (8, 4096), and not {self.batch}.")
        if prod(self.batch) >= LARGEST_BATCH:
            raise TrainingError(f"a batch of {self.batch} has more elements than any tensor of torch can have.")
        if not self.dtype.is_floating_point:
            raise TrainingError(f"parameters are of a floating-point dtype, such as torch.bfloat16, not {self.dtype}.")

    def plan(
        self,
        device: str | torch.device = "cpu",
        *,
        allocator: Literal["caching"] | None = None,
        progress: Callable[[str], object] | None = None,
    ) -> Plan:
        """The plan of one step of a training that is under way: the optimizer's state is there from the start.

        Raises:
            TrainingError: the factory raises or makes no module; the model has nothing to train, to checkpoint or to
                quantize.
        """
        tell = progress or str
        hardware = device_named(device) if isinstance(device, str) else None
        tell("building the model")
        with FakeLikeMode(hardware.claim if hardware else device):
            model, optimizer = self._built()
        step = partial(_step, model, optimizer, self.batch, _input_dtype(model, self.dtype))
        return plan_step(step, device=device, allocator=allocator, progress=_teller(tell))

    def _built(self) -> tuple[nn.Module, Optimizer | None]:
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            model = self.factory()
        except Exception as error:
            raise TrainingError(
                f"{_name(self.factory)} raised {type(error).__name__}: {error} ({_raised_at(error)}). The factory is "
                "called without arguments, inside FakeLikeMode: nothing that it makes has values."
            ) from error
        finally:
            torch.set_default_dtype(before)
        if not isinstance(model, nn.Module):
            raise TrainingError(
                f"{_name(self.factory)} makes no torch.nn.Module, but {type(model).__name__}. The factory is called "
                "without arguments and returns the model."
            )
        if self.int8:
            _quantize(model)
        if self.checkpointing:
            _checkpoint(model)
        return model, None if self.optimizer == NO_OPTIMIZER else _warmed(OPTIMIZERS[self.optimizer], model)


def _warmed(make: Callable[[Iterable[nn.Parameter]], Optimizer], model: nn.Module) -> Optimizer:
    """An optimizer that has made a step, so that it has its state."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise TrainingError(
            f"{type(model).__name__} has no parameter that requires a gradient, so there is nothing to train: plan its "
            f"forward alone, with the optimizer {NO_OPTIMIZER!r}."
        )
    optimizer = make(trained)
    for parameter in trained:
        parameter.grad = torch.empty(parameter.shape, dtype=parameter.dtype, device=parameter.device)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def _step(model: nn.Module, optimizer: Optimizer | None, batch: tuple[int, ...], dtype: torch.dtype) -> None:
    given = torch.zeros(batch, dtype=dtype)
    if optimizer is None:
        with torch.no_grad():
            model(given)
        return
    _loss(model, given).backward()
    optimizer.step()
    optimizer.zero_grad()


def _loss(model: nn.Module, given: Tensor) -> Tensor:
    own = getattr(model, "loss", None)
    if callable(own):
        loss: Tensor = own(given)
        return loss
    result = model(given)
    result = getattr(result, "logits", result)
    if not isinstance(result, Tensor):
        raise TrainingError(
            f"{type(model).__name__} returns {type(result).__name__}, and it has no method loss(batch) that returns "
            "one number: give it one."
        )
    if result.dim() == 0:
        return result
    if not given.is_floating_point():
        return F.cross_entropy(result.flatten(0, -2).float(), given.flatten())
    return result.float().mean()


def _input_dtype(model: nn.Module, dtype: torch.dtype) -> torch.dtype:
    return torch.int64 if any(isinstance(each, nn.Embedding) for each in model.modules()) else dtype


def _blocks(model: nn.Module) -> list[nn.Module]:
    """The children of the longest list of modules that are all of one class."""
    lists = [list(each) for each in model.modules() if isinstance(each, (nn.ModuleList, nn.Sequential))]
    alike = [each for each in lists if len(each) > 1 and len({type(child) for child in each}) == 1]
    return max(alike, key=len, default=[])


def _checkpoint(model: nn.Module) -> None:
    blocks = _blocks(model)
    if not blocks:
        raise TrainingError(
            f"{type(model).__name__} has no list of equal blocks to checkpoint: a ModuleList or Sequential of several "
            "modules of one class."
        )
    for block in blocks:  # no values are drawn, so there is no state of random generators to preserve
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)


def _quantize(model: nn.Module) -> None:
    inside = {id(each) for block in _blocks(model) for each in block.modules()} or {id(m) for m in model.modules()}
    linear = {
        id(each) for each in model.modules() if isinstance(each, nn.Linear) and (not inside or id(each) in inside)
    }
    if not linear:
        raise TrainingError(f"{type(model).__name__} has no linear layers whose weights could be int8.")

    def is_weight(name: str, module: nn.Module, _: nn.Parameter) -> bool:
        return id(module) in linear and name.endswith("weight")

    wrap_parameters(model, ScaledInt8Tensor.quantize, where=is_weight)


def _teller(tell: Callable[[str], object]) -> Callable[[Step], object]:
    return lambda step: tell(f"{step.phase}: {step.module or step.op}") if step.number % 100 == 0 else None


def _raised_at(error: BaseException) -> str:
    """The innermost place outside of torch and lamina, else the innermost."""
    places = traceback.extract_tb(error.__traceback__)
    theirs = [p for p in places if not p.filename.startswith((_LAMINA, _TORCH))]
    place = (theirs or places)[-1]
    return f"{place.filename}:{place.lineno}"


_TORCH, _LAMINA = str(Path(torch.__file__).parent), str(Path(__file__).parents[2])


def _name(factory: Any) -> str:
    return f"{getattr(factory, '__module__', '?')}:{getattr(factory, '__qualname__', factory)}"
