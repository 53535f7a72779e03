"""FSDP2 and DDP, over gloo: a layer trains as it does alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ..check import check
from ..fsdp2 import problem_with_hooks
from ..outcome import MismatchError
from ..refusal import may_refuse
from ..subject import VALUED, Kind, Subject
from ..world import in_world_of_two, world_of_one

if dist.is_available():  # once here: each check runs in a process of its own, and would import them again
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import DTensor

SHARDS = r"shard|\branks?\b"  # what a refusal has to speak of


class Watched(nn.Linear):
    """A linear layer that keeps what its forward found: the weight, its plain values, and the type of the input."""

    def __init__(self, subject: Subject, rows: int = 4, *, wrapped: bool = True, seed: int = 0) -> None:
        super().__init__(8, rows)
        plain = subject.plain(rows, 8, seed=seed)
        # A class that rounds is compared with a layer of the same class: what an update stores depends on it.
        self.weight = nn.Parameter(subject.wrap(plain) if wrapped else subject.reference(plain))
        self.bias = nn.Parameter(subject.plain(rows, seed=1))
        self.subject = subject
        self.found: list[Any] = []

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - the name is nn.Linear's
        self.found = [type(input), type(self.weight), self.subject.values(self.weight)]
        return super().forward(input)


def shard_class(subject: Subject) -> type[torch.Tensor]:
    """The class of a shard: that of a slice. What decodes, and has no slices of its own, is sharded as plain values."""
    if subject.kind is Kind.TRANSPARENT or subject.is_instance(subject.new(4, 8).narrow(0, 0, 2)):
        return subject.cls
    return torch.Tensor


def check_class(call: str, got: Any, cls: type[torch.Tensor]) -> None:
    if not isinstance(got, cls):
        raise MismatchError(call, cls, type(got))


def whole(subject: Subject, value: Any) -> Any:
    """The plain values of all shards, whichever of DTensor and the class is the outer one."""
    while isinstance(value, DTensor) or subject.is_instance(value):
        detached: Any = value.detach()
        value = detached.full_tensor() if isinstance(value, DTensor) else subject.decode(detached)
    return value.detach()


def close(subject: Subject) -> Subject:
    """Compares what was rounded again after an update: to within some steps of an 8-bit grid."""
    return replace(subject, rtol=0.05) if subject.kind is Kind.REPRESENTATION else subject


def train(model: nn.Module, optimizer: torch.optim.Optimizer, subject: Subject, steps: int = 2) -> list[torch.Tensor]:
    """The loss of each step, on the same batch on all ranks: the mean of equal gradients is exact."""
    losses = []
    x = subject.plain(5, 8, seed=2)
    for _ in range(steps):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(subject.values(loss).detach())
    return losses


def trained_alike(subject: Subject, mesh: Any, name: str, rows: int = 4) -> Any:
    """Trains a sharded layer beside one that is not, compares them, and returns the sharded one and its optimizer."""
    models = Watched(subject, rows), Watched(subject, rows)
    fully_shard(models[1], mesh=mesh)
    sharded: Any = models[1]
    check_class("fully_shard(layer); layer.weight.to_local()", sharded.weight.to_local(), shard_class(subject))
    optimizers = [getattr(torch.optim, name)(model.parameters(), lr=0.2) for model in models]
    losses = [train(model, optimizer, subject) for model, optimizer in zip(models, optimizers, strict=True)]
    lenient = close(subject)
    lenient.same(f"losses of fully_shard(layer) under {name}", losses[1], losses[0], loosely=True)
    before = subject.reference(subject.plain(rows, 8))
    for parameter in ("weight", "bias"):
        expected = subject.values(getattr(models[0], parameter)).detach()
        call = f"fully_shard(layer).{parameter}.full_tensor() after two steps of {name}"
        lenient.same(call, whole(subject, getattr(sharded, parameter)), expected, loosely=True)
        if parameter == "weight" and subject.kind is not Kind.FAKE and torch.equal(expected, before):
            raise MismatchError(f"optimizer.step() of {name}", "another weight", "the one from before")
    return sharded, optimizers[1]


@check("distributed", "nothing says which methods FSDP2 needs, and it misses them silently")
def fsdp2_finds_its_hooks(subject: Subject) -> None:
    """The class has ``fsdp_pre_all_gather`` and ``fsdp_post_all_gather``, with the parameters that FSDP2 passes:
    ``lamina.conformance.GathersItsLeaves`` documents them."""
    problem = problem_with_hooks(subject.cls)
    if problem is not None:
        raise MismatchError(f"{subject.cls.__name__}.{problem[0]}", *problem[1:])


@check("distributed", "FSDP2 unwraps a wrapper without all-gather hooks to one inner tensor, silently", kinds=VALUED)
def fully_shard_gathers_the_class(subject: Subject) -> None:
    """A forward of ``fully_shard`` finds a weight of the class, of the values that were sharded. In place of
    a wrapper without hooks torch puts, silently, whatever its first inner tensor is."""
    with world_of_one(subject) as mesh:
        layer = Watched(subject)
        with may_refuse("fully_shard(layer)(x)", subject, SHARDS):
            fully_shard(layer, mesh=mesh)
            layer(subject.plain(5, 8))
        _, cls, values = layer.found
        if not issubclass(cls, wanted := shard_class(subject)):
            raise MismatchError("the weight that the forward of fully_shard(layer) finds", wanted, cls)
        subject.same("the weight after the all-gather", values, subject.reference(subject.plain(4, 8)))


@check("distributed", "fully_shard fails, or trains something else, on quantized parameters", kinds=VALUED)
def fully_shard_trains_as_unsharded(subject: Subject) -> None:
    """Forward, backward and two steps of SGD on one rank give the losses and weights of a layer that is not sharded."""
    with world_of_one(subject) as mesh, may_refuse("fully_shard(layer)", subject, SHARDS):
        trained_alike(subject, mesh, "SGD")


@check("distributed", "sharded training fails with a low-bit optimizer or its state", kinds=VALUED)
def optimizer_state_is_sharded(subject: Subject) -> None:
    """AdamW steps over shards of the class as over whole tensors; its state are shards like them, and no rank keeps
    more than its part."""
    with world_of_one(subject) as mesh, may_refuse("AdamW over fully_shard(layer)", subject, SHARDS):
        layer, optimizer = trained_alike(subject, mesh, "AdamW")
        state = optimizer.state[layer.weight]["exp_avg"]
        if not isinstance(state, DTensor) or state.placements != layer.weight.placements:
            raise MismatchError('optimizer.state[weight]["exp_avg"]', f"a DTensor, {layer.weight.placements}", state)
        check_class("the shard after optimizer.step()", layer.weight.to_local(), shard_class(subject))


@check("distributed", "a mixed-precision policy disagrees with the dtype of the wrapper", kinds=VALUED)
def a_mixed_precision_policy_casts(subject: Subject) -> None:
    """Under a policy of bfloat16 the layer computes and returns bfloat16, also with updated weights; its weight, and
    the gradient of it, stay float32."""
    layer: Any = Watched(subject)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    expected = nn.Linear(8, 4, dtype=torch.bfloat16)
    with torch.no_grad():
        expected.weight.copy_(subject.values(layer.weight))
        expected.bias.copy_(layer.bias)
    x = subject.plain(5, 8, seed=2)
    with world_of_one(subject) as mesh, may_refuse("fully_shard(layer, mp_policy=...)", subject, SHARDS):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
        out, wanted = layer(x), expected(x.bfloat16())
        lenient = replace(subject, rtol=0.02)
        lenient.same("fully_shard(layer, mp_policy=bfloat16)(x)", out, wanted)
        for result in (out, wanted):
            result.float().square().mean().backward()
        got = whole(subject, layer.weight.grad)
        lenient.same("layer.weight.grad under a policy of bfloat16", got, subject.values(expected.weight.grad).float())
        subject.same("layer.weight.dtype under a policy of bfloat16", layer.weight.dtype, torch.float32)
        torch.optim.SGD(layer.parameters(), lr=1.0).step()
        weight, bias = (whole(subject, each).bfloat16() for each in (layer.weight, layer.bias))
        lenient.same("layer(x) after optimizer.step()", layer(x), F.linear(x.bfloat16(), weight, bias))


@check("distributed", "sharded training differs from training on one rank", kinds=VALUED, quick=False)
def two_ranks_train_as_one(subject: Subject) -> None:
    """Forward, backward and two steps of SGD on two ranks equal a layer that is not sharded."""

    def body(_: int, mesh: Any) -> None:
        with may_refuse("fully_shard(layer) on two ranks", subject, SHARDS):
            sharded, _ = trained_alike(subject, mesh, "SGD")
            shape = tuple(sharded.weight.to_local().shape)
            if shape != (2, 8):
                raise MismatchError("the shard of a (4, 8) weight on one of two ranks", (2, 8), shape)

    in_world_of_two(subject, body)


@check("distributed", "rows that do not go evenly on the ranks break fully_shard", kinds=VALUED, quick=False)
def uneven_shards_train_as_one(subject: Subject) -> None:
    """Five rows on two ranks train as five rows on one; or the class says that it can't shard them."""

    def body(_: int, mesh: Any) -> None:
        with may_refuse("fully_shard(layer of 5 rows) on two ranks", subject, SHARDS):
            trained_alike(subject, mesh, "SGD", rows=5)

    in_world_of_two(subject, body)


