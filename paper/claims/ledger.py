"""Claims and sources -> entries. One family of claims under one setting is one family of tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from paper import printed
from paper.claims import claims as declared
from paper.claims.claims import Claim, Question
from paper.claims.contrast import Contrast, Gap
from paper.claims.from_print import Prints
from paper.claims.from_runs import Runs
from paper.claims.render import Entry, Verdict, amount
from paper.claims.tests import KINDS, Outcome, Source
from paper.printed import Paper
from records.results_tree import Tree, plain

# From contrasts to a verdict: which of them decides, how sure that is, and Holm over the claims of a family.


ALPHA = 0.05


class Direction(NamedTuple):
    """What the numbers say before any correction over claims: as claimed (True), the opposite (False), or neither
    (None); the contrast that decides, and its p."""

    claimed: bool | None
    contrast: Contrast
    p: float | None


def direction(outcome: Outcome) -> Direction:
    """The weakest link. A claim about m contrasts of which a may fail holds when m - a of them do, so its p is the
    (m - a)-th smallest of those on the claimed side (an intersection-union test: no correction is due). It fails when
    a + 1 contrasts lie on the other side: its p is the (a + 1)-th smallest of theirs, after Holm over all m."""
    from evals.stats.compare import holm

    sign = 1.0 if outcome.side == "above" else -1.0
    apart = [None if c.value is None else sign * (c.value - c.null) for c in outcome.contrasts]
    adjusted = holm([c.p for c in outcome.contrasts])
    right = [(_certain(c.p), n) for n, (c, d) in enumerate(zip(outcome.contrasts, apart, strict=True)) if d and d > 0]
    wrong = [(_certain(p), n) for n, (p, d) in enumerate(zip(adjusted, apart, strict=True)) if d and d < 0]
    needed = len(outcome.contrasts) - outcome.allow
    if len(right) >= needed:
        _, n = sorted(right)[needed - 1]
        return Direction(True, outcome.contrasts[n], outcome.contrasts[n].p)
    if len(wrong) > outcome.allow:
        _, n = sorted(wrong)[outcome.allow]
        return Direction(False, outcome.contrasts[n], adjusted[n])
    n = min(range(len(apart)), key=lambda n: (apart[n] is not None, apart[n] or 0.0))
    return Direction(None, outcome.contrasts[n], None)


def family_verdicts(found: Sequence[Direction]) -> list[tuple[Verdict, float | None]]:
    """Verdict and corrected p of each claim of a family."""
    from evals.stats.compare import holm

    adjusted = holm([each.p for each in found])
    return [(_verdict(each, p), p) for each, p in zip(found, adjusted, strict=True)]


def _verdict(found: Direction, p: float | None) -> Verdict:
    if found.claimed is None or p is None or p >= ALPHA or not _excludes(found.contrast):
        return "undecided"
    if found.contrast.at_least and found.contrast.value < found.contrast.null:  # type: ignore[operator]
        return "undecided"
    return "supported" if found.claimed else "contradicted"


def _excludes(contrast: Contrast) -> bool:
    """Whether the interval is there and does not hold the null."""
    low, high = contrast.low, contrast.high
    return low is not None and high is not None and not low <= contrast.null <= high


def _certain(p: float | None) -> float:
    """Contrasts without a p come last."""
    return 2.0 if p is None else p


PAPER = "paper"


@dataclass(frozen=True)
class Case:
    """A claim asked of a source: the entry before judging, and the test (or why there is none)."""

    entry: Entry
    test: Question | str
    source: Source
    untestable: str | None = None
    optional: bool = False  # a variant or reading: no entry where the scale does not have it


def from_print(claims: Iterable[Claim] | None = None, tables: Paper | None = None) -> list[Entry]:
    """The ledger of the printed numbers. A verdict that a row's own cells would change is undecided."""
    rows = printed.read() if tables is None else tables
    claims = declared.read(paper=rows) if claims is None else list(claims)
    follow = Prints(rows, follow_cells=True)
    as_printed, by_cells = (
        judged([Case(_blank(claim, "paper", claim.says, PAPER), claim.printed, source) for claim in claims])
        for source in (Prints(rows), follow)
    )
    return [_agree(a, b, follow.replaced) for a, b in zip(as_printed, by_cells, strict=True)]


def from_runs(tree: Tree, claims: Iterable[Claim] | None = None) -> list[Entry]:
    """The ledger of a results tree."""
    rows = printed.read()
    claims = declared.read(paper=rows) if claims is None else list(claims)
    return judged(list(_cases(tree, rows, claims)))


def stands_in(tree: Tree) -> bool:
    """Whether a model or benchmark of the tree stands in for one of the paper's: then nothing here is about those."""
    parts = [*((m, m["title"]) for m in tree.models), *((b, b["key"]) for b in tree.benchmarks)]
    return any(plain(part.get("stands_for") or own) != plain(own) for part, own in parts)


