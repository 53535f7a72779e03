"""The PLAIN fallback: right values, writes that arrive or are refused, and nobody left in the dark about it."""

from __future__ import annotations

# ruff: noqa: ARG003, PLW0108 - signatures are those of schemas and hooks; each call is written out
import logging
from typing import Any

import pytest
import torch
from subjects import Clear, Doubled, Granularity, Scaled, Sum

from lamina import Fallback, FallbackError, LaminaError, OuterMetadata, UnwrittenError, WrapperTensor, op_table, strict

aten = torch.ops.aten
MODES: dict[str, Any] = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
KINDS = [Doubled, Scaled, Sum]


def values_of(w: Any) -> torch.Tensor:
    return w.detach().to_plain() if isinstance(w, WrapperTensor) else w.detach()


def close(w: Any, expected: torch.Tensor) -> None:
    """Equal but for what int8 rounds."""
    assert w.shape == expected.shape
    scale = max(float(expected.abs().max()), 1.0) if expected.numel() else 1.0
    assert torch.allclose(values_of(w), expected, atol=scale / 50)


CALLS: dict[str, Any] = {
    "add": lambda x: x + 1,
    "matmul": lambda x: x @ x,
    "linear": lambda x: torch.nn.functional.linear(x, x, x[0]),
    "linear by keyword": lambda x: torch.nn.functional.linear(input=x, weight=x, bias=x[0]),
    "t": lambda x: x.t(),
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(2, -1),
    "slice": lambda x: x[1:, :2],
    "select": lambda x: x[0],
    "permute": lambda x: x.permute(1, 0),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "softmax": lambda x: x.softmax(-1),
    "sort": lambda x: x.sort().values,
    "where": lambda x: torch.where(x > 0, x, -x),
    "foreach": lambda x: torch._foreach_add([x, x], 1)[0],
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "index": lambda x: x[torch.tensor([0, 2])],
    "mask": lambda x: x[x > -9],
    "sum": lambda x: x.sum(),
    "norm": lambda x: torch.linalg.norm(x),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "embedding": lambda x: torch.nn.functional.embedding(torch.tensor([0, 1]), x),
    "to": lambda x: x.to(torch.float64).float(),
    "contiguous": lambda x: x.t().contiguous(),
    "zeros_like": lambda x: torch.zeros_like(x),
    "new_ones": lambda x: x.new_ones(3),
    "chunk": lambda x: x.chunk(2)[1],
    "unbind": lambda x: x.unbind()[1],
    "diagonal": lambda x: x.diagonal(),
    "clone": lambda x: x.clone(),
    "clone channels": lambda x: x[None, None].clone(memory_format=torch.channels_last),
    "item": lambda x: torch.tensor(x.sum().item()),
    "out plain": lambda x: torch.mul(x, 2, out=torch.empty(4, 4)),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", CALLS)
def test_values_are_those_of_plain(call: str, mode: str) -> None:
    plain = torch.randn(4, 4)
    for cls in KINDS:
        w = cls.from_plain(plain)
        decoded = values_of(w)
        with MODES[mode]():
            expected, out = CALLS[call](decoded), CALLS[call](w)
        assert torch.allclose(values_of(out), expected, atol=1e-6), cls
        assert out.dtype == expected.dtype


@pytest.mark.parametrize("call", ["t", "view", "slice", "select", "permute", "chunk", "unbind", "diagonal"])
def test_a_view_of_a_decoding_class_is_no_alias_that_drops_writes(call: str) -> None:
    """What isn't an alias must not look like one: a write through it reaches the wrapper, or is an error, or the result
    is a plain copy that nobody takes for a view."""
    for cls in KINDS:
        w = cls.from_plain(torch.ones(4, 4))
        view = CALLS[call](w)
        before = values_of(w).clone()
        try:
            with torch.no_grad():
                view.fill_(5)
        except LaminaError:
            continue
        expected = before.clone()
        CALLS[call](expected).fill_(5)
        reached = torch.allclose(values_of(w), expected, atol=0.1)
        assert reached or (type(view) is torch.Tensor and not view._is_view() and torch.equal(values_of(w), before)), (
            cls
        )


IN_PLACE: dict[str, Any] = {
    "add_": lambda x: x.add_(1),
    "add_ alpha": lambda x: x.add_(torch.ones(4, 4), alpha=2),
    "add_ itself": lambda x: x.add_(x),
    "mul_ itself": lambda x: x.mul_(x),
    "mul_": lambda x: x.mul_(-1),
    "copy_ plain": lambda x: x.copy_(torch.full((4, 4), 3.0)),
    "copy_ broadcast": lambda x: x.copy_(torch.tensor(3.0)),
    "copy_ row": lambda x: x.copy_(torch.arange(4.0)),
    "copy_ int": lambda x: x.copy_(torch.full((4, 4), 3)),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(2),
    "clamp_": lambda x: x.clamp_(-1, 1),
    "sigmoid_": lambda x: x.sigmoid_(),
    "lerp_": lambda x: x.lerp_(torch.ones(4, 4), 0.5),
    "addcdiv_": lambda x: x.addcdiv_(torch.ones(4, 4), torch.full((4, 4), 2.0)),
    "addmm_": lambda x: x.addmm_(torch.ones(4, 2), torch.ones(2, 4)),
    "masked_fill_": lambda x: x.masked_fill_(torch.eye(4).bool(), 0),
    "index_put_": lambda x: x.index_put_((torch.tensor([0]),), torch.tensor(2.0)),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0]), torch.ones(1, 4)),
    "iadd": lambda x: x.__iadd__(1),
    "out": lambda x: torch.add(x, 1, out=x),
    "out only": lambda x: torch.add(torch.ones(4, 4), 1, out=x),
    "foreach": lambda x: (torch._foreach_add_([x], 1), x)[1],
    "foreach list": lambda x: (torch._foreach_add_([x], [torch.ones(4, 4)], alpha=2), x)[1],
    "foreach itself": lambda x: (torch._foreach_mul_([x], [x]), x)[1],
    "foreach copy_": lambda x: (torch._foreach_copy_([x], [torch.ones(4, 4)]), x)[1],
    "setitem": lambda x: (x.__setitem__(0, 2.0), x)[1],
    "setitem slice": lambda x: (x.__setitem__((slice(None), slice(1, 3)), torch.ones(4, 2)), x)[1],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", IN_PLACE)
