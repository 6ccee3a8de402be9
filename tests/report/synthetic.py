"""An invented results tree as docs/architecture.md describes it: `python -m tests.report.synthetic --out DIR`.

Every figure in it is made up from a seed; nothing was trained.
"""

import argparse
import json
import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from core.files import to_csv
from core.layout import BASE, Checkpoint, Results, Run
from evals.tree import Tree
from tests.merged_config import load

MODEL = {"key": "tiny_qwen2", "title": "tiny Qwen2", "stands_for": "Qwen2.5-7B"}
Methods: TypeAlias = Mapping[str, tuple[str, float]]  # by key the title, and the score about which its runs lie
METHODS: Methods = {
    "grpo": ("GRPO/DAPO", 0.62),
    "gspo": ("GSPO", 0.70),
    "tepo_nokl": ("TEPO without KL", 0.74),
    "tepo": ("TEPO", 0.72),
}
STANDS_FOR = ("aime24", "aime25", "amc", "math500", "omni_math", "olympiadbench", "minerva")
KEYS = ("syn_mix3", "syn_inv2", "syn_add2q", "syn_as3", "syn_mix2", "syn_mul4", "syn_seq1")
BENCHMARKS: list[dict[str, Any]] = [
    {"key": key, "title": f"Title of {key}", "stands_for": paper, "items": items, "samples": samples}
    for key, paper, (items, samples) in zip(KEYS, STANDS_FOR, [(20, 8)] * 3 + [(100, 1)] * 4, strict=True)
]
TRAINING = {"rollouts": 12, "prompts_per_rollout": 32, "samples_per_prompt": 8, "minibatches": 4, "passes": 2}


def write_tree(
    root: Path,
    *,
    seeds: tuple[int, ...] = (1,),
    scale: str = "quick",
    rollouts: int = 12,
    base_seeds: tuple[int, ...] = (0,),
    methods: Methods = METHODS,
    model: Mapping[str, Any] = MODEL,
    change: Callable[[dict[str, Any]], None] = lambda matrix: None,
) -> Path:
    """A complete tree of one model, some methods and seven benchmarks at `root`.

    base_seeds: (0,) is one base for all seeds; else the same as `seeds`. change: edits the matrix before the tree is
    written as it says.
    """
    layout = Results(root)
    runs = [Run(str(model["key"]), method, seed) for method in methods for seed in seeds]
    bases = [Checkpoint.base(str(model["key"]), seed) for seed in base_seeds]
    checkpoints = bases + [Checkpoint(run, rollouts) for run in runs]
    write_matrix(layout, runs, checkpoints, scale, rollouts, methods, model, change)
    tree = Tree(root)
    for checkpoint in tree.checkpoints:
        grade(root, checkpoint, verdicts(checkpoint, methods))
    score(tree)
    for run in tree.runs:
        write_run(layout, run, scale, rollouts, methods)
    return root


def write_matrix(
    layout: Results,
    runs: list[Run],
    checkpoints: list[Checkpoint],
    scale: str,
    rollouts: int,
    methods: Methods = METHODS,
    model: Mapping[str, Any] = MODEL,
    change: Callable[[dict[str, Any]], None] = lambda matrix: None,
) -> None:
    value = {
        "schema": 1, "scale": scale, "title": "Invented run", "note": "Invented figures: nothing was trained.",
        "table_step": rollouts,
        "models": [{"starts": None, "bases": "injected noise", **model}],
        "methods": [{"key": key, "row": key, "title": title} for key, (title, _) in methods.items()],
        "seeds": sorted({run.seed for run in runs}),
        "benchmarks": BENCHMARKS,
        "training": {**TRAINING, "rollouts": rollouts},
        "runs": [vars(run) | {"row": run.method, "steps": [rollouts]} for run in runs],
        "checkpoints": [vars(checkpoint.run) | {"step": checkpoint.step} for checkpoint in checkpoints],
        "base": BASE,
    }  # fmt: skip
    change(value)
    layout.root.mkdir(parents=True, exist_ok=True)
    layout.matrix.write_text(json.dumps(value, indent=1))


