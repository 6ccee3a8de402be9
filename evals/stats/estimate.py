"""The responses of one checkpoint by problem, and their scores: a value with an interval, or the reason for none.

No function here takes "121 right of 960". Thirty problems with 32 samples each are thirty draws;
losing the mapping of responses to problems makes the binomial interval cover only 35 %. This file alone
defines a problem: rows with the same prompt are one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.errors import CorruptInputError
from core.layout import BASE, Checkpoint, Results
from evals.benchmark import benchmark, definition, registered
from evals.grading import Verdict
from evals.stats import intervals
from evals.store import VERDICTS, read_folder, read_pair


@dataclass(frozen=True, kw_only=True)
class Uncertain:
    """The uncertainty of a number. Raises ValueError for a misleading form: an SE of 0, an interval without a value."""

    se: float | None = None  # standard error; None when it cannot be estimated
    low: float | None = None  # 95 % interval: both ends or neither
    high: float | None = None
    # What the interval covers. problem: other problems of this kind, for one checkpoint. seed: other training seeds, on
    # these same problems. Nothing here reports both at once.
    level: Literal["problem", "seed"] = "seed"
    how: str  # method and sample, or why there is no interval
    n: int  # drawn units: problems, or seeds

    def __post_init__(self) -> None:
        value = vars(self).get("value", vars(self).get("difference"))
        low, high = self.low, self.high
        finite = all(x is None or math.isfinite(x) for x in (value, self.se, low, high))
        ends = low is high is None or (None not in (value, low, high) and low <= value <= high != low)  # type: ignore[operator]
        if not finite or not ends or (self.se is not None and self.se <= 0):
            raise ValueError(f"{self}: unknown is None, not 0 or nan, and an interval holds its value between two ends")


@dataclass(frozen=True, kw_only=True)
class Estimate(Uncertain):
    """A score in [0, 1], or another figure of a run."""

    value: float | None = None  # None only when a part is missing


@dataclass(frozen=True, kw_only=True)
class Comparison(Uncertain):
    """A paired difference `a - b`; for scores in [-1, 1]."""

    difference: float | None = None
    p: float | None = None  # two-sided, raw: correct a table of them with `holm`
    detectable: float | None = None  # smallest true difference found significant at 5 % in 80 % of repetitions
    df: float | None = None  # degrees of freedom of `se` in the t test; None: no t test


@dataclass(frozen=True, eq=False)
class Samples:
    """Right or wrong, for every row of a benchmark, an item, and each of its k samples."""

    items: tuple[str, ...]  # one id per row, all different
    right: NDArray[np.bool_]  # (rows, k)
    problems: tuple[str, ...]  # one label per row, equal for copies of one problem

    @property
    def k(self) -> int:
        """Samples per row."""
        return int(self.right.shape[1])

    @property
    def responses(self) -> int:
        return int(self.right.size)

    @property
    def score(self) -> float:
        """avg@k: right responses over responses."""
        return int(self.right.sum()) / self.responses

    @cached_property
    def problem_of_row(self) -> NDArray[np.intp]:
        """The number, 0 .. P-1, of each row's problem; problems in the order of their labels."""
        return np.unique(np.array(self.problems, dtype=object), return_inverse=True)[1]

    @cached_property
    def rows_per_problem(self) -> NDArray[np.float64]:
        """How many rows each problem has: 1, or more for copied problems."""
        return np.bincount(self.problem_of_row).astype(float)

    @cached_property
    def right_per_problem(self) -> NDArray[np.float64]:
        """Sum over a problem's rows of the share of right samples."""
        return np.asarray(np.bincount(self.problem_of_row, weights=self.right.mean(1)), float)

    def column(self, policy: str) -> Self:
        """Return the rows of the benchmark's own column under a policy for copies (`Benchmark.duplicates`)."""
        if policy != "paper":
            return self
        rows = np.flatnonzero(self.rows_per_problem[self.problem_of_row] == 1).tolist()
        if not rows:
            raise CorruptInputError("samples: every problem occurs more than once, nothing is left for the column")
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in values.items():
            values[name] = value[rows] if isinstance(value, np.ndarray) else tuple(value[row] for row in rows)
        return replace(self, **values)


