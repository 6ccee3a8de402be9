"""The files a run is given, looked at before anything is loaded: its model folder and its prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from methods.adapters import Plan
from methods.adapters.prompts import check_count
from methods.runs import require_rows
from methods.spec import Spec
from records.errors import MissingInputError
from records.read import read_jsonl


def prompts(spec: Spec) -> list[dict[str, Any]]:
    """The run's training prompts, in the order of their file."""
    rows = read_jsonl(spec.prompts, "training prompts")
    require_rows(rows, spec.prompts)
    return rows


def check(spec: Spec, made: Plan) -> None:
    """`MissingInputError` for a folder that holds no model, `ConfigError` for fewer prompts than a rollout draws."""
    for name in ("config.json", "tokenizer_config.json"):
        if not (Path(spec.base) / name).is_file():
            raise MissingInputError(f"{spec.base}: {name} is missing: not a model folder")
    check_count(len(prompts(spec)), made.prompts_drawn, spec.prompts)
