"""Hash the code that computes a stage's numbers. This module is the one place that lists what counts.

A stage's files in `COMPUTES` count whole. Other project code that they, or functions that a caller lists (a method's
parts, a reward), refer to counts definition by definition, at any depth: a part that a method does not use
is not counted. `PASSIVE` files are not followed. Values, such as a method's composition, are passed as text.

Comments, docstrings, argument annotations, strings in `raise` and `print` and code under TYPE_CHECKING do
not count. The hash is the same under every version of Python, unlike that of `ast.dump` or `ast.unparse`: a cluster's
login node and its jobs may have different versions.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path
from typing import Any

from core.errors import ConfigError, CorruptInputError
from core.provenance import ROOT, sha256_bytes, sha256_file

# Stage -> files that count whole, as patterns; {} is the trainer or the engine.
COMPUTES = {
    "train": (
        "methods/batch.py", "methods/method.py", "methods/diagnostics.py", "methods/sampling.py",
        "methods/parts/__init__.py", "methods/training/rollouts.py", "methods/training/movement.py",
        "methods/adapters/{}/*.py",
    ),
    "method": (),
    "bases": ("models/tiny.py", "models/build.py"),
    "prompts": (),
    "generate": (
        "evals/generation/prompts.py", "evals/generation/draw.py", "evals/generation/engine.py",
        "evals/generation/{}.py",
    ),
    "grade": (
        "evals/grading/__init__.py", "evals/grading/decide.py", "evals/grading/expressions.py",
        "evals/grading/grader.py", "evals/grading/normalise.py", "evals/grading/numbers.py", "evals/grading/pool.py",
        "evals/grading/structure.py", "evals/grading/symbolic.py", "evals/grading/worker.py",
    ),
    # Cheap to recompute, so these three count byte for byte.
    "adopt": ("evals/adopt.py",),
    "score": ("evals/score.py", "evals/stats/*.py"),
    "report": ("evals/learning_curves.py", "evals/stats/*.py", "report/**/*", "paper/**/*"),
}  # fmt: skip

# Stage -> modules that do not change its numbers, or only through values in its record.
PASSIVE = {
    # The grader behind a reward: a correction for one odd answer must grade again, not train again.
    "train": (
        "methods", "methods.train", "methods.options", "methods.catalog", "methods.adapters", "methods.training",
        "methods.training.run_folder", "methods.training.spec", "methods.training.code", "evals", "evals.grading",
        "evals.grading.*",
    ),
    "bases": ("models", "models.recipe", "models.registry", "methods", "methods.sampling", "evals"),
    "prompts": (
        "models", "models.training_data", "evals", "evals.arithmetic", "evals.questions", "evals.benchmark", "methods",
        "methods.sampling",
    ),
    # Some benchmarks parse an upstream answer with a function of the grader, and each pins the sha256 of its items.
    "generate": (
        "evals", "evals.arithmetic", "evals.questions", "evals.generate", "evals.run", "evals.benchmark", "evals.data",
        "evals.fetch", "evals.store", "evals.tasks", "evals.tasks.*", "evals.generation", "evals.grading",
        "evals.grading.*", "methods",
    ),
    "grade": (
        "evals", "evals.grade", "evals.run", "evals.benchmark", "evals.data", "evals.store", "evals.tasks",
        "evals.tasks.*",
    ),
}  # fmt: skip
PASSIVE["method"] = PASSIVE["train"]
ALWAYS_PASSIVE = ("core", "core.*", "tests", "tests.*")  # what reads, writes and reports for every stage

# Imported by name; the same name decides which of them count.
BY_NAME = ("methods.catalog.*", "methods.parts.*")


@dataclass(frozen=True)
class Code:
    """Code of one stage. Hash it when the stage starts, and call `warning_entry` at its end."""

    stage: str  # a key of COMPUTES
    name: str = ""  # of the trainer or the engine
    functions: tuple[str, ...] = ()  # `module:name` of other functions used, such as a reward
    values: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that count whole, relative to the root."""
        found: list[str] = []
        for pattern in COMPUTES[self.stage]:
            named = pattern.replace("{}", self.name)  # a folder of modules, or one module
            both = {*ROOT.glob(named), *ROOT.glob(named.replace("/*.py", ".py"))}
            matched = sorted(path for path in both if _counts(path))
            if not matched:
                raise ConfigError(f"core/code.py: {self.stage}: {pattern}: no such file; correct COMPUTES")
            found += [path.relative_to(ROOT).as_posix() for path in matched]
        return tuple(found)

    @property
    def hash(self) -> str:
        """Return 12 hex digits, recomputed from the files at each call; CorruptInputError if one is not Python."""
        digest = hashlib.sha256()
        for text in (*sorted(self._parts()), *self.values):
            digest.update(f"{text}\n".encode())
        return digest.hexdigest()[:12]

    def edited(self, before: str) -> bool:
        """Return whether the files differ from those with hash `before`, or cannot be read."""
        try:
            return self.hash != before
        except (ConfigError, CorruptInputError):
            return True

    @property
    def _passive(self) -> tuple[str, ...]:
        return (*PASSIVE.get(self.stage, ()), *ALWAYS_PASSIVE)

    def _parts(self) -> Iterator[str]:
        for file in self.files:
            path = ROOT / file
            plain = self.stage not in PASSIVE or path.suffix != ".py"
            yield f"{file} {sha256_file(path) if plain else _content(path, *_version(path))}"
        for module, name in self._definitions():
            yield f"{module}:{name} {_definitions_of(module)[name].code}"

    def _definitions(self) -> set[tuple[str, str]]:
        """Return (module, name) of every definition outside the files that they and the functions use, at any depth."""
        whole = {_module_of(file) for file in self.files if file.endswith(".py")}
        todo = [(module, "*") for module in whole] if self.stage in PASSIVE else []
        todo += [(module, name or "*") for module, _, name in (each.partition(":") for each in self.functions)]
        seen: set[tuple[str, str]] = set()
        while todo:
            module, name = todo.pop()
            defined = _definitions_of(module)
            # Statements that define nothing may change the file's definitions: they are listed under "".
            every = {each for each, definition in defined.items() if not definition.is_import}
            for each in {name, ""} & defined.keys() if name in defined else every:
                if (module, each) not in seen:
                    seen.add((module, each))
                    mentioned = (_resolved(dotted) for dotted in defined[each].mentions)
                    todo += [(m, n) for m, n in mentioned if m and (m == module or not _matches(m, self._passive))]
        return {(module, name) for module, name in seen if module not in whole}


