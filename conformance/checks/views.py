"""Views: what they cut, which shape they have, and that a list of them is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..calls import REFUSALS, Call, Y, compare, item, method, refused_by_step
from ..check import check
from ..outcome import MismatchError
from ..subject import VALUED, Kind, Subject

SHAPES = ((1, 8), (4, 1), (1, 1), (0, 8), (4, 0), (5, 7), (3,), (0,), (), (2, 3, 4))

RESHAPES = (
    method("view", 8, 4),
    method("view", -1),
    method("view", 2, 2, 8),
    method("view", 4, 8),
    method("reshape", 2, 16),
    method("flatten"),
    method("ravel"),
    method("unflatten", 1, (2, 4)),
    method("as_strided", (4, 8), (8, 1)),
    method("as_strided", (2, 3), (8, 1), 1),
    method("permute", 1, 0),
    method("t"),
    method("transpose", 0, -1),
    method("swapaxes", 0, 1),
    method("movedim", 0, 1),
    method("adjoint"),
    method("unsqueeze", 0),
    method("unsqueeze", -1),
    method("squeeze"),
    method("expand", 3, 4, 8),
    method("broadcast_to", (2, 4, 8)),
    method("unfold", 1, 4, 2),
    method("diagonal"),
    method("view_as", Y),
    method("narrow", 0, 1, 2),
)
POSSIBLE_ON_ANY = (
    method("flatten"),
    method("reshape", -1),
    method("unsqueeze", 0),
    method("squeeze"),
    method("squeeze", 0),
    method("unbind"),
    method("split", 2),
    method("chunk", 2, -1),
    method("select", 0, 0),
    method("narrow", -1, 0, 1),
    item(...),
    item(None),
    item(0),
    item(slice(0, 0)),
    item(..., slice(None, None, 2)),
    method("t"),
    method("movedim", 0, -1),
    method("contiguous"),
    method("clone"),
    method("sum"),
    method("add", 1),
)
IMPOSSIBLE = (
    method("view", 5),
    method("view", 3, -1),
    method("reshape", 7, 5),
    method("narrow", 0, 3, 4),
    method("narrow", 2, 0, 1),
    method("select", 0, 4),
    method("select", -3, 0),
    method("split", (1, 1)),
    method("expand", 5, 8),
    method("permute", 0, 0),
    method("transpose", 0, 2),
    method("unflatten", 1, (3, 3)),
    item(4),
    item(0, 0, 0),
    item([4]),
)


def cuts(shape: tuple[int, ...]) -> Iterator[Call]:
    """In half, and single slices, along every dim, counted from both ends."""
    for dim, size in enumerate(shape):
        half, rank = size // 2, len(shape)
        everything = (slice(None),) * dim
        yield method("narrow", dim, half, size - half)
        yield method("narrow", dim - rank, 0, half)
        yield method("select", dim, half)
        yield method("select", dim - rank, -1)
        yield item(*everything, slice(half, None))
        yield item(*everything, slice(None, -half))
        yield item(*everything, 1)


def lists(dims: int) -> Iterator[Call]:
    """Ops that return several views, along every dim."""
    for dim in range(dims):
        yield method("split", 2, dim)
        yield method("split", (1, 3) if dim == 0 else (4, 4), dim)
        yield method("chunk", 2, dim)
        yield method("chunk", 3, dim)
        yield method("tensor_split", 3, dim)
        yield method("unbind", dim)


def _try_any(subject: Subject, x: Any, plain: torch.Tensor, name: str) -> None:
    options: dict[str, Any] = {"refusable": refused_by_step, "impossible": True, "loosely": True}
    compare(subject, POSSIBLE_ON_ANY, x, plain, of=name, **options)


@check("views", "weight loaders slice and narrow quantized weights: wrong values, or scales that stay whole")
def cuts_are_right_along_every_dim(subject: Subject) -> None:
    """``narrow``, ``slice`` and ``select`` cut each dim, with the shape and the values that were
    asked for. Weight loaders do this; a refusal has to name the legal step."""
    plain = subject.plain(4, 8)
    compare(subject, cuts((4, 8)), subject.wrap(plain), subject.reference(plain), refusable=refused_by_step)


@check("views", "a slice off the block grid gives a corrupt tensor that fails later")
def cuts_off_the_grid_are_right_or_refused(subject: Subject) -> None:
    """A slice that cuts through a block of values with a common scale is right at once, or refused with the step: what
    comes out can be read, and computed with."""
    plain = subject.plain(4, 8)
    x, reference = subject.wrap(plain), subject.reference(plain)
    calls = (
        *(item(slice(1, 3)), item(slice(None), slice(1, 4)), item(slice(None, None, 3)), method("narrow", 1, 3, 4)),
        *(item(slice(None), slice(None, None, 3)), item(slice(1, 2), slice(7, 8))),
    )
    for call in calls:
        compare(subject, [call], x, reference, refusable=refused_by_step)
        try:
            cut = call({"x": x})
        except REFUSALS:
            continue
        subject.same(f"{call.text} * 2", cut * 2, call({"x": reference}) * 2)


@check("views", "split and chunk return one object, or pieces that report the whole shape")
def several_views_are_a_list_of_pieces(subject: Subject) -> None:
    """``split``, ``chunk``, ``tensor_split`` and ``unbind`` return a list along every dim; each piece has its own shape
    and its own values."""
    plain = subject.plain(4, 8)
    compare(subject, lists(2), subject.wrap(plain), subject.reference(plain), refusable=refused_by_step)


@check("views", "pieces of a split are copies: what is written to them is lost", kinds=VALUED)
def pieces_of_a_list_alias_the_source(subject: Subject) -> None:
    """A write to one piece of a list of views is seen in the tensor that was cut, and nowhere else in it."""
    plain = subject.plain(4, 8)
    for call in (method("split", 2), method("chunk", 2, 1), method("unbind"), method("unbind", 1)):
        x, expected = subject.wrap(plain), subject.reference(plain)
        call({"x": expected})[1].fill_(3.0)
        call.on({"x": x}, "pieces")[1].fill_(3.0)
        subject.stored(f"{call.text}[1].fill_(3.0)", x, expected)


@check("views", "q[:, [0, 2]] raises, or returns values of another column", kinds=VALUED)
def indexing_gives_the_values_asked_for(subject: Subject) -> None:
    """Integers, slices, lists, masks, None and ``...`` as an index; ``gather``, ``take`` and ``masked_select``."""
    plain = subject.plain(4, 8)
    reference = subject.reference(plain)
    rows, mask = torch.tensor([[3, 1], [0, 0], [2, 1], [3, 2]], device=plain.device), reference > 0
    calls = [
        *(item(1), item(-1), item(1, 2), item(..., 0), item(None, 1), item(slice(None), None)),
        *(item([0, 2]), item(slice(None), [0, 2]), item([3, 1], [2, 5]), item(Y), item(slice(1, 3), [4, 7])),
        *(method("index_select", 1, rows[0]), method("take", Y), method("gather", 0, Y)),
        method("take_along_dim", Y, 1),
    ]
    compare(subject, calls, subject.wrap(plain), reference, y=rows)
    masked = (item(Y), method("masked_select", Y), method("masked_fill", Y, 9.0))
    compare(subject, masked, subject.wrap(plain), reference, y=mask)


@check("views", "view, reshape, flatten and as_strided return the old shape, whatever was asked")
def views_have_the_geometry_asked_for(subject: Subject) -> None:
    """Shape and values of each view op; the strides, too, where instances stand for the inner tensor."""
    plain = subject.plain(4, 8)
    x, reference = subject.wrap(plain), subject.reference(plain)
    compare(subject, RESHAPES, x, reference, refusable=refused_by_step, y=reference)
    if subject.kind is Kind.REPRESENTATION:
        return
    for call in RESHAPES:
        got, expected = call({"x": x, "y": reference}), call({"x": reference, "y": reference})
        facts = [(each.stride(), each.storage_offset()) for each in (got, expected)]
        if facts[0] != facts[1]:
            text = "stride {}, offset {}"
            raise MismatchError(call.text, text.format(*facts[1]), text.format(*facts[0]))


@check("views", "a view that can't be is given all the same")
def impossible_views_raise(subject: Subject) -> None:
    """What torch refuses for a plain tensor (a wrong number of elements, a dim or an index out of range) is refused."""
    plain = subject.plain(4, 8)
    x, reference = subject.wrap(plain), subject.reference(plain)
    for call in IMPOSSIBLE:
        if subject.kind is Kind.FAKE and call is IMPOSSIBLE[-1]:  # an index among values
            continue
        try:
            call({"x": reference})
        except REFUSALS as error:
            expected = error
        else:
            continue
        try:
            got = call.on({"x": x}, expected)
        except MismatchError as error:
            if isinstance(error.__cause__, REFUSALS):
                continue
            raise
        raise MismatchError(call.text, expected, got)


@check("views", "(1, n) weights, empty and odd sizes fail where others work")
def small_and_odd_sizes_work(subject: Subject) -> None:
    """Views, indexing and a sum for sizes of 0 and 1, odd ones, and other ranks, as far as ``make`` takes them."""
    for shape in SHAPES:
        plain = subject.plain(*shape)
        if not subject.takes(plain):
            continue
        name = f"make(a tensor of shape {shape})"
        try:
            x, reference = subject.wrap(plain), subject.reference(plain)
        except Exception as error:
            raise MismatchError(f"the values of {name}", "values", error) from error
        subject.same(name, x, reference)
        _try_any(subject, x, reference, name)


@check("views", "ops on a transposed, strided or expanded wrapper read the wrong elements")
def non_contiguous_inputs_work(subject: Subject) -> None:
    """Ops on wrappers that are transposed, cut with a step, or expanded: views of an instance, and instances made of
    such tensors."""
    plain = subject.plain(4, 8)
    x, reference = subject.wrap(plain), subject.reference(plain)
    for call in (method("t"), item(slice(None, None, 2)), item(slice(1, 2)), method("unsqueeze", 1)):
        got, expected = call.on({"x": x}), call({"x": reference})
        _try_any(subject, got, expected, call.text)
    row, wanted = x[:1].expand(4, 8), reference[:1].expand(4, 8)
    _try_any(subject, row, wanted, "x[0:1].expand(4, 8)")
    for name, given in (("plain.t()", subject.plain(8, 4).t()), ("plain[:, ::2]", subject.plain(4, 16)[:, ::2])):
        made: Any = subject.make(given)
        values = given.clone() if subject.kind is Kind.FAKE else subject.values(made).clone()
        _try_any(subject, made, values, f"make({name})")


@check("views", "a view of a view loses its place, or what is written to it", kinds=VALUED)
def views_of_views_are_right(subject: Subject) -> None:
    """Chains of views: values at each step, and a write at the end that the first tensor sees."""
    plain = subject.plain(4, 8)
    chains = (
        (method("t"), item(1)),
        (item(slice(2, None)), method("t"), item(slice(0, 4))),
        (method("unsqueeze", 0), method("transpose", 1, 2), method("select", 1, 3)),
        (method("chunk", 2), item(1), item(0)),
        (method("view", 2, 2, 8), method("select", 0, 1), method("t")),
    )
    for chain in chains:
        x, expected = subject.wrap(plain), subject.reference(plain)
        got, wanted, text = x, expected, "x"
        for call in chain:
            got, wanted, text = call.on({"x": got}), call({"x": wanted}), call.text.replace("x", text, 1)
            subject.same(text, got, wanted)
        got.fill_(2.5)
        wanted.fill_(2.5)
        subject.stored(f"{text}.fill_(2.5)", x, expected)
