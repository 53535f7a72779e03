"""A measurement's progress bar, on stderr: stdout holds the table or the JSON alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int, *, hidden: bool, with_left: bool = False) -> Iterator[Callable[[str, int], None]]:
    """A bar that is gone at the end, and the function that moves it: what is at work, and by how much it advanced.

    It shows the time that has passed; ``with_left``: that it may take yet, too.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        *((TextColumn("left"), TimeRemainingColumn()) if with_left else ()),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task("loading", total=total)

        def advance(doing: str, by: int) -> None:
            bar.update(task, description=doing, advance=by)

        yield advance
