# `snakemake plan`: what will run, what it will cost, what is missing. It makes no file, so it always runs.
import os

# The configuration goes by the environment: Snakemake repeats a failed job's command line, and this one would be long.
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
