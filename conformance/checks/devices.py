"""Moving an instance between devices, pinning it, and where its memory is while it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..check import check
from ..outcome import MismatchError
from ..subject import CPU, VALUED, Subject, addresses, leaves_of

META = torch.device("meta")


def _others(subject: Subject) -> list[torch.device]:
    """Devices to move to: meta is everywhere."""
    return [META] if subject.device == CPU else [META, CPU]


@check("devices", "to(device) moves some of the tensors inside", kinds=VALUED)
def a_move_takes_every_leaf(subject: Subject) -> None:
    """After a move, in one call, the instance and all tensors inside report the device; class, shape, strides and dtype
    stay, and so does the original where it was. With one left behind the next op crashes, or mixes devices."""
    instance, plain = subject.new(4, 8), subject.plain(4, 8)
    for device in _others(subject):
        for text, move in _moves(device):
            moved, expected = move(instance), move(plain)
            _all_on(subject, f"w.{text}", moved, expected)
        _all_on(subject, "the original after a move", instance, plain)


def _moves(device: torch.device) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    yield f"to('{device}')", lambda w: w.to(device)
    yield f"to(device='{device}', dtype=torch.float64)", lambda w: w.to(device=device, dtype=torch.float64)
    yield f"to(tensor on {device})", lambda w: w.to(torch.empty(0, device=device))


def _all_on(subject: Subject, call: str, got: Any, expected: torch.Tensor) -> None:
    if not subject.is_instance(got):
        raise MismatchError(f"type({call})", subject.cls, type(got))
    facts = [(tuple(e.shape), e.dtype, e.device, e.is_meta, e.is_cpu, e.get_device()) for e in (got, expected)]
    if facts[0] != facts[1]:
        raise MismatchError(f"shape, dtype, device, is_meta, is_cpu and get_device() of {call}", facts[1], facts[0])
    devices = {str(leaf.device) for leaf in leaves_of(got)}
    if devices != {str(expected.device)}:
        raise MismatchError(f"devices inside {call}", [str(expected.device)], sorted(devices))


@check("devices", "values drift when a model goes to and fro", kinds=VALUED)
def repeated_moves_are_bit_exact(subject: Subject) -> None:
    """Offloading moves each weight at each step: after any number of moves and copies all bits are as they were."""
    original = moved = subject.new(4, 8)
    away = _others(subject)[-1] if subject.device != CPU else CPU
    for _ in range(3):
        moved = moved.to(away, copy=True).to(subject.device, copy=True)
    subject.kept(f"w.to('{away}', copy=True), three times and back", moved, original)
    if set(addresses(moved)) & set(addresses(original)):
        raise MismatchError(f"w.to('{away}', copy=True)", "memory of its own", "tensors at addresses of the original")
    layer = subject.layer()
    before, held = layer.weight.detach().clone(), layer.weight
    for _ in range(3):
        layer.to(away).to(subject.device)
    if layer.weight is not held:
        raise MismatchError(f"p = layer.weight; layer.to('{away}'); layer.weight is p", True, False)
    subject.kept(f"layer.to('{away}'), three times and back; weight.detach()", layer.weight.detach(), before)


@check("devices", "to(its own device) copies", kinds=VALUED)
def a_move_to_its_own_device_is_no_copy(subject: Subject) -> None:
    """``w.to(w.device)`` is ``w``, and a layer's memory stays where it is: a copy would double what a model takes."""
    instance = subject.new(4, 8)
    for call, moved in (("w.to(w.device)", instance.to(subject.device)), ("w.to(w.dtype)", instance.to(torch.float32))):
        if moved is not instance:
            raise MismatchError(f"{call} is w", True, False)
    layer = subject.layer()
    before = addresses(layer.weight)
    layer.to(subject.device)
    if addresses(layer.weight) != before:
        raise MismatchError("layer.to(its own device)", "memory where it was", "new memory")