def warning_entry(*pairs: tuple[Code, str]) -> dict[str, str]:
    """Return the `code_warning` of a record if this process may have computed with other code than its hashes.

    pairs: the codes of one result, each with its hash at the start. A training process must not have imported other
    project modules; other stages share their process with each other.
    """
    for code, before in pairs:
        if code.edited(before):
            return {"code_warning": f"code of {code.stage}: was edited while it ran"}
    codes = [code for code, _ in pairs if code.stage in ("train", "method")]
    known = {_module_of(file) for code in codes for file in code.files}
    known |= {module for code in codes for module, _ in code._definitions()}
    passive = {pattern for code in codes for pattern in code._passive}
    others = sorted(name for name in _loaded() - known if not _matches(name, (*passive, *BY_NAME))) if codes else []
    return {"code_warning": f"{', '.join(others)}: imported, and in no hash"} if others else {}


def function_name(function: Callable[..., Any]) -> str:
    """Return `module:name` of the top-level definition that a function is, or is defined in."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__).partition(".")[0]
    return f"{getattr(function, '__module__', None) or type(function).__module__}:{name}"


def words(node: ast.AST, silent: bool = False) -> Iterator[str]:
    """Yield a syntax tree as words, without parts that do not compute. silent: inside `print`, strings do not count."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):  # a docstring
            return
        case ast.If() if _not_counted(node):
            for statement in node.orelse:
                yield from words(statement, silent)
            return
        case ast.Raise():
            yield " ".join(["raise", *_without_strings(node)])
            return
        case ast.Constant(value=str()) if silent:
            return
        case ast.Call(func=ast.Name(id="print")):
            silent = True
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
            if isinstance(entry, ast.AST):
                yield from words(entry, silent)
            else:
                yield repr(entry)
    yield ";"


