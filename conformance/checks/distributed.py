"""DTensor, collectives, and what they ask of a class, over gloo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ..check import check
from ..outcome import KnownLimit, MismatchError, NotApplicable
from ..refusal import is_refusal
from ..subject import VALUED, Subject, inner_tensors
from ..world import in_world_of_two, world_of_one
from .sharding import Watched, check_class, close, shard_class, whole

if dist.is_available():  # once here: each check runs in a process of its own, and would import them again
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.experimental import implicit_replication

BLOCKS = r"multiple|divisible|block|group"  # what a refusal to cut has to speak of


@check("distributed", "a handler computes with a DTensor as if it were a plain tensor", kinds=VALUED)
def dtensors_mix_with_instances(subject: Subject) -> None:
    """Where an instance meets a DTensor, the class leaves the call to DTensor, or asks it itself: the values are right.
    Where torch refuses the mix, ``==`` does not become a plain ``False``."""
    x, plain = subject.new(4, 8), subject.reference(subject.plain(4, 8))
    other = subject.plain(4, 8, seed=1)
    with world_of_one(subject) as mesh:
        distributed = DTensor.from_local(other, mesh, [Replicate()])
        with implicit_replication():
            for call, run in (
                ("x + dtensor", lambda a, b: a + b),
                ("dtensor * x", lambda a, b: b * a),
                ("torch.mm(x, dtensor.t())", lambda a, b: torch.mm(a, b.t())),
            ):
                got = whole(subject, run(x, distributed))
                subject.same(f"{call} under implicit_replication()", got, run(plain, other), loosely=True)
        try:
            answer = x == distributed
        except Exception as error:
            if not is_refusal(error, "DTensor"):
                raise MismatchError("x == dtensor", "an error that says DTensor", error) from error
        else:
            check_class("x == dtensor", answer, torch.Tensor)


def multiplied_alike(subject: Subject, rank: int, mesh: Any) -> None:
    """DTensors of the class, of each placement: their parts, their whole and their product."""
    size = mesh.size()
    plain = subject.reference(subject.plain(4, 8)).requires_grad_()
    x = subject.plain(3, 8, seed=2)
    expected = F.linear(x, plain)
    expected.square().sum().backward()
    for dim, placement in ((None, Replicate()), (0, Shard(0)), (1, Shard(1))):
        call = f"DTensor.from_local(x, mesh, [{placement}])"
        part = subject.new(4, 8)
        part = part if dim is None else part.chunk(size, dim)[rank]
        weight: Any = nn.Parameter(DTensor.from_local(part, mesh, [placement]))
        check_class(f"{call}.to_local()", weight.to_local(), type(part))
        subject.same(f"{call}.shape", tuple(weight.shape), (4, 8))
        subject.same(f"{call}.full_tensor()", whole(subject, weight), plain)
        moved = weight.detach().redistribute(mesh, [Replicate() if dim == 0 else Shard(0)])
        subject.same(f"{call}.redistribute(mesh, {list(moved.placements)}).full_tensor()", whole(subject, moved), plain)
        product: Any = F.linear(DTensor.from_local(x, mesh, [Replicate()]), weight)
        subject.same(f"F.linear(dtensor, {call})", whole(subject, product), expected, loosely=True)
        product.full_tensor().square().sum().backward()
        subject.same(f"the gradient of {call} in F.linear", whole(subject, weight.grad), plain.grad, loosely=True)


@check("distributed", "a DTensor of wrappers loses the class, or multiplies the raw payload", kinds=VALUED)
def dtensors_hold_the_class(subject: Subject) -> None:
    """``DTensor.from_local`` over an instance, replicated and sharded along each dim: the local part is of the class,
    the whole, also redistributed, a linear product and its gradient have the right values."""
    with world_of_one(subject) as mesh:
        multiplied_alike(subject, 0, mesh)


@check("distributed", "tensor-parallel shards lose the scale", kinds=VALUED, quick=False)
def dtensors_on_two_ranks_hold_the_class(subject: Subject) -> None:
    """As in a world of one, where each rank holds a part of its own."""
    in_world_of_two(subject, lambda rank, mesh: multiplied_alike(subject, rank, mesh))


def levels(value: Any) -> list[type]:
    """The classes of all levels of wrapping."""
    found, tensors = [], [value]
    while tensors:
        each = tensors.pop()
        found.append(type(each))
        tensors += inner_tensors(each)
    return found


@check("distributed", "distribute_tensor crashes on a wrapper", kinds=VALUED)
def distribute_tensor_cuts_values(subject: Subject) -> None:
    """``distribute_tensor`` of an instance, replicated or sharded, gives a DTensor of its values."""
    plain = subject.reference(subject.plain(4, 8))
    with world_of_one(subject) as mesh:
        for placement in (Replicate(), Shard(0), Shard(1)):
            x = subject.new(4, 8)
            if isinstance(placement, Shard) and levels(torch.empty_like(x)) != levels(x):
                raise KnownLimit(
                    "torch scatters the parts of x into empty_like of one, which is plain for this class: the "
                    "dispatcher does not look for wrappers in lists of lists, and gloo reads memory that is not there. "
                    "Cut x by chunk(), and call DTensor.from_local."
                )
            got = distribute_tensor(x, mesh, [placement])
            call = f"distribute_tensor(x, mesh, [{placement}])"
            check_class(f"{call}.to_local()", got.to_local(), subject.cls)
            subject.same(f"{call}.full_tensor()", got.full_tensor(), plain)


@check("distributed", "scatter of a module's inputs drops the class", kinds=VALUED)
def scattered_inputs_keep_the_class(subject: Subject) -> None:
    """What moves inputs to workers keeps the class: ``to``, ``chunk``, the inputs of ``DistributedDataParallel`` and
    ``fully_shard``, and collectives that send objects."""
    x, plain = subject.new(4, 8), subject.reference(subject.plain(4, 8))
    for call, run in (
        ("x.to(device)", lambda x: [x.to(subject.device)]),
        ("x.to(device, non_blocking=True)", lambda x: [x.to(subject.device, non_blocking=True)]),
        ("x.chunk(2)", lambda x: x.chunk(2)),
        ("x.split([1, 3])", lambda x: x.split([1, 3])),
    ):
        pieces = run(x)
        subject.same(call, pieces, run(plain))
        for piece in pieces:
            check_class(call, piece, subject.cls if call.startswith("x.to") else shard_class(subject))
    with world_of_one(subject) as mesh:
        received: list[Any] = [None]
        sends: dict[str, Callable[[], Any]] = {
            "dist.scatter_object_list(out, [x])": lambda: dist.scatter_object_list(received, [x]),
            "dist.all_gather_object(out, x)": lambda: dist.all_gather_object(received, x),
        }
        for call, send in sends.items():
            send()
            check_class(call, received[0], subject.cls)
            subject.same(call, received[0], plain)
        wraps: dict[str, Callable[[Any], Any]] = {
            "DistributedDataParallel": nn.parallel.DistributedDataParallel,
            "fully_shard": lambda layer: fully_shard(layer, mesh=mesh),
        }
        for name, wrap in wraps.items():
            layer = Watched(subject, wrapped=False)
            wrap(layer)(x)
            if not issubclass(layer.found[0], subject.cls):
                raise MismatchError(f"the input that the forward of {name}(layer) gets", subject.cls, layer.found[0])


@check("distributed", "a collective on a wrapper crashes the process, or sends the raw payload", kinds=VALUED)
def collectives_send_values(subject: Subject) -> None:
    """``broadcast``, ``all_reduce`` and ``all_gather`` of an instance give its values, or say that they can't."""
    plain = subject.reference(subject.plain(4, 8))

    def gathered(x: Any) -> Any:
        out = [torch.empty_like(plain)]
        dist.all_gather(out, x)
        return out[0]

    def in_place(collective: Callable[..., Any], *args: Any) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            collective(x, *args)
            return x

        return run

    with world_of_one(subject):
        for call, run in (
            ("dist.all_gather([plain], x)", gathered),
            ("dist.broadcast(x, 0)", in_place(dist.broadcast, 0)),
            ("dist.all_reduce(x)", in_place(dist.all_reduce)),
        ):
            try:
                got = run(subject.new(4, 8))
            except Exception as error:
                if not is_refusal(error, subject.cls.__name__):
                    raise MismatchError(call, "values, or an error that names the class", error) from error
            else:
                close(subject).same(call, got, plain)


