"""Read the sample logs of other tools into one frame; `python -m evals.adopt` turns them into a results tree.

A format maps each role (`ROLES`) to its tool's field names; `--fields` replaces a name, also with a path such
as `doc.answer`. Errors name file and row.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import pandas as pd

from core.errors import ConfigError, CorruptInputError, unknown
from core.files import parse_json, read_text

ROLES = ("response", "gold", "id", "sample", "problem", "prompt", "correct")
ORDER = "@order"  # --fields sample=@order: the samples of an item are numbered in file order
COLUMNS = ("where", "id", "sample", "problem", "prompt", "gold", "response", "correct")

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
    rows: Sequence[Row]  # at least one
    names: Mapping[str, Sequence[str]]  # usual field names by role, the likeliest first
    strict: bool = False  # several usual names in one row are ambiguous

    def frame(self, given: Mapping[str, str]) -> pd.DataFrame:
        """Return the responses in file order. given: field by role, from `--fields`.

        Columns: where (file and row), id, sample (as numbered in the log), problem, prompt, gold, response, correct
        (the tool's verdict; None: unknown). Raises ConfigError, naming the option to set, for ambiguous fields;
        CorruptInputError for a bad row.
        """
        names = self._fields(self.rows[0], given)
        counts: Counter[str] = Counter()
        found = []
        for number, row in enumerate(self.rows, 1):
            where = f"{self.path}: row {number}"
            value = {role: _value(row, name) for role, name in names.items() if name != ORDER}
            problem = _text(value["problem"], where, "problem")
            id = _text(value["id"], where, "id") if "id" in value else problem
            prompt = _text(value["prompt"], where, "prompt") if value.get("prompt") else problem
            gold = _text(value["gold"], where, "gold")
            if re.match(r"\[\s*['\"]", gold):  # lm-eval writes a list of targets as a Python literal
                raise CorruptInputError(f"{where}: gold: {_short(gold)} has several answers; set --fields gold=FIELD")
            gold = _text(gold.rpartition("####")[2].strip(), where, "gold")  # GSM8K writes solutions before it
            responses = value["response"] if isinstance(value["response"], list) else [value["response"]]
            verdicts = value.get("correct")
            # as many verdicts as responses are one for each; a tool's metric may be a list of something else
            if not (isinstance(verdicts, list) and self.strict):
                verdicts = [verdicts]
            if len(verdicts) != len(responses):
                verdicts = [None] * len(responses)
            for place, (response, verdict) in enumerate(zip(responses, verdicts, strict=True)):
                if not isinstance(response, str):
                    raise CorruptInputError(
                        f"{where}: response: {names['response']} must be text, got {_short(response)}; set --fields "
                        f"response=FIELD, such as {names['response']}.0.content"
                    )
                sample = counts[id] if names.get("sample") == ORDER else _number(value.get("sample", place), where)
                counts[id] += 1
                known = VERDICTS.get(str(verdict).lower())
                found.append((where, id, sample, problem, prompt, gold, response, known))
        return pd.DataFrame(found, columns=COLUMNS, dtype=object)

    def _fields(self, row: Row, given: Mapping[str, str]) -> dict[str, str]:
        """Return the field of each role, decided by the first row."""
        where, chosen = f"{self.path}: row 1", dict[str, str]()
        for role in ROLES:
            present = [name for name in self.names.get(role, ()) if _value(row, name, absent=...) is not ...]
            if role in given:
                present = [name] if (name := given[role]) else []
                if name and name != ORDER and _value(row, name, absent=...) is ...:
                    raise unknown(where, f"--fields {role}", name, row)
            elif len(present) > 1 and (self.strict or role == "correct"):
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
                usual = ", ".join(self.names[role])
                raise ConfigError(
                    f"{where}: {role}: none of {usual} is there; set --fields {role}=FIELD; fields: "
                    f"{', '.join(row)[:300]}"
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
    if not re.fullmatch(r"\d{1,9}", str(value)):
        raise CorruptInputError(f"{where}: sample: expected a whole number, got {_short(value)}")
    return int(value)


def _short(value: Any) -> str:
    return json.dumps(value)[:80]


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
    """Parse JSON in which a tool in Python wrote NaN or Infinity; these become null."""
    if "NaN" in text or "Infinity" in text:
        text = re.sub(r'("(?:[^"\\]|\\.)*")|-?(NaN|Infinity)', lambda found: found[1] or "null", text)
    return parse_json(text, where)


def _lines(path: Path) -> list[Row]:
    rows = []
    for number, line in enumerate(read_text(path, "the log").split("\n"), 1):
        if line.strip():
            rows.append(_parsed(line, where := f"{path}: line {number} of the log"))
            if not isinstance(rows[-1], dict):
                raise CorruptInputError(f"{where} must be an object")
    if not rows:
        raise CorruptInputError(f"{path}: holds no responses")
    return rows


def lm_eval(path: Path) -> Log:
    """Read `<model>/samples_<task>_<date>.jsonl`, which `--log_samples` writes (lm_eval/loggers/evaluation_tracker.py);
    the responses are those before lm-eval's filters, the verdicts those of its first one."""
    name = re.fullmatch(r"samples_(.+?)(?:_\d{4}-\d\d-\d\dT[\d.-]+)?", path.stem)
    rows, prompt = _lines(path), "arguments.gen_args_0.arg_0"
    rows = [row for row in rows if row.get("filter") == rows[0].get("filter")]  # each document once per filter
    metrics = rows[0].get("metrics")
    names = {
        "response": ("resps.0",),
        "gold": ("target",),
        "id": ("doc_id",),
        "problem": ("doc.problem", "doc.question", "doc.Problem", "doc.Question", prompt),
        "prompt": (prompt,),
        "correct": [one for one in metrics if isinstance(one, str)] if isinstance(metrics, list) else (),
    }
    return Log(path, path.absolute().parent.name, name[1] if name else path.stem, rows, names)


def inspect(path: Path) -> Log:
    """Read a .json log of one task and model (inspect_ai/log/_recorders). CorruptInputError for an unfinished run."""
    if path.suffix == ".eval":
        raise ConfigError(
            f"{path}: only a .json log is read here; type: inspect log convert --to json --output-dir DIR "
            f"{quote(str(path))}"
        )
    log = _parsed(read_text(path, "the log"), f"{path}: log of inspect")
    run, samples = (log.get("eval"), log.get("samples")) if isinstance(log, dict) else (None, None)
    is_list = isinstance(samples, list) and samples and all(isinstance(sample, dict) for sample in samples)
    if not isinstance(run, dict) or not isinstance(samples, list) or not is_list:
        raise CorruptInputError(f"{path}: not a finished log of inspect (eval and samples are missing)")
    if (status := log.get("status")) != "success":
        raise CorruptInputError(f"{path}: status: {_short(status)}, only a run that ended in success is complete")
    for number, sample in enumerate(samples, 1):
        if sample.get("error") is not None:  # tolerated by fail_on_error; inspect does not score such samples
            raise CorruptInputError(
                f"{path}: sample {number}: error: {_short(_value(sample, 'error.message'))}, the response is "
                "incomplete; type inspect eval-retry LOG and adopt the new log"
            )
    scores = samples[0].get("scores")
    names = {
        "response": ("output.completion",),
        "gold": ("target",),
        "id": ("id",),
        "sample": ("epoch",),
        "problem": ("input",),
        "prompt": ("input",),
        "correct": [f"scores.{name}.value" for name in scores] if isinstance(scores, dict) else (),
    }
    return Log(path, str(run.get("model")), str(run.get("task")), samples, names)


FORMATS: Mapping[str, Callable[[Path], Log]] = {"lm-eval": lm_eval, "inspect": inspect, "jsonl": jsonl}
