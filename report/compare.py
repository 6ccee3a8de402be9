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

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from core import errors
from core.errors import ConfigError, MissingInputError, Parser, unknown
from core.layout import BASE, REFERENCE, Checkpoint, Run
from evals import learning_curves
from evals.learning_curves import figure, read_curve
from evals.scores import AVERAGES, MACRO, POOLED
from evals.stats import ALPHA, MARGIN, intervals
from evals.stats.compare import holm, judge
from evals.stats.estimate import Comparison
from evals.stats.sizes import contrast
from evals.tree import Score, Tree, open_or_kept
from report import compare_scores, rows
from report.markdown import bracketed, columns
from report.sweep import of_sweep

COMPARED = ("chosen", "own")
CURVE = {  # name, factor and decimals of a measure
    "area": ("area under the reward curve", 1, 3),
    "final": ("final reward", 1, 3),
    "movement": ("movement, nats a token", 1, 4),
    "movement_first": ("movement of the first rollout", 1, 4),
}
SCORES = {POOLED: "score", MACRO: "benchmarks' mean"}

# Two methods of a tree.

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
    out = []
    for model in dict.fromkeys(a.model for a, _ in found):
        own = [(a, b) for a, b in found if a.model == model]
        steps = sorted({step for a, _ in own for step in tree.runs[a]["steps"]})
        # Where nothing is evaluated (yet) there are only curves; the model before RL has only scores.
        curves = () if own[0][1].method == BASE else CURVE
        scored = benchmarks if tree.layout.scores.is_file() else ()
        for key, step in [*product(curves, [0]), *((key, step) for step, key in product(steps, scored))]:
            sides = {
                pair[0].seed: [figure(tree, Checkpoint(run, 0 if run.method == BASE else step), key) for run in pair]
                for pair in own
            }
            if values := {seed: (a, b) for seed, (a, b) in sides.items() if a is not None and b is not None}:
                measure = key if key in CURVE else f"{SCORES.get(key, key)} after {step}"
                row = contrast(values, tree.clean_models(model), 1.0)
                out.append(row | {"model": model, "measure": measure, "pairs": len(values)})
    return out


def verdict(line: Mapping[str, Any], p: float | None = None) -> str:
    """Return the word of docs/claims.md for a line; empty for a movement, of which more is not better. p: corrected."""
    if line["measure"].startswith("movement"):
        return ""
    about = {name: line[name] for name in ("difference", "low", "high", "p", "how")}
    return judge(Comparison(**about, n=line["units"]), MARGIN, p=p)


def text(a: str, b: str, found: Sequence[Mapping[str, Any]]) -> str:
    """Return a table for the terminal, and lines that explain it."""
    table = [("model", "measure", "pairs", a, b, "difference", "p", "found in 80 %", "needed", "verdict")]
    for line in found:
        name, *numbers, detectable = _texts(line)
        pairs = f"{line['pairs']}" + f" of {line['units']} clean models" * (line["units"] < line["pairs"])
        p, needed = (
            "" if line[key] is None else f"{line[key]:{form}}" for key, form in (("p", ".2g"), ("needed", ","))
        )
        table.append((line["model"], name, pairs, *numbers, p, detectable, needed, verdict(line)))
    out = [f"{a} minus {b}, paired by seed; mean [95 % interval] or (two seeds), Student's t", ""]
    out += [*columns(table), ""]
    out += ["needed: clean models, with as many seeds each as here; without clean models: seeds", ""]
    out += [f"verdict: on rewards and scores, by docs/claims.md with a margin of {100 * MARGIN:g} points"]
    return "\n".join(out)


def _texts(line: Mapping[str, Any]) -> list[str]:
    """Return the measure, both means, the difference with its interval, and what would have been found; scores in
    percent."""
    name, factor, digits = CURVE.get(line["measure"], (f"{line['measure']}, percent", 100, 1))

    def form(value: float | None, sign: str = "") -> str:
        return "" if value is None else f"{factor * value:{sign}.{digits}f}"

    signed = partial(form, sign="+")
    difference = bracketed(signed(line["difference"]), line["low"], line["high"], signed, line["gains"])
    return [name, form(line["mean_a"]), form(line["mean_b"]), difference, form(line["detectable"])]


