"""The code hash of each stage: what an edit makes again, and what it does not."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
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
            for method in ("grpo", "tepo", *sys.argv[1:]):
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

# file, what is replaced, by what, and what is made again. A text of "" is the file's end; a missing file is new.
EDITS: list[tuple[str, str, str, set[str]]] = [
    # nothing computes: comments, docstrings, wording, titles, other files
    ("methods/parts/objective.py", "", "\n# edited\n", NOTHING),
    ("methods/parts/objective.py", "no importance sampling.", "edited.", NOTHING),
    ("methods/batch.py", "raise CorruptInputError(", "raise CorruptInputError('edited' ", NOTHING),
    ("methods/parts/__init__.py", "Scope = Literal[", "\n\nScope = Literal[", NOTHING),
    ("methods/method.py", "reward_B: Tensor, group_B", "reward_B: 'Any', group_B", NOTHING),
    ("methods/catalog/tepo.py", 'title="', 'title="Edited ', NOTHING),
    ("methods/catalog/tepo.py", 'source="', 'source="Edited ', NOTHING),
    ("methods/catalog/tepo.py", "", "\nEDITED = 1\n", NOTHING),
    ("methods/options.py", "", "\nMINE = Option('mine', 1.0)\n", NOTHING),
    ("methods/options.py", "has no meaning", "means nothing", NOTHING),
    ("methods/parts/masks.py", "", "\n@part()\ndef mine(t: Terms) -> Tensor:\n    return t.batch.mask\n", NOTHING),
    ("methods/parts/masks.py", "def top_covariance(", "def top_covariance2(", NOTHING),
    ("methods/parts/advantages.py", "def whitened(", "def whitened2(", NOTHING),
    ("methods/catalog/sequence.py", "", "\nEDITED = 1\n", NOTHING),
    ("methods/catalog/mine.py", "", "{METHOD}", NOTHING),
    ("methods/training/run_folder.py", "", "\nEDITED = 1\n", NOTHING),
    ("methods/train.py", "", "\nEDITED = 1\n", NOTHING),
    ("core/files.py", "", "\nEDITED = 1\n", NOTHING),
    ("core/errors.py", "", "\nEDITED = 1\n", NOTHING),
    ("core/progress.py", "", "\nEDITED = 1\n", NOTHING),
    ("core/code.py", "", "\nEDITED = 1\n", NOTHING),
    ("workflow/plan.py", "", "\nEDITED = 1\n", NOTHING),
    ("workflow/rules/train.smk", "", "\n# edited\n", NOTHING),
    ("config/models/mine.yaml", "", "title: mine\nhub: a/b\nrevision: null\nsize: 7B\n", NOTHING),
    ("evals/tasks/mine.yaml", "", "mine: {of: amc, title: Mine}\n", NOTHING),
    ("evals/tasks/paper.yaml", "title: ", "title: Edited ", NOTHING),
    ("evals/lm_eval/task.py", "", "\nEDITED = 1\n", NOTHING),
    ("evals/store.py", "", "\nEDITED = 1\n", NOTHING),
    ("build/lib/methods/parts/objective.py", "", "\nEDITED = 1\n", NOTHING),
    ("tepo_bench.egg-info/PKG-INFO", "", "Name: tepo-bench\n", NOTHING),
    (".venv/lib/python3.12/site-packages/methods/batch.py", "", "EDITED = 1\n", NOTHING),
    ("methods/parts/objective.py~", "", "EDITED = 1\n", NOTHING),
    ("methods/adapters/trl/.#trainer.py", "", "EDITED = 1\n", NOTHING),
    # a run is trained again
    ("methods/batch.py", "", "\nEDITED = 1\n", RUNS),
    ("methods/method.py", "-parts.reduce(", "-2 * parts.reduce(", RUNS),
    ("methods/parts/advantages.py", "def _centred(", "def _centred(edited=1, *, ", RUNS),
    ("methods/parts/objective.py", "x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:\n",
     "x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:\n    x = x * 2\n", RUNS),
    ("methods/parts/masks.py", "falling_entropy_on_positive(t: Terms, ", "falling_entropy_on_positive(t: Terms, x=1, ",
     TEPO),
    ("methods/parts/objective.py", "def sequence(t: Terms, ", "def sequence(t: Terms, x=1, ", RUNS),  # in diagnostics
    ("methods/catalog/tepo.py", "return ", "from dataclasses import replace\n    return ", NOTHING),
    ("methods/options.py", '"beta", 0.001', '"beta", 0.002', TEPO),
    ("methods/parts/objective.py", "CLIP_HIGHER = (0.2, 0.28)", "CLIP_HIGHER = (0.2, 0.3)", RUNS),
    ("methods/parts/entropy.py", "def _log_probs(", "def _log_probs(x=1, *, ", RUNS),
    ("methods/training/rollouts.py", "", "\nEDITED = 1\n", RUNS),
    ("methods/training/movement.py", "", "\nEDITED = 1\n", RUNS),
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
    ("evals/generation/engine.py", "", "\nEDITED = 1\n", DRAWN),
    ("evals/generation/hf.py", "", "\nEDITED = 1\n", DRAWN),
    ("evals/generation/vllm.py", "", "\nEDITED = 1\n", NOTHING),
    ("evals/tasks/synthetic.yaml", "max_tokens: 64", "max_tokens: 65", {"generate syn_mix3"}),
    ("evals/tasks/paper.yaml", "temperature: 0.6", "temperature: 0.7", {"generate amc"}),
    ("evals/grading/normalise.py", "", "\nEDITED = 1\n", {"grade"}),
    ("evals/stats/intervals.py", "", "\nEDITED = 1\n", {"score", "report"}),
    ("evals/score.py", "", "\nEDITED = 1\n", {"score"}),
    ("report/tables.yaml", "", "\n# edited\n", {"report"}),
]  # fmt: skip
METHOD = """
from methods.options import method
from methods.parts import Part, Parts, advantages, objective, part
{}

