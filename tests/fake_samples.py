"""PyTorch's operator samples run twice: on real tensors, and on FakeLike ones of the same metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from lamina import DataDependentError, FakeLikeTensor
from lamina.conformance.sweep import Operator
from lamina.conformance.sweep.run import _quiet
from lamina.conformance.sweep.samples import Arguments, Case, _samples, cases, error_cases
from lamina.conformance.sweep.trial import Run, call
from lamina.modes import FakeLikeMode

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.complex64)
VARIANTS = ("function", "method", "inplace", "out")


class Faker:
    """FakeLike tensors for real ones: the same storages are shared, and one for each tensor."""

    def __init__(self) -> None:
        self.made: dict[int, torch.Tensor] = {}
        self.firsts: dict[int, torch.Tensor] = {}

    def __call__(self, real: torch.Tensor) -> torch.Tensor:
        if real.layout is not torch.strided or real.is_nested:
            return real
        if id(real) not in self.made:
            fake = FakeLikeTensor.from_tensor(real.detach())
            first = self.firsts.setdefault(real.untyped_storage()._cdata, fake)
            if first is not fake:
                torch._functionalize_unsafe_set(fake, first)
            self.made[id(real)] = fake
        return self.made[id(real)]


def metadata(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return type(value)
    if value.layout is not torch.strided or value.is_nested:
        return "not strided"
    geometry = tuple(value.shape), value.stride(), value.storage_offset()
    return *geometry, value.dtype, value.device, value.is_conj(), value.is_neg()


def observed(run: Run) -> list[Any]:
    """Of the results and of the arguments after the call: metadata, who is who, and who shares storage with whom."""
    everything = [*tree_leaves(run.result), *tree_leaves((run.arguments.input, run.arguments.args)), run.target]
    everything += tree_leaves(run.arguments.kwargs)
    strided = [each for each in everything if isinstance(each, torch.Tensor) and metadata(each) != "not strided"]
    storages = [each.untyped_storage()._cdata for each in strided]
    identities = [id(each) for each in strided]
    facts: list[Any] = [metadata(each) for each in everything]
    return [*facts, [storages.index(each) for each in storages], [identities.index(each) for each in identities]]


def is_sparse(arguments: Arguments, run: Run) -> bool:
    return any(metadata(t) == "not strided" for t in (*arguments.tensors(), *run.outputs()))


@dataclass
class Tally:
    """``equal`` samples; those that need data, and are refused; those without a real run (``refused`` by PyTorch);
    those with sparse or nested tensors, left out; and ``different`` ones, as text."""

    equal: int = 0
    data: Counter[str] = field(default_factory=Counter)
    more_data_than_torch: list[str] = field(default_factory=list)
    skipped: int = 0
    sparse: Counter[str] = field(default_factory=Counter)
    different: list[tuple[str, str]] = field(default_factory=list)


def compare(ops: Sequence[Operator], limit: int | None, dtypes: Sequence[torch.dtype] = DTYPES) -> Tally:
    tally = Tally()
    with _quiet():
        for case in cases(ops, dtypes, VARIANTS, limit):
            _compare(case, tally)
    return tally


def _compare(case: Case, tally: Tally) -> None:
    try:
        real = call(case, case.fresh_arguments(False))
    except Exception:  # noqa: BLE001 - whatever an operator raises
        tally.skipped += 1
        return
    given = case.fresh_arguments(False)
    if is_sparse(given, real):
        tally.sparse[case.name] += 1
        return
    fakes = given.map(Faker())
    where = f"{case.variant} {case.dtype_name} #{case.index}"
    try:
        with FakeLikeMode("cpu"):
            fake = call(case, fakes)
    except DataDependentError:
        tally.data[case.name] += 1
        if not torchs_fakes_refuse(case):
            tally.more_data_than_torch.append(f"{case.name} {where}")
        return
    except Exception as error:  # noqa: BLE001 - it is compared
        tally.different.append((case.name, f"{where}: {type(error).__name__}: {str(error)[:160]}"))
        return
    expected, got = observed(real), observed(fake)
    if expected == got or not any(isinstance(t, FakeLikeTensor) for t in fakes.tensors()):
        tally.equal += 1
        return
    first = next((pair for pair in zip(expected, got, strict=True) if pair[0] != pair[1]), None)
    tally.different.append((case.name, f"{where}: real {first and first[0]}, fake {first and first[1]}"))


def torchs_fakes_refuse(case: Case) -> bool:
    mode = FakeTensorMode()

    def unfilled(real: torch.Tensor) -> torch.Tensor:  # not mode.from_tensor: newer versions keep the values of numbers
        return torch.empty_strided(real.size(), real.stride(), dtype=real.dtype)

    given = case.fresh_arguments(False)
    try:
        with mode:
            call(case, given.map(unfilled))
    except Exception:  # noqa: BLE001 - whatever an operator raises
        return True
    return False


def compare_errors(ops: Sequence[Operator]) -> tuple[int, list[str]]:
    """How many wrong inputs are refused with the type of error of the real run; and the others, as text."""
    same, others = 0, []
    with _quiet():
        for case in error_cases(ops):
            try:
                arguments = case.fresh_arguments(False)
                fakes = case.fresh_arguments(False).map(Faker())
            except Exception:  # noqa: BLE001 - a sample that can't be copied
                continue
            expected = _error_of(case, arguments)
            with FakeLikeMode("cpu"):
                got = _error_of(case, fakes)
            if expected is None or not any(isinstance(t, FakeLikeTensor) for t in fakes.tensors()):
                continue
            if isinstance(got, type(expected)):
                same += 1
            else:
                detail = (
                    f"{type(got).__name__}: {str(got)[:110]} -- not {type(expected).__name__}: {str(expected)[:110]}"
                )
                others.append(f"{case.name} #{case.index}: {detail}")
    return same, others


def compare_dtypes(ops: Sequence[Operator], dtypes: Sequence[torch.dtype] = DTYPES) -> tuple[int, list[str]]:
    """The first sample of each operator in dtypes that it doesn't have on the CPU. How many are refused by the real run
    and by the fake one; and those that only the real run refuses, as text."""
    both, others = 0, []
    with _quiet():
        for case in _without_kernel(ops, dtypes):
            try:
                given, fakes = case.fresh_arguments(False), case.fresh_arguments(False)
            except Exception:  # noqa: BLE001 - a sample that can't be copied
                continue
            if not any(t.dtype is case.dtype and metadata(t) != "not strided" for t in given.tensors()):
                continue
            expected = _error_of(case, given)
            if expected is None:
                continue
            fakes = fakes.map(Faker())
            with FakeLikeMode("cpu"):
                got = _error_of(case, fakes)
            if got is None or isinstance(got, DataDependentError):
                others.append(f"{case.name} {case.dtype_name}: {type(expected).__name__}: {str(expected)[:110]}")
            else:
                both += 1
    return both, others


def _without_kernel(ops: Sequence[Operator], dtypes: Sequence[torch.dtype]) -> Iterator[Case]:
    for op in ops:
        for dtype in dtypes:
            if dtype in op.supported_dtypes("cpu"):
                continue
            try:
                samples = _samples(op, dtype, 1)
            except Exception:  # noqa: BLE001 - it can't make any of this dtype
                continue
            for sample in samples:
                yield Case(op, "function", dtype, 0, sample)


def _error_of(case: Case, arguments: Arguments) -> Exception | None:
    try:
        call(case, arguments)
    except Exception as error:  # noqa: BLE001 - it is compared
        return error
    return None
