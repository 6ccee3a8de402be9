"""`python -m paper.claims --results results/embedded`: write claims.csv, verdicts on the paper's claims.

A claim compares `a - b` (for a ratio: a / b), or `a` alone, in a measure with a constant: the rows of `claims.yaml`.
Scores are judged by the printed tables and by runs, formulas by the counts of `formulas.csv`, everything else by runs.
Without --results the table of docs/claims.md is printed: every claim, with the verdicts of the printed numbers.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache, cached_property
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean, mean
from typing import Any, Literal, NamedTuple

from core import errors
from core.declared import Declared, Tuple, validated
from core.errors import Parser
from core.files import read_csv, read_yaml, to_csv, write_text
from core.layout import Checkpoint, Run
from core.provenance import ROOT
from evals import learning_curves
from evals.learning_curves import WINDOW, read_curve, running_mean
from evals.stats import compare, intervals
from evals.stats.estimate import Comparison
from evals.tree import Tree, open_tree, plain
from paper import printed
from paper.printed import AVERAGE, COLUMN, LONG_STEPS, MODELS, POOL, RESPONSES, SPREAD, Paper, counts, measured
from paper.verdicts import COLUMNS, EQUAL, FORMULA, LEAST_ROLLOUTS, PRINT, RULE, RUNS, UNTESTABLE, figure

CLAIMS = ROOT / "paper/claims.yaml"
FORMULAS, AUDIT = ROOT / "paper/formulas.csv", ROOT / "paper/audit.csv"
STEPS = 72  # rollouts of every printed row but Table 4's second look
MATCHED = "sweep/matched.csv"  # a sweep's results at equal movement
RATIO = "ratio"  # unit of a / b, which is compared by its logarithm: twice and half are equally far from 1
UNBOUNDED, SHARE = (-math.inf, math.inf), (0.0, 1.0)  # what a measure can be
NORMAL = 1e6  # degrees of freedom at which Student's t is the normal distribution


# Numbers that decide a claim: `a - b` from the printed tables, from the counts of formulas, or from a tree's runs.


class Measure(NamedTuple):
    unit: str
    bounds: tuple[float, float] = UNBOUNDED
    learnt: bool = False  # learnt from the reward: a placebo reward must show less of it
    column: str = ""  # of curve.csv; "": a score, or a measure of `evals.learning_curves`
    of: Callable[[Sequence[float]], float] = fmean  # of the column's figures by rollout


MEASURES = {
    "score": Measure("points", SHARE, learnt=True),
    "area": Measure("reward", SHARE, learnt=True),
    "to_grpo": Measure(RATIO, learnt=True),
    "grad_norm": Measure(RATIO),
    "clip_tokens": Measure("fraction of tokens", SHARE),
    "entropy_end": Measure("nats per token", (0.0, math.inf)),
    "entropy_fall": Measure("nats per token", column="entropy", of=lambda entropy: entropy[0] - entropy[-1]),
    # the mean loss from one rollout to the next, over all steps (0 where it rose)
    "reward_falls": Measure("reward", SHARE, True, "reward", lambda r: fmean(max(0.0, a - b) for a, b in pairwise(r))),
    # at rollout 24, or at the end of a shorter run: a collapse ends a run
    "reward_at_24": Measure("reward", SHARE, column="reward", of=lambda reward: running_mean(reward[:24])[-1]),
    # of tokens on which entropy moves against the sign of the advantage
    "sign_agreement": Measure("share", SHARE, column="theorem_sign_agreement"),
    "equal_movement": Measure("reward", SHARE),  # area, at equal movement of the policy
    "holds": Measure("share", SHARE),  # of random policies on which a formula holds
}


class Arm(NamedTuple):
    """One side of a contrast on one model."""

    model: str  # a key of `printed.MODELS`
    method: str
    steps: int
    row: str  # the printed row; "" where no row has this method


Contrast = Sequence[tuple[Arm, Arm | None]]


class Found(NamedTuple):
    """One contrast: its difference from the null, on a log scale for a ratio."""

    seen: Comparison
    runs: Sequence[Run] = ()
    at_least: bool = False  # a run of a never reached it: the true value may be larger, never smaller
    corrected: tuple[float | None, int] | None = None  # p after Holm over this many tests, where a file has it


class Gap(Exception):  # noqa: N818 - not an error
    """Raised, with a reason, where a value does not exist."""


class NotPlanned(Gap):
    """Raised where the plan does not include the value."""


def of_formula(check: str, null: float) -> Found:
    """Compare a share of random policies with the null: Clopper-Pearson interval, exact binomial test."""
    from scipy.stats import binomtest

    rows = read_csv(FORMULAS, "counts of formulas", ("check", "holds", "policies", "drawn"))
    row = {row["check"]: row for row in rows}[check]
    k, n = int(row["holds"]), int(row["policies"])
    ends = binomtest(k, n).proportion_ci(method="exact")
    p = min(1.0, *(2 * float(binomtest(k, n, null, side).pvalue) for side in ("less", "greater")))
    how = f"{k} of {n} {row['drawn']}"
    low, high = float(ends.low) - null, float(ends.high) - null
    return Found(Comparison(difference=k / n - null, low=low, high=high, p=p, level="problem", how=how, n=n))


def by_cells(paper: Paper) -> Paper:
    """Return the paper, with the middle of what its cells imply in place of each average that does not follow."""
    rows = read_csv(AUDIT, "audit of the printed tables", ("row", "check", "admissible", "status"))
    outside = {row["row"]: row["admissible"].split("..") for row in rows if row["status"] == "outside"}
    values = {row.id: mean(map(Decimal, outside.get(row.id, [row.avg]))) for row in measured(paper)}
    values |= {id: mean(values[part] for part in row.of) for id, row in paper.items() if row.kind == "mean"}
    return {id: replace(paper[id], cells={**paper[id].cells, AVERAGE: value}) for id, value in values.items()}


@dataclass(frozen=True)
class Printed:
    """Printed averages, and how far apart chance alone would put them.

    There are two estimates of chance, and the wider interval is used:
    - generation alone, from the counts behind the cells; normal distribution. Training adds to it.
    - Table 4's three pairs of seeds: the mean of their squared distances, divided by what generation alone predicts, is
      a factor applied to all rows and models; Student-t with 3 degrees of freedom.
    Mean rows (Table 4) are means of that many runs. A benchmark printed as "-" adds nothing, as in the paper's average.
    """

    paper: Paper

    def contrast(self, pairs: Contrast, null: float) -> Found:
        """Compare the mean over pairs of a's average minus b's with the null (fractions)."""
        rows = [(a.row, b.row) for a, b in pairs if b]
        value = fmean(self._apart(*pair) for pair in rows)
        n = [[len(self.paper[id].of) or 1 for id in pair] for pair in rows]  # runs behind each side
        variances = [(1 / m + 1 / k) / 2 * self._sd(*pair) ** 2 for pair, (m, k) in zip(rows, n, strict=True)]
        se, pairs_of_seeds = math.sqrt(math.fsum(variances)) / len(rows), self._variance_of_seeds
        wide = se * math.sqrt(fmean(pairs_of_seeds))
        # By chance, three pairs of seeds can be closer together than generation alone allows; then generation decides.
        laws = (se, NORMAL, "generation noise"), (wide, len(pairs_of_seeds), "Table 4's pairs of seeds")
        se, df, how = max(laws, key=lambda law: law[0] * float(intervals.quantile(law[1])))
        return Found(compare.t_test(value - null, se, df, bounds=UNBOUNDED, level="seed", how=how, n=min(map(min, n))))

    def _apart(self, a: str, b: str) -> float:
        return float(self.paper[a].avg) / 100 - float(self.paper[b].avg) / 100

    def _sd(self, a: str, b: str) -> float:
        """Return the sd of the difference of two single runs' averages by generation alone, as a fraction.

        Mean p_i(1 - p_i) is p(1 - p) SPREAD/(1 + SPREAD), p the share that the two have right, and the difference has
        twice that variance over n. Greedy answers count as one draw: two trainings differ on a problem as often as two
        draws would.
        """
        rows, variance = [self.paper[part] for id in (a, b) for part in self.paper[id].of or (id,)], 0.0
        for key, n in COLUMN.items():
            p = sum(sum(counts(row.cells[key], n)) for row in rows) / (2 * n * len(rows))
            variance += (POOL[key] / RESPONSES) ** 2 * 2 * p * (1 - p) * SPREAD / (1 + SPREAD) / n
        return math.sqrt(variance)

    @cached_property
    def _variance_of_seeds(self) -> list[float]:
        """Return the variance of each pair of runs that differ only in their seed, over that of generation alone.

        A ratio, not a variance: it applies to rows with other scores, whose generation noise differs.
        """
        # the last of a run's rows, in a table of seeds
        rows = {row.run: row.id for row in measured(self.paper) if row.run}
        pairs = [(rows[a], rows[b]) for a, b in combinations(rows, 2) if a._replace(seed=b.seed) == b]
        return [(self._apart(*pair) / self._sd(*pair)) ** 2 for pair in pairs]


BySeed = dict[str, dict[int, float]]  # model -> seed -> value


@dataclass(frozen=True)
class Runs:
    """Runs of a tree under the scale's settings, or those of a variant. Methods raise `Gap`."""

    tree: Tree
    variant: str | None = None

    def contrast(self, pairs: Contrast, measure: str, null: float) -> Found:
        """Compare a - b with the null: by seed on one model, by the models' means on several."""
        if measure == "equal_movement":
            if not self.tree.matrix["training"].get("kl_target"):
                return self._matched(pairs)
            measure = "area"  # every rollout of this scale moves the policy equally far
        found, used = self.differences(pairs, measure)
        low, top = MEASURES[measure].bounds
        low, top = (low, top) if pairs[0][1] is None else (low - top, top - low)
        nulls = {model: dict.fromkeys(by_seed, null) for model, by_seed in found.items()}
        return Found(self.compare(found, nulls, (low - null, top - null)), list(used), any(used.values()))

    def compare(self, a: BySeed, b: BySeed, bounds: tuple[float, float] = UNBOUNDED) -> Comparison:
        """Compare two sides: paired by clean model or seed on one model (Welch's t if their seeds differ), else by
        the models' means."""
        sides = [[compare.by_clean_model(side[m], self.tree.clean_models(m)) for m in a] for side in (a, b)]
        if len(a) > 1:
            means = ({n: fmean(values.values()) for n, values in enumerate(side)} for side in sides)
            found = compare.compare_seeds(*means, bounds=bounds)
            return replace(found, how=found.how.replace("seed", "model"))
        ((model, by_seed),) = a.items()
        if by_seed.keys() == b[model].keys():
            return compare.compare_seeds(by_seed, b[model], bounds=bounds, clusters=self.tree.clean_models(model))
        x, y = (intervals.seed_mean(list(side[0].values())) for side in sides)
        n, value = min(len(side[0]) for side in sides), float(x.value - y.value)
        se, df = map(float, intervals.welch([x.se, y.se], [x.df, y.df]))
        if n < 2 or se < compare.ROUNDING:
            return Comparison(difference=value, how=compare.ONE_SEED if n < 2 else compare.EQUAL_SEEDS, n=n)
        return compare.t_test(value, se, df, bounds=bounds, level="seed", how="Welch's t over seeds", n=n)

    def differences(self, pairs: Contrast, measure: str) -> tuple[BySeed, dict[Run, bool]]:
        """Return a - b by model and seed (without b: the mean over a's), and by run whether it is a lower bound."""
        found: dict[str, dict[int, list[float]]] = {}
        used: dict[Run, bool] = {}
        absent: dict[str, None] = {}
        for pair in pairs:
            sides = [(arm, {run.seed: run for run in self.planned(arm)}) for arm in pair if arm]
            absent |= {arm.method: None for arm, runs in sides if not runs}
            for seed in (seed for seed in sides[0][1] if all(seed in runs for _, runs in sides)):
                values = []
                for arm, runs in sides:
                    value, used[runs[seed]] = self._value(runs[seed], arm, measure)
                    values.append(value)
                by_seed = found.setdefault(sides[0][1][seed].model, {})
                by_seed.setdefault(seed, []).append(values[0] - sum(values[1:]))
        if not found:
            raise NotPlanned(f"not part of this scale: {', '.join(absent)}") if absent else Gap("no seed in common")
        return {m: {s: fmean(v) for s, v in by_seed.items()} for m, by_seed in found.items()}, used

    def planned(self, arm: Arm) -> list[Run]:
        """Return the runs of an arm; empty where the scale has no such model or method."""
        model = self.tree.model_for(arm.model, MODELS[arm.model])
        method = self.tree.method_for(arm.method + (f"@{self.variant}" if self.variant else ""))
        if model is None or method is None:
            return []
        runs = [run for run in self.tree.averaged if (run.model, run.method) == (model["key"], method)]
        rollouts = self.tree.matrix.get("training", {}).get("rollouts")  # None: up to the last checkpoint
        if runs and (rollouts or min(max(self.tree.runs[run]["steps"]) for run in runs)) < LEAST_ROLLOUTS:
            raise Gap(RULE)
        return runs

    def _value(self, run: Run, arm: Arm, measure: str) -> tuple[float, bool]:
        """Return a run's value (for a ratio its logarithm), and whether it is only a lower bound."""
        where, (unit, _, _, column, of) = f"runs/{run.path.as_posix()}", MEASURES[measure]
        if measure == "score":
            step = self.tree.matrix.get("long_step" if arm.steps == LONG_STEPS else "table_step")
            if step is None or Checkpoint(run, step) not in self.tree.evaluated:
                raise NotPlanned(f"not part of this scale: a second look at {where}")
            score = learning_curves.figure(self.tree, Checkpoint(run, step), "avg_pooled")
            if score is None or step < LEAST_ROLLOUTS:
                raise Gap(f"missing {where}: no score of step {step}" if score is None else RULE)
            return score, False
        measures = self.tree.once(learning_curves.measure_run, run)
        if not measures.finished:
            raise Gap(f"missing {where}")
        if column:
            curve = read_curve(self.tree.layout.run(run) / "curve.csv")
            values = curve.known(column, aggregate="first" if column == "reward" else "mean")
            value = of(values) if len(values) >= WINDOW else None
        else:
            value = measures.values[measure]
        if never := value is None and measure == "to_grpo":
            value = measures.planned + 1.0  # the smallest number that the run does not rule out
        if value is None:
            raise Gap(f"{where}: {measure}: {measures.why.get(measure, 'not defined')}")
        if unit == RATIO and value <= 0:
            raise Gap(f"{where}: {measure} of {value:g}: no ratio")
        return (math.log(value), never) if unit == RATIO else (value, False)

    def _matched(self, pairs: Contrast) -> Found:
        """Read a sweep's result over several step sizes, with its correction over all its methods."""
        ((a, b),) = pairs
        path, model = self.tree.root / MATCHED, self.tree.model_for(a.model, MODELS[a.model])
        if self.variant or model is None or b is None or not path.is_file():
            raise NotPlanned("not part of this scale: several step sizes of one method")
        wanted = {"model": str(model["key"]), "measure": "area", "row": a.method, "versus": b.method}
        numbers = ("difference", "difference_low", "difference_high", "se", "p", "df", "p_holm", "tests")
        needed = (*wanted, *numbers, "how", "seeds")
        rows = read_csv(path, "methods at equal movement", needed, allow_empty=True)  # a sweep without the baseline
        row = next((row for row in rows if wanted.items() <= row.items()), None)
        if row is None:
            raise NotPlanned(f"not part of this scale: a sweep of {a.method} and {b.method}")
        if not row["difference"]:
            raise Gap(row["how"])
        value, low, high, se, p, df, p_holm, tests = (float(row[name]) if row[name] else None for name in numbers)
        seeds = [int(seed) for seed in row["seeds"].split()]
        seen = Comparison(difference=value, low=low, high=high, se=se, p=p, df=df, how=row["how"], n=len(seeds))
        runs = [run for arm in (a, b) for run in self.planned(arm) if run.seed in seeds]
        return Found(seen, runs, corrected=(p_holm, int(tests or 0)))