def of_own(tree: Tree) -> str:
    """Return the verdicts on a tree's own methods, those of no table, against its baseline: a line for each method,
    model and measure (area, and pooled score after the table's step); empty where there are none.

    A sweep's methods are at their chosen values. p is corrected over the methods of a measure.
    """
    baseline, compared = str(tree.matrix.get("baseline") or REFERENCE), "chosen" if tree.chosen else None
    own = {str(model["key"]): rows.undeclared(tree, str(model["key"])) for model in tree.models}
    every: list[tuple[str, dict[str, Any]]] = []
    for key in dict.fromkeys(key for by_key in own.values() for key in by_key if key != baseline):
        with suppress(ConfigError, MissingInputError):  # the baseline is not trained, or no pair is finished
            of_key = lines(tree, pairs(tree, key, baseline, compared), [POOLED])
            every += [(own[line["model"]][key].label, line) for line in of_key if key in own[line["model"]]]
    how = "difference [95 % interval] or (two seeds), verdict after Holm's correction"
    out = []
    for measure in ("area", f"{SCORES[POOLED]} after {tree.matrix['table_step']}"):
        found = [(title, line) for title, line in every if line["measure"] == measure]
        for (title, line), p in zip(found, holm([line["p"] for _, line in found]), strict=True):
            needed = "" if line["needed"] is None else f", {line['needed']:,} needed"
            seeds = f"{line['pairs']} seed{'s' * (line['pairs'] != 1)}{needed}"
            name, _, _, difference, _ = _texts(line)
            out.append(f"{title}, {line['model']}, {name}: {difference}, {verdict(line, p)} ({seeds})\n")
    return "".join([f"Own methods minus {baseline}, paired by seed: {how}\n", *out]) if out else ""


def _methods(args: Any) -> str:
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
    return text(args.a, args.b, measured)


# Two trees. Two seeds or more: the mean difference, paired by seed. One seed: the difference of two scores, from their
# intervals over problems; a measure of the curve has no interval.

LISTED = 40  # most differences
EQUAL = 1e-12  # scores are ratios of counts; a smaller difference is rounding of equal values
EVERY_RUN = ("area", "final", "grad_norm", "clip_tokens", "entropy_end")  # measures that every run has


def of_trees(a: Tree, b: Tree) -> tuple[str, list[dict[str, Any]]]:
    """Return the text to print, and a row for each differing value of the runs and scores of both trees.

    Raises ConfigError where scale or problems differ, MissingInputError where nothing is shared.
    """
    keys = _shared(a, b)
    runs = [run for run in a.runs if a.record(run) is not None and b.record(run) is not None]
    scored = [{at for at, key in tree.scores if key in keys} for tree in (a, b)]
    both = [at for at in a.checkpoints if at in scored[0] & scored[1]]
    if not (runs or both):
        raise MissingInputError(f"cannot be compared: {a.given} and {b.given} have neither a run nor a score in common")
    changed = [run for run in runs if _curves_differ(a, b, run)]
    # Values and verdicts only: the intervals may come from another version.
    sides = [{at: [_content(tree.scores.get((at, key))) for key in keys] for at in both} for tree in (a, b)]
    same = sum(sides[0][at] == sides[1][at] for at in both)
    methods = {(run.model, run.method) for run in changed}
    trained = [Checkpoint(run, 0) for run in runs if (run.model, run.method) in methods]
    found = _differences(a, b, [*product(both, keys), *product(trained, EVERY_RUN)])
    equal = f"equal bit for bit: curves (apart from times) {len(runs) - len(changed)} of {len(runs)}, "
    out = [f"A: {a.given}; B: {b.given}", "", f"{equal}checkpoints' scores {same} of {len(both)}", ""]
    if not found:
        return "\n".join([*out, "verdict: no figure differs"]), found
    table = [("where", "figure", "A", "B", "B - A", "95 % interval, or two seeds", "")]
    for row in found[:LISTED]:
        interval = "-" if row["low"] is None else f"{row['low']:+.3g} to {row['high']:+.3g}"
        interval = " / ".join(f"{gain:+.3g}" for gain in row["gains"]) if row["seeds"] == 2 else interval
        numbers = f"{row['mean_b']:.4g}", f"{row['mean_a']:.4g}", f"{row['difference']:+.3g}"
        table.append((row["where"], row["figure"], *numbers, interval, "moved" * row["moved"]))
    moved, open_ends = sum(row["moved"] for row in found), sum(row["low"] is None for row in found)
    beyond = f"MOVED: {moved} of {len(found)} figures that differ do so" if moved else "no figure differs"
    out += [f"{len(found)} figures differ; those with the smallest p:", "", *columns(table), ""]
    return "\n".join([*out, f"verdict: {beyond} beyond noise; {open_ends} have no interval"]), found


def _shared(a: Tree, b: Tree) -> tuple[str, ...]:
    """Return the benchmarks of both, and the averages where both average over the same ones."""
    if a.scale != b.scale:
        raise ConfigError(f"cannot be compared: {a.given} is of scale {a.scale}, {b.given} of scale {b.scale}")
    of_a, of_b = ({e["key"]: f"{e['items']} problems x {e['samples']}" for e in t.benchmarks} for t in (a, b))
    shared = tuple(key for key in of_a if key in of_b)
    if other := next((key for key in shared if of_a[key] != of_b[key]), None):
        has = f"{a.given} has {of_a[other]}, {b.given} has {of_b[other]}"
        raise ConfigError(f"cannot be compared: benchmark {other}: {has}")
    return shared + AVERAGES * (of_a.keys() == of_b.keys())


