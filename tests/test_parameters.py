from __future__ import annotations

import copy
import gc
import io
import logging
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import lamina


class Transparent(lamina.WrapperTensor):
    elem: torch.Tensor
    fallback = lamina.Fallback.UNWRAP


class Tagged(lamina.WrapperTensor):
    elem: torch.Tensor
    tag: str = "none"
    fallback = lamina.Fallback.UNWRAP


class Quantized(lamina.WrapperTensor):
    qdata: torch.Tensor
    scale: torch.Tensor
    logical: torch.dtype = torch.float32
    fallback = lamina.Fallback.PLAIN
    gradients = lamina.Gradients.PLAIN

    @classmethod
    def outer_metadata(cls, qdata: torch.Tensor, _: torch.Tensor, logical: torch.dtype) -> lamina.OuterMetadata:
        return lamina.OuterMetadata(qdata.size(), qdata.stride(), 0, logical, qdata.device)

    @classmethod
    def encode(cls, values: torch.Tensor, **context: Any) -> Quantized:
        scale = values.abs().amax().clamp_min(1e-9).float() / 127
        context.setdefault("logical", values.dtype)
        return cls((values / scale).round().to(torch.int8), scale, **context)

    def decode(self) -> torch.Tensor:
        return (self.qdata * self.scale).to(self.logical)


@Quantized.implements(torch.ops.aten._to_copy.default)
def to_copy(op: Any, self: Quantized, *, dtype: torch.dtype | None = None, **options: Any) -> Quantized:
    return Quantized(op(self.qdata, **options), op(self.scale, **options), dtype or self.logical)


class Odd(nn.Parameter):
    """A user's own class of Parameter."""


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def weights(name: str, module: nn.Module, parameter: nn.Parameter) -> bool:
    return name.endswith("weight")


def types(module: nn.Module) -> dict[str, type]:
    return {name: type(p) for name, p in module.named_parameters()}


def grad_types(module: nn.Module) -> dict[str, type]:
    return {name: type(p.grad) for name, p in module.named_parameters()}


def plain(value: Any) -> Any:
    return value.detach().to_plain() if isinstance(value, lamina.WrapperTensor) else value.detach()


