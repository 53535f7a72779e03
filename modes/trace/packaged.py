"""What every torch wheel carries of its own sources: operator declarations, derivatives, and autocast's lists.

``native_functions.yaml`` and ``derivatives.yaml`` lie in ``torchgen/packaged``; the lists of autocast are macros of a
header. Reading them takes half a second, once.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

import torch

# The macros of autocast_mode.h, and what the operators of each are cast to.
_POLICIES = {
    "AT_FORALL_LOWER_PRECISION_FP": "the dtype of autocast",
    "AT_FORALL_FP32": "float32",
    "AT_FORALL_FP32_SET_OPT_DTYPE": "float32, as the dtype of the result",
    "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE": "float32, as the dtype of the result",
    "AT_FORALL_PROMOTE": "the widest dtype of the arguments",
}

_NO_FORMULAS = frozenset({"name", "dispatch", "output_differentiability"})


class MissingSourcesError(RuntimeError):
    """The build of torch comes without the files, or PyYAML, which reads them, is not installed."""


def declaration_of(op: str) -> dict[str, Any] | None:
    """The entry of ``native_functions.yaml`` for ``addmm`` or ``add.Tensor``; None for an operator from elsewhere.

    Raises:
        MissingSourcesError: see there.
    """
    return _by_name("ATen/native/native_functions.yaml", "func").get(op)


def derivatives_of(op: str) -> dict[str, str]:
    """Argument to the formula of its gradient, as ``derivatives.yaml`` has it, and ``result`` to that of the forward
    mode; empty where the operator has none of its own.

    Raises:
        MissingSourcesError: see there.
    """
    entry = _by_name("autograd/derivatives.yaml", "name").get(op, {})
    formulas = entry.get("dispatch", {}).get("Default", entry)
    return {
        key: str(value)
        for key, value in formulas.items()
        if key not in ("name", "dispatch", "output_differentiability")
    }


@cache
def autocast_policies() -> dict[str, str]:
    """Operator, with its overload where the header names one, to what its arguments are cast to by autocast on CUDA and
    the backends that share its lists. Empty where the build has no headers."""
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    if not header.is_file():
        return {}
    found: dict[str, str] = {}
    for block in re.split(r"#define ", header.read_text())[1:]:
        macro = block.partition("(")[0]
        body = block.partition("\n\n")[0].replace("\\\n", " ")
        for match in re.finditer(r"_\(\s*(\w+)(?:\s*,\s*(\w+))?\s*\)", body.partition(")")[2]):
            if macro in _POLICIES:
                found[".".join(filter(None, match.groups()))] = _POLICIES[macro]
    return found


@cache
def _by_name(path: str, field: str) -> dict[str, dict[str, Any]]:
    entries: list[dict[str, Any]] = _load(path)
    return {each[field].partition("(")[0].strip(): each for each in entries}


def _load(path: str) -> Any:
    spec = importlib.util.find_spec("torchgen")
    if spec is None or spec.origin is None:
        raise MissingSourcesError("this build of torch has no package torchgen, which carries the declarations")
    try:
        import yaml
    except ModuleNotFoundError:
        raise MissingSourcesError("the declarations are YAML: pip install 'lamina[cli]' brings PyYAML") from None
    file = Path(spec.origin).parent / "packaged" / path
    if not file.is_file():
        raise MissingSourcesError(f"this build of torch has no torchgen/packaged/{path}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(file.read_text(), Loader=loader)
