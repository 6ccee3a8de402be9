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
FIGURES = [figure.key for figure in figure_spec.offered(TREE)]


# For sweeps. The choice is the last job of the first of two rounds: afterwards, every reading of the Snakefile plans
# the runs on fresh seeds too, and jobs of that round would wait for runs that it does not make.
SWEEP = PLAN.matrix.get("sweep")
CHOICE = []
if SWEEP and SWEEP["test_seeds"] and not sweep.chosen(SWEEP, RESULTS):
    CHOICE = [RESULTS.root / sweep.CHOICE]

def ends(start, *endings):
    return [start + ending for ending in endings]


# Input and params of what is computed from the tree. The matrix lists the scale's models and methods, and the planned
# runs: a cell without a score may be "not run".
PLANNED = {"matrix": RESULTS.matrix, "scores": RESULTS.scores}
FROM_TREE = {"root": RESULTS.root, "code": lambda wc: made_by("report")}
TABLE = ends(f"{RESULTS.tables}/table{{number}}", ".csv", ".tidy.csv", ".md", ".tex")
FIGURE = ends(f"{RESULTS.figures}/{{figure}}", ".svg", ".png", ".pdf", ".json", ".csv")
CONVERGENCE = ends(f"{RESULTS.figures}/convergence", ".csv", "_methods.csv", "_runs.csv", "_curves.csv", "_bands.csv")
SWEPT = ends(f"{RESULTS.root}/sweep/", "sweep.csv", "sweep.md", "matched.csv")
SWEPT += ends(f"{RESULTS.root}/sweep/frontier", ".csv", ".md", ".svg", ".png", ".pdf")
CLAIMS = ends(f"{RESULTS.root}/claims", ".csv", ".md")
PAGE = [RESULTS.report, directory(f"{RESULTS.root}/report.data")]


# Only the runs of its panels, so that a figure exists before all training ends. run.json: a complete curve.
def runs_of_figure(wc):
    runs = figure_spec.runs(figure_spec.figure(wc.figure), TREE)
    # Results of earlier questions exist, and no rule makes them.
    return [f"{RESULTS.run(run)}/run.json" for run in runs if run.path.as_posix() in PLAN.runs]


# Rule -> input, output, name of its log, command. The page shows the output of the others and computes nothing; the
# manifest is written last, since it lists the files of all of them.
FROM_RESULTS = {
    "table": (
        # The table of all runs also has columns of the learning curves.
        PLANNED | {"runs": lambda wc: RUNS if wc.number == "runs" else []},
        TABLE,
        "table{number}",
        "report.tables --table {number}",
    ),
    "figure": (
        {"matrix": RESULTS.matrix, "runs": runs_of_figure},
        FIGURE,
        "{figure}",
        "report.figures --figure {figure}",
    ),
    "sweep_table": (PLANNED | {"runs": RUNS}, SWEPT, "sweep", "report.sweep"),
    "convergence": ({"matrix": RESULTS.matrix, "runs": RUNS}, CONVERGENCE, "convergence", "report.convergence"),
    "claims": (PLANNED | {"runs": RUNS, "matched": SWEPT if SWEEP else []}, CLAIMS, "claims", "paper.claims"),
    "report": (
        PLANNED
        | {"tables": expand(TABLE, number=TABLES), "figures": expand(FIGURE, figure=FIGURES)}
        | {"others": [*CONVERGENCE, *(SWEPT if SWEEP else []), *CLAIMS]},
        PAGE,
        "report",
        f"report.page --data {shlex.quote(DATA)}",
    ),
    "manifest": (
        {"page": PAGE[:1], "choice": CHOICE},
        f"{RESULTS.root}/manifest.json",
        "manifest",
        "report.manifest",
    ),
}
for rule_name, (inputs, outputs, place, command) in FROM_RESULTS.items():

    rule:
        name:
            rule_name
        input:
            **inputs,
        output:
            outputs,
        log:
            f"{LOGS}/{place}.log",
        params:
            **FROM_TREE,
            how="watched" if rule_name in ("sweep_table", "report") else "quiet",
            command=command,  # a param: the shell command is put together when a job runs, after this loop
        shell:
            "{params.how} {log} python -m {params.command} --results {params.root}"


localrules:
    claims,
    convergence,
    figure,
    manifest,
    matrix,
    report,
    sweep_choice,
    sweep_table,
    table,
    verify,


wildcard_constraints:
    number=r"[A-Za-z0-9_-]+",
    figure=any_of(figure.key for figure in figure_spec.figures()),


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


rule sweep_choice:
    input:
        table=SWEPT,
        last=RESULTS.report,  # a choice changes the plan: only the manifest, which lists it, comes later
    output:
        f"{RESULTS.root}/{sweep.CHOICE}",
    log:
        f"{LOGS}/sweep_choice.log",
    params:
        root=RESULTS.root,
        question=(SWEEP or {}).get("question"),
    shell:
        "watched {log} python -m report.sweep --results {params.root} --choose"


# Without input: nothing is rebuilt before it is checked.
rule verify:
    log:
        f"{LOGS}/verify.log",
    params:
        root=RESULTS.root,
    shell:
        "watched {log} python -m report.verify --results {params.root}"
