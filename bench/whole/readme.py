"""The command `lamina bench readme`: writes the README's tables of figures from a file of results.

Each stands between `<!-- bench: NAME -->` and `<!-- end of bench: NAME -->`. The few figures that they show are kept in
a file of their own, bench/published.json, against which a test holds the README.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..record import SCHEMA
from ..whole_file import write_whole
from .loading import Loaded, ResultsFileError, load
from .markdown import RENDERERS
from .published import EXTRACTS

MARK = re.compile(r"(<!-- bench: (\w+) -->\n)(.*?)(<!-- end of bench: \2 -->)", re.DOTALL)
BLOCKS = "blocks"
DONE, DIFFERS, REFUSED = 0, 1, 2


class ReadmeError(ValueError):
    """A README without the marks, or with marks for which there are no figures."""


def rendered(text: str, blocks: Mapping[str, Any]) -> str:
    """The README's text with its tables written anew."""

    def write(match: re.Match[str]) -> str:
        name = match[2]
        if name not in blocks or name not in RENDERERS:
            raise ReadmeError(f"there are no figures for `bench: {name}`; there are those of {', '.join(blocks)}.")
        return f"{match[1]}\n{RENDERERS[name](blocks[name])}\n\n{match[4]}"

    new, count = MARK.subn(write, text)
    if not count:
        raise ReadmeError("no place for a table: write <!-- bench: layers --> and <!-- end of bench: layers -->.")
    return new


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. The exit status: 1 if --check finds another text, 2 for bad input."""
    chosen = _parse(arguments)
    published: Path = chosen.published or chosen.readme.parent / "bench" / "published.json"
    try:
        blocks = _blocks(chosen.results, published, forced=chosen.force)
        old = chosen.readme.read_text(encoding="utf-8")
        new = rendered(old, blocks)
        if chosen.check:
            return DONE if new == old else _say(f"{chosen.readme} differs from {chosen.results}", DIFFERS)
        shown = {match[2] for match in MARK.finditer(old)}
        write_whole(published, _as_json({name: each for name, each in blocks.items() if name in shown}).encode())
        write_whole(chosen.readme, new.encode())
    except ResultsFileError as error:
        return _say(str(error), REFUSED)
    except ReadmeError as error:
        return _say(f"{chosen.readme}: {error}", REFUSED)
    except OSError as error:
        return _say(f"{error.filename}: {error.strerror}", REFUSED)
    return DONE


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="lamina bench readme", description="Write the README's tables of figures from a file of results."
    )
    parser.add_argument(
        "results", type=Path, help="results.json of `lamina bench all`, --json of one, or published.json"
    )
    parser.add_argument("readme", type=Path, help="the README, with the marks <!-- bench: NAME -->")
    parser.add_argument(
        "--published", type=Path, metavar="PATH", help="default: bench/published.json beside the README"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if the README differs")
    parser.add_argument("--force", action="store_true", help="take figures of an incomplete or quick run, too")
    return parser.parse_args(arguments)


def _blocks(results: Path, published: Path, *, forced: bool) -> dict[str, Any]:
    """What the tables show: of the results, and of what was published where the results lack a bench."""
    before = read_published(published) if published.exists() else {}
    if results.exists() and published.exists() and results.samefile(published):
        return before
    loaded = load(results)
    if not forced and (loaded.quick or not loaded.complete):
        raise ResultsFileError(f"{results} is of {'a quick' if loaded.quick else 'an incomplete'} run; or add --force.")
    return {**before, **extracted(loaded)}


def extracted(loaded: Loaded) -> dict[str, Any]:
    """What the tables show of these results."""
    return {name: extract(loaded) for name, extract in EXTRACTS.items() if name in loaded.benches}


def read_published(path: Path) -> dict[str, Any]:
    """The published figures, by bench."""
    try:
        data = json.loads(path.read_bytes())
        blocks: dict[str, Any] = data[BLOCKS]
    except (ValueError, KeyError, TypeError) as error:
        raise ResultsFileError(f"{path} holds no published figures: {error}") from error
    return blocks


def _as_json(blocks: Mapping[str, Any]) -> str:
    return json.dumps({"schema": SCHEMA, BLOCKS: blocks}, indent=1) + "\n"


def _say(text: str, status: int) -> int:
    print(text, file=sys.stderr)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
