"""What is on or off in a thread: function and dispatch handlers, modes, dispatch keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

# Turns a class's ``__torch_function__`` off, in C: 5.4 us an op and 1.7 us a ``.shape`` cheaper than a Python one.
disabled_torch_function: Any = torch._C._disabled_torch_function_impl
without_torch_function: Callable[[], Any] = torch._C.DisableTorchFunctionSubclass


class metadata_only:  # noqa: N801 - reads as the scope that it is
    """A scope in which reading a tensor's metadata runs neither a ``__torch_function__`` nor a ``__torch_dispatch__``.

    A class with slots, not a generator: it is entered twice for each recorded operator.
    """

    __slots__ = ("_dispatch", "_function")

    def __enter__(self) -> None:
        self._dispatch = torch._C._DisableTorchDispatch()
        self._function = torch._C.DisableTorchFunction()
        self._function.__enter__()

    def __exit__(self, *error: object) -> None:
        self._function.__exit__(None, None, None)
        del self._dispatch


@contextmanager
def below_python() -> Iterator[None]:
    """Ops inside see wrappers as the empty C++ tensors that they are, and change their metadata only."""
    with torch._C._DisableTorchDispatch():
        yield


CONJUGATE = torch._C.DispatchKey.Conjugate
NEGATIVE = torch._C.DispatchKey.Negative
is_excluded: Callable[[Any], bool] = torch._C._dispatch_tls_is_dispatch_key_excluded
set_excluded: Callable[[Any, bool], None] = torch._C._dispatch_tls_set_dispatch_key_excluded


def with_math_bits(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls ``run`` with the Conjugate and Negative keys active.

    Torch excludes both inside ``__torch_dispatch__``; a kernel that conjugates on the way (``linalg.pinv``) then reads
    its own intermediate without the bit, and is silently wrong. The saved state is restored (0.6 us).
    """
    conjugate, negative = is_excluded(CONJUGATE), is_excluded(NEGATIVE)
    set_excluded(CONJUGATE, False)
    set_excluded(NEGATIVE, False)
    try:
        return run(*args, **kwargs)
    finally:
        set_excluded(CONJUGATE, conjugate)
        set_excluded(NEGATIVE, negative)


def outside_inference_mode(run: Callable[..., Any], *args: Any) -> Any:
    """Calls ``run`` as if inference mode were off, below autograd and without grad.

    A view made under inference mode of a wrapper made outside fails in torch ("Cannot set version_counter for
    inference tensor"); made this way it is an ordinary tensor and works.
    """
    with torch._C._InferenceMode(False), torch._C._AutoDispatchBelowAutograd(), torch.no_grad():
        return run(*args)


# The innermost dispatch mode and function mode of this thread.
dispatch_mode_on_top: Callable[[], object] = torch.utils._python_dispatch._get_current_dispatch_mode
function_mode_on_top: Callable[[], object] = torch.overrides._get_current_function_mode
function_modes: Callable[[], int] = torch._C._len_torch_function_stack


# A scope in which no dispatch mode sees anything, neither the program's nor torch's own.
no_dispatch_modes: Callable[[], Any] = torch.utils._python_dispatch._disable_current_modes

# A scope in which neither classes nor modes see functions.
no_function_modes: Callable[[], Any] = torch._C.DisableTorchFunction


def function_modes_on_stack() -> list[Any]:
    """The active function modes; the last is asked first."""
    modes: list[Any] = torch.overrides._get_current_function_mode_stack()
    return modes


_USUAL, _BRIEF = 1000, 100  # elements that torch prints in full, where nobody has asked for more or fewer


def briefly() -> AbstractContextManager[Any]:
    """Inside, tensors print summarized from 100 elements on, unless the program has set a threshold itself."""
    usual = torch._tensor_str.PRINT_OPTS.threshold == _USUAL
    return torch._tensor_str.printoptions(threshold=_BRIEF) if usual else nullcontext()
