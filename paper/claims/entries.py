"""One verdict on one claim (`Entry`), claims.csv that holds them, and claims.md that shows them.

Imports nothing that computes verdicts, so that rendering stays cheap and cannot judge again.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from core.errors import CorruptInputError
from core.files import read_csv, to_csv

Verdict = Literal[
    "supported", "contradicted", "equal within the margin", "undecided", "not tested", "not testable at this scale"
]  # fmt: skip
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
DECIDED = VERDICTS[:3]
TESTED_ONLY = "tested statement only"  # beside a verdict on less than the quote states
MEANING: dict[Verdict, str] = {
    "supported": (
        "the 95 % interval excludes the null on the claimed side, after Holm over the claims of its family. A claim "
        "about what is learnt also exceeds its contrast under each placebo reward"
    ),
    "contradicted": "it excludes the null on the other side, after the same correction",
    "equal within the margin": "it lies inside the margin of its measure (`margins` in paper/claims.yaml); runs only",
    "undecided": "none of these; the smallest difference that would have been found is given",
    "not tested": "there is no estimate: a run or a printed number is missing, or a condition of the test is not met",
    "not testable at this scale": "the numbers of this scale cannot decide the claim; they are shown",
}

# Below it a run has hardly left the base model; the shortest kept experiment scores its runs after 7 rollouts.
LEAST_ROLLOUTS = 7
RULE = f"A verdict needs {LEAST_ROLLOUTS} rollouts or more, trained and scored, and two seeds or more for a difference."

NO_RUN = "no placebo run"  # `placebo` of a claim that placebo rewards are asked about, where none was trained

POINTS = "points"  # unit of scores: stored as fractions, shown as percentage points


@dataclass(frozen=True)
class Entry:
    """One row of claims.csv. Figures are in `unit` and belong to the contrast that decides; None is unknown.

    Raises ValueError for a verdict that its interval contradicts.
    """

    ledger: Literal["paper", "ours"]  # from the printed numbers, or from the runs of a results tree
    id: str
    family: str  # claims that share one Holm correction
    where: str  # places in the paper
    quote: str  # verbatim, from the first of these places
    statement: str  # what exactly was tested
    scale: str
    variant: str | None = None  # other training settings; None: the scale's own
    learning_rate: float | None = None  # under these settings
    reading: str | None = None  # label of another reading of the paper; None: the default one
    kind: str = ""  # kind of test, a function of `paper.claims.claims`; "" where there is none
    verdict: Verdict = "not tested"
    reason: str = ""  # why there is no verdict, or what to know about it
    model: str | None = None  # key of the one model that counts; None: all that the claim speaks of
    tested: str = ""  # the contrast that decides
    parts: int = 0  # how many contrasts the test has
    claimed: str = ""  # side of the null on which the claim puts the estimate: above or below
    estimate: float | None = None
    null: float | None = None
    low: float | None = None
    high: float | None = None
    margin_low: float | None = None  # values that make no difference that matters; None: no margin is declared
    margin_high: float | None = None
    unit: str = ""
    level: str = ""  # what the interval imagines drawn again: seed, problem, ...
    how: str = ""
    n: int | None = None  # units drawn at `level`
    seeds: tuple[int, ...] = ()  # training seeds behind the estimate
    p: float | None = None
    p_holm: float | None = None  # p corrected over the `tests` claims of the family
    tests: int | None = None
    detectable: float | None = None  # smallest distance from the null found in 80 % of repetitions
    needs: str = ""  # files of the results tree that the test reads
    runs: tuple[str, ...] = ()  # folders below the results folder, or ids of printed rows
    placebo: str = ""  # what the placebo rewards say of a supported claim (`paper.claims.ledger`); "": not asked
    method: str | None = None  # title of the method in the place of the claim's own; None: the claim's own
    untested: str = ""  # what the quote states beyond `statement`: a verdict is none on it
    bases: str = ""  # models behind the estimate, with the family of their bases; "": no model is

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"{self.id}: verdict {self.verdict!r} is none of {', '.join(VERDICTS)}")
        if self.verdict in ("supported", "contradicted"):
            ends = (self.low, self.high, self.null)
            if None in ends or self.low <= self.null <= self.high:  # type: ignore[operator]
                raise ValueError(f"{self.id}: {self.verdict} with an interval {self.low} to {self.high}: not outside")
        if self.verdict == "equal within the margin":
            bounds = (self.margin_low, self.low, self.high, self.margin_high)
            if None in bounds or list(bounds) != sorted(bounds):  # type: ignore[type-var]
                raise ValueError(f"{self.id}: {self.verdict} with an interval {self.low} to {self.high}: not inside")


COLUMNS = tuple(field.name for field in fields(Entry))
# How a cell is read, by the field's annotation: None is written as an empty cell, as the empty text is.
READ: dict[Any, Callable[[str], Any]] = {
    float | None: lambda cell: float(cell) if cell else None,
    int | None: lambda cell: int(cell) if cell else None,
    int: int,
    str | None: lambda cell: cell or None,
    tuple[int, ...]: lambda cell: tuple(map(int, cell.split())),
    tuple[str, ...]: lambda cell: tuple(cell.split()),
}


def to_text(entries: Iterable[Entry]) -> str:
    """claims.csv. Floats keep every digit; a list has a blank between its items."""
    rows = []
    for entry in entries:
        cells = vars(entry)
        rows.append({name: " ".join(map(str, x)) if isinstance(x, tuple) else x for name, x in cells.items()})
    return to_csv(COLUMNS, rows)


def read(path: Path | str) -> list[Entry]:
    """The entries of a claims.csv, equal to those that were written.

    Raises MissingInputError or CorruptInputError naming file, line and what is wrong.
    """
    entries = []
    for number, row in enumerate(read_csv(path, "the verdicts on the claims", COLUMNS), 2):
        try:
            cells = {field.name: READ.get(field.type, str)(row[field.name]) for field in fields(Entry)}
            entries.append(Entry(**cells))
        except ValueError as error:
            raise CorruptInputError(f"{path}: line {number}: {error}") from None
    return entries


# What an entry looks like in words: shared by claims.md and the page.


def amount(value: float | None, unit: str) -> str:
    """A figure as it is shown: points with two decimals, everything else with three digits. Unknown is empty."""
    if value is None:
        return ""
    return f"{100 * value:.2f}" if unit == POINTS else f"{value:.3g}"


def beside_verdict(entry: Entry) -> str:
    """What a decided verdict leaves open: the rest of the quote, and placebo rewards that nobody trained."""
    if entry.verdict not in DECIDED:
        return ""
    return ", ".join([TESTED_ONLY] * bool(entry.untested) + [NO_RUN] * (entry.placebo == NO_RUN))


def shown_verdict(entry: Entry) -> str:
    beside = beside_verdict(entry)
    return f"{entry.verdict} ({beside})" if beside else entry.verdict


def figure(entry: Entry) -> str:
    """Estimate, unit and interval; empty where there is no figure."""
    if entry.estimate is None:
        return ""
    value = f"{amount(entry.estimate, entry.unit)} {entry.unit}"
    low, high = amount(entry.low, entry.unit), amount(entry.high, entry.unit)
    return f"{value} [{low}, {high}]" if low else value


def margin(entry: Entry) -> str:
    """What counts as no difference, in words; empty where nothing does."""
    if entry.margin_low is None or entry.margin_high is None:
        return ""
    low, high = amount(entry.margin_low, entry.unit), amount(entry.margin_high, entry.unit)
    return f"margin {low} to {high} {entry.unit}"


def setting(entry: Entry) -> str:
    """The training settings, the reading and the one model that an entry is about."""
    rate = "" if entry.learning_rate is None else f"learning rate {entry.learning_rate:g}"
    if entry.variant:
        rate = f"{entry.variant} ({rate})" if rate else entry.variant
    alone = "" if entry.model is None else f"{entry.model} alone"
    return ", ".join(part for part in (entry.reading or rate, alone, entry.method) if part)


# claims.md of a results tree.

SHORT = {"not testable at this scale": "not testable here"}  # verdicts as table cells

RESULTS_HEAD = """Each line is a statement that is tested because the paper makes it. "Printed" is the verdict of the
paper's own numbers, "runs" that of the runs of this scale, under each learning rate apart. A verdict is on the tested
statement and on the bases beside it: where models and problems stand in for the paper's, it is none on the paper's.
"Tested statement only" marks that the quote below states more than was tested.

