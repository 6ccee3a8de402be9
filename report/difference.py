"""`python -m report.difference tepo cispo --results results/embedded`: one method minus another, any two of a tree.

Over the seeds that both have, model by model: area under the reward curve, final reward, how far a rollout and the
first one moved the policy, and the averages of the benchmarks after each rollout that is evaluated; `--benchmarks KEY`
has these benchmarks' own scores. `base` is the model before RL, which has scores only. Of several trees of one
configuration, made with other bases (another machine), the seeds of all count together. `--compared chosen` takes, of a
sweep, each method at the value that its tree chose for it, on the seeds that chose nothing; `--compared own` at the
scale's own value.

Mean, 95 % interval and p are Student's t over the clean models that the pairs continue, as in tables and claims
(`evals.stats.compare.compare_seeds`). p is of this question alone: who asks several corrects for them.

Without `--results`, A and B are two checkpoints or two printed scores, compared over problems (`report.noise`):
`python -m report.difference paper:tepo paper:grpo`, or `0.367:30:32 0.346:30:32` (score, problems, samples of each).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from core import errors
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser, real, unknown
from core.files import stored, to_csv, write_text
from core.layout import BASE, Checkpoint, Run
from core.results_tree import Tree, open_or_kept
from core.scores import MACRO, POOLED
from report.tables.render import markdown_table
from report.tables.tidy import bracketed

COMPARED = ("chosen", "own")
CURVE = {"area": "area under the reward curve", "final": "final reward",
         "movement": "movement, nats a token", "movement_first": "movement of the first rollout"}  # fmt: skip
SCORES = {POOLED: "score after", MACRO: "benchmarks' mean after"}  # a measure is `<benchmark> <rollouts>`
HEADER = ("model", "measure", "a", "b", "pairs", "by_tree", "units", "mean_a", "mean_b", "difference", "low", "high",
          "p", "detectable", "needed")  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """Two runs of one model and seed, in one tree; b may be the model that a began with."""

    tree: Tree
    a: Run
    b: Run

    @property
    def clean_model(self) -> str | None:
        """The clean model that both continue, by its number: on another machine the same one is made with other
        rounding. None: not made here, or not recorded."""
        clean = self.tree.clean_models(self.a.model)
        return None if clean is None else f"clean model {clean[self.a.seed]}"

    def values(self, measure: str) -> tuple[float, float] | None:
        """Of both runs; None where one of them has none. measure: as in `lines`."""
        from evals import learning_curves

        found = []
        for run in (self.a, self.b):
            value, before = None, run.method == BASE
            if measure in CURVE:
                value = None if before else learning_curves.measure_run(self.tree, run).values[measure]
            elif stored(self.tree.layout.scores):
                benchmark, step = measure.split()
                score = self.tree.scores.get((Checkpoint(run, 0 if before else int(step)), benchmark))
                value = score.value if score else None
            if value is None:
                return None
            found.append(value)
        return found[0], found[1]


def pairs(trees: Sequence[Tree], a: str, b: str, compared: str | None = None) -> tuple[list[Pair], int]:
    """The finished pairs of all trees, and how many were left out as no seed of their own: a base that an earlier tree
    has for the same model and seed.

    compared: None, or which comparison of a sweep names the methods' values (`COMPARED`); without
    it the fresh seeds of a sweep are left out, as in the tables. ConfigError: a method that a tree does not have, or
    trees of other settings. MissingInputError: no finished pair.
    """
    found: dict[tuple[str, int, str], Pair] = {}
    again = 0
    for tree in trees:
        ours, theirs = (side.matrix.get("settings") or {} for side in (trees[0], tree))
        # What one of them does not record came with a newer version; what is evaluated may differ.
        for key in sorted(ours.keys() & theirs.keys()):
            if not key.startswith(("evaluation.", "variants.")) and ours[key] != theirs[key]:
                raise ConfigError(
                    f"{tree.layout.matrix}: settings: {key}: {theirs[key]}, but {trees[0].root} has {ours[key]}: "
                    "their seeds are not of one experiment"
                )
        keys_a, keys_b = (_keys(tree, name, compared) for name in (a, b))
        if BASE in keys_a.values():
            raise ConfigError(f"command line: {BASE} is no run: it can only be subtracted; write it second")
        if same := [key for model, key in keys_a.items() if keys_b.get(model) == key]:
            raise ConfigError(f"{tree.root}: {a} and {b} are one method there, {same[0]}")
        for run in tree.runs:
            if run.method != keys_a.get(run.model) or tree.is_fresh(run) != (compared is not None):
                continue
            other = Run(run.model, keys_b.get(run.model, run.method), run.seed)
            if other.method == BASE and (before := tree.base(run.model, run.seed)):
                other = before.run
            elif other == run or other not in tree.runs or tree.record(other) is None:
                continue
            record = tree.record(run)
            if record is None:
                continue
            base = (run.model, run.seed, str(record["inputs"].get("base")))
            again += base in found
            found.setdefault(base, Pair(tree, run, other))
    if not found:
        raise MissingInputError(f"{', '.join(str(tree.root) for tree in trees)}: no finished seed of both {a} and {b}")
    return list(found.values()), again


def _keys(tree: Tree, name: str, compared: str | None) -> dict[str, str]:
    """By model the method that a tree calls `name`, by its key or its name in the configuration; of a sweep at its
    value, which may be another one for each model."""
    if compared is None:
        if (key := tree.method_for(name)) is None:
            raise unknown(str(tree.layout.matrix), "method", name, tree.methods)
        return {str(model["key"]): key for model in tree.models}
    from report.sweep import of_sweep

    rows = [p["row"] for p in of_sweep(tree)["points"]]
    if name not in rows:
        raise unknown(str(tree.layout.matrix), "sweep: method", name, dict.fromkeys(rows))
    own = {(p["model"], p["row"]): p["base"] for p in of_sweep(tree)["points"]}
    values = tree.chosen if compared == "chosen" else own
    return {model: method for (model, row), method in values.items() if row == name}


def lines(found: Sequence[Pair], benchmarks: Sequence[str] = tuple(SCORES)) -> list[dict[str, Any]]:
    """Model by model, every measure that at least one pair has, by the columns of HEADER; two pairs or more have an
    interval. benchmarks: whose scores. by_tree: pairs of each tree."""
    from evals.stats import compare
    from evals.stats.sizes import units_needed

    out = []
    for model in dict.fromkeys(pair.a.model for pair in found):
        own = [pair for pair in found if pair.a.model == model]
        # Curves say enough where nothing is evaluated, or not yet.
        scored = [pair for pair in own if stored(pair.tree.layout.scores)]
        steps = sorted({int(step) for pair in scored for step in pair.tree.runs[pair.a]["steps"]})
        for measure in [*CURVE, *(f"{benchmark} {step}" for step in steps for benchmark in benchmarks)]:
            values = {place: both for place, pair in enumerate(own) if (both := pair.values(measure)) is not None}
            if not values:
                continue
            a, b = ({place: both[side] for place, both in values.items()} for side in (0, 1))
            clusters = {place: own[place].clean_model or place for place in values}
            c = compare.compare_seeds(a, b, clusters=clusters)
            row: dict[str, Any] = {"model": model, "measure": measure, "pairs": len(values), "units": c.n}
            row |= {name: getattr(c, name) for name in ("difference", "low", "high", "p", "detectable")}
            row["needed"] = None if c.se is None else units_needed(c.se * math.sqrt(c.n), c.difference or 0.0)
            row |= {f"mean_{x}": fmean(compare.by_clean_model(y, clusters).values()) for x, y in (("a", a), ("b", b))}
            out.append(row | {"by_tree": Counter(str(own[place].tree.root) for place in values)})
    return out


def text(a: str, b: str, found: Sequence[Mapping[str, Any]], again: int) -> str:
    """A table in Markdown, and what it is a table of."""
    heads = ("model", "measure", "pairs", a, b, "difference", "p", "found in 80 %", "needed")
    rows = []
    for line in found:
        curve = CURVE.get(line["measure"])
        form = partial(_form, line["measure"])
        counts = line["by_tree"].values()
        cells = [line["model"], curve or f"{_score(line['measure'])}, percent"]
        count = f"{line['pairs']} ({' + '.join(map(str, counts))})" if len(counts) > 1 else str(line["pairs"])
        cells += [count + f" of {line['units']} clean models" * (line["units"] < line["pairs"])]
        cells += [form(line["mean_a"]), form(line["mean_b"])]
        signed = partial(form, sign="+")
        cells += [bracketed(signed(line["difference"]), line["low"], line["high"], signed)]
        cells += ["" if line["p"] is None else f"{line['p']:.2g}"]
        cells += ["" if line["detectable"] is None else form(line["detectable"])]
        rows.append([*cells, "" if line["needed"] is None else f"{line['needed']:,}"])
    out = [f"{a} minus {b}, paired by seed; mean [95 % interval], Student's t", ""]
    out += markdown_table(heads, rows, "---:")
    out += ["", "needed: clean models, with as many seeds each as here; without clean models: seeds"]
    if again:
        out += ["", f"{again} pairs are no further seeds: an earlier tree has their base, for that model and seed"]
    return "\n".join(out)


def _form(measure: str, value: float, sign: str = "") -> str:
    """Scores in percent; movements are thousandths of a nat."""
    if measure not in CURVE:
        return f"{100 * value:{sign}.1f}"
    return f"{value:{sign}.{4 if measure.startswith('movement') else 3}f}"


def _score(measure: str) -> str:
    """`score after 12` for the pooled score, `syn_mix4 after 12` for a benchmark's."""
    benchmark, step = measure.split()
    return f"{SCORES.get(benchmark, f'{benchmark} after')} {step}"


