"""An lm-eval task file made from a plan: `<folder>/<key>.yaml` and the prompts beside it.

Any lm-eval of the pinned version can run it (`lm_eval run --tasks FOLDER/KEY.yaml`). It holds no grading: the only
metric is lm-eval's own placeholder, the only filter keeps all k responses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.generation.plan import Plan
from evals.generation.prompts import INSTRUCTION
from records.errors import CorruptInputError
from records.write import write_text

if TYPE_CHECKING:
    from lm_eval.api.task import ConfigurableTask

RESPONSES = "responses"
CACHE = "datasets"
"""Where the datasets library keeps its copy, beside the task file."""


def config(plan: Plan, items: Path, extras: dict[str, Any]) -> dict[str, Any]:
    """The task as lm-eval reads it. extras: generation arguments that only some engines know (`top_k`)."""
    k = plan.decoding.samples
    return {
        "task": plan.benchmark.key,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(items)}, "cache_dir": str(items.parent / CACHE)},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "prompt",
        "doc_to_target": "item_id",
        "repeats": k,
        "generation_kwargs": plan.generation | ({} if plan.decoding.greedy else extras),
        "filter_list": [{"name": RESPONSES, "filter": [{"function": "take_first_k", "k": k}]}],
        "metric_list": [{"metric": "bypass", "aggregation": "bypass", "higher_is_better": True}],
        "metadata": {"version": 1.0, "task_hash": plan.task_hash, "instruction": INSTRUCTION},
    }


def write(plan: Plan, folder: Path, extras: dict[str, Any]) -> Path:
    """Write prompts and task file; the path of the latter."""
    import yaml

    folder = folder.resolve()
    items = folder / "prompts.jsonl"
    rows = zip(plan.items, plan.prompts, strict=True)
    lines = [json.dumps({"item_id": item.item_id, "prompt": prompt.text}, ensure_ascii=False) for item, prompt in rows]
    write_text(items, "\n".join(lines) + "\n")
    path = folder / f"{plan.benchmark.key}.yaml"
    write_text(path, yaml.safe_dump(config(plan, items, extras), sort_keys=False, allow_unicode=True))
    return path


def load(path: Path) -> ConfigurableTask:
    """The task as an object of lm-eval, from the file alone: the thousands of built-in tasks are not scanned."""
    import datasets
    from lm_eval.tasks import TaskManager

    datasets.disable_progress_bars()
    found = TaskManager(include_defaults=False).load([str(path)])["tasks"]
    if len(found) != 1:
        raise CorruptInputError(f"{path}: lm-eval reads {len(found)} tasks from it, expected 1")
    return next(iter(found.values()))
