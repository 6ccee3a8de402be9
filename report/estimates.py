"""From scores to one cell: over seeds, and the difference of two rows. The statistics are `evals.stats`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from records.errors import CorruptInputError
from records.layout import Checkpoint
from report.results import Score, Tree

if TYPE_CHECKING:
    from evals.stats.estimate import Comparison

ROUNDING = 1e-9  # averages are summed in another order in the two places


@dataclass(frozen=True)
class Estimate:
    """A figure (fraction) with its interval, the level that the interval speaks about, and how it was computed."""

    value: float
    low: float | None
    high: float | None
    level: str
    how: str
    n: int | None


def over_seeds(scores: Mapping[Checkpoint, Score]) -> Estimate:
    """One seed: the score as it is, its interval over problems. Several: their mean, its interval over seeds."""
    known = {c.run.seed: s for c, s in scores.items() if s.value is not None}
    if len(known) == 1:
        (score,) = known.values()
        assert score.value is not None
        return Estimate(score.value, score.low, score.high, score.level, score.how, score.items)
    from evals.stats import seeds

    mean = seeds.over_seeds({seed: score.value for seed, score in known.items() if score.value is not None})
    assert mean.value is not None
    return Estimate(mean.value, mean.low, mean.high, mean.level, mean.how, mean.n)


def difference(
    tree: Tree, benchmark: str, left: Sequence[Checkpoint], right: Sequence[Checkpoint]
) -> Comparison | None:
    """left minus right, paired: by seed if several are common, by problem if one is.

    None when no seed is common, or when the two sides are the same checkpoints there: that compares nothing.
    """
    a, b = ({c.run.seed: c for c in side} for side in (left, right))
    common = sorted(set(a) & set(b))
    if not common or all(a[seed] == b[seed] for seed in common):
        return None
    if len(common) == 1:
        return _paired_problems(tree, benchmark, a[common[0]], b[common[0]])
    from evals.stats import seeds

    values = [{seed: tree.scores[side[seed], benchmark].value for seed in common} for side in (a, b)]
    gain = seeds.compare_seeds(*({s: v for s, v in side.items() if v is not None} for side in values))
    return None if gain.difference is None else gain


def _paired_problems(tree: Tree, benchmark: str, a: Checkpoint, b: Checkpoint) -> Comparison | None:
    x, y = (tree.scores[c, benchmark] for c in (a, b))
    if x.value is None or y.value is None:
        return None
    compared = tree.paired(a, b)
    if compared is None:
        from evals.stats.estimate import Comparison

        how = "no grades beside the scores: no paired interval"
        return Comparison(x.value - y.value, None, None, None, None, None, "problem", how, int(x.items or 0))
    gain = compared[benchmark]
    if gain.difference is None or abs(gain.difference - (x.value - y.value)) > ROUNDING:
        raise CorruptInputError(
            f"{tree.layout.scores}: {benchmark}: {a.path.as_posix()} minus {b.path.as_posix()} is "
            f"{x.value - y.value}, their grades give {gain.difference}: score again"
        )
    return gain
