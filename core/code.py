"""Hash the code that computes a stage's numbers. This module is the one place that lists what counts.

A stage's files in `COMPUTES` count as a whole. Other project code counts definition by definition, if those files or
the functions that a caller lists (a method's parts, a reward) refer to it at any depth: unused parts do not count.
`PASSIVE` files are not followed. Values, such as a method's composition, are passed as text.

Comments, docstrings, argument annotations, strings in `raise` and `print` (where they call nothing but `PURE`) and code
under TYPE_CHECKING do not count. The hash is the same under every version of Python, unlike that of `ast.dump` or
`ast.unparse`: a cluster's login node and its jobs may have different versions.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path
from typing import Any

from core.errors import ConfigError, CorruptInputError
from core.provenance import ROOT, sha256_file

# Stage -> patterns of files that count as a whole; {} is the trainer or the engine.
COMPUTES = {
    "train": (
        "methods/batch.py", "methods/method.py", "methods/diagnostics.py", "methods/sampling.py",
        "methods/parts/__init__.py", "methods/training/rollouts.py", "methods/training/movement.py",
        "methods/adapters/{}/*.py", "methods/adapters/{}/*.yaml",
    ),
    "method": (),
    "bases": ("models/tiny.py", "models/build.py"),
    "prompts": (),
    "generate": (
        "methods/sampling.py", "evals/generation/prompts.py", "evals/generation/engine.py", "evals/generation/{}.py",
    ),
    "grade": ("evals/grading/*.py",),
    "adopt": ("evals/adopt.py",),
    "score": ("evals/score.py", "evals/stats/*.py"),
    "report": ("evals/learning_curves.py", "evals/stats/*.py", "report/**/*", "paper/**/*"),
}  # fmt: skip
BY_BYTES = ("adopt", "score", "report")  # cheap to recompute

# Modules that do not change numbers, or only through values in a stage's record. A stage's files and a caller's
# functions count anyway. A reward's grader does not: a fix for one odd answer must cause regrading, not retraining.
PASSIVE = (
    "core", "core.*", "tests", "tests.*",
    "methods", "methods.train", "methods.options", "methods.sampling", "methods.catalog", "methods.adapters",
    "methods.training", "methods.training.run_folder", "methods.training.spec", "models", "models.*",
    "evals", "evals.arithmetic", "evals.questions", "evals.benchmark", "evals.fetch", "evals.generate",
    "evals.grade", "evals.run", "evals.store", "evals.tasks", "evals.tasks.*", "evals.generation", "evals.grading",
    "evals.grading.*",
)  # fmt: skip
# Calls in a message that change no later number.
PURE = ("len", "repr", "round", "str", "type")  # take no function and consume nothing
BY_NAME = ("methods.catalog.*", "methods.parts.*")  # imported by name; that name also selects which of them count


@dataclass(frozen=True)
class Code:
    """Code of one stage. Hash it when the stage starts, and call `warning_entry` at its end."""

    stage: str  # a key of COMPUTES
    name: str = ""  # of the trainer or the engine
    functions: tuple[str, ...] = ()  # `module:name` of other functions used, such as a reward
    values: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that count as a whole, relative to the root."""
        found: list[str] = []
        for pattern in COMPUTES[self.stage]:
            named = pattern.replace("{}", self.name)  # a folder of modules, or one module
            both = {*ROOT.glob(named), *ROOT.glob(named.replace("/*.py", ".py"))}
            matched = sorted(path.relative_to(ROOT).as_posix() for path in both if _counts(path))
            if not matched and not pattern.endswith(".yaml"):  # an adapter may have no file of settings
                raise ConfigError(f"core/code.py: {self.stage}: {pattern}: no such file; correct COMPUTES")
            found += matched
        return tuple(found)

    @property
    def hash(self) -> str:
        """Return 12 hex digits, recomputed from the files at each call; CorruptInputError if one is not Python."""
        parts = [f"{module}:{name} {' '.join(words)}" for (module, name), words in self.definitions().items()]
        whole = [file for file in self.files if self.stage in BY_BYTES or not file.endswith(".py")]
        parts += [f"{file} {sha256_file(ROOT / file)}" for file in whole]
        text = "".join(f"{part}\n" for part in (*sorted(parts), *self.values))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def definitions(self) -> dict[tuple[str, str], list[str]]:
        """Map (module, name) to the words of each definition that the stage's files and the functions have or use."""
        read = [] if self.stage in BY_BYTES else [file for file in self.files if file.endswith(".py")]
        todo = [(_module_of(file), "*") for file in read]
        todo += [(module, name or "*") for module, _, name in (each.partition(":") for each in self.functions)]
        found: dict[tuple[str, str], list[str]] = {}
        while todo:
            module, name = todo.pop()
            defined, imports = _read(module)
            if name in imports and name not in defined:  # re-exported
                names, used = set(), {imports[name]}
            else:  # unnamed statements may change any definition of the file
                names = ({name, ""} & defined.keys() if name in defined else set(defined)) - {
                    each for of, each in found if of == module
                }
                found |= {(module, each): defined[each] for each in names}
                used = {word[1:] for each in names for word in defined[each] if word[0] == "@"}
            targets = map(_resolved, used)
            todo += [(m, n) for m, n in targets if m and (m == module or not _matches(m, PASSIVE))]
        return found


