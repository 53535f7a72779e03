"""The line of the user's program that is at work."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).resolve().parent.parent.parent)
# The folders of lamina; where it is installed, they lie in one.
_PARTS = tuple(str(Path(_OURS) / part) for part in ("modes", "subclasses", "conformance", "bench", "front"))
_HIDDEN = (_TORCH, *_PARTS)


def call_site() -> str | None:
    """File and line of the innermost frame that is neither of torch nor of lamina; None where there is none, as in a
    thread that C++ made."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_HIDDEN) and not file.startswith("<frozen"):
            return f"{file}:{frame.f_lineno}"
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None
