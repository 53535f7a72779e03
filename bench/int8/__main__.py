"""`python -m lamina.bench.int8`: the same as `lamina bench int8`."""

from .command import main

if __name__ == "__main__":
    raise SystemExit(main())
