"""Claims and a source of numbers -> entries. The claims of one family under one setting share one Holm correction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

from core.results_tree import Tree, plain
from evals.stats.compare import ALPHA, holm
from paper import printed
from paper.claims.claims import KINDS, Claim, Margin, Outcome, Question, Side, read_claims, rows_of, with_arms
from paper.claims.contrast import SCORE, Contrast, Gap, Source, listed
from paper.claims.entries import NO_RUN, Entry, Verdict, amount
from paper.claims.from_print import Prints
from paper.claims.from_runs import ROLLOUTS_UNTIL, Excess, Runs

# From contrasts to a verdict: which of them decides, how sure that is, and Holm over the claims of a family.


class Direction(NamedTuple):
    """What the numbers say before any correction over claims."""

    claimed: bool | None  # as claimed (True), the opposite (False), or neither (None)
    contrast: Contrast  # the one that decides
    p: float | None
    equal: bool  # every contrast lies inside its margin
    side: Side  # of the null, on which the claim puts the contrast


def direction(outcome: Outcome) -> Direction:
    """The weakest link of an outcome with m contrasts, of which `allow` may fail.

    The claim holds when m - allow contrasts are on the claimed side. Its p is the largest needed for that, times
    allow + 1 (Benjamini and Heller, Biometrics 64, 2008): where none may fail, an intersection-union test, in which
    demanding several things at once needs no correction. It fails when allow + 1 are on the other side. There any of
    the m could have been the one that fails by chance, so those p are Holm's over m. In neither case its p is 1: it was
    tested.
    """
    sign = 1.0 if outcome.side == "above" else -1.0
    distances = [None if c.value is None else sign * (c.value - c.null) for c in outcome.contrasts]
    corrected = holm([c.p for c in outcome.contrasts])
    as_claimed = [(_certainty(c.p), n) for n, c in enumerate(outcome.contrasts) if (distances[n] or 0.0) > 0]
    opposite = [(_certainty(p), n) for n, p in enumerate(corrected) if (distances[n] or 0.0) < 0]
    needed = len(outcome.contrasts) - outcome.allow
    equal = all(contrast.equal for contrast in outcome.contrasts)
    claimed: bool | None
    p_of_test: float | None
    if len(as_claimed) >= needed:
        p, n = sorted(as_claimed)[needed - 1]
        claimed, p_of_test = True, None if outcome.contrasts[n].p is None else min(1.0, (outcome.allow + 1) * p)
    elif len(opposite) > outcome.allow:
        _, n = sorted(opposite)[outcome.allow]
        claimed, p_of_test = False, corrected[n]
    else:  # show a contrast without a value if there is one, else the one furthest on the wrong side
        n = min(range(len(distances)), key=lambda n: (distances[n] is not None, distances[n] or 0.0))
        claimed, p_of_test = None, None if all(contrast.p is None for contrast in outcome.contrasts) else 1.0
    return Direction(claimed, outcome.contrasts[n], p_of_test, equal, outcome.side)


def _certainty(p: float | None) -> float:
    """A sort key: contrasts without a p come after all others."""
    return 2.0 if p is None else p


def verdicts_of_family(directions: Sequence[Direction]) -> list[tuple[Verdict, float | None]]:
    """Verdict and corrected p of each claim. Holm runs over a family, not over all claims: it is about one thing."""
    corrected = holm([each.p for each in directions])
    return [(_verdict(each, p), p) for each, p in zip(directions, corrected, strict=True)]


def _verdict(seen: Direction, p: float | None) -> Verdict:
    contrast = seen.contrast
    # Before the test: a difference that is outside noise and too small to matter is no support.
    if seen.equal:
        return "equal within the margin"
    if contrast.value is None:
        return "not tested"
    if seen.claimed is None or p is None or p >= ALPHA:
        return "undecided"
    if contrast.low is None or contrast.high is None or contrast.low <= contrast.null <= contrast.high:
        return "undecided"
    # A value that is only a lower bound says nothing about a true value below the null.
    if contrast.at_least and contrast.value < contrast.null:
        return "undecided"
    return "supported" if seen.claimed else "contradicted"


# Which claims are asked of which source.


@dataclass(frozen=True)
class Case:
    """A claim asked of a source."""

    entry: Entry  # before judging
    test: Question | str  # or why there is no test
    source: Source
    untestable: str | None = None  # why the answer is no test of the claim
    optional: bool = False  # a variant or reading: no entry where the scale does not have it
    margin: Margin | None = None  # of what is measured


def printed_entries() -> list[Entry]:
    """The ledger of the printed numbers.

    Each claim is judged twice: with the averages as printed, and with those that follow from their rows' cells. Where
    the verdicts differ it is undecided, because print cannot tell which of the two is right.
    """
    paper, claims = printed.read(), read_claims()
    by_cells = Prints(paper, follow_cells=True)
    entries, entries_by_cells = (
        judge([Case(_unjudged(claim, "paper", "paper"), claim.printed, source) for claim in claims])
        for source in (Prints(paper), by_cells)
    )
    return [_agreed(a, b, by_cells.replaced) for a, b in zip(entries, entries_by_cells, strict=True)]


def _agreed(as_printed: Entry, by_cells: Entry, replaced: Mapping[str, str]) -> Entry:
    notes = [replaced[id] for id in replaced if id in as_printed.runs or id in by_cells.runs]
    if not notes:
        return as_printed
    note = "; ".join(notes)
    if as_printed.verdict == by_cells.verdict:
        return replace(as_printed, reason="; ".join(part for part in (as_printed.reason, note) if part))
    reason = f"{note}: with these averages {by_cells.verdict}, as printed {as_printed.verdict}"
    return replace(as_printed, verdict="undecided", reason=reason)


def run_entries(tree: Tree, claims: Iterable[Claim] | None = None) -> list[Entry]:
    """The ledger of a results tree: each claim under the scale's own settings, each variant and each reading."""
    paper = with_arms(printed.read())
    claims = read_claims() if claims is None else claims
    tiny = stands_in(tree)
    own_settings = Runs(tree, paper)
    variants = {  # claims are compared with controls, and not judged under them
        name: Runs(tree, paper, variant=name)
        for name in tree.matrix.get("variants", {})
        if not {"reward", "stream"} & _changes(tree, name).keys()
    }
    rate = tree.matrix.get("training", {}).get("learning_rate")
    cases: list[Case] = []
    for claim in claims:
        entry = replace(_unjudged(claim, "ours", tree.scale), learning_rate=rate, needs=claim.needs)
        untestable = claim.untestable if tiny else None
        cases.append(Case(entry, claim.test, own_settings, untestable, margin=claim.margin))
        others: list[tuple[Runs, dict[str, Any]]] = []  # no entry where the scale does not have them
        # Five models are a small sample of models, whatever their seeds: the main model's seeds have their own line.
        if main := _main_model(claim, own_settings):
            others.append((Runs(tree, paper, only=main), {"model": main}))
        for name, source in variants.items():
            if claim.test.kind != "algebra":  # a formula holds or not whatever the training settings are
                changed = _changes(tree, name).get("training.learning_rate", rate)
                others.append((source, {"variant": name, "learning_rate": changed}))
        for label, instead in claim.declared.readings.items():
            statement = f"{entry.statement} Read as: {label}."
            others.append((Runs(tree, paper, instead=instead), {"reading": label, "statement": statement}))
        for name in claim.declared.methods:  # beside the claim's own method, in one family with it
            title = next((m["title"] for m in tree.methods.values() if m["row"] == name), name)
            left = claim.test.arguments["left"]
            statement = f"{title} in the place of {paper[left].label}: {entry.statement}"
            changes = {"method": title, "statement": statement, "where": "", "quote": "", "untested": ""}
            others.append((Runs(tree, paper, instead={left: name}), changes))
        for source, changes in others:
            cases.append(Case(replace(entry, **changes), claim.test, source, untestable, True, claim.margin))
    return judge(cases)


