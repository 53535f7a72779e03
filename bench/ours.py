"""lamina's own subjects: the plainest wrapper that can be declared, and a LoggingTensor with no log in scope."""

from __future__ import annotations

from torch import Tensor

import lamina

from .subjects import Subject, attribute

TRANSPARENT = "lamina Transparent"
LOGGING = "lamina LoggingTensor"


class Transparent(lamina.WrapperTensor):
    """One inner tensor, no rule of its own: every op runs on the inner tensor and its result is wrapped."""

    elem: Tensor
    fallback = lamina.Fallback.UNWRAP


def load_ours() -> list[Subject]:
    """lamina's subjects."""
    origin = f"lamina {lamina.__version__}"
    return [
        Subject(TRANSPARENT, origin, Transparent, attribute("elem")),
        Subject(LOGGING, origin, lamina.LoggingTensor, attribute("elem")),
    ]