def warning_entry(*pairs: tuple[Code, str]) -> dict[str, str]:
    """Return the `code_warning` of a record if this process may have run code that differs from its hashes.

    pairs: the codes of one result, each with its hash at the start. A training process must not have imported other
    project modules; other stages may share one process.
    """
    for code, before in pairs:
        try:
            edited = code.hash != before
        except (ConfigError, CorruptInputError, OSError):  # a file may be gone
            edited = True
        if edited:
            return {"code_warning": f"code of {code.stage}: was edited while it ran"}
    codes = [code for code, _ in pairs if code.stage in ("train", "method")]
    known = {module for code in codes for module, _ in code.definitions()}
    others = sorted(name for name in _loaded() - known if not _matches(name, (*PASSIVE, *BY_NAME))) if codes else []
    return {"code_warning": f"{', '.join(others)}: imported, and in no hash"} if others else {}


def function_name(function: Callable[..., Any]) -> str:
    """Return `module:name` of a function, or of the top-level definition that contains it."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__).partition(".")[0]
    return f"{getattr(function, '__module__', None) or type(function).__module__}:{name}"


def _words(node: ast.AST, names: Mapping[str, str], silent: str = "") -> Iterator[str]:
    """Yield the parts of a syntax tree that can change results, as words; @ marks a full dotted name, $ a local one.

    names: name in the file -> full dotted name. silent: `raise` or `print`, where strings do not count.
    """
    is_text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    # A message of `raise` is the last that its function evaluates; one of `print` may draw a number.
    if is_docstring or (is_text and silent and (silent == "raise" or not any(map(_has_effect, ast.walk(node))))):
        return
    if dotted := _dotted(node):
        first, dot, rest = dotted.partition(".")
        yield f"@{names[first]}{dot}{rest}" if first in names else f"${dotted}"
    elif isinstance(node, ast.Raise):  # names decide which handler catches it; wording does not count
        inner = (word for child in ast.iter_child_nodes(node) for word in _words(child, names, "raise"))
        yield from ("raise", *(word for word in inner if word[0] in "@$"))
    elif isinstance(node, ast.If) and _not_counted(node):
        for statement in node.orelse:
            yield from _words(statement, names, silent)
    else:
        silent = silent or ("print" if isinstance(node, ast.Call) and _dotted(node.func) == "print" else "")
        yield type(node).__name__
        for name in node._fields:
            value = getattr(node, name, None)
            # Empty fields differ between versions of Python. ctx (load or store) follows from the rest.
            if value is None or value == [] or name in ("ctx", "returns", "type_comment", "kind"):
                continue
            if name == "annotation" and isinstance(node, ast.arg):
                continue
            yield name
            for entry in value if isinstance(value, list) else [value]:
                yield from _words(entry, names, silent) if isinstance(entry, ast.AST) else (repr(entry),)
        yield ";"


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value)):
        return f"{base}.{node.attr}"
    return None


def _has_effect(node: ast.AST) -> bool:
    """Return whether evaluating an expression may change a later number: it assigns, or calls what is not known."""
    if isinstance(node, ast.Call):
        return _dotted(node.func) not in PURE and not (
            isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant)  # ", ".join(...)
        )
    return isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom)


def _not_counted(node: ast.If) -> bool:
    """Return whether a block is for type checkers only, or runs only when the file is executed."""
    test = node.test.left if isinstance(node.test, ast.Compare) else node.test
    return (_dotted(test) or "").rpartition(".")[2] in ("TYPE_CHECKING", "__name__")


def _read(module: str) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the words of a project file's top-level definitions by name ("": other statements) and its imports."""
    path = _file(module)
    if path is None:
        return {}, {}
    now = path.stat()  # every write changes one of these
    return _analysed(module, path, (now.st_mtime_ns, now.st_ctime_ns, now.st_size, now.st_ino))


@cache
def _analysed(module: str, path: Path, _: tuple[int, ...]) -> tuple[dict[str, list[str]], dict[str, str]]:
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        raise CorruptInputError(f"{path}: not Python ({error})") from error
    imports = dict(_imports(tree, module if path.name == "__init__.py" else module.rpartition(".")[0]))
    tops = {name: f"{module}.{name}" for statement in tree.body for name in _names(statement)}
    defined: dict[str, list[str]] = {}
    for statement in tree.body:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            for name in _names(statement) or [""]:
                defined.setdefault(name, []).extend(_words(statement, tops | imports))
    return defined, imports


def _names(statement: ast.stmt) -> list[str]:
    """Return the names that a top-level statement defines or changes."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return sorted({node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)})
    return []


def _imports(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """Yield name in the file -> imported name, for all imports at any depth."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif isinstance(child, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - child.level] if child.level else []
            for alias in child.names:
                yield alias.asname or alias.name, ".".join([*above, *filter(None, [child.module]), alias.name])
        elif not (isinstance(child, ast.If) and _not_counted(child)):
            yield from _imports(child, package)


@cache
def _resolved(dotted: str) -> tuple[str, str]:
    """Return (module, name) for a dotted name: the longest project module in it, then a definition; `*`: all."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        if _file(module := ".".join(parts[:length])):
            return module, parts[length] if length < len(parts) else "*"
    return "", ""


@cache
def _file(module: str) -> Path | None:
    """Return the file of a module of this project."""
    base = ROOT / module.replace(".", "/")
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def _module_of(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _loaded() -> set[str]:
    """Return the loaded project modules, without packages installed inside the project folder."""
    paths = {name: Path(getattr(module, "__file__", None) or "/") for name, module in list(sys.modules.items())}
    inside = {name for name, path in paths.items() if path.is_relative_to(ROOT) and _counts(path)}
    return inside - {"__main__", "__mp_main__"}


def _counts(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    hidden = any(part.startswith(".") or part in ("__pycache__", "site-packages") for part in parts)
    return path.is_file() and not hidden


@cache
def _matches(module: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(module, pattern) for pattern in patterns)