# Claims and their verdicts.


class Claim(Declared):
    """One claim of claims.yaml; the comment at the top of that file explains the keys."""

    id: str
    family: str
    where: str
    quote: str
    tests: str
    untested: str = ""
    a: Tuple[str]
    b: Tuple[str] = ()
    measure: str
    at: float | None = None
    side: Literal["above", "below"] = "above"
    margin: float = 0.0
    models: Tuple[str] = tuple(MODELS)

    @property
    def is_ratio(self) -> bool:
        return MEASURES[self.measure].unit == RATIO

    @property
    def null(self) -> float:
        """The tested value, for a ratio its logarithm."""
        return math.log(self.at or 1.0) if self.is_ratio else self.at or 0.0


class ClaimsFile(Declared):
    instead: dict[str, dict[str, str]]  # model -> method -> the paper's settings of it on that model
    claims: Tuple[Claim]


@cache
def read_claims(path: Path = CLAIMS) -> ClaimsFile:
    """Read all claims. Raises ConfigError naming file, key and value."""
    return validated(ClaimsFile, read_yaml(path), str(path))


def contrasts(claim: Claim, paper: Paper) -> list[Contrast]:
    """Return pairs of arms by contrast: methods are compared over all models, printed rows pairwise on one model."""

    def arms(name: str) -> list[Arm]:
        if name in paper:
            run = paper[(paper[name].of or (name,))[0]].run
            return [Arm(run.model, run.method, run.steps, name)] if run and run.steps else []
        methods = [(model, read_claims().instead.get(model, {}).get(name, name)) for model in claim.models]
        rows = {row.run[:2]: row.id for row in reversed([*paper.values()]) if row.run and row.run.steps == STEPS}
        return [Arm(*method, STEPS, rows.get(method, "")) for method in methods]

    if not claim.b:
        return [[(arm, None) for name in claim.a for arm in arms(name)]]
    pairs = [[(x, y) for x in arms(a) for y in arms(b) if x.model == y.model] for a in claim.a for b in claim.b]
    return [each for each in pairs if each]


