"""When and where: configuration, the matrix of runs, Snakemake rules. Nothing imports this room."""