@method(key="mine", title="Mine", source="none", options=())
def mine(s):
    return Parts(
        advantage=advantages.group_zscore(std="std"),
        ratio=objective.token(),
        surrogate=objective.clipped(low=float(LOW), high=0.28) if LOW else formula(),
        reduce=objective.token_mean(scope="minibatch"),
    )
"""
TEXTS = {"{METHOD}": METHOD.format("LOW = 0.2")}

# Ways in which an own method computes with a number: § is edited.
OWN = {
    "constant": {"mine": "LOW = §"},
    "file of data": {"mine": "import json\nLOW = json.load(open('methods/mine.json'))", "mine.json": "§"},
    "own formula": {"mine": "LOW = None\n@part()\ndef formula(t):\n    return t.log_weight * §\n"},
    "own formula's helper": {
        "mine": "LOW = None\nfrom methods.minelib import scale\n@part()\ndef formula(t):\n    return scale(t)\n",
        "minelib.py": "def scale(t):\n    return t.log_weight * §\n",
    },
    "own formula's table": {
        "mine": "LOW = None\nimport methods.minelib as lib\n@part()\ndef formula(t):\n    return lib.SCALES['x']\n",
        "minelib.py": "SCALES = {}\nSCALES['x'] = §\n",
    },
    "closure": {"mine": "LOW = None\ndef make():\n    def f(t):\n        return t.log_weight * §\n    return f\n"
                        "def formula():\n    return Part(make())\n"},
    "package's __init__": {
        "mine": "LOW = None\nfrom methods import minelib\n@part()\ndef formula(t):\n    return minelib.f(t)\n",
        "minelib/__init__.py": "from methods.minelib.inner import f\n", "minelib/inner.py": "def f(t):\n    return §\n",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of(tmp_path_factory.mktemp("edits") / "clone")


def probe(folder: Path, *methods: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-B", "-c", PROBE, *methods], cwd=folder, stdin=pipe, stdout=pipe, text=True
    )


@pytest.fixture(scope="module")
def hashes(copy: Path) -> Iterator[Callable[[], dict[str, str]]]:
    """What the hashes in the copy are now."""
    process = probe(copy)

    def ask() -> dict[str, str]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return dict(json.loads(process.stdout.readline()))

    yield ask
    process.communicate(timeout=600)


def test_an_edit_makes_again_what_computes_with_it(copy: Path, hashes: Callable[[], dict[str, str]]) -> None:
    before, wrong = hashes(), {}
    for file, old, new, again in EDITS:
        path = copy / file
        original = path.read_text() if path.exists() else None
        assert original is None or old in original, (file, old)
        new = TEXTS.get(new, new)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(original.replace(old, new) if original and old else (original or "") + new)
        try:
            after = hashes()
        finally:
            path.unlink() if original is None else path.write_text(original)
        if (changed := {stage for stage in after if after[stage] != before.get(stage)}) != again:
            wrong[f"{file}: {old!r} -> {new!r}"] = changed
    assert wrong == {}


def test_an_own_method_counts_with_all_that_it_computes_with(copy: Path) -> None:
    wrong = []
    for name, files in OWN.items():
        found = []
        for number in ("0.2", "0.1"):
            for file, text in files.items():
                path = copy / ("methods/catalog/mine.py" if file == "mine" else f"methods/{file}")
                path.parent.mkdir(exist_ok=True)
                text = text.replace("§", number)
                path.write_text(METHOD.replace("{}", text) if file == "mine" else text)
            process = probe(copy, "mine")
            out, _ = process.communicate("\n", timeout=600)
            found.append(json.loads(out))
            (copy / "methods/catalog/mine.py").unlink()
            for file in files.keys() - {"mine"}:
                (copy / "methods" / file).unlink()
        changed = {stage for stage in found[1] if found[0].get(stage) != found[1][stage]}
        if changed != {"trl mine", "verl mine"}:
            wrong.append((name, changed))
    shutil.rmtree(copy / "methods/minelib", ignore_errors=True)
    assert wrong == []


@pytest.fixture
def lone_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only file that counts for training."""
    monkeypatch.setattr(code, "ROOT", tmp_path)
    monkeypatch.setitem(COMPUTES, "train", ("batch.py",))
    monkeypatch.setattr(code, "_file", code._file.__wrapped__)
    return tmp_path / "batch.py"


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


def test_an_edit_while_a_stage_runs_and_a_module_in_no_list_are_a_warning(
    lone_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lone_file.write_text("X = 1\n", encoding="utf-8")
    stage = Code("train")
    before = stage.hash
    monkeypatch.syspath_prepend(tmp_path)
    assert warning_entry((stage, before)) == {}
    (tmp_path / "hidden.py").write_text("X = 1\n")
    __import__("hidden")
    assert warning_entry((stage, before)) == {"code_warning": "hidden: imported, and in no hash"}
    lone_file.write_text("X = 2\n", encoding="utf-8")
    edited = {"code_warning": "code of train: was edited while it ran"}
    assert warning_entry((stage, before)) == edited
    lone_file.write_text("X = (\n", encoding="utf-8")
    assert warning_entry((stage, before)) == edited
    sys.modules.pop("hidden")
