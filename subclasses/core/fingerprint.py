"""What the code behind a class is, as a digest: compile caches must not serve what older rules computed."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1]


def fingerprint(cls: Any) -> str:
    """A digest of the files that hold lamina's types, the class and its ancestors, and their rules. Equal across
    processes and machines that run the same code."""
    parts = sorted({_of_file(file) for file in _files(cls)})  # not by the names: other machines have other folders
    return hashlib.blake2b("".join([_of_package(), *parts]).encode(), digest_size=16).hexdigest()


def _files(cls: Any) -> Iterator[str]:
    for klass in cls.__mro__:
        book = klass.__dict__.get("_rules")
        if book is None:
            continue
        yield getattr(sys.modules.get(klass.__module__), "__file__", None) or ""
        for rule in book.values():
            yield rule.where.rpartition(":")[0]


@cache
def _of_package() -> str:
    files = sorted(_PACKAGE.rglob("*.py"))
    return "".join(_of_file(str(file)) for file in files)


@cache
def _of_file(name: str) -> str:
    """Empty where there is no file, for what was typed into a shell: its code lives as long as the process."""
    path = Path(name)
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() if path.is_file() else ""
