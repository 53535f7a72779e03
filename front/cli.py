"""The entry point of the command `lamina`.

It stands alone so that it can say what to install when the command line's own packages are missing.
"""

from __future__ import annotations

import sys

# The package whose import fails, and the extra that brings it.
EXTRAS = {"typer": "cli", "rich": "cli", "matplotlib": "plot", "sklearn": "demo"}


def main() -> None:
    """Run the command line; a missing optional package ends it with one line that says what to install."""
    try:
        from .commands import app

        app(prog_name="lamina")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        sys.exit(
            f"lamina: {package} is not installed, and this command needs it: pip install 'lamina[{EXTRAS[package]}]'"
        )
