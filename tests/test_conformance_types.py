"""The quick run over lamina's own types: nothing fails, and what is known not to hold is written down in README."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from subjects import Clear, Doubled

from lamina import LoggingTensor, PackedInt8Tensor, PerBlock, PerGroup, PerRow, PerTensor, ScaledInt8Tensor
from lamina.conformance import Report, Status, check_subclass

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
quantize = ScaledInt8Tensor.quantize


def example(module: str, name: str) -> Any:
    """The type that an example declares. Other processes import it, too."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return getattr(importlib.import_module(module), name)


def logged(plain: torch.Tensor) -> torch.Tensor:
    return LoggingTensor(quantize(plain))


SUBJECTS: dict[str, tuple[Callable[[], Any], Callable[[torch.Tensor], Any] | None]] = {
    "one tensor": (lambda: Clear, None),
    "values": (lambda: Doubled, None),
    "logging": (lambda: LoggingTensor, None),
    "rows": (lambda: ScaledInt8Tensor, None),
    "one scale": (lambda: ScaledInt8Tensor, partial(quantize, granularity=PerTensor())),
    "groups": (lambda: ScaledInt8Tensor, partial(quantize, granularity=PerGroup(4))),
    "blocks": (lambda: ScaledInt8Tensor, partial(quantize, granularity=PerBlock((2, 4)))),
    "asymmetric": (lambda: ScaledInt8Tensor, partial(quantize, granularity=PerRow(), symmetric=False)),
    "stochastic": (lambda: ScaledInt8Tensor, partial(quantize, rounding="stochastic", seed=3)),
    "logged rows": (lambda: LoggingTensor, logged),
    "units": (lambda: example("units", "Measured"), None),
    "split floats": (lambda: example("split_float", "SplitFloat"), None),
}


# Each write draws anew, so that values differ between two runs of a sample.
# Their code is that of "rows"; what takes the most time is run there.
AS_ROWS = dict.fromkeys(("compile", "export", "samples"), "run for rows")
LIKE_ROWS = ("one scale", "groups", "blocks", "asymmetric", "stochastic", "logged rows")


def report_of(name: str, **options: Any) -> Report:
    cls, make = SUBJECTS[name]
    return check_subclass(cls(), make, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_nothing_fails(name: str) -> None:
    report = report_of(name, skip=AS_ROWS if name in LIKE_ROWS else None)
    assert report.ok, report.summary()
    assert len(report.of(Status.PASS)) > (0.6 if name in LIKE_ROWS else 0.8) * len(report.results)
    assert len(report.of(Status.KNOWN_LIMIT)) <= 12
    if name in LIKE_ROWS:
        return
    assert report.coverage is not None
    assert report.coverage.compared - report.coverage.equal < 0.02 * report.coverage.compared


@pytest.mark.parametrize("name", SUBJECTS)
def test_its_kind_is_found_out(name: str) -> None:
    kind = "transparent" if name in ("one tensor", "logging", "units") else "representation"
    assert report_of(name, only=["repr_is_short"]).kind == kind


def test_packed_weights_print_and_compare() -> None:
    """They refuse writes, and most shapes, on purpose; products are in int16."""

    def make(plain: torch.Tensor) -> torch.Tensor:
        return quantize(plain, activation="int16").pack()

    opaque = {"repr_tells_of_the_tangent": "the layout of a packed weight is opaque, and it is frozen"}
    report = check_subclass(PackedInt8Tensor, make, only=["printing"], skip=opaque, rtol=1e-3)
    assert report.ok, report.summary()
