"""`lamina plan module:factory`: what a training step needs, and whether it fits on a device."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer

from ..bench.progress import progress_bar
from ..modes.plan import DEVICES, Plan
from ..modes.plan import models as shipped
from ..modes.plan.alternatives import Alternative, alternatives, devices_needed
from ..modes.plan.devices import UnknownDeviceError, device_named
from ..modes.plan.training import NO_OPTIMIZER, OPTIMIZERS, Training, TrainingError
from .target import load_object

SHIPPED = {"llama-1b": shipped.llama_1b, "llama-8b": shipped.llama_8b, "llama-70b": shipped.llama_70b}
SHORT_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}
STAGES = 4  # of a plan: building the model, forward, backward, optimizer
PICTURES = (".png", ".svg")
ALTERNATIVES = 6  # at most, mostly
Allocator = Literal["caching"] | None


def plan(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:FACTORY", help=f"Makes the model; or one of {', '.join(SHIPPED)}.")
    ],
    batch: Annotated[str, typer.Option(metavar="SHAPE", help="Of the model's input: 8x4096.")] = "1x4096",
    optimizer: Annotated[str, typer.Option(help=f"{', '.join(OPTIMIZERS)}; {NO_OPTIMIZER}: forward alone.")] = "adamw",
    dtype: Annotated[str, typer.Option(help="Of the parameters.")] = "bfloat16",
    device: Annotated[str, typer.Option(help=f"{', '.join(DEVICES)}; or one of torch's, such as cuda:1.")] = "h200",
    checkpointing: Annotated[bool, typer.Option("--checkpointing", help="Compute blocks again in backward.")] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Weights of the blocks' linear layers as int8.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="The bytes that tensors ask for, unrounded.")] = False,
    alone: Annotated[bool, typer.Option("--alone", help="Plan no alternatives where it does not fit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as JSON; bytes, seconds.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="PATH", help="Write a picture of the time line.")] = None,
) -> None:
    """Plan a training step without data and without the device: memory, operations, time at best; does it fit?

    The status is 0 where it fits (or nothing says so), 1 where it does not, or where the step raised.

    Example: lamina plan llama-8b --batch 1x4096 --optimizer adamw --dtype bfloat16 --device h200 --plot plan.png
    """
    _check_plot(plot)
    training = _training(target, batch, optimizer, dtype, checkpointing, int8)
    allocator = _allocator(device, exact)
    found = _planned(training, device, allocator, as_json)
    ways = [] if alone else _alternatives(training, found, device, allocator)
    if as_json:
        typer.echo(json.dumps(_record(target, training, found, ways), indent=1))
    else:
        _show(found, ways)
    if plot is not None:
        _plot(found, plot)
    raise typer.Exit(0 if found.fits is not False else 1)


def _check_plot(path: Path | None) -> None:
    """What can be said before the step is planned."""
    if path is None:
        return
    if not path.resolve().parent.is_dir():
        raise typer.BadParameter(f"--plot {path}: there is no folder {path.resolve().parent}")
    if path.is_dir():
        raise typer.BadParameter(f"--plot {path} is a folder. Name a file in it: {path / 'plan.png'}")
    if path.suffix.lower() not in PICTURES:
        raise typer.BadParameter(f"--plot {path}: pictures are written as {' or '.join(PICTURES)}")


def _plot(found: Plan, path: Path) -> None:
    try:
        found.plot(path)
    except OSError as error:
        typer.echo(f"the plan is done, and its picture can't be written: {error}", err=True)
        raise typer.Exit(1) from None


def _training(target: str, batch: str, optimizer: str, dtype: str, checkpointing: bool, int8: bool) -> Training:
    if target not in SHIPPED and ":" not in target:
        known = ", ".join(SHIPPED)
        raise typer.BadParameter(f"{target!r} is neither one of {known}, nor of the form module:factory")
    factory = SHIPPED.get(target) or load_object(target)
    if not callable(factory):
        raise typer.BadParameter(f"{target} can't be called: name a function or class that returns the model.")
    try:
        return Training(factory, _shape(batch), optimizer.lower(), _dtype(dtype), checkpointing, int8)
    except TrainingError as error:
        raise typer.BadParameter(str(error)) from None


def _shape(text: str) -> tuple[int, ...]:
    sizes = text.lower().split("x")
    if not all(size.isdecimal() and int(size) for size in sizes):
        raise typer.BadParameter(f"--batch {text!r} is no shape. Write sizes above 0 with x between them: 8x4096")
    return tuple(int(size) for size in sizes)


def _dtype(text: str) -> torch.dtype:
    found = getattr(torch, SHORT_DTYPES.get(text.lower(), text), None)
    if not isinstance(found, torch.dtype):
        raise typer.BadParameter(f"--dtype {text!r} is no dtype of torch, such as bfloat16 or float32")
    return found


def _allocator(device: str, exact: bool) -> Allocator:
    try:
        hardware = device_named(device)
    except UnknownDeviceError as error:
        raise typer.BadParameter(str(error)) from None
    claim = hardware.claim if hardware else device
    return "caching" if torch.device(claim).type == "cuda" and not exact else None


def _planned(training: Training, device: str, allocator: Allocator, as_json: bool) -> Plan:
    """The plan; where the step raises, the plan so far, then the error."""
    try:
        with _bar(1) as told:
            return training.plan(device, allocator=allocator, progress=told("planning"))
    except TrainingError as error:
        raise typer.BadParameter(str(error)) from None
    except Exception as error:
        so_far = getattr(error, "plan", None)
        if so_far is None:
            raise
        typer.echo(json.dumps(so_far.to_json(), indent=1) if as_json else so_far.summary())
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        raise typer.Exit(1) from None


def _alternatives(training: Training, found: Plan, device: str, allocator: Allocator) -> list[Alternative]:
    with _bar(ALTERNATIVES) as told:

        def planned(name: str, other: Training) -> Plan:
            return other.plan(device, allocator=allocator, progress=told(name))

        return list(alternatives(training, found, planned))


@contextmanager
def _bar(plans: int) -> Iterator[Callable[[str], Callable[[str], None]]]:
    """A bar on stderr for about so many plans: gives, for the name of each, what is told what it is at."""
    with progress_bar(plans * STAGES, hidden=not sys.stderr.isatty()) as advance:

        def told(name: str) -> Callable[[str], None]:
            last = ""

            def tell(doing: str) -> None:
                nonlocal last
                stage = doing.partition(":")[0]
                advance(f"{name}, {doing}", float(stage != last))
                last = stage

            return tell

        yield told


def _show(found: Plan, ways: list[Alternative]) -> None:
    typer.echo(found.summary())
    if found.fits is not False:
        return
    if ways:
        typer.echo("what would make it fit:")
    for way in ways:
        typer.echo(f"  {way}")
    needed = devices_needed(found)
    if needed is not None and needed > 1:
        typer.echo(f"  parameters, gradients and optimizer state alone, split evenly: {needed} devices at least")


def _record(target: str, training: Training, found: Plan, ways: list[Alternative]) -> dict[str, Any]:
    return {"target": target, **_asked(training), **found.to_json(), "alternatives": [_way(way) for way in ways]}


def _asked(training: Training) -> dict[str, Any]:
    dtype = str(training.dtype).removeprefix("torch.")
    names = ("optimizer", "checkpointing", "int8")
    return {"batch": list(training.batch), "dtype": dtype, **{name: getattr(training, name) for name in names}}


def _way(way: Alternative) -> dict[str, Any]:
    numbers = ("peak_bytes", "reserved_bytes", "fits", "missing_bytes")
    planned = {name: None if way.plan is None else getattr(way.plan, name) for name in numbers}
    return {"name": way.name, **_asked(way.training), **planned, "reason": way.reason}
