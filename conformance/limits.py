"""What is known not to hold, and why: torch's own limits, and those of classes that lamina ships."""

from __future__ import annotations

import torch

# By check: the reason, for every class.
EVERYWHERE: dict[str, str] = {}
# By class, as module and name, and check: the reason. It holds for subclasses, too.
BY_CLASS: dict[tuple[str, str], str] = {}


def known_limit(check: str, cls: type[torch.Tensor]) -> str | None:
    """The reason why ``check`` fails for ``cls``, if there is one."""
    names = [f"{base.__module__}.{base.__qualname__}" for base in cls.__mro__]
    own = (BY_CLASS.get((name, check)) for name in names)
    return next((reason for reason in own if reason), None) or EVERYWHERE.get(check)
