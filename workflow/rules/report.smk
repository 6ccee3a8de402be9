# Tables, figures, claims and the page: cheap jobs that run on Snakemake's machine.
from report import figures as figure_spec
from report import rows as table_rows
from evals.tree import Tree

# Before training: a method misspelt in tables.yaml would otherwise only show as "not run" at the end.
with command_line.one_line():
    for table in table_rows.tables().values():
        table_rows.check(table)


# The tables and figures that this configuration has runs for.
TREE = Tree(RESULTS.root)
TREE.matrix = PLAN.matrix  # the future content of matrix.json
TABLES = table_rows.offered()
FIGURES = figure_spec.offered(TREE)


# For sweeps. The choice is the last job of the first of two rounds: afterwards, every reading of the Snakefile plans
# the runs on fresh seeds too, and jobs of that round would wait for runs that it does not make.
SWEEP = PLAN.matrix.get("sweep")
CHOICE = []
if SWEEP and SWEEP["test_seeds"] and not sweep.chosen(SWEEP, RESULTS):
    CHOICE = [RESULTS.root / sweep.CHOICE]

# Input and params of what is computed from the tree. The matrix lists the scale's models and methods, and the planned
# runs: a cell without a score may be "not run".
PLANNED = {"matrix": RESULTS.matrix, "scores": RESULTS.scores}
FROM_TREE = {"root": RESULTS.root, "code": lambda wc: made_by("report")}


rule matrix:
    output:
        RESULTS.matrix,
    log:
        f"{LOGS}/matrix.log",
    priority: 100  # `report.show runs` needs the plan to show progress
    params:
        # A param, whose path contains a hash, and not an input: the times of the plan's sources are irrelevant.
        content=PLAN.files["matrix.json"][0],
    shell:
        "quiet {log} cp {params.content} {output}"


rule table:
    input:
        **PLANNED,
        # The table of all runs also has columns of the learning curves.
        runs=lambda wc: RUNS if wc.number == "runs" else [],
    output:
        multiext(f"{RESULTS.tables}/table{{number}}", ".tidy.csv", ".md", ".tex"),
    log:
        f"{LOGS}/table{{number}}.log",
    wildcard_constraints:
        number=r"[A-Za-z0-9_-]+",
    params:
        **FROM_TREE,
    shell:
        "quiet {log} python -m report.tables --results {params.root} --table {wildcards.number}"


rule figure:
    input:
        # Only the runs of its panels, so that a figure exists before all training ends. run.json: a complete curve.
        lambda wc: [
            f"{RESULTS.run(run)}/run.json"
            for run in figure_spec.runs(TREE)
            if run.path.as_posix() in PLAN.runs  # results of earlier questions exist, and no rule makes them
        ],
        matrix=RESULTS.matrix,
    output:
        multiext(f"{RESULTS.figures}/{{figure}}", ".svg", ".png", ".pdf", ".json", ".csv"),
    log:
        f"{LOGS}/{{figure}}.log",
    wildcard_constraints:
        figure=any_of(figure_spec.specification().figures),
    params:
        **FROM_TREE,
    shell:
        "quiet {log} python -m report.figures --results {params.root} --figure {wildcards.figure}"


rule sweep_table:
    input:
        **PLANNED,
        runs=RUNS,
    output:
        multiext(f"{RESULTS.root}/sweep/sweep", ".csv", ".md"),
        multiext(f"{RESULTS.root}/sweep/frontier", ".csv", ".md", ".svg", ".png", ".pdf"),
        f"{RESULTS.root}/sweep/matched.csv",
    log:
        f"{LOGS}/sweep.log",
    params:
        **FROM_TREE,
    shell:
        "python -m report.sweep --results {params.root} 2>&1 | tee {log}"


rule sweep_choice:
    input:
        table=rules.sweep_table.output,
        last=RESULTS.report,  # a choice changes the plan: only the manifest, which lists it, comes later
    output:
        f"{RESULTS.root}/{sweep.CHOICE}",
    log:
        f"{LOGS}/sweep_choice.log",
    params:
        root=RESULTS.root,
        question=(SWEEP or {}).get("question"),
    shell:
        "python -m report.sweep --results {params.root} --choose 2>&1 | tee {log}"


rule convergence:
    input:
        matrix=RESULTS.matrix,
        runs=RUNS,
    output:
        multiext(f"{RESULTS.figures}/convergence", ".csv", "_bands.csv"),
    log:
        f"{LOGS}/convergence.log",
    params:
        **FROM_TREE,
    shell:
        "quiet {log} python -m report.convergence --results {params.root}"


rule claims:
    input:
        **PLANNED,
        runs=RUNS,
        matched=rules.sweep_table.output if SWEEP else [],
    output:
        f"{RESULTS.root}/claims.csv",
    log:
        f"{LOGS}/claims.log",
    params:
        **FROM_TREE,
    shell:
        "quiet {log} python -m paper.claims --results {params.root}"


# The page shows the output of these rules and computes nothing.
rule report:
    input:
        **PLANNED,
        tables=expand(rules.table.output, number=TABLES),
        figures=expand(rules.figure.output, figure=FIGURES),
        convergence=rules.convergence.output,
        sweep=rules.sweep_table.output if SWEEP else [],
        claims=rules.claims.output,
    output:
        page=RESULTS.report,
        responses=directory(f"{RESULTS.root}/report.data"),
    log:
        f"{LOGS}/report.log",
    params:
        **FROM_TREE,
        data=DATA,
    shell:
        "python -m report.page --results {params.root} --data {params.data:q} 2>&1 | tee {log}"


# Last: it lists the files of all other rules.
rule manifest:
    input:
        rules.report.output,
        CHOICE,
    output:
        f"{RESULTS.root}/manifest.json",
    log:
        f"{LOGS}/manifest.log",
    params:
        **FROM_TREE,
    shell:
        "quiet {log} python -m report.manifest --results {params.root}"


# Without input: nothing is rebuilt before it is checked.
rule verify:
    log:
        f"{LOGS}/verify.log",
    params:
        root=RESULTS.root,
    shell:
        "python -m report.verify --results {params.root} 2>&1 | tee {log}"
