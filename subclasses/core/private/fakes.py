"""Torch's own fake tensors: metadata without values. Their module is private; ``torch.export`` has no door to them. And
the place that torch keeps for a mode that makes tensors fake."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.optim import _adafactor
from torch.optim.optimizer import _foreach_supported_types
from torch.utils._device import _device_constructors

__all__ = [
    "FAKE_SLOT",
    "FakeTensor",
    "FakeTensorMode",
    "as_if_devices_were_there",
    "factory_functions",
    "kernel_of_fakes",
    "only_lift_cpu_tensors",
    "put_in_slot",
    "several_at_once",
    "take_from_slot",
]

# Inside, the tensors of such a mode are to C++ what they are made of: plain tensors on the meta device.
kernel_of_fakes: Callable[[FakeTensorMode], Any] = in_kernel_invocation_manager

# The place below all users' modes. Where it is taken, factories don't initialize the device that they name.
FAKE_SLOT: Any = torch._C._TorchDispatchModeKey.FAKE
take_from_slot: Callable[[Any], Any] = torch._C._unset_dispatch_mode
put_in_slot: Callable[[Any], None] = torch._C._set_dispatch_mode


def only_lift_cpu_tensors(on: bool) -> bool:
    """Whether ``torch.tensor(data, device=...)`` makes a tensor on the CPU first, and shows to the modes that, and how
    it is moved. Also has torch accept "cuda" where there is none. Returns what was before."""
    before: bool = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(on)
    if on:
        torch._C._ensureCUDADeviceGuardSet()
    return before


def factory_functions() -> frozenset[Any]:
    """The public functions whose result is where ``torch.set_default_device`` says."""
    return frozenset(_device_constructors())


def several_at_once(cls: type[torch.Tensor]) -> None:
    """Makes optimizers treat parameters of a class as they do plain ones: all at once where the device has such kernels
    (``_foreach_``), which takes more memory than one after the other."""
    if cls not in _foreach_supported_types:
        _foreach_supported_types.append(cls)


class _Scopes(threading.local):
    """How many scopes of ``as_if_devices_were_there`` this thread is in."""

    inside = 0


_scopes = _Scopes()
_lock = threading.Lock()
_swapped: list[tuple[Any, str, Any]] = []  # while a scope is open: where, which name, torch's own function
_open = [0]


@contextmanager
def as_if_devices_were_there(
    draw: Callable[..., Any], forget: Callable[[], None], scale: Callable[..., Any], compiled: Callable[..., Any]
) -> Iterator[None]:
    """Inside, in this thread, ``torch.autocast("cuda")`` and ``GradScaler("cuda")`` don't switch themselves off because
    there is no CUDA; ``nn.init.trunc_normal_``, which draws until all values lie within the bounds, is ``draw``. When
    autocast's outermost scope ends, ``forget`` is called. What ``torch.optim.Adafactor`` computes for a group of
    parameters is computed by ``scale``, which is given the function that does it, and its arguments.
    What is compiled for the backend "inductor" is compiled by ``compiled(backend, graph, inputs)``, also that of
    functions which were given to ``torch.compile`` before. Imports no Inductor. (``set_stance(force_backend=...)``
    would replace the other backends, too.)"""
    with _lock:
        if not _open[0]:
            _swap(torch.cuda.amp.common, "amp_definitely_not_available", lambda *_: False)
            _swap(torch.cuda, "is_bf16_supported", lambda *_, **__: True)
            _swap(torch.nn.init, "_no_grad_trunc_normal_", draw)
            _swap(torch._TorchCompileInductorWrapper, "__call__", compiled)
            _swap(_adafactor, "adafactor", partial(scale, _adafactor.adafactor))
            _swap(torch, "clear_autocast_cache", partial(_one_after_the_other, forget, torch.clear_autocast_cache))
        _open[0] += 1
    _scopes.inside += 1
    try:
        yield
    finally:
        _scopes.inside -= 1
        with _lock:
            _open[0] -= 1
            while not _open[0] and _swapped:
                owner, name, before = _swapped.pop()
                setattr(owner, name, before)


def _one_after_the_other(*functions: Callable[[], None]) -> None:
    for function in functions:
        function()


def _swap(owner: Any, name: str, inside: Callable[..., Any]) -> None:
    before = getattr(owner, name)

    def ask(*args: Any, **kwargs: Any) -> Any:
        return inside(*args, **kwargs) if _scopes.inside else before(*args, **kwargs)

    _swapped.append((owner, name, before))
    setattr(owner, name, ask)
