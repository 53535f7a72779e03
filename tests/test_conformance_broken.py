"""The kit is tested by classes that are broken on purpose: each check fails the class made for it. Sound ones pass: see
test_conformance_types."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lamina.conformance import Check, Status, check_subclass, every_check

Made = Callable[[torch.Tensor], torch.Tensor]

GROUPS = sorted(path.stem for path in (Path(__file__).parent / "broken").glob("*.py") if path.stem != "__init__")
BROKEN: dict[str, tuple[type[torch.Tensor], Made]] = {}
for group in GROUPS:
    BROKEN |= importlib.import_module(f"broken.{group}").BROKEN

CHECKS = every_check()


@pytest.mark.parametrize("check", CHECKS, ids=[each.id for each in CHECKS])
def test_a_broken_class_is_caught(check: Check) -> None:
    assert check.name in BROKEN, f"no broken class shows that {check.id} can fail"
    cls, make = BROKEN[check.name]
    report = check_subclass(cls, make, only=[check.name], jobs=1)
    assert report.results[0].status is Status.FAIL, report.results[0].detail or "the check passes"


def test_every_broken_class_has_its_check() -> None:
    assert sorted(set(BROKEN) - {check.name for check in CHECKS}) == []
