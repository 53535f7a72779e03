"""The entry point of the command `lamina`.

It stands alone so that it can say what to install when the command line's own packages are missing.
"""

from __future__ import annotations

import errno
import os
import sys

# The package whose import fails, and the extra that brings it.
EXTRAS = {"typer": "cli", "rich": "cli", "matplotlib": "plot", "sklearn": "demo"}


def main() -> None:
    """Run the command line. A missing optional package, or output that can't be written, ends it with one line."""
    try:
        from .commands import app

        app(prog_name="lamina")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left of the output would fail again, at the exit
        sys.exit(f"lamina: the output could not be written: {error.strerror}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        sys.exit(
            f"lamina: {package} is not installed, and this command needs it: pip install 'lamina[{EXTRAS[package]}]'"
        )