@dataclass(frozen=True, eq=False, kw_only=True)
class Graded(Samples):
    """The responses with their verdicts, answers and lengths."""

    verdict: NDArray[np.int64]  # (rows, k) index into VERDICTS
    answer: NDArray[np.object_]  # (rows, k) normalised answer or None
    tokens: NDArray[np.float64]  # (rows, k) length, nan where unknown

    @property
    def tokens_each(self) -> float | None:
        """Mean length of a response; None where any is unknown."""
        mean = float(self.tokens.mean())
        return None if np.isnan(mean) else mean

    def counts(self) -> dict[str, int]:
        """Return the number of responses by verdict, including zeros."""
        return dict(zip(VERDICTS, np.bincount(self.verdict.ravel(), minlength=len(VERDICTS)).tolist(), strict=True))


class Cell(NamedTuple):
    """A checkpoint on a benchmark; the two differ where problems are stored twice."""

    column: Graded  # the rows of the benchmark's own column
    pool: Graded  # those of the pooled average


def policies(results: Results, benchmarks: Sequence[str]) -> dict[str, str]:
    """Return the policy for copies of a problem, per benchmark: the registry's, or every row of a user's or an adopted
    one."""
    known = {key for key in benchmarks if registered(key) and not definition(results.data, key).is_file()}
    return {key: benchmark(key).duplicates if key in known else "keep" for key in benchmarks}


def read_graded(results: Results, checkpoint: Checkpoint, benchmarks: Sequence[str]) -> dict[str, Cell]:
    """Read grades and samples of a checkpoint. Raises as `evals.store.read_pair`, and CorruptInputError for an item
    with two prompts and for the samples of another checkpoint."""
    graded = {key: _graded(results, checkpoint, key) for key in benchmarks}
    run, path = checkpoint.run, results.samples(checkpoint) / "samples.json"
    # Only the end of the model's path is compared: a tree may have been moved.
    model = Path(str(read_folder(path).get("model")))
    end = run.model, run.method, f"seed{run.seed}", "checkpoints", f"step{checkpoint.step}"
    if run.method != BASE and model.parts[-len(end) :] != end:
        raise CorruptInputError(f"{path}: model: drawn from {model}, expected a folder that ends in {'/'.join(end)}")
    policy = policies(results, benchmarks)
    return {key: Cell(each.column(policy[key]), each) for key, each in graded.items()}


def _graded(results: Results, checkpoint: Checkpoint, key: str) -> Graded:
    columns = ("verdict", "normalised"), ("prompt_sha256", "tokens")
    items, values = read_pair(results, checkpoint, key, *columns)

    def by_item(column: Sequence[Any], kind: type) -> NDArray[Any]:
        return np.array(column, dtype=kind).reshape(len(items), -1)

    verdict_IK = by_item([VERDICTS.index(word) for word in values["verdict"]], int)
    prompt_IK = by_item(values["prompt_sha256"], object)
    if several := np.flatnonzero((prompt_IK != prompt_IK[:, :1]).any(1)).tolist():
        raise CorruptInputError(f"{results.samples(checkpoint)}: {key}: item {items[several[0]]!r} has several prompts")
    arrays = {"verdict": verdict_IK, "answer": by_item(values["normalised"], object)}
    arrays["tokens"] = by_item(values["tokens"], float)  # None becomes nan
    return Graded(items, verdict_IK == VERDICTS.index(Verdict.CORRECT), tuple(prompt_IK[:, 0]), **arrays)


# One checkpoint on one benchmark: its expected score on other problems of this kind. The unit is the problem, because
# the samples of one problem are not independent: 32 answers to a problem that is too hard are one observation.


def estimate(samples: Samples) -> Estimate:
    """Estimate avg@k with an interval clustered by problem.

    y_i = mean over the samples of problem i; SE = sd(y)/sqrt(P); interval: Wilson's with the effective number of
    answers p(1-p)/SE^2 (`intervals.score_interval`). All right or all wrong: se is None. One problem: no interval.
    """
    right, rows, value = samples.right_per_problem, samples.rows_per_problem, samples.score
    if len(rows) < 2:
        return Estimate(value=value, level="problem", how="one problem: no interval", n=len(rows))
    low, high = intervals.score_interval(right, rows, samples.responses)
    se = float(intervals.clustered_mean(right, rows).se) or None
    alike = f", all {'right' if value else 'wrong'}" if value in (0.0, 1.0) else ", all alike" if se is None else ""
    ends = {"low": min(float(low), value), "high": max(float(high), value)}
    how = f"Wilson-t over {len(rows)} problems{alike}"
    return Estimate(value=value, se=se, **ends, level="problem", how=how, n=len(rows))