def test_a_write_arrives_in_the_inner_tensors(call: str, mode: str) -> None:
    for cls in KINDS:
        w = cls.from_plain(torch.randn(4, 4))
        inner = [(n, getattr(w, n).data_ptr()) for n in w.__tensor_flatten__()[0]]
        expected = values_of(w).clone()
        IN_PLACE[call](expected)
        with MODES[mode]():
            out = IN_PLACE[call](w)
        assert out is w
        close(w, expected)
        assert [(n, getattr(w, n).data_ptr()) for n in w.__tensor_flatten__()[0]] == inner, "addresses stay"


@pytest.mark.parametrize("mode", MODES)
def test_the_same_wrapper_twice_in_a_list_is_one_tensor(mode: str) -> None:
    for cls in KINDS:
        w, plain = cls.from_plain(torch.ones(4, 4)), torch.ones(4, 4)
        with MODES[mode]():
            torch._foreach_add_([w, w], 1)
            torch._foreach_add_([plain, plain], 1)
        close(w, plain)


APART: dict[str, Any] = {
    "rows": lambda x: [x[:2], x[2:]],
    "columns": lambda x: [x[:, :1], x[:, 1:]],
    "quarters": lambda x: [x[:2, :2], x[2:, 2:], x[:2, 2:]],
    "combs": lambda x: [x[::2], x[1::2]],
    "views of views": lambda x: [x[1:][:1], x[:1], x.t()[2:][1:, 3]],
    "two shapes": lambda x: [x.view(-1)[:3], x.view(2, 8)[1]],
    "a diagonal and a corner": lambda x: [x.diagonal(), x[3, :2]],
    "the same view twice": lambda x: [v := x[1:], v],
    "the same twice": lambda x: [x, x],
    "an empty view": lambda x: [x, x[4:]],
}
TOGETHER: dict[str, Any] = {
    "rows": lambda x: [x[:3], x[2:]],
    "one element": lambda x: [x[0], x[:, 0]],
    "all and a part": lambda x: [x, x[1:2]],
    "a part and all": lambda x: [x[1:2], x],
    "transposed": lambda x: [x, x.t()],
    "transposed in part": lambda x: [x[0], x.t()[:1].t()],
    "detached": lambda x: [x, x.detach()],
    "two of one view": lambda x: [x[1:], x[1:]],
    "shapes": lambda x: [x.view(-1)[4:6], x[1, 1:]],
    "the third": lambda x: [x[0], x[1], x[:, 3]],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", APART)
def test_views_in_a_list_that_lie_apart_are_all_written(name: str, mode: str) -> None:
    for cls in KINDS:
        plain = torch.arange(1.0, 17).reshape(4, 4)
        w = cls.from_plain(plain)
        with MODES[mode]():
            torch._foreach_mul_(APART[name](w), 2)
            torch._foreach_mul_(APART[name](plain), 2)
        close(w, plain)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TOGETHER)
