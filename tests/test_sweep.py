"""The sweep itself: it passes what is right, and each kind of defect makes it fail for the right reason."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from subjects import Doubled
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

from lamina import Gradients, WrapperTensor
from lamina.conformance.sweep import (
    Candidate,
    DecodingCandidate,
    MismatchError,
    Report,
    operators,
    shard,
    sweep,
    sweep_errors,
)
from lamina.conformance.sweep.compare import aliases
from lamina.conformance.sweep.samples import Arguments, Copier

PLAIN = Candidate(torch.Tensor, lambda plain: plain, lambda instance: instance)


class Shell(torch.Tensor):
    """A hand-written wrapper for real tensors: right but for conj and neg bits, unless a child puts a defect in."""

    inner: torch.Tensor

    @classmethod
    def wrap(cls, inner: torch.Tensor) -> torch.Tensor:
        shell = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype
        )
        shell.inner = inner
        return shell

    @classmethod
    def run(cls, func: torch._ops.OpOverload, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inner_args, inner_kwargs = tree_map_only(Shell, lambda shell: shell.inner, (args, kwargs or {}))
        result = tree_map_only(torch.Tensor, cls.wrap, cls.run(func, inner_args, inner_kwargs))
        return return_and_correct_aliasing(func, args, kwargs or {}, result)


class WrongStride(Shell):
    @classmethod
    def wrap(cls, inner: torch.Tensor) -> torch.Tensor:
        shell = torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)
        shell.inner = inner
        return shell


class LostInplace(Shell):
    @classmethod
    def run(cls, func: torch._ops.OpOverload, args: Any, kwargs: Any) -> Any:
        # The schema of `native_batch_norm` does not say that it updates the running statistics.
        if func._schema.is_mutable or func is torch.ops.aten.native_batch_norm.default:
            args = tree_map_only(torch.Tensor, torch.clone, args)
        return func(*args, **kwargs)


class HalfDone(Shell):
    """Off by a rounding error, in one operator of the backward only."""

    @classmethod
    def run(cls, func: torch._ops.OpOverload, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        return result * (1 + 1e-6) if func is torch.ops.aten.cos.default else result


class Forgetful(Shell):
    """Hands out what it computed without wrapping it."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.run(func, *tree_map_only(Shell, lambda shell: shell.inner, (args, kwargs or {})))


class Copying(Shell):
    """A view rule that answers with a copy."""

    copied: ClassVar[frozenset[Any]] = frozenset({torch.ops.aten.transpose.int})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in cls.copied:
            return cls.wrap(func(args[0].inner, *args[1:]))
        return super().__torch_dispatch__(func, types, args, kwargs)


class Refusing(Shell):
    @classmethod
    def run(cls, func: torch._ops.OpOverload, args: Any, kwargs: Any) -> Any:  # noqa: ARG003
        raise ValueError(f"no rule for {func}")


def judge(cls: type[Shell], *names: str, dtype: torch.dtype = torch.float32, aliasing: bool = False) -> Report:
    candidate = Candidate(cls, cls.wrap, lambda instance: instance.inner)
    ops = [op for op in operators() if op.name in names]
    return sweep(candidate, ops, dtypes=[dtype], aliasing=aliasing)


def reasons(report: Report) -> set[str]:
    return {failure.reason for failure in report.failures}


def test_plain_tensors_equal_themselves() -> None:
    report = sweep(PLAIN, shard(0, 20), aliasing=True)
    assert report.failures == []
    assert report.compared > 400
    assert report.with_grad > 200


def test_a_right_wrapper_passes() -> None:
    report = judge(Shell, "sin", "mm", "transpose", "sum", "add", aliasing=True)
    assert report.failures == []
    assert report.with_grad > 20
    assert report.rate == 1.0


def test_lost_conj_bits_fail_in_value_and_metadata() -> None:
    candidate = Candidate(TwoTensor, lambda plain: TwoTensor(plain, plain), lambda instance: instance.a)
    ops = [op for op in operators() if op.name in {"conj", "fft.ihfft", "sin"}]
    report = sweep(candidate, ops)
    assert {"forward: conj bit", "grad: values"} <= reasons(report)


@pytest.mark.parametrize(
    ("cls", "op", "reason"),
    [
        (WrongStride, "transpose", "forward: stride"),
        (LostInplace, "sin", "forward: values"),
        (LostInplace, "add", "forward: values"),
        (HalfDone, "sin", "grad: values"),
        (Forgetful, "sin", "forward: type"),
        (Refusing, "sin", "forward: ValueError"),
    ],
)
def test_a_defect_fails_for_its_reason(cls: type[Shell], op: str, reason: str) -> None:
    assert judge(Shell, op).failures == []
    assert reason in reasons(judge(cls, op))


def test_a_mutated_argument_counts() -> None:
    assert "input: values" in reasons(judge(LostInplace, "nn.functional.batch_norm"))