def assert_same_values(module: nn.Module, other: nn.Module, grads: bool = True) -> None:
    for a, b in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.equal(plain(a), plain(b))
        if grads:
            assert a.grad is not None
            assert torch.equal(plain(a.grad), plain(b.grad))


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Every parameter comes out as it was: object, class, memory, values, gradient, hooks, attributes."""

    def state() -> list[Any]:
        return [
            (
                name,
                p,
                type(p),
                p.data_ptr(),
                p.requires_grad,
                p.grad,
                dict(vars(p)),
                p._backward_hooks,
                dict(p._backward_hooks or {}),
            )
            for name, p in module.named_parameters()
        ]

    hooks = [dict(m._forward_hooks) | dict(m._load_state_dict_post_hooks) for m in module.modules()]
    before, values = state(), [p.detach().clone() for p in module.parameters()]
    yield
    after = state()
    for old, new in zip(before, after, strict=True):
        assert new[1] is old[1]
        assert new[5] is old[5]
        assert new[7] is old[7]
        assert [*new[2:5], *new[6:7], *new[8:]] == [*old[2:5], *old[6:7], *old[8:]]
    assert all(torch.equal(a, b) for a, b in zip(values, module.parameters(), strict=True))
    assert [dict(m._forward_hooks) | dict(m._load_state_dict_post_hooks) for m in module.modules()] == hooks


# what is wrapped


def test_every_parameter_is_wrapped_and_the_module_returned() -> None:
    net = mlp()
    held, values = list(net.parameters()), copy.deepcopy(net)
    assert lamina.wrap_parameters(net, Transparent) is net
    assert set(types(net).values()) == {Transparent}
    assert all(a is b and isinstance(b, nn.Parameter) for a, b in zip(held, net.parameters(), strict=True))
    assert_same_values(net, values, grads=False)
    assert lamina.unwrap_parameters(net) is net
    assert set(types(net).values()) == {nn.Parameter}
    assert all(a is b for a, b in zip(held, net.parameters(), strict=True))
    assert_same_values(net, values, grads=False)


def test_where_gets_name_owner_and_parameter() -> None:
    net = mlp()
    seen: list[Any] = []

    def where(name: str, module: nn.Module, parameter: nn.Parameter) -> bool:
        seen.append((name, module, parameter))
        return module is net[2] and parameter.dim() == 2

    lamina.wrap_parameters(net, Transparent, where=where)
    assert [(n, m) for n, m, _ in seen] == [
        ("0.weight", net[0]),
        ("0.bias", net[0]),
        ("2.weight", net[2]),
        ("2.bias", net[2]),
    ]
    assert all(p is q for (_, _, p), q in zip(seen, net.parameters(), strict=True))
    assert lamina.wrapped_parameters(net) == {"2.weight": Transparent}


def test_wrap_gets_the_detached_plain_tensor() -> None:
    net, seen = mlp(), []

    def wrap(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(tensor)
        return Transparent(tensor)

    pointers = [p.data_ptr() for p in net.parameters()]
    lamina.wrap_parameters(net, wrap)
    assert all(type(t) is torch.Tensor and not t.requires_grad for t in seen)
    assert [t.data_ptr() for t in seen] == pointers


def test_buffers_stay_plain() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    buffers = dict(net.named_buffers())
    lamina.wrap_parameters(net, Transparent)
    assert all(b is buffers[name] and type(b) is torch.Tensor for name, b in net.named_buffers())
    net(torch.randn(6, 4)).sum().backward()
    assert all(type(b) is torch.Tensor for b in net.buffers())


@pytest.mark.parametrize("frozen", [True, False])
def test_requires_grad_is_kept(frozen: bool) -> None:
    net = mlp()
    net[0].weight.requires_grad_(not frozen)
    for change in (lambda: lamina.wrap_parameters(net, Transparent), lambda: lamina.unwrap_parameters(net)):
        change()
        assert [p.requires_grad for p in net.parameters()] == [not frozen, True, True, True]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.embed(x))


@pytest.mark.parametrize("chosen", ["embed.weight", "head.weight"])
def test_a_tied_parameter_is_wrapped_once_and_stays_tied(chosen: str, caplog: pytest.LogCaptureFixture) -> None:
    net, calls = Tied(), []

    def wrap(tensor: torch.Tensor) -> torch.Tensor:
        calls.append(tensor)
        return Transparent(tensor)

    with caplog.at_level(logging.INFO, logger="lamina"):
        lamina.wrap_parameters(net, wrap, where=lambda name, *_: name == chosen)
    assert len(calls) == 1
    assert net.head.weight is net.embed.weight
    assert lamina.wrapped_parameters(net) == {"embed.weight": Transparent, "head.weight": Transparent}
    assert "tied: embed.weight = head.weight" in caplog.text
    net(torch.tensor([1, 2])).sum().backward()
    lamina.assert_wrapped(net)
    lamina.unwrap_parameters(net)
    assert net.head.weight is net.embed.weight
    assert type(net.head.weight) is nn.Parameter


def test_a_module_that_is_used_twice_is_wrapped_once() -> None:
    layer = nn.Linear(3, 3)
    net = lamina.wrap_parameters(nn.Sequential(layer, layer), Transparent)
    assert list(lamina.wrapped_parameters(net)) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert not isinstance(layer.weight.elem, Transparent)


def test_wrapping_again_nests_and_unwrapping_takes_all_off() -> None:
    net, expected = mlp(), mlp()
    for _ in range(2):
        lamina.wrap_parameters(net, Transparent)
    lamina.wrap_parameters(net, lambda t: Tagged(t, "outer"), where=weights)
    assert types(net) == {"0.weight": Tagged, "0.bias": Transparent, "2.weight": Tagged, "2.bias": Transparent}
    assert type(net[0].weight.elem.elem) is Transparent
    for m in (net, expected):
        m(torch.ones(3, 4)).sum().backward()
    assert type(net[0].weight.grad) is Tagged
    assert type(net[0].weight.grad.elem.elem) is Transparent
    assert_same_values(net, expected)
    assert [len(p._backward_hooks) for p in net.parameters()] == [1, 1, 1, 1]
    lamina.assert_wrapped(net)
    lamina.unwrap_parameters(net)
    assert set(types(net).values()) == {nn.Parameter}
    assert_same_values(net, expected)


def test_the_report_names_what_was_wrapped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="lamina"):
        lamina.wrap_parameters(mlp(), Transparent, where=weights)
    (record,) = caplog.records
    assert record.getMessage() == "2 of 4 parameters of Sequential are in Transparent: '0.weight', '2.weight'"


# what stays with the Parameter


def test_attributes_of_a_parameter_are_kept() -> None:
    net = mlp()
    net[0].weight.note = "mine"
    lamina.wrap_parameters(net, Transparent)
    assert net[0].weight.note == "mine"
    net[0].weight.later = 1
    lamina.unwrap_parameters(net)
    assert vars(net[0].weight) == {"note": "mine", "later": 1}


def test_attributes_named_as_a_run_would_be_are_kept() -> None:
    net = nn.Linear(2, 2)
    net.weight.elem_count = 3
    lamina.unwrap_parameters(lamina.wrap_parameters(net, Transparent))
    assert vars(net.weight) == {"elem_count": 3}


def test_what_the_core_notes_of_a_conjugated_parameter_is_no_attribute() -> None:
    net = nn.Module()
    net.weight = nn.Parameter(torch.tensor([1 + 2j]))
    lamina.wrap_parameters(net, lambda values: Transparent(values.conj()))
    lamina.wrap_parameters(net, Tagged)
    assert type(net.weight) is Tagged
    assert net.weight.is_conj()
    lamina.unwrap_parameters(net)
    assert vars(net.weight) == {}
    assert net.weight.item() == 1 - 2j


def test_a_parameter_of_the_users_own_class_comes_back_as_such() -> None:
    net = nn.Linear(2, 2)
    net.weight = Odd(torch.ones(2, 2))
    for _ in range(2):
        lamina.wrap_parameters(net, Transparent)
    assert type(net.weight) is Transparent
    lamina.unwrap_parameters(net)
    assert types(net) == {"weight": Odd, "bias": nn.Parameter}


def test_hooks_of_a_parameter_are_kept_and_see_its_class() -> None:
    net, seen = mlp(), []
    weight = net[0].weight
    handle = weight.register_hook(lambda g: seen.append(("hook", type(g))))
    after = weight.register_post_accumulate_grad_hook(lambda p: seen.append(("after", type(p.grad))))
    for expected, change in (
        (Transparent, lambda: lamina.wrap_parameters(net, Transparent)),
        (torch.Tensor, lambda: lamina.unwrap_parameters(net)),
    ):
        change()
        seen.clear()
        net.zero_grad()
        net(torch.ones(3, 4)).sum().backward()
        assert seen == [("hook", expected), ("after", expected)]
    lamina.wrap_parameters(net, Transparent)
    handle.remove()
    after.remove()
    seen.clear()
    net(torch.ones(3, 4)).sum().backward()
    assert seen == []


def test_a_hook_sees_its_class_where_autograd_has_the_other_one() -> None:
    net, seen = nn.Linear(2, 2), []
    net.weight.register_hook(lambda g: seen.append(type(g)))
    lamina.wrap_parameters(net, Transparent)
    (net.weight * 1).backward(torch.ones(2, 2))
    assert seen == [Transparent]


def test_hooks_of_modules_run_as_before() -> None:
    net, seen = mlp(), []
    net[0].register_forward_pre_hook(lambda *_: seen.append("pre"))
    net[0].register_forward_hook(lambda *_: seen.append("post"))
    net[0].register_full_backward_hook(lambda *_: seen.append("backward"))
    lamina.wrap_parameters(net, Transparent, outputs="plain")
    net(torch.ones(3, 4, requires_grad=True)).sum().backward()
    assert seen == ["pre", "post", "backward"]
    lamina.unwrap_parameters(net)
    net(torch.ones(3, 4, requires_grad=True)).sum().backward()
    assert seen == ["pre", "post", "backward"] * 2


def test_the_original_of_a_parametrization_is_wrapped() -> None:
    class Symmetric(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.triu() + x.triu(1).T

    net, expected = (
        nn.utils.parametrize.register_parametrization(copy.deepcopy(m), "weight", Symmetric())
        for m in [nn.Linear(3, 3)] * 2
    )
    lamina.wrap_parameters(net, Transparent, where=lambda name, *_: "weight" in name)
    assert lamina.wrapped_parameters(net) == {"parametrizations.weight.original": Transparent}
    assert type(net.weight) is Transparent
    assert not isinstance(net.weight, nn.Parameter)
    for m in (net, expected):
        m(torch.ones(2, 3)).sum().backward()
    assert_same_values(net, expected)
    lamina.unwrap_parameters(net)
    assert types(net)["parametrizations.weight.original"] is nn.Parameter


def test_weight_norm_trains_as_plain() -> None:
    net, expected = (nn.utils.parametrizations.weight_norm(copy.deepcopy(m)) for m in [nn.Linear(3, 3)] * 2)
    lamina.wrap_parameters(net, Transparent)
    for m in (net, expected):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            m(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()
    assert_same_values(net, expected)


# gradients


def test_a_gradient_that_is_there_already_is_kept_in_the_classes_choice() -> None:
    net = mlp()
    net(torch.ones(3, 4)).sum().backward()
    expected = copy.deepcopy(net)
    for m, p in zip(net.parameters(), expected.parameters(), strict=True):
        p.grad = m.grad.clone()
    lamina.wrap_parameters(net, Transparent, where=weights)
    lamina.wrap_parameters(net, Quantized.encode, where=lambda name, *_: name == "2.bias")
    assert grad_types(net) == {
        "0.weight": Transparent,
        "0.bias": torch.Tensor,
        "2.weight": Transparent,
        "2.bias": torch.Tensor,
    }
    for a, e in zip(net.parameters(), expected.parameters(), strict=True):
        assert torch.equal(plain(a.grad), e.grad)
    lamina.unwrap_parameters(net)
    assert set(grad_types(net).values()) == {torch.Tensor}
    for a, e in zip(net.parameters(), expected.parameters(), strict=True):
        assert torch.equal(a.grad, e.grad)


@pytest.mark.parametrize(("wrap", "choice"), [(Transparent, Transparent), (Quantized.encode, torch.Tensor)])
@pytest.mark.parametrize("make", [torch.ones, lambda *s: Transparent(torch.ones(*s))], ids=["plain", "wrapper"])
def test_each_leaf_gets_its_own_type_of_gradient(wrap: Any, choice: type, make: Callable[..., torch.Tensor]) -> None:
    net = nn.Linear(2, 3)
    lamina.wrap_parameters(net, wrap, where=weights)
    for parameter in net.parameters():
        parameter.mul(2).backward(make(*parameter.shape))
    assert grad_types(net) == {"weight": choice, "bias": torch.Tensor}
    assert torch.equal(plain(net.weight.grad), torch.full((3, 2), 2.0))
    lamina.unwrap_parameters(net)
    net.zero_grad()
    net.weight.mul(2).backward(torch.ones(3, 2))
    assert type(net.weight.grad) is torch.Tensor


def test_a_gradient_of_another_depth_or_class_becomes_the_leafs_own() -> None:
    net = nn.Linear(2, 2, bias=False)
    lamina.wrap_parameters(net, Transparent)
    lamina.wrap_parameters(net, lambda t: Tagged(t, "outer"))
    for gradient in (torch.ones(2, 2), Tagged(torch.ones(2, 2), "x"), Transparent(torch.ones(2, 2))):
        net.zero_grad()
        net.weight.mul(3).backward(gradient)
        assert type(net.weight.grad) is Tagged
        assert type(net.weight.grad.elem) is Transparent
        assert type(net.weight.grad.elem.elem) is torch.Tensor
        assert torch.equal(plain(net.weight.grad), torch.full((2, 2), 3.0))


def test_a_gradient_that_is_handed_in_is_not_taken_over() -> None:
    net = nn.Linear(2, 2, bias=False)
    lamina.wrap_parameters(net, Transparent)
    gradient = torch.ones(2, 2)
    for _ in range(2):
        net.weight.backward(gradient)
    assert torch.equal(gradient, torch.ones(2, 2))
    assert torch.equal(plain(net.weight.grad), torch.full((2, 2), 2.0))


def test_a_frozen_parameter_that_is_thawed_later_gets_its_type() -> None:
    net = nn.Linear(2, 2)
    net.requires_grad_(False)
    lamina.wrap_parameters(net, Transparent, where=weights)
    net.requires_grad_(True)
    net.weight.mul(2).backward(torch.ones(2, 2))
    net.bias.mul(2).backward(Transparent(torch.ones(2)))
    assert grad_types(net) == {"weight": Transparent, "bias": torch.Tensor}


def test_a_leaf_that_was_plain_in_wrapped_company_changes_its_type_when_wrapped() -> None:
    net = lamina.wrap_parameters(nn.Linear(2, 2), Transparent, where=weights)
    net(torch.ones(1, 2)).sum().backward()
    lamina.wrap_parameters(net, Transparent, where=lambda name, *_: name == "bias")
    net.zero_grad()
    net(torch.ones(1, 2)).sum().backward()
    assert grad_types(net) == {"weight": Transparent, "bias": Transparent}


def test_second_derivatives_go_through_the_hook() -> None:
    net, expected = nn.Linear(2, 1), nn.Linear(2, 1)
    expected.load_state_dict(net.state_dict())
    lamina.wrap_parameters(net, Transparent)
    for m in (net, expected):
        (first,) = torch.autograd.grad(m(torch.ones(1, 2)).pow(3).sum(), m.weight, create_graph=True)
        first.pow(2).sum().backward()
    assert type(net.weight.grad) is Transparent
    assert torch.equal(plain(net.weight.grad), expected.weight.grad)


def test_unwrapping_removes_every_hook() -> None:
    net = mlp()
    with unchanged_hooks(net):
        lamina.wrap_parameters(net, Transparent, where=weights, outputs="plain")
        lamina.wrap_parameters(net, Transparent)
        net(torch.ones(3, 4)).sum().backward()
        lamina.unwrap_parameters(net)


@contextmanager
def unchanged_hooks(net: nn.Module) -> Iterator[None]:
    def hooks() -> list[Any]:
        of_modules = [(dict(m._forward_hooks), dict(m._load_state_dict_post_hooks)) for m in net.modules()]
        return [of_modules, [p._backward_hooks for p in net.parameters()]]

    before = hooks()
    yield
    assert hooks() == before


# outputs


class Pair(NamedTuple):
    first: torch.Tensor
    second: Any


@dataclass
class Answer:
    loss: torch.Tensor
    rest: Any = None


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.linear(x)
        return Pair(y, {"a": [y * 2, 3], "b": Answer(y.sum(), (y,))})


def test_outputs_are_handed_out_plain_from_any_nesting() -> None:
    net, expected = Nested(), Nested()
    expected.load_state_dict(net.state_dict())
    lamina.wrap_parameters(net, Transparent, outputs="plain")
    for m in (net, expected):
        out = m(torch.ones(1, 2))
        tensors = [out.first, out.second["a"][0], out.second["b"].loss, out.second["b"].rest[0]]
        assert [type(t) for t in tensors] == [torch.Tensor] * 4
        assert type(out) is Pair
        assert out.second["a"][1] == 3
        sum(t.sum() for t in tensors).backward()
    assert set(grad_types(net).values()) == {Transparent}
    assert_same_values(net, expected)


def test_outputs_are_wrappers_otherwise_and_after_unwrapping_as_ever() -> None:
    net = mlp()
    assert type(lamina.wrap_parameters(net, Transparent)(torch.ones(1, 4))) is Transparent
    lamina.unwrap_parameters(net)
    lamina.wrap_parameters(net, Transparent, outputs="plain")
    lamina.wrap_parameters(net, Transparent, outputs="plain")
    assert len(net._forward_hooks) == 1
    assert type(net(torch.ones(1, 4))) is torch.Tensor
    lamina.unwrap_parameters(net)
    assert not net._forward_hooks
    lamina.wrap_parameters(net, Transparent)
    assert type(net(torch.ones(1, 4))) is Transparent


# what can't be done


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="outputs='wrapped' is neither 'same' nor 'plain'"):
        lamina.wrap_parameters(mlp(), Transparent, outputs="wrapped")
    with pytest.raises(lamina.NoParameterError, match="this ReLU has no parameters"):
        lamina.wrap_parameters(nn.ReLU(), Transparent)
    with pytest.raises(lamina.NoParameterError, match=r"'weight', 'bias' have no shape yet. Run the module once"):
        lamina.wrap_parameters(nn.LazyLinear(3), Transparent)


def test_a_predicate_that_chooses_nothing_is_named_with_the_names_there_are() -> None:
    def biased(name: str, module: nn.Module, parameter: nn.Parameter) -> bool:
        return name == "biases"

    with pytest.raises(lamina.NoParameterError, match=r"biased chose no parameter .*'0.weight', '0.bias', '2.weight'"):
        lamina.wrap_parameters(mlp(), Transparent, where=biased)
    many = nn.Sequential(*(nn.Linear(2, 2) for _ in range(6)))
    with pytest.raises(lamina.NoParameterError, match=r"'3.bias' and 4 more"):
        lamina.wrap_parameters(many, Transparent, where=biased)


@pytest.mark.parametrize(
    ("wrap", "text"),
    [
        (lambda _: None, "returned a NoneType. Return a lamina.WrapperTensor"),
        (lambda t: t.clone(), "returned a Tensor. Return a lamina.WrapperTensor"),
        (lambda t: Transparent(t[:1]), r"returned a Transparent of shape torch.Size\(\[1.*The shape has to stay"),
        (lambda t: Transparent(t.half()), "returned a Transparent of dtype torch.float16. The dtype has to stay"),
        (lambda t: Transparent(t.to("meta")), "returned a Transparent of device meta. The device has to stay"),
        (lambda t: Transparent(t).requires_grad_(), "requires grad. Return result.detach()"),
        (lambda t: Quantized(t.to(torch.int8), SCALE), "holds an inner tensor of '0.weight' too"),
    ],
)
def test_a_result_that_cant_stand_for_the_parameter_is_refused(wrap: Any, text: str) -> None:
    net = mlp()
    with unchanged(net), pytest.raises(lamina.WrapResultError, match=text) as caught:
        lamina.wrap_parameters(net, wrap)
    assert caught.value.name in {"0.weight", "0.bias"}


SCALE = torch.tensor(1.0)


def test_an_attribute_that_the_wrapper_needs_is_named() -> None:
    for name in ("elem", "decode", "fallback"):
        net = mlp()
        setattr(net[2].weight, name, 1)
        with unchanged(net), pytest.raises(lamina.WrapResultError, match=f"has an attribute '{name}'.*Rename"):
            lamina.wrap_parameters(net, Transparent)


def ready(net: nn.Module) -> nn.Module:
    """With all that has to survive: gradients, hooks, attributes."""
    net(torch.ones(2, 4)).sum().backward()
    for parameter in net.parameters():
        parameter.note = "mine"
    net[0].weight.register_hook(lambda _: None)
    return net


@pytest.mark.parametrize("error", [ValueError("third"), KeyboardInterrupt()])
def test_all_is_undone_when_wrap_raises_half_way(error: BaseException) -> None:
    net, calls = ready(mlp()), []

    def wrap(tensor: torch.Tensor) -> torch.Tensor:
        calls.append(types(net))
        if len(calls) == 3:
            raise error
        return Transparent(tensor)

    with unchanged(net), pytest.raises(type(error)):
        lamina.wrap_parameters(net, wrap, outputs="plain")
    assert list(calls[2].values()) == [Transparent, Transparent, nn.Parameter, nn.Parameter]
    net.zero_grad()
    net(torch.ones(2, 4)).sum().backward()
    assert set(grad_types(net).values()) == {torch.Tensor}
    lamina.wrap_parameters(net, Transparent)
    lamina.assert_wrapped(net)


def test_a_weak_reference_is_refused_before_anything_is_done() -> None:
    net, calls = ready(mlp()), []
    reference = weakref.ref(net[2].bias)
    with (
        unchanged(net),
        pytest.raises(lamina.ParameterInUseError, match=r"'2.bias' of shape \(2,\) .*1 weak ref") as caught,
    ):
        lamina.wrap_parameters(net, calls.append)
    assert isinstance(caught.value, RuntimeError)
    assert "weakref.getweakrefs(parameter)" in str(caught.value)
    assert calls == []
    del reference
    lamina.wrap_parameters(net, Transparent)
    lamina.assert_wrapped(net)


def test_all_is_undone_when_a_parameter_is_taken_meanwhile() -> None:
    net, held = ready(mlp()), []

    def wrap(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() == 1:
            held.append(weakref.ref(net[2].weight))
        return Transparent(tensor)

    with unchanged(net), pytest.raises(lamina.ParameterInUseError, match=r"'2.weight'.*torch says: Cannot swap t1"):
        lamina.wrap_parameters(net, wrap)
    assert set(types(net).values()) == {nn.Parameter}


def test_unwrapping_is_undone_too() -> None:
    net = ready(mlp())
    lamina.wrap_parameters(net, Transparent, outputs="plain")
    reference = weakref.ref(net[2].bias)
    with unchanged_hooks(net), pytest.raises(lamina.ParameterInUseError, match=r"'2.bias'"):
        lamina.unwrap_parameters(net)
    lamina.assert_wrapped(net)
    del reference
    lamina.unwrap_parameters(net)


@pytest.mark.parametrize("hold", [lambda net: net(torch.ones(2, 4)), lambda net: net[0].weight.view(-1)])
def test_a_graph_or_view_that_is_alive_is_refused(hold: Callable[[nn.Module], torch.Tensor]) -> None:
    net = ready(mlp())
    for change in (lambda: lamina.wrap_parameters(net, Transparent), lambda: lamina.unwrap_parameters(net)):
        alive = hold(net)
        with pytest.raises(lamina.ParameterInUseError, match=r"'0.weight'.*a live autograd graph, or a view. Delete"):
            change()
        alive.sum().backward()
        with pytest.raises(lamina.ParameterInUseError):
            change()
        del alive
        change()
    assert set(types(net).values()) == {nn.Parameter}


def test_wrapping_under_inference_mode_gives_trainable_parameters() -> None:
    net = mlp()
    with torch.inference_mode():
        lamina.wrap_parameters(net, lambda t: Transparent(t.clone()))
    trained(net, net, 1)
    assert set(grad_types(net).values()) == {Transparent}
    with torch.inference_mode():
        lamina.unwrap_parameters(net)
    trained(net, net, 1)


def test_the_old_tensors_are_let_go() -> None:
    gc.collect()
    gc.disable()
    try:
        net = mlp()
        old = weakref.ref(net[0].weight.untyped_storage())
        lamina.wrap_parameters(net, lambda t: Transparent(t.clone()))
        assert old() is None
        inner = weakref.ref(net[0].weight.elem)
        del net
        assert inner() is None
    finally:
        gc.enable()


# checks


def test_assert_wrapped_names_what_was_replaced() -> None:
    net = mlp()
    with pytest.raises(lamina.NotWrappedError, match="no parameter of this Sequential was wrapped"):
        lamina.assert_wrapped(net)
    lamina.wrap_parameters(net, Transparent)
    lamina.wrap_parameters(net, Tagged, where=weights)
    lamina.assert_wrapped(net)
    net[0].weight = nn.Parameter(torch.ones(8, 4))
    net[2].bias = None
    text = (
        "'0.weight' was wrapped as Tagged around Transparent, and is a Parameter now; .*'2.bias' .* is a NoneType now"
    )
    with pytest.raises(lamina.NotWrappedError, match=text):
        lamina.assert_wrapped(net)


def test_loading_with_assign_warns_where_a_wrapper_is_replaced() -> None:
    net, checkpoint = mlp(), mlp().state_dict()
    lamina.wrap_parameters(net, Transparent, where=weights)
    with pytest.warns(lamina.ReplacedWarning) as caught:
        net.load_state_dict(checkpoint, assign=True)
    assert [w.filename for w in caught]
    assert sorted("'0.weight' was" in str(w.message) for w in caught) == [False, True]
    with pytest.raises(lamina.NotWrappedError):
        lamina.assert_wrapped(net)
    lamina.wrap_parameters(net, Transparent, where=weights)
    lamina.assert_wrapped(net)


def test_loading_a_submodule_with_assign_warns_too() -> None:
    net = lamina.wrap_parameters(mlp(), Transparent)
    with (
        pytest.warns(lamina.ReplacedWarning, match="'0.weight'"),
        pytest.warns(lamina.ReplacedWarning, match="'0.bias'"),
    ):
        net[0].load_state_dict(mlp()[0].state_dict(), assign=True)


# state dicts, copies, moves


@pytest.mark.parametrize("wrap", [Transparent, Quantized.encode])
def test_a_plain_checkpoint_is_copied_into_the_wrappers(wrap: Any) -> None:
    checkpoint = {k: v * 2 for k, v in mlp().state_dict().items()}
    net = lamina.wrap_parameters(mlp(), wrap)
    before = types(net)
    net.load_state_dict(checkpoint)
    assert types(net) == before
    lamina.assert_wrapped(net)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(plain(parameter), plain(wrap(checkpoint[name])), rtol=0, atol=0)


@pytest.mark.parametrize("assign", [False, True])
def test_its_own_state_dict_round_trips(assign: bool) -> None:
    net, other = (lamina.wrap_parameters(mlp(), Quantized.encode) for _ in range(2))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(3)
    buffer = io.BytesIO()
    torch.save(other.state_dict(), buffer)
    buffer.seek(0)
    net.load_state_dict(torch.load(buffer), assign=assign)
    lamina.assert_wrapped(net)
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(a.qdata, b.qdata)
        assert torch.equal(a.scale, b.scale)
        assert a.requires_grad


def test_a_wrapped_state_dict_loads_into_a_plain_module() -> None:
    wrapped, net = lamina.wrap_parameters(mlp(), Transparent), mlp()
    with torch.no_grad():
        for parameter in wrapped.parameters():
            parameter.mul_(3)
    net.load_state_dict(wrapped.state_dict())
    assert set(types(net).values()) == {nn.Parameter}
    assert_same_values(net, wrapped, grads=False)


def test_a_deep_copy_is_wrapped_trains_and_unwraps_by_itself() -> None:
    net = lamina.wrap_parameters(Tied(), Transparent, outputs="plain")
    net.embed.weight.note = "mine"
    other = copy.deepcopy(net)
    assert other.embed.weight is other.head.weight
    assert other.embed.weight is not net.embed.weight
    assert other.embed.weight.note == "mine"
    lamina.assert_wrapped(other)
    for m in (net, other):
        loss = m(torch.tensor([1, 2])).sum()
        assert type(loss) is torch.Tensor
        loss.backward()
    del loss
    assert type(other.embed.weight.grad) is Transparent
    assert_same_values(net, other)
    lamina.unwrap_parameters(other)
    assert type(net.embed.weight) is Transparent
    assert type(other.embed.weight) is nn.Parameter


@pytest.mark.parametrize("wrap", [Transparent, Quantized.encode])
def test_a_wrapped_module_can_be_cast(wrap: Any) -> None:
    net = lamina.wrap_parameters(mlp(), wrap)
    held, before = list(net.parameters()), types(net)
    net.to(torch.bfloat16)
    assert types(net) == before
    assert all(p.dtype is torch.bfloat16 for p in net.parameters())
    assert all(a is b for a, b in zip(held, net.parameters(), strict=True))
    net(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
    assert all(p.grad.dtype is torch.bfloat16 for p in net.parameters())
    lamina.unwrap_parameters(net)
    assert all(type(p) is nn.Parameter and p.dtype is torch.bfloat16 for p in net.parameters())


@pytest.mark.parametrize("change", [copy.deepcopy, lambda net: net.double()], ids=["copied", "cast"])
def test_gradients_keep_their_type_after_the_module_was_copied_or_cast(change: Callable[[Any], Any]) -> None:
    net = change(lamina.wrap_parameters(mlp(), Transparent, outputs="plain"))
    net(torch.ones(2, 4, dtype=net[0].weight.dtype)).sum().backward()
    assert set(grad_types(net).values()) == {Transparent}


def test_torch_refuses_to_cast_a_parameter_that_is_weakly_referenced() -> None:
    """A known limit: ``module.to`` swaps tensors too."""
    net = lamina.wrap_parameters(mlp(), Transparent)
    reference = weakref.ref(net[0].weight)
    with pytest.raises(RuntimeError, match=r"Couldn't swap Linear.weight"):
        net.half()
    del reference
    net.half()


# compiled modules


def trained(net: Any, call: Any, steps: int = 3) -> Any:
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    for _ in range(steps):
        step(call, optimizer)
    return optimizer


def step(call: Any, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    call(torch.linspace(-1, 1, 12).view(3, 4)).square().mean().backward()
    optimizer.step()


@contextmanager
def compiling_again(times: int) -> Iterator[None]:
    counters = torch._dynamo.utils.counters["stats"]
    before = counters["unique_graphs"]
    yield
    assert counters["unique_graphs"] - before == times


PARTLY = {"0.weight": Transparent, "0.bias": torch.Tensor, "2.weight": Transparent, "2.bias": torch.Tensor}


@pytest.mark.parametrize("outputs", ["same", "plain"])
def test_a_compiled_module_is_wrapped_recompiles_and_trains_on(outputs: str) -> None:
    net, expected = mlp(), mlp()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    optimizer, other = trained(net, compiled), trained(expected, expected)
    net.zero_grad()
    assert lamina.wrap_parameters(compiled, Transparent, where=weights, outputs=outputs) is compiled
    assert lamina.wrapped_parameters(compiled) == {"0.weight": Transparent, "2.weight": Transparent}
    lamina.assert_wrapped(compiled)
    with compiling_again(1):
        for _ in range(2):
            step(compiled, optimizer)
            step(expected, other)
    assert grad_types(net) == PARTLY
    assert_same_values(net, expected)
    assert type(compiled(torch.ones(3, 4))) is (Transparent if outputs == "same" else torch.Tensor)
    lamina.unwrap_parameters(compiled)
    with compiling_again(0):
        step(compiled, optimizer)
        step(expected, other)
    assert set(grad_types(net).values()) == {torch.Tensor}
    assert_same_values(net, expected)


class Twice(nn.Module):
    """``module.compile()`` compiles the forward of a user's module; torch skips that of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x) * 2


