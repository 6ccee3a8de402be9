"""The code hash of each stage: what an edit makes again, and what it does not."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from core import code
from core.code import COMPUTES, Code, warning_entry
from tests.workflow.conftest import copy_of

# Run in the copy: for each line on standard input, the hashes of all stages as they are now, by a child that imports
# the project anew.
PROBE = """
import json, os, sys
import annotated_types, pydantic, yaml
from core.code import Code
for stage, name in (("train", "trl"), ("train", "verl"), ("bases", ""), ("generate", "hf"), ("grade", "")):
    Code(stage, name).hash  # what is analysed here is not analysed again in each child
for _ in sys.stdin:
    if os.fork() == 0:
        try:
            from evals import benchmark
            from methods.training.run_folder import code_of
            from models import prompts, recipe
            hashes = {
                "bases": recipe.base_name("tiny_qwen2", "quick", 1), "prompts": prompts.code("arithmetic").hash,
                "hub prompts": prompts.code("math_train").hash,
                **{stage: Code(stage).hash for stage in ("grade", "score", "report")},
            }
            for key in ("amc", "syn_mix3"):
                hashes[f"generate {key}"] = benchmark.code([key], "hf").hash
            for method in ("grpo", "tepo", *(["mine"] if os.path.exists("methods/catalog/mine.py") else [])):
                for trainer in ("trl", "verl"):
                    found = code_of(method, trainer, "evals.reward:boxed")
                    hashes[f"{trainer} {method}"] = "-".join(each.hash for each in found.values())
        except BaseException as error:
            hashes = {"error": repr(error)}
        print(json.dumps(hashes), flush=True)
        os._exit(0)
    os.wait()
"""
TRL, VERL, TEPO = {"trl grpo", "trl tepo"}, {"verl grpo", "verl tepo"}, {"trl tepo", "verl tepo"}
RUNS, DRAWN = TRL | VERL, {"generate amc", "generate syn_mix3"}
NOTHING: set[str] = set()

METHOD = """
from methods.options import method
from methods.parts import Part, Parts, advantages, objective, part
{}

@method(key="mine", title="Mine", source="none", equation="none", differs_from_grpo="in low", options=())
def mine(s):
    return Parts(
        advantage=advantages.group_zscore(std="std"),
        ratio=objective.token(),
        surrogate=objective.clipped(low=float(LOW), high=0.28) if LOW else formula(),
        reduce=objective.token_mean(scope="minibatch"),
    )
