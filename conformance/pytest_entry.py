"""Each check as a test of its own, in a user's test file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .check import Check, chosen
from .report import Status
from .run import check_subclass, reasons
from .subject import Make


def conformance_tests(
    cls: Any,
    make: Make | None = None,
    *,
    only: Iterable[str] | None = None,
    full: bool = False,
    skip: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    **options: Any,
) -> Callable[[Check], None]:
    """A test function, parametrized by check. Assign it to a name that pytest collects; arguments are those of
    ``check_subclass``. A known limit is an expected failure, a check that does not apply is skipped.

    Raises:
        ValueError: a name in ``only``, ``skip`` or ``limits`` is that of no check.
        TypeError: ``check_subclass`` has no such argument.

    >>> import lamina
    >>> from lamina.conformance import conformance_tests
    >>> test_my_tensor = conformance_tests(lamina.LoggingTensor, only=["views"])
    """
    import pytest

    checks = chosen(only, full=full)
    options |= {"skip": reasons("skip", skip), "limits": reasons("limits", limits), "full": full}
    inspect.signature(check_subclass).bind(cls, make, **options)

    @pytest.mark.parametrize("check", checks, ids=[each.id for each in checks])
    def test(check: Check) -> None:
        report = check_subclass(cls, make, only=[check.id], **options)
        result = report.results[0]
        if result.status is Status.FAIL:
            pytest.fail(f"{report.subject}, {result.id} ({result.reported})\n{result.detail}", pytrace=False)
        elif result.status is Status.KNOWN_LIMIT:
            pytest.xfail(result.detail)
        elif result.status is Status.NOT_APPLICABLE:
            pytest.skip(result.detail)

    return test
