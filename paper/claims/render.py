"""Ledgers as files: claims.csv with every field, claims.md to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, get_args

from paper.claims.contrast import POINTS
from records.csv_files import to_csv
from report import captions

if TYPE_CHECKING:
    from paper.claims.claims import Claim
    from records.results_tree import Tree


# One line of a ledger, and what its words mean.


Verdict = Literal["supported", "contradicted", "undecided", "not testable at this scale"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
MEANING: dict[Verdict, str] = {
    "supported": "the 95 % interval excludes the null on the claimed side, after Holm over the claims of its family",
    "contradicted": "it excludes the null on the other side, after the same correction",
    "undecided": "neither, or there is no figure; the smallest difference that would have been seen is given",
    "not testable at this scale": "the numbers of this scale cannot speak about the claim; what they are is shown",
}


@dataclass(frozen=True)
class Entry:
    """A claim and its verdict.

    statement: what exactly was tested here; at embedded scale this is not the paper's sentence. estimate, low, high,
    null, detectable: in `unit`, of the contrast that decides (`tested`, one of `parts`). claimed: the side of `null` on
    which the claim puts it. p_holm: p corrected for the `tests` claims of the family. n: units drawn at `level`; seeds:
    training seeds behind it. variant: other training settings (None: the scale's own), learning_rate: theirs.
    runs: folders below the results folder, or rows of the printed tables. reason: why no verdict, or what to know.
    """

    ledger: Literal["paper", "ours"]
    id: str
    family: str
    where: str
    quote: str
    statement: str
    scale: str
    variant: str | None
    learning_rate: float | None
    reading: str | None
    kind: str
    verdict: Verdict
    reason: str
    tested: str = ""
    parts: int = 0
    claimed: str = ""
    estimate: float | None = None
    null: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    level: str = ""
    how: str = ""
    n: int | None = None
    seeds: tuple[int, ...] = ()
    p: float | None = None
    p_holm: float | None = None
    tests: int | None = None
    detectable: float | None = None
    needs: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"{self.id}: verdict {self.verdict!r} is none of {', '.join(VERDICTS)}")
        if self.verdict in ("supported", "contradicted"):
            ends = (self.low, self.high, self.null)
            if None in ends or self.low <= self.null <= self.high:  # type: ignore[operator]
                raise ValueError(f"{self.id}: {self.verdict} with an interval {self.low} to {self.high}: not outside")


def amount(value: float | None, unit: str) -> str:
    """A figure as it is shown: points with two decimals, everything else with three digits. Unknown is empty."""
    if value is None:
        return ""
    return f"{100 * value:.2f}" if unit == POINTS else f"{value:.3g}"


COLUMNS = tuple(field.name for field in fields(Entry))
"""Columns of claims.csv."""


def row(entry: Entry) -> dict[str, object]:
    """The entry as a line of claims.csv: several things of a cell stand apart by a blank."""
    values = {name: getattr(entry, name) for name in COLUMNS}
    return {name: " ".join(map(str, v)) if isinstance(v, tuple) else v for name, v in values.items()}


COMMAND = "python -m paper.claims --page docs/claims.md"
SHORT = {"not testable at this scale": "not testable here"}


def as_csv(entries: Iterable[Entry]) -> str:
    return to_csv(COLUMNS, (row(entry) for entry in entries))


def results_page(tree: Tree, printed: Sequence[Entry], ours: Sequence[Entry]) -> str:
    """claims.md of a results tree. Links lead to the runs beside it."""
    head = ["# Claims", *tree.lead, *captions.paragraphs("claims")]
    sections = ["\n\n".join(head), _summary(printed, ours)]
    for claim in printed:
        mine = [entry for entry in ours if entry.id == claim.id]
        sections.append("\n\n".join([_title(claim), _told(claim, "Printed"), *map(_told, mine)]))
    return "\n\n".join(sections) + "\n"


def paper_page(printed: Sequence[Entry], claims: Iterable[Claim]) -> str:
    """docs/claims.md: how verdicts are made, and the ledger of the printed numbers."""
    lines = [(e.id, _verdict(e), figure(e), e.tested, e.reason) for e in printed]
    words = "\n".join(f"- *{verdict}*: {meaning}" for verdict, meaning in MEANING.items())
    head = HEAD.replace("VERDICTS", words).replace("COMMAND", COMMAND).replace("COUNT", _counts(printed))
    table = _table(("claim", "verdict", "estimate", "of", "why"), lines)
    tests = {claim.id: _tests(claim) for claim in claims}
    listed = "\n\n".join(f"{_title(entry)}\n\n{tests[entry.id]}" for entry in printed)
    return f"{head}\n{table}\n\n## The claims\n\n{listed}\n"


HEAD = """# Claims and verdicts

`paper/claims.yaml` lists the sentences of the paper that an experiment or a computation can test: quote, place,
statement, kind of test and the data it needs. Each gets verdicts in two ledgers that never mix:

- **printed**: are the paper's own numbers outside chance? Below; needs no run.
- **runs**: what do the runs of a results tree say? `python -m paper.claims --results results/embedded` (or the target
  `claims`) writes `claims.csv` and `claims.md` there, one entry per claim and learning rate, with links to the runs.

VERDICTS

## How a verdict comes about

A test turns into contrasts, each with an estimate, a 95 % interval, p, and the smallest distance from its null that it
would have found in 80 % of repetitions. A claim about several ("highest of all") holds when all hold: the weakest
decides, at its own p. It fails when one is on the other side, at the p of that one after Holm over all of them. Holm
then corrects over the claims of a family, under each learning rate apart. Kinds of test: `paper/claims/tests.py`.

**Runs.** Seeds are paired (equal seeds share initial weights and prompts); Student-t over seeds where the claim is
about one model. A claim about all models is tested over the means of the models, so that the interval covers other
models too. One seed gives no verdict. A missing run gives `undecided`, and the entry names the run. Where tiny models
stand in for the paper's, the claim's `embedded` statement is tested, which speaks of the tiny models only; accuracy of
the paper's models on the paper's problems is not testable there, and figures beside that verdict are observations.
Rollouts until a reward are compared as ratios; a run that never gets there counts as one rollout more than it had, so
that its ratio is a lower bound.

**Printed.** Two estimates of chance, and the wider interval counts. (1) Generation alone, from the counts that the
percentages decode to ([audit.md](audit.md)), with problems of unequal difficulty as described there; normal law. (2)
The three pairs of seeds of Table 4: their mean squared distance over the one that generation alone predicts is a
column's factor, carried over to rows and models that have one seed; Student-t with 3 degrees of freedom. Assumed: the
decoded counts, that spread of difficulty, and that other rows and models vary between seeds as the two methods of Table
4 do on Qwen2.5-7B. Where a printed average does not follow from its row's cells, the claim is tested with both; if the
verdicts differ it is undecided, and the entry says so. What is only drawn (Figures 2 and 3) cannot be tested from
print.

**Formulas** (Lemmas, Equation 1, the covariance rule) are evaluated on 2,000 random softmax policies, and no run is
involved; a formula that is meant to hold always is held against 99 %.

## Printed numbers

COUNT. Differences in percentage points with 95 % intervals. Written by `COMMAND`.
"""


def _counts(entries: Sequence[Entry]) -> str:
    found = Counter(entry.verdict for entry in entries)
    return f"{len(entries)} claims: " + ", ".join(
        f"{found[verdict]} {verdict}" for verdict in MEANING if found[verdict]
    )


def _summary(printed: Sequence[Entry], ours: Sequence[Entry]) -> str:
    settings = list(dict.fromkeys(setting(entry) for entry in ours if entry.reading is None))
    lines = []
    for claim in printed:
        mine = {setting(entry): _verdict(entry) for entry in ours if entry.id == claim.id}
        readings = [f"{name}: {said}" for name, said in mine.items() if name not in settings]
        link = f"[{claim.id}](#{claim.id.replace('.', '')})"
        lines.append((link, _verdict(claim), *(mine.get(name, "") for name in settings), "; ".join(readings)))
    return _table(("claim", "printed", *(f"runs, {name}" for name in settings), "runs, other readings"), lines)


def _title(entry: Entry) -> str:
    return f"### {entry.id}\n\n> {' '.join(entry.quote.split())}\n>\n> {entry.where}"


def _told(entry: Entry, name: str = "") -> str:
    """One ledger's answer in a few lines."""
    lines = [f"**{name or _sentence(setting(entry))}: {entry.verdict}.** {entry.statement}"]
    if entry.estimate is not None:
        corrected = "" if entry.p_holm is None else f", p {entry.p_holm:.2g} after Holm over {entry.tests}"
        null = f"{amount(entry.null, entry.unit)} (claimed {entry.claimed})"
        lines += [f"{entry.tested}: {figure(entry)} against {null}{corrected}.", f"Level {entry.level}: {entry.how}."]
    if entry.reason and entry.reason not in entry.how:
        lines.append(f"{_sentence(entry.reason)}.")
    if any(run.startswith("runs/") for run in entry.runs):
        lines.append("Runs: " + ", ".join(f"[{run.removeprefix('runs/')}]({run}/run.json)" for run in entry.runs) + ".")
    return "  \n".join(lines)


def _tests(claim: Claim) -> str:
    """What is tested, and what of it tiny models can test."""
    tiny = f"With tiny models ({claim.test.kind}): {claim.embedded}"
    why = "" if claim.untestable is None else f" *Not testable there: {claim.untestable}.*"
    return f"Tested: {claim.says}\n\n{tiny}{why} Needs {' and '.join(claim.needs)}."


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def setting(entry: Entry) -> str:
    """Under which training settings, or which reading, an entry speaks."""
    rate = "" if entry.learning_rate is None else f"learning rate {entry.learning_rate:g}"
    return entry.reading or " ".join(part for part in (entry.variant, f"({rate})" if entry.variant else rate) if part)


def _verdict(entry: Entry) -> str:
    return SHORT.get(entry.verdict, entry.verdict)


def figure(entry: Entry) -> str:
    """Estimate, unit and interval; empty where there is no figure."""
    if entry.estimate is None:
        return ""
    value = f"{amount(entry.estimate, entry.unit)} {entry.unit}"
    low, high = amount(entry.low, entry.unit), amount(entry.high, entry.unit)
    return f"{value} [{low}, {high}]" if low else value


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in rows)