def test_views_in_a_list_that_overlap_are_refused(name: str, mode: str) -> None:
    """Each is decoded by itself: one write of the two would be lost, without a word."""
    for cls in KINDS:
        w = cls.from_plain(torch.arange(1.0, 17).reshape(4, 4))
        before = values_of(w).clone()
        for call in (
            lambda views: torch._foreach_mul_(views, 2),
            lambda views: torch._foreach_copy_(views, [torch.zeros(v.shape) for v in views]),
            lambda views: torch._foreach_add_([torch.zeros(2), *views], 1),
        ):
            with MODES[mode](), pytest.raises(UnwrittenError, match="two of the arguments show the same elements"):
                call(TOGETHER[name](w))
            assert torch.equal(values_of(w), before), cls


def test_overlapping_views_that_are_only_read_are_no_matter() -> None:
    for cls in KINDS:
        w, target = cls.from_plain(torch.ones(4, 4)), [torch.zeros(3, 4), torch.zeros(3, 4)]
        torch._foreach_add_(target, [w[:3], w[1:]])
        torch._foreach_add_([w[:2]], [w[2:]])
        assert all(torch.allclose(t, torch.ones(3, 4), atol=0.02) for t in target)
        close(w, torch.cat([torch.full((2, 4), 2.0), torch.ones(2, 4)]))


def test_wrappers_of_one_memory_are_told_apart_by_place() -> None:
    """Two wrappers that somebody made of parts of one tensor."""
    memory = torch.ones(4, 3)
    torch._foreach_mul_([Doubled(memory[:2]), Doubled(memory[2:])], 3)
    assert memory.tolist() == [[3.0] * 3] * 4
    with pytest.raises(UnwrittenError, match="the same elements"):
        torch._foreach_mul_([Doubled(memory[:3]), Doubled(memory[2:])], 3)
    assert memory.tolist() == [[3.0] * 3] * 4


def test_two_wrappers_with_one_inner_tensor_stay_together() -> None:
    shared = torch.ones(2)
    a, b = Doubled(shared), Doubled(shared)
    a.add_(2)
    assert values_of(b).tolist() == [4, 4]


