"""Ways in which a user's own method can get a number, and an edit that changes it: `tests/core/test_used_code.py`."""

from __future__ import annotations

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


def own(code: str, **others: str) -> Files:
    """Own method whose LOW is computed by `code`, and other files by path with `__` for `/`."""
    return {MINE: METHOD.format(code=code)} | others


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


ROOT = "from core.provenance import ROOT\nimport json\n"
READ = "LOW = json.loads(path.read_text())"

# name -> (files, the same files after an edit that changes the loss)
EDITS: dict[str, tuple[Files, Files]] = {
    # in the file itself
    "constant": itself("LOW = §"),
    "keyword-only default": itself("def low(*, x=§):\n    return x\nLOW = low()"),
    "module's docstring": versions({MINE: '"""§"""\n' + METHOD.format(code="LOW = __doc__")}),
    "docstring by a computed name": itself('def f():\n    """§"""\nLOW = getattr(f, "__doc__")'),
    "comment read as text": itself(
        ROOT + "# is §\nLOW = (ROOT / 'methods/catalog/mine.py').read_text().split('# is ')[1][:3]"
    ),
    # another file of the project: forms of an import that the hash follows are in tests/core/test_used_code.py
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
    "DATA": both(ROOT + "DATA = ('methods/mine.json',)\npath = ROOT / DATA[0]\n" + READ, JSON, "{}"),
    "beside the file": both(
        "import json\nfrom pathlib import Path\npath = Path(__file__).with_name('mine.json')\n" + READ,
        "methods/catalog/mine.json",
        "{}",
    ),
    "by our own reader": both(
        "from core.files import read_json\nfrom core.provenance import ROOT\nLOW = read_json(ROOT / 'methods/mine.json', 'low')",
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
