"""The code behind a run's numbers: what all methods share with a trainer, the rewards, and the method's parts."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.code import Code, function_name
from core.errors import ConfigError
from core.provenance import ROOT, sha256_file
from methods import catalog
from methods.parts import Part
from methods.training.spec import Spec


def code_of_spec(spec: Spec) -> dict[str, Code]:
    """Return `code_of` for the run of a specification."""
    return code_of(spec.method, spec.trainer, *filter(None, (spec.reward, spec.placebo)))


def code_of(method: str, trainer: str, *rewards: str) -> dict[str, Code]:
    """Return `code` (what all methods share with this trainer, and the rewards) and `method_code` (the method's parts).

    The method's composition is hashed by value, not by the text of its catalog file: titles, quotes, and the parsing of
    keys do not count. rewards: dotted names of the reward and, if there is one, of the placebo. Raises ConfigError for
    a reward that cannot be imported.
    """
    installed = []  # rewards that are not files of this project
    for module in sorted({reward.partition(":")[0] for reward in rewards}):
        try:
            found = find_spec(module)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"spec: reward: {module!r} cannot be imported ({error})") from error
        if found is None:
            raise ConfigError(f"spec: reward: {module!r} cannot be imported (no such module)")
        if found.origin and found.has_location and not Path(found.origin).is_relative_to(ROOT):
            installed.append(f"{module} {sha256_file(found.origin)}")
    functions: set[str] = set()
    composition = [f"{slot}: {_text(part, functions)}" for slot, part in catalog.parse(method).parts.filled().items()]
    return {
        "code": Code("train", trainer, tuple(sorted(set(rewards))), tuple(installed)),
        "method_code": Code("method", functions=tuple(sorted(functions)), values=tuple(composition)),
    }


def _text(value: Any, functions: set[str]) -> str:
    """Return a part or a setting as text with every digit; add the functions behind it to `functions`."""
    if isinstance(value, Part):
        settings = {name: value.settings[name] for name in sorted(value.settings)}
        return f"{_text(value.function, functions)}({_text(settings, functions)})"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_text(entry, functions)}" for name, entry in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return f"{type(value).__name__}[{', '.join(_text(entry, functions) for entry in value)}]"
    if callable(value):
        functions.add(function_name(value))
        return function_name(value)
    return repr(value.tolist() if hasattr(value, "tolist") else value)  # repr shortens a long tensor
