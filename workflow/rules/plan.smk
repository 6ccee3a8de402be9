# `snakemake plan`: what will run, what it will cost, what is missing. It makes no file, so it always runs.
import os

# Not on the command line: Snakemake repeats that when the plan ends with exit code 1.
os.environ.update(TEPO_CONFIG=json.dumps(config, sort_keys=True))


localrules:
    plan,


rule plan:
    log:
        f"{LOGS}/plan.log",
    conda:
        "../../environment.yml"
    shell:
        'python -m workflow.plan --config "$TEPO_CONFIG" 2>&1 | tee {log}'
