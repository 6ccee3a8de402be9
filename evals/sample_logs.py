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
from shlex import quote
from typing import Any

import pandas as pd

from core.errors import ConfigError, CorruptInputError, unknown
from core.files import parse_json, read_text

ROLES = ("response", "gold", "id", "sample", "problem", "prompt", "correct")
NOT_A_NUMBER = "not a number"  # key of the object in place of NaN and Infinity
ORDER = "@order"  # --fields sample=@order: the samples of an item are numbered in file order

Row = Mapping[str, Any]

# Verdicts as tools write them, as text in lower case. inspect: correct, incorrect, no answer; its partial credit is not
# a verdict.
RIGHT, WRONG = ("1", "1.0", "true", "c"), ("0", "0.0", "-1", "-1.0", "false", "i", "n")
VERDICTS = dict.fromkeys(RIGHT, True) | dict.fromkeys(WRONG, False)


@dataclass(frozen=True)
class Log:
    """One file of a tool: the responses of one model on one benchmark."""

    path: Path
    model: str  # from the tool or the file's name
    benchmark: str
    rows: Sequence[tuple[str, Row]]  # (file and row, content)
    names: Mapping[str, Sequence[str]]  # usual field names by role, the likeliest first
    verdicts: Callable[[Row], Sequence[str]] = lambda row: ()  # fields of a row that hold a verdict, not in `names`
    strict: bool = False  # several usual names in one row are ambiguous
    partial: str = ""  # what the tool left out, by its own account

    def frame(self, given: Mapping[str, str], chosen_filter: str | None = None) -> pd.DataFrame:
        """Return the responses in file order. given: field by role, from `--fields`.

        Columns: where (file and row), id, sample (as numbered in the log), problem, prompt, gold, response, correct
        (the tool's verdict; None: unknown). Raises ConfigError, naming the option to set, for ambiguous fields;
        CorruptInputError for a bad row.
        """
        rows = list(_one_filter(self, chosen_filter))
        if not rows:
            raise CorruptInputError(f"{self.path}: holds no responses")
        names = _fields(self, *rows[0], given)
        counts: Counter[str] = Counter()
        found = []
        for where, row in rows:
            value = {role: _value(row, name) for role, name in names.items() if name != ORDER}
            problem = _text(value["problem"], where, "problem")
            id = _text(value["id"], where, "id") if "id" in value else problem
            prompt = _text(value["prompt"], where, "prompt") if value.get("prompt") else problem
            gold = _text(value["gold"], where, "gold")
            if re.match(r"\[\s*['\"]", gold):  # lm-eval writes a list of targets as a Python literal
                raise CorruptInputError(f"{where}: gold: {_short(gold)} has several answers; set --fields gold=FIELD")
            gold = _text(gold.rpartition("####")[2].strip(), where, "gold")  # GSM8K writes solutions before it
            responses = value["response"] if isinstance(value["response"], list) else [value["response"]]
            verdicts = [value.get("correct")] if len(responses) == 1 else [None] * len(responses)
            # a list in a named field is a verdict per response; a tool's metric may be a list of something else
            if isinstance(listed := value.get("correct"), list) and (self.strict or "correct" in given):
                verdicts = listed
                if len(listed) != len(responses):
                    raise CorruptInputError(
                        f"{where}: correct: {names['correct']} has {len(listed)} verdicts on {len(responses)} "
                        "responses; set --fields correct=FIELD, or correct= for none"
                    )
            for place, (response, verdict) in enumerate(zip(responses, verdicts, strict=True)):
                if not isinstance(response, str):
                    raise CorruptInputError(
                        f"{where}: response: {names['response']} must be text, got {_short(response)}; set --fields "
                        f"response={_text_in(response, names['response'], len(responses) - 1)}"
                    )
                known = VERDICTS.get(str(verdict).lower())
                if known is None and verdict is not None and ("correct" in given or NOT_A_NUMBER in str(verdict)):
                    raise CorruptInputError(
                        f"{where}: correct: {names['correct']} is {_short(verdict)}; allowed: true, false, 1, 0, -1, "
                        "C, I, N; --fields correct= leaves it out"
                    )
                sample = counts[id] if names.get("sample") == ORDER else _number(value.get("sample", place), where)
                counts[id] += 1
                found.append((where, id, sample, problem, prompt, gold, response, known))
        columns = ["where", "id", "sample", "problem", "prompt", "gold", "response", "correct"]
        return pd.DataFrame(found, columns=columns, dtype=object)


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
        listed = list(log.verdicts(row)) if role == "correct" else []
        present = listed or [name for name in log.names.get(role, ()) if _value(row, name, absent=...) is not ...]
        if role in given:
            present = [name] if (name := given[role]) else []
            if name and name != ORDER and _value(row, name, absent=...) is ...:
                raise unknown(where, f"--fields {role}", name, row)
        elif len(present) > 1 and (log.strict or listed):
            none = ", or correct= for none" if role == "correct" else ""
            raise ConfigError(
                f"{where}: {role}: {' and '.join(present)} are there; set --fields {role}={present[0]} or "
                f"{role}={present[1]}{none}"
            )
        if present:
            chosen[role] = present[0]
    if "problem" not in chosen and "prompt" in chosen:
        chosen["problem"] = chosen["prompt"]
    for role in ("response", "gold", "problem"):
        if role not in chosen:
            usual = ", ".join(log.names[role])
            raise ConfigError(
                f"{where}: {role}: none of {usual} is there; set --fields {role}=FIELD; fields: {', '.join(row)[:300]}"
            )
    return chosen


