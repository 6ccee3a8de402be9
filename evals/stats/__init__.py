"""Averages, intervals, comparisons. The meaning of each interval: `docs/statistics.md`.

The unit of inference is the problem for a checkpoint and the seed for a method. Deliberately absent: a binomial
interval over samples, an SE over repeats of the same problems, a percentile bootstrap over a few seeds, an SE of 0.
"""

MARGIN = 0.02  # of rewards and scores: an interval within it is practical equality, as in paper/claims.yaml
ALPHA = 0.05  # level of every comparison, after Holm's correction; belongs to the 95 % of `intervals.CONFIDENCE`