class Case(NamedTuple):
    """A claim, and its contrasts in the runs of a tree (else in printed numbers or formulas), or why there are none."""

    claim: Claim
    found: Sequence[Found]
    runs: Runs | None = None
    gap: str = ""

    @property
    def family(self) -> tuple[str, str, str | None]:
        """The family of claims, source and setting that share a correction."""
        source = RUNS if self.runs else FORMULA if self.claim.measure == "holds" else PRINT
        return self.claim.family, source, self.runs.variant if self.runs else None

    @property
    def margin(self) -> float:
        """The margin, for runs only; for a ratio its logarithm."""
        margin = self.claim.margin if self.runs else 0.0
        return math.log1p(margin) if self.claim.is_ratio else margin


def weakest(found: Sequence[Found], side: str) -> tuple[Found, float | None]:
    """Return the contrast that decides, and its p before Holm over claims.

    A claim of several contrasts holds where all are on its side: its p is the largest (an intersection-union test needs
    no correction). It fails where one is on the other side, which may happen by chance: Holm over them.
    """
    values = [(1 if side == "above" else -1) * (one.seen.difference or 0.0) for one in found]
    against = [n for n, value in enumerate(values) if value < 0]
    p = [one.seen.p for one in found]
    if not against and 0.0 in values:
        return found[values.index(0.0)], None if set(p) == {None} else 1.0
    ranked = compare.holm(p) if against else p
    rank = [math.inf if each is None else each for each in ranked]
    n = min(against, key=rank.__getitem__) if against else rank.index(max(rank))
    return found[n], ranked[n]


