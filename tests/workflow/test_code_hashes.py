"""What an edit makes again: the table of docs/provenance.md, asked of the hashes in an edited copy of the project."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.core.test_used_code import METHOD

# Run in the copy: for each line on standard input, the hashes of all stages as they are now.
WORKER = """
import importlib, json, sys
from evals import benchmark
from methods import catalog
from models import recipe, registry
from core import code_hashes as files
from workflow import code_hashes
from workflow.matrix import REWARD
COMMANDS = {
    "score": "evals.score", "table": "report.tables", "figure": "report.figure", "convergence": "report.convergence",
    "claims": "paper.claims", "manifest": "report.manifest", "report": "report.build",
}
for _ in sys.stdin:
    importlib.invalidate_caches()
    for module in (files, recipe, registry, code_hashes, benchmark, catalog):
        for function in list(vars(module).values()):
            getattr(function, "cache_clear", lambda: None)()
    hashes = {stage: code_hashes.command(module) for stage, module in COMMANDS.items()}
    hashes["benchmarks"] = code_hashes.of_benchmarks("evals.fetch", "amc")
    for stage in ("generate", "grade"):
        hashes[stage] = code_hashes.of_benchmarks(f"evals.{stage}", "amc", "syn_mix3")
    for method in ("grpo", "tepo"):
        for trainer in ("trl", "verl"):
            hashes[f"{method} by {trainer}"] = code_hashes.train(method, trainer, REWARD)
    hashes["recipe"] = recipe.base_name("tiny_qwen2", "quick", 1)
    hashes["prompts"] = code_hashes.prompts("arithmetic")
    hashes["training problems"] = code_hashes.prompts("math_train")
    print(json.dumps(hashes), flush=True)
"""
RUNS = {"grpo by trl", "grpo by verl", "tepo by trl", "tepo by verl"}
# All that is not a page.
MEASURED = {"benchmarks", "generate", "grade", "recipe", "prompts", "training problems", *RUNS}
# What is appended to a file.
CODE, COMMENT = "\nEDITED = 1\n", "\n# edited\n"
OWN = METHOD.format(code="LOW = 0.2")
BENCHMARK = "from dataclasses import replace\nfrom evals.tasks.paper import AMC\nBENCHMARK = replace(AMC, key='mine')\n"


@pytest.fixture(scope="module")
def hashes(clone: Path) -> Iterator[Callable[[], dict[str, str]]]:
    """What the hashes in the copy are now."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER], cwd=clone, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def ask() -> dict[str, str]:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
        return json.loads(worker.stdout.readline())

    yield ask
    worker.communicate(timeout=1800)


# edits of files, all that is measured again, pages that are made again at least (others may read them)
EDITS: list[tuple[dict[str, str], set[str], set[str]]] = [
    (
        {"methods/parts/reducers.py": COMMENT, "core/lock.py": CODE, "core/errors.py": CODE,
         "config/models/mine.yaml": "title: mine\nhub: a/b\nrevision: null\nsize: 7B\n"},
        set(), set(),
    ),
    (
        {"report/tables.yaml": COMMENT, "report/html/overview.html.j2": COMMENT, "paper/tables/table1.csv": COMMENT},
        set(), {"table", "report", "claims"},
    ),
    ({"methods/parts/reducers.py": CODE}, RUNS, set()),
    ({"methods/catalog/tepo.py": CODE}, {"tepo by trl", "tepo by verl"}, set()),
    # New files beside the others.
    ({"methods/catalog/mine.py": OWN}, set(), {"convergence"}),
    ({"evals/tasks/mine.py": BENCHMARK}, set(), {"report"}),
    ({"methods/adapters/trl/trainer.py": CODE}, {"grpo by trl", "tepo by trl"}, set()),
    ({"evals/reward.py": CODE}, RUNS, set()),
    ({"evals/grading/normalise.py": CODE}, {"grade"}, set()),
    ({"evals/stats/intervals.py": CODE}, set(), {"score", "table"}),
    ({"evals/tasks/paper.py": CODE}, {"benchmarks", "generate", "grade"}, {"score"}),
    ({"models/tiny.py": CODE}, {"recipe"}, set()),
    # What draws responses trains nothing again: the file of a run's prompts has their hash in its name, so another hash
    # is another run.
    (dict.fromkeys(("evals/generation/openai.py", "evals/generation/draw.py", "evals/generate.py"), CODE),
     {"benchmarks", "generate", "grade"}, set()),
]  # fmt: skip


def test_an_edit_makes_again_what_depends_on_it(clone: Path, hashes: Callable[[], dict[str, str]]) -> None:
    before, wrong = hashes(), {}
    for edits, again, pages in EDITS:
        changed = changes(clone, hashes, before, edits)
        if changed & MEASURED != again or not pages <= changed or (not again and not pages and changed):
            wrong[min(edits)] = changed
    assert wrong == {}


def changes(
    clone: Path, hashes: Callable[[], dict[str, str]], before: dict[str, str], edits: dict[str, str]
) -> set[str]:
    """The stages whose hash is another one after the edits, which are undone."""
    originals = {file: (clone / file).read_text() if (clone / file).exists() else None for file in edits}
    for file, edit in edits.items():
        (clone / file).write_text((originals[file] or "") + edit)
    try:
        after = hashes()
    finally:
        for file, original in originals.items():
            (clone / file).unlink() if original is None else (clone / file).write_text(original)
    return {stage for stage in before if after[stage] != before[stage]}
