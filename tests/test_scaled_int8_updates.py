"""In-place ops in pieces of some rows: bit for bit what the whole at once gives, or an error that changes nothing.

Sizes are such that torch's kernels compute all values with vectors: those of ``atan2`` and the like round some values
otherwise than the scalar code for what is left over does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lamina
from lamina import Granularity, LoggingTensor, PerBlock, PerGroup, PerRow, PerTensor, ScaledInt8Tensor
from lamina.subclasses.core.schema import Kind, facts_of
from lamina.subclasses.scaled_int8 import updates

SMALL, HUGE = 128, 2**60  # elements of a piece: two rows of 64 here; all
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
MODES: dict[str, Any] = {"grad": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


@contextmanager
def pieces_of(monkeypatch: pytest.MonkeyPatch, elements: int) -> Iterator[list[torch.Size]]:
    """Pieces have so many ``elements`` inside. Gives the shapes of those that were written."""
    seen: list[torch.Size] = []
    requantize_ = updates.requantize_

    def counted(target: Any, *args: Any) -> None:
        seen.append(target.qdata.shape)
        requantize_(target, *args)

    with monkeypatch.context() as patch:
        patch.setattr(updates, "PIECE", elements)
        patch.setattr(updates, "requantize_", counted)
        yield seen


def made(granularity: Granularity | None = None, shape: tuple[int, ...] = (7, 64), **recipe: Any) -> ScaledInt8Tensor:
    return ScaledInt8Tensor.quantize(torch.randn(shape), granularity or PerRow(), **recipe)


def leaves(w: Any) -> list[torch.Tensor]:
    return [t.clone() for t in lamina.leaf_tensors(w)]


def assert_same_bits(a: Any, b: Any) -> None:
    for x, y in zip(lamina.leaf_tensors(a), lamina.leaf_tensors(b), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)


def assert_in_pieces(monkeypatch: pytest.MonkeyPatch, w: Any, write: Callable[[Any], Any], pieces: int = 4) -> None:
    """``write`` works in so many ``pieces`` of ``w``, and gives what it gives on the whole, and on plain values."""
    one, whole, reference = w.clone(), w.clone(), w.dequantize()
    places = [t.data_ptr() for t in lamina.leaf_tensors(one)]
    version = one._version
    with pieces_of(monkeypatch, SMALL) as seen:
        assert write(one) is one
    assert len(seen) == pieces
    assert sum(shape[0] for shape in seen) == len(w)
    with pieces_of(monkeypatch, HUGE) as seen:
        write(whole)
    assert seen == []
    assert_same_bits(one, whole)
    assert not all(torch.equal(x, y) for x, y in zip(leaves(one), leaves(w), strict=True))
    write(reference)
    assert torch.equal(one.dequantize(), w.requantize(reference).dequantize())
    assert [t.data_ptr() for t in lamina.leaf_tensors(one)] == places
    assert one._version == version + 1


def assert_as_a_whole(monkeypatch: pytest.MonkeyPatch, w: Any, write: Callable[[Any], Any]) -> None:
    """``write`` isn't done in pieces, and is right."""
    reference = w.dequantize()
    with pieces_of(monkeypatch, SMALL) as seen:
        assert write(w) is w
    assert seen == []
    write(reference)
    expected = ScaledInt8Tensor.quantize(reference, PerBlock(w.blocks), symmetric=w.zero_point is None)
    assert torch.equal(w.dequantize(), expected.dequantize())


OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda w, v: w.add_(v),
    "add_ alpha": lambda w, v: w.add_(v, alpha=-3),
    "sub_": lambda w, v: w.sub_(v, alpha=2),
    "mul_": lambda w, v: w.mul_(v),
    "div_": lambda w, v: w.div_(v),
    "div_ floor": lambda w, v: w.div_(v, rounding_mode="floor"),
    "addcmul_": lambda w, v: w.addcmul_(v, v, value=0.5),
    "addcdiv_": lambda w, v: w.addcdiv_(v, v + 1, value=2),
    "lerp_": lambda w, v: w.lerp_(v.to(w.dtype), 0.3),
    "lerp_ tensor": lambda w, v: w.lerp_(v.to(w.dtype), v.to(w.dtype)),
    "clamp_": lambda w, v: w.clamp_(-v, v),
    "clamp_min_": lambda w, v: w.clamp_min_(v),
    "pow_": lambda w, v: w.pow_(v * 0 + 2),
    "atan2_": lambda w, v: w.atan2_(v),
    "+=": lambda w, v: w.__iadd__(v),
}
OPERANDS: dict[str, Callable[[], torch.Tensor]] = {
    "full": lambda: torch.rand(7, 64) + 0.5,
    "row": lambda: torch.rand(64) + 0.5,
    "row of rank 2": lambda: torch.rand(1, 64) + 0.5,
    "column": lambda: torch.rand(7, 1) + 0.5,
    "one": lambda: torch.rand(1, 1) + 0.5,
    "0-d": lambda: torch.rand(()) + 0.5,
    "float64 0-d": lambda: torch.rand((), dtype=torch.float64) + 0.5,
    "expanded row": lambda: (torch.rand(64) + 0.5).expand(7, 64),
    "expanded column": lambda: (torch.rand(7, 1) + 0.5).expand(7, 64),
    "transposed": (torch.rand(64, 7) + 0.5).t,
    "strided": lambda: (torch.rand(14, 192) + 0.5)[::2, ::3],
    "a parameter": lambda: nn.Parameter(torch.rand(7, 64) + 0.5),
}


@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("name", OPS)
def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch, name: str, operand: str) -> None:
    v = OPERANDS[operand]()
    with torch.no_grad():
        assert_in_pieces(monkeypatch, made(), lambda w: OPS[name](w, v))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    ("granularity", "shape", "pieces"),
    [
        (PerRow(), (7, 64), 4),
        (PerRow(), (8, 64), 4),
        (PerRow(), (5, 256), 5),  # a row is more than a piece
        (PerRow(), (1000, 1), 8),
        (PerRow(), (6, 2, 64), 6),
        (PerGroup(4), (7, 64), 4),
        (PerGroup(1), (7, 64), 4),
        (PerBlock((1, -1)), (7, 64), 4),
        (PerBlock((1, 2, -1)), (6, 2, 64), 6),
        (PerBlock((1, -1, -1)), (6, 2, 64), 6),
        (PerBlock((1, 1)), (7, 64), 4),
        (PerBlock((1,)), (300,), 3),
    ],
)
def test_every_recipe(
    monkeypatch: pytest.MonkeyPatch, granularity: Any, shape: Any, pieces: int, symmetric: bool, dtype: Any
) -> None:
    w = made(granularity, shape, symmetric=symmetric, logical_dtype=dtype)
    v = torch.randn(shape).to(dtype)
    assert_in_pieces(monkeypatch, w, lambda w: w.add_(v), pieces)
    assert_in_pieces(monkeypatch, w, lambda w: w.mul_(-3), pieces)
    assert_in_pieces(monkeypatch, w, lambda w: w.mul_(torch.arange(2, shape[-1] + 2)), pieces)


