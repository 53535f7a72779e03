"""What a user names as `module:Class` or `module:function`, found."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any


class NameNotFoundError(ValueError):
    """The text has another form than `module:name`, or the module or name is not there."""


def find_object(target: str) -> Any:
    """What `module:name` names; the name may have dots.

    Modules in the current folder are found too, as they are under `python -m`.

    Raises:
        NameNotFoundError: the text has another form, or the module or name is not there.
    """
    module_name, colon, path = target.partition(":")
    if not (module_name and colon and path):
        raise NameNotFoundError(f"{target!r} is not of the form module:Class, such as lamina:LoggingTensor")
    found: Any = _import(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise NameNotFoundError(f"{module_name} has no {path}")
        found = getattr(found, name)
    return found


def _import(module_name: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not _is_within(error.name, module_name):
            raise  # the module is there, and something that it imports is not
        raise NameNotFoundError(f"no module named {error.name}") from None


def _is_within(missing: str | None, module_name: str) -> bool:
    return missing is not None and f"{module_name}.".startswith(f"{missing}.")
