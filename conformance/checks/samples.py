"""PyTorch's own operator samples: each op on instances does what it does on the values that they stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from zlib import crc32

import torch

from ..check import check
from ..outcome import Coverage, KnownLimit, MismatchError, NotApplicable
from ..process import note
from ..sample_limits import FILLS, reason_of
from ..subject import Kind, Subject
from ..sweep import DTYPES, VARIANTS, Failure, Operator, Report, operators, sweep, sweep_errors
from ..sweep.candidates import Decoding, candidate_of, is_random, refusal

VALUED = (Kind.TRANSPARENT, Kind.REPRESENTATION)
# Of a run that is not full: one in so many operators, other ones in each check, and as many samples of it.
SHARE, SAMPLES = 8, 3
SHARE_OF_ERRORS = 4
SECONDS, FULL_SECONDS = 60.0, 3600.0
NAMED = 24  # operators in a line of the report
REPORTED = {
    "function": "an op gives other values, metadata or gradients than on plain tensors",
    "method": "a method gives other values, metadata or gradients than on plain tensors",
    "inplace": "an in-place op is lost, or writes something else than on plain tensors",
    "out": "out= stays unwritten, or gets something else than on plain tensors",
}


def _add(dtype: torch.dtype, variant: str) -> None:
    name = str(dtype).removeprefix("torch.")

    def compared(subject: Subject) -> Coverage:
        return _compared(subject, dtype, variant)

    compared.__name__ = f"samples_{name}_{variant}"
    compared.__doc__ = f"""PyTorch's operator samples in {name}, as {variant}: once on plain tensors, once on instances.

    Values, shapes, strides, conj and neg bits, views, mutated operands and gradients agree. A full run tries all
    samples, another a part of them, always the same.
    """
    check("samples", REPORTED[variant], kinds=VALUED, seconds=SECONDS, full_seconds=FULL_SECONDS)(compared)


for _dtype in DTYPES:
    for _variant in (*VARIANTS, "out"):
        _add(_dtype, _variant)


@check(
    "samples",
    "a wrong call raises another error than on plain tensors",
    kinds=VALUED,
    seconds=SECONDS,
    full_seconds=FULL_SECONDS,
)
def samples_errors(subject: Subject) -> Coverage:
    """Inputs that PyTorch knows to be wrong: an instance refuses them with the error that plain tensors give.

    A full run tries those of all operators, another a part of them.
    """
    _require_cpu(subject)
    ops = _operators()
    if not subject.full:
        ops = [op for op in ops if _drawn(op, "errors", SHARE_OF_ERRORS)]
    report = sweep_errors(candidate_of(subject), ops, at=lambda case: note(f"wrong input {case.index} of {case.name}"))
    return _verdict(subject, report, "an error of the type that plain operands give")


def _compared(subject: Subject, dtype: torch.dtype, variant: str) -> Coverage:
    _require_cpu(subject)
    refused = refusal(subject, subject.plain(4, 8, dtype=dtype))
    if refused is not None:
        raise NotApplicable(f"make takes no {str(dtype).removeprefix('torch.')} tensor: {refused}")
    candidate, ops = candidate_of(subject), _operators()
    if isinstance(candidate, Decoding) and is_random(subject):
        if variant in ("inplace", "out"):
            raise NotApplicable("instances are made by chance: what a written one stands for can't be foretold")
        ops = [op for op in ops if op.formatted_name not in FILLS]
    if not subject.full:
        ops = [op for op in ops if _drawn(op, f"{dtype} {variant}", SHARE)]
    report = sweep(
        candidate,
        ops,
        dtypes=[dtype],
        variants=[variant],
        limit=None if subject.full else SAMPLES,
        aliasing=True,
        at=lambda case: note(f"sample {case.index} of {case.name}, {case.dtype_name}, {case.variant}"),
    )
    return _verdict(subject, report, "what it does on plain tensors")


def _require_cpu(subject: Subject) -> None:
    if subject.device.type != "cpu":
        raise NotApplicable(f"the samples are CPU tensors, and instances are made on {subject.device}")


def _operators() -> Sequence[Operator]:
    try:
        return operators()
    except ImportError as error:
        raise NotApplicable(f"PyTorch's operator samples need {error.name}: pip install {error.name}") from None


def _drawn(op: Operator, salt: str, share: int) -> bool:
    """One in ``share`` operators, the same ones in each run."""
    return crc32(f"{op.formatted_name} {salt}".encode()) % share == 0


def _verdict(subject: Subject, report: Report, expected: str) -> Coverage:
    coverage = Coverage(report.passed, report.compared)
    reasons = {each: reason_of(each.op, each.reason, subject.kind) for each in report.failures}
    wrong = [each for each, reason in reasons.items() if reason is None]
    if wrong:
        smallest = min(wrong, key=lambda each: (not each.size, each.size, len(each.call)))
        got = f"{smallest.reason}: {smallest.detail}"
        raise MismatchError(smallest.call, expected, got, more=_listed(wrong, coverage), coverage=coverage)
    if reasons:
        lines = Counter(f"{each.op}: {reason}" for each, reason in reasons.items())
        text = "\n".join([f"{coverage}; what differs, and why:", *(f"{n} of {line}" for line, n in lines.items())])
        raise KnownLimit(text, coverage=coverage)
    if not coverage.compared:
        raise NotApplicable("no sample has an operand that make takes")
    return coverage


def _listed(failures: Sequence[Failure], coverage: Coverage) -> Iterator[str]:
    """How many differ, and by what differs: of which operators."""
    yield f"{coverage}; what differs, and how often:"
    reasons = Counter(each.reason for each in failures)
    for reason, count in reasons.most_common():
        ops = Counter(each.op for each in failures if each.reason == reason).most_common()
        names = ", ".join(f"{op} {number}" if number > 1 else op for op, number in ops[:NAMED])
        rest = f" and {len(ops) - NAMED} more" if len(ops) > NAMED else ""
        yield f"  {reason} ({count} of {len(ops)} operators): {names}{rest}"
