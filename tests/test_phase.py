from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils.checkpoint import checkpoint

from lamina.subclasses.logging_tensor import Log, current_phase
from lamina.subclasses.logging_tensor.phase import unwatch_optimizers, watch_optimizers


@pytest.fixture
def watched() -> Iterator[None]:
    watch_optimizers()
    yield
    unwatch_optimizers()


class Spy(torch.autograd.Function):
    """Identity that notes the phase of its forward and its backward."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, seen: list[str]) -> torch.Tensor:
        ctx.seen = seen
        seen.append(current_phase())
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.seen.append(current_phase())
        return gradient * 1, None


def spied(seen: list[str]) -> torch.Tensor:
    leaf = torch.ones(2, requires_grad=True)
    result: torch.Tensor = Spy.apply(leaf, seen)  # type: ignore[no-untyped-call]
    return result.sum()


class SpyOptimizer(torch.optim.Optimizer):
    """Notes the phase where it works, before and after its closure."""

    def __init__(self, seen: list[str], inside: Callable[[], Any] = lambda: None) -> None:
        super().__init__([torch.ones(1, requires_grad=True)], {})
        self.seen, self.inside = seen, inside

    def step(self, closure: Any = None) -> Any:
        self.seen.append(current_phase())
        result = closure() if closure is not None else None
        self.inside()
        self.seen.append(current_phase())
        return result


def test_backward_is_found() -> None:
    seen: list[str] = []
    spied(seen).backward()  # type: ignore[no-untyped-call]
    assert seen == ["forward", "backward"]
    assert current_phase() == "forward"


def test_autograd_grad_is_backward() -> None:
    seen: list[str] = []
    leaf = torch.ones(2, requires_grad=True)
    out = Spy.apply(leaf, seen)  # type: ignore[no-untyped-call]
    torch.autograd.grad(out.sum(), leaf)
    assert seen == ["forward", "backward"]


def test_a_backward_inside_a_hook_of_a_backward_is_backward_and_ends_as_one() -> None:
    seen: list[str] = []
    leaf = torch.ones(1, requires_grad=True)

    def hook(_: torch.Tensor) -> None:
        with torch.enable_grad():
            spied(seen).backward()  # type: ignore[no-untyped-call]
        seen.append(current_phase())

    leaf.register_hook(hook)
    (leaf * 2).backward()  # type: ignore[no-untyped-call]
    assert seen == ["backward", "backward", "backward"]
    assert current_phase() == "forward"


def test_double_backward_is_backward() -> None:
    seen: list[str] = []
    leaf = torch.ones(2, requires_grad=True)
    out = Spy.apply(leaf**3, seen)  # type: ignore[no-untyped-call]
    (gradient,) = torch.autograd.grad(out.sum(), leaf, create_graph=True)
    seen.append(current_phase())
    Spy.apply(gradient, seen).sum().backward()  # type: ignore[no-untyped-call]
    assert seen == ["forward", "backward", "forward", "forward", "backward"]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recomputation_counts_as_backward(use_reentrant: bool) -> None:
    seen: list[str] = []

    def block(value: torch.Tensor) -> Any:
        return Spy.apply(value * 2, seen).sin()  # type: ignore[no-untyped-call]

    leaf = torch.ones(2, requires_grad=True)
    checkpoint(block, leaf, use_reentrant=use_reentrant).sum().backward()
    assert seen == ["forward", "backward", "backward"]


def test_a_failing_backward_leaves_no_trace() -> None:
    leaf = torch.ones(1, requires_grad=True)

    def hook(_: torch.Tensor) -> None:
        raise ValueError("no")

    leaf.register_hook(hook)
    with pytest.raises(ValueError, match="no"):
        (leaf * 2).backward()  # type: ignore[no-untyped-call]
    assert current_phase() == "forward"


@pytest.mark.usefixtures("watched")
def test_steps_are_found() -> None:
    seen: list[str] = []
    SpyOptimizer(seen).step()
    assert seen == ["optimizer", "optimizer"]
    assert current_phase() == "forward"


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("by_keyword", [True, False])
def test_a_closure_counts_as_what_it_does(by_keyword: bool) -> None:
    seen: list[str] = []

    def closure() -> str:
        spied(seen).backward()  # type: ignore[no-untyped-call]
        return "loss"

    optimizer = SpyOptimizer(seen)
    result = optimizer.step(closure=closure) if by_keyword else optimizer.step(closure)
    assert result == "loss"
    assert seen == ["optimizer", "forward", "backward", "optimizer"]


@pytest.mark.usefixtures("watched")
def test_a_closure_that_raises_leaves_the_step_as_it_was() -> None:
    seen: list[str] = []

    def closure() -> None:
        raise ValueError("no")

    optimizer = SpyOptimizer(seen)

    def step_inside() -> None:
        with pytest.raises(ValueError, match="no"):
            optimizer.step(closure)

    outer = SpyOptimizer(seen, inside=step_inside)
    outer.step()
    assert seen == ["optimizer", "optimizer", "optimizer"]
    assert current_phase() == "forward"


@pytest.mark.usefixtures("watched")
def test_a_step_that_raises_is_over() -> None:
    seen: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        SpyOptimizer(seen, inside=fail).step()
    assert current_phase() == "forward"
    SpyOptimizer(seen).step()
    assert seen == ["optimizer", "optimizer", "optimizer"]
    assert current_phase() == "forward"


@pytest.mark.usefixtures("watched")
def test_a_step_that_raises_keeps_nothing_alive() -> None:
    import gc
    import weakref

    class Kept(SpyOptimizer):
        pass

    def fail() -> None:
        raise ValueError("no")

    optimizer = Kept([], inside=fail)
    with pytest.raises(ValueError, match="no"):
        optimizer.step()
    assert current_phase() == "forward"
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None


@pytest.mark.usefixtures("watched")
def test_a_backward_inside_a_step_is_backward() -> None:
    seen: list[str] = []
    SpyOptimizer(seen, inside=lambda: spied(seen).backward()).step()  # type: ignore[no-untyped-call]
    assert seen == ["optimizer", "optimizer", "backward", "optimizer"]


@pytest.mark.usefixtures("watched")
def test_a_step_inside_a_backward_is_the_optimizer() -> None:
    seen: list[str] = []
    parameter = torch.ones(1, requires_grad=True)
    optimizer = SpyOptimizer(seen)
    parameter.register_post_accumulate_grad_hook(lambda _: optimizer.step())
    (parameter * 2).backward()  # type: ignore[no-untyped-call]
    assert seen == ["optimizer", "optimizer"]


@pytest.mark.usefixtures("watched")
def test_the_step_of_a_class_that_derives_from_another_optimizer() -> None:
    seen: list[str] = []

    class Twice(SpyOptimizer):
        def step(self, closure: Any = None) -> Any:
            super().step(closure)
            self.seen.append(current_phase())
            return super().step()

    SpyOptimizer([])  # its step gets torch's hooks
    Twice(seen).step()
    assert seen == ["optimizer"] * 5
    assert current_phase() == "forward"


@pytest.mark.usefixtures("watched")
def test_a_thread_has_its_own_phase() -> None:
    seen: list[str] = []

    def other() -> None:
        seen.append(current_phase())

    def inside() -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    SpyOptimizer([], inside=inside).step()
    assert seen == ["forward"]


@pytest.mark.usefixtures("watched")
def test_torch_optimizers_with_and_without_closures() -> None:
    model = nn.Linear(2, 1)
    phases: list[str] = []

    def closure() -> torch.Tensor:
        phases.append(current_phase())
        loss: torch.Tensor = model(torch.ones(1, 2)).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    torch.optim.LBFGS(model.parameters(), max_iter=2).step(closure)
    torch.optim.AdamW(model.parameters()).step(closure)
    assert phases
    assert set(phases) == {"forward"}
    assert current_phase() == "forward"


def test_nothing_is_installed_unless_somebody_watches() -> None:
    def installed() -> int:
        return len(_global_optimizer_pre_hooks) + len(_global_optimizer_post_hooks)

    before = installed()
    seen: list[str] = []
    SpyOptimizer(seen).step()
    assert seen == ["forward", "forward"]
    with Log():
        with Log():
            assert installed() == before + 2
        assert installed() == before + 2
    assert installed() == before


@pytest.mark.usefixtures("watched")
def test_watching_changes_no_compilation_of_a_step() -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    def compilations(watching: bool) -> int:
        torch.compiler.reset()
        parameter = torch.ones(3, requires_grad=True)
        parameter.grad = torch.ones(3)
        optimizer = torch.optim.SGD([parameter], lr=torch.tensor(0.1))
        counter = CompileCounterWithBackend("aot_eager")
        step = torch.compile(optimizer.step, backend=counter)
        step()
        if not watching:
            unwatch_optimizers()
        step()
        if not watching:
            watch_optimizers()
        step()
        assert torch.allclose(parameter, torch.full((3,), 0.7))
        return counter.frame_count

    assert compilations(watching=True) == compilations(watching=False) == 1
