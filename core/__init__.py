"""Layout, reading, writing and provenance of results; every other package imports this one."""

import sys
from pathlib import Path
from types import TracebackType

_ROOT = Path(__file__).resolve().parents[1]


def _say_what_to_activate(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print one line for a missing package when a command runs outside its environment."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if not name or (_ROOT / name).exists():
        sys.__excepthook__(kind, error, trace)
    else:
        advice = "activate the environment: source .venv/bin/activate (README.md, docs/scale.md)"
        print(f"error: {error}, and this is {sys.executable}; {advice}", file=sys.stderr)


# Only for commands of the checkout: a program that uses the library keeps its error handling.
# While `python -m` imports the command's package, `__main__` has no file yet and sys.argv[0] is -m.
_main = getattr(sys.modules["__main__"], "__file__", None) or (_ROOT if sys.argv[:1] == ["-m"] else "/")
if Path(_main).resolve().is_relative_to(_ROOT) and (_ROOT / "Snakefile").is_file():
    sys.excepthook = _say_what_to_activate