def judged(cases: Sequence[Case], *, stand_ins: bool = False) -> list[dict[str, Any]]:
    """Judge claims; return a row of claims.csv for each. Claims of one family, source and setting share one Holm
    correction. stand_ins: scores of runs are not testable."""
    seen = [weakest(one.found, one.claim.side) if one.found else (None, None) for one in cases]
    testable = [not (stand_ins and one.runs and one.claim.measure == "score") for one in cases]
    rows = []
    for n, (one, (found, p), fit) in enumerate(zip(cases, seen, testable, strict=True)):
        (_, source, setting), places = one.family, [k for k, other in enumerate(cases) if other.family == one.family]
        tested = [seen[k][1] if testable[k] else None for k in places]
        row = dict.fromkeys(COLUMNS) | one.claim.model_dump(include={"id", "family", "where", "quote", "untested"})
        row |= {"source": source, "setting": setting, "statement": one.claim.tests, "claimed": one.claim.side}
        row |= {"verdict": "not tested" if fit else UNTESTABLE, "reason": one.gap, "placebo": ""}
        if found:
            own = compare.holm(tested)[places.index(n)], len(tested) - tested.count(None)
            p_holm, tests = found.corrected or own
            row |= _figures(one, found, tests or 1)
            row |= {"p": p, "p_holm": p_holm, "tests": None if p_holm is None else tests}
            row |= _verdict(one, found, p_holm, tests) if fit else {}
        rows.append(row)
    return rows


