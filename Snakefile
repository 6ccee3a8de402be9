# Targets and includes only. The stages are in workflow/rules/.
from snakemake.utils import min_version

min_version("9.27")


configfile: "config/embedded.yaml"


report: "report/captions/snakemake.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/plan.smk"


onstart:
    PLAN.write()


onsuccess:
    if PLAN.round and MAIN:
        print(PLAN.next_round().line(over=True), file=sys.stderr)


# They run nothing, or for seconds: as jobs of a cluster they would only wait in its queue.
localrules:
    all,
    report,
    table1,
    table2,
    table3,
    table4,
    table_hot,
    table_beyond,
    table_controls,
    runs_table,
    sweep,
    figure2,
    figure3,
    figure_entropy,
    figures,


# The manifest is written last, so when it is there all the rest is. `default_target`, since the files included above hold
# rules too and the first rule would be the default.
rule all:
    default_target: True
    input:
        rules.manifest.output,
        CHOICE,


rule table1:
    input:
        expand(rules.table.output, number=1),


rule table2:
    input:
        expand(rules.table.output, number=2),


rule table3:
    input:
        expand(rules.table.output, number=3),


rule table4:
    input:
        expand(rules.table.output, number=4),


rule table_hot:
    input:
        expand(rules.table.output, number="hot"),


rule table_beyond:
    input:
        expand(rules.table.output, number="beyond"),


rule table_controls:
    input:
        expand(rules.table.output, number="controls"),


rule runs_table:
    input:
        expand(rules.table.output, number="runs"),


# What a sweep found, and the choice from it: the same command again then trains the chosen values on fresh seeds.
rule sweep:
    input:
        rules.sweep_table.output,
        CHOICE,


rule figure2:
    input:
        f"{RESULTS.figures}/figure2.svg",


rule figure3:
    input:
        f"{RESULTS.figures}/figure3.svg",


rule figure_entropy:
    input:
        f"{RESULTS.figures}/entropy.svg",


rule figures:
    input:
        expand(rules.figure.output, figure=FIGURES),
        rules.convergence.output,


# All rules are known here.
with command_line.one_line():
    command_line.check_targets(rule.name for rule in workflow.rules)
