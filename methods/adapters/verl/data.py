"""Our prompts as verl reads them: a parquet table, one row per prompt of the file, in the file's order.

Which prompt is drawn when is the trainer's business (`methods.training.rollouts.order`): verl never shuffles.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from records.files import atomic


def write_parquet(prompts: Sequence[dict[str, Any]], reward: str, path: Path) -> None:
    """`prompts` are rows of {prompt, answer}; `reward` is the dotted name that `rewards.compute_score` resolves."""
    import pyarrow
    import pyarrow.parquet

    rows = [
        {
            "prompt": [{"role": "user", "content": row["prompt"]}],
            "data_source": reward,
            "reward_model": {"style": "rule", "ground_truth": row["answer"]},
            "extra_info": {"index": index, "prompt": row["prompt"]},
        }
        for index, row in enumerate(prompts)
    ]
    with atomic(path) as temporary:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), temporary)
