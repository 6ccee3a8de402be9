"""The project files behind a result and their hash, derived from the code, so that nobody keeps lists.

`closure` follows imports from an entry module and `code_hash` hashes the files that it finds, each whole: which of its
functions a command calls is not known before it runs. Comments, docstrings and formatting are left out, unless a file
reads documentation or source as data. `core.used_code` compares what a command did use with what was hashed here.

A module depends on what it imports anywhere in the file, on a module that it names in a text ("evals.grading.pool"),
and on the data files of its `DATA`: a tuple of files and folders, from the root. Two kinds are not followed: modules
that declare `AFFECTS_RESULTS = False  # reason`, and the files of a registry, which a command finds by name.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from core import registries
from core.errors import ConfigError
from core.provenance import ROOT, sha256_bytes, sha256_file

AFFECTS_RESULTS = False  # its own result, the hash, changes when it matters

REGISTRIES = ("methods.catalog", "evals.tasks")
# Who mentions one of these may read what the hash leaves out: then all files beside it count byte for byte.
READS_TEXT = frozenset({
    "__doc__", "__file__", "getdoc", "getsource", "getsourcelines", "getcomments", "getfile", "get_source", "linecache",
    "tokenize",
})  # fmt: skip
ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb"})
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+(:\w+)?")  # "package.module" or "package.module:name"
QUESTIONS = frozenset({"closure", "command"})  # calls that name a module and do not use it


@dataclass(frozen=True)
class Source:
    """What one file of Python depends on, and the digest of its code."""

    modules: tuple[str, ...]  # project modules that it imports or names
    data: tuple[str, ...]  # entries of its DATA
    code: str
    names: frozenset[str]  # that it mentions
    counts: bool  # False: it declares that it affects no results


@dataclass(frozen=True)
class Code:
    """The project files that a command may use."""

    command: str  # `python -m` this
    parts: tuple[tuple[str, ...], ...]  # each has a hash of its own
    unhashed: tuple[str, ...] = ()  # modules and packages that it may use besides
    own: frozenset[str] = frozenset()  # files that a user adds: what these read must be hashed too, wherever it lies

    @property
    def hashes(self) -> tuple[str, ...]:
        return tuple(map(code_hash, self.parts))

    @property
    def hash(self) -> str:
        return "-".join(self.hashes)

    @property
    def files(self) -> frozenset[str]:
        return frozenset().union(*self.parts)


def command(module: str, *named: str, unhashed: Iterable[str] = ()) -> Code:
    """The code of `python -m MODULE`. named: the modules of registries that it uses; without any, it may use all."""
    files = closure(module, *named, without=unhashed)
    if not named:
        folders = {package: package.replace(".", "/") for package in REGISTRIES}
        every = [
            name
            for package, folder in folders.items()
            if f"{folder}/__init__.py" in files
            for name in registries.modules(package, [str(ROOT / folder)])
        ]
        files = closure(module, *every, without=unhashed)
    return Code(module, (files,), tuple(unhashed))


def closure(*modules: str, without: Iterable[str] = ()) -> tuple[str, ...]:
    """The project files that `modules` depend on at any depth, sorted, relative to the repository root.

    Modules and packages in `without` are not followed. Raises `ValueError` for an entry that is no module of this
    project, `ConfigError` for a DATA that names nothing.
    """
    for module in modules:
        if file_of(module) is None:
            raise ValueError(f"code_hashes: {module} is no module of this project")
    files: set[str] = set()
    left_out = tuple(f"{name}." for name in without)
    seen: set[str] = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        file = file_of(module)
        if module in seen or file is None or f"{module}.".startswith(left_out):
            continue
        seen.add(module)
        found = source(file)
        if found.counts:
            files.update([file, *(data for entry in found.data for data in _data_files(entry, file))])
            todo += found.modules
            if "." in module:
                todo.append(module.rpartition(".")[0])  # the package, whose `__init__` runs first
    return tuple(sorted(files))


def code_hash(files: Iterable[str]) -> str:
    """12 hex digits over the code in `files` (relative to the root); data files count by their content."""
    digest = hashlib.sha256()
    files = sorted(set(files))
    whole = any(READS_TEXT & source(file).names for file in files if file.endswith(".py"))
    for file in files:
        content = source(file).code if file.endswith(".py") and not whole else sha256_file(ROOT / file)
        digest.update(f"{file}\0{content}\n".encode())
    return digest.hexdigest()[:12]


def check_environment(files: Iterable[str]) -> None:
    """ConfigError for a file that mentions the process's environment, which no hash covers."""
    for file in files:
        if file.endswith(".py") and (found := sorted(ENVIRONMENT & source(file).names)):
            raise ConfigError(
                f"{file}: mentions {found[0]}: no hash covers environment variables; make it an option of the method"
            )


