# Base models and prompts (made once, cached by content), then one job per run.


rule base:
    output:
        f"{CACHE}/models/{{model}}-{{recipe}}/base.json",
    log:
        "logs/cache/base-{model}-{recipe}.log",
    conda:
        "../../environment.yml"
    threads: config["base"]["threads"]
    params:
        ladder=config["base"]["ladder"],
        folder=subpath(output[0], parent=True),
    shell:
        "python -m models.build --model {wildcards.model} --ladder {params.ladder} --threads {threads} --out {params.folder} 2>&1 | tee {log}"


rule prompts:
    output:
        f"{CACHE}/prompts/{{ladder}}-{{prompts}}-{{digest}}.jsonl",
    log:
        "logs/cache/prompts-{ladder}-{prompts}-{digest}.log",
    conda:
        "../../environment.yml"
    shell:
        "python -m models.prompts --ladder {wildcards.ladder} --count {wildcards.prompts} --seed 0 --out {output} 2>&1 | tee {log}"


rule train:
    input:
        base=lambda wc: base_folder(wc.model) / "base.json",
        prompts=PROMPTS,
    output:
        run=f"{RESULTS.root}/runs/{{model}}/{{method}}/seed{{seed}}/run.json",
        curve=f"{RESULTS.root}/runs/{{model}}/{{method}}/seed{{seed}}/curve.csv",
    log:
        f"{LOGS}/train/{{model}}/{{method}}/seed{{seed}}.log",
    conda:
        "../../environment.yml"
    threads: lambda wc: train_need(wc).cores
    resources:
        gpu=lambda wc: train_need(wc).gpus,
        mem_mb=lambda wc: train_need(wc).memory,
        runtime=lambda wc, attempt: train_need(wc).minutes * attempt,
    params:
        spec=specification,
        code=train_code,
        folder=subpath(output.run, parent=True),
    shell:
        "python -m methods.train --spec {params.spec:q} --out {params.folder} 2>&1 | tee {log}"