def _cases(tree: Tree, rows: Paper, claims: Iterable[Claim]) -> Iterator[Case]:
    tiny, base = stands_in(tree), Runs(tree, rows)
    variants = {name: Runs(tree, rows, variant=name) for name in tree.matrix.get("variants", {})}
    rate = tree.matrix.get("training", {}).get("learning_rate")
    for claim in claims:
        blank = replace(_blank(claim, "ours", claim.embedded if tiny else claim.says, tree.scale), learning_rate=rate)
        untestable = claim.untestable if tiny else None
        yield Case(blank, claim.test, base, untestable)
        for name, source in variants.items():
            changed = tree.matrix["variants"][name].get("changes", {}).get("training.learning_rate", rate)
            entry = replace(blank, variant=name, learning_rate=changed)
            if claim.test.kind != "algebra":
                yield Case(entry, claim.test, source, untestable, optional=True)
        for label, instead in claim.readings.items():
            entry = replace(blank, reading=label, statement=f"{blank.statement} Read as: {label}.")
            yield Case(entry, claim.test, Runs(tree, rows, instead=instead), untestable, optional=True)


def _blank(claim: Claim, ledger: str, statement: str, scale: str) -> Entry:
    test = claim.printed if ledger == PAPER else claim.test
    return Entry(
        ledger=ledger,  # type: ignore[arg-type]
        id=claim.id,
        family=claim.family,
        where="; ".join(dict.fromkeys(where for where, _ in claim.quotes)),
        quote=claim.quotes[0][1],
        statement=statement,
        scale=scale,
        variant=None,
        learning_rate=None,
        reading=None,
        kind=test.kind if isinstance(test, Question) else "",
        verdict="undecided",
        reason="",
        needs=() if ledger == PAPER else tuple(declared.NEEDS[name] for name in claim.needs),
    )


def judged(cases: list[Case]) -> list[Entry]:
    """Every case's entry, in the given order; Holm within a family under one variant and reading."""
    entries: dict[int, Entry] = {}
    found: dict[int, Direction] = {}
    for n, case in enumerate(cases):
        if isinstance(case.test, str):
            entries[n] = replace(case.entry, reason=case.test)
            continue
        try:
            outcome = KINDS[case.test.kind](case.source, **case.test.keys)
        except Gap as gap:
            if not (case.optional and not gap.planned):
                entries[n] = _without(case, str(gap))
            continue
        seen = direction(outcome)
        entries[n] = _with(case, seen, len(outcome.contrasts), outcome.side)
        if case.untestable is None:
            found[n] = seen

    def family(n: int) -> tuple[str, str, str]:
        entry = cases[n].entry
        return entry.family, entry.variant or "", entry.reading or ""

    for _, group in groupby(sorted(found, key=family), key=family):
        members = list(group)
        tests = sum(found[n].p is not None for n in members)
        for n, (verdict, p) in zip(members, family_verdicts([found[n] for n in members]), strict=True):
            entry = entries[n]
            reason = _undecided(found[n]) if verdict == "undecided" else ""
            entries[n] = replace(
                entry, verdict=verdict, p_holm=p, tests=tests if p is not None else None, reason=reason
            )
    return [entries[n] for n in sorted(entries)]


def _without(case: Case, reason: str) -> Entry:
    if case.untestable is not None:
        return replace(case.entry, verdict="not testable at this scale", reason=case.untestable)
    return replace(case.entry, reason=reason)


def _with(case: Case, seen: Direction, parts: int, side: str) -> Entry:
    c = seen.contrast
    units = ", ".join(f"{name} {amount(x, c.unit)}" for name, x in c.units)
    how = f"{c.how}; {units}" if units else c.how
    entry = replace(
        case.entry,
        tested=c.what, parts=parts, claimed=side, estimate=c.value, null=c.null, low=c.low, high=c.high, unit=c.unit,
        level=c.level, how=how, n=c.n, seeds=_seeds(c.runs), p=seen.p, detectable=c.detectable, runs=c.runs,
    )  # fmt: skip
    if case.untestable is not None:
        return replace(entry, verdict="not testable at this scale", reason=case.untestable)
    return entry


def _undecided(seen: Direction) -> str:
    """Why no verdict: what could have been seen, or what is missing for an interval."""
    c = seen.contrast
    if c.p is None:
        return c.how
    parts = ["exactly at the null"] if seen.claimed is None else []
    if c.detectable is not None:
        far = f"a distance of {amount(c.detectable, c.unit)} {c.unit} from the null (80 % of repetitions)"
        parts.append(f"would have found {far if c.detectable < c.farthest else 'no distance that is possible here'}")
    return "; ".join(parts)


def _seeds(runs: Iterable[str]) -> tuple[int, ...]:
    """Of folders `runs/<model>/<method>/seed<k>`; printed rows have none."""
    return tuple(sorted({int(run.rpartition("/seed")[2]) for run in runs if "/seed" in run}))


def _agree(as_printed: Entry, by_cells: Entry, replaced: Mapping[str, str]) -> Entry:
    """The entry as printed; undecided where averages that follow from the cells would give another verdict."""
    rows = [replaced[id] for id in replaced if id in as_printed.runs or id in by_cells.runs]
    if not rows:
        return as_printed
    note = "; ".join(rows)
    if as_printed.verdict == by_cells.verdict:
        return replace(as_printed, reason="; ".join(part for part in (as_printed.reason, note) if part))
    would = f"{note}: with these averages {by_cells.verdict}, as printed {as_printed.verdict}"
    return replace(as_printed, verdict="undecided", reason=would)