@pytest.mark.parametrize("way", ["torch.compile", "module.compile", "step"])
@pytest.mark.parametrize("wrap", [Transparent, Quantized.encode])
def test_a_partly_wrapped_module_trains_compiled(way: str, wrap: Any) -> None:
    net = lamina.wrap_parameters(Twice(), wrap, where=weights)
    expected = lamina.wrap_parameters(Twice(), wrap, where=weights)
    options: dict[str, Any] = {"backend": "aot_eager", "fullgraph": True}
    call: Any = net
    if way == "torch.compile":
        call = torch.compile(net, **options)
    elif way == "module.compile":
        net.compile(**options)
    else:
        call = torch.compile(lambda x: net(x) * 1, **options)
    with compiling_again(1):
        optimizer, other = trained(net, call), trained(expected, expected)
    assert grad_types(net) == grad_types(expected)
    assert_same_values(net, expected)
    net.requires_grad_(False)
    net.layers[0].requires_grad_(True)
    expected.requires_grad_(False)
    expected.layers[0].requires_grad_(True)
    with compiling_again(1):
        step(call, optimizer)
        step(expected, other)
    assert grad_types(net.layers[0]) == grad_types(expected.layers[0])
    assert_same_values(net.layers[0], expected.layers[0])


def test_each_leaf_of_a_compiled_module_gets_its_own_type_from_a_plain_gradient() -> None:
    net, expected = mlp(), mlp()
    lamina.wrap_parameters(net, Transparent, where=weights, outputs="plain")
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for m in (compiled, expected):
        m(torch.ones(3, 4)).backward(torch.ones(3, 2))
    assert grad_types(net) == PARTLY
    assert_same_values(net, expected)