def _verdict(one: Case, found: Found, p_holm: float | None, tests: int) -> dict[str, str]:
    seen, side, margin = found.seen, one.claim.side, one.margin
    if p_holm is None and seen.low is None:
        return {"verdict": "undecided", "reason": seen.how}
    if found.at_least or any(compare.judge(each.seen, margin, side) != EQUAL for each in one.found):
        margin = 0.0  # equal only where every contrast is
    verdict, reason, beats = compare.judge(seen, margin, side, p_holm), "", ""
    if found.at_least and (seen.difference or 0.0) < 0:
        verdict, reason = "undecided", "runs never get there: the truth may lie above the null"
    elif verdict == "undecided" and compare.judge(seen, side=side, p=0.0) != verdict:
        reason = f"the interval excludes the null, but not after Holm's correction over {tests} claims"
    if verdict == "supported" and one.runs and MEASURES[one.claim.measure].learnt:
        beats, reason = placebo(one.claim, one.runs)
        verdict = "undecided" if reason else verdict
    return {"verdict": verdict, "reason": reason, "placebo": beats}


def placebo(claim: Claim, runs: Runs) -> tuple[str, str]:
    """Return which placebo rewards a supported claim beats, and why it is undecided after all, or "".

    An effect that a random reward also shows is not due to the reward: each contrast under the true reward minus that
    under the placebo, paired by seed, must be on the claimed side. All placebos must be beaten, so their p need no
    correction. The placebo for given settings is a variant that also changes the reward, and nothing else.
    """
    changes = {name: dict(each.get("changes", {})) for name, each in runs.tree.matrix.get("variants", {}).items()}
    settings, pairs = changes.get(runs.variant or "", {}), contrasts(claim, printed.read())
    beaten, lacking = [], []
    for name, change in changes.items():
        if change.pop("reward", None) is None or change != settings:
            continue
        sides = runs, Runs(runs.tree, name)
        try:
            found = [[side.differences(each, claim.measure)[0] for side in sides] for each in pairs]
        except Gap:
            found = []
        shared = [{model: true[model] for model in under if model in true} for true, under in found]
        if not shared or not all(shared):
            lacking.append(name)
            continue
        for true, (_, under) in zip(shared, found, strict=True):
            seen = runs.compare(true, under)
            if compare.judge(seen, side=claim.side) != "supported":
                ends = "" if seen.low is None else f" [{seen.low:.3g}, {seen.high:.3g}]"
                return f"not beyond {name}", f"{seen.difference:.3g}{ends} beyond the placebo reward {name}"
        beaten.append(name)
    if not beaten:
        return "no placebo run", ""
    return f"beats {', '.join(beaten)}" + (f"; no run of {', '.join(lacking)}" if lacking else ""), ""


