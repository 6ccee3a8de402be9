# `snakemake plan`: what will run, its cost, and what is missing. It makes no file, so it always runs.


localrules:
    plan,


rule plan:
    log:
        f"{LOGS}/plan.log",
    params:
        config=PLAN.path("config.json"),
    shell:
        "python -m workflow.cost --config {params.config} 2>&1 | tee {log}"
