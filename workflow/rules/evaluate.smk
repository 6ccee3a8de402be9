# Samples, grades, scores: one generation job and one grading job per checkpoint, all benchmarks in each.

AT = "{model}/{method}/seed{seed}/step{step}"
GENERATE = resources.generate(config["evaluation"]["backend"])


# Cheap jobs, which on a cluster run where Snakemake does; only that machine needs a network.
localrules:
    benchmark_data,
    score,


rule benchmark_data:
    output:
        f"{DATA}/{{benchmark}}.jsonl",
    log:
        "logs/cache/benchmark-{benchmark}.log",
    conda:
        "../../environment.yml"
    params:
        folder=subpath(output[0], parent=True),
        code=lambda wc: code_hashes.benchmarks(),
    shell:
        "python -m evals.fetch --benchmarks {wildcards.benchmark} --data {params.folder} 2>&1 | tee {log}"


rule generate:
    input:
        trained=weights_ready,
        data=expand(f"{DATA}/{{benchmark}}.jsonl", benchmark=BENCHMARKS),
    output:
        json=f"{RESULTS.root}/samples/{AT}/samples.json",
        parquet=expand(
            f"{RESULTS.root}/samples/{AT}/{{benchmark}}.parquet",
            benchmark=BENCHMARKS,
            allow_missing=True,
        ),
    log:
        f"{LOGS}/generate/{AT}.log",
    conda:
        "../../environment.yml"
    threads: GENERATE.cores
    resources:
        gpu=GENERATE.gpus,
        mem_mb=GENERATE.memory,
        runtime=lambda wc, attempt: GENERATE.minutes * attempt,
    params:
        weights=weights_folder,
        names=" ".join(BENCHMARKS),
        data=lambda wc, input: Path(input.data[0]).parent,
        backend=config["evaluation"]["backend"],
        seed=config["evaluation"]["seed"],
        folder=subpath(output.json, parent=True),
        code=lambda wc: code_hashes.generate(),
    shell:
        "python -m evals.generate --model {params.weights} --record {input.trained} --benchmarks {params.names} --backend {params.backend}"
        " --data {params.data} --seed {params.seed} --out {params.folder} 2>&1 | tee {log}"


rule grade:
    input:
        samples=rules.generate.output.json,
        parquet=rules.generate.output.parquet,
        data=rules.generate.input.data,
    output:
        json=f"{RESULTS.root}/grades/{AT}/grades.json",
        parquet=expand(
            f"{RESULTS.root}/grades/{AT}/{{benchmark}}.parquet",
            benchmark=BENCHMARKS,
            allow_missing=True,
        ),
    log:
        f"{LOGS}/grade/{AT}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        runtime=lambda wc, attempt: 60 * attempt,
    params:
        samples=subpath(input.samples, parent=True),
        data=lambda wc, input: Path(input.data[0]).parent,
        folder=subpath(output.json, parent=True),
        code=lambda wc: code_hashes.command("evals.grade"),
    shell:
        "python -m evals.grade --samples {params.samples} --data {params.data} --out {params.folder} 2>&1 | tee {log}"


rule score:
    input:
        [f"{RESULTS.grades(checkpoint)}/grades.json" for checkpoint in CHECKPOINTS],
    output:
        RESULTS.scores,
    log:
        f"{LOGS}/score.log",
    conda:
        "../../environment.yml"
    params:
        root=RESULTS.root,
        checkpoints=[checkpoint.path.as_posix() for checkpoint in CHECKPOINTS],
        names=" ".join(BENCHMARKS),
        code=lambda wc: code_hashes.command("evals.score"),
    shell:
        "python -m evals.score --results {params.root} --checkpoints {params.checkpoints} --benchmarks {params.names}"
        " --out {output} 2>&1 | tee {log}"
