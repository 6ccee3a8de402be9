"""Hashes of the code behind a result, derived from import statements, so that nobody keeps lists of files.

`closure` follows the imports of an entry module; `code_hash` hashes the files it finds. What cannot change a number is
left out of the hash:

- comments, docstrings, formatting, the arguments of `raise`, imports for type checkers only;
- prose: a class may declare `PROSE: ClassVar = frozenset({"title", ...})`, and these arguments are left out of calls
  that make it (of a mapping such as {label: meaning} the labels still count). `prose=True`, for pages that print them,
  keeps them;
- modules that declare `DECIDES_NO_NUMBER = "<reason>"`, such as the run lock;
- in the folders of `FORMULAS`, functions whose name no other code of the hash mentions: a formula that is new there, or
  that only another method uses. A name counts wherever it stands (as a name, an attribute, an import or a whole text),
  so that at worst too much is hashed.

Beyond `import`, a module depends on a module that it names in a string ("evals.grading.worker") and on the data files
that it locates by `__file__` or `ROOT`. Found by name at run time and therefore not followed: the catalog's files, the
benchmarks' files, the trainer and the reward of a run. `workflow.code_hashes` names those for each stage.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from records.provenance import ROOT, sha256_file

DECIDES_NO_NUMBER = "its own result, the hash, changes when it matters"
OUTPUTS = ("results", "docs", "logs")  # folders that the project writes: no input, though found by ROOT
FORMULAS = ("methods/parts/",)  # collections of functions, of which each method uses some
ROOMS = ("records", "methods", "evals", "models", "paper", "report", "workflow")

PATH = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)*")  # a text that may name something in a module

Word: TypeAlias = "str | list[Word]"


@dataclass(frozen=True)
class Prose:
    """The arguments of a call that are text for people."""

    fields: tuple[str, ...]  # names of positional arguments
    names: frozenset[str]


@dataclass(frozen=True)
class Source:
    """What one file of Python depends on, and the digest of its code."""

    modules: tuple[str, ...]  # project modules it imports or names
    data: tuple[str, ...]  # data files it locates
    code: str  # digest without prose
    code_and_prose: str
    names: frozenset[str]  # that its code mentions
    counts: bool  # False: it declares DECIDES_NO_NUMBER


def closure(*modules: str, without: Iterable[str] = ()) -> tuple[str, ...]:
    """The project files that `modules` depend on at any depth, sorted, relative to the repository root.

    Imports in functions count. A package's `__init__` counts with its modules, since Python runs it. Modules and
    packages in `without` are not followed. `ValueError` for an entry that is no module of this project.
    """
    for module in modules:
        if _file_of(module) is None:
            raise ValueError(f"code_hashes: {module} is no module of this project")
    files: set[str] = set()
    left_out = tuple(f"{name}." for name in without)
    seen: set[str] = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        file = _file_of(module)
        if module in seen or file is None or f"{module}.".startswith(left_out):
            continue
        seen.add(module)
        source = _source(file)
        if source.counts:
            files.update([file, *source.data])
            todo += source.modules
            if "." in module:
                todo.append(module.rpartition(".")[0])  # the package, whose `__init__` runs first
    return tuple(sorted(files))


def submodules(package: str) -> tuple[str, ...]:
    """The modules in a package's folder: those that a catalog registers because they are there."""
    folder = ROOT / package.replace(".", "/")
    return tuple(f"{package}.{path.stem}" for path in sorted(folder.glob("*.py")) if path.stem != "__init__")


def code_hash(files: Iterable[str], *, prose: bool = False) -> str:
    """12 hex digits over the code in `files` (relative to the root); data files count by their content."""
    digest = hashlib.sha256()
    files = sorted(set(files))
    mentioned = _mentioned(files)
    for file in files:
        if file.startswith(FORMULAS) and file.endswith(".py"):
            parts = [part for name, part in _formulas(file) if name is None or name in mentioned]
            content = " ".join(part.code_and_prose if prose else part.code for part in parts)
        elif file.endswith(".py"):
            source = _source(file)
            content = source.code_and_prose if prose else source.code
        else:
            content = sha256_file(ROOT / file)
        digest.update(f"{file}\0{content}\n".encode())
    return digest.hexdigest()[:12]


