"""Write training prompts: generated problems, or a fixed choice of a data set's problems formatted for a model.

    python -m models.prompts --ladder quick --count N --seed S --out FILE
    python -m models.prompts --source questions --ladder mixed --count N --seed S --out FILE
    python -m models.prompts --source dapo_math_17k --data FILE --model FOLDER --max-tokens 2048 --count N --out FILE
    python -m models.prompts --source file --data FILE --template user --model FOLDER --max-tokens 2048 --out FILE

Each row is a prompt: `prompt` (the model's input), `answer`, and facts about it (`family` and `k`, or `cut`).
Held-out problems of the generators never appear.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from core import digests, errors
from core.code import Code
from core.errors import ConfigError, MissingInputError, Parser, whole
from core.files import read_jsonl, write_text
from evals import arithmetic, questions
from evals.benchmark import PROMPTS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

READING = "system"  # R29: training prompts are formatted as in evaluation (E3)
GENERATORS: Mapping[str, ModuleType] = {"arithmetic": arithmetic, "questions": questions}


def generated_rows(source: str, ladder: str, count: int, seed: int) -> list[dict[str, str | int]]:
    """Return `count` training rows; a longer list with the same seed begins with the shorter one."""
    made_by = GENERATORS[source]
    return [
        {"prompt": made_by.prompt_string(p.prompt), "answer": p.answer, "family": p.family, "k": p.k}
        for p in made_by.training_prompts(ladder, count, seed)
    ]


def choose(problems: Mapping[str, str], count: int, seed: int, where: str) -> list[str]:
    """Return `count` of the problems, chosen by a hash of seed and text, so that the order of the file does not matter;
    a larger count with the same seed begins with the smaller one's."""
    if count > len(problems):
        raise ConfigError(f"{where}: {len(problems)} distinct problems; prompts.count is {count}")
    return sorted(problems, key=lambda text: hashlib.sha256(f"{seed}\n{text}".encode()).digest())[:count]


def hub_rows(
    problems: Mapping[str, str],
    chosen: list[str],
    tokenizer: PreTrainedTokenizerBase,
    limit: int,
    template: str = READING,
) -> list[dict[str, str | int]]:
    """Return {prompt, answer, cut} per chosen problem. prompt: the model's input, built as in evaluation; cut: tokens
    removed on the left to fit `limit`."""
    from evals.generation.prompts import build

    built = [(problem, build(tokenizer, template, problem, limit)) for problem in chosen]
    return [{"prompt": prompt.text, "answer": problems[problem], "cut": prompt.cut} for problem, prompt in built]


def code(source: str) -> Code:
    """Return the code behind the prompts of a source; generated prompts do not depend on the reading of data sets."""
    if source in GENERATORS:
        made_by = (f"evals.{source}:training_prompts", f"evals.{source}:prompt_string")
        return Code("prompts", functions=("models.prompts:generated_rows", *made_by))
    return Code("prompts", functions=("models.prompts:choose", "models.prompts:hub_rows"))


def main(argv: Sequence[str] | None = None) -> None:
    parser = Parser()
    ladders = "; ".join(f"{name}: {', '.join(module.LADDERS)}" for name, module in GENERATORS.items())
    parser.add_argument(
        "--source", default="arithmetic", help="arithmetic (default), questions, dapo_math_17k, math_train, file"
    )
    parser.add_argument("--ladder", help=f"of generated problems: {ladders}")
    parser.add_argument("--data", type=Path, help="problems, as models.training_data writes them")
    parser.add_argument("--model", type=Path, help="folder whose tokenizer and chat template are used")
    parser.add_argument("--max-tokens", type=whole(1), help="longest prompt; a longer one is cut on the left")
    parser.add_argument("--template", default=READING, help=f"of a data set's prompts: {', '.join(PROMPTS)}")
    parser.add_argument("--count", type=whole(1), help="number of prompts; of a data set all by default")
    parser.add_argument("--seed", type=whole(0), default=0)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    for name in ("ladder", "count") if args.source in GENERATORS else ("data", "model", "max_tokens"):
        if getattr(args, name) is None:
            raise ConfigError(f"--source {args.source} needs --{name.replace('_', '-')}")
    rows: list[dict[str, Any]]
    if args.source in GENERATORS:
        rows = generated_rows(args.source, args.ladder, args.count, args.seed)
    else:
        from models import training_data

        training_data.source(args.source)  # an unknown source is an error before any file is read
        problems = {row["problem"]: row["answer"] for row in read_jsonl(args.data, "training problems")}
        chosen = choose(problems, args.count or len(problems), args.seed, str(args.data))
        if not (args.model / "tokenizer_config.json").is_file():
            raise MissingInputError(f"{args.model}: tokenizer_config.json is missing: not a model folder")
        from transformers import AutoTokenizer

        digests.check_model(args.model)
        rows = hub_rows(problems, chosen, AutoTokenizer.from_pretrained(args.model), args.max_tokens, args.template)
    write_text(args.out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    print(f"{args.out}: {len(rows)} prompts of {args.ladder or args.source}, seed {args.seed}")


if __name__ == "__main__":
    errors.run(main)
