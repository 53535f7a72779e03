"""A trace as a tree, for terminals."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text
from rich.tree import Tree

from .decision import Decision

_STYLES = {"call": "bold", "function mode": "magenta", "dispatch mode": "magenta", "class": "cyan"}


def tree_of(decisions: Iterable[Decision], keys: bool, gaps: Iterable[str] = ()) -> Tree:
    """Each decision under the one that made it; first what could not be seen."""
    root = Tree("decisions of the dispatcher")
    for gap in gaps:
        root.add(Text(gap, style="yellow"))
    path: list[tuple[int, Tree]] = [(-1, root)]
    for each in decisions:
        while path[-1][0] >= each.depth:
            path.pop()
        style = "red" if each.error else _STYLES.get(each.layer, "")
        path.append((each.depth, path[-1][1].add(Text(each.text(keys=keys), style=style))))
    return root
