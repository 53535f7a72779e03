"""torchao's own conformance cases, with ``ScaledInt8Tensor`` as their subject.

They are torchao's code: what is asserted stands there (``torchao.testing.utils``). Each case comes with a class of ours
that names the subject, and keeps its parametrized tests.
"""

from __future__ import annotations

import logging
import unittest
from typing import Any

import pytest
import torch

from lamina import PerGroup, PerRow, PerTensor, ScaledInt8Tensor


def _torchao_cases() -> Any:
    """torchao logs the kernels that it can't load while it is imported."""
    logging.getLogger("torchao").setLevel(logging.ERROR)
    from torchao.testing import utils

    return utils


utils = _torchao_cases()
needs_gpu = unittest.skipIf(not torch.cuda.is_available(), "calls .cuda()")
RECIPES: dict[str, dict[str, Any]] = {
    "PerRow": {"granularity": PerRow()},
    "PerTensor": {"granularity": PerTensor()},
    "PerGroup": {"granularity": PerGroup(32)},
    "Asymmetric": {"granularity": PerRow(), "symmetric": False},
    "Stochastic": {"granularity": PerGroup(64), "rounding": "stochastic"},
    "Int16": {"granularity": PerRow(), "activation": "int16"},
    "Int8": {"granularity": PerRow(), "activation": "int8"},
    "Everything": {"granularity": PerGroup(32), "symmetric": False, "activation": "auto"},
}
COMPILED = ("PerRow", "Int16", "Everything")
# One scale for all, a whole step of rounding, and 8 bits of activation cost some of the 40 dB that torchao asks for.
LEAST = {"PerTensor": 36, "Stochastic": 36, "Int8": 36, "Everything": 36}


def subject(case: type, recipe: str) -> type:
    """The case with what it asks for: the class, how to make one, and with which arguments."""
    own = {
        "TENSOR_SUBCLASS": ScaledInt8Tensor,
        "FACTORY_FN": staticmethod(ScaledInt8Tensor.quantize),
        "kwargs": RECIPES[recipe],
        "LINEAR_MIN_SQNR": LEAST.get(recipe, case.LINEAR_MIN_SQNR),  # type: ignore[attr-defined]
        "__module__": __name__,
    }
    made = type(f"Test{recipe}{case.__name__}", (case,), own)
    for name in dir(made):
        if name.startswith("test_device1_to_device2"):
            setattr(made, name, needs_gpu(getattr(made, name)))
    return made


for recipe in RECIPES:
    basic = subject(utils.TorchAOBasicTestCase, recipe)
    globals()[basic.__name__] = basic
for recipe in COMPILED:
    compiled = pytest.mark.slow(subject(utils.TorchAOCompileTestCase, recipe))
    globals()[compiled.__name__] = compiled
del basic, compiled
