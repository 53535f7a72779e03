"""A plan in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .ledger import Step

if TYPE_CHECKING:
    from .plan import Plan

MODULES_SHOWN = 5
UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
COUNTS = (("E", 10**18), ("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))
NOT_IN_IT = "not in it: the device's context and libraries"
COMPILED = "planned by the operators of its graphs, and what these save; code that fuses them has fewer temporaries"
INDUCTOR = "by its decompositions and partitioner: it saves the same; temporaries that it fuses away are in the plan"


def summary(plan: Plan) -> str:
    """Memory, then operations, then time."""
    return "\n".join([*_memory(plan), *_operations(plan), *_time(plan), *_end(plan)])


def in_bytes(nbytes: float) -> str:
    """Such as 12.3 GB, of 10**9 bytes."""
    for unit, size in UNITS:
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes:.0f} bytes"


def in_count(number: float) -> str:
    """Such as 12.3 T."""
    for unit, size in COUNTS:
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return f"{number:.0f}"


def in_seconds(seconds: float) -> str:
    """Such as 12.3 ms."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-6:
        return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} µs"
    return f"{seconds * 1e9:.2f} ns"


def in_place(step: Step | None) -> str:
    """Where an operator stands in the program."""
    if step is None:
        return "before the first operator"
    module = f"in {step.module}" if step.module else "outside of modules"
    return f"at {step.op}, {step.phase}, {module}" + (f", {step.site}" if step.site else "")


def verdict(plan: Plan) -> str:
    """Whether it fits, in words; empty without a device of the table."""
    if plan.hardware is None or plan.missing_bytes is None or plan.fits is None:
        return ""
    where = f"{plan.hardware.name}, {in_bytes(plan.hardware.memory)}"
    if not plan.fits:
        return f"does not fit by {in_bytes(plan.missing_bytes)} on {where}"
    return f"fits: {in_bytes(-plan.missing_bytes)} to spare on {where}{_with_scratch(plan)}"


def _with_scratch(plan: Plan) -> str:
    missing = plan.missing_with_scratch
    if not plan.scratch_bytes or missing is None:
        return ""
    if missing > 0:
        return f"; but not with the kernels' scratch, by an estimated {in_bytes(missing)}"
    return f"; with the kernels' scratch, an estimate, {in_bytes(-missing)}"


def _memory(plan: Plan) -> Iterator[str]:
    exact = f" ({plan.peak_bytes:,} bytes)"
    yield f"peak {in_bytes(plan.peak_bytes)}{exact} on {plan.device}, {in_place(plan.peak.step)}"
    for name, nbytes in plan.by_category.items():
        share = nbytes / plan.peak_bytes if plan.peak_bytes else 0
        yield f"  {name:<20}{in_bytes(nbytes):>12}{share:>7.1%}"
    if plan.reserved_bytes is not None:
        reserved = in_bytes(plan.reserved_bytes)
        yield f"asked for {in_bytes(plan.asked_bytes)}; reserved by the allocator: {reserved}"
    for device, nbytes in plan.elsewhere.items():
        yield f"on {device}: {in_bytes(nbytes)}"
    if plan.compiled_calls:
        yield f"compiled code ran {plan.compiled_calls} times: {COMPILED}"
    if plan.inductor_graphs:
        yield f"  {plan.inductor_graphs} graphs were for Inductor, and are planned {INDUCTOR}"
    yield from _scratch(plan)
    yield NOT_IN_IT


def _scratch(plan: Plan) -> Iterator[str]:
    scratch = plan.scratch
    if scratch.nbytes:
        together = f"{in_bytes(scratch.peak_bytes)} with the tensors"
        yield f"not in it, an estimate: scratch of kernels, {in_bytes(scratch.nbytes)} ({scratch.source})"
        yield f"  {together}, {in_place(scratch.step)}"
    else:
        yield "not in it: scratch of kernels, of which no operator here has an estimate"
    if scratch.not_estimated:
        yield f"  not estimated: {', '.join(scratch.not_estimated)}"


def _operations(plan: Plan) -> Iterator[str]:
    count = in_count(plan.flops)
    gap = " " if count[-1].isdigit() else ""
    yield f"{count}{gap}FLOP: {_shares(plan.flops_by('phase'))}"
    modules = dict(list(plan.flops_by("module").items())[:MODULES_SHOWN])
    if modules:
        yield f"  the most in {_shares(modules)}"
    yield f"moved {in_bytes(plan.bytes_moved)} in {len(plan.steps):,} operators"


def _shares(flops: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {in_count(count)}" for name, count in flops.items()) or "none"


def _time(plan: Plan) -> Iterator[str]:
    if plan.hardware is None or plan.seconds is None:
        return
    phases = ", ".join(f"{name} {in_seconds(s)}" for name, s in plan.costs.seconds_on(plan.hardware).items())
    yield f"estimate, at best: {in_seconds(plan.seconds)} on {plan.hardware.name} by its data sheet ({phases})"
    if plan.fits is not None:
        yield verdict(plan)


def _end(plan: Plan) -> Iterator[str]:
    if plan.error is not None:
        yield f"the step ended early, and this is the plan so far: {plan.error}"
