"""``fake_like``: a model whose parameters and buffers have no data, in place."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from ...subclasses.core.fields import is_layer, map_inner
from ...subclasses.core.private import uncompiled
from ...subclasses.fake_like import FakeLikeTensor
from ...subclasses.swap import drop_gradient_hook, exchange, transaction


def fake_like(module: nn.Module, device: Any = None) -> nn.Module:
    """Gives parameters, gradients and buffers of ``module`` the form of FakeLikeTensors: their data is gone. Each
    Parameter object stays the one that it is, as do ties, hooks and ``requires_grad``; what is in a wrapper
    (ScaledInt8Tensor) stays in it.

    >>> import lamina
    >>> model = lamina.fake_like(nn.Linear(3, 2), "cuda")
    >>> model(lamina.FakeLikeTensor.from_tensor(torch.ones(1, 3), "cuda")).device
    device(type='cuda', index=0)

    Args:
        module: what ``torch.compile`` returned counts as what was compiled.
        device: what they claim; by default each the device that it is on. It need not exist on this machine.

    Returns:
        ``module``.

    Raises:
        ParameterInUseError: a graph, a view or a weak reference holds on to a parameter. Nothing was changed.
        ValueError: a parameter has no shape yet.
        LayoutError: a parameter or buffer is sparse.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"fake_like takes a torch.nn.Module, got a {type(module).__name__}. Of a tensor: "
            "lamina.FakeLikeTensor.from_tensor(tensor)."
        )
    root = uncompiled(module)
    parameters = list(root.named_parameters())
    lazy = [name for name, parameter in parameters if nn.parameter.is_lazy(parameter)]
    if lazy:
        raise ValueError(f"{', '.join(lazy)} have no shape yet. Run the module once on a batch before fake_like.")
    buffers = {id(buffer): _faked(buffer, device) for buffer in root.buffers()}
    with transaction(root, parameters) as undo:
        for name, parameter in parameters:
            _convert(name, parameter, device, undo)
    for owner in root.modules():
        for name, buffer in list(owner.named_buffers(recurse=False)):
            setattr(owner, name, buffers[id(buffer)])
    return module


def _convert(name: str, parameter: nn.Parameter, device: Any, undo: ExitStack) -> None:
    gradient, parameter.grad = parameter.grad, None
    if gradient is not None:
        undo.callback(setattr, parameter, "grad", gradient)
    fake = nn.Parameter(_faked(parameter, device), requires_grad=parameter.requires_grad)
    exchange(name, parameter, fake, undo)
    drop_gradient_hook(parameter)
    if gradient is not None:
        undo.callback(setattr, parameter, "grad", None)
        parameter.grad = _faked(gradient, device)


def _faked(tensor: torch.Tensor, device: Any) -> torch.Tensor:
    held: Any = tensor.detach()
    if is_layer(held):
        faked: torch.Tensor = map_inner(held, lambda inner: _faked(inner, device))
        return faked
    return FakeLikeTensor.from_tensor(held, device)
