"""`python -m report.compare A B`: what differs between A and B, and is it more than noise? A and B are one of

METHOD METHOD --results TREE
    Two methods over the seeds that both have, for each model: area under the reward curve, final reward, how far a
    rollout and the first one moved the policy, and the average scores after each evaluated rollout
    (--benchmarks KEY: the scores of these benchmarks). `base` is the model before RL, which only has scores; `start` is
    a run's own first rollout, to compare its final reward with. Several methods on each side, such as
    `tepo,tepo@as_grpo` and `grpo@as_tepo,grpo`, are compared one with one; the differences of a seed are averaged.
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
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pandas as pd

from core import errors
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser, real, unknown, whole
from core.layout import BASE, REFERENCE, Checkpoint, Run
from evals import learning_curves
from evals.benchmark import benchmark
from evals.learning_curves import figure, read_curve
from evals.scores import AVERAGES, MACRO, POOLED
from evals.stats import ALPHA, MARGIN, intervals, sizes
from evals.stats.compare import holm, judge
from evals.stats.estimate import Comparison, read_graded
from evals.store import read_record
from evals.tree import Score, Tree, open_or_kept
from paper import printed
from paper.printed import COLUMN, SPREAD, measured
from report import rows
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

START = "start"  # in place of the second method: the first rollout of the first method's run

Pairs = Sequence[tuple[Run, Run]]  # of one model and seed; the second may be the first's base model, or equal it: START


def pairs(tree: Tree, a: str, b: str, compared: str | None = None) -> Pairs:
    """Return the finished pairs of two methods.

    compared: None, or the comparison of a sweep that sets the methods' values (`COMPARED`); without it, fresh seeds of
    a sweep are skipped, as in the tables. Raises ConfigError for an unknown method, MissingInputError for no pair.
    """
    found = []
    keys_a, keys_b = (_keys(tree, a if name == START else name, compared) for name in (a, b))
    if BASE in keys_a.values():
        raise ConfigError(f"command line: {BASE} is not a run: it can only be subtracted; write it second")
    if same := [key for model, key in keys_a.items() if keys_b.get(model) == key and b != START]:
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


def contrasts(tree: Tree, a: str, b: str, compared: str | None = None) -> list[Pairs]:
    """Return the pairs of each model and seed that has all of them: several methods, with commas, are paired in order.

    Raises the errors of `pairs`, and ConfigError for sides that cannot be paired.
    """
    sides = a.split(","), b.split(",")
    if len(sides[0]) != len(sides[1]):
        raise ConfigError(f"command line: {a} and {b}: must be as many methods on each side")
    if len({name if name in (BASE, START) else "" for name in sides[1]}) > 1:
        raise ConfigError(f"command line: {b}: {BASE} and {START} cannot be averaged with others; compare them alone")
    every = [pairs(tree, one, other, compared) for one, other in zip(*sides, strict=True)]
    by_place = [{(pair[0].model, pair[0].seed): pair for pair in found} for found in every]
    whole = [place for place in by_place[0] if all(place in found for found in by_place)]
    if not whole:
        raise MissingInputError(f"{tree.given}: no finished seed has all of {a} and {b}")
    return [[found[place] for found in by_place] for place in whole]


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


def lines(tree: Tree, found: Sequence[Pairs], benchmarks: Sequence[str] = tuple(SCORES)) -> list[dict[str, Any]]:
    """Return a row for each model and measure that at least one seed has; intervals need two seeds.

    found: `contrasts`, averaged in each seed. benchmarks: the ones whose scores are compared. needed: clean models
    (without them: seeds) that find the difference.
    """
    out = []
    for model in dict.fromkeys(each[0][0].model for each in found):
        of_model = [each for each in found if each[0][0].model == model]
        steps = sorted({step for each in of_model for a, _ in each for step in tree.runs[a]["steps"]})
        one, other = of_model[0][0]
        # Where nothing is evaluated (yet) there are only curves; the model before RL has only scores.
        curves = () if other.method == BASE else ("final",) if other == one else tuple(CURVE)
        scored = benchmarks if tree.layout.scores.is_file() and other != one else ()
        for key, step in [*product(curves, [0]), *((key, step) for step, key in product(steps, scored))]:
            values: dict[int, tuple[float, float]] = {}
            for each in of_model:
                left = [figure(tree, Checkpoint(a, step), key) for a, _ in each]
                right = [_subtracted(tree, pair, key, step) for pair in each]
                known = [[value for value in side if value is not None] for side in (left, right)]
                if known == [left, right]:
                    values[each[0][0].seed] = fmean(known[0]), fmean(known[1])
            if values:
                measure = key if key in CURVE else f"{SCORES.get(key, key)} after {step}"
                row = sizes.contrast(values, tree.clean_models(model), 1.0)
                out.append(row | {"model": model, "measure": measure, "pairs": len(values)})
    return out


def _subtracted(tree: Tree, pair: tuple[Run, Run], key: str, step: int) -> float | None:
    one, other = pair
    if other == one:
        return read_curve(tree.layout.run(one) / "curve.csv").series(["reward"], "first")[0]
    return figure(tree, Checkpoint(other, 0 if other.method == BASE else step), key)


def verdict(line: Mapping[str, Any], p: float | None = None) -> str:
    """Return the word of docs/claims.md for a line; empty for a movement, of which more is not better. p: corrected."""
    return "" if line["measure"].startswith("movement") else judge(line["comparison"], MARGIN, p=p)


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
            of_key = lines(tree, contrasts(tree, key, baseline, compared), [POOLED])
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
    measured = lines(tree, contrasts(tree, args.a, args.b, args.compared), args.benchmarks or tuple(SCORES))
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
    same = sum(all(_content(a, at, key) == _content(b, at, key) for key in keys) for at in both)
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


def _content(tree: Tree, at: Checkpoint, key: str) -> object:
    return (score := tree.scores.get((at, key))) and (score.value, score.counts)


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
            row = sizes.contrast(by_seed, a.clean_models(where.partition("/")[0]), top)
            row |= {"where": where, "figure": key, "seeds": len(by_seed)}
            if len(by_seed) == 1:
                row |= {"where": f"{where}, seed {next(iter(by_seed))}"} | _from_intervals(*ends[where, key])
            found.append(row)
    for row, p in zip(found, holm([row["p"] for row in found]), strict=True):
        # Several seeds have no interval where all of them differ by the same amount.
        row["moved"] = row["seeds"] > 1 if p is None else p < ALPHA
    return sorted(found, key=lambda row: (not row["moved"], row["p"] is None, row["p"] or 0.0))


def _from_intervals(a: Any, b: Any) -> dict[str, Any]:
    """Return b - a with the MOVER interval of both, which is at least as wide as one paired by problem. p is computed
    from the nearer end with the normal distribution."""
    if a is None or None in (a.low, a.high, b.low, b.high):
        return {}
    difference, (low, high) = intervals.combine([1, 1], [b.value, -a.value], [b.low, -a.high], [b.high, -a.low])
    se = float(difference - low if difference > 0 else high - difference) / float(intervals.quantile(math.inf))
    p = float(intervals.p_value(difference, se, math.inf)) if se > 0 else None
    return {"low": float(low), "high": float(high), "p": p}


# Two checkpoints or two printed scores. Scores are paired by problem where both sides have answers. Printed scores hide
# how far problems differ, so there are three cases: the least and the most variance that such scores allow, and the
# assumed one in between.

# Correlation of the problems' difficulties between two checkpoints. Checkpoints trained from one base had .81 to .97 in
# results/reference/embedded and embedded_models (4 samples per problem), different models .14 to .54.
CORRELATION = 0.9
COUNT = whole(1, 10**6)
PRINTED = {"score (a fraction)": real(least=0, most=1), "problems": COUNT, "samples": COUNT}
TYPED = re.compile(r"(?:([\w.+-]+)=)?([^:=]+):(\d+):(\d+)")
FORMS = "a tree, TREE:MODEL, paper:METHOD, or SCORE:PROBLEMS:SAMPLES such as 0.367:30:32"
ALL = "all, by responses"
HEADS = ("benchmark", "problems", "samples", "A", "B", "difference, points", "p", "found in 80 %", "problems needed")

Side = Mapping[str, sizes.Score]  # by benchmark; "" where none is named


def read_side(text: str) -> Side:
    """Parse a side (see `report.compare --help`); raises ConfigError, MissingInputError or CorruptInputError."""
    kind, colon, name = text.partition(":")
    if colon and kind == "paper":
        return _paper(name)
    if typed := TYPED.fullmatch(text):
        (key, *cells), values = typed.groups(""), list[Any]()
        for (name, parse), cell in zip(PRINTED.items(), cells, strict=True):
            try:
                values.append(parse(cell))
            except ArgumentTypeError as error:
                raise CorruptInputError(f"{text}: {name}: {error}") from None
        return {key: sizes.Score(*values)}
    root, name = (text, "") if Path(text).is_dir() or not colon else text.rsplit(":", 1)
    if not (Path(root).is_dir() or len(Path(root).parts) > 1):
        raise MissingInputError(f"{text}: no file or folder there; give {FORMS}; for two methods add --results TREE")
    return _checkpoint(open_or_kept(Path(root)), name)


def _checkpoint(tree: Tree, name: str) -> Side:
    """Read a checkpoint's grades, or scores.csv where a reference has no grades."""
    found = [at for at in tree.checkpoints if name in ("", at.run.model, at.path.as_posix())]
    if len(found) != 1:
        names = dict.fromkeys(key for at in tree.checkpoints for key in (at.run.model, at.path.as_posix()))
        near = get_close_matches(name, names, 5, 0.0)
        raise ConfigError(
            f"{tree.given}: checkpoint {name!r}: names {len(found)}; add one to the tree's name, as in "
            f"{tree.given}:{near[0] if near else 'MODEL'}; nearest: {', '.join(near)}"
        )
    if not (record := tree.layout.grades(found[0]) / "grades.json").is_file():
        return {
            key: sizes.Score(s.value, s.items, s.responses / s.items)
            for (at, key), s in tree.scores.items()
            if at == found[0] and key not in AVERAGES and s.value is not None and s.items and s.responses
        }
    keys = list(read_record(record))
    side = {}
    for key, (samples, _) in read_graded(tree.layout, found[0], keys).items():
        rows = pd.DataFrame({"item": samples.items, "problem": samples.problem_of_row, "share": samples.right.mean(1)})
        # Indexed by the problem's first item: prompts, which identify copies of a problem, differ between models.
        problems = rows.groupby("problem").agg(item=("item", "first"), share=("share", "mean"), copies=("item", "size"))
        side[key] = sizes.of_answers(problems.assign(samples=samples.k).set_index("item"))
    return side


