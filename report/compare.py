"""`python -m report.compare A B`: what differs between A and B, and is it more than noise? A and B are one of

METHOD METHOD --results TREE
    Two methods over the seeds that both have, for each model: area under the reward curve, final reward, how far a
    rollout and the first one moved the policy, and the average scores after each evaluated rollout
    (--benchmarks KEY: the scores of these benchmarks). `base` is the model before RL, which only has scores.
    --compared chosen: in a sweep, each method at the value that its tree chose for it, on the seeds that were not used
    for choosing; --compared own: at the scale's own value. Mean, 95 % interval and p come from Student's t over the
    clean models that the pairs continue, as in tables and claims. p covers this comparison only: correct it where there
    are several. Verdicts on rewards and scores are those of docs/claims.md: ahead, behind, equal within the margin of 2
    points, or undecided.
TREE_A TREE_B
    Two results trees or references: what is equal bit for bit, and the differences. Exit code 0: equal, or every
    interval contains 0 (after Holm's correction); 1: one does not; 2: the two cannot be compared.
A B
    Two checkpoints or two printed scores, compared over problems, and what would resolve the difference. Each is one of
    TREE, TREE:MODEL, TREE:MODEL/METHOD/seedN/stepN    results of `evals.run`, `evals.adopt` or Snakemake (TREE
                                                       only: two trees with one checkpoint each)
    paper:METHOD, paper:MODEL/METHOD, paper:T2.3       a row of the paper's tables; METHOD: its first row there
    SCORE:PROBLEMS:SAMPLES, NAME=SCORE:PROBLEMS:SAMPLES   a score as a fraction, with its benchmark's name
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from core import errors
from core.errors import ConfigError, MissingInputError, Parser, unknown
from core.layout import BASE, REFERENCE, Checkpoint, Run
from evals.scores import MACRO, POOLED
from evals.stats import MARGIN
from evals.tree import Tree, open_or_kept
from report import rows
from report.markdown import bracketed, columns
from report.sweep import of_sweep

COMPARED = ("chosen", "own")
CURVE = {"area": "area under the reward curve", "final": "final reward",
         "movement": "movement, nats a token", "movement_first": "movement of the first rollout"}  # fmt: skip
SCORES = {POOLED: "score", MACRO: "benchmarks' mean"}

Pairs = Sequence[tuple[Run, Run]]  # of one model and seed; the second may be the model that the first started from


def pairs(tree: Tree, a: str, b: str, compared: str | None = None) -> Pairs:
    """Return the finished pairs of two methods.

    compared: None, or the comparison of a sweep that sets the methods' values (`COMPARED`); without it, fresh seeds of
    a sweep are skipped, as in the tables. Raises ConfigError for an unknown method, MissingInputError for no pair.
    """
    found = []
    keys_a, keys_b = (_keys(tree, name, compared) for name in (a, b))
    if BASE in keys_a.values():
        raise ConfigError(f"command line: {BASE} is not a run: it can only be subtracted; write it second")
    if same := [key for model, key in keys_a.items() if keys_b.get(model) == key]:
        raise ConfigError(f"{tree.given}: {a} and {b} are one method there, {same[0]}")
    for run in tree.runs:
        if run.method != keys_a.get(run.model) or tree.is_fresh(run) != (compared is not None):
            continue
        base = tree.base(run.model, run.seed) if b == BASE else None
        other = base.run if base else Run(run.model, keys_b.get(run.model, ""), run.seed)
        if tree.record(run) and (base or (other in tree.runs and tree.record(other))):
            found.append((run, other))
    if not found:
        raise MissingInputError(f"{tree.given}: no finished seed of both {a} and {b}")
    return found


def _keys(tree: Tree, name: str, compared: str | None) -> dict[str, str]:
    """Return by model the key of the method `name` (a key or configured name); in a sweep at its value, which may
    differ between models."""
    if compared is None:
        if (key := tree.method_for(name)) is None:
            raise unknown(str(tree.layout.matrix), "method", name, tree.methods)
        return {str(model["key"]): key for model in tree.models}
    own = {(p["model"], known): p["base"] for p in of_sweep(tree)["points"] for known in (p["row"], p["base"])}
    if name not in (names := dict.fromkeys(row for _, row in own)):
        raise unknown(str(tree.layout.matrix), "sweep: method", name, names)
    values = tree.chosen if compared == "chosen" else own
    return {model: method for (model, row), method in values.items() if row == name}


def lines(tree: Tree, found: Pairs, benchmarks: Sequence[str] = tuple(SCORES)) -> list[dict[str, Any]]:
    """Return a row for each model and measure that at least one pair has; intervals need two pairs. benchmarks: the
    ones whose scores are compared. needed: clean models (without them: seeds) that find the difference."""
    from evals.learning_curves import figure
    from evals.stats.sizes import contrast

    out = []
    for model in dict.fromkeys(a.model for a, _ in found):
        own = {a.seed: (a, b) for a, b in found if a.model == model}
        steps = sorted({step for a, _ in own.values() for step in tree.runs[a]["steps"]})
        # Where nothing is evaluated (yet) there are only curves; the model before RL has only scores.
        curves = () if next(iter(own.values()))[1].method == BASE else CURVE
        scored = benchmarks if tree.layout.scores.is_file() else ()
        for key, step in [*((key, 0) for key in curves), *((key, step) for step, key in product(steps, scored))]:
            sides = {
                seed: [figure(tree, Checkpoint(run, 0 if run.method == BASE else step), key) for run in pair]
                for seed, pair in own.items()
            }
            if values := {seed: (a, b) for seed, (a, b) in sides.items() if a is not None and b is not None}:
                row = contrast(values, tree.clean_models(model), 1.0)
                measure = key if key in CURVE else f"{SCORES.get(key, key)} after {step}"
                out.append(row | {"model": model, "measure": measure, "pairs": len(values)})
    return out


def verdict(line: Mapping[str, Any], p: float | None = None) -> str:
    """Return the word of docs/claims.md for a line; empty for a movement, of which more is not better. p: corrected."""
    from evals.stats.compare import judge
    from evals.stats.estimate import Comparison

    if line["measure"].startswith("movement"):
        return ""
    about = {name: line[name] for name in ("difference", "low", "high", "p", "how")}
    return judge(Comparison(**about, n=line["units"]), MARGIN, p=p)


def text(a: str, b: str, found: Sequence[Mapping[str, Any]]) -> str:
    """Return a table for the terminal, and lines that explain it."""
    heads = ("model", "measure", "pairs", a, b, "difference", "p", "found in 80 %", "needed", "verdict")
    table = [
        (
            line["model"],
            _name(line),
            f"{line['pairs']}" + f" of {line['units']} clean models" * (line["units"] < line["pairs"]),
            _shown(line, "mean_a"),
            _shown(line, "mean_b"),
            _interval(line),
            "" if line["p"] is None else f"{line['p']:.2g}",
            _shown(line, "detectable"),
            "" if line["needed"] is None else f"{line['needed']:,}",
            verdict(line),
        )
        for line in found
    ]
    out = [f"{a} minus {b}, paired by seed; mean [95 % interval] or (two seeds), Student's t", ""]
    out += [*columns([heads, *table]), ""]
    out += ["needed: clean models, with as many seeds each as here; without clean models: seeds", ""]
    out += [f"verdict: on rewards and scores, by docs/claims.md with a margin of {100 * MARGIN:g} points"]
    return "\n".join(out)


def _name(line: Mapping[str, Any]) -> str:
    return CURVE.get(line["measure"], f"{line['measure']}, percent")


def _interval(line: Mapping[str, Any]) -> str:
    form = partial(_number, line["measure"], sign="+")
    return bracketed(form(line["difference"]), line["low"], line["high"], form, line["gains"])


def _shown(line: Mapping[str, Any], column: str) -> str:
    return "" if line[column] is None else _number(line["measure"], line[column])


def _number(measure: str, value: float, sign: str = "") -> str:
    """Format a value: scores in percent, movements with four decimals, other measures with three."""
    if measure not in CURVE:
        return f"{100 * value:{sign}.1f}"
    return f"{value:{sign}.{4 if measure.startswith('movement') else 3}f}"


def of_own(tree: Tree) -> str:
    """Return the verdicts on a tree's own methods, those of no table, against its baseline: a line for each method,
    model and measure (area, and pooled score after the table's step); empty where there are none.

    A sweep's methods are at their chosen values. p is corrected over the methods of a measure.
    """
    from evals.stats.compare import holm

    baseline, compared = str(tree.matrix.get("baseline") or REFERENCE), "chosen" if tree.chosen else None
    own = {str(model["key"]): rows.undeclared(tree, str(model["key"])) for model in tree.models}
    measures = "area", f"{SCORES[POOLED]} after {tree.matrix['table_step']}"
    found: list[tuple[str, dict[str, Any]]] = []
    for key in dict.fromkeys(key for by_key in own.values() for key in by_key if key != baseline):
        with suppress(ConfigError, MissingInputError):  # the baseline is not trained, or no pair is finished
            every = lines(tree, pairs(tree, key, baseline, compared), [POOLED])
            of_key = (line for line in every if line["measure"] in measures and key in own[line["model"]])
            found += [(own[line["model"]][key].label, line) for line in of_key]
    how = "difference [95 % interval] or (two seeds), verdict after Holm's correction"
    out = [f"Own methods minus {baseline}, paired by seed: {how}"]
    for measure in measures:
        of_measure = [(title, line) for title, line in found if line["measure"] == measure]
        for (title, line), p in zip(of_measure, holm([line["p"] for _, line in of_measure]), strict=True):
            needed = "" if line["needed"] is None else f", {line['needed']:,} needed"
            seeds = f"{line['pairs']} seed{'s' * (line['pairs'] != 1)}{needed}"
            out.append(f"{title}, {line['model']}, {_name(line)}: {_interval(line)}, {verdict(line, p)} ({seeds})")
    return "".join(f"{line}\n" for line in out) if found else ""


def _methods(args: Any) -> int:
    tree = open_or_kept(args.results)
    for key in args.benchmarks or ():
        if key not in (known := [str(own["key"]) for own in tree.benchmarks]):
            raise unknown("command line", "--benchmarks", key, known)
    measured = lines(tree, pairs(tree, args.a, args.b, args.compared), args.benchmarks or tuple(SCORES))
    names = {line["measure"].partition(" after ")[0] for line in measured}
    lacking = [key for key in args.benchmarks or () if key not in names]
    if lacking or not measured:  # without curves (the model before RL), nothing may be left to compare
        of = f" of {lacking[0]}" if lacking else ""
        raise MissingInputError(f"{args.results}: no seed of both {args.a} and {args.b} has a score{of}")
    print(text(args.a, args.b, measured))
    return 0


def _over_problems(args: Any) -> int:
    from report import compare_scores

    print(compare_scores.compared(args.a, args.b))
    return 0


def _trees(args: Any) -> int:
    from report import compare_trees

    text, found = compare_trees.compared(open_or_kept(Path(args.a)), open_or_kept(Path(args.b)))
    print(text)
    return int(any(row["moved"] for row in found))


def _form(args: Any) -> Callable[[Any], int]:
    if args.results:
        return _methods
    if options := [name for name in ("compared", "benchmarks") if getattr(args, name) is not None]:
        raise ConfigError(f"command line: --{options[0]}: is an option of METHOD METHOD --results TREE")
    paths = [Path(args.a), Path(args.b)]
    # A name that has neither the form of a checkpoint nor of a score counts as a tree: errors then refer to trees.
    if not all(path.is_dir() or ":" not in str(path) for path in paths):
        return _over_problems
    for path in paths:
        if not path.exists() and path.name == str(path):
            raise MissingInputError(f"{path}: no results there; for two methods of a tree add --results TREE")
    # Two trees with one checkpoint each (`evals.run`, `evals.adopt`) are compared over problems.
    return _over_problems if all(len(open_or_kept(path).checkpoints) == 1 for path in paths) else _trees


def main() -> int:
    parser = Parser()
    add = parser.add_argument
    add("a", metavar="A", help="a method, a tree, a checkpoint or a score, as above")
    add("b", metavar="B", help="what is subtracted, likewise (of two trees, A is subtracted)")
    add("--results", type=Path, metavar="TREE", help="results/<scale>")
    add("--compared", choices=COMPARED, help="of a sweep: each method at its chosen, or at the scale's own value")
    add("--benchmarks", nargs="+", metavar="KEY", help="methods: instead of the benchmarks' averages")
    args = parser.parse_args()
    return _form(args)(args)


if __name__ == "__main__":
    errors.run(main)
