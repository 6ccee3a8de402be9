"""Plan and schedule experiments: configuration, the matrix of runs, Snakemake rules. No other package imports it."""

import core  # noqa: F401  before pydantic: it reports a missing environment in one line
