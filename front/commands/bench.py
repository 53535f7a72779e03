"""`lamina bench ...`: measurements, each in its own module of `lamina.bench`, which also parses its arguments."""

from __future__ import annotations

from importlib import import_module

import typer

app = typer.Typer(help="Measure what tensor subclasses cost and save, beside their peers.", no_args_is_help=True)

# Hand everything on, `--help` too: the measurements also run as modules, without the command line's packages.
HAND_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

# The module in lamina.bench whose `main(arguments)` is the command, and what it does.
COMMANDS = {
    "layers": ("layers", "Time operators under 0 to 4 layers of wrapping, against hand-written and other wrappers."),
    "int8": (
        "int8.command",
        "Time a linear layer with int8 weights, and a training step, against plain torch and torchao.",
    ),
    "step": ("step.command", "Time training steps with wrapped weights, eager and compiled, and split the cost."),
    "modes": ("modes", "Time what logs, counters and guards add to an operator, against modes that do nothing."),
    "fake": ("fake.command", "Time operators and training steps that compute metadata alone, against torch's fakes."),
    "selfcheck": (
        "selfcheck",
        "Does the instrument find a difference where there is one, and none where there is none?",
    ),
    "all": ("whole.command", "Run all of these, and write their results, plots, and one report in HTML."),
    "compare": ("whole.compare", "Say what got slower or faster between two runs."),
    "readme": ("whole.readme", "Write the README's tables of figures from a file of results."),
}


def _add(name: str, module: str, text: str) -> None:
    def command(context: typer.Context) -> None:
        main = import_module(f"..bench.{module}", __package__).main
        raise typer.Exit(main(context.args))

    app.command(name, help=text, context_settings=HAND_ON)(command)


for _name, (_module, _text) in COMMANDS.items():
    _add(_name, _module, _text)