def _paper(name: str) -> Side:
    rows: dict[str, Any] = {}
    for row in measured(printed.read()):
        for key in (row.run.method, f"{row.model}/{row.run.method}", row.id) if row.run else ():
            rows.setdefault(key, row)
    if name not in rows:
        raise unknown("the paper's tables", "row", name, (key for key in rows if "/" not in key and key[0] != "T"))
    cells = {key: cell for key, cell in rows[name].cells.items() if key in COLUMN and cell is not None}
    sampled = {key: benchmark(key).decoding.samples for key in cells}
    return {key: sizes.Score(float(cells[key]) / 100, COLUMN[key] // k, k) for key, k in sampled.items()}


class OfProblems(NamedTuple):
    """One benchmark, or all of them."""

    benchmark: str
    problems: str
    scores: Sequence[sizes.Score]  # of both sides
    found: list[Comparison]  # one if measured, else of the least, the assumed and the most variance

    @property
    def main(self) -> Comparison:
        return self.found[len(self.found) // 2]


def over_problems(a: Side, b: Side) -> list[OfProblems]:
    """Return a line per shared benchmark, plus one over several; raises CorruptInputError if none is shared."""
    if len(a) == len(b) == 1 and "" in (*a, *b):  # an unnamed benchmark takes the other's name
        key = max(*a, *b)
        a, b = {key: next(iter(a.values()))}, {key: next(iter(b.values()))}
    found = []
    for key in (key for key in a if key in b):
        try:
            scores, compared = sizes.compare_scores(a[key], b[key], SPREAD, CORRELATION)
        except CorruptInputError as error:
            raise CorruptInputError(f"{key or 'problems'}: {error}") from error
        n, m, used = a[key].problems, b[key].problems, scores[0].problems
        if scores[0].rows is None or scores[1].rows is None:
            problems = f"the same {n}" if n == m else f"{n} and {m}"
        else:
            problems = f"{used}" if used == n == m else f"{used} of {n}, {m}"
        found.append(OfProblems(key, problems, scores, compared))
    if not found:
        names = " and ".join(", ".join(key or "one without a name" for key in side) for side in (a, b))
        raise CorruptInputError(
            f"no benchmark in common: {names}; give both logs the same one: evals.adopt --benchmark KEY"
        )
    if len(found) == 1:
        return found
    responses = {line.benchmark: sum(score.problems * score.samples for score in line.scores) for line in found}
    weights = {key: n / sum(responses.values()) for key, n in responses.items()}
    compared = sizes.together(weights, {line.benchmark: line.found for line in found})
    n = compared[0].n
    means = [sum(weights[line.benchmark] * line.scores[side].value for line in found) for side in (0, 1)]
    return [*found, OfProblems(ALL, f"{n}", [sizes.Score(mean, n, math.nan) for mean in means], compared)]


def of_scores(a: str, b: str) -> str:
    """Return a table of two sides (`read_side`) and its assumptions, for the terminal."""
    sides = read_side(a), read_side(b)
    try:
        found = over_problems(*sides)
    except CorruptInputError as error:
        raise CorruptInputError(f"{a} and {b}: {error}") from error
    out = [f"A: {a}; B: {b}; percent [95 % interval], Student's t over problems", ""]
    out += columns([HEADS, *map(_problem_cells, found)])
    out += ["", "About these two checkpoints: how far other training seeds would lie apart is not in it."]
    if any(len(line.found) > 1 for line in found):
        out += ["Printed scores do not show how far problems differ. (from to): the least and most that they allow.",
                f"Assumed: difficulties are Beta-distributed with a + b = {SPREAD:g}; on the same problems those of A "
                f"and B correlate at {CORRELATION:g}."]  # fmt: skip
    return "\n".join(out)


def _points(value: float, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f}" if abs(value) <= 1 else "none"  # detectable: only above 100 points


def _problem_cells(line: OfProblems) -> list[str]:
    c, signed = line.main, partial(_points, sign="+")
    sampled = "" if line.benchmark == ALL else " / ".join(dict.fromkeys(f"{s.samples:.4g}" for s in line.scores))
    cells = [line.benchmark or "score", line.problems, sampled, *(_points(score.value) for score in line.scores)]
    cells += [bracketed(signed(c.difference or 0.0), c.low, c.high, signed)]
    columns_of: list[tuple[Callable[[Any], str], list[float | None]]] = [
        ("{:.2g}".format, [c.p for c in line.found]),
        (_points, [c.detectable for c in line.found]),
        ("{:,}".format, [sizes.needed(c) for c in line.found]),
    ]
    for form, numbers in columns_of:
        texts = ["?" if number is None else form(number) for number in numbers]
        cells.append(texts[0] if len(set(texts)) == 1 else f"{texts[1]} ({texts[0]} to {texts[2]})")
    return cells


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
    print(of_scores(args.a, args.b))
    return 0


if __name__ == "__main__":
    errors.run(main)