def verdicts(checkpoint: Checkpoint, methods: Methods = METHODS) -> dict[str, list[list[bool]]]:
    """Invented ones by benchmark: for each problem those of its responses."""
    from tests.evals.stats import fixtures

    centre = 0.31 if checkpoint.run.method == BASE else methods[checkpoint.run.method][1]
    found = {}
    for place, benchmark in enumerate(BENCHMARKS):
        draw = random.Random(f"{checkpoint.path} {benchmark['key']}")
        mean = min(0.97, max(0.03, draw.gauss(centre, 0.06)))
        right = fixtures.beta(benchmark["items"], benchmark["samples"], mean, seed=place, spread=2.0)
        found[str(benchmark["key"])] = right.tolist()
    return found


def grade(root: Path, checkpoint: Checkpoint, right: Mapping[str, list[list[bool]]]) -> None:
    """Write verdicts as samples/ and grades/."""
    from tests.evals.stats import fixtures

    fixtures.write(root, checkpoint, {key: fixtures.responses(answers) for key, answers in right.items()})


def score(tree: Tree) -> None:
    """Write scores.csv, computed by `evals.score` from the grades."""
    from evals.score import rows
    from evals.scores import write_scores

    write_scores(tree.layout.scores, rows(tree.layout, tree.checkpoints, [entry["key"] for entry in BENCHMARKS]))


def write_plan(root: Path, *configs: Path | str, **settings: Any) -> Tree:
    """What a configuration plans, and nothing of it done. settings: in place of the configuration's."""
    from workflow.matrix import Matrix

    layout = Results(root)
    layout.root.mkdir(parents=True, exist_ok=True)
    layout.matrix.write_text(json.dumps(Matrix({**load(configs), **settings}).content(), indent=1))
    return Tree(root)


def replanned(tree: Tree, **changes: Any) -> Tree:
    """The tree as if its matrix said something else; nothing is written."""
    other = Tree(tree.root)
    other.matrix = tree.matrix | changes
    return other


def write_planned(root: Path, *configs: Path | str, collapsed: Mapping[Run, int] = MappingProxyType({})) -> Tree:
    """A tree of everything that a configuration plans, with invented scores and level curves: no samples or grades.

    collapsed: run -> the rollout at which it is said to have collapsed.
    """
    from evals.scores import write_scores as write

    tree = write_plan(root, *configs)
    write(tree.layout.scores, [row for c in tree.checkpoints for row in _invented(c, tree.matrix["benchmarks"])])
    for run, entry in tree.runs.items():
        rollouts = collapsed.get(run) or tree.matrix["training"]["rollouts"] or max(entry["steps"])
        level = dict.fromkeys(_update(random.Random(0), run.method, 0.5, 0, 1), 0.5)
        level |= {"reward": random.Random(run.path.as_posix()).random(), "minibatch": 0}
        write_csv(
            tree.layout.run(run) / "curve.csv", [level | {"rollout": n + 1, "update": n} for n in range(rollouts)]
        )
        record = {"spec": {"training": tree.matrix["training"]}, "collapsed_at": collapsed.get(run)}
        (tree.layout.run(run) / "run.json").write_text(json.dumps(record))
    return tree