def test_names_are_those_before_compiling_at_any_depth() -> None:
    net = nn.ModuleDict({"body": torch.compile(mlp(), backend="aot_eager")})
    seen = []
    lamina.wrap_parameters(net, Transparent, where=lambda name, *_: not seen.append(name))
    assert seen == ["body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias"]
    assert list(lamina.wrapped_parameters(net)) == seen


def test_nested_layers_train_compiled() -> None:
    net, expected = mlp(), mlp()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for _ in range(3):
        lamina.wrap_parameters(compiled, Transparent, where=weights)
        net.zero_grad()
        expected.zero_grad()
        trained(net, compiled, 1)
        trained(expected, expected, 1)
        assert_same_values(net, expected)
        assert grad_types(net) == PARTLY


def test_compiled_code_does_not_see_that_only_outputs_changed() -> None:
    """A known limit, and what the documentation says to do."""
    net = mlp()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    lamina.wrap_parameters(net, Transparent)
    compiled(torch.ones(3, 4))
    lamina.unwrap_parameters(net)
    lamina.wrap_parameters(net, Transparent, outputs="plain")
    assert type(compiled(torch.ones(3, 4))) is Transparent
    torch.compiler.reset()
    assert type(compiled(torch.ones(3, 4))) is torch.Tensor


