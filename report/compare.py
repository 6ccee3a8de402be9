"""`python -m report.compare A B`: what differs between A and B, and is it more than noise? A and B are one of

METHOD METHOD --results TREE [TREE ...]
    Two methods over the seeds that both have, for each model: area under the reward curve, final reward, how far a
    rollout and the first one moved the policy, and the average scores after each evaluated rollout
    (--benchmarks KEY: the scores of these benchmarks). `base` is the model before RL, which only has scores. Seeds of
    several trees of one configuration with different bases (another machine) are pooled. --compared chosen: in a
    sweep, each method at the value that its tree chose for it, on the seeds that were not used for choosing;
    --compared own: at the scale's own value. Mean, 95 % interval and p come from Student's t over the clean models
    that the pairs continue, as in tables and claims. p covers this comparison only: correct it where there are several.
TREE_A TREE_B
    Two results trees or references: what is equal bit for bit, and the largest differences. Exit code 0: equal, or
    every interval contains 0 (after Holm's correction); 1: one does not; 2: the two cannot be compared.
A B
    Two checkpoints or two printed scores, compared over problems, and what would resolve the difference. Each is one of
    TREE, TREE:MODEL, TREE:MODEL/METHOD/seedN/stepN    results of `evals.run`, `evals.adopt` or Snakemake (TREE
                                                       only: two trees with one checkpoint each)
    FILE.csv                                           columns problem, correct, samples; or score, problems, samples;
                                                       and benchmark where there are several
    paper:METHOD, paper:MODEL/METHOD, paper:T2.3       a row of the paper's tables; METHOD: its first row there
    SCORE:PROBLEMS:SAMPLES, NAME=SCORE:PROBLEMS:SAMPLES   a score as a fraction, with its benchmark's name
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from core import errors
from core.errors import ConfigError, MissingInputError, Parser, real, unknown
from core.files import to_csv, write_text
from core.layout import BASE, Checkpoint, Run
from evals.scores import MACRO, POOLED
from evals.tree import Tree, open_or_kept
from report import show
from report.frontier import of_sweep
from report.markdown import bracketed, markdown_table

COMPARED = ("chosen", "own")
CURVE = {"area": "area under the reward curve", "final": "final reward",
         "movement": "movement, nats a token", "movement_first": "movement of the first rollout"}  # fmt: skip
SCORES = {POOLED: "score", MACRO: "benchmarks' mean"}
HEADER = ("model", "measure", "a", "b", "pairs", "by_tree", "units", "mean_a", "mean_b", "difference", "low", "high",
          "p", "detectable", "needed")  # fmt: skip


class Pair(NamedTuple):
    """Two finished runs of one model and seed in one tree; b may be the model that a started from."""

    tree: Tree
    a: Run
    b: Run


def pairs(trees: Sequence[Tree], a: str, b: str, compared: str | None = None) -> tuple[list[Pair], int]:
    """Return the finished pairs of all trees, and the number of pairs that are skipped because an earlier tree has the
    same base for that model and seed.

    compared: None, or the comparison of a sweep that sets the methods' values (`COMPARED`); without it, fresh seeds of
    a sweep are skipped, as in the tables. ConfigError: a tree lacks a method, or trees have different settings.
    MissingInputError: no finished pair.
    """
    found: dict[tuple[str, int, str], Pair] = {}
    again = 0
    for tree in trees:
        ours, theirs = (side.matrix.get("settings") or {} for side in (trees[0], tree))
        # A setting that only one tree records is newer than the other tree. Evaluation settings may differ.
        for key in sorted(ours.keys() & theirs.keys()):
            if not key.startswith(("evaluation.", "variants.")) and ours[key] != theirs[key]:
                raise ConfigError(
                    f"{tree.layout.matrix}: settings: {key}: {theirs[key]}, but {trees[0].given} has {ours[key]}: "
                    "their seeds are not of one experiment"
                )
        keys_a, keys_b = (_keys(tree, name, compared) for name in (a, b))
        if BASE in keys_a.values():
            raise ConfigError(f"command line: {BASE} is not a run: it can only be subtracted; write it second")
        if same := [key for model, key in keys_a.items() if keys_b.get(model) == key]:
            raise ConfigError(f"{tree.given}: {a} and {b} are one method there, {same[0]}")
        for run in tree.runs:
            if run.method != keys_a.get(run.model) or tree.is_fresh(run) != (compared is not None):
                continue
            other: Run | None = Run(run.model, keys_b.get(run.model, run.method), run.seed)
            if b == BASE:
                before = tree.base(run.model, run.seed)
                other = before.run if before else None
            elif other == run or other not in tree.runs or tree.record(other) is None:
                continue
            if other and (record := tree.record(run)) is not None:
                base = (run.model, run.seed, str(record["inputs"].get("base")))
                again += base in found
                found.setdefault(base, Pair(tree, run, other))
    if not found:
        raise MissingInputError(f"{', '.join(str(tree.given) for tree in trees)}: no finished seed of both {a} and {b}")
    return list(found.values()), again


def _keys(tree: Tree, name: str, compared: str | None) -> dict[str, str]:
    """Return by model the key of the method `name` (a key or configured name); in a sweep at its value, which may
    differ between models."""
    if compared is None:
        if (key := tree.method_for(name)) is None:
            raise unknown(str(tree.layout.matrix), "method", name, tree.methods)
        return {str(model["key"]): key for model in tree.models}
    own = {(point["model"], point["row"]): point["base"] for point in of_sweep(tree)["points"]}
    if name not in (names := dict.fromkeys(row for _, row in own)):
        raise unknown(str(tree.layout.matrix), "sweep: method", name, names)
    values = tree.chosen if compared == "chosen" else own
    return {model: method for (model, row), method in values.items() if row == name}


def lines(found: Sequence[Pair], benchmarks: Sequence[str] = tuple(SCORES)) -> list[dict[str, Any]]:
    """Return a row by HEADER for each model and measure that at least one pair has; intervals need two pairs.
    benchmarks: the ones whose scores are compared. by_tree: pairs of each tree."""
    from evals.learning_curves import figure
    from evals.stats.sizes import contrast

    def value(pair: Pair, run: Run, key: str, step: int) -> float | None:
        # Where nothing is evaluated (yet) there are only curves; the model before RL has only scores.
        if (key in CURVE and pair.b.method == BASE) or (key not in CURVE and not pair.tree.layout.scores.is_file()):
            return None
        return figure(pair.tree, Checkpoint(run, 0 if run.method == BASE else step), key)

    out = []
    for model in dict.fromkeys(pair.a.model for pair in found):
        own = dict(enumerate(pair for pair in found if pair.a.model == model))
        # Clusters are numbers of clean models: another machine builds the same model with other rounding. Without
        # clean models (external models), each pair counts.
        clean = {n: pair.tree.clean_models(model) for n, pair in own.items()}
        clusters = {n: n if c is None else f"clean model {c[own[n].a.seed]}" for n, c in clean.items()}
        steps = sorted({step for pair in own.values() for step in pair.tree.runs[pair.a]["steps"]})
        for key, step in [*((key, 0) for key in CURVE), *((key, step) for step, key in product(steps, benchmarks))]:
            sides = {n: (value(pair, pair.a, key, step), value(pair, pair.b, key, step)) for n, pair in own.items()}
            values = {n: (a, b) for n, (a, b) in sides.items() if a is not None and b is not None}
            if values:
                row = contrast(values, {n: clusters[n] for n in values}, 1.0)
                measure = key if key in CURVE else f"{SCORES.get(key, key)} after {step}"
                by_tree = Counter(str(own[n].tree.given) for n in values)
                out.append(row | {"model": model, "measure": measure, "pairs": len(values), "by_tree": by_tree})
    return out


def text(a: str, b: str, found: Sequence[Mapping[str, Any]], again: int) -> str:
    """Return a Markdown table, and a line that explains it."""
    rows = []
    for line in found:
        form = partial(_shown, line["measure"])
        counts = line["by_tree"].values()
        pairs = f"{line['pairs']} ({' + '.join(map(str, counts))})" if len(counts) > 1 else str(line["pairs"])
        rows.append([
            line["model"],
            CURVE.get(line["measure"], f"{line['measure']}, percent"),
            pairs + f" of {line['units']} clean models" * (line["units"] < line["pairs"]),
            form(line["mean_a"]),
            form(line["mean_b"]),
            bracketed(form(line["difference"], "+"), line["low"], line["high"], partial(form, sign="+")),
            "" if line["p"] is None else f"{line['p']:.2g}",
            "" if line["detectable"] is None else form(line["detectable"]),
            "" if line["needed"] is None else f"{line['needed']:,}",
        ])  # fmt: skip
    heads = ("model", "measure", "pairs", a, b, "difference", "p", "found in 80 %", "needed")
    out = [f"{a} minus {b}, paired by seed; mean [95 % interval], Student's t", ""]
    out += [*markdown_table(heads, rows, "---:"), ""]
    out += ["needed: clean models, with as many seeds each as here; without clean models: seeds"]
    if again:
        out += ["", f"{again} pairs are left out: an earlier tree has their base, for that model and seed"]
    return "\n".join(out)


def _shown(measure: str, value: float, sign: str = "") -> str:
    """Format a value: scores in percent, movements with four decimals, other measures with three."""
    if measure not in CURVE:
        return f"{100 * value:{sign}.1f}"
    return f"{value:{sign}.{4 if measure.startswith('movement') else 3}f}"


def _methods(args: Any) -> int:
    trees = [open_or_kept(root) for root in args.results]
    for key in args.benchmarks or ():
        if key not in (known := [str(own["key"]) for tree in trees for own in tree.benchmarks]):
            raise unknown("command line", "--benchmarks", key, known)
    found, again = pairs(trees, args.a, args.b, args.compared)
    measured = lines(found, args.benchmarks or tuple(SCORES))
    names = {line["measure"].partition(" after ")[0] for line in measured}
    lacking = [key for key in args.benchmarks or () if key not in names]
    if lacking or not measured:  # without curves (the model before RL), nothing may be left to compare
        of = f" of {lacking[0]}" if lacking else ""
        raise MissingInputError(f"{args.results[0]}: no seed of both {args.a} and {args.b} has a score{of}")
    print(show.plain(text(args.a, args.b, measured, again)))
    if args.csv:  # scores are fractions
        counts = ("; ".join(f"{tree}: {n}" for tree, n in line["by_tree"].items()) for line in measured)
        rows = [{**line, "by_tree": n, "a": args.a, "b": args.b} for line, n in zip(measured, counts, strict=True)]
        write_text(args.csv, to_csv(HEADER, rows))
    return 0


def _over_problems(args: Any) -> int:
    from report import compare_scores

    assumed = {name: value for name in ("spread", "correlation") if (value := getattr(args, name)) is not None}
    print(show.plain(compare_scores.compared(args.a, args.b, **assumed)))
    return 0


def _trees(args: Any) -> int:
    from report import compare_trees

    text, found = compare_trees.compared(open_or_kept(Path(args.a)), open_or_kept(Path(args.b)))
    print(show.plain(text))
    if args.csv:
        write_text(args.csv, to_csv(compare_trees.HEADER, found))
    return int(any(row["moved"] == "yes" for row in found))


FORMS = {_methods: "METHOD METHOD --results TREE", _trees: "TREE TREE", _over_problems: "scores over problems"}
OPTIONS = {  # option -> the forms that accept it
    "compared": [_methods], "benchmarks": [_methods], "csv": [_methods, _trees], "spread": [_over_problems],
    "correlation": [_over_problems],
}  # fmt: skip


def _form(args: Any) -> Callable[[Any], int]:
    if args.results:
        return _methods
    paths = [Path(args.a), Path(args.b)]
    # A name that has neither the form of a checkpoint nor of a score counts as a tree: errors then refer to trees.
    if not all(path.is_dir() or not (path.is_file() or ":" in str(path) or path.suffix == ".csv") for path in paths):
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
    add("--results", nargs="+", type=Path, metavar="TREE", help="results/<scale>, or several")
    add("--compared", choices=COMPARED, help="of a sweep: each method at its chosen, or at the scale's own value")
    add("--benchmarks", nargs="+", metavar="KEY", help="methods: instead of the benchmarks' averages")
    add("--spread", type=real(above=0, most=1e6), help="printed scores: a + b of the difficulties' Beta distribution")
    add("--correlation", type=real(least=-1, most=1), help="printed scores: of both sides' difficulties")
    add("--csv", type=Path, metavar="FILE", help="methods and trees: write every line there too")
    args = parser.parse_args()
    form = _form(args)
    for option, forms in OPTIONS.items():
        if form not in forms and getattr(args, option) is not None:
            raise ConfigError(f"command line: --{option}: is an option of {' and of '.join(FORMS[f] for f in forms)}")
    return form(args)


if __name__ == "__main__":
    errors.run(main)
