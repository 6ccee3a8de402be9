"""A command ends in one line when it used a file of the project that no hash covers, or other code than was planned."""

from __future__ import annotations

import json
import os
import py_compile
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core import code_hashes, used_code
from core.errors import ConfigError, CorruptInputError
from core.provenance import ROOT
from tests.workflow.conftest import copy_of

# Ways in which a user's own method can get a number, and an edit that changes it.
MINE = "methods/catalog/mine.py"
LIB = "methods/minelib.py"
JSON = "methods/mine.json"

METHOD = """
from methods.options import method
from methods.parts import Parts, advantages, ratios, reducers, surrogates
{code}

@method(key="mine", title="Mine", source="none", equation="none", differs_from_grpo="in low", options=())
def mine(s):
    return Parts(
        advantage=advantages.group_zscore(std="std"),
        ratio=ratios.token(),
        surrogate=surrogates.clipped(low=float(LOW), high=0.28),
        reduce=reducers.token_mean(scope="minibatch"),
    )
"""

Files = dict[str, str]


def own(code: str) -> Files:
    """Own method whose LOW is computed by `code`."""
    return {MINE: METHOD.format(code=code)}


def versions(files: Files) -> tuple[Files, Files]:
    """The files with 0.2, then with 0.1, where they hold §."""
    first, second = ({name: text.replace("§", low) for name, text in files.items()} for low in ("0.2", "0.1"))
    return first, second


def both(code: str, file: str, text: str) -> tuple[Files, Files]:
    """The same method with another file that holds 0.2, then 0.1."""
    return versions(own(code) | {file: text.replace("{}", "§")})


def itself(code: str) -> tuple[Files, Files]:
    """The method's own file with 0.2, then with 0.1."""
    return versions(own(code))


FROM_ROOT = "from core.provenance import ROOT\nimport json\n"
READ = "LOW = json.loads(path.read_text())"

# name -> (files, the same files after an edit that changes the loss)
EDITS: dict[str, tuple[Files, Files]] = {
    # in the file itself
    "constant": itself("LOW = §"),
    "keyword-only default": itself("def low(*, x=§):\n    return x\nLOW = low()"),
    "module's docstring": versions({MINE: '"""§"""\n' + METHOD.format(code="LOW = __doc__")}),
    "docstring by a computed name": itself('def f():\n    """§"""\nLOW = getattr(f, "__doc__")'),
    "comment read as text": itself(
        FROM_ROOT + "# is §\nLOW = (ROOT / 'methods/catalog/mine.py').read_text().split('# is ')[1][:3]"
    ),
    # another file of the project: forms of an import that the hash follows are in CLOSURES
    "plain import": both("from methods.minelib import LOW", LIB, "LOW = {}"),
    "computed module": both(
        "from importlib import import_module\nLOW = import_module('methods.mine' + 'lib').LOW", LIB, "LOW = {}"
    ),
    "by its place": both(
        "import importlib.util as u\ns = u.spec_from_file_location('x', 'methods/' + 'minelib.py')\n"
        "m = u.module_from_spec(s)\ns.loader.exec_module(m)\nLOW = m.LOW",
        LIB,
        "LOW = {}",
    ),
    "parts from another file of the catalog": versions(
        {
            MINE: METHOD.format(code="from methods.catalog.mine_base import base\nLOW = 0.3").replace(
                "def mine(s):", "def mine(s):\n    return base(s)"
            ),
            "methods/catalog/mine_base.py": METHOD.format(code="LOW = §")
            .replace("def mine(", "def base(")
            .replace('"mine"', '"mine_base"'),
        }
    ),
    # data
    "DATA": both(FROM_ROOT + "DATA = ('methods/mine.json',)\npath = ROOT / DATA[0]\n" + READ, JSON, "{}"),
    "beside the file": both(
        "import json\nfrom pathlib import Path\npath = Path(__file__).with_name('mine.json')\n" + READ,
        "methods/catalog/mine.json",
        "{}",
    ),
    "by our own reader": both(
        "from core.files import read_json\nfrom core.provenance import ROOT\n"
        "LOW = read_json(ROOT / 'methods/mine.json', 'low')",
        JSON,
        "{}",
    ),
    "pandas": both("import pandas\nLOW = pandas.read_csv('methods/mine.json').columns[0]", JSON, "{},x"),
    "in results": both("LOW = open('results/mine.json').read()", "results/mine.json", "{}"),
    "read when the loss is built": both(
        "class Low:\n    def __float__(self):\n        return float(open('methods/mine.json').read())\nLOW = Low()",
        JSON,
        "{}",
    ),
    "listing of a folder": (
        own("import os\nLOW = len(os.listdir('methods/minedata')) / 10")
        | {"methods/minedata/a": "", "methods/minedata/b": ""},
        own("import os\nLOW = len(os.listdir('methods/minedata')) / 10") | {"methods/minedata/a": ""},
    ),
    # other processes
    "a script": both(
        "import subprocess, sys\nLOW = subprocess.check_output([sys.executable, 'methods/minelib.py'])",
        LIB,
        "print({})",
    ),
    # the environment
    "os.environ": (own("import os\nLOW = os.environ['LOW']"), own("import os\nLOW = os.environ['LOW']")),
}

