"""Read the sample logs of other tools into one frame; `python -m evals.adopt` turns them into a results tree.

A format maps each role (`ROLES`) to its tool's field names; `--fields` replaces a name, also with a path such
as `doc.answer`. Errors name file and row.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from core.errors import ConfigError, CorruptInputError, unknown
from core.files import parse_json, read_text

ROLES = ("response", "gold", "id", "sample", "problem", "prompt", "correct")
COLUMNS = ("where", "id", "sample", "problem", "prompt", "gold", "response", "correct")
NOT_A_NUMBER = "not a number"  # key of the object in place of NaN and Infinity
ORDER = "@order"  # --fields sample=@order: the samples of an item are numbered in file order
PROMPT = "arguments.gen_args_0.arg_0"  # of lm-eval

# Usual field names by role, the likeliest first. A tool's metrics, for the role `correct`, have names of their own.
JSONL = {
    "response": ("response", "output", "completion", "generation"),
    "gold": ("gold", "answer", "target", "ground_truth"),
    "id": ("id", "item_id", "doc_id", "problem_id"),
    "sample": ("sample", "epoch"),
    "problem": ("problem", "question", "input"),
    "prompt": ("prompt",),
    "correct": ("correct", "is_correct", "tool_correct", "label"),
}
LM_EVAL = {
    "response": ("resps.0",),
    "gold": ("target",),
    "id": ("doc_id",),
    "problem": ("doc.problem", "doc.question", "doc.Problem", "doc.Question", PROMPT),
    "prompt": (PROMPT,),
}
INSPECT = {
    "response": ("output.completion",),
    "gold": ("target",),
    "id": ("id",),
    "sample": ("epoch",),
    "problem": ("input",),
    "prompt": ("input",),
}
# Verdicts as tools write them, as text in lower case. inspect: correct, incorrect, no answer; its partial credit is not
# a verdict.
RIGHT, WRONG = ("1", "1.0", "true", "c"), ("0", "0.0", "-1", "-1.0", "false", "i", "n")
VERDICTS = dict.fromkeys(RIGHT, True) | dict.fromkeys(WRONG, False)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Log:
    """One file of a tool: the responses of one model on one benchmark."""

    path: Path
    model: str  # from the tool or the file's name
    benchmark: str
    rows: Sequence[tuple[str, Row]]  # (file and row, content)
    names: Mapping[str, Sequence[str]]  # usual field names by role
    strict: bool = False  # several usual names in one row are ambiguous
    partial: str = ""  # what the tool left out, by its own account

    def frame(self, given: Mapping[str, str], chosen_filter: str | None = None) -> pd.DataFrame:
        """Return the responses in file order, with `COLUMNS`. given: field by role, from `--fields`.

        where: file and row; sample: as numbered in the log; correct: the tool's verdict, None if unknown. Raises
        ConfigError, naming the option to set, for ambiguous fields; CorruptInputError for a bad row.
        """
        rows = list(_one_filter(self, chosen_filter))
        if not rows:
            raise CorruptInputError(f"{self.path}: holds no responses")
        names = _fields(self, *rows[0], given)
        counts: Counter[str] = Counter()
        found = []
        for where, row in rows:
            value = {role: _value(row, name) for role, name in names.items() if name != ORDER}
            problem, gold = (_text(value[role], where, role) for role in ("problem", "gold"))
            id = _text(value["id"], where, "id") if "id" in value else problem
            prompt = _text(value["prompt"], where, "prompt") if value.get("prompt") else problem
            if re.match(r"\[\s*['\"]", gold):  # lm-eval writes a list of targets as a Python literal
                raise CorruptInputError(f"{where}: gold: {_short(gold)} has several answers; set --fields gold=FIELD")
            gold = _text(gold.rpartition("####")[2].strip(), where, "gold")  # GSM8K writes solutions before it
            responses = value["response"] if isinstance(value["response"], list) else [value["response"]]
            verdicts = value.get("correct")
            if not isinstance(verdicts, list):  # one on several responses is the verdict on none of them
                verdicts = [verdicts if len(responses) == 1 else None] * len(responses)
            if len(verdicts) != len(responses):
                raise CorruptInputError(f"{where}: correct: {len(verdicts)} verdicts on {len(responses)} responses")
            for place, (response, verdict) in enumerate(zip(responses, verdicts, strict=True)):
                known = VERDICTS.get(str(verdict).lower())
                if known is None and verdict is not None and "correct" in given:
                    raise CorruptInputError(
                        f"{where}: correct: {names['correct']} is {_short(verdict)}; allowed: true, false, 1, 0, -1, "
                        "C, I, N; --fields correct= leaves it out"
                    )
                if not isinstance(response, str):
                    raise CorruptInputError(
                        f"{where}: response: {names['response']} must be text, got {_short(response)}; set --fields "
                        "response=FIELD"
                    )
                sample = counts[id] if names.get("sample") == ORDER else _number(value.get("sample", place), where)
                counts[id] += 1
                found.append((where, id, sample, problem, prompt, gold, response, known))
        return pd.DataFrame(found, columns=COLUMNS, dtype=object)


def _one_filter(log: Log, chosen: str | None) -> Iterator[tuple[str, Row]]:
    """Yield the rows of one filter of lm-eval, which writes each document once per filter."""
    names = [row.get("filter") if "filtered_resps" in row else None for _, row in log.rows]
    if chosen is not None and chosen not in names and names:
        raise unknown(str(log.path), "--filter", chosen, {str(name) for name in names})
    for (where, row), name in zip(log.rows, names, strict=True):
        if chosen is None and name != names[0]:
            raise ConfigError(f"{where}: filter {name!r}, before {names[0]!r}; set --filter {name} or {names[0]}")
        if chosen in (None, name):
            yield where, row


def _fields(log: Log, where: str, row: Row, given: Mapping[str, str]) -> dict[str, str]:
    """Return the field of each role, decided by the first row."""
    chosen: dict[str, str] = {}
    for role in ROLES:
        present = [name for name in log.names.get(role, ()) if _value(row, name, absent=...) is not ...]
        if role in given:
            present = [name] if (name := given[role]) else []
            if name and name != ORDER and _value(row, name, absent=...) is ...:
                raise unknown(where, f"--fields {role}", name, row)
        elif len(present) > 1 and (log.strict or role == "correct"):
            none = ", or correct= for none" if role == "correct" else ""
            raise ConfigError(
                f"{where}: {role}: {' and '.join(present)} are there; set --fields {role}={present[0]} or "
                f"{role}={present[1]}{none}"
            )
        if present:
            chosen[role] = present[0]
    if "problem" not in chosen and "prompt" in chosen:
        chosen["problem"] = chosen["prompt"]
    if missing := [role for role in ("response", "gold", "problem") if role not in chosen]:
        raise ConfigError(
            f"{where}: {missing[0]}: none of {', '.join(log.names[missing[0]])} is there; set --fields "
            f"{missing[0]}=FIELD; fields: {', '.join(row)[:300]}"
        )
    return chosen


def _value(row: Row, path: str, absent: Any = None) -> Any:
    if isinstance(row, Mapping) and path in row:
        return row[path]
    value: Any = row
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part[:9]) < len(value):
            value = value[int(part[:9])]
        else:
            return absent
    return value


def _text(value: Any, where: str, role: str) -> str:
    """Convert to text: a text, a number, a one-item list, or the messages of a chat joined in order."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], Mapping):
        value = value[0]
    if isinstance(value, list) and value and all(isinstance(message, Mapping) for message in value):
        parts = [message.get("content", message.get("text")) for message in value]
        return "\n\n".join(_text(part, where, role) for part in parts)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise CorruptInputError(f"{where}: {role}: expected one text, got {_short(value)}; set --fields {role}=FIELD")
    if not (text := str(value)).strip():
        raise CorruptInputError(f"{where}: {role}: is empty")
    return text


