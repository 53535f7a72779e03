"""Random int8 tensors and random chains of ops on them, drawn by hypothesis: a step is the same call on any tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st

from lamina import Granularity, GridError, PerBlock, PerGroup, PerRow, PerTensor, ScaledInt8Tensor, WrapperTensor

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
Draw = Callable[[Any], Any]
Call = Callable[[Any], Any]


class Step(NamedTuple):
    """One op, as text for a failure, and as a call. ``keeps``: an int8 tensor stays one. ``cut``: of a slice, the dim
    and what it takes of it."""

    text: str
    call: Call
    keeps: bool = True
    cut: tuple[int, slice] | None = None


def divisors(size: int) -> list[int]:
    return [d for d in range(1, size + 1) if size % d == 0] or [1]


@st.composite
def granularities(draw: st.DrawFn, shape: tuple[int, ...]) -> Granularity:
    """Any that fits ``shape``."""
    rank = len(shape)
    kind = draw(st.sampled_from(["tensor", "row", *(["group", "block"] if rank else [])]))
    if kind == "group":
        return PerGroup(draw(st.sampled_from(divisors(shape[-1]))))
    if kind == "block":
        return PerBlock(tuple(draw(st.sampled_from([-1, *divisors(size)])) for size in shape))
    return PerTensor() if kind == "tensor" else PerRow()


@st.composite
def weights(draw: st.DrawFn, max_rank: int = 4, **recipe: Any) -> ScaledInt8Tensor:
    """Any int8 tensor of a few values, each block in its own order of magnitude."""
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 1, 2, 3, 4, 6]), max_size=max_rank)))
    granularity = draw(granularities(shape))
    torch.manual_seed(draw(st.integers(0, 2**16)))
    values = torch.randn(shape) * torch.exp(torch.randn(shape))
    return ScaledInt8Tensor.quantize(
        values,
        granularity,
        draw(st.sampled_from(DTYPES)),
        symmetric=draw(st.booleans()),
        **recipe,
    )


def _dim(draw: Draw, rank: int) -> int:
    return int(draw(st.integers(-rank, rank - 1)))


def _place(draw: Draw, size: int) -> int:
    return int(draw(st.integers(-size, size - 1)))


def t(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    name = draw(st.sampled_from(["t", "T"] if len(shape) == 2 else ["t"]))
    if len(shape) > 2:
        return None
    return Step(name, lambda x: x.T if name == "T" else x.t())


def transpose(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    if not shape:
        return None
    a, b = _dim(draw, len(shape)), _dim(draw, len(shape))
    return Step(f"transpose({a}, {b})", lambda x: x.transpose(a, b))


def permute(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    order = draw(st.permutations(range(len(shape))))
    return Step(f"permute({order})", lambda x: x.permute(order))


def squeeze(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    kind = draw(st.sampled_from(["all", "one", "some"] if shape else ["all"]))
    if kind == "all":
        return Step("squeeze()", lambda x: x.squeeze())
    if kind == "one":
        dim = _dim(draw, len(shape))
        return Step(f"squeeze({dim})", lambda x: x.squeeze(dim))
    dims = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    return Step(f"squeeze({dims})", lambda x: x.squeeze(tuple(dims)))


def unsqueeze(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    if len(shape) > 4:
        return None
    dim = _dim(draw, len(shape) + 1)
    return Step(f"unsqueeze({dim})", lambda x: x.unsqueeze(dim))


def expand(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    own = [draw(st.sampled_from([1, 3, 0, -1])) if size == 1 else draw(st.sampled_from([size, -1])) for size in shape]
    front = draw(st.lists(st.sampled_from([1, 2]), max_size=max(0, min(1, 4 - len(shape)))))
    size = (*front, *own)
    return Step(f"expand{size}", lambda x: x.expand(size))


def view(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    numel = math.prod(shape)
    size: list[int] = []
    left = numel
    for _ in range(draw(st.integers(0, 3))):
        size.append(draw(st.sampled_from(divisors(left) if left else [0, 1, 2])))
        left = left // size[-1] if size[-1] else 0
    if math.prod(size) != numel:
        size.append(left)
    if math.prod(size) != numel:
        return None
    return Step(f"view({size})", lambda x: x.view(size), keeps=False)


def reshape(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    """A copy where a view can't be."""
    made = view(draw, shape)
    size = None if made is None else made.call(torch.empty(shape)).shape
    return None if size is None else Step(f"reshape({size})", lambda x: x.reshape(size), keeps=False)


