"""Define the class of the task files in this folder: prompts, items and grades are those of `evals.run`.

lm-eval loads this file by its path. Items are read from the folder of `python -m evals.fetch`: the variable
TEPO_BENCH_DATA, else results/cache/benchmarks of this checkout.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import datasets
import numpy as np
from lm_eval.api.task import ConfigurableTask

from core.errors import BenchError, ConfigError
from core.provenance import ROOT
from evals import store
from evals.benchmark import GENERATED, benchmark, load
from evals.generation import prompts
from evals.grading import Verdict
from evals.grading.decide import gold
from evals.grading.grader import Question
from evals.reward import graded
from evals.stats.estimate import Samples

DATA = "TEPO_BENCH_DATA"
GRADED = ("item_id", "problem", "answer", "multiple", "tolerance")


class Task(ConfigurableTask):
    """One benchmark of the registry: the one whose key is `dataset_name`."""

    def __init__(self, config: Mapping[str, Any]):
        super().__init__(config={name: value for name, value in config.items() if name != "class"})

    def download(self, dataset_kwargs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Read the verified items; exit with one line where they are missing or different."""
        key = str(self.config.dataset_name)
        try:
            items = load(benchmark(key), os.environ.get(DATA) or ROOT / "results/cache/benchmarks")
        except BenchError as error:
            print(f"error: {error}; for another folder set {DATA}", file=sys.stderr)
            sys.exit(2)
        # Those that count in the benchmark's column: without copies, where the registry leaves them out.
        unanswered = np.zeros((len(items), 1), bool)
        every = Samples(tuple(item.item_id for item in items), unanswered, tuple(item.problem for item in items))
        counted = set(every.column(benchmark(key).duplicates).items)
        rows = [{name: getattr(item, name) for name in GRADED} for item in items if item.item_id in counted]
        self.dataset = datasets.DatasetDict({"test": datasets.Dataset.from_list(rows)})

    def fewshot_context(self, doc: Mapping[str, Any], num_fewshot: int, **options: Any) -> str:
        """Build the prompt of the registry's reading; ConfigError for an additional system message."""
        reading = benchmark(str(self.config.dataset_name)).prompt
        if options.get("system_instruction"):
            raise ConfigError(f"--system_instruction: {self.config.task} has its own prompt ({reading}); leave it out")
        template = options.get("chat_template") if options.get("apply_chat_template") else None
        if template and reading not in GENERATED:
            rendered: str = template(prompts.messages(reading, doc["problem"]))
            return rendered
        return prompts.plain(reading, doc["problem"])


def score(doc: Mapping[str, Any], results: Sequence[Sequence[str]]) -> dict[str, float]:
    """Grade the k responses to an item; `acc` is the share of right ones, a fraction."""
    wanted = gold(doc["answer"], tolerance=doc["tolerance"], multiple=doc["multiple"])
    grades = graded([Question(wanted, store.clean(text)) for text in results[0]])
    return {"acc": sum(grade.verdict is Verdict.CORRECT for grade in grades) / len(grades)}
