"""Read `claims.yaml`: the tested statement of each claim, its test in print and in runs, what stand-ins cannot test.

The kinds of test that a claim can name are one small function each. A test asks a `Source` for contrasts, and says on
which side of their null the claim puts them and how many may fail; `paper.claims.ledger` decides.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveFloat

from core.declared import Declared, Tuple, arguments_model, validated
from core.errors import ConfigError, unknown
from core.files import read_csv, read_yaml
from core.provenance import ROOT
from evals import learning_curves
from paper import printed
from paper.claims.contrast import SCORE, Contrast, Gap, Rows, Source, listed, of_share
from paper.claims.from_runs import EXTRAS, MATCHED
from paper.printed import AVERAGE, HEADINGS, Paper

DATA = ("paper/claims.yaml", "paper/formulas.csv")
CLAIMS = ROOT / DATA[0]
FORMULAS = ROOT / DATA[1]  # on how many policies each formula holds; `tests/paper/test_formulas.py` counts them again
SCORES, CURVES = "scores.csv", "runs/*/curve.csv"
NEEDS = {"algebra": "no run", "equal_movement": MATCHED}  # by kind of test, where it is neither scores nor curves
SCORED = ("difference_of_rows", "highest", "ordering", "rank", "seed_spread")  # unless the test names another measure


# The kinds of test.

Side = Literal["above", "below"]
LEAST_KEPT = 0.75  # share of the first rollout's entropy that is left at the end where entropy counts as held


@dataclass(frozen=True)
class Outcome:
    contrasts: tuple[Contrast, ...]
    side: Side = "above"  # of its null, on which the claim puts every contrast
    allow: int = 0  # so many contrasts may be elsewhere


def difference_of_rows(
    source: Source, *, left: Rows, right: Rows, column: str = AVERAGE, least: float = 0.0
) -> Outcome:
    """left is above right, by more than `least` (a fraction)."""
    return Outcome((source.difference(left, right, SCORE, column, least),))


def highest(
    source: Source, *, over: Mapping[str, Sequence[str]], columns: Sequence[str] = (AVERAGE,), measure: str = SCORE
) -> Outcome:
    """Each row is above all the rows it is listed over, in every column."""
    pairs = [(top, other, column) for top, others in over.items() for other in others for column in columns]
    return Outcome(tuple(source.difference(top, other, measure, column, 0.0) for top, other, column in pairs))


def ordering(source: Source, *, tiers: Sequence[Sequence[str]], column: str = AVERAGE) -> Outcome:
    """Every row of a tier is above every row of the next one."""
    pairs = [(a, b) for upper, lower in pairwise(tiers) for a in upper for b in lower]
    return Outcome(tuple(source.difference(a, b, SCORE, column, 0.0) for a, b in pairs))


def rank(source: Source, *, row: str, among: Sequence[str], column: str, place: int) -> Outcome:
    """At most place - 1 of the other rows are above the row."""
    contrasts = tuple(source.difference(row, other, SCORE, column, 0.0) for other in among)
    return Outcome(contrasts, allow=place - 1)


def convergence(source: Source, *, left: Rows, right: Rows, measure: str, factor: float = 1.0) -> Outcome:
    """left needs less than `factor` times the rollouts of right."""
    return Outcome((source.ratio(left, right, measure, factor),), "below")


def curve_ratio(source: Source, *, left: Rows, right: Rows, measure: str, side: Side = "above") -> Outcome:
    """A positive figure of left's learning curve over right's is above (or below) 1."""
    return Outcome((source.ratio(left, right, measure, 1.0),), side)


def gain_kept(source: Source, *, held: Rows, free: Rows, measure: str, share: float) -> Outcome:
    """With entropy held, less than this share of the figure of free's learning curve is left.

    Raises `Gap` when entropy was not held: then nothing follows.
    """
    kept = source.value(held, "entropy_kept", 1.0)
    if kept.value is not None and kept.value < LEAST_KEPT:
        raise Gap(f"entropy was not held: {100 * kept.value:.0f} % of it is left; {100 * LEAST_KEPT:.0f} % are needed")
    return Outcome((source.difference(held, free, measure, AVERAGE, 0.0, times=share),), "below")


def curve_mean_difference(source: Source, *, left: Rows, right: Rows, measure: str, side: Side = "above") -> Outcome:
    """A figure of left's learning curve is above (or below) right's."""
    return Outcome((source.difference(left, right, measure, AVERAGE, 0.0),), side)


def equal_movement(source: Source, *, left: str, right: str) -> Outcome:
    """Where both moved the policy equally far, left's area under the reward curve is above right's."""
    return Outcome((source.matched(left, right),))


def sign_agreement(source: Source, *, rows: Rows, against: float) -> Outcome:
    """On more than this share of tokens entropy moves against the sign of the advantage (Theorem 3.1)."""
    return Outcome((source.value(rows, "sign_agreement", against),))


def collapse_by(source: Source, *, row: str, by: int, below: float) -> Outcome:
    """After `by` steps, or at the end of a shorter run, less than `below` of the answers are right."""
    return Outcome((source.collapsed(row, by, below),), "below")


def seed_spread(source: Source, *, steadier: Rows, than: Rows, column: str = AVERAGE, measure: str = SCORE) -> Outcome:
    """The scores, or another figure, of the first rows differ less between seeds than those of the others."""
    return Outcome((source.spread(steadier, than, column, measure),), "below")


def algebra(source: Source, *, check: str, against: float) -> Outcome:
    """A printed formula holds for more than this share of random softmax policies: the counts of `FORMULAS`."""
    columns = ("check", "holds", "policies", "drawn", "figures")
    rows = {row["check"]: row for row in read_csv(FORMULAS, "counts of the formulas", columns)}
    if check not in rows:
        raise unknown("algebra", "check", check, rows)
    row = rows[check]
    how = f"{row['holds']} of {row['policies']} {row['drawn']}, Clopper-Pearson"
    how = "; ".join(part for part in (how, row["figures"]) if part)
    return Outcome((of_share(f"{check} holds", int(row["holds"]), int(row["policies"]), null=against, how=how),))


KINDS: dict[str, Callable[..., Outcome]] = {
    kind.__name__: kind
    for kind in (
        difference_of_rows, highest, ordering, rank, convergence, curve_ratio, curve_mean_difference, equal_movement,
        gain_kept, sign_agreement, collapse_by, seed_spread, algebra,
    )
}  # fmt: skip


def rows_of(arguments: Mapping[str, object]) -> list[str]:
    """Every row that the arguments of a test name."""

    def named(value: object) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from named([*value, *value.values()])
        elif isinstance(value, Sequence):
            for part in value:
                yield from named(part)

    sides = ("left", "right", "row", "rows", "among", "over", "tiers", "steadier", "than", "held", "free")
    return list(dict.fromkeys(named([arguments.get(side, ()) for side in sides])))


# Claims as `claims.yaml` has them.


class Place(Declared):
    where: str
    quote: str  # verbatim


class Declaration(Declared):
    """A claim as `claims.yaml` has it; the comment at the top of that file explains the keys."""

    id: str
    family: str  # claims of one family share one Holm correction
    where: str
    quote: str
    also: Tuple[Place] = ()  # other places where the paper says it
    tests: str  # the statement that is tested, in our words
    untested: str = ""  # what the quote states beyond that
    test: dict[str, Any]
    print: str | dict[str, Any] | None = None  # another test for the printed tables, or the reason why they cannot tell
    untestable: str | None = None  # name of the reason why stand-ins are no test; None: as `_claim` has it
    methods: Tuple[str] = ()  # each in the place of the test's left row
    # label -> printed row -> the method in its place under another reading
    readings: dict[str, dict[str, str]] = Field(default_factory=dict)


class Margin(Declared):
    """Practical equivalence: how far from no difference a value may lie and still make no difference that matters."""

    within: PositiveFloat  # in the measure's unit; of a ratio r and its margin m: 1/(1 + m) <= r <= 1 + m
    around: float = 0.0  # the value of no difference: 0 of a difference, 1 of a ratio, ...
    why: str


class ArmOfOurs(Declared):
    """Runs that no printed row has, named in tests as rows are."""

    row: str  # the printed row whose model and step it has
    method: str  # as the configuration names it


class ClaimsFile(Declared):
    lists: dict[str, Tuple[str]]  # YAML anchors for lists of rows; read where they are used
    reasons: dict[str, str]
    margins: dict[str, Margin] = Field(default_factory=dict)  # by kind of test, or by measure
    arms: dict[str, ArmOfOurs] = Field(default_factory=dict)
    claims: Tuple[Any]  # each becomes a `Declaration`, so that an error can name the claim's id


@dataclass(frozen=True)
class Question:
    """A test to run: one of `KINDS` and its arguments."""

    kind: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """One testable statement of the paper: its declaration with tests and reasons looked up."""

    declared: Declaration
    test: Question  # asked of runs
    printed: Question | str  # asked of the printed tables, or the reason why these cannot tell
    needs: str  # what of a results tree the test reads
    untestable: str | None  # why stand-ins are no test of the claim; None: they are one
    margin: Margin | None = None  # of what the test measures in runs; None: no difference is declared too small

    @property
    def id(self) -> str:
        return self.declared.id


def read_claims(path: Path | str = CLAIMS) -> list[Claim]:
    """All claims of a file.

    Raises `ConfigError` naming file and claim: an id given twice; an unknown or missing key; an unknown kind of test,
    row, column, measure or reason; two sides with rows of different models.
    """
    file = declared(path)
    rows = with_arms(printed.read(), path)
    claims: dict[str, Claim] = {}
    for number, body in enumerate(file.claims):
        at = str(body["id"]) if isinstance(body, dict) and "id" in body else f"claims.{number}"
        declaration = validated(Declaration, body, str(path), at)
        if declaration.id in claims:
            raise ConfigError(f"{path}: claims: id {declaration.id} is given twice")
        claims[declaration.id] = _claim(declaration, f"{path}: {declaration.id}", file, rows)
    return list(claims.values())


def with_arms(paper: Paper, path: Path | str = CLAIMS) -> Paper:
    """The printed rows, and the arms of `claims.yaml` as rows without cells, each beside the row that it changes."""
    rows = dict(paper)
    for name, arm in declared(path).arms.items():
        _check_names([arm.row], [id for id, row in paper.items() if row.run], str(path), f"arms.{name}: row")
        row = paper[arm.row]
        assert row.run is not None
        run = row.run._replace(method=arm.method)
        rows[name] = replace(row, id=name, label=arm.method, run=run, cells=dict.fromkeys(row.cells))
    return rows


def declared(path: Path | str = CLAIMS) -> ClaimsFile:
    """The file as it is written, its claims still unread."""
    return validated(ClaimsFile, read_yaml(path), str(path))


def _claim(declaration: Declaration, where: str, file: ClaimsFile, rows: Paper) -> Claim:
    test = _question(declaration.test, where, "test", rows)
    of_scores = test.kind in SCORED and test.arguments.get("measure", SCORE) == SCORE
    needs = NEEDS.get(test.kind, SCORES if of_scores else CURVES)
    told = declaration.print or (declaration.test if needs in (SCORES, NEEDS["algebra"]) else "no_print")
    in_print = _reason(told, file.reasons, where) if isinstance(told, str) else _question(told, where, "print", rows)
    if isinstance(in_print, Question):
        _check_names(rows_of(in_print.arguments), [id for id in rows if id not in file.arms], where, "printed row")
    for label, instead in declaration.readings.items():
        _check_names(instead, rows_of(test.arguments), where, f"readings.{label}: row")
    untestable = declaration.untestable or ("other_tasks" if needs == SCORES else None)
    why = None if untestable is None else _reason(untestable, file.reasons, where)
    # A kind of its own ratio, such as the spread over seeds, comes before the measure that it is taken of.
    measure = test.arguments.get("measure", SCORE if test.kind in SCORED else "")
    margin = file.margins.get(test.kind) or file.margins.get(measure)
    return Claim(declaration, test, in_print, needs, why, margin)


def _reason(name: str, reasons: Mapping[str, str], where: str) -> str:
    _check_names([name], reasons, where, "reason")
    return " ".join(reasons[name].split())


def _question(value: Mapping[str, Any], where: str, at: str, rows: Paper) -> Question:
    if len(value) != 1:
        raise ConfigError(f"{where}: {at}: must be one kind of test with its keys, got {', '.join(value) or 'none'}")
    ((kind, body),) = value.items()
    _check_names([kind], KINDS, where, f"{at}: kind")
    # Only the keys that are given: a test's own defaults hold for the others.
    arguments = validated(arguments_model(KINDS[kind]), body, where, f"{at}.{kind}").model_dump(exclude_unset=True)
    where = f"{where}: {at}: {kind}"
    evaluated = [id for id, row in rows.items() if row.run is not None or row.kind == "mean"]
    _check_names(rows_of(arguments), evaluated, where, "row")
    # Differences are taken row by row and then averaged over models, so both sides need the same models in one order.
    left, right = ([rows[id].model for id in listed(arguments.get(side, ()))] for side in ("left", "right"))
    if left != right:
        raise ConfigError(
            f"{where}: left and right must name a row of the same models, got {', '.join(left)} and {', '.join(right)}"
        )
    columns = [*arguments.get("columns", ()), arguments.get("column", AVERAGE)]
    _check_names(columns, HEADINGS, where, "column")
    if "measure" in arguments:
        _check_names([arguments["measure"]], [SCORE, *learning_curves.MEASURES, *EXTRAS], where, "measure")
    return Question(kind, arguments)


def _check_names(names: Iterable[str], allowed: Iterable[str], where: str, key: str) -> None:
    known = list(allowed)
    for name in names:
        if name not in known:
            raise unknown(where, key, name, known)