Supported and contradicted need a 95 % interval that excludes the null, after Holm's correction over the claims of a
family. "Equal within the margin" needs a 95 % interval inside the margin that stands beside it. Undecided is no
evidence of equality: beside it stands how far the truth can lie on the claimed side, and the smallest difference that
would have been found. A claim about several models has a verdict over models, and one from the main model alone."""


def results_page(entries: Sequence[Entry], title: str, note: str) -> str:
    """claims.md of a results tree, with the folders of the runs behind each verdict.

    title, note: what the results are and what they can show, as the configuration says it.
    """
    printed = [entry for entry in entries if entry.ledger == "paper"]
    ours = [entry for entry in entries if entry.ledger == "ours"]
    sections = ["# Claims", f"{title}. {note}".strip(), RESULTS_HEAD, _summary(printed, ours)]
    for claim in printed:
        answers = [entry for entry in ours if entry.id == claim.id]
        sections += [f"### {claim.id}", f"Tested: {claim.statement}", _answer(claim, "Printed")]
        sections += [_answer(entry, _capital(setting(entry))) for entry in answers if entry.method is None]
        if methods := [entry for entry in answers if entry.method is not None]:
            sections.append(by_method(methods))
        beyond = f"\n>\n> Not tested: {claim.untested}." if claim.untested else ""
        sections.append(f"> {readable(claim.quote)}\n>\n> {claim.where}{beyond}")
    return "\n\n".join(sections) + "\n"


def by_method(entries: Sequence[Entry]) -> str:
    """A row for each method that stands in the place of the claim's own."""
    rows = []
    for e in entries:
        p = "" if e.p_holm is None else f"{e.p_holm:.2g} over {e.tests}"
        rows.append((e.method or "", shown_verdict(e), figure(e), p, e.reason or margin(e), e.bases))
    return table(("method", "verdict", "estimate", "p (Holm)", "why", "bases"), rows)