def _without_strings(node: ast.AST) -> Iterator[str]:
    """Yield the names of an error, which decide who catches it; its wording and quoted values do not count."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr) or (isinstance(child, ast.Constant) and isinstance(child.value, str)):
            continue
        if isinstance(child, ast.Name):
            yield child.id
        yield from _without_strings(child)


@dataclass
class _Definition:
    code: str = ""
    mentions: set[str] = field(default_factory=set)  # full dotted names: methods.parts.masks.steer
    is_import: bool = False  # counts where another file imports the name from here, not as part of the file


def _definitions_of(module: str) -> dict[str, _Definition]:
    """Return a project file's top-level definitions by name; "": other statements. Empty for external files."""
    path = _file(module)
    return {} if path is None else _analysed(module, path, *_version(path))


@cache
def _analysed(module: str, path: Path, *version: int) -> dict[str, _Definition]:
    tree = _parsed(path, *version)
    imports = dict(_imports(tree, module if path.name == "__init__.py" else module.rpartition(".")[0]))
    defined = {name: _Definition(f"import {target}", {target}, True) for name, target in imports.items()}
    tops = {name for statement in tree.body for name in _names(statement)}
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        for name in _names(statement) or [""]:
            entry = defined.setdefault(name, _Definition())
            entry.is_import = False
            entry.code += " ".join(words(statement))
            for dotted in _mentions(statement):
                first, dot, rest = dotted.partition(".")
                if first in imports:
                    # in the hash too: the same name may be rebound
                    entry.code += f" {first}={imports[first]}" if imports[first] not in entry.code else ""
                    entry.mentions.add(imports[first] + dot + rest)
                elif first in tops:
                    entry.mentions.add(f"{module}.{first}")
    return defined


def _names(statement: ast.stmt) -> list[str]:
    """Return the names that a top-level statement defines or changes."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return sorted({node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)})
    return []


def _mentions(node: ast.AST) -> Iterator[str]:
    """Yield names and dotted names, each as long as written."""
    dotted = _dotted(node)
    if dotted:
        yield dotted
    elif not (isinstance(node, ast.If) and _not_counted(node)):
        for name, value in ast.iter_fields(node):
            if name != "returns" and not (name == "annotation" and isinstance(node, ast.arg)):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from _mentions(child)


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value)):
        return f"{base}.{node.attr}"
    return None


def _imports(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """Yield name in the file -> imported name, for all imports at any depth."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif isinstance(child, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - child.level] if child.level else []
            base = ".".join([*above, *filter(None, [child.module])])
            for alias in child.names:
                yield alias.asname or alias.name, f"{base}.{alias.name}"
        elif not (isinstance(child, ast.If) and _not_counted(child)):
            yield from _imports(child, package)


def _not_counted(node: ast.If) -> bool:
    """Return whether a block is for a type checker, or runs only when the file is the command."""
    test = node.test.left if isinstance(node.test, ast.Compare) else node.test
    return (_dotted(test) or "").rpartition(".")[2] in ("TYPE_CHECKING", "__name__")


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


def _version(path: Path) -> tuple[int, ...]:
    """Return what every write of a file changes, as the cache key of its content."""
    found = path.stat()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


@cache
def _content(path: Path, *version: int) -> str:
    return sha256_bytes(" ".join(words(_parsed(path, *version))).encode())


def _parsed(path: Path, *_: int) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        raise CorruptInputError(f"{path}: not Python ({error})") from error


def _loaded() -> set[str]:
    """Return project modules in this process, without packages installed in a folder of the project."""
    found = set()
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or "/")
        if path.is_relative_to(ROOT) and _counts(path) and name not in ("__main__", "__mp_main__"):
            found.add(name)
    return found


def _counts(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    hidden = any(part.startswith(".") or part in ("__pycache__", "site-packages") for part in parts)
    return path.is_file() and not hidden


def _matches(module: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(module, pattern) for pattern in patterns)
