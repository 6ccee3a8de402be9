"""Claims and sources -> entries. One family of claims under one setting is one family of tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from report.claims import declared, judge
from report.claims.contrast import Gap
from report.claims.declared import Claim, Question
from report.claims.entry import Entry, amount
from report.claims.kinds import KINDS, Source
from report.claims.measured import Runs
from report.claims.prints import Prints
from report.paper import printed
from report.paper.printed import Paper
from report.results import Tree, plain

PAPER = "paper"


@dataclass(frozen=True)
class Case:
    """A claim asked of a source: the entry before judging, and the test (or why there is none)."""

    entry: Entry
    test: Question | str
    source: Source
    untestable: str | None = None
    optional: bool = False  # a variant or reading: no entry where the scale does not have it


def paper(claims: Iterable[Claim] | None = None, tables: Paper | None = None) -> list[Entry]:
    """The ledger of the printed numbers. A verdict that a row's own cells would change is undecided."""
    rows = printed.read() if tables is None else tables
    claims = declared.read(paper=rows) if claims is None else list(claims)
    follow = Prints(rows, follow_cells=True)
    as_printed, by_cells = (
        judged([Case(_blank(claim, "paper", claim.says, PAPER), claim.printed, source) for claim in claims])
        for source in (Prints(rows), follow)
    )
    return [_agree(a, b, follow.replaced) for a, b in zip(as_printed, by_cells, strict=True)]


def ours(tree: Tree, claims: Iterable[Claim] | None = None) -> list[Entry]:
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
    found: dict[int, judge.Direction] = {}
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
        seen = judge.direction(outcome)
        entries[n] = _with(case, seen, len(outcome.contrasts), outcome.side)
        if case.untestable is None:
            found[n] = seen

    def family(n: int) -> tuple[str, str, str]:
        entry = cases[n].entry
        return entry.family, entry.variant or "", entry.reading or ""

    for _, group in groupby(sorted(found, key=family), key=family):
        members = list(group)
        tests = sum(found[n].p is not None for n in members)
        for n, (verdict, p) in zip(members, judge.family([found[n] for n in members]), strict=True):
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


def _with(case: Case, seen: judge.Direction, parts: int, side: str) -> Entry:
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


def _undecided(seen: judge.Direction) -> str:
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