def _summary(printed: Sequence[Entry], ours: Sequence[Entry]) -> str:
    """One row per claim: its verdict in print, under each training setting, and under other readings."""
    ours = [entry for entry in ours if entry.method is None]
    settings = list(dict.fromkeys(setting(entry) for entry in ours if entry.reading is None))
    rows = []
    for claim in printed:
        verdicts = {setting(entry): short_verdict(entry) for entry in ours if entry.id == claim.id}
        readings = [f"{name}: {verdict}" for name, verdict in verdicts.items() if name not in settings]
        link = f"[{claim.id}](#{claim.id.replace('.', '')})"
        own = [verdicts.get(name, "") for name in settings]
        rows.append((link, claim.statement, short_verdict(claim), *own, "; ".join(readings)))
    return table(
        ("claim", "tested statement", "printed", *(f"runs, {name}" for name in settings), "runs, other readings"), rows
    )


def _answer(entry: Entry, source: str) -> str:
    """What one source of numbers says about a claim, in a few lines."""
    lines = [f"**{source}: {shown_verdict(entry)}.**" + (f" Read as: {entry.reading}." if entry.reading else "")]
    if entry.bases:
        lines.append(f"Bases: {entry.bases}.")
    if entry.estimate is not None:
        corrected = "" if entry.p_holm is None else f", p {entry.p_holm:.2g} after Holm over {entry.tests}"
        null = f"{amount(entry.null, entry.unit)} (claimed {entry.claimed})"
        equal = f", {margin(entry)}" if margin(entry) else ""
        lines.append(f"{entry.tested}: {figure(entry)} against {null}{equal}{corrected}.")
        lines.append(f"Level {entry.level}: {entry.how}.")
    if entry.reason and entry.reason not in entry.how:
        lines.append(f"{_capital(entry.reason)}.")
    if entry.placebo:
        lines.append(f"Placebo rewards: {entry.placebo}.")
    if any(run.startswith("runs/") for run in entry.runs):
        seeds: dict[str, list[str]] = {}
        for run in entry.runs:
            method, _, seed = run.rpartition("/seed")
            seeds.setdefault(method, []).append(seed)
        folders = [f"`{method}/seed{{{','.join(own)}}}`" for method, own in seeds.items()]
        lines.append(f"Runs: {', '.join(folders)}.")
    return "  \n".join(lines)


def short_verdict(entry: Entry) -> str:
    return SHORT.get(entry.verdict, shown_verdict(entry))


# The names that the paper's quotes use in formulas. A quote is read, and not set.
TEX = {
    r"\mathcal{H}": "H", r"\Delta": "Δ", r"\pi": "π", r"\theta": "θ", r"\phi": "φ", r"\nabla": "∇", r"\langle": "⟨",
    r"\rangle": "⟩", r"\log": "log", r"\text": "", r"\rightarrow": "→", r"\wedge": "∧", r"\beta": "β", r"\mid": "|",
    r"\cdot": "·", r"\quad": " ", r"\%": "%", r"\mathbb{E}": "E", r"\sum": "Σ", r"\sim": "~", r"\tau": "τ",
    r"\triangleright": "", "&=": "=", "**": "", "$": "", "{": "", "}": "",
}  # fmt: skip


def readable(text: str) -> str:
    """A quote with its formulas in plain letters.

    >>> readable(r"trading larger $\\Delta\\mathcal{H}$")
    'trading larger ΔH'
    """
    for tex, plain in TEX.items():
        text = text.replace(tex, plain)
    return " ".join(text.split())


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |" for line in lines)
