"""Every optimizer of torch, in every way it can run, on int8 parameters: what it does to the values, rounded."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from int8_recipes import RECIPES, addresses, quantized, values_of
from torch import nn, optim
from torch.utils._python_dispatch import TorchDispatchMode

from lamina import PerBlock, ScaledInt8Tensor

OPTIMIZERS: list[Any] = [
    cls
    for cls in vars(optim).values()
    if isinstance(cls, type) and issubclass(cls, optim.Optimizer) and cls not in (optim.Optimizer, optim.SparseAdam)
]
FUSED = {optim.Adam, optim.AdamW, optim.SGD, optim.Adagrad}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"weight_decay": 0.1},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "lr": 0.1},
    {"momentum": 0.5, "centered": True},
    {"amsgrad": True},
    {"maximize": True},
    {"lr": torch.tensor(0.01)},
    {"weight_decay": 0.1, "decoupled_weight_decay": True},
]
COMPILED = [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad, optim.NAdam, optim.Adamax, optim.RAdam]


def cases() -> list[Any]:
    """Every option by rows; the other recipes take defaults and weight decay, in the way that torch chooses."""
    found = []
    for cls in OPTIMIZERS:
        known = inspect.signature(cls).parameters
        ways: list[dict[str, Any]] = [{"foreach": False}, {"foreach": True}] if "foreach" in known else [{}]
        ways += [{"fused": True}] if cls in FUSED else []
        for options in OPTIONS:
            if not options.keys() <= known.keys():
                continue
            for way in ways:
                if "lr" in options and way.get("foreach") and cls in {optim.Adam, optim.AdamW}:
                    continue  # torch refuses a tensor lr there
                recipes = RECIPES if options.keys() <= {"weight_decay"} and not way.get("foreach") else ["row"]
                chosen = {**options, **way}
                found += [
                    pytest.param(cls, chosen, recipe, id=_id(cls, {**chosen, recipe: True})) for recipe in recipes
                ]
    return found


def _id(cls: Any, options: dict[str, Any]) -> str:
    return "-".join([cls.__name__, *(k for k, v in options.items() if v is not False)])


def made(cls: Any, parameters: list[nn.Parameter], options: dict[str, Any]) -> Any:
    """A tensor lr is written to by none, but two optimizers shouldn't share it."""
    return cls(parameters, **{k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in options.items()})


class Writes(TorchDispatchMode):
    """Counts the operators that write to ``parameter``: each is a rounding."""

    def __init__(self, parameter: torch.Tensor) -> None:
        super().__init__()
        self.parameter, self.count = parameter, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for schema, value in zip(func._schema.arguments, args, strict=False):
            if schema.alias_info is not None and schema.alias_info.is_write:
                self.count += any(v is self.parameter for v in (value if isinstance(value, list) else [value]))
        return func(*args, **(kwargs or {}))


def pair(recipe: str) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    ours = [nn.Parameter(quantized(torch.randn(4, 8), recipe)) for _ in range(2)]
    return ours, [nn.Parameter(values_of(p)) for p in ours]


def step_of(tensor: Any) -> torch.Tensor:
    """The distance of neighbouring payloads, for each value."""
    return values_of(ScaledInt8Tensor(torch.ones_like(tensor.qdata), tensor.scale, None, tensor.granularity))


@pytest.mark.parametrize(("cls", "options", "recipe"), cases())
def test_a_step_is_that_of_the_values_rounded(cls: Any, options: dict[str, Any], recipe: str) -> None:
    ours, plain = pair(recipe)
    leaves, optimizers = [addresses(p) for p in ours], [made(cls, ps, options) for ps in (ours, plain)]
    start = [values_of(p).clone() for p in ours]
    for _ in range(3):
        sizes = [step_of(p.detach()) for p in ours]
        for p, q in zip(ours, plain, strict=True):
            q.data.copy_(values_of(p))
            q.grad = torch.randn(4, 8)
            p.grad = q.grad.clone()
        closure = [lambda: torch.tensor(1.0)] if cls is optim.LBFGS else []
        optimizers[0].step(*closure)
        with Writes(plain[0]) as writes:
            optimizers[1].step(*closure)
        for p, q, size in zip(ours, plain, sizes, strict=True):
            rounding = 1.0 if recipe == "row stochastic" else 0.5
            # 2 %: scales between two writes of a step are not those at its ends
            bound = writes.count * rounding * 1.02 * torch.maximum(size, step_of(p.detach()))
            assert writes.count > 0
            assert bool(((values_of(p) - q.detach()).abs() <= bound).all())
    assert [addresses(p) for p in ours] == leaves
    tiny = {optim.Adadelta, optim.Adafactor, optim.Rprop, optim.LBFGS}  # their first steps may round to nothing
    assert cls in tiny or not any(torch.equal(values_of(p), old) for p, old in zip(ours, start, strict=True))
    if cls is not optim.ASGD:  # its average is of the rounded parameters
        _assert_same_state(optimizers, ours, plain)