# Edits that change no number: neither the hash nor the loss moves, and nothing is refused.
HARMLESS: dict[str, tuple[Files, Files]] = {
    "comment": (own("LOW = 0.2"), own("LOW = 0.2  # a comment")),
    "docstring": (own('def f():\n    """One."""\nLOW = 0.2'), own('def f():\n    """Two."""\nLOW = 0.2')),
    "formatting": (own("LOW = 0.2"), own("LOW = (\n    0.2\n)")),
}

# In the copy in place of methods/train.py: for each line, a child that computes a loss as a run of the method would.
TRAIN = """
import importlib, json, os, sys
import torch, numpy, pandas
from methods import catalog
from methods.batch import Batch
from methods.training.run_folder import code_of
from core import code_hashes, used_code
from core.errors import BenchError
import methods.parts.advantages, methods.parts.ratios, methods.parts.reducers, methods.parts.surrogates

code_hashes.closure("methods.train", "methods.adapters.trl")  # read once for all children

def answer():
    used = used_code.start(code_of("mine", "trl"))
    ratio = torch.tensor([[0.3, 0.6, 1.2], [0.7, 2.0, 0.85]])
    advantage = torch.tensor([1.0, -1.0])
    method = catalog.parse("mine")
    ones = torch.ones(2, 3, dtype=torch.bool)
    batch = Batch(logp=-1 + ratio.log() - 2, old_logp=torch.full((2, 3), -3.0), advantage=advantage, mask=ones,
                  group=torch.tensor([0, 0]))
    value = float(method.loss(batch))
    used.check()
    return {"hash": used.hash, "value": value}

for line in sys.stdin:
    for name in [name for name in os.environ if name in ("LOW", "TEPO_CODE")]:
        del os.environ[name]
    os.environ.update(json.loads(line))
    if os.fork() == 0:
        importlib.invalidate_caches()
        try:
            found = answer()
        except BenchError as error:
            found = {"refused": str(error)}
        except BaseException as error:
            found = {"failed": repr(error)}
        print(json.dumps(found), flush=True)
        os._exit(0)
    os.wait()
"""

Answer = dict[str, Any]


