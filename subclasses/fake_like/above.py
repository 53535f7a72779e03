"""What C++ decides by device above dispatch: decided by the claimed device, or refused.

A composite operator that looks at the device of its arguments sees the carrier's, "meta", and takes the path of no
device. For those, kernels of ours stand at the carriers' autograd key; plain tensors on the meta device go on as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.library import Library

from ..core.fields import tensors_in
from ..core.private import OpOverload, composite_kernel
from . import recurrent
from .attention import attend, call_of
from .errors import UndecidedError
from .refusals import without_values

Decide = Callable[..., Any]
aten = torch.ops.aten


def _attention(run: Decide, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return attend(call_of(*args, **kwargs), partial(run, *args, **kwargs))


_RECURRENT = (
    "a recurrent layer on {}: its library runs all its steps in one kernel, and what that saves for the backward is "
    "known to the library alone (torch's own metadata say 0 bytes). So it isn't planned. A loop over nn.RNNCell is."
)
_PACKED = "a recurrent layer over a packed sequence: how many rows each step has is a value, and there are none."


def _recurrent(kind: str) -> Decide:
    def decide(run: Decide, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if device.type == "meta":
            return run(*args, **kwargs)
        if device.type != "cpu":
            raise UndecidedError(_RECURRENT.format(device))
        given, state, *rest = args
        states = state if kind == "lstm" else [state]
        return recurrent.run(recurrent.Call(kind, given, states, *rest, **kwargs))

    return decide


def _packed(run: Decide, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if device.type == "meta":
        return run(*args, **kwargs)
    raise UndecidedError(_PACKED)


def _cell(run: Decide, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if device.type in ("cpu", "meta"):
        return run(*args, **kwargs)
    raise UndecidedError(
        f"a recurrent cell on {device}: there its gates are one kernel, for which torch has no metadata. Write the "
        "gates out in torch.sigmoid and torch.tanh, or claim the CPU."
    )


def _split(run: Decide, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """C++ reads the places where it splits."""
    places = args[1] if len(args) > 1 else kwargs["tensor_indices_or_sections"]
    if type(places) is torch.Tensor:
        return run(*args, **kwargs)
    raise without_values(aten.tensor_split.tensor_indices_or_sections, [places])


# By the operator's name: what decides, asked with the composite kernel, the claimed device and the arguments.
DECISIONS: dict[str, Decide] = {
    "scaled_dot_product_attention": _attention,
    "tensor_split.tensor_indices_or_sections": _split,
    "lstm_cell": _cell,
    "gru_cell": _cell,
}
DECISIONS |= {f"{kind}.input": _recurrent(kind) for kind in recurrent.CELLS}
DECISIONS |= {f"{kind}.data": _packed for kind in recurrent.CELLS}

_library = Library("aten", "IMPL")


def decided_above(op: OpOverload, fake: type) -> Decide | None:
    """What answers ``op`` in place of its composite kernel, if something does."""
    decide = DECISIONS.get(op.name().removeprefix("aten::"))
    return None if decide is None else _deciding(op, decide, fake)


def decide_by_claim(fake: type) -> None:
    """Has the decisions asked for instances of ``fake``."""
    for name, decide in DECISIONS.items():
        packet, _, overload = name.partition(".")
        op = getattr(getattr(aten, packet), overload or "default")
        _library.impl(name, _deciding(op, decide, fake), "AutogradMeta")


def _deciding(op: OpOverload, decide: Decide, fake: type) -> Decide:
    run = composite_kernel(op)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        found = next((t for t in tensors_in((args, kwargs)) if isinstance(t, fake)), None)
        return run(*args, **kwargs) if found is None else decide(run, found.device, args, kwargs)

    return kernel
