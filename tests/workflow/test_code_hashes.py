"""What an edit makes again: the table of docs/provenance.md, asked of the hashes in an edited copy of the project."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workflow.conftest import copy_of

ASK = """
import json
from workflow import code_hashes
from workflow.matrix import REWARD
stages = "benchmarks generate grade score matrix table figure convergence audit claims report manifest".split()
hashes = {stage: getattr(code_hashes, stage)() for stage in stages}
for method in ("grpo", "tepo"):
    for trainer in ("trl", "verl"):
        hashes[f"{method} by {trainer}"] = code_hashes.train(method, trainer, REWARD)
hashes["recipe"] = code_hashes.recipe("tiny_qwen2", "quick")
hashes["prompts"] = code_hashes.prompts("arithmetic")
print(json.dumps(hashes))
"""
RUNS = {"grpo by trl", "grpo by verl", "tepo by trl", "tepo by verl"}
MEASURED = {"benchmarks", "generate", "grade", "score", "recipe", "prompts", *RUNS}  # dear: all that is not a page
CODE, COMMENT = "\nEDITED = 1\n", "\n# edited\n"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of(tmp_path_factory.mktemp("copy") / "clone", "README.md")


@pytest.fixture(scope="module")
def before(copy: Path) -> dict[str, str]:
    return hashes(copy)


def hashes(folder: Path) -> dict[str, str]:
    done = subprocess.run([sys.executable, "-c", ASK], cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("file", "edit", "again", "pages"),
    [
        ("methods/parts/reducers.py", COMMENT, set(), set()),
        ("README.md", COMMENT, set(), set()),
        ("methods/parts/reducers.py", CODE, RUNS, set()),
        ("methods/catalog/tepo.py", CODE, {"tepo by trl", "tepo by verl"}, {"matrix", "report"}),
        ("methods/adapters/trl/trainer.py", CODE, {"grpo by trl", "tepo by trl"}, set()),
        ("methods/training/lock.py", CODE, set(), set()),
        ("evals/reward.py", CODE, RUNS, set()),
        ("evals/grading/normalise.py", CODE, {"grade"}, set()),
        ("evals/stats/intervals.py", CODE, {"score"}, {"table"}),
        ("evals/tasks/amc.py", CODE, {"benchmarks", "generate"}, {"matrix"}),
        ("models/batches.py", CODE, {"recipe"}, set()),
        ("report/tables.yaml", COMMENT, set(), {"table", "report"}),
        ("report/captions/tables.rst", COMMENT, set(), {"report"}),
        ("report/html/overview.html.j2", COMMENT, set(), {"report"}),
        ("paper/tables/table1.csv", COMMENT, set(), {"audit", "claims"}),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" in value else None,
)
def test_an_edit_makes_again_what_depends_on_it(
    copy: Path, before: dict[str, str], file: str, edit: str, again: set[str], pages: set[str]
) -> None:
    """again: all that is measured again; pages: pages that are made again at least, since others may read them."""
    original = (copy / file).read_text()
    (copy / file).write_text(original + edit)
    try:
        after = hashes(copy)
    finally:
        (copy / file).write_text(original)
    changed = {stage for stage in before if after[stage] != before[stage]}
    assert changed & MEASURED == again
    assert pages <= changed
    if not again and not pages:
        assert changed == set()
