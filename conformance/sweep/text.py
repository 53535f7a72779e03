"""A case as the call that it is."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch

from .compare import Candidate
from .samples import Case


def call_text(case: Case, candidate: Candidate) -> str:
    """Such as ``torch.add(MyTensor float32[2, 3], 1, alpha=2)``: operands of the class, and those that stay plain."""
    arguments = case.arguments
    operands = [_shown(each, candidate) for each in arguments.args]
    operands += [f"{name}={_shown(each, candidate)}" for name, each in arguments.kwargs.items()]
    target = _shown(arguments.input, candidate)
    if case.variant == "method":
        text = f"({target}).{_last(case.op.name)}({', '.join(operands)})"
    elif case.variant == "inplace":
        text = f"({target}).{getattr(case.op.get_inplace(), '__name__', case.op.name)}({', '.join(operands)})"
    else:
        text = f"{_function(case.op.name)}({', '.join([target, *operands])})"
    return f"{text}, sample {case.index} of {case.name}"


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _function(name: str) -> str:
    """Its name in torch; there are operators that are methods only."""
    try:
        attrgetter(name)(torch)
    except AttributeError:
        return name
    return f"torch.{name}"


def _shown(value: Any, candidate: Candidate) -> str:
    if isinstance(value, torch.Tensor):
        return _tensor(value, candidate.cls.__name__ if candidate.takes(value) else "Tensor")
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_shown(each, candidate) for each in value)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    return repr(value)


def _tensor(tensor: torch.Tensor, name: str) -> str:
    text = f"{name} {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    if tensor.layout is not torch.strided:
        return f"{text} {str(tensor.layout).removeprefix('torch.')}"
    contiguous = tensor.is_contiguous()
    marks = [f"stride {tensor.stride()}"] * (not contiguous) + ["conj"] * tensor.is_conj() + ["neg"] * tensor.is_neg()
    return " ".join([text, *marks])
