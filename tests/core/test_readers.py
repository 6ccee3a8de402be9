"""Whatever a file that we read holds, its reader works or says in one line what is wrong with which file.

Every format that a command of ours reads, as a valid file and the function that reads it. Each is damaged in many ways:
cut, a byte changed, another type at any place, keys lost and added, NaN, huge numbers, endless nesting, bytes that are
no UTF-8, a folder in its place.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import digests, lock
from core.errors import BenchError
from core.files import content, read_growing_csv, read_jsonl
from core.layout import Checkpoint, Run
from core.provenance import ROOT, sha256_file
from core.results_tree import Tree, read_manifest
from core.scores import read_rows
from evals import data, learning_curves, store
from methods.training import spec
from models import recipe, registry
from paper import printed
from paper.claims import claims, entries
from report import convergence, show
from report.figures import spec as figure_spec
from report.site import overview, runs, training
from report.tables import spec as table_spec
from report.tables.tidy import read_table
from tests.report import synthetic, tables
from workflow import config, estimate

RUN = Run("tiny_qwen2", "tepo", 1)
SPECIFICATION = {
    "scale": "quick", "model": "tiny_qwen2", "method": "tepo", "seed": 1, "trainer": "trl", "base": "base",
    "prompts": "prompts.jsonl", "reward": "evals.reward:boxed", "checkpoints": [2],
    "training": {
        "rollouts": 2, "prompts_per_rollout": 4, "samples_per_prompt": 2, "minibatches": 1, "passes": 1,
        "learning_rate": 1e-4, "weight_decay": 0.0, "gradient_clip": 1.0, "temperature": 1.0,
        "max_completion_tokens": 8,
    },
}  # fmt: skip
BASE = {
    "schema": 2, "model": "m", "ladder": "quick", "seed": 1, "recipe": {}, "recipe_hash": "a", "parameters": 3,
    "clean": "m-clean-b", "clean_sha256": "c", "attempt": 0, "refused": [],
    "figures": {"base": {"accuracy": 0.1}}, "sha256": {"model.safetensors": "WEIGHTS"},
    "threads": 1, "wall_seconds": 1.0,
    "cpu_seconds": 1.0, "environment": {},
}  # fmt: skip
REFERENCE = ROOT / "results/reference/embedded"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """Invented results, and beside them a copy of what the kept reference has of every other file."""
    root = synthetic.write_tree(tmp_path_factory.mktemp("results") / "quick")
    samples = root / "spec.json"
    samples.write_text(json.dumps(SPECIFICATION), encoding="utf-8")
    (root / "base/model.safetensors").parent.mkdir()
    (root / "base/model.safetensors").write_bytes(b"invented")
    digest = sha256_file(root / "base/model.safetensors")
    (root / "base/base.json").write_text(json.dumps(BASE).replace("WEIGHTS", digest), encoding="utf-8")
    (root / "items.jsonl").write_text('{"problem": "1+1", "answer": "2", "level": 3}\n' * 3, encoding="utf-8")
    (root / "lock").write_text(json.dumps({"host": "h", "pid": 1, "slurm_job_id": None}), encoding="utf-8")
    (root / "growing.csv").write_bytes(b"rollout,seconds\n1,2.0\n1,3.0\n2,")
    (root / "sums.sha256").write_text(f"{'a' * 64}  spec.json\n", encoding="utf-8")
    (root / "claims.csv").write_bytes(content(REFERENCE / "claims.csv"))
    (root / "manifest.json").write_text(json.dumps(read_manifest(REFERENCE)), encoding="utf-8")  # in one file
    made = Tree(root)
    tables.write(made, "1")
    convergence.write(made)
    for name in ("embedded.yaml", "throughput.yaml"):
        shutil.copyfile(ROOT / "config" / name, root / name)
    shutil.copyfile(ROOT / "config/models/tiny_qwen2.yaml", root / "tiny_qwen2.yaml")
    for path in (
        "report/tables.yaml",
        "report/figures.yaml",
        "paper/claims.yaml",
    ):
        shutil.copyfile(ROOT / path, root / Path(path).name)
    shutil.copytree(ROOT / "paper/tables", root / "printed")
    return Tree(root)


def page_of_runs(path: Path) -> None:
    """Everything that the page says of run records."""
    found = Tree(path.parents[4])
    for run in found.runs:
        record = found.record(run)
        if record is not None:
            summary = runs.Summary(run, "", (), None, None, record)
            runs.line(summary), runs._facts(summary), runs.groups(found, [summary])
            overview.facts(found, [summary]), overview.provenance([summary]), overview._unequal_runs(found, [summary])


def plan_shown(path: Path) -> None:
    found = Tree(path.parent)
    show.progress(found)
    overview.benchmarks(found, [])
    overview._training(found.matrix.get("training") or {})


AT = Checkpoint(RUN, 12).path.as_posix()
READERS: dict[str, Callable[[Path], Any]] = {  # file in the tree -> what reads it
    f"runs/{RUN.path.as_posix()}/run.json": page_of_runs,
    f"runs/{RUN.path.as_posix()}/curve.csv": learning_curves.read_curve,
    "matrix.json": plan_shown,
    f"samples/{AT}/samples.json": store.read_record,
    f"grades/{AT}/grades.json": lambda path: store.entry_of(store.read_record(path), path, "syn_as3"),
    "manifest.json": lambda path: read_manifest(path.parent),
    "scores.csv": read_rows,
    "claims.csv": entries.read,
    "spec.json": lambda path: spec.read(str(path)),
    "base/base.json": lambda path: recipe.record(path.parent),
    "items.jsonl": lambda path: data.content_sha256(data.items(read_jsonl(path), str(path))),
    "lock": lock.is_held,
    "sums.sha256": digests.read,
    "embedded.yaml": lambda path: config.resolved([path]),
    "throughput.yaml": estimate.read,
    "tiny_qwen2.yaml": lambda path: (registry.model.cache_clear(), registry.model("tiny_qwen2", path.parent)),
    "tables.yaml": table_spec.tables,
    "figures.yaml": figure_spec.figures,
    "claims.yaml": claims.read_claims,
    "printed/table1.csv": lambda path: printed.read(path.parent),
    "printed/rows.csv": lambda path: printed.read(path.parent),
    "growing.csv": read_growing_csv,
    "figures/convergence.csv": lambda path: runs.summaries(Tree(path.parents[1])),
    "figures/convergence_runs.csv": lambda path: runs.summaries(Tree(path.parents[1])),
    "figures/convergence_curves.csv": lambda path: training.view(Tree(path.parents[1])),
    "figures/convergence_bands.csv": lambda path: training.view(Tree(path.parents[1])),
    "tables/table1.tidy.csv": lambda path: read_table(Tree(path.parents[1]), "1"),
}

STRANGE = [
    None, True, 0, -1, 1, 2.5, 10**15, 1e300, "", "x", "nan", "../../x", "a\nb", "\0", "é" * 300, [], [None], [[1]],
    {}, {"x": None}, {"": {}},
]  # fmt: skip
RAW = [b"NaN", b"1e999", b"1" * 30, b"1" * 5000, b'"\\ud800"', b"[" * 100_000, b"{a: " * 50_000, b"\xff", b"\0", b""]


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every node."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, child in list(inside)[:40] for path in places(child, (*at, key)))]


def changed(value: Any, at: tuple[Any, ...], change: Callable[[Any, Any], Any]) -> Any:
    """A copy of `value` in which `change(container, key)` was made at the path."""
    holder: Any = {"": copy.deepcopy(value)}
    root, *way = holder, "", *at
    for key in way[:-1]:
        holder = holder[key]
    change(holder, way[-1])
    return root.get("")


@st.composite
def damages(draw: st.DrawFn, content: bytes, suffix: str, value: Any = None) -> bytes | None:
    """The content after one damage; None: a folder stands there. value: what a JSON or YAML file holds."""
    kind = draw(st.sampled_from(["cut", "byte", "raw", "folder", "type", "type", "lost", "extra", "cell"]))
    if kind == "folder":
        return None
    if kind == "cut":
        return content[: draw(st.integers(0, max(0, len(content) - 1)))]
    if kind in ("byte", "raw") or not content:
        place = draw(st.integers(0, max(0, len(content) - 1)))
        new = bytes([draw(st.integers(0, 255))]) if kind == "byte" else draw(st.sampled_from(RAW))
        return content[:place] + new + content[place + 1 :]
    if suffix in (".json", ".yaml"):
        at = draw(st.sampled_from(places(value)))
        strange = copy.deepcopy(draw(st.sampled_from(STRANGE)))

        def change(holder: Any, key: Any) -> None:
            if kind == "lost":
                del holder[key]
            elif kind == "extra" and isinstance(holder[key], dict):
                holder[key]["no_such_key"] = strange
            else:
                holder[key] = strange

        # JSON is YAML, too.
        return json.dumps(changed(value, at, change)).encode()
    lines = content.decode("utf-8").split("\n")
    number = draw(st.integers(0, min(len(lines) - 1, 40)))
    cells = lines[number].split(",")
    cells[draw(st.integers(0, len(cells) - 1))] = str(draw(st.sampled_from(STRANGE)))
    lines[number] = ",".join(cells)
    return "\n".join(lines).encode()


@pytest.mark.parametrize("name", READERS)
def test_a_reader_works_or_names_the_file_in_one_line(name: str, tree: Tree) -> None:
    path = (tree.root / name).resolve()
    stored_content = path.read_bytes()
    reader = READERS[name]
    reader(path)  # as it is, it can be read

    value = yaml.load(stored_content, Loader=yaml.CSafeLoader) if path.suffix in (".json", ".yaml") else None
    count = 12 if len(stored_content) > 10_000 else 50  # long files take long to read; their places are much alike

    @settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(damages(stored_content, path.suffix, value))
    def damaged(content: bytes | None) -> None:
        if content is None:
            path.unlink()
            path.mkdir()
        else:
            path.write_bytes(content)
            if name.startswith("figures/convergence"):  # or the hash would be all that is ever tested
                sums = path.with_name("convergence.sha256")
                digests.write_list(sums, sorted(path.parent.glob("convergence*.csv")))
        try:
            reader(path)
        except BenchError as error:
            said.append(str(error))
        except OSError as error:  # the system's: `core.errors.run` says it in one line
            said.append(str(error.strerror))
        finally:
            if content is None:
                path.rmdir()

    said: list[str] = []
    try:
        damaged()
    finally:
        path.write_bytes(stored_content)
        if name.startswith("figures/convergence"):
            digests.write_list(path.with_name("convergence.sha256"), sorted(path.parent.glob("convergence*.csv")))
    assert said, "nothing was refused"
    assert [line for line in said if "\n" in line or line in ("", "None")] == []
