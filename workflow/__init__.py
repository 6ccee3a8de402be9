"""When and where: configuration, the matrix of runs, Snakemake rules. Nothing imports this room."""

import core  # noqa: F401  before pydantic: it has the line for a command that is typed without its environment
