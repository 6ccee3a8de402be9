# The door: targets and includes, nothing else. The stages are in workflow/rules/.
from snakemake.utils import min_version

min_version("9.27")


configfile: "config/embedded.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    report,
    table1,
    figure2,
    figure3,
    figure_entropy,


rule all:
    default_target: True
    input:
        rules.report.input,
        rules.report.output,


rule table1:
    input:
        f"{RESULTS.tables}/table1.md",


rule figure2:
    input:
        f"{RESULTS.figures}/figure2.svg",


rule figure3:
    input:
        f"{RESULTS.figures}/figure3.svg",


rule figure_entropy:
    input:
        f"{RESULTS.figures}/entropy.svg",
