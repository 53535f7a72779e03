"""When an error is an answer: it comes from the class, and says what can't be done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from .outcome import KnownLimit, MismatchError, NotApplicable, first_line
from .subject import Kind, Subject


def is_refusal(error: BaseException, about: str) -> bool:
    """Whether ``error`` is of a type that means "not supported", and its text speaks of ``about``, a regular
    expression."""
    kinds = (NotImplementedError, RuntimeError, ValueError)
    return (
        isinstance(error, kinds)
        and not isinstance(error, RecursionError)
        and re.search(about, str(error), re.IGNORECASE) is not None
    )


# A class whose values share something in groups may refuse to cut them, if it names the legal step.
OFF_GRID = r"(?i)multiples? of \d+|divisible by \d+|(don't|not) divide dim"


def names_the_step(text: str, subject: Subject) -> bool:
    """Whether a failure of a representation is one of a cut, or a shape, off its grid, with a text that says which are
    on it."""
    return subject.kind is Kind.REPRESENTATION and re.search(OFF_GRID, text) is not None


@contextmanager
def may_refuse(call: str, subject: Subject, about: str) -> Iterator[None]:
    """What follows may raise an error that speaks of ``about``: then the check does not apply. Any other error is a
    mismatch of ``call``."""
    try:
        yield
    except (MismatchError, NotApplicable, KnownLimit):
        raise
    except Exception as error:
        if is_refusal(error, about):
            raise NotApplicable(f"{call} is refused: {first_line(error)}") from error
        raise MismatchError(call, f"a result, or an error that says why {subject.cls.__name__} can't", error) from error
