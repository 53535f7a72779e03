"""Wrappers over tensors that claim another device than C++ knows them on.

A claimed device may not exist, and C++ would abort where it looks for it, in autograd. So a wrapper over such a tensor
is to C++ where that tensor is, and answers with the claim of its first inner tensor. Its class learns to when the first
such instance is made: nobody else pays for it.
"""

from __future__ import annotations

from typing import Any

import torch

# The classes of which an instance may claim a device.
CARRIED: set[type] = set()
_answers: dict[str, Any] = {}
# Where C++ knows a tensor.
device_on_carrier: Any = torch.Tensor.device.__get__


def carry(cls: type, answers: dict[str, Any]) -> None:
    """Instances of ``cls`` claim a device. ``answers``: what a class says in C++'s place, from its ``device``."""
    CARRIED.add(cls)
    _answers.update(answers)


def device_under(cls: Any, first: torch.Tensor) -> torch.device:
    """The device on which C++ is to know a wrapper of class ``cls`` over ``first``, which is of a class that may claim
    another one."""
    device: torch.device = device_on_carrier(first)
    if device != first.device and cls not in CARRIED:
        CARRIED.add(cls)
        cls.device = property(_claim)
        for name, answer in _answers.items():
            setattr(cls, name, answer)
    return device


def _claim(wrapper: Any) -> torch.device:
    """Where the first inner tensor claims to be; where C++ has the wrapper, if that claims nothing."""
    name = type(wrapper).declaration.inner[0].name
    held = getattr(wrapper, name)
    first = held[0] if isinstance(held, tuple) else held
    device: torch.device = first.device if type(first) in CARRIED else device_on_carrier(wrapper)
    return device
