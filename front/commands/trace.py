"""`lamina trace "expression"`: each decision of the dispatcher, line by line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from ..modes.trace import DispatcherTrace
from ..modes.trace.operators import near_operators
from ..subclasses.core.wrapper import WrapperTensor
from .target import load_class

EXAMPLE = 'lamina trace "F.linear(x, w, b)" --shapes x=2x64 w=600x64 b=600 --requires-grad w,b --backward'


def trace(
    expression: Annotated[str, typer.Argument(metavar="EXPRESSION", help='Python, such as "F.linear(x, w, b)".')],
    more: Annotated[list[str] | None, typer.Argument(metavar="NAME=SHAPE ...", hidden=True)] = None,
    shapes: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SHAPE ...", help="Tensors: x=2x64, n=scalar, i=3:int64; several in a row."),
    ] = None,
    requires_grad: Annotated[str, typer.Option(metavar="NAMES", help="Which of them require grad: w,b.")] = "",
    wrap: Annotated[
        list[str] | None, typer.Option(metavar="NAME=CLASS", help="w=lamina.LoggingTensor: made by from_plain.")
    ] = None,
    backward: Annotated[bool, typer.Option("--backward", help="Sum the result and run backward.")] = False,
    no_grad: Annotated[bool, typer.Option("--no-grad", help="Under torch.no_grad().")] = False,
    inference: Annotated[bool, typer.Option("--inference", help="Under torch.inference_mode().")] = False,
    autocast: Annotated[str, typer.Option(metavar="DTYPE", help="Under CPU autocast to this dtype.")] = "",
    brief: Annotated[bool, typer.Option("--brief", help="Leave the key sets out.")] = False,
    as_tree: Annotated[bool, typer.Option("--tree", help="As a tree, in colours.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As records.")] = False,
    chrome: Annotated[Path | None, typer.Option(metavar="PATH", help="Write a Chrome trace, for Perfetto.")] = None,
) -> None:
    """Show how the dispatcher picks kernels for EXPRESSION, which sees torch, F, nn and the tensors of --shapes.

    Example: lamina trace "F.linear(x, w, b)" --shapes x=2x64 w=600x64 b=600 --requires-grad w,b --backward
    """
    names = _tensors([*(shapes or []), *(more or [])], [each for each in requires_grad.split(",") if each], wrap or [])
    code = _compiled(expression)
    with ExitStack() as scope:
        _enter(scope, no_grad, inference, autocast)
        found, error = _traced(code, names, backward)
    if chrome is not None:
        _written(chrome, json.dumps(found.to_chrome()))
    if as_json:
        typer.echo(json.dumps(_record(found, error), indent=1))
    else:
        if error is not None:
            typer.echo(f"{_text(error)}{_near(error)}\nThe trace so far:", err=True)
        _show(found, brief, as_tree)
    if error is not None:
        raise typer.Exit(1)


def _record(found: DispatcherTrace, error: Exception | None) -> dict[str, Any]:
    return {"error": error and _text(error), "unseen": found.unseen, "decisions": found.to_json()}


def _traced(code: Any, names: dict[str, Any], backward: bool) -> tuple[DispatcherTrace, Exception | None]:
    found = DispatcherTrace()
    try:
        with found:
            result = eval(code, names)  # noqa: S307 - the user's own command line
            if backward:
                result.sum().backward()
    except Exception as error:  # noqa: BLE001 - whatever the expression raises is shown, with the trace so far
        return found, error
    return found, None


def _compiled(expression: str) -> Any:
    try:
        return compile(expression, "<expression>", "eval")
    except SyntaxError as error:
        raise typer.BadParameter(f"{expression!r} does not parse: {error.msg}. An example: {EXAMPLE}") from None


def _tensors(shapes: list[str], grads: list[str], wraps: list[str]) -> dict[str, Any]:
    names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "nn": torch.nn}
    made = dict(_tensor(text) for text in shapes)
    for text in wraps:
        name, _, target = text.partition("=")
        if name not in made:
            raise typer.BadParameter(f"--wrap {text}: there is no tensor {name!r}; --shapes has {', '.join(made)}")
        with _as_parameter(f"--wrap {text}"):
            made[name] = _class(target).from_plain(made[name]).detach()
    for name in grads:
        if name not in made:
            raise typer.BadParameter(f"--requires-grad {name}: --shapes has {', '.join(made) or 'no tensor'}")
        with _as_parameter(f"--requires-grad {name}"):
            made[name].requires_grad_()
    return {**names, **made}


def _class(target: str) -> type[WrapperTensor]:
    module, _, name = target.rpartition(".")
    return load_class(target if ":" in target else f"{module}:{name}")


def _tensor(text: str) -> tuple[str, torch.Tensor]:
    name, equals, rest = text.partition("=")
    shape, _, dtype = rest.partition(":")
    sizes = [] if shape == "scalar" else shape.split("x")
    if not (equals and name.isidentifier() and all(size.isdecimal() for size in sizes)):
        raise typer.BadParameter(f"{text!r} is no NAME=SHAPE, such as x=2x64, n=scalar or i=3:int64")
    kind = _dtype(dtype or "float32")
    with _as_parameter(f"--shapes {text}"):
        values = torch.ones([int(size) for size in sizes], dtype=kind)
        return name, torch.randn(values.shape).to(kind) if kind.is_floating_point else values


@contextmanager
def _as_parameter(option: str) -> Iterator[None]:
    """What torch, or a class, says against a value of the command line is an error of that."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        raise typer.BadParameter(f"{option}: {error}") from None


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise typer.BadParameter(f"{name!r} is no dtype of torch, such as float32, bfloat16 or int64")
    return found


def _enter(scope: ExitStack, no_grad: bool, inference: bool, autocast: str) -> None:
    if no_grad:
        scope.enter_context(torch.no_grad())
    if inference:
        scope.enter_context(torch.inference_mode())
    if autocast:
        scope.enter_context(torch.autocast("cpu", _dtype(autocast)))


def _show(found: DispatcherTrace, brief: bool, as_tree: bool) -> None:
    if as_tree:
        import rich

        rich.print(found.tree(keys=not brief))
    else:
        for gap in found.gaps():
            typer.echo(gap)
        for each in found.decisions:
            typer.echo(f"{'  ' * each.depth}{each.text(keys=not brief)}")


def _written(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise typer.BadParameter(f"--chrome {path}: {error.strerror}") from None


def _near(error: Exception) -> str:
    """Names like the one that torch lacks."""
    if not isinstance(error, AttributeError):
        return ""
    operator = re.match(r"'_OpNamespace' '(\w+)' object has no attribute '(\w+)'", str(error))
    if operator:
        near = [name.replace("::", ".") for name in near_operators("::".join(operator.groups()))]
    else:
        near = get_close_matches(error.name or "", dir(error.obj), 5)
    return f". Near: {', '.join(near)}" if near else ""


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
