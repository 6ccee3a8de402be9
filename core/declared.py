"""Declared data (configuration, catalog files in YAML, specifications, records): a pydantic model for each format."""

import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import BenchError, ConfigError, CorruptInputError, hint, unknown

# pydantic's error type -> what is expected, in terms of YAML and JSON
KINDS = {
    "int_type": "a whole number",
    "str_type": "text",  # of `check`, by Python's name; `string_type` is pydantic's
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "keys and values",
    "model_type": "keys and values",
}

M = TypeVar("M", bound=BaseModel)
Item = TypeVar("Item")

Where: TypeAlias = Callable[[list[Any]], str]

# Strict mode rejects a list for a tuple, but JSON and YAML do not have tuples.
Tuple = Annotated[tuple[Item, ...], Field(strict=False)]


class Declared(BaseModel):
    """Base class of declared data. Strict: "3" for 3 or `yes` for a number is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class KeyProblemError(ValueError):
    """Report, from a validator that checks several keys, the one that the user should change."""

    def __init__(self, key: str, problem: str):
        super().__init__(f"{key}: {problem}")
        self.key, self.problem = key, problem


def validated(
    model: type[M], value: object, where: str | Where, at: str = "", error: type[BenchError] = ConfigError
) -> M:
    """Return `value` as a `model`. `where`: the file or option it comes from; `at`: its dotted key.

    For a value merged from several files, `where` is a function from the path of the bad key to its file.
    Raises `error` with one line for the first problem.
    """
    try:
        return model.model_validate(value)
    except ValidationError as failure:
        raise error(_line(failure, model, where, at)) from None


def _line(failure: ValidationError, model: type[BaseModel], where: str | Where, at: str) -> str:
    # Unknown keys come first: a misspelt key is both unknown and missing, and only the former shows the typo.
    first = min(failure.errors(include_url=False), key=lambda error: error["type"] != "extra_forbidden")
    path = [part for part in first["loc"][:-1] if not _is_tag(part)]
    # A key from the file is never a tag, even if it looks like one.
    path += [part for part in first["loc"][-1:] if first["type"] == "extra_forbidden" or not _is_tag(part)]
    key = ".".join(str(part) for part in ([at] if at else []) + path)
    where = where if isinstance(where, str) else where(path)
    if first["type"] == "extra_forbidden":
        allowed = _keys_at(model, path[:-1])
        inside = [f"{key}.{path[-1]}" for key in allowed if path[-1] in _keys_at(model, [*path[:-1], key])]
        more = hint(str(path[-1]), allowed) or "".join(f"; nearest: {key}" for key in inside[:1])
        return f"{where}: {key}: unknown key; allowed: {', '.join(sorted(allowed))}{more}"
    if first["type"] == "missing":
        return f"{where}: {key}: is missing; add this key"
    if first["type"] == "literal_error":
        return str(unknown(where, key, first["input"], re.findall("'([^']*)'", first["ctx"]["expected"])))
    if first["type"] == "value_error":  # raised by our validators: the message is a full sentence
        if isinstance(problem := first["ctx"]["error"], KeyProblemError):
            return f"{where}: {key + '.' if key else ''}{problem}"
        return f"{where}: {key + ': ' if key else ''}{first['ctx']['error']}"
    got = first["input"]
    shown = repr(got) if not isinstance(got, Mapping | list) else type(got).__name__
    # pydantic's messages: "Input should be greater than 0", "String should match pattern '^a'", "List should have ..."
    message = f"be {KINDS[first['type']]}" if first["type"] in KINDS else first["msg"].partition(" should ")[2]
    return f"{where}: {key or 'top level'}: must {message}, got {shown}"


def _is_tag(part: object) -> bool:
    """Return whether pydantic added a path part for a union's member: `constrained-float`, `list[int]`, `Yoke`."""
    models = {model.__name__ for model in Declared.__subclasses__()}
    kinds = {"int", "float", "str", "none", "bool"} | models
    return isinstance(part, str) and ("[" in part or part.removeprefix("constrained-") in kinds)


def _keys_at(declared: Any, path: list[Any]) -> list[str]:
    """Return the keys of the model declared at `path`; empty for any other type."""
    for part in (*path, None):
        while typing.get_origin(declared) in (Annotated, typing.Union, types.UnionType):
            members = [each for each in typing.get_args(declared) if each is not types.NoneType]
            # of a union, the member that has keys
            declared = next((each for each in members if hasattr(each, "model_fields")), members[0])
        is_model = isinstance(declared, type) and issubclass(declared, BaseModel)
        fields = {info.alias or name: info for name, info in declared.model_fields.items()} if is_model else {}
        if part is None:
            break
        arguments = [each for each in typing.get_args(declared) if each is not Ellipsis]  # of a list or a mapping
        declared = fields[part].annotation if is_model else arguments[-1] if arguments else Any
    return list(fields)


def check(value: Any, shape: Any, where: str, key: str = "") -> None:
    """Raise CorruptInputError with file and key unless JSON data has the shape that its readers expect.

    A shape is a type, `[shape]` for a list, or an object of `{name: shape}`, to which keys may be added. A key whose
    name ends in `?` may be missing or null; the name `*` stands for all keys.
    """
    kind: Any = type(shape) if isinstance(shape, list | dict) else shape
    accepted: Any = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        shown = type(value).__name__ if isinstance(value, list | dict) else repr(value)[:80]
        raise CorruptInputError(f"{where}: {key or 'top level'}: must be {KINDS[f'{kind.__name__}_type']}, got {shown}")
    prefix = f"{key}." if key else ""
    for number, child in enumerate(value if isinstance(shape, list) else ()):
        check(child, shape[0], where, f"{prefix}{number}")
    for name, inner in shape.items() if isinstance(shape, dict) else ():
        for each in value if name == "*" else [name.removesuffix("?")]:
            if value.get(each) is None and name.endswith("?"):
                continue
            if each not in value:
                raise CorruptInputError(f"{where}: {prefix}{each}: is missing")
            check(value[each], inner, where, f"{prefix}{each}")