@pytest.mark.parametrize("mode", MODES)
def test_in_every_mode(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    with MODES[mode]():
        w, whole = made(), None
        whole = w.clone()
        with pieces_of(monkeypatch, SMALL) as seen:
            w.mul_(2.5)
        assert len(seen) == 4
        whole.mul_(2.5)
    assert_same_bits(w, whole)


@pytest.mark.parametrize(
    "view",
    [lambda w: w[1:], lambda w: w[::2], lambda w: w.view(7, 2, 32), lambda w: w.unsqueeze(1), lambda w: w.detach()],
)
def test_a_view_that_owns_its_scales(monkeypatch: pytest.MonkeyPatch, view: Callable[[Any], Any]) -> None:
    one, whole = made(PerGroup(4)), None
    whole = one.clone()
    with pieces_of(monkeypatch, SMALL) as seen:
        view(one).mul_(3).add_(1)
    assert len(seen) > 2
    view(whole).mul_(3).add_(1)
    assert_same_bits(one, whole)


def test_nan_and_infinity_make_their_row_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    v = torch.zeros(7, 64)
    v[1, 3], v[6, 0] = float("nan"), float("inf")
    w = made()
    with pieces_of(monkeypatch, SMALL) as seen:
        w.add_(v)
    assert len(seen) == 4
    assert w.dequantize().isnan().all(1).tolist() == [False, True, False, False, False, False, True]
    assert not w.dequantize()[:1].isnan().any()


def samples(op: Any) -> list[Any]:
    """Arguments for each parameter behind ``self``, from the schema."""
    kinds: dict[str, Any] = {"Tensor": torch.rand(7, 64) + 0.5, "Scalar": 2, "float": 2.0, "int": 1, "str": "floor"}
    kinds["number"] = 2
    if op.overloadpacket.__name__ in ("clamp_", "clip_"):  # all optional, and one has to be there
        return [kinds["Tensor"]] if op._overloadname == "Tensor" else [0.2]
    args = []
    for argument in op._schema.arguments[1:]:
        if argument.has_default_value():
            break
        kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
        args.append(kinds[kind])
    return args


def elementwise_ops() -> list[Any]:
    """Every in-place op that may be done in pieces."""
    ops = []
    for schema in torch._C._jit_get_all_schemas():
        packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"), None)
        if not schema.name.startswith("aten::") or packet is None:
            continue
        op = getattr(packet, schema.overload_name or "default", None)
        if op is not None and Kind.INPLACE in facts_of(op).kinds and facts_of(op).flat_write:
            ops.append(op)
    return [op for op in ops if facts_of(op).elementwise_write]


def test_every_elementwise_op_gives_in_pieces_what_it_gives_on_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the same error, which changes nothing. A new op that looks at its neighbours, and is marked pointwise, shows
    here."""
    ran = set()
    for op in elementwise_ops():
        args = samples(op)
        one = ScaledInt8Tensor.quantize(torch.rand(7, 64))
        whole, before, outcomes = one.clone(), leaves(one), []
        for w, elements in ((one, SMALL), (whole, HUGE)):
            with pieces_of(monkeypatch, elements) as seen:
                try:
                    op(w, *args)
                except (RuntimeError, ValueError) as error:
                    outcomes.append(str(error))
                else:
                    outcomes.append(None)
                    if seen:
                        ran.add(str(op))
        assert outcomes[0] == outcomes[1], op
        assert_same_bits(one, whole)
        if outcomes[0] is not None:
            assert all(torch.equal(a, b) for a, b in zip(leaves(one), before, strict=True)), op
    assert {"aten.add_.Tensor", "aten.addcdiv_.default", "aten.lerp_.Scalar", "aten.clamp_.Tensor"} <= ran
    assert len(ran) > 80


# what has to be decoded as a whole

WHOLE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "one scale": (lambda: made(PerTensor()), lambda w: w.mul_(2).add_(1)),
    "blocks of rows": (lambda: made(PerBlock((2, -1)), (6, 64)), lambda w: w.add_(1)),
    "transposed": (lambda: made().t(), lambda w: w.add_(torch.arange(7.0))),
    "a vector in groups": (lambda: made(PerGroup(4), (512,)), lambda w: w.add_(1)),
    "few elements": (lambda: made(shape=(3, 64)), lambda w: w.add_(1)),
    "no elements": (lambda: made(shape=(0, 8)), lambda w: w.add_(1)),
    "sums over rows": (made, lambda w: w.cumsum_(0)),
    "by row number": (made, lambda w: w.tril_()),
    "a product": (made, lambda w: w.addmm_(torch.ones(7, 2), torch.ones(2, 64))),
}


@pytest.mark.parametrize("name", WHOLE)
def test_as_a_whole(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    make, write = WHOLE[name]
    assert_as_a_whole(monkeypatch, make(), write)


OTHERS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda w: w.mul_(w),
    "another": lambda w: w.add_(ScaledInt8Tensor.quantize(torch.full((64, 64), 3.0))),
    "an observed tensor": lambda w: w.add_(LoggingTensor(torch.full((64, 64), 3.0)).to_plain()),
    "its payload": lambda w: w.add_(w.qdata),
    "a view of its payload": lambda w: w.add_(w.qdata.t()),
    "a row of its payload": lambda w: w.add_(w.qdata[7]),
    "its scale": lambda w: w.div_(w.scale),
    "its scale, turned": lambda w: w.div_(w.scale.t()),
    "one scale": lambda w: w.div_(w.scale[7]),
    "its zero point": lambda w: w.add_(w.zero_point.t()),
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_operand_that_the_write_changes_is_read_before(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A later piece must not see what an earlier one wrote."""
    w = made(shape=(64, 64), symmetric=False)
    frozen, reference = w.clone(), w.dequantize()
    with pieces_of(monkeypatch, SMALL) as seen:
        assert OTHERS[name](w) is w
    assert (len(seen) > 0) is (name == "an observed tensor")
    values = {"qdata": frozen.qdata, "scale": frozen.scale, "zero_point": frozen.zero_point}
    for key, value in values.items():
        setattr(reference, key, value)
    OTHERS[name](reference)
    assert torch.equal(w.dequantize(), frozen.requantize(reference).dequantize())


def test_a_view_with_a_shared_scale_writes_through_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    w = made(shape=(8, 8))
    reference = w.dequantize()
    with pieces_of(monkeypatch, 4) as seen:
        w[:, 2:6].mul_(3)
    assert seen == []
    reference[:, 2:6].mul_(3)
    assert torch.equal(w.dequantize(), w.requantize(reference).dequantize())


@pytest.mark.parametrize("view", [lambda w: w.expand(7, 8), lambda w: w[:, :1].expand(1, 64)])
def test_an_expanded_view_is_refused_as_a_plain_one_is(monkeypatch: pytest.MonkeyPatch, view: Any) -> None:
    w = made(shape=(1, 8))
    before = leaves(w)
    with pieces_of(monkeypatch, 8), pytest.raises(RuntimeError, match="single memory location"):
        view(w).mul_(3)
    assert all(torch.equal(a, b) for a, b in zip(leaves(w), before, strict=True))


def test_an_expanded_column_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    w = made(shape=(8, 1))
    before = leaves(w)
    with pieces_of(monkeypatch, 16), pytest.raises(RuntimeError, match="single memory location"):
        w.expand(8, 8).mul_(3)
    assert all(torch.equal(a, b) for a, b in zip(leaves(w), before, strict=True))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_sparse_operand(monkeypatch: pytest.MonkeyPatch, layout: torch.layout) -> None:
    sparse = torch.eye(64).to_sparse(layout=layout)
    assert_as_a_whole(monkeypatch, made(shape=(64, 64)), lambda w: w.add_(sparse))


def test_sparse_gradients_of_an_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    table = nn.Embedding(16, 64, sparse=True)
    table.weight = nn.Parameter(ScaledInt8Tensor.quantize(table.weight.detach()))
    reference = table.weight.dequantize().detach()
    table(torch.tensor([3, 3, 12])).sum().backward()
    with pieces_of(monkeypatch, SMALL):
        torch.optim.SGD(table.parameters(), lr=0.5).step()
    reference[3] -= 1.0
    reference[12] -= 0.5
    assert torch.equal(table.weight.dequantize(), ScaledInt8Tensor.quantize(reference).dequantize())


def test_compiled_code_decodes_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made()
    whole = one.clone()
    with pieces_of(monkeypatch, SMALL) as seen:
        torch.compile(lambda w: w.mul_(3).add_(1), backend="aot_eager", fullgraph=True)(one)
    assert seen == []
    whole.mul_(3).add_(1)
    assert_same_bits(one, whole)


# errors

FAILS: dict[str, Callable[[Any], Any]] = {
    "rows of a piece": lambda w: w.add_(torch.ones(2, 64)),  # fits all pieces but the last
    "columns": lambda w: w.add_(torch.ones(7, 3)),
    "rows": lambda w: w.mul_(torch.ones(6, 1)),
    "rank": lambda w: w.add_(torch.ones(1, 7, 64)),
    "rank of batches": lambda w: w.add_(torch.ones(2, 7, 64)),
    "one of two operands": lambda w: w.addcmul_(torch.ones(7, 64), torch.ones(2, 64)),
    "no elements": lambda w: w.add_(torch.ones(0, 64)),
    "a complex number": lambda w: w.add_(1j),
    "complex": lambda w: w.add_(torch.ones(7, 64, dtype=torch.complex64)),
    "bits": lambda w: w.bitwise_and_(3),
    "rounding mode": lambda w: w.div_(torch.ones(7, 64), rounding_mode="up"),
    "lerp of two dtypes": lambda w: w.lerp_(torch.ones(7, 64, dtype=torch.float64), 0.5),
}


@pytest.mark.parametrize("name", FAILS)
def test_what_fails_on_plain_tensors_fails_alike_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    w = made(symmetric=False)
    before = leaves(w)
    with pytest.raises(RuntimeError) as plain:
        FAILS[name](w.dequantize())
    with pieces_of(monkeypatch, SMALL), pytest.raises(RuntimeError) as caught:
        FAILS[name](w)
    assert str(caught.value).partition("\n")[0] == str(plain.value).partition("\n")[0]
    assert all(torch.equal(a, b) for a, b in zip(leaves(w), before, strict=True))


def test_rows_of_a_piece_where_all_pieces_are_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece would take the operand."""
    w = made(shape=(8, 64))
    before = leaves(w)
    with pieces_of(monkeypatch, SMALL) as seen, pytest.raises(RuntimeError, match="must match the size"):
        w.add_(torch.ones(2, 64))
    assert seen == []
    assert all(torch.equal(a, b) for a, b in zip(leaves(w), before, strict=True))


# stochastic rounding


def test_each_piece_has_random_numbers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    w = ScaledInt8Tensor.quantize(torch.ones(64, 1).mul(torch.linspace(-1, 1, 64)), rounding="stochastic")
    w.qdata.copy_(w.qdata[:1].clone().expand(64, 64))
    nearest, exact = w.clone(), w.dequantize().double().mul(0.77).add(0.1)
    nearest.rounding = "nearest"
    with pieces_of(monkeypatch, 128) as seen:
        w.mul_(0.77).add_(0.1)
    assert len(seen) == 64
    assert len({tuple(row) for row in w.qdata.tolist()}) > 32
    step = w.scale.double()
    assert ((w.dequantize().double() - exact).abs() <= 2 * step * (1 + 2**-14)).all()
    torch.testing.assert_close(w.scale, nearest.mul_(0.77).add_(0.1).scale, rtol=0.02, atol=0)


def test_stochastic_pieces_are_unbiased(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of n draws of one step is within 4 standard errors, of at most half a step / sqrt(n) each."""
    draws = 4096
    values = torch.tensor([[1.0, 0.5031, 0.1234, -0.777]]).expand(draws, 4)
    w = ScaledInt8Tensor.quantize(torch.zeros(draws, 4), rounding="stochastic")
    with pieces_of(monkeypatch, 512) as seen:
        w.add_(values)
    assert len(seen) == 32
    error = (w.dequantize().double().mean(0) - values[0].double()).abs()
    assert (error <= 4 * w.scale[0].double() * (0.5 / draws**0.5 + 2**-15)).all()


# the point of it


def test_no_float_copy_of_the_whole_is_made() -> None:
    w, v = made(shape=(1024, 1024)), torch.randn(1024, 1024)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, profile_memory=True, acc_events=True) as profile:
        w.addcmul_(v, v, value=0.1)
    assert max(event.cpu_memory_usage for event in profile.events()) <= 4 * updates.PIECE < 4 * w.numel()


@pytest.mark.parametrize("observed", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_an_optimizer_updates_in_pieces(monkeypatch: pytest.MonkeyPatch, kind: Any, observed: bool) -> None:
    results: list[Any] = []
    start, x = torch.randn(16, 64), torch.randn(4, 64)
    for elements in (SMALL, HUGE):
        w: Any = ScaledInt8Tensor.quantize(start)
        p = nn.Parameter(LoggingTensor(w) if observed else w)
        optimizer = kind([p], lr=0.1, weight_decay=0.01, foreach=False)
        with pieces_of(monkeypatch, elements) as seen:
            for _ in range(3):
                optimizer.zero_grad()
                F.linear(x, p).square().sum().backward()
                optimizer.step()
        assert (len(seen) > 0) is (elements == SMALL)
        results.append(p.detach())
    assert_same_bits(*results)