@cache
def file_of(module: str) -> str | None:
    """`a.b` -> `a/b.py` or `a/b/__init__.py`; None for a module that is not of this project."""
    base = module.replace(".", "/")
    return next((name for name in (f"{base}.py", f"{base}/__init__.py") if (ROOT / name).is_file()), None)


def forget() -> None:
    """Read every file again: one has been written since."""
    file_of.cache_clear()
    source.cache_clear()


@cache
def source(file: str) -> Source:
    """What a file of Python depends on; ConfigError for one that is not Python."""
    path = ROOT / file
    try:
        tree = ast.parse(path.read_bytes(), file)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{file}: not Python ({error})") from error
    reader = _Reader(file)
    words = "\n".join(reader.words(tree))
    declared = {name: value for name, value in map(_assigned, tree.body) if name is not None}
    try:
        data = tuple(map(str, ast.literal_eval(declared.get("DATA") or ast.Tuple([]))))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{file}: DATA: must be a tuple of texts, each a file or folder of this project") from error
    return Source(
        modules=tuple(sorted(name for name in reader.modules if file_of(name))),
        data=data,
        code=sha256_bytes(words.encode()),
        names=frozenset(reader.names),
        counts="AFFECTS_RESULTS" not in declared,
    )


class _Reader:
    """One walk over a syntax tree: its code as words, the names that it mentions and the modules that it depends on.

    Not `ast.dump`, whose output differs between versions of Python: a cluster's login node may have another one than
    its jobs. For the same reason empty fields are left out.
    """

    def __init__(self, file: str):
        self.package = file.split("/")[:-1]
        self.modules: set[str] = set()
        self.names: set[str] = set()

    def words(self, node: ast.AST, follows: bool = True) -> Iterator[str]:
        """follows: whether a module that a text names counts."""
        match node:
            case ast.Expr(value=ast.Constant(value=str())):  # a docstring
                return
            case ast.Import():
                self.modules.update(alias.name for alias in node.names)
            case ast.ImportFrom():
                above = self.package[: len(self.package) + 1 - node.level] if node.level else []
                base = ".".join([*above, *filter(None, [node.module])])
                # `from a import b`: b is the module a.b, or something in a
                self.modules.update([base, *(f"{base}.{alias.name}" for alias in node.names)])
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                for statement in node.orelse:
                    yield from self.words(statement, follows)
                return
            case ast.Name():
                self.names.add(node.id)
            case ast.Attribute():
                self.names.add(node.attr)
            case ast.alias():
                self.names.update(node.name.split("."))
            case ast.Constant(value=str(text)):
                if follows and MODULE.fullmatch(text):
                    self.modules.add(text.partition(":")[0])
                if text.isidentifier():
                    self.names.add(text)
            case ast.Call():
                called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                follows = follows and called not in QUESTIONS
        yield type(node).__name__
        for field in node._fields:
            value = getattr(node, field, None)
            if value is None or value == [] or field == "ctx":  # ctx (load or store) follows from the rest
                continue
            yield field
            for entry in value if isinstance(value, list) else [value]:
                if isinstance(entry, ast.AST):
                    yield from self.words(entry, follows)
                else:
                    yield repr(entry)
        yield ";"


def _assigned(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    """The name and the value of an assignment of one name."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
    return (target.id, getattr(statement, "value", None)) if isinstance(target, ast.Name) else (None, None)


def _data_files(entry: str, file: str) -> list[str]:
    """The file `entry`, or all in that folder but hidden ones and Python."""
    path = ROOT / entry
    found = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    names = [p.relative_to(ROOT).as_posix() for p in found if p.suffix not in (".py", ".pyc")]
    names = [name for name in names if "/." not in f"/{name}"]
    if not names:
        raise ConfigError(f"{file}: DATA: {entry!r} is no file of this project; paths are relative to its root")
    return names