def _assert_same_state(optimizers: list[Any], ours: list[nn.Parameter], plain: list[nn.Parameter]) -> None:
    for p, q in zip(ours, plain, strict=True):
        for key, value in optimizers[0].state[p].items():
            if isinstance(value, torch.Tensor):
                assert type(value) is torch.Tensor
                assert torch.equal(value, optimizers[1].state[q][key])


@pytest.mark.parametrize("way", [{"foreach": False}, {"foreach": True}, {"fused": True}])
def test_blocks_and_other_dtypes(way: dict[str, Any]) -> None:
    for options in ({"granularity": PerBlock((2, -1))}, {"logical_dtype": torch.bfloat16}):
        p = nn.Parameter(ScaledInt8Tensor.quantize(torch.randn(4, 8), **options))
        p.grad = torch.ones(4, 8, dtype=p.dtype)
        before = values_of(p).clone()
        optim.AdamW([p], lr=0.1, weight_decay=0.0, **way).step()
        # the first step of Adam is lr, to within half a step of the new scale and a rounding to bfloat16 of up to 4
        error = (values_of(p).float() - (before.float() - 0.1)).abs()
        assert bool((error <= step_of(p.detach()) + 2**-6).all())


@pytest.mark.parametrize(
    ("cls", "way", "recipe"),
    [(cls, {"foreach": True}, "row") for cls in COMPILED]
    + [(optim.AdamW, {"foreach": False}, recipe) for recipe in RECIPES],
)
def test_a_compiled_step_is_the_eager_one(cls: Any, way: dict[str, Any], recipe: str) -> None:
    ours, other = pair(recipe)[0], []
    for p in ours:
        other.append(nn.Parameter(p.detach().clone()))
        p.grad = torch.randn(4, 8)
        other[-1].grad = p.grad.clone()
    leaves = [addresses(p) for p in other]
    cls(ours, **way).step()
    torch.compile(cls(other, **way).step, backend="aot_eager")()
    assert [addresses(p) for p in other] == leaves
    for p, q in zip(ours, other, strict=True):
        assert type(q) is ScaledInt8Tensor
        # the compiled step may order its float operations differently: a tie, or a draw, falls to the other side
        assert bool(((values_of(p) - values_of(q)).abs() <= 1.01 * step_of(q.detach())).all())


@pytest.mark.slow
def test_a_step_compiled_by_inductor_is_the_eager_one() -> None:
    """Of AdamW: decay, moments and the write. The others differ in the graph, which the test above compares."""
    ours = pair("group asymmetric")[0]
    other = [nn.Parameter(p.detach().clone()) for p in ours]
    for p, q in zip(ours, other, strict=True):
        p.grad = torch.randn(4, 8)
        q.grad = p.grad.clone()
    optim.AdamW(ours, lr=0.1).step()
    torch.compile(optim.AdamW(other, lr=0.1).step)()
    for p, q in zip(ours, other, strict=True):
        assert bool(((values_of(p) - values_of(q)).abs() <= 1.01 * step_of(q.detach())).all())


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")  # torch's own optimizers ask for none
def test_sparse_gradients_reach_their_rows_only() -> None:
    for cls in (optim.SparseAdam, optim.SGD, optim.Adagrad):
        table = nn.Embedding(10, 8, sparse=True)
        table.weight = nn.Parameter(quantized(table.weight, "row"))
        before, leaves, plain = table.weight.detach().clone(), addresses(table.weight), nn.Embedding(10, 8, sparse=True)
        plain.weight.data.copy_(values_of(before))
        index, factor = torch.tensor([1, 2, 1, 9]), torch.randn(4, 8)
        for module in (table, plain):
            (module(index) * factor).sum().backward()
            cls(module.parameters(), lr=0.1).step()
        grad = table.weight.grad
        assert grad is not None
        assert type(grad) is torch.Tensor
        assert grad.is_sparse
        assert addresses(table.weight) == leaves
        kept = [row for row in range(10) if row not in index.tolist()]
        assert torch.equal(table.weight.detach().qdata[kept], before.qdata[kept])
        assert torch.equal(table.weight.detach().scale[kept], before.scale[kept])
        error = (values_of(table.weight) - plain.weight.detach()).abs()
        assert bool((error <= 1.02 * step_of(table.weight.detach())).all())
        assert not torch.equal(values_of(table.weight), values_of(before))