def _mentioned(files: Iterable[str]) -> set[str]:
    """Names that the code of the files mentions; of a collection of formulas, what is mentioned of it mentions more."""
    python = [file for file in files if file.endswith(".py")]
    mentioned = {name for file in python if not file.startswith(FORMULAS) for name in _source(file).names}
    todo = [entry for file in python if file.startswith(FORMULAS) for entry in _formulas(file)]
    while found := [entry for entry in todo if entry[0] is None or entry[0] in mentioned]:
        mentioned.update(*(part.names for _, part in found))
        todo = [entry for entry in todo if entry not in found]
    return mentioned


@cache
def _formulas(file: str) -> list[tuple[str | None, Source]]:
    """Each function of a file under its name, and the rest of the file under None."""
    path = ROOT / file
    tree = ast.parse(path.read_bytes(), file)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    rest = ast.Module([node for node in tree.body if node not in functions], [])
    of_functions: list[tuple[str | None, Source]] = [(f.name, _read(ast.Module([f], []), path)) for f in functions]
    return [(None, _read(rest, path)), *of_functions]


@cache
def _file_of(module: str) -> str | None:
    """`a.b` -> `a/b.py` or `a/b/__init__.py`; None for a module that is not of this project."""
    base = module.replace(".", "/")
    return next((name for name in (f"{base}.py", f"{base}/__init__.py") if (ROOT / name).is_file()), None)


@cache
def _source(file: str) -> Source:
    path = ROOT / file
    return _read(ast.parse(path.read_bytes(), file), path)


def _read(tree: ast.Module, path: Path) -> Source:
    reader = _Reader(path)
    reader.read(tree, reader.words)
    code = "\n".join(word for word in reader.words if isinstance(word, str))
    prose = "\n".join(str(word) for word in reader.words if not isinstance(word, str))
    return Source(
        modules=tuple(sorted(reader.modules)),
        data=tuple(sorted(reader.data)),
        code=hashlib.sha256(code.encode()).hexdigest(),
        code_and_prose=hashlib.sha256(f"{code}\0{prose}".encode()).hexdigest(),
        names=frozenset(reader.names),
        counts=not any(_assigned(statement) == "DECIDES_NO_NUMBER" for statement in tree.body),
    )


class _Reader:
    """One walk over a file's syntax tree: `words` is its code, with prose as lists of words; and what it depends on.

    Not `ast.dump`, whose output differs between versions of Python: a cluster's login node may have another one than
    its jobs. For the same reason empty fields are left out.
    """

    def __init__(self, file: Path):
        self.file = file
        self.words: list[Word] = []
        self.modules: set[str] = set()
        self.data: set[str] = set()
        self.names: set[str] = set()
        self.aliases: dict[str, str] = {}  # name in this file -> name where it was imported from

    def read(self, node: ast.AST, words: list[Word], noted: bool = False) -> None:
        """Append `node` to `words`, and note what it depends on, unless that was `noted` with a node around it."""
        match node:  # in the order of how many there are: this walk is most of the time that a dry run takes here
            case ast.Name():
                words.append(f"={node.id}")
                self.names.add(node.id)
                return
            case ast.Constant():
                if not noted:
                    self._note_module(node.value)
                if isinstance(node.value, str) and PATH.fullmatch(node.value):
                    self.names.update(re.split("[.:]", node.value))
                words.append(repr(node.value))
                return
            case ast.Import() | ast.ImportFrom():
                self._note_imports(node)
            case ast.Expr(value=ast.Constant(value=str())):  # a docstring
                return
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.Raise(exc=ast.Call(func=function)):
                node = function  # which error, not its message
            case ast.BinOp() | ast.Attribute() | ast.Subscript() | ast.Call() if not noted:
                path = _located(node, self.file)
                if path is not None:
                    noted = True
                    self.data.update(_data_files(path))
                elif isinstance(node, ast.Call) and _called(node) == "closure":
                    noted = True  # a question about these modules is no dependence on them
        if isinstance(node, ast.Attribute):
            self.names.add(node.attr)
        words.append(type(node).__name__)
        if isinstance(node, ast.Call):
            name = _called(node)
            prose = _prose().get(self.aliases.get(name, name))
            if prose is not None:
                self._read_call(node, prose, words)
                return
        for name in node._fields:
            value = getattr(node, name, None)
            if value is None or value == [] or name == "ctx":  # ctx (load or store) follows from the rest
                continue
            words.append(name)
            for entry in value if isinstance(value, list) else [value]:
                if isinstance(entry, ast.AST):
                    self.read(entry, words, noted)
                else:
                    words.append(repr(entry))
        words.append(";")

    def _read_call(self, call: ast.Call, prose: Prose, words: list[Word]) -> None:
        """A call with arguments that are prose: of a mapping, its labels are code."""
        arguments: list[tuple[str | None, ast.expr]] = [(keyword.arg, keyword.value) for keyword in call.keywords]
        arguments += [(prose.fields[n] if n < len(prose.fields) else None, value) for n, value in enumerate(call.args)]
        self.read(call.func, words)
        for name, value in arguments:
            words.append(str(name))
            if name not in prose.names:
                self.read(value, words)
                continue
            text: list[Word] = []
            self.read(value, text)
            words.append(text)
            for key in value.keys if isinstance(value, ast.Dict) else []:
                if key is not None:
                    self.read(key, words)
        words.append(";")

    def _note_imports(self, node: ast.Import | ast.ImportFrom) -> None:
        names = [alias.name for alias in node.names]
        self.names.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            # `from a import b`: b is the module a.b, or something in a
            names = [str(node.module), *(f"{node.module}.{name}" for name in names)]
            self.aliases.update({alias.asname: alias.name for alias in node.names if alias.asname is not None})
        self.modules.update(name for name in names if _file_of(name))

    def _note_module(self, value: object) -> None:
        """A module named in a string: "package.module" or "package.module:name"."""
        if isinstance(value, str) and "." in value:
            module = value.partition(":")[0]
            if all(part.isidentifier() for part in module.split(".")) and _file_of(module):
                self.modules.add(module)


