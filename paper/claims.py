"""`python -m paper.claims --results results/embedded`: write claims.csv, verdicts on the paper's claims.

A claim compares `a - b` (for a ratio: a / b), or `a` alone, in a measure with a constant: the rows of `claims.yaml`.
Scores are judged by the printed tables and by runs, formulas by the counts of `formulas.csv`, everything else by runs.
Without --results the table of docs/claims.md is printed: every claim, with the verdicts of the printed numbers.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from core import errors
from core.declared import Declared, Tuple, validated
from core.errors import Parser
from core.files import read_yaml, to_csv, write_text
from core.provenance import ROOT
from evals.stats.compare import detectable, holm, judge
from evals.tree import Tree, open_tree, plain
from paper import printed
from paper.evidence import MEASURES, RATIO, Arm, Contrast, Found, Gap, NotPlanned, Printed, Runs, by_cells, of_formula
from paper.printed import MODELS, Paper
from paper.verdicts import COLUMNS, EQUAL, FORMULA, PRINT, RUNS, UNTESTABLE, figure

CLAIMS = ROOT / "paper/claims.yaml"
STEPS = 72  # rollouts of every printed row but Table 4's second look


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
    ranked = holm(p) if against else p
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
            own = holm(tested)[places.index(n)], len(tested) - tested.count(None)
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
    if found.at_least or any(judge(each.seen, margin, side) != EQUAL for each in one.found):
        margin = 0.0  # equal only where every contrast is
    verdict, reason, beats = judge(seen, margin, side, p_holm), "", ""
    if found.at_least and (seen.difference or 0.0) < 0:
        verdict, reason = "undecided", "runs never get there: the truth may lie above the null"
    elif verdict == "undecided" and judge(seen, side=side, p=0.0) != verdict:
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
            if judge(seen, side=claim.side) != "supported":
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
    places |= {"margin_low": margin and -margin, "detectable": detectable(seen.se, seen.df, tests)}
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