def _invented(checkpoint: Checkpoint, benchmarks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of scores.csv for one checkpoint; the averages are those of its benchmarks."""
    from evals.scores import COLUMNS, MACRO, NOT_CORRECT, POOLED

    run = checkpoint.run
    keys = {"model": run.model, "method": run.method, "seed": run.seed, "step": checkpoint.step, "level": "problem"}

    def row(key: str, items: int, samples: int | None, right: int, asked: int, score: float) -> dict[str, Any]:
        counts = dict.fromkeys(NOT_CORRECT, 0) | {"wrong": asked - right, "correct": right, "responses": asked}
        figures = {"benchmark": key, "items": items, "samples": samples, "score": score, "se": 0.025}
        ends = {"low": max(0.0, score - 0.05), "high": min(1.0, score + 0.05)}
        ends |= {"timeout_low": score, "timeout_high": score, "how": f"invented over {items} problems"}
        return dict.fromkeys(COLUMNS) | keys | counts | figures | ends

    found = []
    for entry in benchmarks:
        asked = entry["items"] * entry["samples"]
        right = random.Random(f"{checkpoint.path} {entry['key']}").randint(asked // 4, 3 * asked // 4)
        found.append(row(entry["key"], entry["items"], entry["samples"], right, asked, right / asked))
    items, asked, right = (sum(r[name] for r in found) for name in ("items", "responses", "correct"))
    macro = math.fsum(r["score"] for r in found) / len(found)
    averages = ((POOLED, right / asked), (MACRO, macro))
    return [*found, *(row(key, items, None, right, asked, score) for key, score in averages)]


def write_run(layout: Results, run: Run, scale: str, rollouts: int, methods: Methods = METHODS) -> None:
    draw, folder = random.Random(run.path.as_posix()), layout.run(run)
    rows = [_update(draw, run.method, methods[run.method][1], update, rollouts) for update in range(8 * rollouts)]
    for place, row in enumerate(rows):  # figures of the rollout are the same on each of its rows
        row |= {key: rows[place - place % 8][key] for key in ("reward", "response_tokens")}
    write_csv(folder / "curve.csv", rows)
    training = {**TRAINING, "rollouts": rollouts}
    record = {
        "schema": 1, "method": {"title": methods[run.method][0], "params": {}, "readings": {}, "scope": "token"},
        "spec": {"scale": scale, "model": run.model, "method": run.key, "variant": run.variant, "seed": run.seed,
                 "trainer": "trl", "training": training, "checkpoints": [rollouts]},
        "environment": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False, "python": "3.11.9",
                        "packages": {"torch": "2.13.0", "trl": "1.16.0", "vllm": None}, "platform": "Linux",
                        "cpu": "Invented CPU", "cores": 2, "threads": "1"},
        "inputs": {"base": "a" * 64, "prompts": "b" * 64, "code": "d" * 12, "spec": f"{run.path}"},
        "outputs": {},  # `tests.report.finished` gives true hashes; without, tests may change a curve
        "updates": len(rows), "collapsed_at": None, "wall_seconds": 31.5 + run.seed, "cpu_seconds": 29.0,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record, indent=1))


def _update(draw: random.Random, method: str, centre: float, update: int, rollouts: int) -> dict[str, Any]:
    rollout, minibatch, first = update // 8 + 1, update % 4, update % 8 == 0
    progress, sequence = rollout / rollouts, method != "grpo"
    return {
        "rollout": rollout, "update": update, "minibatch": minibatch,
        "reward": 0.15 + centre * progress**0.7 + draw.gauss(0, 0.015), "reward_kept": 0.5,
        "groups_sampled": 48, "groups_kept": 32, "groups_discarded": 16, "response_tokens": 17 + 7 * progress,
        "truncated_fraction": 0.0, "loss": draw.gauss(0, 0.02),
        "grad_norm": abs(draw.gauss(1.3 if sequence else 0.7, 0.06)),
        "learning_rate": 1e-4, "entropy": 0.5 * math.exp(-2.5 * progress) + abs(draw.gauss(0, 0.004)),
        "clip_fraction_tokens": abs(draw.gauss(0.0006 if sequence else 0.007, 0.001)) if not first else 0.0,
        "clip_fraction_sequences": 0.0, "ratio_spread": abs(draw.gauss(0.006 if sequence else 0.014, 0.001)),
        "kl_old": abs(draw.gauss(0.003, 0.0004)), "mask_fraction": 0.33 if method == "tepo" and not first else "",
        "theorem_sign_agreement": "", "effective_sample_size": 0.99, "tokens": 900, "sequences": 64,
        "seconds_update": 0.09 + abs(draw.gauss(0, 0.01)),
        "seconds_rollout": 1.3 + abs(draw.gauss(0, 0.1)) if first else "",
    }  # fmt: skip


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_csv(list(rows[0]), rows), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write an invented results tree to try tables and figures on.")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    arguments = parser.parse_args()
    write_tree(arguments.out, seeds=tuple(range(1, arguments.seeds + 1)), scale=arguments.out.name)
    print(f"invented results in {arguments.out}")


if __name__ == "__main__":
    main()