def test_every_list_of_a_fused_step_is_written() -> None:
    plain = [torch.ones(4, 4) for _ in range(4)]
    plain[2:] = [torch.zeros(4, 4), torch.zeros(4, 4)]
    wrapped = [Doubled.from_plain(t) for t in plain]
    for tensors in (plain, wrapped):
        param, grad, exp_avg, exp_avg_sq = ([t] for t in tensors)
        torch._fused_adam_(
            param,
            grad,
            exp_avg,
            exp_avg_sq,
            [],
            [torch.tensor(1.0)],
            lr=0.1,
            beta1=0.9,
            beta2=0.99,
            weight_decay=0.1,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
    for w, p in zip(wrapped, plain, strict=True):
        close(w, p)
    assert not torch.equal(plain[0], torch.ones(4, 4))


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "Adam", "Adagrad"])
def test_optimizers_train_a_decoding_class(optimizer: str, options: dict[str, bool]) -> None:
    for cls in (Doubled, Scaled):
        torch.manual_seed(0)
        start = torch.randn(4, 4)
        w, plain = torch.nn.Parameter(cls.from_plain(start)), torch.nn.Parameter(values_of(cls.from_plain(start)))
        x, losses, first = torch.randn(8, 4), {}, 0.0
        for p in (plain, w):
            opt = getattr(torch.optim, optimizer)([p], lr=0.1, **options)
            for _ in range(20):
                loss = (torch.nn.functional.linear(x, p) - 1).square().mean()
                first = first or loss.item()
                opt.zero_grad()
                loss.backward()
                assert type(p.grad) is torch.Tensor
                opt.step()
            losses[p is w] = loss.item()
        assert losses[True] == pytest.approx(losses[False], abs=0.05)
        assert losses[True] < first - 0.1


# what can't be written


SHAPE_CHANGING: dict[str, Any] = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "squeeze_": lambda x: x.squeeze_(),
    "resize_": lambda x: x.resize_(2, 2),
    "as_strided_": lambda x: x.as_strided_((2,), (1,)),
    "out resized": lambda x: torch.mm(torch.ones(2, 3), torch.ones(3, 5), out=x),
    "cat resized": lambda x: torch.cat([torch.ones(4, 3)] * 3, out=x),
    "set_": lambda x: x.set_(torch.ones(2, 2)),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", SHAPE_CHANGING)
def test_a_write_that_cannot_arrive_is_an_error_and_changes_nothing(call: str, mode: str) -> None:
    for cls in KINDS:
        w = cls.from_plain(torch.randn(4, 3))
        before, size, stride = values_of(w).clone(), w.size(), w.stride()
        with (
            MODES[mode](),
            pytest.raises(UnwrittenError, match=rf"aten\.\w+\.\w+ writes to a {cls.__name__}.*implements"),
        ):
            SHAPE_CHANGING[call](w)
        assert torch.equal(values_of(w), before)
        assert (w.size(), w.stride()) == (size, stride)


def test_a_class_that_cannot_encode_refuses_before_anything_is_written() -> None:
    class OneWay(WrapperTensor):
        a: torch.Tensor
        b: torch.Tensor
        fallback = Fallback.PLAIN

        def decode(self) -> torch.Tensor:
            return self.a + self.b

    w, plain = OneWay(torch.ones(2), torch.ones(2)), torch.zeros(2)
    assert (w + 1).tolist() == [3, 3]
    with pytest.raises(UnwrittenError, match=r"OneWay.*encode\(cls, values"):
        w.add_(1)
    with pytest.raises(UnwrittenError, match=r"OneWay.*encode"):
        torch._foreach_add_([plain, w], 1)
    assert values_of(w).tolist() == [2, 2]
    assert plain.tolist() == [0, 0], "nothing of the list was changed"


def test_a_class_that_cannot_decode_says_what_to_write() -> None:
    class Sealed(WrapperTensor):
        a: torch.Tensor
        b: torch.Tensor
        fallback = Fallback.PLAIN

    for call in (lambda w: w + 1, lambda w: w.to_plain(), lambda w: w == 1):
        with pytest.raises(NotImplementedError, match=r"Sealed.*decode\(self\)"):
            call(Sealed(torch.ones(2), torch.ones(2)))


