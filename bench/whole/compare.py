"""The command `lamina bench compare`: what got slower or faster between two runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ..record import SCHEMA
from ..tables import Table, print_tables
from .comparison import THRESHOLD, TIME, Compared, Comparison, Cost, compare, differences
from .loading import Key, ResultsFileError, load

ALIKE, SLOWER, REFUSED = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. The exit status: 1 if something got slower, 2 for what cannot be compared."""
    chosen = _parse(arguments)
    try:
        before, after = load(chosen.before), load(chosen.after)
        found = compare(before, after, chosen.threshold / 100)
    except ResultsFileError as error:
        print(error, file=sys.stderr)
        return REFUSED
    grave, slight = differences(before, after)
    for line in (*grave, *slight):
        print(f"warning: {line}", file=sys.stderr)
    if grave and not chosen.force:
        print("These runs say little about each other. Compare them all the same with --force.", file=sys.stderr)
        return REFUSED
    if chosen.json:
        print(_as_json(found, [*grave, *slight]))
    else:
        _print(found, everything=chosen.all)
    return SLOWER if found.of("slower") else ALIKE


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lamina bench compare",
        description="What got slower or faster between two runs. Ratios to a baseline are compared, and times only "
        "where there are none: the machine's mood changes between runs.",
        epilog="Exit status: 0 if nothing got slower, 1 if something did, 2 if the files cannot be compared.",
    )
    parser.add_argument("before", type=Path, help="results.json of `lamina bench all`, or --json of one bench")
    parser.add_argument("after", type=Path, help="the same of another run")
    parser.add_argument(
        "--threshold",
        type=_percent,
        default=100 * THRESHOLD,
        metavar="PERCENT",
        help="changes up to this are none, even where the intervals don't meet; default: %(default)g",
    )
    parser.add_argument("--force", action="store_true", help="compare runs of two machines, or by two clocks")
    parser.add_argument("--all", action="store_true", help="show the figures that are alike, too")
    parser.add_argument("--json", action="store_true", help="print all as JSON instead of a table; nanoseconds")
    return parser.parse_args(arguments)


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage; write 0 or more, as in 5")
    return value


def _as_json(found: Comparison, warnings: list[str]) -> str:
    data = {
        "schema": SCHEMA,
        "warnings": warnings,
        "slower": len(found.of("slower")),
        "faster": len(found.of("faster")),
        "compared": [each.to_json() for each in found.compared],
        "only_before": found.only_before,
        "only_after": found.only_after,
    }
    return json.dumps(data, allow_nan=False)


def _print(found: Comparison, *, everything: bool) -> None:
    verdicts = ("slower", "faster", "alike") if everything else ("slower", "faster")
    rows = [_row(each) for verdict in verdicts for each in found.of(verdict)]
    heads = ["", "what", "before", "after", "change", "at least, at most", ""]
    if rows:
        print_tables([Table("what changed (interval: 95 % of each median)", heads, rows)])
    by_time = sum(each.what == TIME for each in found.compared)
    counts = ", ".join(f"{len(found.of(verdict))} {verdict}" for verdict in ("slower", "faster", "alike"))
    print(f"{counts}; {len(found.compared) - by_time} compared by ratio, {by_time} by time")
    _print_missing("only before", found.only_before)
    _print_missing("only after", found.only_after)


def _row(each: Compared) -> list[str]:
    low, high = each.interval
    return [
        f"{each.bench}: {each.name}",
        f"{each.what}, ns" if each.what == TIME else each.what,
        _cost(each.before),
        _cost(each.after),
        f"{each.change:+.1%}",
        f"{low:+.1%}, {high:+.1%}",
        each.verdict,
    ]


def _cost(cost: Cost) -> str:
    return f"{cost.median:.4g} ({cost.low:.4g}-{cost.high:.4g})"


def _print_missing(title: str, keys: list[Key]) -> None:
    if keys:
        print(f"{title}:")
        print("\n".join(f"- {bench}: {name}" for bench, name in keys))


if __name__ == "__main__":
    raise SystemExit(main())
