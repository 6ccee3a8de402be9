"""Write training prompts: `python -m models.prompts --ladder quick --count N --seed S --out FILE.jsonl`.

One row per prompt: `prompt` (as the model reads it), `answer`, `family`, `k`. Held-out problems never appear.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from evals.arithmetic import LADDERS, prompt_string, training_prompts
from records import cli
from records.errors import ConfigError
from records.write import write_text


def rows(ladder: str, count: int, seed: int) -> list[dict[str, str | int]]:
    """`count` training rows; a longer list with the same seed begins with the shorter one."""
    return [
        {"prompt": prompt_string(p.prompt), "answer": p.answer, "family": p.family, "k": p.k}
        for p in training_prompts(ladder, count, seed)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m models.prompts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ladder", required=True, help=", ".join(LADDERS))
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.count < 1:
        raise ConfigError(f"--count: {options.count}: must be at least 1")
    lines = [json.dumps(row) + "\n" for row in rows(options.ladder, options.count, options.seed)]
    write_text(options.out, "".join(lines))
    print(f"{options.out}: {len(lines)} prompts of ladder {options.ladder}, seed {options.seed}")


if __name__ == "__main__":
    cli.run(main)
