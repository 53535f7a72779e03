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


def _recurrent(run: Decide, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if device.type == "meta":
        return run(*args, **kwargs)
    raise UndecidedError(
        f"a recurrent layer on {device}: cuDNN and oneDNN run all its steps in one kernel, and what that saves for the "
        "backward is known to the library alone; without them the CPU multiplies a whole sequence at once. So it isn't "
        "planned. A loop over nn.LSTMCell, nn.GRUCell or nn.RNNCell is."
    )


def _cell(fused: str, results: int) -> Decide:
    """``results``: how many of those of the fused kernel are the cell's; the others are saved for the backward."""

    def decide(run: Decide, device: torch.device, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if device.type in ("cpu", "meta"):
            return run(*args, **kwargs)
        if device.type != "cuda":
            raise UndecidedError(f"a recurrent cell on {device}: known are those of the CPU and of CUDA. Claim one.")
        return _on_cuda(*args, **kwargs)

    def _on_cuda(
        input: torch.Tensor,  # noqa: A002 - the schema's name
        hx: Any,
        w_ih: torch.Tensor,
        w_hh: torch.Tensor,
        b_ih: torch.Tensor | None = None,
        b_hh: torch.Tensor | None = None,
    ) -> Any:
        hidden, last = hx if isinstance(hx, (list, tuple)) else (hx, hx)
        kernel = getattr(aten, fused).default
        made = kernel(torch.matmul(input, w_ih.t()), torch.matmul(hidden, w_hh.t()), last, b_ih, b_hh)
        return made[0] if results == 1 else made[:results]

    return decide


# By the operator's name: what decides, asked with the composite kernel, the claimed device and the arguments.
DECISIONS: dict[str, Decide] = {
    "scaled_dot_product_attention": _attention,
    "lstm_cell": _cell("_thnn_fused_lstm_cell", 2),
    "gru_cell": _cell("_thnn_fused_gru_cell", 1),
}
DECISIONS |= {
    f"{kind}.{given}": _recurrent for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu") for given in ("input", "data")
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
