"""The checks of operator samples: what they draw, what they report, and which classes they leave out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from broken.samples import Spoiled, WrongFunction
from subjects import Clear, Doubled
from torch.testing._internal.two_tensor import TwoTensor

from lamina import LoggingTensor, ScaledInt8Tensor
from lamina.conformance import Kind, Report, Result, Status, check_subclass
from lamina.conformance.checks import samples
from lamina.conformance.outcome import Coverage, total
from lamina.conformance.sample_limits import ALLOWED, reason_of
from lamina.conformance.sweep import operators

Made = Callable[[torch.Tensor], torch.Tensor]


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let the database hold these operators alone, and every one of them be drawn."""
    few = [op for op in operators() if op.name in names]
    monkeypatch.setattr(samples, "operators", lambda: few)
    monkeypatch.setattr(samples, "SHARE", 1)
    monkeypatch.setattr(samples, "SHARE_OF_ERRORS", 1)


def run(cls: type[torch.Tensor], make: Made | None, *names: str, **options: Any) -> Report:
    return check_subclass(cls, make, only=names, jobs=1, **options)


def test_a_full_run_takes_all_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "add", "exp")
    quick = run(Clear, None, "samples_float32_function")
    full = run(Clear, None, "samples_float32_function", full=True)
    assert quick.coverage is not None
    assert full.coverage is not None
    assert quick.coverage.compared == 2 * samples.SAMPLES < full.coverage.compared
    assert full.coverage.equal == full.coverage.compared


def test_what_is_drawn_is_always_the_same_and_differs_between_checks() -> None:
    ops = operators()
    drawn = [[op.formatted_name for op in ops if samples._drawn(op, salt, 8)] for salt in ("a", "b", "a")]
    assert drawn[0] == drawn[2] != drawn[1]
    assert len(ops) / 12 < len(drawn[0]) < len(ops) / 5


def test_a_failure_is_the_smallest_call_and_counts_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "add", "exp")
    cls: Any = type("Wrong", (WrongFunction,), {})
    result = run(cls, cls, "samples_float32_function").results[0]
    assert result.status is Status.FAIL
    first, expected, got, *more = result.detail.splitlines()
    assert first == "torch.exp(Wrong float32[]), sample 2 of exp"
    assert "plain" in expected
    assert "forward: values" in got
    assert "1 of 6 equal (16.67 %)" in more[0]
    assert "forward: values (5 of 2 operators): add 3, exp 2" in more[1]
    assert result.coverage == Coverage(1, 6)


def test_coverage_is_in_summary_and_json() -> None:
    results = [Result(str(n), "samples", Status.PASS, coverage=Coverage(n, 10)) for n in (9, 10)]
    report = Report("Some", "transparent", [*results, Result("other", "views", Status.PASS)])
    assert report.coverage == Coverage(19, 20)
    assert "operator samples: 19 of 20 equal (95.00 %)" in report.summary()
    data = json.loads(report.to_json())
    assert data["coverage"] == {"equal": 19, "compared": 20}
    assert [each["coverage"] for each in data["results"]] == [
        {"equal": 9, "compared": 10},
        {"equal": 10, "compared": 10},
        None,
    ]


def test_without_samples_there_is_no_coverage() -> None:
    assert total([None]) is None
    report = Report("Some", "transparent", [Result("other", "views", Status.PASS)])
    assert report.coverage is None
    assert "operator samples" not in report.summary()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise ImportError("No module named 'expecttest'", name="expecttest")

    monkeypatch.setattr(samples, "operators", missing)
    result = run(Clear, None, "samples_float32_function").results[0]
    assert result.status is Status.NOT_APPLICABLE
    assert "pip install expecttest" in result.detail


class Fragile(Spoiled):
    """Ends the process at a sine."""

    @classmethod
    def run(cls, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "sin":
            os.abort()
        return super().run(func, name, args, kwargs)


def test_a_crash_says_at_which_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "abs", "sin")
    result = run(Fragile, Fragile, "samples_float32_method").results[0]
    assert result.status is Status.FAIL
    assert "SIGABRT" in result.detail
    assert "at work: sample 0 of sin, float32, method" in result.detail


def test_operands_that_make_refuses_stay_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "gather", "add")

    def floats(plain: torch.Tensor) -> torch.Tensor:
        if not plain.is_floating_point():
            raise TypeError("floats only")
        return Clear(plain)

    report = run(Clear, floats, "samples_float32_function", "samples_int64_function")
    assert [each.status for each in report.results] == [Status.PASS, Status.NOT_APPLICABLE]
    assert report.results[0].coverage == Coverage(6, 6)
    assert "make takes no int64 tensor: TypeError: floats only" in report.results[1].detail


def test_cases_without_an_instance_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "ones", "arange")
    result = run(Clear, None, "samples_float32_function").results[0]
    assert result.status is Status.NOT_APPLICABLE


def test_a_class_that_rounds_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "add", "sum", "uniform", "nn.functional.batch_norm")

    def make(plain: torch.Tensor) -> torch.Tensor:
        return ScaledInt8Tensor.quantize(plain, rounding="stochastic")

    report = run(ScaledInt8Tensor, make, "samples_float32_function", "samples_float32_inplace")
    assert [each.status for each in report.results] == [Status.PASS, Status.NOT_APPLICABLE], report.summary()


@pytest.mark.parametrize("cls", [Clear, Doubled, LoggingTensor, ScaledInt8Tensor])
def test_wrong_calls_are_refused_as_plain_ones_are(cls: type[torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "dot", "gather", "cat")
    report = run(cls, None, "samples_errors")
    assert report.ok, report.summary()
    assert report.coverage is not None
    assert report.coverage.compared > 10


def test_a_nest_of_a_representation_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "add", "mm", "sin")
    report = run(
        LoggingTensor,
        lambda plain: LoggingTensor(ScaledInt8Tensor.quantize(plain)),
        "samples_float32_function",
        "samples_float32_inplace",
    )
    assert report.ok, report.summary()
    assert report.coverage is not None
    assert report.coverage.compared > 8


def test_lost_conj_bits_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "fft.ihfft", "mul", "conj")
    report = run(TwoTensor, lambda p: TwoTensor(p, p), "samples_complex64_function", "samples_float32_function")
    complex_one, float_one = report["samples_complex64_function"], report["samples_float32_function"]
    assert complex_one.status is float_one.status is Status.FAIL
    assert "grad: values (" in complex_one.detail
    assert "forward: conj bit (" in float_one.detail


def test_known_reasons_are_few_and_hold_for_their_kind() -> None:
    assert reason_of("tensor_split", "forward: RuntimeError", Kind.TRANSPARENT)
    assert reason_of("tensor_split", "forward: values", Kind.TRANSPARENT) is None
    assert reason_of("squeeze", "forward: UnwrittenError", Kind.REPRESENTATION)
    assert reason_of("squeeze", "forward: UnwrittenError", Kind.TRANSPARENT) is None
    assert sum(map(len, ALLOWED.values())) < 20