class Compressed(WrapperTensor):
    """Holds what is not zero: other values need inner tensors of other shapes."""

    kept: torch.Tensor
    length: int
    fallback = Fallback.PLAIN

    @classmethod
    def outer_metadata(cls, kept: torch.Tensor, length: int) -> OuterMetadata:
        return OuterMetadata((length,), (1,), 0, kept.dtype, kept.device)

    @classmethod
    def encode(cls, values: torch.Tensor, **context: Any) -> Compressed:
        return cls(values[values != 0], len(values))

    def decode(self) -> torch.Tensor:
        return torch.cat([self.kept, self.kept.new_zeros(self.length - len(self.kept))])


def test_an_encode_that_changes_its_inner_shapes_is_refused() -> None:
    w = Compressed.from_plain(torch.ones(3))
    w.mul_(2)
    assert values_of(w).tolist() == [2, 2, 2]
    for call in (lambda: w.copy_(torch.tensor([1.0, 0.0, 0.0])), lambda: w.mul_(torch.tensor([1.0, 0.0, 0.0]))):
        with pytest.raises(UnwrittenError, match="other shapes"):
            call()
        assert values_of(w).tolist() == [2, 2, 2]


@pytest.mark.parametrize("order", [0, 1])
def test_one_of_two_written_wrappers_that_cannot_be_stored_leaves_both(order: int) -> None:
    """The error says that nothing was changed."""
    pair = [Compressed.from_plain(torch.ones(2)), Compressed.from_plain(torch.ones(2))]
    factors = [torch.full((2,), 3.0), torch.tensor([3.0, 0.0])]
    with pytest.raises(UnwrittenError):
        torch._foreach_mul_(pair, [factors[order], factors[1 - order]])
    assert [values_of(w).tolist() for w in pair] == [[1, 1], [1, 1]]


def test_writing_to_the_plain_side() -> None:
    for cls in KINDS:
        w, target = cls.from_plain(torch.ones(2, 2)), torch.zeros(2, 2)
        assert target.add_(w) is target
        assert torch.allclose(target, torch.ones(2, 2), atol=0.01)
        assert target.copy_(w) is target
        torch.add(w, 1, out=target)
        assert type(target) is torch.Tensor
        assert torch.allclose(target, torch.full((2, 2), 2.0), atol=0.02)
        torch._foreach_add_([target], [w])
        assert torch.allclose(target, torch.full((2, 2), 3.0), atol=0.03)


def test_a_plain_out_is_resized() -> None:
    target = torch.empty(0)
    torch.cat([Doubled.from_plain(torch.ones(2)), torch.zeros(1)], out=target)
    assert target.tolist() == [1, 1, 0]


def test_hidden_writes_arrive() -> None:
    """native_batch_norm writes its running statistics, and its schema doesn't say so."""
    mean, var = Doubled.from_plain(torch.zeros(3)), Doubled.from_plain(torch.ones(3))
    plain_mean, plain_var = torch.zeros(3), torch.ones(3)
    x = torch.randn(8, 3)
    torch.nn.functional.batch_norm(x, mean, var, training=True)
    torch.nn.functional.batch_norm(x, plain_mean, plain_var, training=True)
    close(mean, plain_mean)
    close(var, plain_var)
    assert float(plain_mean.abs().sum()) > 0


def test_version_counters_follow_writes() -> None:
    w, plain = Doubled.from_plain(torch.ones(2)), torch.ones(2)
    before = w._version
    for x in (w, plain):
        x.add_(1)
        torch.add(x, 1, out=x)
    assert w._version - before == plain._version


# nobody left in the dark


def fresh() -> Any:
    return type("Fresh", (Doubled,), {})


def test_hits_are_counted() -> None:
    cls = fresh()
    w = cls.from_plain(torch.ones(2, 2))
    for _ in range(3):
        w + 1
    w.mul_(2)
    assert op_table(cls)[aten.add.Tensor].hits == 3
    assert op_table(cls)[aten.mul_.Tensor].hits == 1


