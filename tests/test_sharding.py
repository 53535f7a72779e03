"""FSDP2 over gloo: sharded training equals unsharded training, with the class kept."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import lamina


class Transparent(lamina.WrapperTensor):
    elem: torch.Tensor
    fallback = lamina.Fallback.UNWRAP


class Scaled(lamina.WrapperTensor):
    """Its scale has one value a tensor, so it can't be cut along dim 0."""

    elem: torch.Tensor
    scale: torch.Tensor
    fallback = lamina.Fallback.PLAIN

    def decode(self) -> torch.Tensor:
        return self.elem * self.scale


def make(hidden: int, depth: int) -> torch.nn.Sequential:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 4))
    for layer in (model[0], model[2]):
        weight: torch.Tensor = layer.weight.detach()
        for _ in range(depth):
            weight = Transparent(weight)
        layer.weight = torch.nn.Parameter(weight)
    return model


def train(rank: int, world: int, port: int, hidden: int, depth: int, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    plain, sharded = make(hidden, 0), make(hidden, depth)
    fully_shard(sharded, mesh=init_device_mesh("cpu", (world,)))
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (plain, sharded)]
    x = torch.randn(5, 8)
    for _ in range(3):
        losses = []
        for model, optimizer in zip((plain, sharded), optimizers, strict=True):
            y = model(x)
            loss = (y.to_plain() if isinstance(y, Transparent) else y).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        # the reduction over ranks adds equal gradients and divides: exact for 1 and 2 ranks
        assert torch.equal(losses[0], losses[1])
    assert type(sharded[0].weight._local_tensor) is Transparent
    whole = sharded[0].weight.full_tensor()
    assert torch.equal(whole.to_plain(), plain[0].weight)
    if rank == 0:
        Path(out).write_text("done")
    dist.destroy_process_group()


def train_in_bfloat16(rank: int, world: int, port: int, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    model = make(8, 1)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)), mp_policy=policy)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    before = model[0].weight.full_tensor().to_plain()
    y = model(torch.randn(5, 8))
    assert y.dtype is torch.bfloat16
    y.to_plain().float().square().mean().backward()
    optimizer.step()
    weight = model[0].weight
    assert type(weight._local_tensor) is Transparent
    assert weight.dtype is torch.float32
    assert not torch.equal(weight.full_tensor().to_plain(), before)
    gathered = [torch.empty(3) for _ in range(world)]
    dist.all_gather(gathered, Transparent(torch.full((3,), float(rank))))
    assert [t[0].item() for t in gathered] == list(range(world))
    Path(out).write_text("done")
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.mark.parametrize(("world", "hidden", "depth"), [(1, 16, 1), (2, 7, 1), (2, 8, 2)])
def test_sharded_equals_unsharded(world: int, hidden: int, depth: int, tmp_path: Path) -> None:
    done = tmp_path / "done"
    mp.spawn(train, (world, free_port(), hidden, depth, str(done)), nprocs=world)
    assert done.read_text() == "done"


def test_a_mixed_precision_policy_casts_the_values(tmp_path: Path) -> None:
    done = tmp_path / "done"
    mp.spawn(train_in_bfloat16, (1, free_port(), str(done)), nprocs=1)
    assert done.read_text() == "done"


def test_rows_that_do_not_go_evenly_are_refused() -> None:
    class Mesh:
        def size(self) -> int:
            return 2

    tensor = Scaled(torch.ones(4, 3), torch.ones(4, 1))
    with pytest.raises(lamina.UnevenShardingError, match=r"7 rows of a Scaled .* 2 ranks"):
        tensor.fsdp_pre_all_gather(Mesh(), torch.Size([7, 3]), (3, 1), None, None)


def test_an_inner_tensor_that_does_not_follow_dim_0_is_refused() -> None:
    class Mesh:
        def size(self) -> int:
            return 2

    tensor = Scaled(torch.ones(4, 3), torch.ones(1, 1))
    with pytest.raises(lamina.ShardingError, match=r"\(1, 1\).*scale of shape \(rows, 1\)"):
        tensor.fsdp_pre_all_gather(Mesh(), torch.Size([8, 3]), (3, 1), None, None)


class Rows(lamina.WrapperTensor):
    elem: torch.Tensor
    scale: torch.Tensor
    fallback = lamina.Fallback.PLAIN

    def decode(self) -> torch.Tensor:
        return self.elem * self.scale


@pytest.mark.parametrize("gathered", [1, 2])
def test_leaves_that_a_world_of_one_does_not_gather_are_the_shards_own(gathered: int) -> None:
    class Mesh:
        def size(self) -> int:
            return 1

    shard = Rows(torch.ones(4, 3), torch.full((4, 1), 2.0))
    leaves, rows = shard.fsdp_pre_all_gather(Mesh(), torch.Size([4, 3]), (3, 1), None, None)
    outputs = tuple(leaf.clone() for leaf in leaves)[:gathered]
    whole, to_free = shard.fsdp_post_all_gather(outputs, rows, torch.float32)
    assert torch.equal(whole.to_plain(), shard.to_plain())
    assert len(to_free) == gathered
    assert all(t.data_ptr() == o.data_ptr() for t, o in zip(to_free, outputs, strict=True))


def test_the_rows_that_pad_the_last_shard_are_cut_off() -> None:
    shard = Rows(torch.ones(2, 3), torch.full((2, 1), 2.0))
    gathered = (torch.ones(4, 3), torch.full((4, 1), 2.0))
    whole, _ = shard.fsdp_post_all_gather(gathered, 3, torch.float32)
    assert whole.shape == (3, 3)
