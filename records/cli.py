"""The shape of every `python -m ...` command: parse, call, write; one line and exit code 2 for a user's error."""

from __future__ import annotations

import sys
from collections.abc import Callable

from records.errors import BenchError


def run(main: Callable[[], int | None]) -> None:
    """Call `main`; a `BenchError` becomes one line on stderr and exit code 2, an interrupt 130."""
    try:
        sys.exit(main() or 0)
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("interrupted: run the same command again to go on", file=sys.stderr)
        sys.exit(130)