def _value(row: Row, path: str, absent: Any = None) -> Any:
    if path in row:
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
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**9:
        raise CorruptInputError(f"{where}: sample: expected a whole number, got {_short(value)}")
    return value


def _short(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=True, default=str)[:80]
    except (ValueError, RecursionError):
        return type(value).__name__


def _text_in(response: Any, name: str, last: int) -> str:
    """Return the field of the last of a response's messages that has its text; FIELD for another kind of value."""
    text = next((part for part in ("content", "text") if isinstance(response, dict) and part in response), None)
    return f"{name}.{last}.{text}" if text else "FIELD"


# Formats


def jsonl(path: Path) -> Log:
    """Read JSON lines from any tool; model and benchmark are named after the file."""
    names = {
        "response": ("response", "output", "completion", "generation"),
        "gold": ("gold", "answer", "target", "ground_truth"),
        "id": ("id", "item_id", "doc_id", "problem_id"),
        "sample": ("sample", "epoch"),
        "problem": ("problem", "question", "input"),
        "prompt": ("prompt",),
        "correct": ("correct", "is_correct", "tool_correct", "label"),
    }
    return Log(path, path.stem, path.stem, _lines(path), names, strict=True)


def _parsed(text: str, where: str) -> Any:
    """Parse JSON in which a tool in Python wrote NaN or Infinity; these become an object, which no field accepts."""
    if "NaN" in text or "Infinity" in text:
        text = re.sub(
            r'("(?:[^"\\]|\\.)*")|-?(NaN|Infinity)', lambda m: m[1] or f'{{"{NOT_A_NUMBER}": "{m[2]}"}}', text
        )
    return parse_json(text, where)


def _content(path: Path) -> str:
    if tool := {".gz": "gunzip", ".bz2": "bunzip2", ".xz": "unxz", ".zst": "unzstd"}.get(path.suffix):
        raise ConfigError(f"{path}: is compressed; type: {tool} --keep {quote(str(path))}, and adopt the new file")
    return read_text(path, "the log")


def _lines(path: Path) -> list[tuple[str, Row]]:
    numbered = [(number, line) for number, line in enumerate(_content(path).split("\n"), 1) if line.strip()]
    rows = [_parsed(line, f"{path}: line {number} of the log") for number, line in numbered]
    if wrong := [place for place, row in enumerate(rows) if not isinstance(row, dict)]:
        raise CorruptInputError(f"{path}: line {numbered[wrong[0]][0]} of the log must be an object")
    return [(f"{path}: row {number}", row) for number, row in enumerate(rows, 1)]


def lm_eval(path: Path) -> Log:
    """Read `<model>/samples_<task>_<date>.jsonl`, which `--log_samples` writes (lm_eval/loggers/evaluation_tracker.py);
    the responses are those before lm-eval's filters."""
    name = re.fullmatch(r"samples_(.+?)(?:_(\d{4}-\d\d-\d\dT[\d.-]+))?", path.stem)
    results = path.with_name(f"results_{name[2]}.json") if name else path
    recorded = _parsed(_content(results), f"{results}: results of lm-eval") if name and results.is_file() else {}
    recorded = recorded if isinstance(recorded, dict) else {}
    model = recorded.get("model_name")
    prompt = "arguments.gen_args_0.arg_0"
    names = {
        "response": ("resps.0",),
        "gold": ("target",),
        "id": ("doc_id",),
        "problem": ("doc.problem", "doc.question", "doc.Problem", "doc.Question", prompt),
        "prompt": (prompt,),
    }

    def metrics(row: Row) -> Sequence[str]:
        listed = row.get("metrics")
        return [each for each in listed if isinstance(each, str) and each in row] if isinstance(listed, list) else ()

    model = model if isinstance(model, str) and model else path.absolute().parent.name
    task = name[1] if name else path.stem
    asked, there = (_value(recorded, f"n-samples.{task}.{part}") for part in ("effective", "original"))
    partial = f"{asked} of {there} problems" if isinstance(asked, int) and asked != there else ""
    return Log(path, model, task, _lines(path), names, metrics, partial=partial)


def inspect(path: Path) -> Log:
    """Read a .json log of one task and model (inspect_ai/log/_recorders). CorruptInputError for an unfinished run."""
    if path.suffix == ".eval":
        raise ConfigError(
            f"{path}: only a .json log is read here; type: inspect log convert --to json --output-dir DIR "
            f"{quote(str(path))}"
        )
    log = _parsed(_content(path), f"{path}: log of inspect")
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
    fields = {"response": "output.completion", "gold": "target", "id": "id", "sample": "epoch", "problem": "input"}
    names = {role: (name,) for role, name in fields.items()} | {"prompt": ("input",)}

    def scorers(row: Row) -> Sequence[str]:
        scores = row.get("scores")
        return [f"scores.{name}.value" for name in scores] if isinstance(scores, dict) else ()

    found = {
        "eval.dataset.samples": len({_short(one.get("id")) for one in samples}),
        "results.total_samples": len(samples),
    }
    given = [(count, there) for name, count in found.items() if isinstance(there := _value(log, name), int)]
    partial = next((f"{count} of {there} samples" for count, there in given if count < there), "")
    return Log(path, str(run.get("model")), str(run.get("task")), rows, names, scorers, partial=partial)


FORMATS: Mapping[str, Callable[[Path], Log]] = {"lm-eval": lm_eval, "inspect": inspect, "jsonl": jsonl}
