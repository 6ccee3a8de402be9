"""Averages, intervals, comparisons. What each interval means: `docs/statistics.md`.

`estimate(samples)` for one checkpoint on one benchmark, `pooled`/`macro` over benchmarks, `compare` and its averages
for two checkpoints on the same problems, `evals.stats.compare` for methods over training seeds. The unit of inference
is the problem for a checkpoint and the seed for a method. Not here, on purpose: a binomial interval over samples, an SE
over repeats of the same problems as an interval, a percentile bootstrap over a few seeds, an SE of 0.
"""