def test_aliasing_is_judged_on_request() -> None:
    assert judge(Copying, "transpose").failures == []
    assert reasons(judge(Copying, "transpose", aliasing=True)) == {"forward: alias"}


def test_aliasing_is_views_and_storage() -> None:
    base, other = torch.zeros(4), torch.zeros(4)
    unrecorded = torch.empty(0).set_(other.untyped_storage(), 0, (2, 2), (2, 1))
    aliases([base], [base.view(2, 2)], [other], [other.view(2, 2)])
    with pytest.raises(MismatchError, match="_is_view"):
        aliases([base], [base.view(2, 2)], [other], [unrecorded])
    with pytest.raises(MismatchError, match="storage"):
        aliases([base], [base.view(2, 2)], [other], [base.view(2, 2)])


def test_a_copy_keeps_overlap_offset_and_shared_storage() -> None:
    base = torch.arange(6.0).requires_grad_()
    arguments = Arguments(base[2:4].expand(3, 2), (base, torch.view_as_complex(base.view(3, 2)).conj()), {})
    copies = arguments.map(Copier(True)).tensors()
    for original, copy in zip(arguments.tensors(), copies, strict=True):
        assert (copy.stride(), copy.storage_offset()) == (original.stride(), original.storage_offset())
        assert copy.is_conj() == original.is_conj()
        assert copy.requires_grad
        assert torch.equal(copy, original)
    assert len({copy.untyped_storage().data_ptr() for copy in copies}) == 1
    assert copies[0].untyped_storage().data_ptr() != base.untyped_storage().data_ptr()


def test_shards_cover_each_operator_once() -> None:
    names = [op.formatted_name for index in range(7) for op in shard(index, 7)]
    assert sorted(names) == sorted(op.formatted_name for op in operators())


def test_the_table_names_reason_operator_and_place() -> None:
    text = judge(WrongStride, "transpose").table()
    assert "forward: stride" in text
    assert "function,method" in text
    assert "float32" in text


def test_reports_add_up() -> None:
    left, right = judge(Shell, "sin"), judge(WrongStride, "transpose")
    total = left + right
    assert total.compared == left.compared + right.compared
    assert total.failures == right.failures
    assert total.rate < 1.0
    assert Report().rate == 0.0


class Leaking(Doubled):
    """Shows what it holds for what it stands for; drops a write; keeps its class in gradients."""

    gradients = Gradients.SAME


@Leaking.implements(torch.ops.aten.sin.default)
def sin_of_the_inner_tensor(op: Any, self: Any) -> Any:
    return op(self.elem)


@Leaking.implements(torch.ops.aten.cos_.default)
def cos_of_a_copy(op: Any, self: Any) -> Any:
    op(self.decode())
    return self


@Leaking.implements(torch.ops.aten.dot.default)
def dot_of_any(op: Any, self: Any, tensor: Any) -> Any:
    raise ValueError("something else than the plain op says")


def decoding(cls: type[Doubled], *, tolerance: float | None = None) -> DecodingCandidate:
    loose = {} if tolerance is None else {"sin": lambda _: tolerance}
    unwrap = cls.to_plain
    return DecodingCandidate(cls, cls.encode, unwrap, base=WrapperTensor, rewrite=lambda _, new: new, loose=loose)


def judge_decoding(candidate: DecodingCandidate, *names: str, variant: str = "function") -> Report:
    ops = [op for op in operators() if op.name in names]
    return sweep(candidate, ops, dtypes=[torch.float32], variants=[variant], aliasing=True)


@pytest.mark.parametrize("variant", ["function", "method", "inplace", "out"])
def test_a_class_that_decodes_passes(variant: str) -> None:
    report = judge_decoding(decoding(Doubled), "sin", "cos", "mul", "div", "lerp", variant=variant)
    assert report.failures == []
    assert report.compared > 0


@pytest.mark.parametrize(
    ("op", "variant", "reason"),
    [
        ("sin", "function", "forward: values"),
        ("cos", "inplace", "forward: values"),
        ("mul", "function", "grad: type"),
        ("dot", "function", "forward: ValueError"),
    ],
)
def test_a_defect_of_a_class_that_decodes(op: str, variant: str, reason: str) -> None:
    assert reasons(judge_decoding(decoding(Leaking), op, variant=variant)) == {reason}


def test_a_tolerance_is_counted() -> None:
    assert judge_decoding(decoding(Leaking), "sin").rounded.total() == 0
    report = judge_decoding(decoding(Leaking, tolerance=2e9), "sin")
    assert report.rounded["sin"] > 0
    assert reasons(report) <= {"grad: type"}


def test_errors_are_compared_by_type() -> None:
    ops = [op for op in operators() if op.name == "dot"]
    report = sweep_errors(decoding(Doubled), ops)
    assert report.passed == report.compared > 0
    assert reasons(sweep_errors(decoding(Leaking), ops)) == {"error: ValueError"}
