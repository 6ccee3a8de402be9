"""What a hash of code covers: the closure of imports, and code without comments; on a small project of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from core import code_hashes
from core.errors import ConfigError

LOSS = '''
"""A loss."""
from core.options import LOW

def loss(x):
    """Squared."""
    if x < LOW:
        raise ValueError(f"negative: {x}")
    return x * x  # one
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose only room is `core`."""
    (tmp_path / "core" / "tables").mkdir(parents=True)
    for name, content in {
        "__init__": "",
        "options": "LOW = 0.2\n",
        "loss": LOSS,
        "lock": 'AFFECTS_RESULTS = "who runs"\nfrom core import never\n',
        "never": "",
        "lazy": "def f():\n    from core import loss, lock\n",
        "typed": "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import core.never\nelse:\n    import core.loss\n",
        "relative": "from .options import LOW\nfrom . import never\n",
        "named": 'BACKENDS = {"a": "core.never:Class"}\n',
        "asked": 'from core.code_hashes import closure\nFILES = closure("core.never")\n',
        "data": 'DATA = ("core/tables", "core/one.csv")\n',
        "no_data": 'DATA = ("core/two.csv",)\n',
    }.items():
        (tmp_path / "core" / f"{name}.py").write_text(content)
    (tmp_path / "core" / "tables" / "one.csv").write_text("a,b\n")
    (tmp_path / "core" / "tables" / ".hidden").write_text("")
    (tmp_path / "core" / "one.csv").write_text("a,b\n")
    monkeypatch.setattr(code_hashes, "ROOT", tmp_path)
    code_hashes.forget()
    yield tmp_path
    code_hashes.forget()


def hash_of(module: str = "core.loss") -> str:
    code_hashes.forget()
    return code_hashes.command(module).hash


CLOSURES = {
    "loss": {"loss.py", "options.py"},
    "lazy": {"lazy.py", "loss.py", "options.py"},
    "lock": set(),
    "typed": {"typed.py", "loss.py", "options.py"},
    "relative": {"relative.py", "options.py", "never.py"},
    "named": {"named.py", "never.py"},
    "asked": {"asked.py"},
    "data": {"data.py", "tables/one.csv", "one.csv"},
}


def test_the_closure_is_what_the_code_depends_on(project: Path) -> None:
    found = {entry: set(code_hashes.closure(f"core.{entry}")) - {"core/__init__.py"} for entry in CLOSURES}
    assert found == {entry: {f"core/{name}" for name in names} for entry, names in CLOSURES.items()}


def test_modules_can_be_left_out(project: Path) -> None:
    assert "core/options.py" not in code_hashes.closure("core.loss", without=["core.options"])


def test_what_is_gone_is_an_error(project: Path) -> None:
    with pytest.raises(ValueError, match=r"core\.los is no module"):
        code_hashes.closure("core.los")
    with pytest.raises(ConfigError, match=r"no_data\.py: DATA: 'core/two\.csv' is no file"):
        code_hashes.closure("core.no_data")


CHANGES = [  # old, new, whether the hash is another one
    ("# one", "# another comment", False),
    ('"""Squared."""', '"""The square."""', False),
    ('"""A loss."""\n', "", False),
    ("x * x", "(x\n        * x)", False),
    ('f"negative: {x}"', '"must not be negative"', True),
    ("x * x", "x * x * x", True),
    ("ValueError", "KeyError", True),
]


def test_code_is_hashed_and_text_for_people_is_not(project: Path) -> None:
    file, before = project / "core" / "loss.py", hash_of()
    for old, new, counts in CHANGES:
        file.write_text(LOSS.replace(old, new, 1))
        assert (hash_of() != before) == counts, new


def test_beside_a_file_that_reads_text_all_text_counts(project: Path) -> None:
    (project / "core" / "reads.py").write_text("from core import loss\nTEXT = loss.loss.__doc__\n")
    before = hash_of("core.reads")
    (project / "core" / "loss.py").write_text(LOSS.replace("Squared.", "The square."))
    assert hash_of("core.reads") != before


def test_a_data_file_counts_by_its_content(project: Path) -> None:
    before = hash_of("core.data")
    (project / "core" / "tables" / "one.csv").write_text("a,c\n")
    assert hash_of("core.data") != before
