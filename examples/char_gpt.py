"""Trains a character GPT on Python's help topics, with float32 and with int8 weights; then the int8 model writes.

Run it with `python examples/char_gpt.py --plot losses.png`, or with `--seeds 3 --no-compile` to compare final losses.
The int8 weights have no float32 copy: updates are rounded into them, stochastically, or small ones would be lost.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from gpt_model import Text
from gpt_training import COMPILED, EAGER, FP32, INT8, train, write
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress
from rich.table import Table


def options() -> argparse.Namespace:
    """The command line, checked before anything runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps of each model (300)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, batches and rounding (0)")
    parser.add_argument("--seeds", type=int, default=1, help="train with so many seeds, from --seed on (1)")
    parser.add_argument("--characters", type=int, default=100, help="to write with each model (100)")
    parser.add_argument("--width", type=int, default=128, help="of the model, a multiple of 4 (128)")
    parser.add_argument("--rounding", choices=["stochastic", "nearest"], default="stochastic", help="of int8 updates")
    parser.add_argument("--no-compile", action="store_true", help="eager only: needs no C++ compiler")
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="write the loss curves to this file")
    chosen = parser.parse_args()
    if min(chosen.steps, chosen.seeds, chosen.characters, chosen.width) < 1 or chosen.width % 4:
        parser.error("--steps, --seeds, --characters and --width have to be 1 or more, and --width a multiple of 4")
    if chosen.plot and not (chosen.plot.suffix == ".png" and chosen.plot.absolute().parent.is_dir()):
        parser.error(f"--plot {chosen.plot}: give a name that ends in .png, in a folder that exists")
    if not chosen.no_compile and not any(map(shutil.which, [os.environ.get("CXX", "g++"), "clang++"])):
        parser.error("there is no C++ compiler (g++ or clang++): install one, or add --no-compile")
    return chosen


def plot(runs: list[dict[str, Any]], path: Path) -> None:
    """The losses of all trainings, each a mean of ten steps."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    panel = figure.subplots()
    for run in runs:
        means = torch.tensor(run["losses"]).unfold(0, min(10, len(run["losses"])), 1).mean(1)
        label = f"{run['weights']}, {run['mode']}, seed {run['seed']}: {run['held_out']:.3f} held out"
        panel.plot(means, "-" if run["mode"] == EAGER else "--", label=label)
    panel.set(xlabel="step", ylabel="training loss, mean of ten steps (nats a character)")
    panel.legend(frameon=False)
    figure.savefig(path, dpi=120)


def print_table(rows: list[dict[str, Any]]) -> None:
    """A line a row; curves are for the plot, and texts follow by themselves."""
    names = [name for name in rows[0] if name not in ("losses", "text")]
    table = Table(*names, box=None)
    for row in rows:
        table.add_row(*(f"{row[name]:,.4g}" if isinstance(row[name], float) else str(row[name]) for name in names))
    Console().print(table, "")


def main() -> None:
    """Train all models, compare their losses, and write with what the last int8 model learned."""
    chosen, text, runs = options(), Text(), []
    torch.set_num_threads(1)  # one thread, one order of every sum
    modes = [EAGER] if chosen.no_compile else [EAGER, COMPILED]
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=2 * len(modes) * chosen.seeds * chosen.steps)
        for job in product(modes, range(chosen.seed, chosen.seed + chosen.seeds), (FP32, INT8)):
            progress.update(task, description=" ".join(map(str, job)))
            recipe = {"steps": chosen.steps, "rounding": chosen.rounding, "width": chosen.width}
            model, run = train(text, *job, **recipe, advance=partial(progress.advance, task))
            runs.append(run)
    ratios = [int8["held_out"] / fp32["held_out"] for fp32, int8 in zip(runs[::2], runs[1::2], strict=True)]
    written = [write(model, text, activation, chosen.characters) for activation in (FP32, "int16", INT8)]
    if chosen.plot:
        plot(runs, chosen.plot)
    if chosen.json:
        print(json.dumps({"trained": runs, "ratios": ratios, "written": written}))
        return
    print_table(runs)
    print(f"final loss, int8 / fp32: mean {statistics.mean(ratios):.4f}, {min(ratios):.4f} to {max(ratios):.4f}\n")
    print_table(written)
    for row in written:
        print(f"{row['activation']}: {row['text']!r}")


if __name__ == "__main__":
    main()
