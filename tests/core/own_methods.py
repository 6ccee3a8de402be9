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


def both(code: str, file: str, text: str) -> tuple[Files, Files]:
    """The same method with another file that holds 0.2, then 0.1."""
    return own(code) | {file: text.format("0.2")}, own(code) | {file: text.format("0.1")}


def itself(code: str) -> tuple[Files, Files]:
    """The method's own file with 0.2, then with 0.1."""
    return own(code.replace("§", "0.2")), own(code.replace("§", "0.1"))


ROOT = "from core.provenance import ROOT\nimport json\n"
READ = "LOW = json.loads(path.read_text())"

# name -> (files, the same files after an edit that changes the loss)
EDITS: dict[str, tuple[Files, Files]] = {
    # in the file itself
    "constant": itself("LOW = §"),
    "annotated": itself("LOW: float = §"),
    "default of an argument": itself("def low(x=§):\n    return x\nLOW = low()"),
    "keyword-only default": itself("def low(*, x=§):\n    return x\nLOW = low()"),
    "lambda": itself("LOW = (lambda: §)()"),
    "partial": itself("from functools import partial\nLOW = partial(float, '§')()"),
    "dataclass default": itself(
        "from dataclasses import dataclass\n@dataclass\nclass Set:\n    low: float = §\nLOW = Set().low"
    ),
    "inherited": itself("class A:\n    low = §\nclass B(A):\n    pass\nLOW = B.low"),
    "metaclass": itself("class M(type):\n    low = §\nclass A(metaclass=M):\n    pass\nLOW = A.low"),
    "property": itself("class A:\n    @property\n    def low(self):\n        return §\nLOW = A().low"),
    "enum": itself("from enum import Enum\nclass E(Enum):\n    LOW = §\nLOW = E.LOW.value"),
    "slice of a list": itself("LOW = [9, §, 9][1:2][0]"),
    "string that is evaluated": itself("LOW = eval('§')"),
    "code that is executed": itself("exec('LOW = §')"),
    "f-string": itself("LOW = float(f'{§}')"),
    "format": itself("LOW = float('{:.1f}'.format(§))"),
    "bytes": itself("LOW = float(b'§')"),
    "name looked up": itself("LO_W = §\nLOW = globals()['LO_' + 'W']"),
    "attribute looked up": itself("class A:\n    lo = §\nLOW = getattr(A, 'l' + 'o')"),
    "argument of an error": itself("try:\n    raise ValueError(§)\nexcept ValueError as e:\n    LOW = e.args[0]"),
    "error's cause": itself(
        "try:\n    raise ValueError from KeyError(§)\nexcept ValueError as e:\n    LOW = e.__cause__.args[0]"
    ),
    "assertion": itself("try:\n    assert False, §\nexcept AssertionError as e:\n    LOW = e.args[0]"),
    "module's docstring": (
        {MINE: '"""0.2"""\n' + METHOD.format(code="LOW = __doc__")},
        {MINE: '"""0.1"""\n' + METHOD.format(code="LOW = __doc__")},
    ),
    "function's docstring": itself('def f():\n    """§"""\nLOW = f.__doc__'),
    "docstring by inspect": itself('import inspect\ndef f():\n    """§"""\nLOW = inspect.getdoc(f)'),
    "docstring by a computed name": itself('def f():\n    """§"""\nLOW = getattr(f, "__doc__")'),
    "comment by inspect": itself(
        "import inspect\ndef f():\n    pass  # §\nLOW = inspect.getsource(f).split('# ')[1].strip()"
    ),
    "comment by linecache": itself("import linecache\n# §\nLOW = linecache.getline(__file__, 5)[2:]"),
    "comment read as text": itself(
        ROOT + "# is §\nLOW = (ROOT / 'methods/catalog/mine.py').read_text().split('# is ')[1][:3]"
    ),
    "class named as one of ours": itself(
        "class Option:\n    def __init__(self, why):\n        self.why = why\nLOW = Option(why=§).why"
    ),
    "class named as another of ours": itself(
        "class CatalogEntry2:\n    def __init__(self, title):\n        self.title = title\nLOW = CatalogEntry2(title=§).title"
    ),
    "unpacked or under None": (
        own("x = {'a': 0.2}\nLOW = {None: x}.get('a', 0.1)"),
        own("x = {'a': 0.2}\nLOW = {**x}.get('a', 0.1)"),
    ),
    "operator": (own("LOW = 0.4 - 0.2"), own("LOW = 0.4 / 2 - 0.1")),
    "walrus": itself("if (low := §):\n    LOW = low"),
    "match": itself("match 1:\n    case 1:\n        LOW = §"),
    "star assignment": itself("_, *rest = 9, §\nLOW = rest[0]"),
    "comprehension": itself("LOW = [x for x in (§,)][0]"),
    "global statement": itself("def f():\n    global LOW\n    LOW = §\nf()"),
    "nonlocal closure": itself(
        "def f():\n    x = 9\n    def g():\n        nonlocal x\n        x = §\n    g()\n    return x\nLOW = f()"
    ),
    # another file of the project
    "plain import": both("from methods.minelib import LOW", LIB, "LOW = {}"),
    "lazy import": both(
        "def f():\n    from methods import minelib\n    return minelib.LOW\nLOW = f()", LIB, "LOW = {}"
    ),
    "star import": both("from methods.minelib import *", LIB, "LOW = {}"),
    "relative import": both("from ..minelib import LOW", LIB, "LOW = {}"),
    "relative import of a module": both("from .. import minelib\nLOW = minelib.LOW", LIB, "LOW = {}"),
    "else of a type checker's import": both(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    LOW = 0.9\nelse:\n    from methods.minelib import LOW",
        LIB,
        "LOW = {}",
    ),
    "not for a type checker": both(
        "from typing import TYPE_CHECKING\nif not TYPE_CHECKING:\n    from methods.minelib import LOW", LIB, "LOW = {}"
    ),
    "type checker's name of another module": both(
        "import typing as t\nif not t.TYPE_CHECKING:\n    from methods.minelib import LOW", LIB, "LOW = {}"
    ),
    "import after an error": both(
        "try:\n    import no_such_module\nexcept ImportError:\n    from methods.minelib import LOW", LIB, "LOW = {}"
    ),
    "computed module": both(
        "from importlib import import_module\nLOW = import_module('methods.mine' + 'lib').LOW", LIB, "LOW = {}"
    ),
    "module in an f-string": both(
        "from importlib import import_module\nm = 'mine'\nLOW = import_module(f'methods.{m}lib').LOW", LIB, "LOW = {}"
    ),
    "relative computed module": both(
        "from importlib import import_module\nLOW = import_module('..mine' + 'lib', __package__).LOW", LIB, "LOW = {}"
    ),
    "__import__": both("LOW = __import__('methods.mine' + 'lib', fromlist=['x']).LOW", LIB, "LOW = {}"),
    "by its place": both(
        "import importlib.util as u\ns = u.spec_from_file_location('x', 'methods/' + 'minelib.py')\n"
        "m = u.module_from_spec(s)\ns.loader.exec_module(m)\nLOW = m.LOW",
        LIB,
        "LOW = {}",
    ),
    "by its path, executed": both(
        "import runpy\nLOW = runpy.run_path('methods/' + 'minelib.py')['LOW']", LIB, "LOW = {}"
    ),
    "read and executed": both("exec(open('methods/' + 'minelib.py').read())", LIB, "LOW = {}"),
    "from a folder on the path": both(
        "import sys\nsys.path.insert(0, 'methods/' + 'more')\nfrom lowmod import LOW",
        "methods/more/lowmod.py",
        "LOW = {}",
    ),
    "from the root": both("from minemod import LOW", "minemod.py", "LOW = {}"),
    "from the root, by a computed name": both("LOW = __import__('mine' + 'mod').LOW", "minemod.py", "LOW = {}"),
    "package's __init__": (
        own("from methods.minepack import inner\nLOW = inner.LOW")
        | {
            "methods/minepack/__init__.py": "LOW = 0.2",
            "methods/minepack/inner.py": "from methods.minepack import LOW",
        },
        own("from methods.minepack import inner\nLOW = inner.LOW")
        | {
            "methods/minepack/__init__.py": "LOW = 0.1",
            "methods/minepack/inner.py": "from methods.minepack import LOW",
        },
    ),
    "module's __getattr__": both(
        "from methods import minelib\nLOW = minelib.LOW", LIB, "def __getattr__(name):\n    return {}"
    ),
    "registered by a decorator": both(
        "from methods.minelib import found\nLOW = found[0]()",
        LIB,
        "found = []\ndef register(f):\n    found.append(f)\n    return f\n@register\ndef f():\n    return {}",
    ),
    "attribute of a module by a computed name": both(
        "from methods import minelib\nLOW = getattr(minelib, 'L' + 'OW')", LIB, "LOW = {}"
    ),
    "class registered by __init_subclass__": both(
        "from methods import minelib\nLOW = minelib.A.found[0].low",
        LIB,
        "class A:\n    found = []\n    def __init_subclass__(cls):\n        A.found.append(cls)\nclass B(A):\n    low = {}",
    ),
    "patched by a helper": both(
        "from methods import minelib\nfrom methods.parts import surrogates\nLOW = surrogates.MINE_LOW",
        LIB,
        "from methods.parts import surrogates\nsurrogates.MINE_LOW = {}",
    ),
    "parts wrapped by a helper": (
        {
            MINE: METHOD.format(code="from methods.minelib import wrapped\nLOW = 0.3").replace(
                "def mine", "@wrapped\ndef mine"
            ),
            LIB: "from functools import wraps\ndef wrapped(f):\n    return wraps(f)(lambda s: f(s))",
        },
        {
            MINE: METHOD.format(code="from methods.minelib import wrapped\nLOW = 0.3").replace(
                "def mine", "@wrapped\ndef mine"
            ),
            LIB: "from dataclasses import replace\nfrom functools import wraps\nfrom methods.parts import surrogates\n"
            "def wrapped(f):\n"
            "    return wraps(f)(lambda s: replace(f(s), surrogate=surrogates.clipped(low=0.1, high=0.28)))",
        },
    ),
    "parts from another file of the catalog": (
        {
            MINE: METHOD.format(code="from methods.catalog.mine_base import base\nLOW = 0.3").replace(
                "def mine(s):", "def mine(s):\n    return base(s)"
            ),
            "methods/catalog/mine_base.py": METHOD.format(code="LOW = 0.2")
            .replace("def mine(", "def base(")
            .replace('"mine"', '"mine_base"'),
        },
        {
            MINE: METHOD.format(code="from methods.catalog.mine_base import base\nLOW = 0.3").replace(
                "def mine(s):", "def mine(s):\n    return base(s)"
            ),
            "methods/catalog/mine_base.py": METHOD.format(code="LOW = 0.1")
            .replace("def mine(", "def base(")
            .replace('"mine"', '"mine_base"'),
        },
    ),
    # data
    "DATA": both(ROOT + "DATA = ('methods/mine.json',)\npath = ROOT / DATA[0]\n" + READ, JSON, "{}"),
    "DATA, a folder": both(
        ROOT + "DATA = ('methods/minedata',)\npath = ROOT / DATA[0] / 'a.json'\n" + READ,
        "methods/minedata/a.json",
        "{}",
    ),
    "beside the file": both(
        "import json\nfrom pathlib import Path\npath = Path(__file__).with_name('mine.json')\n" + READ,
        "methods/catalog/mine.json",
        "{}",
    ),
    "the file's suffix": both(
        "import json\nfrom pathlib import Path\npath = Path(__file__).with_suffix('.json')\n" + READ,
        "methods/catalog/mine.json",
        "{}",
    ),
    "os.path": both(
        "import os\nLOW = open(os.path.join(os.path.dirname(__file__), '..', 'mine.json')).read()", JSON, "{}"
    ),
    "importlib.resources": both(
        "from importlib import resources\nLOW = (resources.files('methods') / 'mine.json').read_text()", JSON, "{}"
    ),
    "pkgutil.get_data": both("import pkgutil\nLOW = pkgutil.get_data('methods', 'mine.json').decode()", JSON, "{}"),
    "from the working folder": both("LOW = open('methods/mine.json').read()", JSON, "{}"),
    "ROOT and an f-string": both(ROOT + "m = 'mine'\npath = ROOT / f'methods/{m}.json'\n" + READ, JSON, "{}"),
    "by our own reader": both(
        "from core.files import read_json\nfrom core.provenance import ROOT\nLOW = read_json(ROOT / 'methods/mine.json', 'low')",
        JSON,
        "{}",
    ),
    "os.open": both("import os\nLOW = os.read(os.open('methods/mine.json', os.O_RDONLY), 9)", JSON, "{}"),
    "numpy": both("import numpy\nLOW = numpy.loadtxt('methods/mine.json')", JSON, "{}"),
    "pandas": both("import pandas\nLOW = pandas.read_csv('methods/mine.json').columns[0]", JSON, "{},x"),
    "a link": both("LOW = open('methods/mine.json').read()", JSON, "{}"),
    "in results": both("LOW = open('results/mine.json').read()", "results/mine.json", "{}"),
    "outside the project": both("LOW = open('../mine.json').read()", "../mine.json", "{}"),
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
    "configuration": both(
        "import yaml\nLOW = yaml.safe_load(open('config/mine.yaml'))['low']", "config/mine.yaml", "low: {}"
    ),
    # other processes
    "a script": both(
        "import subprocess, sys\nLOW = subprocess.check_output([sys.executable, 'methods/minelib.py'])",
        LIB,
        "print({})",
    ),
    "os.popen": both("import os\nLOW = os.popen('cat methods/mine.json').read()", JSON, "{}"),
    # the environment
    "os.environ": (own("import os\nLOW = os.environ['LOW']"), own("import os\nLOW = os.environ['LOW']")),
    "os.getenv": (own("from os import getenv\nLOW = getenv('LOW')"), own("from os import getenv\nLOW = getenv('LOW')")),
}

# Edits that change no number: neither the hash nor the loss moves, and nothing is refused.
HARMLESS: dict[str, tuple[Files, Files]] = {
    "comment": (own("LOW = 0.2"), own("LOW = 0.2  # a comment")),
    "docstring": (own('def f():\n    """One."""\nLOW = 0.2'), own('def f():\n    """Two."""\nLOW = 0.2')),
    "formatting": (own("LOW = 0.2"), own("LOW = (\n    0.2\n)")),
    "another file of the catalog": (
        own("LOW = 0.2"),
        own("LOW = 0.2") | {"methods/catalog/other.py": METHOD.format(code="LOW = 0.1").replace('"mine"', '"other"')},
    ),
    "another file of the catalog that patches a part": (
        own("LOW = 0.2"),
        own("LOW = 0.2")
        | {
            "methods/catalog/other.py": METHOD.format(code="surrogates.clipped = None\nLOW = 0.1").replace(
                '"mine"', '"other"'
            )
        },
    ),
}
