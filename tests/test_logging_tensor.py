from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import lamina
from lamina.modes import DispatchLog, OpCounter
from lamina.subclasses.logging_tensor import Log, LoggingTensor

OPTIMIZERS = [
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adagrad,
    torch.optim.RMSprop,
    torch.optim.Rprop,
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.ASGD,
    torch.optim.Adafactor,
]


def make() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def wrapped(model: nn.Module, levels: int = 1, **context: Any) -> nn.Module:
    for layer in (model[0], model[2]):  # type: ignore[index]
        for name, parameter in list(layer.named_parameters()):
            tensor = parameter.detach()
            for _ in range(levels):
                tensor = LoggingTensor(tensor, **context)
            setattr(layer, name, nn.Parameter(tensor))
    return model


def plain(tensor: Any) -> torch.Tensor:
    return tensor.to_plain() if isinstance(tensor, lamina.WrapperTensor) else tensor  # type: ignore[no-any-return]


def ops(log: Log, **facts: Any) -> list[str]:
    return [r.op for r in log if all(getattr(r, name) == value for name, value in facts.items())]


# transparent


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_training_step_is_bit_equal(optimizer: Any, levels: int, logged: bool) -> None:
    def train(model: nn.Module) -> list[torch.Tensor]:
        optim = optimizer(model.parameters())
        for _ in range(2):
            optim.zero_grad()
            model(torch.linspace(-1, 1, 15).reshape(5, 3)).square().sum().backward()
            gradients = [plain(p.grad) for p in model.parameters()]
            optim.step()
        return [*gradients, *(plain(p.detach()) for p in model.parameters())]

    expected = train(make())
    with Log() if logged else torch.enable_grad():
        got = train(wrapped(make(), levels))
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


@pytest.mark.parametrize(("foreach", "fused"), [(True, False), (False, True)])
def test_foreach_and_fused_steps_are_recorded_in_the_optimizer_phase(foreach: bool, fused: bool) -> None:
    model = wrapped(make())
    optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach, fused=fused)
    model(torch.ones(5, 3)).sum().backward()
    with Log() as log:
        optimizer.step()
    names = ops(log, phase="optimizer")
    assert any(name.startswith("aten::_foreach_" if foreach else "aten::_fused_adamw_") for name in names)
    assert names == ops(log)


def test_phases_modules_and_shapes_of_a_training_step() -> None:
    model = wrapped(make())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    with Log() as log:
        model(torch.ones(5, 3)).sum().backward()
        optimizer.step()
    assert ops(log, phase="forward", module="0") == ["aten::t", "aten::addmm"]
    assert ops(log, phase="backward", module="2").count("aten::mm") == 2
    assert ops(log, phase="optimizer") == ["aten::add_.Tensor"] * 4
    assert {(r.layer, r.cls, r.depth) for r in log} == {("subclass", "LoggingTensor", 0)}
    addmm = next(r for r in log if r.op == "aten::addmm")
    assert [(m.kind, m.shape) for m in addmm.inputs] == [  # type: ignore[union-attr]
        ("LoggingTensor", (4,)),
        ("Tensor", (5, 3)),
        ("LoggingTensor", (3, 4)),
    ]
    assert addmm.outputs[0].shape == (5, 4)  # type: ignore[union-attr]
    assert addmm.duration_ns > 0


def test_nested_tensors_show_outer_and_inner_operators() -> None:
    value = LoggingTensor(LoggingTensor(torch.ones(2)))
    with Log() as log:
        value + 1
    assert [(r.op, r.depth) for r in log] == [("aten::add.Tensor", 0), ("aten::add.Tensor", 1)]
    outer, inner = log.records
    assert outer.start_ns <= inner.start_ns
    assert inner.start_ns + inner.duration_ns <= outer.start_ns + outer.duration_ns