def replicated_alike(subject: Subject, rank: int) -> None:
    """DDP of a layer: rank 0's weights are everyone's, and gradients those of a layer on its own."""
    layer, expected = Watched(subject, seed=rank), Watched(subject)
    replica = nn.parallel.DistributedDataParallel(layer)
    call = f"DistributedDataParallel(layer).module.weight on rank {rank}"
    check_class(call, layer.weight, subject.cls)
    # Sent as values and rounded again: to within half a step.
    lenient = close(subject) if rank else subject
    lenient.same(call, layer.weight, subject.values(expected.weight))
    x = subject.plain(5, 8, seed=2)
    for model in (replica, expected):
        model(x).square().mean().backward()
    lenient = close(subject)
    for name in ("weight", "bias"):
        got, wanted = getattr(layer, name).grad, getattr(expected, name).grad
        if got is None:
            raise MismatchError(f"{name}.grad under DistributedDataParallel", "a gradient", None)
        lenient.same(f"{name}.grad under DistributedDataParallel", got, subject.values(wanted), loosely=True)


@check("distributed", "DDP fails at its initial broadcast of quantized weights", kinds=VALUED)
def ddp_starts_and_trains(subject: Subject) -> None:
    """``DistributedDataParallel`` of a layer with a weight of the class starts, keeps class and values, and gives the
    gradients of the layer alone."""
    with world_of_one(subject):
        replicated_alike(subject, 0)