def _figures(one: Case, found: Found, tests: int) -> dict[str, Any]:
    """Return the cells in the measure's unit. detectable: the smallest distance from the null found in 80 % of
    repetitions, as one of so many tests."""
    seen, margin, null = found.seen, one.margin or None, one.claim.null
    places = {"estimate": seen.difference, "null": 0.0, "low": seen.low, "high": seen.high, "margin_high": margin}
    places |= {"margin_low": margin and -margin, "detectable": compare.detectable(seen.se, seen.df, tests)}
    shown = math.exp if one.claim.is_ratio else float
    row: dict[str, Any] = {name: None if x is None else shown(x + null) for name, x in places.items()}
    row["detectable"] = row["detectable"] and row["detectable"] - row["null"]
    row |= {"unit": MEASURES[one.claim.measure].unit, "n": seen.n, "how": seen.how}
    row["seeds"] = tuple(sorted({run.seed for run in found.runs}))
    return row | {"runs": tuple(f"runs/{run.path.as_posix()}" for run in found.runs)}


def of_paper(paper: Paper | None = None) -> list[dict[str, Any]]:
    """Judge the claims by the printed tables and the formulas, which do not depend on runs.

    Printed claims are judged twice, with the printed averages and with those implied by their rows' cells. Where the
    verdicts differ the claim is undecided: the paper does not show which of the two is right.
    """
    paper = printed.read() if paper is None else paper
    claims = read_claims().claims
    scores = [(claim, contrasts(claim, paper)) for claim in claims if claim.measure == "score"]
    as_printed, other = (
        judged([Case(claim, [chance.contrast(each, claim.null) for each in pairs]) for claim, pairs in scores])
        for chance in (Printed(paper), Printed(by_cells(paper)))
    )
    for row, verdict in zip(as_printed, (row["verdict"] for row in other), strict=True):
        if row["verdict"] != verdict:
            row["reason"] = f"with averages that follow from the cells {verdict}, as printed {row['verdict']}"
            row["verdict"] = "undecided"
    formulas = [Case(claim, [of_formula(claim.a[0], claim.null)]) for claim in claims if claim.measure == "holds"]
    return [*as_printed, *judged(formulas)]


