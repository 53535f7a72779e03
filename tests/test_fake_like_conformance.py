"""The conformance kit on FakeLikeTensor."""

from __future__ import annotations

from lamina import FakeLikeTensor
from lamina.conformance import Status, check_subclass

LIMITS = {"autocast_gives_the_dtype": "outside FakeLikeMode autocast is refused"}


def test_it_passes_all_checks_of_fakes_but_for_a_known_limit() -> None:
    report = check_subclass(FakeLikeTensor, limits=LIMITS)
    assert report.ok, str(report)
    assert len(report.of(Status.PASS)) > 85
    assert [result.name.rpartition("/")[2] for result in report.of(Status.KNOWN_LIMIT)] == [*LIMITS]