def _number(value: Any, where: str) -> int:
    if not re.fullmatch(r"\d{1,9}", str(value)):
        raise CorruptInputError(f"{where}: sample: expected a whole number, got {_short(value)}")
    return int(value)


def _short(value: Any) -> str:
    return json.dumps(value)[:80]


# Formats


def jsonl(path: Path) -> Log:
    """Read JSON lines from any tool; model and benchmark are named after the file."""
    return Log(path, path.stem, path.stem, _lines(path), JSONL, strict=True)


def _parsed(text: str, where: str) -> Any:
    """Parse JSON in which a tool in Python wrote NaN or Infinity; these become an object, which no field accepts."""
    if "NaN" in text or "Infinity" in text:
        text = re.sub(
            r'("(?:[^"\\]|\\.)*")|-?(NaN|Infinity)', lambda m: m[1] or f'{{"{NOT_A_NUMBER}": "{m[2]}"}}', text
        )
    return parse_json(text, where)


def _lines(path: Path) -> list[tuple[str, Row]]:
    rows = list[tuple[str, Row]]()
    for number, line in enumerate(read_text(path, "the log").split("\n"), 1):
        if line.strip():
            row = _parsed(line, f"{path}: line {number} of the log")
            if not isinstance(row, dict):
                raise CorruptInputError(f"{path}: line {number} of the log must be an object")
            rows.append((f"{path}: row {len(rows) + 1}", row))
    return rows


