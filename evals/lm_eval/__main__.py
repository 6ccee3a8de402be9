"""Write the task files for lm-eval of benchmarks in the registry, `tepo_<key>.yaml`, and the group of all.

    python -m evals.lm_eval --out evals/lm_eval

Prompts, items and grades are in task.py; only what differs between benchmarks is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from core import errors
from core.errors import Parser
from core.files import write_text
from evals.benchmark import Benchmark, select
from evals.generation.draw import requests

AFFECTS_RESULTS = False  # its files are read by lm-eval alone

GROUP = "tepo_math"


def files(benchmarks: Sequence[Benchmark]) -> dict[str, str]:
    """Make the content of each file, by name."""
    version = {"version": 1.0}
    tasks = {
        f"tepo_{entry.key}": {
            "include": "_common_yaml",
            "task": f"tepo_{entry.key}",
            "dataset_name": entry.key,
            **requests(entry.decoding, {"top_k": 0}),
            "metadata": version,
        }
        for entry in benchmarks
    }
    average = {"metric": "acc", "aggregation": "mean", "weight_by_size": False}  # the macro average of scores.csv
    group = {"group": GROUP, "task": list(tasks), "aggregate_metric_list": [average], "metadata": version}
    return {f"{name}.yaml": yaml.safe_dump(of, sort_keys=False) for name, of in {**tasks, GROUP: group}.items()}


def main() -> None:
    parser = Parser()
    parser.add_argument("--benchmarks", nargs="+", default=["all"], metavar="KEY", help="default: all (the seven)")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="a folder with task.py and _common_yaml")
    args = parser.parse_args()
    for name, text in files(select(args.benchmarks)).items():
        write_text(args.out / name, text)
        print(args.out / name)


if __name__ == "__main__":
    errors.run(main)
