"""What tests of the command line share: a module of a user's, in the current folder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest


def module_here(name: str, source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Writes the module into ``folder``, which becomes the current one; it is imported by nobody yet."""
    (folder / f"{name}.py").write_text(source)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name