def _main_model(claim: Claim, source: Runs) -> str | None:
    """Of a claim whose runs are averaged over several models; None: one model, or a test of each row by itself."""
    sides = [claim.test.arguments.get(name) for name in ("left", "rows", "steadier")]
    if not any(side is not None and len(listed(side)) > 1 for side in sides):
        return None
    try:
        return source.main_model(rows_of(claim.test.arguments))
    except Gap:
        return None


def stands_in(tree: Tree) -> bool:
    """Whether a model or benchmark of the tree stands in for one of the paper's: then nothing here is about those."""
    parts = [*((m, m["title"]) for m in tree.models), *((b, b["key"]) for b in tree.benchmarks)]
    return any(plain(part.get("stands_for") or own) != plain(own) for part, own in parts)


def _unjudged(claim: Claim, ledger: str, scale: str) -> Entry:
    declared = claim.declared
    test = claim.printed if ledger == "paper" else claim.test
    return Entry(
        ledger=ledger,  # type: ignore[arg-type]
        id=claim.id,
        family=declared.family,
        where="; ".join(dict.fromkeys([declared.where, *(place.where for place in declared.also)])),
        quote=declared.quote,
        statement=declared.tests,
        untested=declared.untested,
        scale=scale,
        kind=test.kind if isinstance(test, Question) else "",
    )


