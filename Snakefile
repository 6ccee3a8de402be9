# Targets and includes only. The stages are in workflow/rules/.
import sys
from importlib.util import find_spec

from snakemake.utils import min_version

min_version("9.27")

# The plan uses this folder's configuration and results: the `config:` of a module would have no effect.
if len(workflow.modifier_stack) > 1:
    print(
        "error: Snakefile: cannot be a module; run snakemake in its own folder, read results/<scale>", file=sys.stderr
    )
    sys.exit(2)


configfile: "config/embedded.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"


onstart:
    with command_line.one_line():
        for path, text in PLAN.files.values():
            write_text(path, text)


# Not after a dry run, which ends without hooks, nor on a cluster's login node, which has no scipy.
onsuccess:
    if MAIN and MAKES and RESULTS.matrix.is_file() and find_spec("scipy"):
        from report import compare  # not needed by most calls

        with command_line.one_line():
            print(compare.of_own(Tree(RESULTS.root)), end="")


# The manifest is written last. Pages and records are listed too, so that removed ones are rebuilt; checkpoints, states
# and bases of finished work are not. Without `default_target`, the first included rule would be the default.
rule all:
    default_target: True
    input:
        rules.manifest.output,
        CHOICE,
        rules.report.input,
        rules.report.output,
        RUNS,
        SAMPLES,
        GRADES,
        LOGGED,


# Short names for tables and figures.
SHORT = {
    "table1": expand(rules.table.output, number=1),
    "table2": expand(rules.table.output, number=2),
    "table3": expand(rules.table.output, number=3),
    "table4": expand(rules.table.output, number=4),
    "runs_table": expand(rules.table.output, number="runs"),
    "figure2": f"{RESULTS.figures}/figure2.svg",
    "figure3": f"{RESULTS.figures}/figure3.svg",
    "figure_entropy": f"{RESULTS.figures}/entropy.svg",
    # With the choice from a sweep: run again, the same command trains the chosen values on fresh seeds.
    "sweep": [*rules.sweep_table.output, *CHOICE],
    "figures": [*expand(rules.figure.output, figure=FIGURES), *rules.convergence.output],
}
for short_name, files in SHORT.items():

    rule:
        name:
            short_name
        input:
            files,


# Here, because all rules are defined. On a cluster every job activates this environment, with conda or by hand. A dry
# run without conda leaves it out: looking up the environment of every job takes a tenth of the time.
if not DRY or any(method.name == "CONDA" for method in workflow.deployment_settings.deployment_method):
    for known in workflow.rules:
        # Braces of the folder's name would be wildcards.
        known.conda_env = f"{workflow.basedir}/environment.yml".replace("{", "{{").replace("}", "}}")

# Rules whose jobs a cluster gets. All others fetch or are cheap, and run on Snakemake's machine, the only one that needs
# a network.
SUBMITTED = {"clean", "base", "train", "train_nodes", "generate", "grade"}
workflow.localrules(*(known.name for known in workflow.rules if known.name not in SUBMITTED))

# What other code made stays although a rule has another command now. What is cheap has its code in `params`.
if config.get("accept_code"):
    command_line.keep(SUBMITTED | {"fetch_model", "training_data", "prompts", "hub_prompts", "benchmark_data"})

with command_line.one_line():
    command_line.check_targets(["plan", *(rule.name for rule in workflow.rules)])