def _curves_differ(a: Tree, b: Tree, run: Run) -> bool:
    # By rollout: a kept tree has no rows by update. Shared columns: a later version may record more.
    x, y = (read_curve(tree.layout.run(run) / "curve.csv").by_rollout() for tree in (a, b))
    common = [name for name in x[0] if name in y[0] and not name.startswith("seconds_")]
    return [[row[name] for name in common] for row in x] != [[row[name] for name in common] for row in y]


def _content(score: Score | None) -> tuple[Any, ...]:
    return (score.value, score.counts) if score else ()


def _differences(a: Tree, b: Tree, wanted: Sequence[tuple[Checkpoint, str]]) -> list[dict[str, Any]]:
    """Return a row for each differing value (method or checkpoint, figure, the comparison b - a, whether it `moved`):
    moved ones first, then by p. wanted: scores of checkpoints, and measures of runs, at step 0."""
    places: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}  # (method or its checkpoint, figure) -> by seed
    ends: dict[tuple[str, str], list[Score | None]] = {}  # the scores of the last seed, for their intervals
    for at, key in wanted:
        new, old = figure(b, at, key), figure(a, at, key)
        if new is not None and old is not None:
            place = f"{at.run.model}/{at.run.method}" + ("" if key in EVERY_RUN else f"/step{at.step}"), key
            places.setdefault(place, {})[at.run.seed] = new, old
            ends[place] = [tree.scores.get((at, key)) for tree in (a, b)]
    found: list[dict[str, Any]] = []
    for (where, key), by_seed in places.items():
        if any(abs(new - old) > EQUAL for new, old in by_seed.values()):
            top = learning_curves.top(key) if key in EVERY_RUN else 1.0
            row = contrast(by_seed, a.clean_models(where.partition("/")[0]), top)
            row |= {"where": where, "figure": key, "seeds": len(by_seed)}
            if len(by_seed) == 1:
                row |= {"where": f"{where}, seed {next(iter(by_seed))}"} | _over_problems(*ends[where, key])
            found.append(row)
    for row, p in zip(found, holm([row["p"] for row in found]), strict=True):
        # Several seeds have no interval where all of them differ by the same amount.
        row["moved"] = row["seeds"] > 1 if p is None else p < ALPHA
    return sorted(found, key=lambda row: (not row["moved"], row["p"] is None, row["p"] or 0.0))


def _over_problems(a: Any, b: Any) -> dict[str, Any]:
    """Return b - a with the MOVER interval of both, which is at least as wide as one paired by problem. p is computed
    from the nearer end with the normal distribution."""
    if a is None or None in (a.low, a.high, b.low, b.high):
        return {}
    difference, (low, high) = intervals.combine([1, 1], [b.value, -a.value], [b.low, -a.high], [b.high, -a.low])
    se = float(difference - low if difference > 0 else high - difference) / float(intervals.quantile(math.inf))
    p = float(intervals.p_value(difference, se, math.inf)) if se > 0 else None
    return {"low": float(low), "high": float(high), "p": p}


def main() -> int:
    parser = Parser()
    add = parser.add_argument
    add("a", metavar="A", help="a method, a tree, a checkpoint or a score, as above")
    add("b", metavar="B", help="what is subtracted, likewise (of two trees, A is subtracted)")
    add("--results", type=Path, metavar="TREE", help="results/<scale>")
    add("--compared", choices=COMPARED, help="of a sweep: each method at its chosen, or at the scale's own value")
    add("--benchmarks", nargs="+", metavar="KEY", help="methods: instead of the benchmarks' averages")
    args = parser.parse_args()
    if args.results:
        print(_methods(args))
        return 0
    if options := [name for name in ("compared", "benchmarks") if getattr(args, name) is not None]:
        raise ConfigError(f"command line: --{options[0]}: is an option of METHOD METHOD --results TREE")
    paths = [Path(args.a), Path(args.b)]
    # A name that has neither the form of a checkpoint nor of a score counts as a tree: errors then refer to trees.
    if all(path.is_dir() or ":" not in str(path) for path in paths):
        for path in paths:
            if not path.exists() and path.name == str(path):
                raise MissingInputError(f"{path}: no results there; for two methods of a tree add --results TREE")
        trees = [open_or_kept(path) for path in paths]
        # Two trees with one checkpoint each (`evals.run`, `evals.adopt`) are compared over problems.
        if any(len(tree.checkpoints) != 1 for tree in trees):
            printed, found = of_trees(*trees)
            print(printed)
            return int(any(row["moved"] for row in found))
    print(compare_scores.compared(args.a, args.b))
    return 0


if __name__ == "__main__":
    errors.run(main)
