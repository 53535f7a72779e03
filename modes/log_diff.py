"""Where two runs part: the first record in which two logs differ, and how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..subclasses.logging_tensor import OpRecord, TensorMeta
from ..subclasses.logging_tensor.record import Value

_CONTEXT = 3


@dataclass(frozen=True)
class LogDifference:
    """``index``: the position in both logs; ``kind``: what differs first, in the order in which it is asked: "length",
    "op", "module", "phase", "shape", "dtype", "argument", "error" or "value"; ``left`` and ``right``: what each log has
    there, None where it has ended. ``before``: the last records that the two share.
    """

    index: int
    kind: str
    left: OpRecord | None
    right: OpRecord | None
    before: tuple[OpRecord, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain types."""
        sides = {side: record and record.to_json() for side, record in (("left", self.left), ("right", self.right))}
        return {"index": self.index, "kind": self.kind, **sides, "before": [each.to_json() for each in self.before]}

    def __str__(self) -> str:
        lines = [f"the logs part at record {self.index}: {self.kind}"]
        lines += [f"    {record}" for record in self.before]
        for sign, record in (("-", self.left), ("+", self.right)):
            digest = f"  digest {record.digest}" if record is not None and self.kind == "value" else ""
            lines.append(f"  {sign} {record if record is not None else '(the log ends)'}{digest}")
        return "\n".join(lines)


def diff_logs(left: Iterable[OpRecord], right: Iterable[OpRecord]) -> LogDifference | None:
    """The first difference of two logs, or lists of records; None where there is none. Times, threads and nesting
    are not compared. Values are, where both logs were made with ``values="hash"``: the first operator whose result
    differs is the one that computes differently, if its arguments come from operators that do not.

    >>> import torch
    >>> from lamina import Log
    >>> from lamina.modes import DispatchLog
    >>> def run(x):
    ...     with DispatchLog(Log(values="hash")) as ops:
    ...         x.exp().sum()
    ...     return ops.records
    >>> diff_logs(run(torch.ones(3)), run(torch.ones(3))) is None
    True
    >>> difference = diff_logs(run(torch.ones(3)), run(torch.ones(3) + 1e-3))
    >>> difference.kind, difference.left.op
    ('value', 'aten::exp')
    """
    one, other = list(left), list(right)
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        kind = _kind_of_difference(a, b)
        if kind is not None:
            return LogDifference(index, kind, a, b, tuple(one[max(0, index - _CONTEXT) : index]))
    if len(one) == len(other):
        return None
    index = min(len(one), len(other))
    ends = [records[index] if index < len(records) else None for records in (one, other)]
    return LogDifference(index, "length", ends[0], ends[1], tuple(one[max(0, index - _CONTEXT) : index]))


def _kind_of_difference(a: OpRecord, b: OpRecord) -> str | None:
    for kind, differs in (("op", a.op != b.op), ("module", a.module != b.module), ("phase", a.phase != b.phase)):
        if differs:
            return kind
    one, other = (a.inputs, a.keywords, a.outputs), (b.inputs, b.keywords, b.outputs)
    for kind, differs in (
        ("shape", [each.shape for each in _metas(one)] != [each.shape for each in _metas(other)]),
        ("dtype", [each.dtype for each in _metas(one)] != [each.dtype for each in _metas(other)]),
        ("argument", one != other),
    ):
        if differs:
            return kind
    if a.error != b.error:
        return "error"
    return "value" if a.digest is not None and b.digest is not None and a.digest != b.digest else None


def _metas(values: Value | tuple[Any, ...]) -> Iterator[TensorMeta]:
    if isinstance(values, TensorMeta):
        yield values
    elif isinstance(values, tuple):
        for each in values:
            yield from _metas(each)