def judge(cases: Sequence[Case]) -> list[Entry]:
    """Every case's entry, in the given order; Holm within a family under one variant and reading."""
    entries: dict[int, Entry] = {}
    directions: dict[int, Direction] = {}  # of the cases that are tests of their claim
    for n, case in enumerate(cases):
        if isinstance(case.test, str):
            entries[n] = replace(case.entry, reason=case.test)
            continue
        try:
            outcome = _with_margin(KINDS[case.test.kind](case.source, **case.test.arguments), case.margin)
        except Gap as gap:
            if gap.planned or not case.optional:
                entries[n] = replace(case.entry, reason=str(gap))
        else:
            seen = direction(outcome)
            behind = [run for contrast in outcome.contrasts for run in contrast.runs]
            bases = case.source.bases(behind) if behind else ""
            entries[n] = replace(_with_evidence(case.entry, outcome, seen), bases=bases)
            if case.untestable is None:
                directions[n] = seen
        if case.untestable is not None and n in entries:
            entries[n] = replace(entries[n], verdict="not testable at this scale", reason=case.untestable)

    # Each setting is a family of its own: a reader asks what holds under one learning rate or one reading.
    def family(n: int) -> tuple[str, str, str, str]:
        entry = cases[n].entry
        return entry.family, entry.variant or "", entry.reading or "", entry.model or ""

    for _, group in groupby(sorted(directions, key=family), key=family):
        members = list(group)
        tests = sum(directions[n].p is not None for n in members)
        verdicts = verdicts_of_family([directions[n] for n in members])
        for n, (verdict, p) in zip(members, verdicts, strict=True):
            seen = directions[n]
            # as one of the family that Holm corrects
            detectable = seen.contrast.detectable(1 if p is None else tests)
            reason = _why_undecided(seen, p, tests) if verdict in ("undecided", "not tested") else ""
            if verdict == "equal within the margin":
                reason = _though_equal(seen.contrast, p)
            counted = tests if p is not None else None
            entries[n] = replace(
                entries[n], verdict=verdict, p_holm=p, tests=counted, reason=reason, detectable=detectable
            )
            source, test = cases[n].source, cases[n].test
            if verdict == "supported" and isinstance(source, Runs) and isinstance(test, Question) and learns(test):
                placebo, why_not = unbeaten(source, test)
                entries[n] = replace(entries[n], placebo=placebo)
                if why_not is not None:
                    entries[n] = replace(entries[n], verdict="undecided", reason=why_not)
    return [entries[n] for n in sorted(entries)]


def _with_margin(outcome: Outcome, margin: Margin | None) -> Outcome:
    """Every contrast with its margin; none where the null is not "no difference" (at most 72/132 of the rollouts)."""

    def limits(contrast: Contrast) -> tuple[float, float] | None:
        if margin is None or contrast.null != margin.around:
            return None
        if contrast.unit == "ratio":  # twice and half are equally far from 1
            return contrast.null / (1 + margin.within), contrast.null * (1 + margin.within)
        return contrast.null - margin.within, contrast.null + margin.within

    return replace(outcome, contrasts=tuple(replace(c, margin=limits(c)) for c in outcome.contrasts))


def _though_equal(contrast: Contrast, p: float | None) -> str:
    """That a difference is there, where it is, though too small to matter."""
    assert contrast.low is not None
    assert contrast.high is not None
    if p is None or p >= ALPHA or contrast.low <= contrast.null <= contrast.high:
        return ""
    return f"{'above' if contrast.low > contrast.null else 'below'} the null, but by less than the margin"


def _with_evidence(entry: Entry, outcome: Outcome, seen: Direction) -> Entry:
    contrast = seen.contrast
    units = ", ".join(f"{name} {amount(value, contrast.unit)}" for name, value in contrast.units)
    # Folders are `runs/<model>/<method>/seed<k>`; printed rows have no seed folder.
    seeds = {int(run.rpartition("/seed")[2]) for run in contrast.runs if "/seed" in run}
    same = {name: getattr(contrast, name) for name in ("null", "low", "high", "unit", "level", "n", "runs")}
    return replace(
        entry,
        tested=contrast.what,
        parts=len(outcome.contrasts),
        claimed=outcome.side,
        estimate=contrast.value,
        margin_low=contrast.margin[0] if contrast.margin else None,
        margin_high=contrast.margin[1] if contrast.margin else None,
        how=f"{contrast.how}; {units}" if units else contrast.how,
        seeds=tuple(sorted(seeds)),
        p=seen.p,
        detectable=contrast.detectable(1),
        **same,
    )


