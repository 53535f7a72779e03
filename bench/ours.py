"""lamina's own subjects: a LoggingTensor with no log in scope, and the plainest wrapper that can be declared."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from torch import Tensor

from .subjects import Absence, Subject, load_subjects

TRANSPARENT = "lamina Transparent"
LOGGING = "lamina LoggingTensor"


def _elem(outer: Tensor) -> Tensor:
    inner: Tensor = outer.elem  # type: ignore[attr-defined]
    return inner


def _transparent() -> Subject:
    import lamina

    class Transparent(lamina.WrapperTensor):
        elem: Tensor
        fallback = lamina.Fallback.UNWRAP

    return Subject(TRANSPARENT, f"lamina {version('lamina')}", Transparent, _elem)


def _logging() -> Subject:
    import lamina

    return Subject(LOGGING, f"lamina {version('lamina')}", lamina.LoggingTensor, _elem)


_OURS: dict[str, Callable[[], Subject]] = {TRANSPARENT: _transparent, LOGGING: _logging}


def load_ours() -> tuple[list[Subject], list[Absence]]:
    """lamina's subjects, and the reason for each that cannot be had."""
    return load_subjects(_OURS)