"""


def own(lines: str) -> str:
    """The file of a method."""
    return METHOD.replace("{}", lines)


# file, what is replaced, by what, and what is made again. A text of "" is the file's end; a missing file is new.
EDITS: list[tuple[str, str, str, set[str]]] = [
    # nothing computes: comments, docstrings, wording, titles, unused parts, other files
    ("methods/parts/objective.py", "", "\n# edited\n", NOTHING),
    ("methods/parts/objective.py", "no importance sampling.", "edited.", NOTHING),
    ("methods/batch.py", "raise CorruptInputError(", "raise CorruptInputError('edited' ", NOTHING),
    ("methods/method.py", "reward_B: Tensor, group_B", "reward_B: 'Any', group_B", NOTHING),
    ("methods/catalog/tepo.py", 'title="', 'title="Edited ', NOTHING),
    ("methods/catalog/tepo.py", "", "\nEDITED = 1\n", NOTHING),
    ("methods/parts/masks.py", "", "\n@part()\ndef mine(t: Terms) -> Tensor:\n    return t.batch.mask\n", NOTHING),
    ("methods/parts/masks.py", "def top_covariance(", "def top_covariance2(", NOTHING),
    ("methods/catalog/mine.py", "", own("LOW = 0.2"), NOTHING),
    ("methods/training/run_folder.py", "", "\nEDITED = 1\n", NOTHING),
    ("core/files.py", "", "\nEDITED = 1\n", NOTHING),
    ("workflow/plan.py", "", "\nEDITED = 1\n", NOTHING),
    ("evals/tasks/paper.yaml", "title: ", "title: Edited ", NOTHING),
    ("build/lib/methods/parts/objective.py", "", "\nEDITED = 1\n", NOTHING),
    (".venv/lib/python3.12/site-packages/methods/batch.py", "", "EDITED = 1\n", NOTHING),
    ("methods/parts/objective.py~", "", "EDITED = 1\n", NOTHING),
    ("methods/adapters/trl/.#trainer.py", "", "EDITED = 1\n", NOTHING),
    # a run is trained again
    ("methods/batch.py", "", "\nEDITED = 1\n", RUNS),
    ("methods/method.py", "-parts.reduce(", "-2 * parts.reduce(", RUNS),
    ("methods/parts/advantages.py", "def _centred(", "def _centred(edited=1, *, ", RUNS),
    ("methods/parts/masks.py", "falling_entropy_on_positive(t: Terms, ", "falling_entropy_on_positive(t: Terms, x=1, ",
     TEPO),
    ("methods/parts/objective.py", "def sequence(t: Terms, ", "def sequence(t: Terms, x=1, ", RUNS),  # in diagnostics
    ("methods/options.py", '"beta", 0.001', '"beta", 0.002', TEPO),
    ("methods/parts/objective.py", "CLIP_HIGHER = (0.2, 0.28)", "CLIP_HIGHER = (0.2, 0.3)", RUNS),
    ("methods/parts/entropy.py", "def _log_probs(", "def _log_probs(x=1, *, ", RUNS),
    ("methods/training/rollouts.py", "", "\nEDITED = 1\n", RUNS),
    ("methods/adapters/trl/trainer.py", "", "\nEDITED = 1\n", TRL),
    ("methods/adapters/verl/trainer.py", "", "\nEDITED = 1\n", VERL),
    ("methods/adapters/verl/config.yaml", "shuffle: false", "shuffle: true", VERL),
    ("evals/reward.py", "def graded(questions: Sequence[Question])", "def graded(questions, x=1)", RUNS),
    # other stages
    ("methods/sampling.py", "BLOCK = ", "BLOCK = 1 + ", RUNS | DRAWN),
    ("models/tiny.py", "", "\nEDITED = 1\n", {"bases"}),
    ("models/recipe.py", "warmup: int = 50", "warmup: int = 51", {"bases"}),
    ("models/prompts.py", "def generated_rows(", "def generated_rows(x=1, *, ", {"prompts"}),
    ("models/prompts.py", 'READING = "system"', 'READING = "none"', {"hub prompts"}),
    ("evals/generation/prompts.py", "def build(", "def build(x=1, *, ", {"hub prompts", *DRAWN}),
    ("evals/generation/hf.py", "", "\nEDITED = 1\n", DRAWN),
    ("evals/generation/vllm.py", "", "\nEDITED = 1\n", NOTHING),
    ("evals/tasks/synthetic.yaml", "max_tokens: 64", "max_tokens: 65", {"generate syn_mix3"}),
    ("evals/tasks/paper.yaml", "temperature: 0.6", "temperature: 0.7", {"generate amc"}),
    ("evals/grading/normalise.py", "", "\nEDITED = 1\n", {"grade"}),
    ("evals/stats/intervals.py", "", "\nEDITED = 1\n", {"score", "report"}),
    ("report/tables.yaml", "", "\n# edited\n", {"report"}),
]  # fmt: skip
# Ways in which an own method computes with a number: § is edited.
MINE = "methods/catalog/mine.py"
OWN = {
    "constant": {MINE: own("LOW = §")},
    "default of an argument": {MINE: own("def low(*, x=§):\n    return x\nLOW = low()")},
    "file of data": {MINE: own("import json\nLOW = json.load(open('methods/mine.json'))"), "methods/mine.json": "§"},
    "environment": {MINE: own("import os\nLOW = os.environ.get('MINE', '§')")},
    "own formula's table": {
        MINE: own("LOW = None\nimport methods.minelib as lib\n@part()\ndef formula(t):\n    return lib.SCALES['x']\n"),
        "methods/minelib.py": "SCALES = {}\nSCALES['x'] = §\n",
    },
    "closure": {
        MINE: own(
            "LOW = None\ndef make():\n    def f(t):\n        return t.log_weight * §\n    return f\n"
            "def formula():\n    return Part(make())\n"
        )
    },
    "package's __init__": {
        MINE: own("LOW = None\nfrom methods import minelib\n@part()\ndef formula(t):\n    return minelib.f(t)\n"),
        "methods/minelib/__init__.py": "from methods.minelib.inner import f\n",
        "methods/minelib/inner.py": "def f(t):\n    return §\n",
    },
}
Hashes = Callable[[Mapping[str, str]], dict[str, str]]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of(tmp_path_factory.mktemp("edits") / "clone")


@pytest.fixture(scope="module")
def hashes(copy: Path) -> Iterator[Hashes]:
    """`hashes({file: text})`: all hashes in the copy while these files have these texts."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-B", "-c", PROBE], cwd=copy, stdin=pipe, stdout=pipe, text=True)

    def ask(files: Mapping[str, str]) -> dict[str, str]:
        assert process.stdin is not None
        assert process.stdout is not None
        originals = {copy / file: (copy / file).read_text() if (copy / file).exists() else None for file in files}
        try:
            for path, text in zip(originals, files.values(), strict=True):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            process.stdin.write("\n")
            process.stdin.flush()
            return dict(json.loads(process.stdout.readline()))
        finally:
            for path, original in originals.items():
                path.unlink() if original is None else path.write_text(original)

    yield ask
    process.communicate(timeout=600)


