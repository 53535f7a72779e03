"""The floor of a step without values: the least that a wrapper class takes whose handler is Python and which knows the
answer to each call beforehand.

The calls of one step are written down, and what each makes; then each is answered by the next on the list, with no
look at its arguments, under a function mode that does nothing. What FakeLikeMode takes more is its own: to tell calls
apart, to see what comes in, and to watch public functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from lamina import FakeLikeTensor
from lamina.subclasses.fake_like.hot import known

from ..peers import EmptyFunctionMode
from ..timing import Variant
from .subjects import FLOOR

Answer = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""Makes the results of a call of its arguments."""


class NoFloorError(RuntimeError):
    """A step makes other calls than the one before, or calls whose answer is not known."""


class _Recording(TorchDispatchMode):
    """Writes down the calls, and what answers them; FakeLikeMode, inside of which it is, answers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape: list[tuple[Any, Answer]] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Write down one. What has no FakeLikeTensor among its arguments is called for real."""
        answer = known(FakeLikeTensor, func, args, kwargs) if types else partial(_called, func)
        if answer is None:
            raise NoFloorError(f"nothing is known of this call of {func}: call the step twice before.")
        self.tape.append((func, answer))
        return func(*args, **(kwargs or {}))


def _called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


class _Replaying(TorchDispatchMode):
    """Answers each call by the next on the tape."""

    def __init__(self, tape: list[tuple[Any, Answer]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape: list[tuple[Any, Answer]] = [*tape, (None, partial(_called, None))]  # an end that no call is
        self.next = iter(self.tape).__next__

    def replay(self, step: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Another step, which has to make all of these calls."""
        self.next = iter(self.tape).__next__
        result = step(*args)
        expected, _ = self.next()
        if expected is not None:
            raise NoFloorError(f"a step ends where the one before called {expected}.")
        return result

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answer one."""
        expected, answer = self.next()
        if func is not expected:
            raise NoFloorError(f"a step calls {func} where the one before {_said(expected)}.")
        return answer(args, kwargs or {})


def _said(expected: Any) -> str:
    return "had ended" if expected is None else f"called {expected}"


def floor_of(step: Variant) -> Variant:
    """That of a step under FakeLikeMode, which was called before, and makes the same calls each time."""
    recording = _Recording()
    with step.scope(), recording:
        step.function(*step.args)
    replaying = _Replaying(recording.tape)

    def again(*args: Any) -> Any:
        return replaying.replay(step.function, args)

    @contextmanager
    def scope() -> Iterator[None]:
        with EmptyFunctionMode(), replaying:
            yield

    return Variant(FLOOR, again, step.args, scope)
