"""The command `lamina bench step`."""

from __future__ import annotations

from ..command import Command
from .budgets import budgets
from .measuring import run, work
from .options import chosen_options, parser
from .plot import picture
from .report import LEGEND, tables

COMMAND = Command(parser, chosen_options, work, run, LEGEND, tables, budgets, picture=picture)
main = COMMAND.main