FALLS_BACK = {
    "add": lambda w: w + 1,
    "eq": lambda w: w == 1,
    "mm": lambda w: w @ w,
    "add_": lambda w: w.add_(1),
    "out": lambda w: torch.add(w, 1, out=w),
    "foreach": lambda w: torch._foreach_add_([w], 1),
    "view": lambda w: w.view(-1),
    "cat": lambda w: torch.cat([w, w]),
    "linear": lambda w: torch.nn.functional.linear(w, w),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", FALLS_BACK)
def test_under_strict_a_fallback_is_an_error_and_nothing_is_computed(call: str, mode: str) -> None:
    cls = fresh()
    w = cls.from_plain(torch.ones(2, 2))
    with MODES[mode](), strict(), pytest.raises(FallbackError, match=r"aten\.\w+\.\w+ on Fresh reached the PLAIN"):
        FALLS_BACK[call](w)
    assert values_of(w).tolist() == [[1, 1], [1, 1]]
    FALLS_BACK[call](w)


def test_strict_allows_rules_structure_and_transparent_types() -> None:
    cls = fresh()

    @cls.implements(aten.add.Tensor)
    def add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Any:
        return self

    w = cls.from_plain(torch.ones(2, 2))
    with strict():
        w + 1
        w.detach()
        w.clone()
        w.copy_(w.clone())
        w.to("cpu")
        w.to_plain()
        cls.from_plain(torch.ones(2))
        assert type(Clear(torch.ones(2)) + 1) is Clear
        repr(w)


def test_strict_nests_and_ends_with_an_error() -> None:
    w = fresh().from_plain(torch.ones(2))
    with strict():
        with strict():
            pass
        with pytest.raises(FallbackError):
            w + 1
    with pytest.raises(ValueError, match="mine"), strict():
        raise ValueError("mine")
    w + 1


def test_strict_as_decorator_or_reused() -> None:
    w = fresh().from_plain(torch.ones(2))

    @strict()
    def work() -> Any:
        return w + 1

    for _ in range(2):
        with pytest.raises(FallbackError):
            work()
    w + 1


MATRIX_PRODUCTS = {
    "mm": lambda w: torch.mm(w, w),
    "addmm": lambda w: torch.addmm(w, w, w),
    "mv": lambda w: torch.mv(w, torch.ones(2)),
    "bmm": lambda w: torch.bmm(_batched(w), _batched(w)),
    "linear": lambda w: torch.nn.functional.linear(torch.ones(3, 2), w),
}


def _batched(w: Any) -> Any:
    return type(w).from_plain(torch.ones(1, 2, 2))


@pytest.mark.parametrize("call", MATRIX_PRODUCTS)
def test_a_matrix_product_on_decoded_values_is_logged_once(call: str, caplog: pytest.LogCaptureFixture) -> None:
    cls = fresh()
    w = cls.from_plain(torch.ones(2, 2))
    with caplog.at_level(logging.WARNING, logger="lamina"):
        for _ in range(3):
            MATRIX_PRODUCTS[call](w)
    (record,) = caplog.records
    assert "Fresh" in record.message
    assert "aten." in record.message
    assert "decoded values" in record.message


def test_a_matrix_product_is_logged_once_for_each_class_and_not_again_after_a_registration(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, two = fresh(), fresh()
    with caplog.at_level(logging.WARNING, logger="lamina"):
        for cls in (one, two, one):
            torch.mm(cls.from_plain(torch.ones(2, 2)), torch.ones(2, 2))

        @one.implements(aten.neg.default)
        def neg(op: Any, self: Any) -> Any: ...

        torch.mm(one.from_plain(torch.ones(2, 2)), torch.ones(2, 2))
    assert len(caplog.records) == 2


def test_other_ops_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="lamina"):
        fresh().from_plain(torch.ones(2)) + 1
    assert caplog.records == []


# odd inputs


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 4), (1, 4), (4, 0), (2, 3, 4)])
def test_odd_shapes(shape: tuple[int, ...]) -> None:
    plain = torch.randn(shape)
    for cls in (Doubled, Sum):
        w = cls.from_plain(plain)
        assert torch.allclose(w + 1, values_of(w) + 1)
        assert w.add_(1) is w
        close(w, plain + 1)
        close(w.clone(), plain + 1)
        assert w.view(-1).shape == plain.view(-1).shape


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.complex128], ids=str)
def test_dtypes(dtype: torch.dtype) -> None:
    plain = torch.randn(3, 3).to(dtype)
    w = Doubled.from_plain(plain)
    for call in (
        lambda x: x + 1,
        lambda x: x @ x,
        lambda x: x.conj() if dtype.is_complex else x,
        lambda x: torch.linalg.pinv(x) if dtype.is_complex else x.t(),
        lambda x: torch.view_as_real(x.resolve_conj()) if dtype.is_complex else x,
        lambda x: x.mH @ x,
        lambda x: torch.fft.hfftn(x) if dtype.is_complex else x,
    ):
        expected, out = call(plain), call(w)
        out = out.to_plain() if isinstance(out, Doubled) else out
        assert torch.allclose(out.resolve_conj(), expected.resolve_conj(), atol=1e-2), call
    plain.conj().mul_(2j if dtype.is_complex else 2)
    w.mul_(-2j if dtype.is_complex else 2)
    assert torch.allclose(values_of(w), plain, atol=1e-2)


