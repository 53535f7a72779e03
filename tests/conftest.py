"""What every test starts from: one thread, a fixed seed, no state left over from another test's compilation."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

# Before torch is imported, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Inductor's pool of compiling processes would compete with the test workers.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# The cache's key knows a wrapper's type and context, not the code of its rules: it would serve graphs of older code.
os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "0")

import hypothesis
import pytest
import torch

import lamina
from lamina.subclasses.fake_like import replays

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lamina.subclasses.fake_like import Replays

# No deadline: tests do not time anything. Derandomized: a failure is the change's, not the draw's.
hypothesis.settings.register_profile("lamina", deadline=None, derandomize=True)
hypothesis.settings.load_profile("lamina")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-samples", action="store_true", help="sweep all of PyTorch's samples, not the first few")


def _has_compiler() -> bool:
    return any(shutil.which(name) for name in (os.environ.get("CXX") or "g++", "clang++"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a C++ compiler where there is none; continuous integration must have one."""
    if item.get_closest_marker("slow") and not _has_compiler() and "CI" not in os.environ:
        pytest.skip("Inductor needs a C++ compiler (g++ or clang++)")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Packed weights need a CPU whose int8 sums don't saturate; which it is, lamina finds out when it packs one."""
    try:
        return (yield)
    except lamina.PackedError as error:
        if "saturate" in str(error):
            pytest.skip(str(error))
        raise


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    """Each test has the same seed, and compiles as if it were the first to."""
    torch.manual_seed(0)
    yield
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


@pytest.fixture(autouse=True)
def _replays_are_checked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests of FakeLikeTensor compute every replay again, and fail where it differs."""
    if "fake" not in request.module.__name__:
        yield
        return
    with replays.checked():
        yield


@pytest.fixture
def cache() -> Iterator[Replays]:
    """Empty, and on: other tests run checked."""
    suspended, replays._suspended = replays._suspended, []
    replays.find = replays._plans.get
    replays.clear()
    yield replays
    replays._suspended = suspended
    replays.find = {}.get if suspended else replays._plans.get