@check("devices", "non_blocking=True is no argument of the class's move", kinds=VALUED)
def moves_need_not_block(subject: Subject) -> None:
    """``to(..., non_blocking=True)`` and ``copy_(..., non_blocking=True)`` are what loaders write: the same instance
    comes."""
    original, target = subject.new(4, 8), subject.new(4, 8, seed=1)
    moved = original.to(subject.device, non_blocking=True, copy=True)
    _synchronize(subject)
    subject.kept("w.to(device, non_blocking=True, copy=True)", moved, original)
    target.copy_(original, non_blocking=True)
    _synchronize(subject)
    subject.same("other.copy_(w, non_blocking=True)", target, subject.reference(subject.plain(4, 8)))
    away = original.to(_others(subject)[-1], non_blocking=True)
    _synchronize(subject)
    _all_on(subject, "w.to(other device, non_blocking=True)", away, original.detach().to(away.device))


def _synchronize(subject: Subject) -> None:
    if subject.device != CPU:
        torch.accelerator.synchronize(subject.device)


@check("devices", "pin_memory pins nothing, or is_pinned lies", kinds=VALUED)
def pinning_acts_on_every_leaf(subject: Subject) -> None:
    """``is_pinned`` says what is true of all tensors inside, and ``pin_memory`` gives an instance of pinned ones.
    Without a device to pin for it is the error that it is for plain tensors; not an instance that is not pinned."""
    instance, plain = subject.new(4, 8).cpu(), torch.zeros(4, 8)
    if instance.is_pinned() or any(leaf.is_pinned() for leaf in leaves_of(instance)):
        raise MismatchError("w.is_pinned(), of one that is not", False, True)
    if subject.device == CPU:
        _same_refusal("pin_memory()", lambda tensor: tensor.pin_memory(), instance, plain)
        return
    pinned = instance.pin_memory()
    subject.kept("w.pin_memory()", pinned, instance)
    if not pinned.is_pinned() or not all(leaf.is_pinned() for leaf in leaves_of(pinned)):
        raise MismatchError("w.pin_memory().is_pinned(), and of all tensors inside", True, False)


@check("devices", "record_stream does nothing, or crashes", kinds=VALUED)
def streams_are_recorded_of_every_leaf(subject: Subject) -> None:
    """``record_stream`` reaches all tensors inside, else their memory is given away while a stream still reads it.
    Where there are no streams it is the error that it is for plain tensors; silence says that nothing was reached."""
    instance, plain = subject.new(4, 8), subject.plain(4, 8)
    stream = torch.Stream(device="cpu") if subject.device == CPU else torch.accelerator.current_stream(subject.device)
    _same_refusal("record_stream(stream)", lambda tensor: tensor.record_stream(stream), instance, plain)


def _same_refusal(call: str, run: Callable[[torch.Tensor], Any], instance: Any, plain: torch.Tensor) -> None:
    try:
        run(plain)
    except (RuntimeError, NotImplementedError) as error:
        try:
            got = run(instance)
        except (RuntimeError, NotImplementedError):
            return
        raise MismatchError(f"w.{call}", error, got) from None
    run(instance)


@check("devices", "p.data = other keeps the old tensors inside", kinds=VALUED)
def a_data_swap_replaces_every_leaf(subject: Subject) -> None:
    """``p.data = other`` makes ``p`` stand for the other's values, and ``p.data`` is an alias that can be written to:
    FSDP, DeepSpeed and offloading work so."""
    parameter: Any = nn.Parameter(subject.new(4, 8))
    other = subject.new(4, 8, seed=1)
    parameter.data = other
    subject.same("p.data = other; p", parameter, subject.reference(subject.plain(4, 8, seed=1)))
    if addresses(parameter) != addresses(other) or not isinstance(parameter, nn.Parameter):
        raise MismatchError("p.data = other; p", "a Parameter over the other's memory", parameter)
    parameter.data = parameter.to(subject.device)  # itself: it is there
    subject.same("p.data = p.to(p.device); p", parameter, subject.reference(subject.plain(4, 8, seed=1)))
    alias = parameter.data
    if alias.requires_grad or addresses(alias) != addresses(parameter):
        raise MismatchError("p.data", "an alias that does not require grad", alias)
    alias.zero_()
    subject.stored("p.data.zero_(); p", parameter, torch.zeros_like(subject.plain(4, 8)))


