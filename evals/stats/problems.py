"""One checkpoint on one benchmark: the score and its interval, with the problem as the unit.

The question answered: what would this checkpoint score on other problems of this kind? `generation_se` answers another
one, and is therefore no Estimate and has no interval.
"""

from __future__ import annotations

import numpy as np

from evals.stats import intervals
from evals.stats.estimate import CONFIDENCE, Estimate, known
from evals.stats.responses import Samples


def estimate(samples: Samples, *, confidence: float = CONFIDENCE) -> Estimate:
    """avg@k with an interval clustered by problem.

    y_i = mean over the samples of problem i; SE = sd(y)/sqrt(P); interval: Wilson's with the effective number of
    answers p(1-p)/SE^2 and Student's factor (`intervals.score_interval`). All right or all wrong: se is None, the
    interval is Wilson's for P answers. One problem: no interval.
    """
    problems = len(samples.rows_per_problem)
    mean = intervals.clustered_mean(samples.right_per_problem, samples.rows_per_problem)
    value = samples.score
    if problems < 2:
        return Estimate(value, None, None, None, "problem", "one problem: no interval", problems)
    low, high = intervals.score_interval(mean, problems, samples.responses, confidence)
    se = known(mean.se) or None
    how = f"Wilson-t over {problems} problems"
    if value in (0.0, 1.0):
        how += f", all {'right' if value else 'wrong'}"
    elif se is None:
        how += ", all alike"
    return Estimate(value, se, min(float(low), value), max(float(high), value), "problem", how, problems)


def generation_se(samples: Samples) -> float | None:
    """Standard error from generation alone: sqrt(sum p_i (1 - p_i) / (k - 1)) / rows. None at k = 1, and
    when no problem was answered both ways.

    It says how far the score would move if the same checkpoint answered the same problems again. It is 2.5 to 4.5
    times smaller than the SE over problems and must not be printed in its place.
    """
    if samples.k < 2:
        return None
    p_I = samples.right.mean(1)
    return float(np.sqrt((p_I * (1 - p_I) / (samples.k - 1)).sum()) / len(p_I)) or None