@check("distributed", "DDP replicas start from different quantized weights", kinds=VALUED, quick=False)
def ddp_replicas_start_from_one_model(subject: Subject) -> None:
    """On two ranks with different weights, all start from those of rank 0."""
    in_world_of_two(subject, lambda rank, _: replicated_alike(subject, rank))


@check(
    "distributed",
    "DDP drops frozen weights or buffers of the class, or leaves them different",
    kinds=VALUED,
    quick=False,
)
def ddp_sends_frozen_weights_and_buffers(subject: Subject) -> None:
    """A frozen weight and a buffer of the class, different on two ranks, are those of rank 0 after DDP has started and
    run; the layer trains its bias."""

    def body(rank: int, _: Any) -> None:
        layer = Watched(subject, seed=rank)
        layer.weight.requires_grad_(False)
        layer.register_buffer("offset", subject.new(4, 8, seed=rank + 5))
        nn.parallel.DistributedDataParallel(layer)(subject.plain(5, 8)).square().mean().backward()
        lenient = close(subject)
        for name, seed in (("weight", 0), ("offset", 5)):
            call = f"DistributedDataParallel(layer).module.{name}, not trained, on rank {rank}"
            check_class(call, getattr(layer, name), subject.cls)
            lenient.same(call, getattr(layer, name), subject.reference(subject.plain(4, 8, seed=seed)))
        if layer.bias.grad is None:
            raise MismatchError("bias.grad beside a frozen weight", "a gradient", None)

    in_world_of_two(subject, body)
