# Base models and prompts (fetched or built once, cached by content), then one job per run.
import shlex

from models import registry as models

SOURCE = config["prompts"]
LADDER = config["base"]["ladder"]


# The name contains the recipe's hash: another recipe is another file, and an existing model is never out of date.
rule clean:
    output:
        f"{CACHE}/models/{{model}}-clean-{{recipe}}/clean.json",
    log:
        "logs/cache/clean-{model}-{recipe}.log",
    wildcard_constraints:
        model="[^/]+",  # also a model without runs, if another continues its clean models
        recipe="[0-9a-f]{12}",
    priority: 2  # many runs wait for it
    threads: config["base"]["threads"]
    params:
        kind="--clean",
        ladder=LADDER,
        seed=lambda wc: next(
            build.number for build in PLAN.builds.values() if build.clean == f"{wc.model}-clean-{wc.recipe}"
        ),
        folder=subpath(output[0], parent=True),
    shell:
        "python -m models.build {params.kind} --model {wildcards.model} --ladder {params.ladder} --seed {params.seed} --threads {threads}"
        " --out {params.folder} 2>&1 | tee {log}"


use rule clean as base with:
    input:
        # ancient: an existing base stays, even if the clean model changes.
        ancient(lambda wc: f"{CACHE}/models/{PLAN.builds[f'{wc.model}-{wc.recipe}'].clean}/clean.json"),
    output:
        f"{CACHE}/models/{{model}}-{{recipe}}/base.json",
    log:
        "logs/cache/base-{model}-{recipe}.log",
    wildcard_constraints:
        recipe="[0-9a-f]{12}",  # 40 digits are a commit, so that fetch_model may share the folder
    priority: 1
    params:
        kind="",
        seed=lambda wc: PLAN.builds[f"{wc.model}-{wc.recipe}"].seed,
        folder=subpath(output[0], parent=True),


rule fetch_model:
    output:
        f"{CACHE}/models/{{model}}-{{revision}}/base.json",
    log:
        "logs/cache/fetch-{model}-{revision}.log",
    wildcard_constraints:
        revision=f"[0-9a-f]{{40}}|{matrix.UNPINNED}",
    params:
        asked=lambda wc: models.model(wc.model).fetched_by(wc.model),
        folder=subpath(output[0], parent=True),
    shell:
        "HF_HUB_OFFLINE=$TEPO_HUB_OFFLINE python -m models.fetch {params.asked}"
        " --out {params.folder} 2>&1 | tee {log}"


rule training_data:
    output:
        f"{CACHE}/data/{{source}}-{{revision}}.jsonl",
    log:
        "logs/cache/data-{source}-{revision}.log",
    wildcard_constraints:
        source="[a-z0-9_]+",
    params:
        revision=f"--revision {SOURCE['revision']}" if SOURCE.get("revision") else "",
        sha256=f"--sha256 {SOURCE['sha256']}" if SOURCE.get("sha256") else "",
        # A function: Snakemake would take braces in the name for wildcards.
        file=lambda wc: f"--from {shlex.quote(SOURCE['file'])}" if SOURCE.get("file") else "",
    shell:
        "HF_HUB_OFFLINE=$TEPO_HUB_OFFLINE python -m models.training_data --source {wildcards.source} {params.revision} {params.sha256} {params.file}"
        " --out {output} 2>&1 | tee {log}"


# Seed 0 for all: runs of every seed read the same prompts and shuffle them by their seed.
rule prompts:
    output:
        f"{CACHE}/prompts/{{ladder}}-{{prompts}}-{{digest}}.jsonl",
    log:
        "logs/cache/prompts-{ladder}-{prompts}-{digest}.log",
    wildcard_constraints:
        ladder="[a-z]+",
        prompts=r"\d+",
        digest="[0-9a-f]{12}",
    params:
        source=SOURCE["source"],
    shell:
        "python -m models.prompts --source {params.source} --ladder {wildcards.ladder} --count {wildcards.prompts} --seed 0 --out {output} 2>&1 | tee {log}"


