"""`python -m paper.claims --results results/embedded`: write claims.csv and claims.md, verdicts on the paper's claims.

A claim is `a - b` (for a ratio: a / b), or `a` alone, in a measure, against a constant: the rows of `claims.yaml`.
Scores are judged by the printed tables and by runs, formulas by the counts of `formulas.csv`, everything else by runs.
Without --results the table of docs/claims.md is printed: every claim, with the verdicts of the printed numbers.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from core import errors
from core.declared import Declared, Tuple, validated
from core.errors import ConfigError, Parser, unknown
from core.files import read_csv, read_yaml, to_csv, write_text
from core.provenance import ROOT
from evals.stats.compare import detectable_in_family, holm, judge
from evals.stats.estimate import Comparison
from evals.tree import Tree, open_tree, plain
from paper import chance, printed
from paper.contrasts import MEASURES, RATIO, Arm, Found, Gap, Pair, Runs, placebo
from paper.printed import MODELS
from paper.verdicts import COLUMNS, EQUAL, FORMULA, MEANING, PRINT, RUNS, figure, page

CLAIMS, FORMULAS = ROOT / "paper/claims.yaml", ROOT / "paper/formulas.csv"
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


class ClaimsFile(Declared):
    instead: dict[str, dict[str, str]]  # model -> method -> the paper's settings of it on that model
    claims: Tuple[Claim]


@cache
def read_claims(path: Path = CLAIMS) -> ClaimsFile:
    """Read all claims. Raises ConfigError naming file, claim, key and the nearest known name."""
    file = validated(ClaimsFile, read_yaml(path), str(path))
    rows = {id for id, row in printed.read().items() if row.run or row.kind == "mean"}
    for n, claim in enumerate(file.claims):
        where, names = f"{path}: {claim.id}", [*claim.a, *claim.b]
        if claim.id in [other.id for other in file.claims[:n]]:
            raise ConfigError(f"{where}: is given twice")
        checks = _formulas() if claim.measure == "holds" else [*rows, *(name for name in names if name[:1] != "T")]
        for key, given, known in (
            ("measure", [claim.measure], MEASURES), ("models", claim.models, MODELS), ("a, b", names, checks)
        ):  # fmt: skip
            for name in given:
                if name not in known:
                    raise unknown(where, key, name, known)
    return file


def contrasts(claim: Claim) -> list[list[Pair]]:
    """Return pairs of arms by contrast: methods are compared over all models, printed rows pairwise on one model."""
    rows, instead = printed.read(), read_claims().instead

    def arms(name: str) -> list[Arm]:
        if name in rows:
            run = rows[(rows[name].of or (name,))[0]].run
            return [Arm(run.model, run.method, run.steps, name)] if run and run.steps else []
        found = []
        for model in claim.models:
            method = instead.get(model, {}).get(name, name)
            same = (row for row in rows.values() if row.run and row.run[:2] == (model, method) and row.run[3] == STEPS)
            row = next(same, None)
            found.append(Arm(model, method, STEPS, row.id if row else ""))
        return found

    if not claim.b:
        return [[(arm, None) for name in claim.a for arm in arms(name)]]
    pairs = [[(x, y) for x in arms(a) for y in arms(b) if x.model == y.model] for a in claim.a for b in claim.b]
    return [list(each) for each in pairs if each]


def null(claim: Claim) -> float:
    """Return the tested value, for a ratio its logarithm."""
    if MEASURES[claim.measure].unit == RATIO:
        return math.log(1.0 if claim.at is None else claim.at)
    return claim.at or 0.0


# Verdicts.


class Asked(NamedTuple):
    """A claim with one source of numbers, and the contrasts found, or why there are none."""

    claim: Claim
    source: str
    runs: Runs | None
    found: Sequence[Found]
    gap: str = ""


def weakest(found: Sequence[Found], side: str) -> tuple[Found, float | None]:
    """Return the contrast that decides, and its p before Holm over claims.

    A claim of several contrasts holds where all are on its side: its p is the largest (an intersection-union test needs
    no correction). It fails where one is on the other side, which may happen by chance: Holm over them.
    """
    p = [one.difference.p for one in found]
    values = [(one.difference.difference or 0.0) * (1 if side == "above" else -1) for one in found]
    corrected = holm(p)
    if any(value < 0 for value in values):
        n = min((n for n, value in enumerate(values) if value < 0), key=lambda n: _last_if_none(corrected[n]))
        return found[n], corrected[n]
    if 0.0 in values:
        return found[values.index(0.0)], None if set(p) == {None} else 1.0
    n = max(range(len(p)), key=lambda n: _last_if_none(p[n]))
    return found[n], p[n]


def _last_if_none(p: float | None) -> float:
    return 2.0 if p is None else p


def judged(asked: Iterable[Asked], *, stand_ins: bool = False) -> list[dict[str, Any]]:
    """Judge claims; return rows of claims.csv. Claims of one family and the same settings share one Holm correction."""
    rows: list[dict[str, Any]] = []

    def family(one: Asked) -> tuple[str, str, str]:
        return one.claim.family, one.source, (one.runs and one.runs.variant) or ""

    for _, group in groupby(sorted(asked, key=family), key=family):
        members = [(one, weakest(one.found, one.claim.side) if one.found else None) for one in group]
        untestable = [stand_ins and (one.source, one.claim.measure) == (RUNS, "score") for one, _ in members]
        p = [None if no or seen is None else seen[1] for no, (_, seen) in zip(untestable, members, strict=True)]
        tests = sum(each is not None for each in p)
        for (one, seen), no, p_holm in zip(members, untestable, holm(p), strict=True):
            about = {name: getattr(one.claim, name) for name in ("id", "family", "where", "quote", "untested")}
            about |= {"source": one.source, "statement": one.claim.tests, "claimed": one.claim.side}
            row = dict.fromkeys(COLUMNS) | about | {"verdict": "not tested", "reason": one.gap, "placebo": ""}
            row["setting"] = one.runs and one.runs.variant
            if seen is not None:
                p_holm, n = seen[0].corrected or (p_holm, tests)
                row |= _figures(one, seen[0], n or 1) | {
                    "p": seen[1],
                    "p_holm": p_holm,
                    "tests": None if p_holm is None else n,
                }
            if no:
                row["verdict"] = tuple(MEANING)[-1]
            elif seen is not None:
                row |= _verdict(one, seen[0], p_holm, row["tests"] or 0)
            rows.append(row)
    order = [claim.id for claim in read_claims().claims]
    return sorted(rows, key=lambda row: order.index(row["id"]))


def _verdict(one: Asked, found: Found, p_holm: float | None, tests: int) -> dict[str, str]:
    seen, claim, margin = found.difference, one.claim, _margin(one)
    if p_holm is None and seen.low is None:
        return {"verdict": "undecided", "reason": seen.how}
    if found.at_least or any(judge(each.difference, margin) != EQUAL for each in one.found):
        margin = 0.0  # equal only where every contrast is
    verdict, reason, beats = judge(seen, margin, claim.side, p_holm), "", ""
    if found.at_least and (seen.difference or 0.0) < 0:
        verdict, reason = "undecided", "runs never get there: the truth may lie above the null"
    elif verdict == "undecided" and judge(seen, side=claim.side, p=0.0) != verdict:
        reason = f"the interval excludes the null, but not after Holm's correction over {tests} claims"
    if verdict == "supported" and one.runs and MEASURES[claim.measure].learnt:
        beats, reason = placebo(claim.measure, claim.side, contrasts(claim), one.runs)
        verdict = "undecided" if reason else verdict
    return {"verdict": verdict, "reason": reason, "placebo": beats}


def _margin(one: Asked) -> float:
    """Return the margin, for runs only; for a ratio its logarithm."""
    margin = one.claim.margin if one.runs else 0.0
    return math.log1p(margin) if MEASURES[one.claim.measure].unit == RATIO else margin


def _figures(one: Asked, found: Found, tests: int) -> dict[str, Any]:
    """Return the cells in the measure's unit. detectable: the smallest distance from the null found in 80 % of
    repetitions, as one of so many tests."""
    seen, claim = found.difference, one.claim
    margin = _margin(one) or None
    places = {"estimate": seen.difference, "null": 0.0, "low": seen.low, "high": seen.high, "margin_high": margin}
    places |= {"margin_low": margin and -margin, "detectable": detectable_in_family(seen, tests)}
    shown = math.exp if MEASURES[claim.measure].unit == RATIO else float
    row: dict[str, Any] = {name: None if x is None else shown(x + null(claim)) for name, x in places.items()}
    row["detectable"] = row["detectable"] and row["detectable"] - row["null"]
    row |= {"unit": MEASURES[claim.measure].unit, "n": seen.n, "how": seen.how}
    return row | {
        "seeds": tuple(sorted({run.seed for run in found.runs})),
        "runs": tuple(f"runs/{run.path.as_posix()}" for run in found.runs),
    }


# Which numbers decide which claims.


def of_paper() -> list[dict[str, Any]]:
    """Judge the claims by the printed tables and the formulas, which do not depend on runs.

    Printed claims are judged twice, with the printed averages and with those implied by their rows' cells. Where the
    verdicts differ the claim is undecided: the paper does not show which of the two is right.
    """
    claims = read_claims().claims
    formulas = [Asked(c, FORMULA, None, [Found(_share(c))]) for c in claims if c.measure == "holds"]
    as_printed, by_cells = (
        judged(
            Asked(
                claim,
                PRINT,
                None,
                [Found(chance.difference(_rows(c), null(claim), by_cells)) for c in contrasts(claim)],
            )
            for claim in claims
            if claim.measure == "score"
        )
        for by_cells in (False, True)
    )
    for row, other in zip(as_printed, by_cells, strict=True):
        if row["verdict"] != other["verdict"]:
            row["reason"] = f"with averages that follow from the cells {other['verdict']}, as printed {row['verdict']}"
            row["verdict"] = "undecided"
    return [*as_printed, *judged(formulas)]


def _rows(pairs: Sequence[Pair]) -> list[tuple[str, str]]:
    return [(a.row, b.row) for a, b in pairs if b]


@cache
def _formulas() -> dict[str, dict[str, str]]:
    rows = read_csv(FORMULAS, "counts of the formulas", ("check", "holds", "policies", "drawn"))
    return {row["check"]: row for row in rows}


def _share(claim: Claim) -> Comparison:
    """Compare a share of random policies with the null: Clopper-Pearson interval, exact binomial test."""
    from scipy.special import bdtr, betaincinv

    row, at = _formulas()[claim.a[0]], null(claim)
    k, n = int(row["holds"]), int(row["policies"])
    low = float(betaincinv(k, n - k + 1, 0.025)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    p = min(1.0, 2 * min(float(bdtr(k, n, at)), 1.0 - float(bdtr(k - 1, n, at)) if k else 1.0))
    how = f"{k} of {n} {row['drawn']}"
    return Comparison(difference=k / n - at, low=low - at, high=high - at, p=p, level="problem", how=how, n=n)


def of_tree(tree: Tree) -> list[dict[str, Any]]:
    """Judge the claims by a tree's runs, under its settings and under each variant that it plans."""
    variants = [  # controls serve as comparisons; claims are not judged under them
        name
        for name, variant in tree.matrix.get("variants", {}).items()
        if not {"reward", "stream"} & variant.get("changes", {}).keys()
    ]
    asked = []
    for claim in read_claims().claims:
        for runs in [Runs(tree), *(Runs(tree, name) for name in variants)] if claim.measure != "holds" else []:
            try:
                found = [runs.contrast(pairs, claim.measure, null(claim)) for pairs in contrasts(claim)]
            except Gap as gap:
                if gap.planned or runs.variant is None:
                    asked.append(Asked(claim, RUNS, runs, (), str(gap)))
            else:
                asked.append(Asked(claim, RUNS, runs, found))
    # Models or benchmarks of the tree that stand in for the paper's: scores are then not about the paper's.
    parts = [*((m, m["title"]) for m in tree.models), *((b, b["key"]) for b in tree.benchmarks)]
    return judged(asked, stand_ins=any(plain(part.get("stands_for") or own) != plain(own) for part, own in parts))


