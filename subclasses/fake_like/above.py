"""What C++ decides by device above dispatch: decided by the claimed device, or refused.

A composite operator that looks at the device of its arguments sees the carrier's, "meta", and takes the path of no
device. For those, kernels of ours stand at the carriers' autograd key; plain tensors on the meta device go on as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.library import Library

from ..core.fields import tensors_in
from ..core.private import OpOverload, composite_kernel
from .attention import attend, call_of
from .errors import UndecidedError

Decide = Callable[..., Any]
aten = torch.ops.aten


def _attention(run: Decide, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return attend(call_of(*args, **kwargs))


def _recurrent(name: str, on_cpu: bool) -> Decide:
    """``on_cpu``: whether the CPU runs what the carrier would."""

    def decide(run: Decide, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if device.type == "meta" or (device.type == "cpu" and (on_cpu or not torch.backends.mkldnn.enabled)):
            return run(*args, **kwargs)
        on_cpu_now = device.type == "cpu"
        library = "oneDNN" if on_cpu_now else "cuDNN"
        advice = " With torch.backends.mkldnn.enabled = False it doesn't, and that is planned." if on_cpu_now else ""
        raise UndecidedError(
            f"{name} on {device}: the device runs all its steps in one kernel of {library}, and what that saves for "
            f"the backward is known to the library alone, so it can't be planned.{advice}"
        )

    return decide


# By the operator's name: what decides, asked with the composite kernel, the claimed device and the arguments.
DECISIONS: dict[str, Decide] = {
    "scaled_dot_product_attention": _attention,
    "lstm.input": _recurrent("lstm", on_cpu=False),
    "lstm.data": _recurrent("lstm", on_cpu=False),
    "gru.input": _recurrent("gru", on_cpu=True),
    "gru.data": _recurrent("gru", on_cpu=True),
    "rnn_tanh.input": _recurrent("rnn_tanh", on_cpu=True),
    "rnn_tanh.data": _recurrent("rnn_tanh", on_cpu=True),
    "rnn_relu.input": _recurrent("rnn_relu", on_cpu=True),
    "rnn_relu.data": _recurrent("rnn_relu", on_cpu=True),
}

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
