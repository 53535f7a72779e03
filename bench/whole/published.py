"""The figures that the README shows: taken from a file of results, few, rounded, and kept beside the code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..cases import CASES, EAGER, FORWARDS, LARGE_ADD
from ..int8.options import QUICK_SHAPES
from ..int8.peers import TORCHAO_DYNAMIC, TORCHAO_WEIGHT_ONLY
from ..int8.step import FP32, INT16, STOCHASTIC
from ..int8.subjects import ours
from ..ours import LOGGING, TRANSPARENT
from ..peers import HAND_WRITTEN, TORCH_LOGGING, TWO_TENSOR
from ..step.conditions import MODES as STEP_MODES
from ..step.measuring import INT8
from ..step.models import LARGE, MLP
from ..step.optimizers import SGD
from ..step.split import PARAMETERS
from ..subjects import PLAIN
from .loading import Loaded

Figures = Mapping[str, Mapping[str, Any]]

OPS = [case.op for case in CASES if case.op != LARGE_ADD]
ONE_LAYER = (HAND_WRITTEN, TRANSPARENT, LOGGING, TORCH_LOGGING, TWO_TENSOR)
INT8_ROWS, MODES = (1, 16, 64), ("eager", "compiled")
INT8_SUBJECTS = (
    *(TORCHAO_WEIGHT_ONLY, TORCHAO_DYNAMIC, ours("float")),
    *(ours(activation, packed=packed) for activation in ("int16", "int8") for packed in (False, True)),
)
STEP_SUBJECTS = (f"{LOGGING} x1", f"{LOGGING} x4", f"{INT8} x1")


def rounded(value: float | None) -> float | None:
    """To four digits, as many as anybody reads."""
    return None if value is None else float(f"{value:.4g}")


def median(figure: Mapping[str, Any] | None, field: str) -> float | None:
    """The median of one summary of a figure, rounded; None where it is missing."""
    summary = (figure or {}).get(field)
    return rounded(summary["median"]) if summary else None


def where(loaded: Loaded) -> dict[str, Any]:
    """What the reader has to know of the machine."""
    return {key: loaded.machine[key] for key in ("processor", "cpu_capability", "torch") if key in loaded.machine}


def layers(loaded: Loaded) -> dict[str, Any]:
    """One layer beside the one by hand, by operator; and what dispatch takes of a forward."""
    data = loaded.benches["layers"]
    eager = {
        (each["op"], each["subject"], each["layers"]): each
        for each in data["figures"]
        if each["circumstance"] == EAGER.name
    }
    slopes = {each["op"]: each for each in data["slopes"] if each["subject"] == LOGGING}
    shares = {each["op"]: each for each in data["shares"] if each["subject"] == LOGGING}
    ops = {}
    for op in OPS:
        by_hand = median(eager.get((op, HAND_WRITTEN, 1)), "to_plain")
        ops[op] = {
            PLAIN.name: rounded(1 / by_hand) if by_hand else None,
            **{subject: median(eager.get((op, subject, 1)), "to_hand_written") for subject in ONE_LAYER},
            "slope": median(slopes.get(op), "to_hand_written"),
        }
    return {
        **where(loaded),
        "ops": ops,
        "add_ns": {
            PLAIN.name: median(eager.get(("add", PLAIN.name, 0)), "time_ns"),
            HAND_WRITTEN: median(eager.get(("add", HAND_WRITTEN, 1)), "time_ns"),
        },
        "share": {case.op: median(shares.get(case.op), "dispatch_share") for case in FORWARDS},
    }


def int8(loaded: Loaded) -> dict[str, Any]:
    """Times as fast as plain, eager and compiled, by rows; decibels; and the training step."""
    figures = {each["name"]: each for each in loaded.benches["int8"]["figures"]}
    ((outputs, inputs),) = QUICK_SHAPES
    products = {}
    for subject in INT8_SUBJECTS:
        names = {
            str(rows): [f"float32 {outputs}x{inputs} M={rows} | {subject} | {mode}" for mode in MODES]
            for rows in INT8_ROWS
        }
        products[subject] = {
            "speedup": {
                rows: [median(figures.get(each), "speedup") for each in found] for rows, found in names.items()
            },
            "decibels": _worst_decibels(figures, [each for found in names.values() for each in found]),
        }
    steps = {
        subject: [median(figures.get(f"training step | {subject} | {mode}"), "speedup") for mode in MODES]
        for subject in (INT16, STOCHASTIC)
    }
    return {**where(loaded), "products": products, "step": steps, "step_to": FP32}


def _worst_decibels(figures: Figures, names: list[str]) -> float | None:
    found = [each["decibels"]["to_dequantized"] for each in map(figures.get, names) if each and each["decibels"]]
    return rounded(min(found)) if found else None


def step(loaded: Loaded) -> dict[str, Any]:
    """A training step with 64 wrapped parameters, and one whose layers are of usual size."""
    figures = {each["name"]: each for each in loaded.benches["step"]["figures"]}
    modes = {}
    for mode in STEP_MODES:
        of_mode = f"{MLP} | {SGD} | {mode} | {PARAMETERS} parameters"
        modes[mode] = {
            "to_plain": {each: median(figures.get(f"{of_mode} | {each}"), "to_plain") for each in STEP_SUBJECTS},
            "added_ns": median(figures.get(f"{of_mode} | {LOGGING} x1"), "added_ns"),
        }
    large = next((each for each in figures.values() if (each["width"], each["layers"]) == (LARGE.width, 1)), None)
    return {**where(loaded), "parameters": PARAMETERS, "modes": modes, "large": median(large, "to_plain")}


EXTRACTS = {"layers": layers, "int8": int8, "step": step}
"""By the bench whose figures they take."""