rule hub_prompts:
    input:
        data=f"{CACHE}/data/{{data}}.jsonl",
        # For its tokenizer and chat template: each model reads the same problems in its template.
        base=f"{CACHE}/models/{{base}}/base.json",
    output:
        f"{CACHE}/prompts/{{data}}-{{prompts}}-{{seed}}-{{limit}}-{{digest}}/{{base}}.jsonl",
    log:
        "logs/cache/prompts-{data}-{prompts}-{seed}-{limit}-{digest}/{base}.log",
    wildcard_constraints:
        prompts=r"\d+|all",
        limit=r"\d+",
        digest="[0-9a-f]{12}(-[a-z]+)?",
    params:
        source=SOURCE["source"],
        model=subpath(input.base, parent=True),
        number=lambda wc: "" if wc.prompts == "all" else f"--count {wc.prompts}",
        template=lambda wc: f"--template {wc.digest[13:]}" if wc.digest[13:] else "",
    shell:
        "python -m models.prompts --source {params.source} --data {input.data} --model {params.model} --max-tokens {wildcards.limit}"
        " {params.number} {params.template} --seed {wildcards.seed} --out {output} 2>&1 | tee {log}"


rule train:
    input:
        base=lambda wc: PLAN.base(wc.model, int(wc.seed)) / "base.json",
        prompts=lambda wc: PLAN.prompts(planned_of(wc).run),
        yoke=lambda wc: PLAN.yoke(planned_of(wc)) or [],
    output:
        run=f"{RESULTS.root}/runs/{{model}}/{{method}}/seed{{seed}}/run.json",
        curve=f"{RESULTS.root}/runs/{{model}}/{{method}}/seed{{seed}}/curve.csv",
    log:
        f"{LOGS}/train/{{model}}/{{method}}/seed{{seed}}.log",
    wildcard_constraints:
        model=any_of(set(PLAN.models) - SEVERAL_NODES),
    # Functions, because models have different needs.
    threads: lambda wc: PLAN.need(planned_of(wc)).cores
    resources:
        gpu=lambda wc: PLAN.need(planned_of(wc)).gpus,
        mem_mb=lambda wc: PLAN.need(planned_of(wc)).memory,
        runtime=lambda wc, attempt: PLAN.need(planned_of(wc)).minutes * attempt,
    params:
        spec=lambda wc, input: PLAN.run_specification(planned_of(wc), input.prompts),
        folder=subpath(output.run, parent=True),
        launch="",
    # Preemption sends SIGTERM to all processes of a job: training saves and then exits, and nothing exits before it.
    # --wait: a restarted job may begin while the previous one still saves and holds the run's lock.
    shell:
        "trap '' TERM; {params.launch} python -m methods.train --spec {params.spec:q} --out {params.folder} --wait 600 2>&1 | tee {log}"


# Over several nodes: the only GPU request is that of the nodes (profiles/slurm), since Slurm would count tasks by GPU;
# with `mpi` the rule's shell runs on the first node, where it starts its job steps.
use rule train as train_nodes with:
    wildcard_constraints:
        model=any_of(SEVERAL_NODES),
    resources:
        mpi="srun",
        nodes=lambda wc: PLAN.need(planned_of(wc)).nodes,
        tasks=lambda wc: PLAN.need(planned_of(wc)).nodes,
        mem_mb=lambda wc: PLAN.need(planned_of(wc)).memory,
        runtime=lambda wc, attempt: PLAN.need(planned_of(wc)).minutes * attempt,
    params:
        launch=lambda wc: "workflow/ray_nodes.sh {0.nodes} {gpus} {0.cores}".format(
            need := PLAN.need(planned_of(wc)), gpus=need.gpus // need.nodes
        ),


# What `log` names gets the curves of runs that were finished without it. A time stamp: it is no result.
rule log_curves:
    input:
        RUNS,
    output:
        touch(f"{LOGS}/logged-{{logger}}"),
    log:
        f"{LOGS}/log-{{logger}}.log",
    params:
        root=RESULTS.root,
    shell:
        "python -m methods.training.log --results {params.root} --to {wildcards.logger} 2>&1 | tee {log}"


LOGGED = expand(rules.log_curves.output, logger=config.get("log") or [])