def _called(call: ast.Call) -> str:
    """`f` of `f()` and of `a.b.f()`."""
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _assigned(statement: ast.stmt) -> str | None:
    """The name that an assignment of one name sets."""
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign):
        target = statement.target
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None


@cache
def _prose() -> dict[str, Prose]:
    """By the name of what is called: a class that declares PROSE, or a function of its file that returns one."""
    prose_of = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            content = path.read_bytes()
            if b"PROSE: ClassVar" not in content:  # parsing only these saves half a second
                continue
            nodes = list(ast.walk(ast.parse(content)))
            for node in nodes:
                if isinstance(node, ast.ClassDef) and (prose := _declared(node)) is not None:
                    prose_of[node.name] = prose
            for node in nodes:
                returned = node.returns if isinstance(node, ast.FunctionDef) else None
                if isinstance(node, ast.FunctionDef) and isinstance(returned, ast.Name) and returned.id in prose_of:
                    # A function's positional arguments are its own: only keywords are known to be the class's.
                    prose_of[node.name] = Prose((), prose_of[returned.id].names)
    return prose_of


def _declared(node: ast.ClassDef) -> Prose | None:
    fields = []
    names = None
    for entry in node.body:
        if isinstance(entry, ast.AnnAssign) and _assigned(entry) == "PROSE" and entry.value is not None:
            names = [str(text.value) for text in ast.walk(entry.value) if isinstance(text, ast.Constant)]
        elif isinstance(entry, ast.AnnAssign):
            fields.append(str(_assigned(entry)))
    return None if names is None else Prose(tuple(fields), frozenset(names))


def _located(node: ast.AST, file: Path) -> Path | None:
    """Where `Path(__file__).resolve().parent / "tables"` or `ROOT / "config"` leads to, as far as constants say."""
    match node:
        case ast.Name(id="ROOT"):
            return ROOT
        case ast.Call(func=ast.Name(id="Path"), args=[ast.Name(id="__file__")]):
            return file
        case ast.Call(func=ast.Attribute(value=inner, attr="resolve")):
            return _located(inner, file)
        case ast.Attribute(value=inner, attr="parent"):
            path = _located(inner, file)
            return path and path.parent
        case ast.Subscript(value=ast.Attribute(value=inner, attr="parents"), slice=ast.Constant(value=int(level))):
            path = _located(inner, file)
            return path and path.parents[level]
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            path = _located(left, file)
            if path is None or not isinstance(right, ast.Constant):
                return path
            return path / str(right.value)
    return None


def _data_files(path: Path) -> list[str]:
    """That file, or all in that folder, unless they are Python or the project's output."""
    if path == ROOT or path.relative_to(ROOT).parts[0] in OUTPUTS:
        return []
    files = [file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]
    return [file.relative_to(ROOT).as_posix() for file in files if file.suffix not in (".py", ".pyc")]