@check("distributed", "scales are not sharded with the weight in tensor parallel")
def inner_tensors_keep_the_rank(subject: Subject) -> None:
    """Inner tensors (scales, too) have the rank of the wrapper, and along each dim its size or one that divides it: so
    ``Shard(dim)`` means the same for all of them."""
    x = subject.new(4, 8)
    flatten = getattr(x, "__tensor_flatten__", None)
    names = flatten()[0] if flatten is not None else []
    for name in names:
        shape = tuple(getattr(x, name).shape)
        fits = len(shape) == 2 and all(size and outer % size == 0 for size, outer in zip(shape, (4, 8), strict=True))
        if not fits:
            expected = "two dims, of sizes that divide 4 and 8"
            raise MismatchError(f"the shape of {name!r} in an instance of shape (4, 8)", expected, shape)


@check("distributed", "slices of a block-quantized checkpoint have the wrong scales", kinds=VALUED)
def pieces_of_a_checkpoint_are_right(subject: Subject) -> None:
    """What each of 2, 3 or 4 ranks cuts out of a saved weight, along each dim, has the values of that part; or the cut
    is refused since it goes through a block."""
    x, plain = subject.new(8, 12), subject.reference(subject.plain(8, 12))
    for dim in (0, 1):
        for size in (2, 3, 4):
            for index, wanted in enumerate(plain.chunk(size, dim)):
                start, length = index * -(-plain.shape[dim] // size), wanted.shape[dim]
                call = f"x.narrow({dim}, {start}, {length})"
                try:
                    piece = x.narrow(dim, start, length)
                except Exception as error:
                    if not is_refusal(error, BLOCKS):
                        raise MismatchError(call, "a slice, or an error that says where to cut", error) from error
                else:
                    subject.same(call, piece, wanted)
                    subject.same(f"{call}.clone()", piece.clone(), wanted)


@check("distributed", "an async collective meets a wrapper whose inner tensors are not set yet")
def instances_are_whole_once_made(subject: Subject) -> None:
    """``__tensor_flatten__`` works as soon as ``__new__`` returns: a tracer, or a collective that waits, can see an
    instance before ``__init__`` ran."""
    cls: Any = subject.cls
    if not hasattr(cls, "__tensor_flatten__"):
        raise NotApplicable(f"{cls.__name__} has no __tensor_flatten__")
    problems: list[Exception] = []
    initialize = cls.__init__

    def watched(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            for name in self.__tensor_flatten__()[0]:
                getattr(self, name)
        except Exception as error:  # noqa: BLE001 - raised below
            problems.append(error)
        initialize(self, *args, **kwargs)

    own = "__init__" in vars(cls)
    cls.__init__ = watched
    try:
        subject.new(4, 8).detach()
    finally:
        if own:
            cls.__init__ = initialize
        else:
            del cls.__init__
    if problems:
        raise MismatchError("__tensor_flatten__() before __init__", "the inner tensors, set in __new__", problems[0])
    x = subject.new(4, 8)
    names, context = x.__tensor_flatten__()
    parts = {name: getattr(x, name) for name in names}
    rebuilt = cls.__tensor_unflatten__(parts, context, x.size(), x.stride())
    subject.same("__tensor_unflatten__(*__tensor_flatten__())", rebuilt, subject.reference(subject.plain(4, 8)))
