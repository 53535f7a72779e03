"""What torch's fake tensors raise, as the error that the real call would have given, or as one that says what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

import torch

from ..core.call_site import call_site
from ..core.errors import DataDependentError, MissingFakeKernelError
from ..core.private import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    OpOverload,
    UnsupportedOperatorException,
    devices_that_differ,
    schema_of,
)
from ..core.report import describe

_VALUE = (
    "item(), bool(), int(), float() and comparisons in `if` read a value: keep the decision in tensors (torch.where, "
    "torch.clamp), or take it before, from real tensors."
)
_SHAPE = "The size of its result depends on values. Where an upper bound is known, "
_ADVICE = {
    "nonzero": _SHAPE + "use torch.nonzero_static(x, size=...).",
    "masked_select": _SHAPE + "keep the shape: torch.where(mask, x, 0), or x * mask.",
    "index": _SHAPE + "keep the shape: torch.where(mask, x, y) in place of x[mask].",
    "tensor_split": "Pass the places as a list of numbers, or as a real tensor on the CPU.",
    "repeat_interleave": "Pass output_size=, the sum of the repeats.",
    "bincount": _SHAPE + "use torch.zeros(n).index_add_(0, x, weights).",
    "equal": "Compare on real tensors; shapes and dtypes can be compared here.",
    "allclose": "Compare on real tensors; shapes and dtypes can be compared here.",
}
_READERS = ("tolist", "numpy", "to_plain", "apply_")
_READ = "There is nothing to read: .materialize(device, init) makes a real tensor of the same metadata."
_READS = {
    torch.amp.GradScaler.__init__.__code__.co_filename: "A GradScaler reads whether a gradient overflowed, and skips "
    "the step then. A fused optimizer is told it on the device; or plan optimizer.step() itself.",
    torch.utils.data.DataLoader.__init__.__code__.co_filename: "A DataLoader draws a seed, and reads it, when it is "
    "iterated. Take a batch outside of FakeLikeMode, and pass FakeLikeTensor.from_tensor(batch).",
    torch.optim.ASGD.__init__.__code__.co_filename: "ASGD chooses by its step, which it keeps on the device, how to "
    "average. With capturable=True, which it takes on CUDA, it doesn't (and has two temporaries more).",
    torch.optim.LBFGS.__init__.__code__.co_filename: "LBFGS decides by the loss how often it calls the closure: no "
    "plan would hold for the next step. Plan the closure, forward and backward, by itself.",
}
_NUMBERS = ("_local_scalar_dense", "item", "is_nonzero", "equal", "allclose")


def without_values(op: object, tensors: Iterable[Any]) -> DataDependentError:
    """The error of a call that needs the values of ``tensors``."""
    name = str(op).removeprefix("aten.").partition(".")[0]
    operands = ", ".join(f"{describe(t)} on {t.device}" for t in tensors) or "a FakeLikeTensor"
    if name in _READERS:
        advice = _READ
    elif name in _ADVICE:
        advice = _ADVICE[name]
    else:
        advice = (_of_reader() or _VALUE) if name in _NUMBERS else _SHAPE + "pad to it."
    return DataDependentError(op, operands, call_site(), advice)


def _of_reader() -> str | None:
    """What to do, if it is code of torch that reads a number."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename in _READS:
            return _READS[frame.f_code.co_filename]
        frame = frame.f_back
    return None


def translated(op: OpOverload, error: Exception, tensors: Sequence[Any]) -> Exception:
    """The error to raise for ``error``, which torch's fake tensors raised for a call with ``tensors``."""
    raised = _translated(op, error, tensors)
    if raised is not error:
        raised.__suppress_context__ = True
    return raised


def _translated(op: OpOverload, error: Exception, tensors: Sequence[Any]) -> Exception:
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return without_values(op, tensors)
    if (devices := devices_that_differ(error)) is not None:
        text = "Expected all tensors to be on the same device, but found at least two devices, {} and {}! ({} on {})"
        return RuntimeError(text.format(*devices, op, "FakeLikeTensors"))
    if isinstance(error, UnsupportedOperatorException):
        return missing_kernel(error.func)
    if isinstance(error, NotImplementedError) and "no fake impl or Meta kernel" in str(error):
        return missing_kernel(op) if returns_tensors(op) else without_values(op, tensors)
    if isinstance(error, AssertionError):  # a check of torch's Python, where a kernel has a TORCH_CHECK
        return RuntimeError(str(error))
    return error


def missing_kernel(op: OpOverload) -> MissingFakeKernelError:
    """The error for an operator that has no fake kernel."""
    schema = schema_of(op)
    if op.namespace in ("aten", "prims"):
        return MissingFakeKernelError(op, "has no fake kernel in PyTorch", "Run it on real tensors.")
    names = ", ".join(argument.name for argument in schema.arguments)
    advice = (
        "Register one, which says shape, dtype and device of the results and computes nothing:\n\n"
        f'    @torch.library.register_fake("{schema.name}")\n'
        f"    def _({names}):\n"
        f"        return {_results(schema)}\n"
    )
    return MissingFakeKernelError(op, "is a custom operator without a fake kernel", advice)


def returns_tensors(op: OpOverload) -> bool:
    return all("Tensor" in str(result.type) for result in schema_of(op).returns)


def _results(schema: torch.FunctionSchema) -> str:
    first = next((a.name for a in schema.arguments if "Tensor" in str(a.type)), None)
    like = f"torch.empty_like({first})" if first else "torch.empty(...)"
    return ", ".join(like for _ in schema.returns) or "None"
