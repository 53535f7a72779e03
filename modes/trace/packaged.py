"""What every torch wheel carries of its own sources: operator declarations and derivatives.

``native_functions.yaml`` and ``derivatives.yaml`` lie in ``torchgen/packaged``. Reading them takes half a second, once.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

# What an entry of derivatives.yaml says beside its formulas.
_NO_FORMULAS = frozenset({"name", "dispatch", "output_differentiability"})


class MissingSourcesError(RuntimeError):
    """The build of torch comes without the files, or PyYAML, which reads them, is not installed."""


def declaration_of(op: str) -> dict[str, Any] | None:
    """The entry of ``native_functions.yaml`` for ``addmm`` or ``add.Tensor``; None for an operator from elsewhere.

    Raises:
        MissingSourcesError: see there.
    """
    return _by_name("ATen/native/native_functions.yaml", "func").get(op)


def kernels_of(op: str) -> dict[str, str]:
    """Backend, or alias key, to the C++ function that is declared for it; for the overload that ``op`` shares its
    kernels with, where it has one. Empty for an operator from elsewhere, or one that torch generates.

    Raises:
        MissingSourcesError: see there.
    """
    declared = declaration_of(op)
    if declared is None:
        return {}
    delegate = declared.get("structured_delegate")
    if delegate is not None:
        return kernels_of(delegate) | _dispatched(declared)
    if "dispatch" not in declared and "ufunc_inner_loop" not in declared:
        return {"CompositeImplicitAutograd": op.partition(".")[0]}  # the default of torch's code generator
    return _generated(declared) | _dispatched(declared)


def derivatives_of(op: str) -> dict[str, str]:
    """Argument to the formula of its gradient, as ``derivatives.yaml`` has it, and ``result`` to that of the forward
    mode; for an in-place operator those of its functional twin. Empty where there are none.

    Raises:
        MissingSourcesError: see there.
    """
    entries = _by_name("autograd/derivatives.yaml", "name")
    base, dot, overload = op.partition(".")
    entry = entries.get(op) or entries.get(f"{base.removesuffix('_')}{dot}{overload}", {})
    formulas = entry.get("dispatch", {}).get("Default", entry)
    return {key: str(value) for key, value in formulas.items() if key not in _NO_FORMULAS}


def _dispatched(declared: dict[str, Any]) -> dict[str, str]:
    """Several backends may share an entry."""
    entries = declared.get("dispatch", {}).items()
    return {key.strip(): str(value) for keys, value in entries for key in keys.split(",")}


def _generated(declared: dict[str, Any]) -> dict[str, str]:
    """The loop over elements, from which torch generates a kernel for these two."""
    loops = declared.get("ufunc_inner_loop", {}).values()
    name = next((str(loop).partition("(")[0].strip() for loop in loops), None)
    return {} if name is None else dict.fromkeys(("CPU", "CUDA"), f"generated around ufunc::{name}")


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
