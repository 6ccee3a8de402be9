"""What each run did: how it differs from GRPO/DAPO, how long it took, how its curve went, what to be careful about."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals import learning_curves
from evals.learning_curves import REFERENCE, read_curve
from records.csv_files import stored
from records.layout import BASE, Run
from records.results_tree import Tree
from report.tables.fill import FilledTable


@dataclass(frozen=True)
class Summary:
    """One run. Rewards are fractions; None: not finished, or not defined."""

    run: Run
    title: str
    differs: tuple[str, ...]
    rollouts: int | None
    planned: int | None
    updates: int | None
    first: float | None  # mean reward of the first quarter of rollouts
    last: float | None  # of the last quarter
    area: float | None  # under the reward curve; this and the next as `evals.learning_curves` defines them
    to_half: float | None
    wall_seconds: float | None
    collapsed_at: int | None
    record: Mapping[str, Any] | None

    @property
    def finished(self) -> bool:
        return self.record is not None


def summaries(tree: Tree) -> list[Summary]:
    """One per planned run, in the matrix's order."""
    return [_summary(run, tree) for run in tree.runs]


def differences(key: str, reference: str = REFERENCE) -> tuple[str, ...]:
    """The slots in which a method differs from the reference, as `reduce: token_mean → sequence_mean`."""
    from methods import catalog

    ours, theirs = (
        {slot: str(part).lstrip("_") for slot, part in catalog.parse(name).parts.filled().items()}
        for name in (key, reference)
    )
    slots = list(dict.fromkeys([*theirs, *ours]))
    changed = [slot for slot in slots if ours.get(slot) != theirs.get(slot)]
    return tuple(_change(slot, theirs.get(slot), ours.get(slot)) for slot in changed)


def _change(slot: str, old: str | None, new: str | None) -> str:
    if old is None:
        return f"{slot}: {new}"
    return f"no {slot} (there: {old})" if new is None else f"{slot}: {old} → {new}"


def warnings(tree: Tree, filled: FilledTable, done: Sequence[Summary]) -> list[str]:
    """Everything a reader should know before believing a number, most serious first."""
    found = [
        f"{s.run.path.as_posix()}: collapsed at rollout {s.collapsed_at} (reward near zero), and training stopped."
        for s in done
        if s.collapsed_at is not None
    ]
    found += [f"{s.run.path.as_posix()}: not finished: its folder has no run.json." for s in done if not s.finished]
    found += [note for note in filled.notes if note.startswith("Missing")]
    found += _verdicts(tree)
    found += _unlike(done)
    if any(_environment(s).get("dirty") for s in done):
        found.append("Trained from a working tree with uncommitted changes: the commit alone does not give the code.")
    return found


def _summary(run: Run, tree: Tree) -> Summary:
    record = tree.record(run)
    path = tree.layout.run(run) / "curve.csv"
    reward = [v for v in read_curve(path).series(["reward"], "first") if v is not None] if stored(path) else []
    measured = learning_curves.measure_run(tree, run).values
    quarter = max(len(reward) // 4, 1)
    training = (record or {}).get("spec", {}).get("training") or tree.matrix.get("training") or {}
    return Summary(
        run=run,
        title=str(tree.methods[run.method]["title"]),
        differs=differences(run.key),
        rollouts=len(reward) or None,
        planned=training.get("rollouts"),
        updates=(record or {}).get("updates"),
        first=_mean(reward[:quarter]),
        last=_mean(reward[-quarter:]),
        area=measured["area"],
        to_half=measured["to_50"],
        wall_seconds=(record or {}).get("wall_seconds"),
        collapsed_at=(record or {}).get("collapsed_at"),
        record=record,
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _verdicts(tree: Tree) -> list[str]:
    """Verdicts that hide a right answer rather than show a wrong one: counted over all scored responses."""
    averages = {key for _, key in tree.scores} - {str(b["key"]) for b in tree.benchmarks}
    found = []
    for verdict, meaning in (
        ("timeout", "graded as wrong because grading ran out of time"),
        ("error", "graded as wrong because the grader failed"),
        ("unparsed_gold", "could not be right: the reference answer is not readable"),
    ):
        hits = {
            (c.run.method if c.run.method != BASE else BASE, key): count
            for (c, key), score in tree.scores.items()
            if key not in averages and (count := score.counts[verdict])
        }
        if hits:
            worst = max(hits, key=lambda hit: hits[hit])
            found.append(f"{sum(hits.values())} responses {meaning} (most: {worst[0]} on {worst[1]}, {hits[worst]}).")
    return found


def _unlike(done: Sequence[Summary]) -> list[str]:
    """Runs that share less than they should: a difference between their rows is then not only the method's."""
    found = []
    finished = [s for s in done if s.record is not None]
    for model, variant in dict.fromkeys((s.run.model, s.run.variant) for s in finished):
        records = [s.record for s in finished if (s.run.model, s.run.variant) == (model, variant) and s.record]
        for what, values in (
            ("base weights", [(r.get("inputs") or {}).get("base") for r in records]),
            ("prompts", [(r.get("inputs") or {}).get("prompts") for r in records]),
            ("training code", [(r.get("inputs") or {}).get("code") for r in records]),
            ("training settings", [r["spec"].get("training") for r in records]),
        ):
            if any(value != values[0] for value in values):
                found.append(f"{model}: runs differ in {what}: their rows differ in more than the method.")
    for what in ("commit", "packages"):
        if len({repr(_environment(s).get(what)) for s in finished}) > 1:
            found.append(
                f"Runs were made with different {'code (commits)' if what == 'commit' else 'package versions'}."
            )
    return found


def _environment(summary: Summary) -> Mapping[str, Any]:
    return (summary.record or {}).get("environment") or {}