def lm_eval(path: Path) -> Log:
    """Read `<model>/samples_<task>_<date>.jsonl`, which `--log_samples` writes (lm_eval/loggers/evaluation_tracker.py);
    the responses are those before lm-eval's filters.
    """
    name = re.fullmatch(r"samples_(.+?)(?:_(\d{4}-\d\d-\d\dT[\d.-]+))?", path.stem)
    task = name[1] if name else path.stem
    results, recorded = path.with_name(f"results_{name[2]}.json" if name else path.name), {}
    if name and results.is_file():
        recorded = _parsed(read_text(results, "results of lm-eval"), f"{results}: results of lm-eval")
    model, asked, there = (
        _value(recorded, field) for field in ("model_name", f"n-samples.{task}.effective", f"n-samples.{task}.original")
    )
    partial = f"{asked} of {there} problems" if isinstance(asked, int) and asked != there else ""
    rows = _lines(path)
    metrics = rows[0][1].get("metrics") if rows else None
    verdicts = [name for name in metrics if isinstance(name, str)] if isinstance(metrics, list) else ()
    model = str(model or path.absolute().parent.name)
    return Log(path, model, task, rows, LM_EVAL | {"correct": verdicts}, partial=partial)


def inspect(path: Path) -> Log:
    """Read a .json log of one task and model (inspect_ai/log/_recorders); CorruptInputError for an unfinished run.

    Another kind of log becomes one by `inspect log convert --to json --output-dir DIR LOG`.
    """
    log = _parsed(read_text(path, "the log"), f"{path}: log of inspect")
    run, samples = (log.get("eval"), log.get("samples")) if isinstance(log, dict) else (None, None)
    if not isinstance(run, dict) or not isinstance(samples, list) or not all(isinstance(s, dict) for s in samples):
        raise CorruptInputError(f"{path}: not a finished log of inspect (eval and samples are missing)")
    if (status := log.get("status")) != "success":
        raise CorruptInputError(f"{path}: status: {_short(status)}, only a run that ended in success is complete")
    rows = [(f"{path}: sample {number}", sample) for number, sample in enumerate(samples, 1)]
    for where, sample in rows:
        if sample.get("error") is not None:  # tolerated by fail_on_error; inspect does not score such samples
            raise CorruptInputError(
                f"{where}: error: {_short(_value(sample, 'error.message'))}, the response is incomplete; "
                "type inspect eval-retry LOG and adopt the new log"
            )
    scores = samples[0].get("scores") if samples else None
    names = INSPECT | {"correct": [f"scores.{name}.value" for name in scores] if isinstance(scores, dict) else ()}
    problems = {_short(sample.get("id")) for sample in samples}
    found = (len(problems), "eval.dataset.samples"), (len(samples), "results.total_samples")
    given = [(count, there) for count, name in found if isinstance(there := _value(log, name), int)]
    partial = next((f"{count} of {there} samples" for count, there in given if count < there), "")
    return Log(path, str(run.get("model")), str(run.get("task")), rows, names, partial=partial)


FORMATS: Mapping[str, Callable[[Path], Log]] = {"lm-eval": lm_eval, "inspect": inspect, "jsonl": jsonl}
