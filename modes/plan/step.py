"""plan_step: runs a training step under FakeLikeMode, and says what it would need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from ..fake import FakeLikeMode
from .caching_allocator import CachingAllocator, granted
from .devices import Device, device_named
from .ledger import CATEGORIES, Step
from .plan import Plan
from .referred import referred
from .timeline import events_of, moments_of, most_by_device, peak_of
from .watch import StepWatch

CACHING = "caching"


def plan_step(
    step: Callable[[], object],
    *,
    device: str | torch.device | None = None,
    allocator: Literal["caching"] | None = None,
    known: Sequence[Any] = (),
    convert: bool = False,
    progress: Callable[[Step], object] | None = None,
) -> Plan:
    """What ``step`` needs: the peak of memory and what it is made of, operations, bytes moved; without its data.

    ``step`` is called once, inside a FakeLikeMode. It may build the model and the optimizer itself; or use some that
    were made of FakeLikeTensors before. Those that it refers to count from the start. Compiled code is planned by its
    graphs' operators; for Inductor, by those of its decompositions and partitioner: what is saved for the backward is
    what it saves (but for copies of what a convolution is given); temporaries that it fuses away count.

    Args:
        step: forward, backward and the optimizer's step; or any part of that.
        device: the name of one in the table of devices, such as "h200", which also gives a time and says whether the
            step fits; or one of torch's, such as "cuda:1". What names no device is made there. None: torch's default.
        allocator: "caching": sizes as torch's allocator for CUDA rounds them, and what it reserves.
        known: modules, optimizers and tensors that are there before and that ``step`` doesn't refer to.
        convert: turn real tensors that come in, such as a batch, into FakeLikeTensors. ``fake_like`` does models.
        progress: called after each operator.

    Raises:
        UnknownDeviceError: no such device. ValueError: no such allocator.
        DataDependentError: the step needs values. Each error of the step comes as it is; its ``plan``: the plan so far.

    >>> import torch
    >>> def step():
    ...     model = torch.nn.Linear(1000, 1000, bias=False)
    ...     model(torch.empty(10, 1000)).sum().backward()
    >>> plan = plan_step(step)
    >>> plan.peak_bytes, plan.by_category["parameters"], plan.by_category["gradients"]
    (8040008, 4000000, 4000000)
    """
    hardware = device_named(device) if isinstance(device, str) else None
    claim = hardware.claim if hardware else device
    _check_allocator(allocator)
    watch = StepWatch([*referred(step), *known], progress)
    try:
        with FakeLikeMode(claim, convert=convert), watch:
            kept = step()
    except Exception as error:
        error.plan = _plan(watch, claim, hardware, allocator, f"{type(error).__name__}: {error}")  # type: ignore[attr-defined]
        raise
    plan = _plan(watch, claim, hardware, allocator, None)
    del kept  # alive until here: it is what the step returns
    return plan


def _check_allocator(allocator: str | None) -> None:
    if allocator not in (None, CACHING):
        raise ValueError(f"allocator={allocator!r}: it is {CACHING!r}, or None for the bytes that tensors ask for")


def _plan(
    watch: StepWatch,
    claim: str | torch.device | None,
    hardware: Device | None,
    allocator: str | None,
    error: str | None,
) -> Plan:
    every = events_of(watch.ledger)
    most = most_by_device(every)
    where = _where(most, claim)
    asked = [event for event in every if event.block.device == where]
    caching = CachingAllocator(hardware.memory if hardware else None)
    events = asked if allocator is None else list(granted(asked, caching))
    moments = list(moments_of(events))
    peak = peak_of(moments, watch.steps)
    return Plan(
        device=where,
        hardware=hardware,
        allocator=allocator,
        steps=watch.steps,
        moments=moments,
        peak=peak,
        at_end={name: sum(e.nbytes for e in events if e.block.kind == name) for name in CATEGORIES},
        elsewhere={str(device): nbytes for device, nbytes in most.items() if device != where},
        asked_bytes=most.get(where, 0),
        reserved_bytes=None if allocator is None else caching.most_reserved,
        costs=watch.costs,
        scratch=watch.scratch.at_most(where, hardware, moments, peak, watch.steps),
        compiled_calls=watch.compiled_calls,
        inductor_graphs=watch.inductor_graphs,
        error=error,
    )


def _where(most: dict[torch.device, int], claim: str | torch.device | None) -> torch.device:
    """The device that the plan is about: the claimed one, else that with the most bytes."""
    kind = None if claim is None else torch.device(claim).type
    found = {device: nbytes for device, nbytes in most.items() if kind in (None, device.type)}
    if not found:
        return torch.device("cpu" if claim is None else claim)
    return max(found, key=lambda device: found[device])
