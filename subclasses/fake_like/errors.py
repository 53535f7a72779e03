"""What the claimed device is not known to do, or can't."""

from __future__ import annotations

from ..core.errors import LaminaError


class UndecidedError(LaminaError, NotImplementedError):
    """What the claimed device would do isn't known here, so that nothing that follows could be right."""


class NoKernelError(LaminaError, RuntimeError):
    """The claimed device has no kernel for the call, of those that are enabled."""