class Project:
    """A copy of the project, and what its `methods.train` comes to with files as they are now."""

    def __init__(self, folder: Path, *, bytecode: bool = False):
        self.folder = copy_of(folder)
        (self.folder / "results").mkdir()
        (self.folder / "methods" / "train.py").write_text(TRAIN)
        # Bytecode that is older than its file, and of its content: a copy of files in another order has such.
        first = self.folder / "core" / "__init__.py"
        py_compile.compile(str(first))
        os.utime(first, ns=(first.stat().st_atime_ns, first.stat().st_mtime_ns))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TEPO_")}
        environment |= used_code.NUMERIC | {"PYTHONDONTWRITEBYTECODE": "" if bytecode else "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "methods.train"], cwd=self.folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def answer(self, files: Files, keep: bool = False, **variables: str) -> Answer:
        """With these files, which are removed afterwards."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(variables) + "\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline())
        assert "failed" not in found, found["failed"]
        for name in [] if keep else files:
            (self.folder / name).unlink()
        return found


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    made = Project(tmp_path_factory.mktemp("project") / "copy")
    yield made
    made.process.communicate(timeout=1800)


def silent(before: Answer, after: Answer) -> str | None:
    """Why an edit passes unseen: another loss under the same hash, or a refusal that names no file in one line."""
    refused = [found["refused"] for found in (before, after) if "refused" in found]
    if refused:
        named = all("\n" not in line and ("in no hash" in line or "no hash covers" in line) for line in refused)
        return None if len(refused) == 2 and named else f"refused: {refused}"
    if before["value"] == after["value"]:
        return "the edit changes nothing, and shows nothing"
    return None if before["hash"] != after["hash"] else "the same hash"


def test_an_edit_changes_the_hash_or_is_refused(project: Project) -> None:
    found = {}
    for name, (first, second) in EDITS.items():
        found[name] = silent(project.answer(first, LOW="0.2"), project.answer(second, LOW="0.1"))
    assert {name: why for name, why in found.items() if why} == {}


def test_what_decides_nothing_changes_nothing(project: Project) -> None:
    for name, files in HARMLESS.items():
        before, after = map(project.answer, files)
        assert before == after, name
        assert before.keys() == {"hash", "value"}, name


def test_a_job_refuses_other_code_than_it_was_planned_with(project: Project) -> None:
    files = own("LOW = 0.2")
    planned = project.answer(files)["hash"]
    code = used_code.planned(planned)
    assert project.answer(files, TEPO_CODE=code)["hash"] == planned
    assert "planned with" in project.answer(own("LOW = 0.1"), TEPO_CODE=code)["refused"]
    other = used_code.planned(planned, used_code.NUMERIC | {"OMP_NUM_THREADS": "2"})
    assert "thread variable" in project.answer(files, TEPO_CODE=other)["refused"]


def test_an_edit_that_is_undone_while_the_command_runs_is_refused(project: Project) -> None:
    """The lazy import after it would read the edited file under the hash of the file as it was."""
    lazy = (
        "import os, time\nfrom core.provenance import ROOT\n"
        "path = ROOT / 'methods' / ('mine' + 'lib.py')\ntext = path.read_bytes()\n"
        "{edit}\nfrom methods.minelib import LOW\n{undo}"
    )
    lib = {"methods/minelib.py": "LOW = 0.2\n"}
    edit = "time.sleep(0.05)\npath.write_bytes(b'LOW = 0.1\\n')"
    undone = own(lazy.format(edit=edit, undo="path.write_bytes(text)")) | lib
    assert "was written" in project.answer(undone)["refused"]
    left = own(lazy.format(edit=edit, undo="")) | lib
    assert "was written" in project.answer(left)["refused"]


def test_bytecode_of_an_earlier_content_is_refused(tmp_path: Path) -> None:
    """Python takes it when second and size agree, as after `cp -p` or `rsync -t`."""
    project = Project(tmp_path / "copy", bytecode=True)
    first = project.answer(own("LOW = 0.2"), keep=True)
    path = project.folder / MINE
    times = path.stat()
    path.write_text(path.read_text().replace("0.2", "0.1"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    found = project.answer({})
    assert "bytecode of an earlier content" in found["refused"]
    for cached in path.parent.glob("__pycache__/mine.*"):
        cached.unlink()
    assert project.answer({})["value"] != first["value"]
    project.process.communicate(timeout=1800)


def test_hashing_another_commands_data_is_no_use_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker hashes for every command: a run of verl made the grade after it fail."""
    used = used_code.UsedCode(code_hashes.command("evals.grade"))
    monkeypatch.setattr(used, "_watches", True)
    data = str(ROOT / "methods/adapters/verl/config.yaml")
    hashing = frozenset({"core/code_hashes.py", "core/worker.py"})
    monkeypatch.setattr(used_code, "_opened", {(data, hashing)})
    used._check_opened()
    for reader in (frozenset[str](), hashing | {"evals/grade.py"}):
        monkeypatch.setattr(used_code, "_opened", {(data, reader)})
        with pytest.raises(CorruptInputError, match=r"verl/config\.yaml: was read .*is in no hash"):
            used._check_opened()


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
def small_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_the_closure_is_what_the_code_depends_on(small_project: Path) -> None:
    found = {entry: set(code_hashes.closure(f"core.{entry}")) - {"core/__init__.py"} for entry in CLOSURES}
    assert found == {entry: {f"core/{name}" for name in names} for entry, names in CLOSURES.items()}


def test_modules_can_be_left_out_and_what_is_gone_is_an_error(small_project: Path) -> None:
    assert "core/options.py" not in code_hashes.closure("core.loss", without=["core.options"])
    with pytest.raises(ValueError, match=r"core\.los is no module"):
        code_hashes.closure("core.los")
    with pytest.raises(ConfigError, match=r"no_data\.py: DATA: 'core/two\.csv' is no file"):
        code_hashes.closure("core.no_data")


CHANGES = [  # old, new, whether the hash is another one
    ('"""A loss."""\n', "", False),
    ('f"negative: {x}"', '"must not be negative"', True),
    ("x * x", "x * x * x", True),
    ("ValueError", "KeyError", True),
]


def test_code_is_hashed_and_text_for_people_is_not(small_project: Path) -> None:
    file, before = small_project / "core" / "loss.py", hash_of()
    for old, new, counts in CHANGES:
        file.write_text(LOSS.replace(old, new, 1))
        assert (hash_of() != before) == counts, new


def test_a_data_file_counts_by_its_content_and_all_text_beside_a_file_that_reads_text(small_project: Path) -> None:
    core = small_project / "core"
    (core / "reads.py").write_text("from core import loss\nTEXT = loss.loss.__doc__\n")
    before = hash_of("core.reads"), hash_of("core.data")
    (core / "loss.py").write_text(LOSS.replace("Squared.", "The square."))
    (core / "tables" / "one.csv").write_text("a,c\n")
    assert hash_of("core.reads") != before[0]
    assert hash_of("core.data") != before[1]
