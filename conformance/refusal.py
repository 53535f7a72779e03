"""When an error is an answer: it comes from the class, and says what can't be done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from .outcome import KnownLimit, MismatchError, NotApplicable, first_line
from .subject import Subject


def is_refusal(error: BaseException, about: str) -> bool:
    """Whether ``error`` is of a type that means "not supported", and its text speaks of ``about``, a regular
    expression."""
    kinds = (NotImplementedError, RuntimeError, ValueError)
    return (
        isinstance(error, kinds)
        and not isinstance(error, RecursionError)
        and re.search(about, str(error), re.IGNORECASE) is not None
    )


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
