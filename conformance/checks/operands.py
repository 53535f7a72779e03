"""What else stands in a call: tensors of other classes, objects that are no tensors, shapes that don't fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..check import check
from ..outcome import MismatchError
from ..subject import Subject
from .foreign import ForeignTensor
from .printing import VALUED

Pair = Callable[[Any, Any], Any]
# By the name of the operator that an error has to tell.
CALLS: dict[str, Pair] = {
    "add": lambda a, b: a + b,
    "mm": lambda a, b: torch.mm(a, b.t()),
    "cat": lambda a, b: torch.cat([a, b]),
    "equal": torch.equal,
}


def _peeled(subject: Subject, value: Any) -> Any:
    """The plain values of a result in which the classes may be nested in either order."""
    while isinstance(value, ForeignTensor) or subject.is_instance(value):
        value = value.held if isinstance(value, ForeignTensor) else subject.decode(value)
    return value


@check("printing", "two unrelated subclasses in one call: a wrong result, or an error that says nothing", kinds=VALUED)
def an_unrelated_class_gets_a_clear_error(subject: Subject) -> None:
    """A call with an instance and a wrapper of a library that knows nothing of it gives the right values, or an error
    that names the operator and both classes."""
    plain, other = subject.reference(subject.plain(4, 8)), subject.plain(4, 8, seed=1)
    for name, call in CALLS.items():
        for text, left, right in (
            (f"{name}(x, foreign)", subject.new(4, 8), ForeignTensor(other)),
            (f"{name}(foreign, x)", ForeignTensor(other), subject.new(4, 8)),
        ):
            a, b = (plain, other) if subject.is_instance(left) else (other, plain)
            try:
                got = call(left, right)
            except (TypeError, RuntimeError) as error:
                missing = [each for each in (name, subject.cls.__name__, "ForeignTensor") if each not in str(error)]
                if missing:
                    raise MismatchError(text, f"an error that names {', '.join(missing)}", error) from error
            else:
                subject.same(text, _peeled(subject, got), call(a, b), loosely=True)


class _Reflected:
    """No tensor; knows what to do with one."""

    def __radd__(self, other: Any) -> str:
        return "radd"

    def __rmul__(self, other: Any) -> str:
        return "rmul"

    def __rsub__(self, other: Any) -> str:
        return "rsub"

    def __rmatmul__(self, other: Any) -> str:
        return "rmatmul"


@check("printing", "x + other does not ask other.__radd__")
def reflected_operators_are_asked(subject: Subject) -> None:
    """``x + other``, where ``other`` is no tensor and has an ``__radd__``, is what that returns: quantities with units
    and symbolic numbers rely on it."""
    other: Any = _Reflected()
    instance = subject.new(4, 8)
    runs: dict[str, Callable[[], Any]] = {
        "radd": lambda: instance + other,
        "rmul": lambda: instance * other,
        "rsub": lambda: instance - other,
        "rmatmul": lambda: instance @ other,
    }
    for call, run in runs.items():
        if (got := run()) != call:
            raise MismatchError(f"x + other, with __{call}__", call, got)


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "x + 1": lambda x: x + 1,
    "1 + x": lambda x: 1 + x,
    "x - 1.5": lambda x: x - 1.5,
    "2 - x": lambda x: 2 - x,
    "x * 2": lambda x: x * 2,
    "3 / (x * x + 1)": lambda x: 3 / (x * x + 1),
    "x ** 2": lambda x: x**2,
    "-x": lambda x: -x,
    "abs(x)": abs,
    "x < 0.5": lambda x: x < 0.5,
    "x // 2": lambda x: x // 2,
    "x % 2": lambda x: x % 2,
}


@check("printing", "a + 1 says 'unsupported operand': the handler's message is lost", kinds=VALUED)
def operators_with_numbers_work_or_say_why(subject: Subject) -> None:
    """Arithmetic with Python numbers gives the values, or the handler's own error. A TypeError in a handler, and
    ``NotImplemented`` from it, become Python's "unsupported operand type(s)", and what was wrong is lost."""
    plain = subject.reference(subject.plain(4, 8))
    for call, run in NUMBERS.items():
        try:
            got = run(subject.new(4, 8))
        except TypeError as error:
            raise MismatchError(call, "the values, or the handler's own error", error) from error
        if isinstance(got, bool):
            raise MismatchError(call, "a tensor", got)
        subject.same(call, got, run(plain), loosely=True)


@check("printing", "shapes that don't fit give a strange error, or none")
def shapes_that_do_not_fit_are_told(subject: Subject) -> None:
    """Operands whose shapes don't fit raise what they raise for plain tensors, with the two sizes in the text."""
    runs: dict[str, Pair] = {
        "x + y": lambda a, b: a + b,
        "x @ y.t()": lambda a, b: a @ b.t(),
        "torch.cat([x, y])": lambda a, b: torch.cat([a, b]),
    }
    for call, run in runs.items():
        for text, other in ((call, subject.new(8, 4)), (f"{call}, y plain", subject.plain(8, 4))):
            try:
                got = run(subject.new(4, 8), other)
            except RuntimeError as error:
                if not ("4" in str(error) and "8" in str(error)):
                    raise MismatchError(f"{text} of shapes (4, 8), (8, 4)", "a text with both sizes", error) from error
            else:
                raise MismatchError(f"{text} of shapes (4, 8), (8, 4)", "a RuntimeError", got)