def flatten(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    if not shape:
        return Step("flatten()", lambda x: x.flatten(), keeps=False)
    first = draw(st.integers(0, len(shape) - 1))
    last = draw(st.integers(first, len(shape) - 1))
    return Step(f"flatten({first}, {last})", lambda x: x.flatten(first, last), keeps=False)


def slice_(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    if not shape:
        return None
    dim = draw(st.integers(0, len(shape) - 1))
    bound = st.one_of(st.none(), st.integers(-shape[dim] - 1, shape[dim] + 1))
    cut = slice(draw(bound), draw(bound), draw(st.sampled_from([1, 1, 1, 2, 3])))
    where = (*[slice(None)] * dim, cut)
    return Step(f"[{dim}: {cut}]", lambda x: x[where], cut=(dim, cut))


def narrow(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    if not shape:
        return None
    dim = _dim(draw, len(shape))
    start = draw(st.integers(0, shape[dim]))
    length = draw(st.integers(0, shape[dim] - start))
    cut = dim % len(shape), slice(start, start + length)
    return Step(f"narrow({dim}, {start}, {length})", lambda x: x.narrow(dim, start, length), cut=cut)


def select(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    if not shape:
        return None
    dim = _dim(draw, len(shape))
    if shape[dim] == 0:
        return None
    index = _place(draw, shape[dim])
    return Step(f"select({dim}, {index})", lambda x: x.select(dim, index))


def piece(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    """One piece of ``split``, ``chunk``, ``tensor_split`` or ``unbind``."""
    if not shape:
        return None
    dim = _dim(draw, len(shape))
    n = draw(st.integers(1, max(1, shape[dim])))
    which = draw(st.integers(0, 7))
    name = draw(st.sampled_from(["split", "chunk", "tensor_split", "unbind"]))
    if name == "unbind":
        return Step(f"unbind({dim})[{which}]", lambda x: _one(x.unbind(dim), which)) if shape[dim] else None
    return Step(f"{name}({n}, {dim})[{which}]", lambda x: _one(getattr(x, name)(n, dim=dim), which))


def _one(pieces: Any, which: int) -> Any:
    return pieces[which % len(pieces)]


def split_sizes(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    if not shape:
        return None
    dim = _dim(draw, len(shape))
    first = draw(st.integers(0, shape[dim]))
    sizes, which = [first, shape[dim] - first], draw(st.integers(0, 1))
    return Step(f"split({sizes}, {dim})[{which}]", lambda x: x.split(sizes, dim)[which])


VIEWS = [
    *(t, transpose, permute, squeeze, unsqueeze, expand, view, view),
    *(slice_, slice_, narrow, select, piece, split_sizes),
]


def index_select(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    if not shape:
        return None
    dim = _dim(draw, len(shape))
    index = draw(st.lists(st.integers(0, shape[dim] - 1), max_size=4)) if shape[dim] else []
    chosen = torch.tensor(index, dtype=draw(st.sampled_from([torch.int64, torch.int32])))
    return Step(f"index_select({dim}, {index})", lambda x: x.index_select(dim, chosen))


def index(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    if not shape:
        return None
    dim = draw(st.integers(0, len(shape) - 1))
    if shape[dim] == 0:
        return None
    size = draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,)] if len(shape) < 4 else [(3,)]))
    chosen = torch.randint(-shape[dim], shape[dim], size)
    where = (*[slice(None)] * dim, chosen)
    return Step(f"[{dim}: {chosen.tolist()}]", lambda x: x[where])


def mask(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    if not shape:
        return None
    dim = draw(st.integers(0, len(shape) - 1))
    chosen = torch.tensor(draw(st.lists(st.booleans(), min_size=shape[dim], max_size=shape[dim])), dtype=torch.bool)
    where = (*[slice(None)] * dim, chosen)
    return Step(f"[{dim}: mask {chosen.tolist()}]", lambda x: x[where], keeps=False)


def join(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    name = draw(st.sampled_from(["cat", "stack"]))
    if (name == "cat" and not shape) or (name == "stack" and len(shape) > 3):
        return None
    dim = _dim(draw, len(shape) + (name == "stack"))
    count = draw(st.integers(1, 3))
    return Step(f"{name}({count} x, {dim})", lambda x: getattr(torch, name)([x] * count, dim), keeps=False)


def cat_part(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    """With its first row, which has another size."""
    if not shape or not shape[0]:
        return None
    return Step("cat(x, x[:1])", lambda x: torch.cat([x, x[:1]]), keeps=False)


def copied(draw: Draw, shape: tuple[int, ...]) -> Step | None:
    name = draw(st.sampled_from(["clone", "contiguous", "clone contiguous", "detach"]))
    if name == "clone contiguous":
        return Step(name, lambda x: x.clone(memory_format=torch.contiguous_format))
    return Step(name, lambda x: getattr(x, name)())


JOINS = [reshape, flatten, index_select, index, mask, join, cat_part, copied]


def draw_step(draw: Draw, shape: tuple[int, ...], kinds: list[Any]) -> Step:
    made = draw(st.sampled_from(kinds))(draw, shape)
    return made if made is not None else Step("view as is", lambda x: x.view(x.shape))


def has_groups(w: Any) -> bool:
    return type(w) is ScaledInt8Tensor and max(w.blocks, default=1) > 1


def on_grid(step: Step, w: Any) -> bool:
    """Whether a slice falls on the borders of groups."""
    if step.cut is None or not has_groups(w):
        return True
    dim, cut = step.cut
    start, end, by = cut.indices(w.shape[dim])
    block = w.blocks[dim]
    return block in (1, -1) or (start % block == max(start, end) % block == 0 and by == 1)


def outcome(call: Call, x: Any) -> Any:
    """The result, or the error."""
    try:
        return call(x)
    except (RuntimeError, IndexError, ValueError) as error:
        return error


def take(step: Step, w: Any, plain: torch.Tensor, said: str) -> tuple[Any, torch.Tensor]:
    """One step on both; or none, where plain tensors or the grid refuse it. Asserts that they agree."""
    new, wanted = outcome(step.call, w), outcome(step.call, plain)
    if isinstance(new, GridError):
        assert has_groups(w), said
        assert step.cut is None or not on_grid(step, w), said
        return w, plain
    if isinstance(wanted, Exception):
        assert type(new) is type(wanted), said
        return w, plain
    assert not isinstance(new, Exception), f"{said}: {new!r}"
    assert (new.shape, new.dtype) == (wanted.shape, wanted.dtype), said
    if wanted.numel() or type(new) is ScaledInt8Tensor:  # decoding nothing keeps no strides
        assert new.stride() == wanted.stride(), said
    assert torch.equal(values_of(new), wanted), said
    if type(w) is ScaledInt8Tensor and step.keeps and (on_grid(step, w) if step.cut else not has_groups(w)):
        assert type(new) is ScaledInt8Tensor, said
    if type(new) is ScaledInt8Tensor:
        check_inner(new)
    return new, wanted


def take_steps(draw: Draw, w: ScaledInt8Tensor, plain: torch.Tensor, kinds: list[Any], most: int = 5) -> list[Any]:
    """A chain of steps on both: the two results, and what was done."""
    said = f"{w.granularity} of {tuple(w.shape)}, {w.dtype}, zero point: {w.zero_point is not None}"
    last: Any = w
    for _ in range(draw(st.integers(0, most))):
        step = draw_step(draw, tuple(plain.shape), kinds)
        said += f", {step.text}"
        last, plain = take(step, last, plain, said)
    return [last, plain, said]


def values_of(x: Any) -> torch.Tensor:
    return x.to_plain() if isinstance(x, WrapperTensor) else x


def check_inner(w: ScaledInt8Tensor) -> None:
    """What holds for every instance."""
    grid = w.granularity.scale_shape(w.shape)
    assert tuple(w.scale.shape) == grid
    assert (w.qdata.dtype, w.scale.dtype, w.dtype) == (torch.int8, torch.float32, w.logical_dtype)
    assert (w.qdata.shape, w.qdata.stride()) == (w.shape, w.stride())
    assert w.zero_point is None or (w.zero_point.dtype, tuple(w.zero_point.shape)) == (torch.int8, grid)


def block_numbers(shape: tuple[int, ...], blocks: tuple[int, ...]) -> torch.Tensor:
    """For each value the number of the block that it is in."""
    numbers = torch.zeros(shape, dtype=torch.int64)
    for dim, (size, block) in enumerate(zip(shape, blocks, strict=True)):
        places = torch.arange(size) // (block if block > 0 else max(size, 1))
        numbers = numbers * 1000 + places.view([-1] + [1] * (len(shape) - dim - 1))
    return numbers
