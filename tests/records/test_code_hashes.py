"""What a hash of code sees: the closure of imports, code without prose; on a small project of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from records import code_hashes

OPTIONS = '''
from dataclasses import dataclass
from typing import ClassVar

@dataclass
class Option:
    """One choice."""

    PROSE: ClassVar = frozenset({"why", "meanings"})
    name: str
    why: str
    default: float = 0.0
    meanings: dict | None = None

    def with_(self, **changes) -> Option:
        return self
'''
LOSS = '''
"""A loss."""
from records.options import Option
from records.options import Option as Choice

LOW = Option("low", "printed", 0.2)
HIGH = LOW.with_(name="high", why="printed")
FORM = Choice(name="form", why="shorter", meanings={"ppo": "the usual one"})

def loss(x):
    """Squared."""
    if x < 0:
        raise ValueError(f"negative: {x}")
    return x * x  # one
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose only room is `records`."""
    (tmp_path / "records" / "tables").mkdir(parents=True)
    for name, content in {
        "__init__": "",
        "options": OPTIONS,
        "loss": LOSS,
        "lock": 'DECIDES_NO_NUMBER = "who runs"\nfrom records import never\n',
        "never": "",
        "lazy": "def f():\n    from records import loss, lock\n",
        "typed": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from records import never\n",
        "named": 'BACKENDS = {"a": "records.never:Class"}\n',
        "data": 'from pathlib import Path\nTABLES = Path(__file__).resolve().parent / "tables"\n',
    }.items():
        (tmp_path / "records" / f"{name}.py").write_text(content)
    (tmp_path / "records" / "tables" / "one.csv").write_text("a,b\n")
    monkeypatch.setattr(code_hashes, "ROOT", tmp_path)
    _forget()
    yield tmp_path
    _forget()


def _forget() -> None:
    for function in (code_hashes._file_of, code_hashes._source, code_hashes._prose, code_hashes._formulas):
        function.cache_clear()


def hash_of(*, prose: bool = False) -> str:
    _forget()
    return code_hashes.code_hash(code_hashes.closure("records.loss"), prose=prose)


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        ("records.loss", {"loss.py", "options.py"}),
        ("records.lazy", {"lazy.py", "loss.py", "options.py"}),
        ("records.lock", set()),
        ("records.typed", {"typed.py"}),
        ("records.named", {"named.py", "never.py"}),
        ("records.data", {"data.py", "tables/one.csv"}),
    ],
)
def test_the_closure_is_what_the_code_depends_on(project: Path, entry: str, names: set[str]) -> None:
    found = set(code_hashes.closure(entry)) - {"records/__init__.py"}
    assert found == {f"records/{name}" for name in names}


def test_modules_can_be_left_out(project: Path) -> None:
    assert "records/options.py" not in code_hashes.closure("records.loss", without=["records.options"])


def test_an_entry_that_is_gone_is_an_error(project: Path) -> None:
    with pytest.raises(ValueError, match=r"records\.los is no module"):
        code_hashes.closure("records.los")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# one", "# another comment"),
        ('"""Squared."""', '"""The square."""'),
        ('"""A loss."""\n', ""),
        ("x * x", "(x\n        * x)"),
        ('f"negative: {x}"', '"must not be negative"'),
    ],
    ids=["comment", "docstring", "module docstring", "formatting", "error"],
)
def test_what_decides_nothing_is_not_hashed(project: Path, old: str, new: str) -> None:
    assert not changed(project, old, new)
    assert not changed(project, new, old, prose=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"low", "printed"', '"low", "in section 4.1"'),
        ('why="printed"', 'why="in section 4.1"'),
        ('why="shorter"', 'why="longer"'),
        ("the usual one", "PPO's"),
    ],
    ids=["positional", "function that returns one", "alias", "meaning of a label"],
)
def test_prose_counts_only_for_pages(project: Path, old: str, new: str) -> None:
    assert not changed(project, old, new)
    assert changed(project, new, old, prose=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [("x * x", "x * x * x"), ('"low"', '"lower"'), ("0.2", "0.3"), ('{"ppo"', '{"eq4"'), ("ValueError", "KeyError")],
)
def test_code_is_hashed(project: Path, old: str, new: str) -> None:
    assert changed(project, old, new)


FORMULAS = '''
SCALE = 2

def used(x):
    return _inner(x)

def by_name(x):
    return x

def unused(x):
    """As used() does."""
    return x

def _inner(x):
    return SCALE * x
'''


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("    return SCALE * x", "    return SCALE * x * x", True),
        ("return _inner(x)", "return _inner(x + 1)", True),
        ("def by_name(x):", "def by_name(x, y=1):", True),
        ("SCALE = 2", "SCALE = 3", True),
        ('"""As used() does."""\n    return x', "return 2 * x", False),
        ("def unused", "def another", False),
        ("def unused", "def added(x):\n    return 3\n\ndef unused", False),
    ],
)
def test_of_a_collection_of_formulas_the_used_ones_count(project: Path, old: str, new: str, counts: bool) -> None:
    folder = project / "records" / "formulas"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "one.py").write_text(FORMULAS)
    loss = "from records.formulas import one\nLOSS = one.used(1)\nNAMED = 'records.formulas.one:by_name'\n"
    (project / "records" / "loss.py").write_text(loss)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_hashes, "FORMULAS", ("records/formulas/",))
        before = hash_of()
        assert FORMULAS.count(old) == 1
        (folder / "one.py").write_text(FORMULAS.replace(old, new))
        assert (hash_of() != before) == counts


def test_a_data_file_counts_by_its_content(project: Path) -> None:
    files = code_hashes.closure("records.data")
    before = code_hashes.code_hash(files)
    (project / "records" / "tables" / "one.csv").write_text("a,c\n")
    assert code_hashes.code_hash(files) != before


def changed(project: Path, old: str, new: str, *, prose: bool = False) -> bool:
    """Whether replacing `old` by `new` in loss.py changes its hash."""
    file = project / "records" / "loss.py"
    before, text = hash_of(prose=prose), file.read_text()
    assert text.count(old) >= 1
    file.write_text(text.replace(old, new, 1))
    return hash_of(prose=prose) != before


def test_classes_with_prose_have_names_of_their_own() -> None:
    """Prose is recognised by the name of the class that is called, so no other class may bear it."""
    import ast

    names = [
        node.name
        for room in code_hashes.ROOMS
        for path in (code_hashes.ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name in code_hashes._prose() if names.count(name) > 1] == []