def csv_text(a: str, b: str, found: Sequence[Mapping[str, Any]]) -> str:
    """One row per model and measure; scores are fractions."""
    rows = []
    for line in found:
        measure = line["measure"] if line["measure"] in CURVE else _score(line["measure"])
        by_tree = "; ".join(f"{tree}: {n}" for tree, n in line["by_tree"].items())
        rows.append({**line, "measure": measure, "by_tree": by_tree, "a": a, "b": b})
    return to_csv(HEADER, rows)


def main() -> None:
    parser = Parser()
    parser.add_argument("a", help="a method of --results, by its key or its name in the configuration; else a side")
    parser.add_argument("b", help="what is subtracted, likewise")
    parser.add_argument("--results", nargs="+", type=Path, metavar="TREE", help="results/<scale>, or several")
    parser.add_argument(
        "--compared", choices=COMPARED, help="of a sweep: each method at its chosen, or at the scale's own value"
    )
    parser.add_argument("--benchmarks", nargs="+", metavar="KEY", help="instead of their averages")
    parser.add_argument(
        "--spread", type=real(above=0, most=1e6), help="printed scores: a + b of the difficulties' Beta distribution"
    )
    parser.add_argument(
        "--correlation", type=real(least=-1, most=1), help="printed scores: of both sides' difficulties"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the lines there too")
    args = parser.parse_args()
    for option in ("spread", "correlation") if args.results else ("compared", "benchmarks", "csv"):
        if getattr(args, option) is not None:
            raise ConfigError(
                f"command line: --{option} is for comparisons {'without' if args.results else 'with'} --results"
            )
    if args.results:
        trees = [open_or_kept(root) for root in args.results]
        for key in args.benchmarks or ():
            if key not in (known := [str(own["key"]) for tree in trees for own in tree.benchmarks]):
                raise unknown("command line", "--benchmarks", key, known)
        found, again = pairs(trees, args.a, args.b, args.compared)
        measured = lines(found, args.benchmarks or tuple(SCORES))
        scored = {line["measure"].split()[0] for line in measured}
        lacking = [key for key in args.benchmarks or () if key not in scored]
        if lacking or not measured:  # without curves, as beside the model before RL, there may be nothing else
            of = f" of {lacking[0]}" if lacking else ""
            raise MissingInputError(f"{args.results[0]}: no seed of both {args.a} and {args.b} has a score{of}")
        print(text(args.a, args.b, measured, again))
        if args.csv:
            write_text(args.csv, csv_text(args.a, args.b, measured))
        return
    from report import noise

    assumed = {name: value for name in ("spread", "correlation") if (value := getattr(args, name)) is not None}
    a, b = noise.read(args.a), noise.read(args.b)
    try:
        of_problems = noise.lines(a, b, **assumed)
    except CorruptInputError as error:
        raise CorruptInputError(f"{args.a} and {args.b}: {error}") from error
    print(noise.text(args.a, args.b, of_problems, **assumed))


if __name__ == "__main__":
    errors.run(main)