def test_the_operators_inside_another_wrapper_show() -> None:
    class Halves(lamina.WrapperTensor):
        elem: torch.Tensor
        fallback = lamina.Fallback.UNWRAP

    @Halves.implements(torch.ops.aten.add.Tensor)
    def add(op: Any, self: Any, other: Any, *, alpha: Any = 1) -> Halves:
        return Halves(op(self.elem * 1, other, alpha=alpha))

    inside = Halves(LoggingTensor(torch.ones(2)))
    around = LoggingTensor(Halves(torch.ones(2)))
    with Log() as inner:
        inside + 1
    with Log() as outer:
        around + 1
    assert ops(inner) == ["aten::mul.Tensor", "aten::add.Tensor"]
    assert ops(outer) == ["aten::add.Tensor"]
    assert outer.records[0].outputs[0].kind == "LoggingTensor"  # type: ignore[union-attr]


def test_an_observer_goes_before_a_representation() -> None:
    class Doubled(lamina.WrapperTensor):
        elem: torch.Tensor
        fallback = lamina.Fallback.UNWRAP

    observed, represented = LoggingTensor(torch.ones(2, 2)), Doubled(torch.ones(2, 2))
    with Log() as log:
        result = represented @ observed
    assert ops(log) == ["aten::mm"]
    assert type(result) is LoggingTensor
    assert type(result.elem) is Doubled


def test_a_failed_operator_is_recorded_and_raised_as_it_is() -> None:
    value = LoggingTensor(torch.ones(2, 3))
    with Log() as log, pytest.raises(RuntimeError, match="cannot be multiplied"):
        value @ value
    assert [(r.op, r.failed, r.outputs) for r in log] == [("aten::mm", True, ())]
    assert "cannot be multiplied" in (log.records[0].error or "")


def test_in_place_and_list_operators_are_recorded_once() -> None:
    values = [LoggingTensor(torch.ones(2)), LoggingTensor(torch.ones(3))]
    with Log() as log:
        values[0].add_(1)
        torch._foreach_add_(values, 1)
        torch.cat(values)
    assert ops(log) == ["aten::add_.Tensor", "aten::_foreach_add_.Scalar", "aten::cat"]
    assert log.records[1].inputs[0][1].shape == (3,)  # type: ignore[index, union-attr]
    assert torch.equal(values[0].to_plain(), torch.full((2,), 3.0))


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_without_gradients_operators_are_recorded_too(guard: Any) -> None:
    model = wrapped(make())
    with guard(), Log() as log:
        result = model(torch.ones(5, 3))
    assert torch.equal(plain(result), make()(torch.ones(5, 3)))
    assert ops(log, module="1") == ["aten::relu"]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recomputation_is_recorded_as_backward(use_reentrant: bool) -> None:
    model = wrapped(make())
    with Log() as log:
        result: Any = checkpoint(model, torch.ones(5, 3, requires_grad=True), use_reentrant=use_reentrant)
        result.sum().backward()
    assert ops(log, phase="forward").count("aten::addmm") == 2
    needed = 2 if use_reentrant else 1  # the result of the last one is not
    assert ops(log, phase="backward").count("aten::addmm") == needed


# where records go


def test_without_a_log_nothing_is_recorded() -> None:
    value, log = LoggingTensor(torch.ones(2)), Log()
    value + 1
    with log:
        pass
    value + 1
    assert len(log) == 0


def test_the_innermost_log_in_scope_gets_the_records() -> None:
    value = LoggingTensor(torch.ones(2))
    with Log() as outer:
        value + 1
        with Log() as inner:
            value * 2
    assert (ops(outer), ops(inner)) == (["aten::add.Tensor"], ["aten::mul.Tensor"])


@pytest.mark.parametrize("as_handle", [True, False])
def test_a_log_of_its_own_travels_with_the_results(as_handle: bool) -> None:
    log = Log()
    value = LoggingTensor(torch.ones(2), log.handle if as_handle else log)
    with Log() as scope:
        result = (value + 1).abs()
    assert result.log_handle == log.handle
    assert ops(log) == ["aten::add.Tensor", "aten::abs"]
    assert len(scope) == 0
    log.close()
    value + 1
    assert len(log) == 2


def test_operands_of_two_logs_are_recorded_in_both() -> None:
    first, second = Log(), Log()
    result = LoggingTensor(torch.ones(2), first) + LoggingTensor(torch.ones(2), second)
    assert ops(first) == ops(second) == ["aten::add.Tensor"]
    assert torch.equal(result.to_plain(), torch.full((2,), 2.0))
    first.close()
    second.close()