def _bound(contrast: Contrast, side: Side) -> str:
    """How far on the claimed side the truth can lie; empty where the interval does not say."""
    end = contrast.high if side == "above" else contrast.low
    if end is None or contrast.at_least or (end - contrast.null) * (1 if side == "above" else -1) <= 0:
        return ""
    if contrast.unit == "ratio":
        return f"at {'most' if side == 'above' else 'least'} {amount(end, contrast.unit)} times"
    return f"at most {amount(abs(end - contrast.null), contrast.unit)} {contrast.unit} {side} the null"


def _why_undecided(seen: Direction, p_holm: float | None, tests: int) -> str:
    """What could have been seen, or what is missing for an interval. p_holm: of the claim, over a family of `tests`."""
    contrast = seen.contrast
    if contrast.p is None:
        return contrast.how
    reasons = ["exactly at the null"] if seen.claimed is None else []
    inside = contrast.low is None or contrast.high is None or contrast.low <= contrast.null <= contrast.high
    if not inside and p_holm is not None and p_holm >= ALPHA:
        over = [f"the {tests} claims of its family"] if tests > 1 else []
        over += ["the contrasts of its test"] if seen.p != contrast.p else []
        reasons.append(
            f"the interval excludes the null, but not after Holm's correction over {' and '.join(over)}: p {p_holm:.2g}"
        )
    if not inside and contrast.at_least and contrast.value is not None and contrast.value < contrast.null:
        reasons.append(
            "the interval is that of a lower bound, since runs that never get there count as one rollout after their "
            "last: the truth may lie above the null"
        )
    if bound := _bound(contrast, seen.side):
        reasons.append(bound)
    detectable = contrast.detectable(1 if p_holm is None else tests)
    if detectable is not None:
        distance = f"{amount(detectable, contrast.unit)} {contrast.unit}"
        if detectable < contrast.farthest:
            reasons.append(f"would have found a distance of {distance} from the null (80 % of repetitions)")
        else:
            reasons.append("would have found no distance that is possible here")
    return "; ".join(reasons)


# Placebo rewards: an effect that a coin as reward shows too is no effect of the reward.
#
# A placebo of some settings is a variant that changes the reward besides them, and nothing else. A claim about what is
# learnt is compared with each placebo that has runs of both sides: the claim's own test must be supported for the
# contrast under the true reward minus the same contrast under the placebo, against 0. All placebos must be beaten, so
# their p need no correction. Claims about a loss itself hold or fail under any reward.

# Measures of what is learnt: scores, and the figures of a curve that are computed from its reward.
LEARNT = (SCORE, "area", "final", *ROLLOUTS_UNTIL, "reward_falls", "reward_gain")
# Kinds of test that set one side against another; their measure is the score where they name none.
SIDED = ("difference_of_rows", "highest", "ordering", "rank", "convergence", "curve_ratio", "curve_mean_difference")


def placebos(tree: Tree, variant: str | None = None) -> list[str]:
    """The placebo variants of the settings of `variant`; None: of the scale's own."""
    settings = {} if variant is None else _changes(tree, variant)
    found = {name: _changes(tree, name) for name in tree.matrix.get("variants", {})}
    return [name for name, changes in found.items() if changes.pop("reward", None) is not None and changes == settings]


def _changes(tree: Tree, variant: str) -> dict[str, Any]:
    return dict(tree.matrix["variants"][variant].get("changes", {}))


def learns(question: Question) -> bool:
    """Whether a claim says that one side learns more, or faster, than another."""
    return question.kind in SIDED and question.arguments.get("measure", SCORE) in LEARNT


def unbeaten(source: Runs, question: Question) -> tuple[str, str | None]:
    """What the placebos of a supported claim show, and why it is not supported after all (None: it is)."""
    beaten, lacking = [], []
    for name in placebos(source.tree, source.variant):
        try:
            seen = direction(KINDS[question.kind](Excess(source, name), **question.arguments))
        except Gap:
            lacking.append(name)
            continue
        if _verdict(seen, seen.p) != "supported":
            contrast = seen.contrast
            value, low, high = (
                "unknown" if x is None else f"{x:.3g}" for x in (contrast.value, contrast.low, contrast.high)
            )
            return f"not beyond {name}", f"{contrast.what}: {value} [{low}, {high}], not beyond the placebo"
        beaten.append(name)
    if not beaten:
        return NO_RUN, None
    return f"beats {', '.join(beaten)}" + (f"; no run of {', '.join(lacking)}" if lacking else ""), None
