"""`lamina bench ...`: measurements, each in its own module of `lamina.bench`, which also parses its arguments."""

from __future__ import annotations

import typer

app = typer.Typer(help="Measure what tensor subclasses cost and save, beside their peers.", no_args_is_help=True)

# Hand everything on, `--help` too: the measurements also run as modules, without the command line's packages.
HAND_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command("layers", context_settings=HAND_ON)
def layers(context: typer.Context) -> None:
    """Time operators under 0 to 4 layers of wrapping, against hand-written and other wrappers."""
    from ..bench.layers import main

    raise typer.Exit(main(context.args))


@app.command("int8", context_settings=HAND_ON)
def int8(context: typer.Context) -> None:
    """Time a linear layer with int8 weights, and a training step, against plain torch and torchao."""
    from ..bench.int8.command import main

    raise typer.Exit(main(context.args))


@app.command("modes", context_settings=HAND_ON)
def modes(context: typer.Context) -> None:
    """Time what logs, counters and guards add to an operator, against modes that do nothing."""
    from ..bench.modes import main

    raise typer.Exit(main(context.args))