def test_an_edit_makes_again_what_computes_with_it(copy: Path, hashes: Hashes) -> None:
    before, wrong = hashes({}), {}
    for file, old, new, again in EDITS:
        original = (copy / file).read_text() if (copy / file).exists() else ""
        assert old in original, (file, old)
        after = hashes({file: original.replace(old, new) if old else original + new})
        if (changed := {stage for stage in before if after.get(stage) != before[stage]}) != again:
            wrong[f"{file}: {old!r} -> {new!r}"] = changed
    assert wrong == {}


@pytest.mark.parametrize("way", OWN)
def test_an_own_method_counts_with_all_that_it_computes_with(way: str, hashes: Hashes) -> None:
    before, after = (hashes({n: text.replace("§", low) for n, text in OWN[way].items()}) for low in ("0.2", "0.1"))
    assert {stage for stage in before if after.get(stage) != before[stage]} == {"trl mine", "verl mine"}


def test_versions_of_python_agree(copy: Path) -> None:
    """A cluster's login node and its jobs may have two."""
    script = (
        "import sys, types\nsys.modules['core.errors'] = errors = types.ModuleType('core.errors')\n"
        "errors.ConfigError = errors.CorruptInputError = errors.MissingInputError = ValueError\n"
        "from core.code import Code\n"
        "print(Code('train', 'trl').hash, Code('train', 'verl').hash, Code('generate', 'hf').hash, Code('grade').hash)"
    )
    found = {}
    installed = (Path.home() / ".pyenv/versions").glob("3.1[1-9]*/bin/python")
    for python in (sys.executable, *map(str, installed), "python3.11", "python3.12", "python3.13"):
        if shutil.which(python):
            done = subprocess.run([python, "-B", "-c", script], cwd=copy, capture_output=True, text=True, check=False)
            if done.returncode == 0:  # a shim of pyenv may stand for no version
                found[python] = done.stdout
    assert len(set(found.values())) == 1, found


def test_an_edit_while_a_stage_runs_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "ROOT", tmp_path)
    monkeypatch.setitem(COMPUTES, "train", ("batch.py",))
    monkeypatch.setattr(code, "_file", code._file.__wrapped__)
    stage = Code("train")
    for text in ("X = 1\n", "X = 2\n", "X = (\n"):
        (tmp_path / "batch.py").write_text(text, encoding="utf-8")
        if text == "X = 1\n":
            before = stage.hash
        edited = {} if text == "X = 1\n" else {"code_warning": "code of train: was edited while it ran"}
        assert warning_entry((stage, before)) == edited