def table() -> str:
    """Return the table of docs/claims.md."""
    verdicts = {row["id"]: f"{row['verdict']}, {figure(row)}" for row in of_paper()}
    lines = [("tested statement", "printed numbers or formula"), ("---", "---")]
    lines += [(f"`{claim.id}`: {claim.tests}", verdicts.get(claim.id, "")) for claim in read_claims().claims]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = Parser(description="Give each claim of the paper a verdict.")
    parser.add_argument("--results", type=Path, help="results/<scale>: write claims.csv and claims.md there")
    args = parser.parse_args()
    if args.results is None:
        print(table())
        return
    tree = open_tree(args.results)
    rows = sorted([*of_paper(), *of_tree(tree)], key=lambda row: [c.id for c in read_claims().claims].index(row["id"]))
    families: dict[str, list[str]] = {}  # with injected noise, less entropy is fewer errors by construction
    for model in tree.models:
        stand_in = f" for {model['stands_for']}" if model.get("stands_for") else ""
        families.setdefault(model["bases"], []).append(model["title"] + stand_in)
    bases = "; ".join(f"{', '.join(titles)} ({family})" for family, titles in families.items())
    about = f"{tree.matrix['title']}. {tree.matrix.get('note', '')}".strip(), f"Models, with their bases: {bases}."
    write_text(tree.root / "claims.csv", to_csv(COLUMNS, rows))
    write_text(tree.root / "claims.md", page(rows, *about))
    counts = Counter(row["verdict"] for row in rows if row["source"] == RUNS)
    print(f"{tree.root / 'claims.md'}  {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}")


if __name__ == "__main__":
    errors.run(main)