@check("devices", "p.data = plain, vector_to_parameters: nothing happens", kinds=VALUED)
def a_plain_data_swap_is_not_lost(subject: Subject) -> None:
    """``p.data = plain`` and ``vector_to_parameters`` write the values, or are an error that says what to write. What
    is silently lost is found after the training."""
    from_vector: Any = nn.utils.vector_to_parameters
    for call, write in (
        ("p.data = plain", lambda p, values: setattr(p, "data", values)),
        ("vector_to_parameters(vector, [p])", lambda p, values: from_vector(values.flatten(), [p])),
    ):
        parameter, values = nn.Parameter(subject.new(4, 8)), subject.plain(4, 8, seed=1)
        try:
            write(parameter, values)
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            if not str(error).strip():
                raise MismatchError(call, "the values written, or an error with a text", error) from None
        else:
            subject.stored(f"{call}; p", parameter, values)


@check("devices", "an update gives the parameter new memory", kinds=VALUED)
def updates_keep_leaf_addresses(subject: Subject) -> None:
    """``copy_``, ``zero_``, ``load_state_dict`` and an optimizer's step write into the tensors that are there: a CUDA
    graph replays on their addresses, and shares and views of them follow."""
    layer: Any = subject.layer()
    before = addresses(layer.weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(subject.plain(3, 8, seed=1)).sum().backward()
    ways: dict[str, Callable[[], Any]] = {
        "optimizer.step()": optimizer.step,
        "w.copy_(plain)": lambda: layer.weight.copy_(subject.plain(4, 8, seed=2)),
        "w.copy_(other)": lambda: layer.weight.copy_(subject.new(4, 8, seed=3)),
        "load_state_dict": lambda: layer.load_state_dict(subject.layer().state_dict()),
        "w.zero_()": layer.weight.zero_,
    }
    with torch.no_grad():
        for call, run in ways.items():
            run()
            if addresses(layer.weight) != before:
                raise MismatchError(f"addresses inside w after {call}", "those before", "others")


@check("devices", "a kernel for one device is called on a copy elsewhere", kinds=VALUED)
def products_run_where_the_instance_is(subject: Subject) -> None:
    """A copy on another device runs there: on the CPU with the same values, on meta with shapes alone. A class picks
    its kernels by where it is, not by where it was made."""
    x, plain = subject.plain(3, 8, seed=1), subject.reference(subject.plain(4, 8))
    instance = subject.new(4, 8)
    again = instance.to(CPU, copy=True)
    subject.same(
        "F.linear(x, w.to('cpu', copy=True))", F.linear(x.cpu(), again), F.linear(x, plain).cpu(), loosely=True
    )
    shapes = F.linear(x.to(META), instance.to(META))
    if (tuple(shapes.shape), shapes.dtype, shapes.device) != ((3, 4), torch.float32, META):
        raise MismatchError("F.linear(x.to('meta'), w.to('meta'))", "float32[3, 4] on meta", shapes)


@check("devices", "empty_like(w, device=...) stays where w is", kinds=VALUED)
def factories_take_the_device_they_are_told(subject: Subject) -> None:
    """``empty_like``, ``zeros_like``, ``rand_like`` and ``new_empty`` with a device make their result there, all of it:
    an optimizer's state and a sharded model's parameters are made so."""
    instance = subject.new(4, 8)
    ways: dict[str, Callable[[], Any]] = {
        "torch.empty_like(w, device='meta')": lambda: torch.empty_like(instance, device=META),
        "torch.zeros_like(w, device='meta')": lambda: torch.zeros_like(instance, device=META),
        "torch.rand_like(w, device='meta')": lambda: torch.rand_like(instance, device=META),
        "w.new_empty((4, 8), device='meta')": lambda: instance.new_empty((4, 8), device=META),
    }
    for call, run in ways.items():
        made = run()
        devices = {leaf.device.type for leaf in [made, *leaves_of(made)]}
        if devices != {"meta"} or tuple(made.shape) != (4, 8):
            raise MismatchError(f"shape and devices of {call}", "[4, 8], all on meta", [made, *sorted(devices)])