def test_a_conjugated_inner_tensor_is_decoded_right() -> None:
    plain = torch.randn(3, dtype=torch.complex64)
    w = Doubled((plain / 2).conj())
    assert torch.allclose(w + 0, plain.conj())
    w.mul_(2j)
    assert torch.allclose(values_of(w), plain.conj() * 2j)


def test_non_contiguous_and_expanded_inner_tensors() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    for inner in (base.t(), base[:, ::2], base[:1].expand(3, 4)):
        w = Doubled(inner)
        assert torch.equal(w + 0, inner * 2)
        assert torch.equal(w.clone() + 0, inner * 2)
    w = Doubled(base.clone().t())
    w.add_(2)
    assert torch.equal(w + 0, base.t() * 2 + 2)


def test_an_expanded_wrapper_refuses_writes_as_plain_does() -> None:
    w = Doubled(torch.ones(1).expand(3))
    with pytest.raises((UnwrittenError, RuntimeError)):
        w.add_(torch.arange(3.0))
    assert values_of(w).tolist() == [2, 2, 2]


def test_nan_and_inf_pass_through_a_fallback() -> None:
    w = Doubled.from_plain(torch.tensor([float("nan"), float("inf"), 1.0]))
    assert torch.isnan(w).tolist() == [True, False, False]
    assert torch.isinf(w).tolist() == [False, True, False]


def test_context_survives_a_write() -> None:
    w = Scaled.from_plain(torch.ones(2, 2), granularity=Granularity.TENSOR)
    w.add_(1)
    assert w.granularity is Granularity.TENSOR
    assert w.scale.dim() == 0


def test_optional_and_run_fields_survive() -> None:
    w = Sum((torch.ones(2), torch.ones(2), torch.ones(2)), torch.ones(2))
    assert (w + 0).tolist() == [4, 4]
    copy = w.clone()
    assert (len(copy.parts), copy.bias is None) == (3, False)
    with pytest.raises(UnwrittenError):
        w.add_(1)
    assert (w + 0).tolist() == [4, 4]


def test_a_field_may_have_any_name_of_a_decoded_view() -> None:
    class Recorded(Doubled):
        source: int = 0
        replay: int = 0

    w = Recorded.from_plain(torch.ones(2, 2))
    w[0].fill_(3)
    torch._foreach_add_([w, Recorded.from_plain(torch.ones(2, 2))], 1)
    assert (w @ w).tolist() == [[24, 24], [12, 12]]


def test_nested_decoding() -> None:
    plain = torch.randn(4, 4)
    for outer, inner in ((Clear, Doubled), (Clear, Scaled), (Doubled, Clear)):
        w = outer.from_plain(inner.from_plain(plain))
        close(w.to_plain(), plain)
        w.add_(1)
        close(w.to_plain(), plain + 1)
        torch._foreach_mul_([w], 2)
        close(w.to_plain(), (plain + 1) * 2)