def test_a_compiled_optimizer_step_holds_its_parameters() -> None:
    """A known limit: it leaves a weak reference to each, and the error says so."""
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters())
    net(torch.ones(3, 4)).sum().backward()
    torch.compile(optimizer.step, backend="eager")()
    with pytest.raises(lamina.ParameterInUseError, match="a compiled optimizer step leaves one for good"):
        lamina.wrap_parameters(net, Transparent)


def test_a_compiled_optimizer_step_trains_wrapped_parameters() -> None:
    net, expected = lamina.wrap_parameters(mlp(), Transparent), mlp()
    for m in (net, expected):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        update = torch.compile(optimizer.step, backend="aot_eager")
        for _ in range(2):
            optimizer.zero_grad()
            m(torch.ones(3, 4)).square().sum().backward()
            update()
    assert_same_values(net, expected)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_modules_hold_weak_references_to_their_own_weights(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    plain, x = kind(4, 5), torch.randn(3, 2, 4)
    wrapped = copy.deepcopy(plain)
    for layers in (1, 2):
        lamina.wrap_parameters(wrapped, Transparent, outputs="plain")
        expected, got = plain(x)[0], wrapped(x)[0]
        assert torch.equal(expected, got)
        expected.sum().backward()
        got.sum().backward()
        for p, q in zip(plain.parameters(), wrapped.parameters(), strict=True):
            assert type(q) is type(q.grad) is Transparent
            assert torch.equal(p.grad, q.grad.to_plain()), layers
        del expected, got
    lamina.unwrap_parameters(wrapped)
    assert all(type(p) is nn.Parameter for p in wrapped.parameters())
    assert torch.equal(plain(x)[0], wrapped(x)[0])
    wrapped.double()  # uses the weak references that were renewed


def test_a_recurrent_module_is_as_before_when_wrapping_fails() -> None:
    module, x = nn.LSTM(4, 5), torch.randn(3, 2, 4)
    before = module(x)[0].detach()

    def fail(t: torch.Tensor) -> torch.Tensor:
        raise KeyError("no")

    with pytest.raises(KeyError):
        lamina.wrap_parameters(module, fail)
    assert torch.equal(module(x)[0], before)
    assert module.double()(x.double())[0].dtype is torch.float64


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: lamina.wrap_parameters(torch.ones(2), Transparent), "wrap_parameters takes a torch.nn.Module"),
        (lambda: lamina.unwrap_parameters(3), "unwrap_parameters takes a torch.nn.Module"),
        (lambda: lamina.wrap_parameters(nn.Linear(2, 2), 3), "wrap is a function"),
        (lambda: lamina.wrap_parameters(nn.Linear(2, 2), Transparent, where=3), "where is a predicate"),
        (lambda: lamina.wrap_parameters(nn.Linear(2, 2), lamina.ScaledInt8Tensor), "from_plain, or .quantize"),
    ],
)
def test_wrong_arguments_are_named(call: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        call()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("weights_only", [False, True])
def test_a_whole_step_may_be_compiled_with_graph_breaks(layers: int, weights_only: bool) -> None:
    """Backward and the optimizer run between compiled pieces, where Dynamo's frame hook is on."""
    plain = mlp()
    wrapped = copy.deepcopy(plain)
    for _ in range(layers):
        lamina.wrap_parameters(wrapped, Transparent, where=weights if weights_only else None)
    x = torch.randn(5, next(plain.parameters()).shape[1])
    for model in (plain, wrapped):  # both compiled: the compiled optimizer rounds in another order than the eager one
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(model: nn.Module = model, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        run = torch.compile(step, backend="aot_eager")
        for _ in range(3):
            run()
    for p, q in zip(plain.parameters(), wrapped.parameters(), strict=True):
        assert torch.equal(p, q.to_plain() if isinstance(q, Transparent) else q)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions take notes from Python 3.11")
def test_what_wrap_raises_names_the_parameter() -> None:
    def fail(t: torch.Tensor) -> torch.Tensor:
        raise KeyError("no")

    with pytest.raises(KeyError) as caught:
        lamina.wrap_parameters(mlp(), fail, where=weights)
    assert "'0.weight'" in caught.value.__notes__[0]


def test_plain_outputs_reach_into_containers_that_pytree_does_not_know() -> None:
    class Named(dict[str, Any]):
        pass

    class Listed(list[Any]):
        pass

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.layer(x)
            self.given = Named(y=y, more=Listed([y, (y, 3)]))
            return self.given

    net = lamina.wrap_parameters(Net(), Transparent, outputs="plain")
    out = net(torch.ones(1, 2))
    assert (type(out), type(out["more"])) == (Named, Listed)
    assert [type(t) for t in (out["y"], out["more"][0], out["more"][1][0])] == [torch.Tensor] * 3
    assert out["more"][1][1] == 3
    assert type(net.given["y"]) is Transparent  # what the module keeps for itself is not written to