def generation_se(samples: Samples) -> float | None:
    """Return the standard error from generation alone: sqrt(sum p_i (1 - p_i) / (k - 1)) / rows. None at k = 1, and
    when no problem was answered both ways.

    The variation of the score if the same checkpoint answered the same problems again. It is 2.5 to 4.5 times smaller
    than the SE over problems, answers another question and must not be printed in its place.
    """
    if samples.k < 2:
        return None
    p_I = samples.right.mean(1)
    return float(np.sqrt((p_I * (1 - p_I) / (samples.k - 1)).sum()) / len(p_I)) or None


def maj_at_k(answers_PK: Sequence[Sequence[str | None]], right_PK: ArrayLike) -> NDArray[np.float64]:
    """Return (P,) whether the most frequent of K answers is right; ties score the tied answers' share of right ones.

    answers: the normalised answer of each sample, None without one. Samples without an answer do not vote; a problem
    without any vote scores 0. Two spellings that the normaliser does not unify are two answers. If the grader
    judged one answer differently in two samples (a timeout), that answer counts the share of its samples judged right.

    >>> maj_at_k([["4", "4", "5", None]], [[True, True, False, False]]).tolist()
    [1.0]
    >>> maj_at_k([["4", "5"]], [[True, False]]).tolist()
    [0.5]
    """
    scores = np.zeros(len(answers_PK))
    for problem, (answers, right) in enumerate(zip(answers_PK, np.asarray(right_PK, bool), strict=True)):
        votes = Counter(answer for answer in answers if answer is not None)
        hits = Counter(answer for answer, is_right in zip(answers, right, strict=True) if is_right)
        most = max(votes.values(), default=0)
        tied = [answer for answer, count in votes.items() if count == most]
        scores[problem] = sum(hits[answer] / most for answer in tied) / len(tied) if tied else 0.0
    return scores


# The two averages over benchmarks. pooled: every response has equal weight (the paper's "Avg."); macro: every column.
# With the paper's seven sets the pool holds 8,844 responses, 62 % of them AMC and OMNI-MATH (`paper.printed`).


def pooled(run: Mapping[str, Samples], missing: Sequence[int] = (), *, missing_as_wrong: bool = False) -> Estimate:
    """Return right responses over responses, stratified by benchmark; pass each benchmark's `pool` rows.

    missing: of each benchmark not run, a "-" in the paper, the number of responses that it would have had. They are
    left out, or count as entirely wrong (as in the paper's Mistral rows): reading E10. `how` records which. The
    interval is MOVER over the benchmarks': Wilson's are asymmetric near 0 and 1; one SE for both sides loses that.
    """
    responses = sum(s.responses for s in run.values()) + sum(missing) * missing_as_wrong
    how, treated = "pooled by responses", "counted as wrong" if missing_as_wrong else "left out"
    if missing:
        how += f", {len(missing)} of {len(run) + len(missing)} benchmarks not run: {treated}"
    return _weighted({key: s.responses / responses for key, s in run.items()}, run, how)


def macro(run: Mapping[str, Samples], missing: Sequence[int] = ()) -> Estimate:
    """Return the mean of the benchmarks' scores; pass each benchmark's `column` rows. None when one was not run."""
    if missing:
        how = f"{len(missing)} of {len(run) + len(missing)} benchmarks not run: no macro average"
        return Estimate(level="problem", how=how, n=sum(len(s.rows_per_problem) for s in run.values()))
    return _weighted(dict.fromkeys(run, 1 / len(run)), run, f"mean of {len(run)} benchmarks")


def _weighted(weights: Mapping[str, float], run: Mapping[str, Samples], how: str) -> Estimate:
    one = {key: estimate(samples) for key, samples in run.items()}
    value, n = math.fsum(weights[key] * run[key].score for key in run), sum(e.n for e in one.values())
    if alone := [f"{key}: {e.how}" for key, e in one.items() if e.low is None]:
        return Estimate(value=value, level="problem", how=f"{how}; no interval: {alone[0]}", n=n)
    w, v = list(weights.values()), [samples.score for samples in run.values()]
    low_B, high_B = np.array([(e.low, e.high) for e in one.values()], float).T
    _, (low, high) = intervals.combine(w, v, low_B, high_B)
    ends = {"low": max(0.0, min(float(low), value)), "high": min(1.0, max(float(high), value))}
    # a benchmark all right or all wrong has no SE: a quarter of its interval is used
    se_B = [(high_B[b] - low_B[b]) / 4 if e.se is None else e.se for b, e in enumerate(one.values())]
    total = math.hypot(*(weight * se for weight, se in zip(w, se_B, strict=True)))
    how = f"{how}; MOVER over {len(run)} strata, {n} problems"
    return Estimate(value=value, se=total, **ends, level="problem", how=how, n=n)
