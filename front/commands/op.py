"""`lamina op NAME`: the card of an operator, and its dispatch table."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..modes.trace import UnknownOperatorError, UnseenError, explain_table, op_card
from ..modes.trace.packaged import MissingSourcesError
from ..subclasses.logging_tensor import LoggingTensor
from ..subclasses.scaled_int8 import PackedInt8Tensor, ScaledInt8Tensor

TYPES = (LoggingTensor, ScaledInt8Tensor, PackedInt8Tensor)


def op(
    name: Annotated[str, typer.Argument(metavar="OP", help="An operator, such as aten::addmm or aten::add.Tensor.")],
    table: Annotated[bool, typer.Option("--table", help="Add the dispatch table, with reasons.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print what is known of an operator: schema, kernels, derivatives, autocast, and how lamina's types answer it."""
    try:
        card = op_card(name, TYPES)
    except (UnknownOperatorError, MissingSourcesError, UnseenError) as error:
        raise typer.BadParameter(str(error)) from None
    slots = explain_table(card.name)
    if as_json:
        found = {**card.to_json(), "table": {slot.key: str(slot) for slot in slots}} if table else card.to_json()
        typer.echo(json.dumps(found, indent=1))
        return
    typer.echo(card)
    if table:
        typer.echo(slots)
