"""`python -m lamina` is the command `lamina`."""

from .cli import main

if __name__ == "__main__":
    main()