def of_tree(tree: Tree) -> list[dict[str, Any]]:
    """Judge the claims by a tree's runs, under its settings and under each variant that it plans."""
    variants = sorted(tree.matrix.get("variants", {}).items())
    # controls are for comparison; claims are not judged under them
    settings = [None, *(name for name, each in variants if not {"reward", "stream"} & each.get("changes", {}).keys())]
    cases, paper = [], printed.read()
    for claim in (claim for claim in read_claims().claims if claim.measure != "holds"):
        pairs = contrasts(claim, paper)
        for runs in (Runs(tree, setting) for setting in settings):
            try:
                cases.append(Case(claim, [runs.contrast(each, claim.measure, claim.null) for each in pairs], runs))
            except Gap as gap:
                if runs.variant is None or not isinstance(gap, NotPlanned):
                    cases.append(Case(claim, (), runs, str(gap)))
    # Models or benchmarks of the tree that stand in for the paper's: scores are then not about the paper's.
    parts = [*((m, m["title"]) for m in tree.models), *((b, b["key"]) for b in tree.benchmarks)]
    return judged(cases, stand_ins=any(plain(part.get("stands_for") or own) != plain(own) for part, own in parts))


def table() -> str:
    """Return the table of docs/claims.md."""
    verdicts = {row["id"]: f"{row['verdict']}, {figure(row)}" for row in of_paper()}
    lines = [("tested statement", "printed numbers or formula"), ("---", "---")]
    lines += [(f"`{claim.id}`: {claim.tests}", verdicts.get(claim.id, "")) for claim in read_claims().claims]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = Parser(description="Give each claim of the paper a verdict.")
    parser.add_argument("--results", type=Path, help="results/<scale>: write claims.csv there")
    args = parser.parse_args()
    if args.results is None:
        print(table())
        return
    tree = open_tree(args.results)
    order = [claim.id for claim in read_claims().claims]
    rows = sorted([*of_paper(), *of_tree(tree)], key=lambda row: order.index(row["id"]))
    write_text(path := tree.root / "claims.csv", to_csv(COLUMNS, rows))
    counts = Counter(row["verdict"] for row in rows if row["source"] == RUNS)
    print(f"{path}  {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}")


if __name__ == "__main__":
    errors.run(main)
