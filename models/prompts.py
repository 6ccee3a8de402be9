"""Write training prompts: generated arithmetic, or a fixed choice of a data set's problems as one model reads them.

    python -m models.prompts --ladder quick --count N --seed S --out FILE
    python -m models.prompts --source dapo_math_17k --data FILE --model FOLDER --max-tokens 2048 --count N --out FILE

One row per prompt: `prompt` (as the model reads it), `answer`, and facts about it (`family` and `k`, or `cut`).
Held-out problems of the arithmetic never appear.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evals.arithmetic import LADDERS, prompt_string, training_prompts
from records import errors
from records.errors import ConfigError, MissingInputError
from records.files import write_text


def rows(ladder: str, count: int, seed: int) -> list[dict[str, str | int]]:
    """`count` training rows; a longer list with the same seed begins with the shorter one."""
    return [
        {"prompt": prompt_string(p.prompt), "answer": p.answer, "family": p.family, "k": p.k}
        for p in training_prompts(ladder, count, seed)
    ]


def hub_rows(source: str, data: Path, model: Path, limit: int, count: int, seed: int) -> list[dict[str, str | int]]:
    """`count` problems of the file that `models.training_data` wrote, in the model's own chat template."""
    from models import training_data

    training_data.source(source)
    problems = training_data.read(data)
    chosen = training_data.choose(problems, count, seed, str(data))
    if not (model / "tokenizer_config.json").is_file():
        raise MissingInputError(f"{model}: tokenizer_config.json is missing: not a model folder")
    from transformers import AutoTokenizer

    return training_data.rows(problems, chosen, AutoTokenizer.from_pretrained(model), limit)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m models.prompts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", default="arithmetic", help="arithmetic (default), dapo_math_17k")
    parser.add_argument("--ladder", help=f"of the arithmetic: {', '.join(LADDERS)}")
    parser.add_argument("--data", type=Path, help="problems, as models.training_data writes them")
    parser.add_argument("--model", type=Path, help="folder whose tokenizer and chat template are used")
    parser.add_argument("--max-tokens", type=int, help="longest prompt; a longer one is cut on the left")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(argv)
    if given.count < 1:
        raise ConfigError(f"--count: {given.count}: must be at least 1")
    wanted = ("ladder",) if given.source == "arithmetic" else ("data", "model", "max_tokens")
    for name in ("ladder", "data", "model", "max_tokens"):
        if (getattr(given, name) is not None) != (name in wanted):
            verb = "needs" if name in wanted else "does not take"
            raise ConfigError(f"--source {given.source} {verb} --{name.replace('_', '-')}")
    made: list[dict[str, Any]]
    if given.source == "arithmetic":
        made = rows(given.ladder, given.count, given.seed)
    else:
        made = hub_rows(given.source, given.data, given.model, given.max_tokens, given.count, given.seed)
    write_text(given.out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made))
    print(f"{given.out}: {len(made)} prompts of {given.ladder or given.source}, seed {given.seed}")


if __name__ == "__main__":
    errors.run(main)
