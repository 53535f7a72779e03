"""The README's words for the published figures: a table for each bench, and the sentences that hold figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..cases import FORWARDS
from ..int8.step import INT16, STOCHASTIC
from ..ours import LOGGING, TRANSPARENT
from ..peers import HAND_WRITTEN, TORCH_LOGGING, TWO_TENSOR
from ..step.models import LARGE
from ..subjects import PLAIN
from .published import INT8_ROWS, INT8_SUBJECTS, STEP_SUBJECTS

Published = Mapping[str, Any]
COLUMNS = {
    PLAIN.name: "plain",
    HAND_WRITTEN: "by hand",
    TRANSPARENT: "one-tensor `UNWRAP` type",
    LOGGING: "`LoggingTensor`",
    "slope": "slope of `LoggingTensor`, 1 to 4 layers",
    TORCH_LOGGING: "torch's `LoggingTensor`",
    TWO_TENSOR: "torch's `TwoTensor`",
}
RULE = "---"
STEP_HEADS = dict(zip(STEP_SUBJECTS, ("`LoggingTensor`", "4 layers of it", "`ScaledInt8Tensor`"), strict=True))


def layers(found: Published) -> str:
    """The table of operators, and the two sentences below it."""
    rows = [[f"`{op}`", *(_number(ratios[each]) for each in COLUMNS)] for op, ratios in found["ops"].items()]
    add, share = found["add_ns"], found["share"]
    small, large = (f"{_percent(share[case.op])}{{}} at {_sizes(case.op)}" for case in FORWARDS)
    return (
        f"{table(['operator', *COLUMNS.values()], rows)}\n\n"
        f"By hand, one layer of `add` took {_microseconds(add[HAND_WRITTEN])} µs on that machine, and plain `add` "
        f"{_microseconds(add[PLAIN.name])}. In a forward of 100 operators, dispatch is "
        f"{small.format(' of the time')}, and {large.format('')}." + measured_on(found)
    )


def _sizes(op: str) -> str:
    """`forward 100 ops, width 16, batch 16`, as a sentence says it."""
    _, width, batch = op.split(", ")
    return f"{width} and {batch}"


def int8(found: Published) -> str:
    """The table of products, and the sentence on the training step."""
    rows = []
    for subject in INT8_SUBJECTS:
        product = found["products"][subject]
        cells = [_pair(product["speedup"][str(each)]) for each in INT8_ROWS]
        rows.append([_int8_name(subject), *cells, _number(product["decibels"], 0)])
    heads = ["", *(f"M = {each}" for each in INT8_ROWS), "dB against the dequantized weight"]
    eager, compiled = (_number(each, missing="?") for each in found["step"][INT16])
    stochastic = " and ".join(_number(each, missing="?") for each in found["step"][STOCHASTIC])
    return (
        f"{table(heads, rows)}\n\n"
        f'A training step of an MLP 1024-2048-1024 at batch 128 with SGD and `"int16"`: {eager} times as fast as fp32 '
        f"eager, {compiled} compiled; with stochastic rounding {stochastic}." + measured_on(found)
    )


def _int8_name(subject: str) -> str:
    """`lamina int16 packed`, as the README says it."""
    head, _, rest = subject.partition(" ")
    if head != "lamina":
        return subject
    activation, _, packed = rest.partition(" ")
    return f'`"{activation}"`' + (f", {packed}" if packed else "")


def step(found: Published) -> str:
    """The table of steps by mode, and the sentence on layers of usual size."""
    heads = ["", *(STEP_HEADS[each] for each in STEP_SUBJECTS), "µs a parameter and layer"]
    rows = [
        [
            mode,
            *(_number(each["to_plain"][subject]) for subject in STEP_SUBJECTS),
            _microseconds(each["added_ns"], missing=""),
        ]
        for mode, each in found["modes"].items()
    ]
    return (
        f"{table(heads, rows)}\n\n"
        f"At hidden size {LARGE.width} and batch {LARGE.batch}, the compiled step takes "
        f"{_number(found['large'], missing='?')} times as long with one layer of `LoggingTensor` as without."
        + measured_on(found)
    )


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, [RULE] * len(heads), *rows]
    return "\n".join("|" + "|".join(map(_cell, line)) + "|" for line in lines)


def _cell(text: str) -> str:
    return text if text == RULE else f" {text} " if text else " "


def measured_on(found: Published) -> str:
    """The machine, in a line of its own, where it is known."""
    if "processor" not in found:
        return ""
    return f"\n\nMeasured on {found['processor']} ({found['cpu_capability']}), PyTorch {found['torch']}."


def _number(value: float | None, digits: int = 2, *, missing: str = "") -> str:
    return missing if value is None else f"{value:.{digits}f}"


def _pair(values: Sequence[float | None]) -> str:
    """Eager and compiled; nothing where both are missing."""
    return " / ".join(_number(each, missing="?") for each in values) if any(values) else ""


def _percent(value: float | None) -> str:
    return "?" if value is None else f"{value:.0%}".replace("%", " %")


def _microseconds(nanoseconds: float | None, *, missing: str = "?") -> str:
    return missing if nanoseconds is None else f"{nanoseconds / 1e3:.1f}"


RENDERERS = {"layers": layers, "int8": int8, "step": step}
"""By bench, as in `published.EXTRACTS`."""
