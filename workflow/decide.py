"""Seeds that are added until something is decided: `decide: true`, and the same command typed again.

    decide: {by: area, budget: 20, batch: 4, margin: 0.02}   # all of it may be left out

Every call ends with decide/decide.csv (`python -m report.decide`): each method against the baseline, by intervals that
hold whenever one stops. With that file there, a call adds `batch` seeds to each method that is undecided and to its
baseline, up to `budget` seeds of a method. Seeds that the tree has already stay; blocks with a variant get none.

What is added follows from that file and matrix.json alone: a call that was interrupted is continued, and adds no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import digests
from core.declared import Where
from core.errors import ConfigError, unknown
from core.files import cells_of, read_csv
from core.layout import Results
from report.decide import said
from workflow import matrix
from workflow.config import Decide
from workflow.tree import Recorded

FILE = "decide/decide.csv"
COLUMNS = ("model", "method", "by", "margin", "verdict", "seeds")  # of it that are read here
VERDICTS = ("higher", "lower", "equal", "undecided")

Pair = tuple[str, str]  # model, method


@dataclass(frozen=True)
class Round:
    """What one call looks at, and what it adds."""

    pairs: list[Pair]  # methods to decide, each with the model
    blocks: list[dict[str, Any]]  # of the matrix: the seeds beyond the configuration's
    added: list[int]  # seeds that no call had before
    state: str  # what is decided, what is not

    @property
    def only(self) -> str:
        """The pairs as `python -m report.decide --only` takes them."""
        return ",".join("/".join(pair) for pair in self.pairs)

    def line(self, *, over: bool = False) -> str:
        """over: the call is over, and the seeds are the next one's."""
        seeds = ", ".join(map(str, self.added))
        what = "type the same command again, which adds seeds" if over else "adds seeds"
        return f"decide: {self.state}" + (f"; {what} {seeds}" if seeds else "")


def settings(config: Mapping[str, Any]) -> Decide:
    """`decide` of the configuration with its defaults, also where it is off: `snakemake decide` is a target always."""
    return Decide(**(config["decide"] or {}))


def next_round(config: Mapping[str, Any], results: Results, before: Recorded | None, where: Where) -> Round:
    """The round that comes next. config: with `matrix.blocks` applied; before: the tree's matrix.json.

    Raises `ConfigError` where nothing can be compared, and CorruptInputError for a damaged decide.csv.
    """
    if config["sweep"]:
        raise ConfigError(f"{where(['decide'])}: decide: has no meaning with sweep, which has seeds of its own")
    asked, base = settings(config), matrix.baseline(config, where)
    seeds: dict[Pair, set[int]] = {}
    for planned in matrix.plan(config, where):
        if planned.run.variant is None:
            seeds.setdefault((planned.run.model, planned.run.method), set()).add(planned.run.seed)
    pairs = [pair for pair in seeds if pair[1] != base and (pair[0], base) in seeds]
    if not pairs:
        raise ConfigError(f"{where(['decide'])}: decide: no model has a method beside the baseline {base}")
    for entry in before["runs"] if before else []:
        if (pair := (entry["model"], entry["method"])) in seeds:
            seeds[pair].add(entry["seed"])

    rows = _rows(results.root / FILE, asked, pairs)
    # After the largest of all, so that a number means the same base and prompts for every method.
    first = max(seed for found in seeds.values() for seed in found) + 1
    added: dict[Pair, list[int]] = {}
    waiting = False
    for row in rows:
        if row["verdict"] != "undecided":
            continue
        pair, of_base = (row["model"], row["method"]), (row["model"], base)
        common = len(seeds[pair] & seeds[of_base])
        if row["seeds"] < common:  # those are trained first
            waiting = True
            continue
        more = list(range(first, first + min(asked.batch, max(0, asked.budget - row["seeds"]))))
        added[pair] = more
        added[of_base] = max(added.get(of_base, []), more, key=len)
    new = sorted({seed for more in added.values() for seed in more})

    blocks = []
    for block in config["matrix"]:
        if block.get("variant") is not None:
            continue
        for model in block["models"]:
            for text in block["methods"]:
                pair = (model, matrix.canonical(config, text, where(["matrix"]), "matrix.methods"))
                further = sorted((seeds[pair] | set(added.get(pair, ()))) - set(block["seeds"]))
                if further:
                    blocks.append(block | {"models": [model], "methods": [text], "seeds": further})

    open_ = any(row["verdict"] == "undecided" for row in rows)
    state = said(rows) if rows else "nothing is looked at yet"
    if waiting:
        state += "; not all seeds that are planned are looked at"
    elif rows and not open_:
        state += "; nothing is left to decide"
    elif rows and not new:
        state += f"; the budget of {asked.budget} seeds is spent"
    return Round(pairs, blocks, new, state)


def _rows(path: Path, asked: Decide, pairs: list[Pair]) -> list[dict[str, Any]]:
    """The rows of decide.csv; none where it is not there or answers another question."""
    if not path.is_file():
        return []
    again = f"remove {path.parent} to have it made again"
    digests.check(path, advice=again)
    rows: list[dict[str, Any]] = []
    with cells_of(path):
        for row in read_csv(path, "what is decided", COLUMNS):
            if row["verdict"] not in VERDICTS:
                raise unknown(str(path), "verdict", row["verdict"], VERDICTS)
            margin = float(row["margin"]) if row["margin"] else None
            if (row["by"], margin) != (asked.by, asked.margin) or (row["model"], row["method"]) not in pairs:
                return []
            rows.append(row | {"seeds": int(row["seeds"])})
    return rows