def test_the_handle_is_checked() -> None:
    with pytest.raises(lamina.LaminaError):
        LoggingTensor(torch.ones(2), "somewhere")  # type: ignore[arg-type]


def test_copies_keep_the_handle() -> None:
    log = Log()
    value = LoggingTensor(torch.ones(2), log)
    for same in (copy.deepcopy(value), pickle.loads(pickle.dumps(value)), value.detach()):
        assert type(same) is LoggingTensor
        assert same.log_handle == log.handle
        assert torch.equal(same.to_plain(), torch.ones(2))
    log.close()


def test_saved_and_loaded_with_weights_only(tmp_path: Any) -> None:
    log = Log()
    torch.save(LoggingTensor(torch.ones(2), log), tmp_path / "value.pt")
    loaded = torch.load(tmp_path / "value.pt", weights_only=True)
    assert loaded.log_handle == log.handle
    log.close()


def test_conversions_keep_the_gradient() -> None:
    leaf = torch.ones(2, requires_grad=True)
    log = Log()
    value = LoggingTensor.from_plain(leaf, log_handle=log.handle)
    (value * 3).to_plain().sum().backward()
    assert torch.equal(leaf.grad, torch.full((2,), 3.0))  # type: ignore[arg-type]
    assert "aten::mul.Tensor" in ops(log, phase="forward")
    log.close()


def test_a_mode_sees_the_outer_operator_once_and_the_tensor_records_it_below() -> None:
    value, log = LoggingTensor(torch.ones(2)), Log()
    with log, DispatchLog(log), OpCounter() as counter:
        value + 1
    assert [(r.layer, r.depth) for r in log] == [("dispatch", 0), ("subclass", 1)]
    assert counter.counts == {"aten::add.Tensor": 1}


# while torch traces


def test_nothing_is_recorded_while_torch_traces() -> None:
    value = LoggingTensor(torch.ones(2, 2))
    with Log() as log:
        graph = make_fx(lambda v: v.abs() @ v)(value)
        torch.export.export(make(), (torch.ones(5, 3),))
        with FakeTensorMode() as mode:
            LoggingTensor(mode.from_tensor(torch.ones(2))) + 1
    assert ops(log) == []
    assert "aten.mm" in graph.code


@pytest.mark.parametrize("levels", [0, 1, 2, 4])
def test_compiled_is_equal_to_eager_and_compiles_once(levels: int) -> None:
    eager, model, value = wrapped(make(), levels), wrapped(make(), levels), torch.ones(5, 3)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for logged in (False, True):
        with Log() if logged else torch.enable_grad():
            result = compiled(value)
            result.sum().backward()
    for _ in range(2):
        eager(value).sum().backward()
    assert torch.equal(plain(result), plain(eager(value)))
    assert type(result) is type(eager(value))
    for a, b in zip(eager.parameters(), model.parameters(), strict=True):
        assert type(a.grad) is type(b.grad)
        assert torch.equal(plain(a.grad), plain(b.grad))
    assert counter.frame_count == 1


def test_an_operator_between_compiled_pieces_is_recorded() -> None:
    def broken(value: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(value.abs()).neg()  # Dynamo leaves nonzero out, and looks into what it calls

    compiled = torch.compile(broken, backend="aot_eager")
    with Log() as log:
        result = compiled(LoggingTensor(torch.ones(2)))
    assert plain(result).tolist() == [[0], [-1]]
    assert ops(log) == ["aten::nonzero"]


def test_another_log_recompiles_and_the_same_does_not() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(torch.abs, backend=counter, fullgraph=True)
    first, second = Log(), Log()
    for log in (first, first, second, second, None, None):
        result = compiled(LoggingTensor(torch.ones(2), log))
        assert result.log_handle == (None if log is None else log.handle)
    assert counter.frame_count == 3
    assert len(first) == len(second) == 0
    first.close()
    second.close()


def test_a_subclass_declares_fields_of_its_own() -> None:
    class Named(LoggingTensor):
        label: str = "none"

    for made in (Named(torch.ones(2), label="w"), Named(torch.ones(2), None, "w")):
        assert (made + 1).label == "w"
    with Log() as log:
        Named(torch.ones(2)).mul(2)
    assert [(r.op, r.cls) for r in log] == [("aten::mul.Tensor", "Named")]
