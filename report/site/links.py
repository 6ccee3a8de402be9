"""Addresses inside the page (`#...`) of runs, rows and responses, and what a checkpoint is called and compared with."""

from collections.abc import Iterable
from urllib.parse import urlencode

from core.layout import BASE, REFERENCE, Checkpoint, Run, split
from core.results_tree import Tree

TEPO = "tepo"  # the paper's method, as configurations call it


def run(of: Run) -> str:
    return f"run/{of.path.as_posix()}"


def row(table: str, id: str) -> str:
    return f"row/{table}/{id}"


def responses(checkpoint: Checkpoint, benchmark: str | None = None) -> str:
    """The sample browser with this checkpoint on the left; the page knows what to set beside it."""
    query = {"left": checkpoint.path.as_posix()} | ({"benchmark": benchmark} if benchmark else {})
    return "samples?" + urlencode(query, safe="/=@")


def curves(methods: Iterable[tuple[str, str]], seed: int | None = None) -> str:
    """The view of training with these (model, method), of one seed or of all."""
    query: list[tuple[str, object]] = []
    for model, method in methods:
        key, variant = split(method)
        query += [("model", model), ("method", key), ("variant", variant or "")]
    chosen = list(dict.fromkeys(query)) + ([] if seed is None else [("seed", seed)])
    return "dynamics?" + urlencode(chosen, safe="/=@")


def counterpart(checkpoint: Checkpoint, tree: Tree) -> Checkpoint | None:
    """GRPO/DAPO at the same step; of GRPO/DAPO itself the base that it started from."""
    base = tree.base(checkpoint.run.model, checkpoint.run.seed)
    reference = reference_run(checkpoint.run, tree)
    # The base stands in where GRPO/DAPO was not evaluated at this step.
    wanted = [Checkpoint(reference, checkpoint.step), base] if reference else [base]
    return next((other for other in wanted if other in tree.evaluated and other != checkpoint), None)


def reference_run(run: Run, tree: Tree) -> Run | None:
    """GRPO/DAPO of the same model, settings and seed; None for itself, the base, and where nobody planned it."""
    method = tree.method_for(REFERENCE)
    if method is None or run.key in (method, BASE):
        return None
    same = method if run.variant is None else f"{method}@{run.variant}"
    # On a sweep's fresh seeds each method is at the value chosen for it.
    of_run = tree.chosen.get((run.model, REFERENCE), same) if tree.is_fresh(run) else same
    other = Run(run.model, of_run, run.seed)
    return other if other in tree.runs else None


def title(checkpoint: Checkpoint, tree: Tree) -> str:
    """`TEPO, seed 1, step 12`, with the model where the results have several."""
    model = f"{model_title(checkpoint.run.model, tree)}: " if len(tree.models) > 1 else ""
    if checkpoint.run.method == BASE:
        several = len(tree.bases[checkpoint.run.model]) > 1
        return f"{model}base model" + (f", seed {checkpoint.run.seed}" if several else "")
    return f"{model}{tree.methods[checkpoint.run.method]['title']}, seed {checkpoint.run.seed}, step {checkpoint.step}"


def model_title(key: str, tree: Tree) -> str:
    return next(str(model["title"]) for model in tree.models if model["key"] == key)
