"""Registries: packages whose modules are discovered by file, such as the catalog of methods."""

import pkgutil
import re
from collections.abc import Iterable
from pathlib import Path


def modules(package: str, path: Iterable[str]) -> tuple[str, ...]:
    """Return the modules of a package with this `__path__`, sorted."""
    return tuple(f"{package}.{name}" for name in sorted(found.name for found in pkgutil.iter_modules(path)))


def declaring(package: str, path: Iterable[str], name: str) -> tuple[str, ...]:
    """Return the modules that may define the entry `name`: those that contain it as a string, else all.

    A lookup imports only these, so that no other file of the registry can change the entry, and the hash of
    a command's code covers only these.
    """
    quoted = re.compile(rf"""["']{re.escape(name)}["']""")
    (folder,) = path
    every = modules(package, path)
    texts = (Path(folder, f"{module.rpartition('.')[2]}.py").read_text(encoding="utf-8") for module in every)
    return tuple(module for module, text in zip(every, texts, strict=True) if quoted.search(text)) or every
