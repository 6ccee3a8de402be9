from evals.benchmark import benchmark

# Samples, grades, scores: one generation job and one grading job per checkpoint, each for all benchmarks.

AT = "{model}/{method}/seed{seed}/step{step}"
GENERATE = planning.generate_need(config)
FETCHED = config["evaluation"]["data"]


rule benchmark_data:
    output:
        f"{FETCHED}/{{benchmark}}.jsonl",
    log:
        "logs/cache/benchmark-{benchmark}.log",
    params:
        folder=subpath(output[0], parent=True),
        content=lambda wc: benchmark(wc.benchmark).sha256,
        name=lambda wc: NAMES[BENCHMARKS.index(wc.benchmark)],
    shell:
        "quiet {log} python -m evals.fetch --benchmarks {params.name:q} --data {params.folder:q}"


if DATA != FETCHED:

    # A user's own benchmarks, and with them copies of the fetched ones: generation reads one folder.
    use rule benchmark_data as own_data with:
        input:
            lambda wc: f"{FETCHED}/{wc.benchmark}.jsonl" if wc.benchmark in NAMES else [],
        output:
            f"{DATA}/{{benchmark}}.jsonl",
        log:
            f"{LOGS}/data/{{benchmark}}.log",
        params:
            name=lambda wc: [NAMES[BENCHMARKS.index(wc.benchmark)], "--mirror", FETCHED],  # words of the command


# One job generates for all benchmarks, since loading a model takes longer than many of them.
rule generate:
    input:
        # The record and not the weights' folder: it is written last and marks training as finished.
        trained=lambda wc: PLAN.ready(checkpoint_of(wc)),
        data=expand(f"{DATA}/{{benchmark}}.jsonl", benchmark=BENCHMARKS),
    output:
        f"{RESULTS.root}/samples/{AT}/samples.json",  # the last file; a lost other one is found by the plan
    log:
        f"{LOGS}/generate/{AT}.log",
    threads: GENERATE.cores
    resources:
        gpu=GENERATE.gpus,
        mem_mb=GENERATE.memory,
        # A later attempt gets more time and keeps the finished benchmarks.
        runtime=lambda wc, attempt: GENERATE.minutes * attempt,
    params:
        # Of the input, so that Snakemake does not record it: the same problems in another folder change nothing.
        data=lambda wc, input: Path(input.data[0]).parent,
        weights=lambda wc: PLAN.weights(checkpoint_of(wc)),
        names=lambda wc: NAMES,
        drawn=[word for key, value in PLAN.drawn().items() for word in (f"--{key.replace('_', '-')}", str(value))],
        backend=config["evaluation"]["backend"],
        batch=f"--batch-size {size}" if (size := config["evaluation"]["batch_size"]) else "",
        seed=config["evaluation"]["seed"],
        folder=subpath(output[0], parent=True),
    shell:
        "python -m evals.generate --model {params.weights} --record {input.trained} --benchmarks {params.names:q} {params.drawn} --backend {params.backend} {params.batch}"
        " --data {params.data:q} --seed {params.seed} --out {params.folder} 2>&1 | tee {log}"


rule grade:
    input:
        samples=rules.generate.output[0],
    output:
        f"{RESULTS.root}/grades/{AT}/grades.json",
    log:
        f"{LOGS}/grade/{AT}.log",
    threads: 1
    resources:
        # More at each attempt: responses that hit the grader's time limit add up.
        runtime=lambda wc, attempt: 60 * attempt,
    params:
        data=DATA,
        samples=subpath(input.samples, parent=True),
        folder=subpath(output[0], parent=True),
        # A function: Snakemake would take braces in a text for wildcards.
        thoughts=lambda wc: ["--thoughts", *marks] if (marks := config["evaluation"].get("thoughts")) else [],
    shell:
        "python -m evals.grade --samples {params.samples} --data {params.data:q} --out {params.folder} {params.thoughts:q} 2>&1 | tee {log}"


rule score:
    input:
        GRADES,
    output:
        csv=RESULTS.scores,
    log:
        f"{LOGS}/score.log",
    params:
        root=RESULTS.root,
        # A param, not an input: no rule makes results of earlier questions, which are scored too. The path has a hash.
        checkpoints=PLAN.files["checkpoints.txt"][0],
        names=" ".join(BENCHMARKS),
        code=lambda wc: made_by("score"),
    shell:
        "quiet {log} python -m evals.score --results {params.root} --checkpoints @{params.checkpoints} --benchmarks {params.names}"
        " --out {output.csv}"
