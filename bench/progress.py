"""A measurement's progress bar, on stderr: stdout holds the table or the JSON alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

Progress = Callable[[str, float], object]
"""Called with what begins, and how much of the whole it is."""


def silent(doing: str, by: float) -> None:
    """No progress."""


def seconds_left(total: float, done: float, passed: float, *, in_seconds: bool = False) -> float | None:
    """How long the rest takes at the pace so far; None where nothing tells.

    Of a total that was announced `in_seconds`, a tenth counts as if it had taken what was announced: the first parts
    alone say little about the rest.
    """
    known = total / 10 if in_seconds else 0.0
    if not done + known:
        return None
    return max(0.0, total - done) * (passed + known) / (done + known)


def in_words(seconds: float | None) -> str:
    """Seconds as hours, minutes and seconds, such as 0:03:20."""
    return "-:--:--" if seconds is None else str(timedelta(seconds=round(seconds)))


@contextmanager
def progress_bar(
    total: float, *, hidden: bool, with_left: bool = False, in_seconds: bool = False
) -> Iterator[Callable[[str, float], None]]:
    """A bar that is gone at the end, and the function that moves it: what is at work, and by how much it advanced.

    It shows the time that has passed; `with_left`: that it may take yet, too. `in_seconds`: so the total was announced.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        *((TextColumn("left"), _left_column(in_seconds=in_seconds)) if with_left else ()),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("loading", total=total)

        def advance(doing: str, by: float) -> None:
            bar.update(task, description=doing, advance=by)

        yield advance


@contextmanager
def told(total: float, *, in_seconds: bool = False) -> Iterator[Progress]:
    """The same with the time left, where someone looks; lines where rich is not installed."""
    if find_spec("rich") is None:
        yield _in_lines
        return
    with progress_bar(total, hidden=not sys.stderr.isatty(), with_left=True, in_seconds=in_seconds) as advance:
        yield advance


def _in_lines(doing: str, _: float) -> None:
    print(doing, file=sys.stderr)


def _left_column(*, in_seconds: bool) -> ProgressColumn:
    """Rich's own column forgets what is older than half a minute, as long steps are."""
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Left(ProgressColumn):
        def render(self, task: Task) -> Text:
            left = seconds_left(task.total or 0, task.completed, task.elapsed or 0, in_seconds=in_seconds)
            return Text(in_words(left), style="progress.remaining")

    return Left()
