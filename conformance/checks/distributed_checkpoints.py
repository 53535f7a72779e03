"""torch.distributed.checkpoint, over gloo."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from ..check import check
from ..outcome import MismatchError
from ..refusal import may_refuse
from ..subject import VALUED, Subject, leaves_of
from ..world import world_of_one
from .sharding import SHARDS, Watched, check_class, train, whole

if dist.is_available():  # once here: each check runs in a process of its own, and would import them again
    import torch.distributed.checkpoint
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor, Shard

    dcp: Any = torch.distributed.checkpoint


@contextmanager
def checkpointing(call: str) -> Iterator[None]:
    """Torch's error here is no ``Exception``: it would end the process, and its text is long."""
    try:
        yield
    except dcp.CheckpointException as error:
        first = next(iter(error.failures.values()))[0]
        raise MismatchError(call, "a checkpoint", first) from error


def checkpoint_round_trip(subject: Subject, save: str) -> None:
    """Saves an instance and a DTensor of one, and loads them over others."""
    call = f"dcp.{save}"

    def states(mesh: Any, seed: int) -> dict[str, Any]:
        x = subject.new(4, 8, seed=seed)
        return {"tensor": x, "dtensor": DTensor.from_local(subject.new(4, 8, seed=seed + 1), mesh, [Shard(0)])}

    with world_of_one(subject) as mesh, tempfile.TemporaryDirectory() as folder:
        source, target = states(mesh, 0), states(mesh, 7)
        for name in source:
            with checkpointing(f"{call} of a {name}"):
                done = getattr(dcp, save)({name: source[name]}, checkpoint_id=f"{folder}/{name}")
                if save == "async_save":
                    done.result()
                loaded = {name: target[name]}
                dcp.load(loaded, checkpoint_id=f"{folder}/{name}")
            got, wanted = (local_of(each[name]) for each in (loaded, source))
            check_class(f"{call} of a {name}", got, subject.cls)
            for one, other in zip(leaves_of(got), leaves_of(wanted), strict=True):
                subject.same(f"an inner tensor after {call} and load of a {name}", one, other)


def local_of(value: Any) -> Any:
    return value.to_local() if isinstance(value, DTensor) else value


@check("distributed", "torch.distributed.checkpoint does not save or load a wrapper", kinds=VALUED)
def dcp_round_trip_is_exact(subject: Subject) -> None:
    """``dcp.save`` and ``dcp.load`` of an instance, and of a DTensor of one, give the same bits in the same class."""
    checkpoint_round_trip(subject, "save")


@check("distributed", "an asynchronous checkpoint loses the class", kinds=VALUED)
def async_dcp_round_trip_is_exact(subject: Subject) -> None:
    """``dcp.async_save`` stages a copy first; it keeps the class and the bits, too."""
    checkpoint_round_trip(subject, "async_save")


@check("distributed", "a sharded model does not go on from its checkpoint", kinds=VALUED)
def a_sharded_model_goes_on_from_its_checkpoint(subject: Subject) -> None:
    """Model and optimizer of a sharded layer, saved after two steps and loaded into a new one, train on alike."""
    with world_of_one(subject) as mesh, tempfile.TemporaryDirectory() as folder:
        call = "dcp.save of fully_shard(layer) and its optimizer"
        with may_refuse(call, subject, SHARDS), checkpointing(call):
            layers: list[Any] = [Watched(subject, seed=seed) for seed in (0, 3)]
            for layer in layers:
                fully_shard(layer, mesh=mesh)
            optimizers = [torch.optim.AdamW(layer.parameters(), lr=0.2) for layer in layers]
            train(layers[0], optimizers[0], subject)
            names = "model", "optimizer"
            dcp.save(dict(zip(names, get_state_dict(layers[0], optimizers[0]), strict=True)), checkpoint_id=folder)
            state: dict[str, Any] = dict(zip(names, get_state_dict(layers[1], optimizers[1]), strict=True))
            dcp.load(state, checkpoint_id=folder)
            set_state_dict(
                layers[1], optimizers[1], model_state_dict=state["model"], optim_state_dict=state["optimizer"]
            )
        values = [whole(subject, layer.weight) for layer in layers]
        subject.same("the weight after dcp.load", values[1], values[0])
        losses = []
        for layer, optimizer in zip(layers, optimizers, strict=True):
            torch.manual_seed(0)
            losses.append(train(layer, optimizer, subject))
        subject.same("losses after dcp.load", losses[1], losses[0])
