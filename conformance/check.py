"""What a check is, and the list of all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .outcome import Coverage
from .subject import Kind, Subject

Function = Callable[[Subject], "Coverage | None"]

# In the order of the report.
GROUPS = (
    "declaration",
    "autograd",
    "compile",
    "export",
    "views",
    "writes",
    "life",
    "devices",
    "distributed",
    "transforms",
    "modes",
    "fakes",
    "memory",
    "printing",
    "samples",
)
ALL_KINDS = (Kind.TRANSPARENT, Kind.REPRESENTATION, Kind.FAKE)


@dataclass(frozen=True)
class Check:
    """One behaviour, and the function that tries it: it returns, or raises a ``MismatchError`` (any other error is a
    failure, too), ``NotApplicable`` or ``KnownLimit``.

    ``reported``: the symptom that users of wrapper tensors met, in a few words. ``seconds``: after that long it hangs;
    ``full_seconds``: in a ``full`` run, where it does more. ``quick``: part of a run that is not ``full``.
    """

    name: str
    group: str
    function: Function
    reported: str
    kinds: tuple[Kind, ...] = ALL_KINDS
    seconds: float = 60.0
    quick: bool = True
    full_seconds: float | None = None

    def limit(self, *, full: bool) -> float:
        """After how many seconds it counts as hanging."""
        return self.full_seconds if full and self.full_seconds is not None else self.seconds

    @property
    def id(self) -> str:
        """As reports and tests name it."""
        return f"{self.group}/{self.name}"

    @property
    def text(self) -> str:
        """What is checked and why: the docstring."""
        return inspect.getdoc(self.function) or ""


REGISTRY: dict[str, Check] = {}


def check(
    group: str,
    reported: str,
    *,
    kinds: tuple[Kind, ...] = ALL_KINDS,
    seconds: float = 60.0,
    quick: bool = True,
    full_seconds: float | None = None,
) -> Callable[[Function], Function]:
    """Adds the function below to the list, under its own name.

    Raises:
        ValueError: there is no such group, the name is taken, or the function has no docstring.
    """

    def added(function: Function) -> Function:
        name = function.__name__
        if group not in GROUPS:
            raise ValueError(f"check {name}: there is no group {group!r}; groups are {', '.join(GROUPS)}")
        if name in REGISTRY:
            raise ValueError(f"check {name} exists already, in group {REGISTRY[name].group!r}")
        if not inspect.getdoc(function):
            raise ValueError(f"check {name} has no docstring: say what it checks, and why that matters")
        REGISTRY[name] = Check(name, group, function, reported, kinds, seconds, quick, full_seconds)
        return function

    return added


def every_check() -> list[Check]:
    """All checks, in the order of their groups."""
    from . import checks  # noqa: F401 - importing it fills the list

    return sorted(REGISTRY.values(), key=lambda each: GROUPS.index(each.group))


def chosen(only: Iterable[str] | None, *, full: bool) -> list[Check]:
    """The checks that ``only`` names: by name, ``group/name`` or group; of a group those that are quick, or all in a
    ``full`` run. Without ``only`` those of all groups.

    Raises:
        ValueError: a name is that of no check and no group; it lists near ones.
    """
    checks = every_check()
    names = set(GROUPS if only is None else [only] if isinstance(only, str) else only)
    if unknown := sorted(names - {label for each in checks for label in (each.name, each.id)} - set(GROUPS)):
        raise ValueError(_unknown(unknown[0], checks))
    return [each for each in checks if {each.name, each.id} & names or (each.group in names and (full or each.quick))]


def _unknown(name: str, checks: Iterable[Check]) -> str:
    from difflib import get_close_matches

    known = [*GROUPS, *(each.name for each in checks)]
    near = get_close_matches(name.rpartition("/")[2], known, 3, 0.4)
    return f"there is no check or group {name!r}; {'near: ' + ', '.join(near) if near else 'see lamina check --list'}"
