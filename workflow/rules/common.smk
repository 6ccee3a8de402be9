# What every stage needs: the checked configuration, the plan, the paths. The logic lives in workflow/*.py and has tests.
import json
import signal
import sys
from functools import cache

from records import worker
from records.files import read_json, write_text
from records.layout import BASE, Checkpoint, Results
from records.provenance import sha256_bytes
from records.used_code import NUMERIC
from report import captions
from workflow import (
    code_hashes,
    command_line,
    config as configuration,
    decide,
    matrix,
    progress,
    resources,
    sweep,
    tree,
)

# Snakemake itself prints paths and our titles in the locale's encoding, which may lack some of their letters.
for stream in (sys.stdout, sys.stderr):
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")

if workflow.is_main_process:
    progress.attach(workflow.output_settings)

with command_line.one_line():
    # Snakemake lists the files of the command line first, in their order, and the Snakefile's own last.
    GIVEN = len(workflow.config_settings.configfiles)
    CONFIG_FILES = [str(path) for path in workflow.configfiles]
    settings, where = configuration.resolved(
        config,
        CONFIG_FILES[GIVEN:] + CONFIG_FILES[:GIVEN],
        workflow.config_settings.config,
    )
    config.update(settings)
    matrix.check_benchmarks(config, where)
    matrix.baseline(config, where)
    RESULTS = Results(Path("results") / config["scale"])
    LOGS = f"logs/{config['scale']}"
    # What is asked, for the commands that read it: a configuration with its sweep, and the list of what stays, may be longer
    # than a command line. Without `log`, which says nothing about what is planned. `onstart` writes them: a dry run does not.
    ASKED_CONFIG, ASKED_KEPT = f"{LOGS}/asked/config.json", f"{LOGS}/asked/kept.json"
    ASKED_CHECKPOINTS = f"{LOGS}/asked/checkpoints.txt"
    # What the tree has already stays. A job's own Snakemake reads the same: matrix.json is rewritten with all it had.
    BEFORE, problem = tree.recorded(RESULTS)
    config["matrix"] = matrix.blocks(config, where)
    config.update(models=None, methods=None, seeds=None)
    config.update(sweep.expanded(config, RESULTS, where))
    DECIDE = None
    if config["decide"] is not None:
        if not workflow.is_main_process:
            # A job plans what its call planned: when it starts, decide.csv may have its next state already.
            config["matrix"] = read_json(ASKED_CONFIG, "what is asked")["matrix"]
        DECIDE = decide.next_round(config, RESULTS, BEFORE, where)
        if workflow.is_main_process:
            config["matrix"] += DECIDE.blocks
    config["matrix"] += tree.with_steps(config, matrix.plan(config, where), BEFORE)
    PLAN = {
        planned.run.path.as_posix(): planned for planned in matrix.plan(config, where)
    }
    KEPT = tree.kept(PLAN.values(), BEFORE, RESULTS)
    # It reads the file of every model, method and benchmark that is named.
    MATRIX = matrix.matrix(config, KEPT)
    if workflow.is_main_process:
        tree.check(MATRIX["settings"], BEFORE, KEPT, RESULTS, where)
        notes = configuration.replaced(CONFIG_FILES[:GIVEN])
        notes += [problem] if problem else []
        notes += [DECIDE.line()] if DECIDE else []
        if lost := tree.gone(BEFORE):
            notes.append(
                f"{RESULTS.root}: runs of {', '.join(lost)} are in no table: no such model or method any more"
            )
        if KEPT["runs"]:
            notes.append(
                f"{RESULTS.root}: {len(KEPT['runs'])} finished runs of earlier questions stay in its tables; a tree of its own: --config name=..."
            )
        print(*notes, sep="\n", end="\n" if notes else "", file=sys.stderr)

# Slurm's warning before the time limit goes to every process of a job. Training acts on it; the Snakemake inside the job, its
# shell and tee have to outlive training's last save, and inherit this.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)

# On one machine no two jobs may share a GPU, and Snakemake limits only what it has a number of; on a cluster (with a number of
# nodes) the scheduler counts. `--resources gpu=N` wins.
ONE_MACHINE = workflow.global_resources["_nodes"].value is None
if config["cluster"] and ONE_MACHINE:
    if "gpu" not in workflow.global_resources:
        workflow.register_resource("gpu", config["cluster"]["gpus"])

with command_line.one_line():
    HERE = workflow.is_main_process and ONE_MACHINE
    resources.check(config, PLAN.values(), where, here=HERE)
SEVERAL_NODES = resources.several_nodes(config, PLAN.values())
# Not in the scale's folder: base models and prompts are named by what they are made of, and all scales share them.
CACHE = Path("results/cache")
BENCHMARKS = config["evaluation"]["benchmarks"]
DATA = config["evaluation"]["data"]
CHECKPOINTS = matrix.checkpoints(config)
ASKED = {
    ASKED_CONFIG: json.dumps(
        {key: config[key] for key in config if key != "log"}, sort_keys=True
    ),
    ASKED_KEPT: json.dumps(KEPT, sort_keys=True),
    ASKED_CHECKPOINTS: "\n".join(
        f"{entry['model']}/{entry['method']}/seed{entry['seed']}/step{entry['step']}"
        for entry in MATRIX["checkpoints"]
    ),
}


def write_asked():
    for path, text in ASKED.items():
        write_text(path, text)


# One thread per process and parallelism by jobs: OpenMP threads that spin against each other cost 3-30x on busy cores.
# Everything a job needs is on disk, so hubs are never asked; rules that fetch go by the user's own HF_HUB_OFFLINE.
# PYTHONUTF8: libraries open files of theirs in the locale's encoding, and under LC_ALL=C that is ASCII.
# MPLCONFIGDIR: its default is the user's home, which a container may forbid to write.
# What takes long or is looked at goes to terminal and log (tee); a cheap job is one line of `workflow.progress`, and its log if it
# fails.
# NUMERIC and TEPO_CODE (in each rule's own shell): another value is another result, so both are in the `code` of a rule.
# A prefix replaces Snakemake's own strict mode: without pipefail, `| tee {log}` would hide that a command failed.
# TEPO_LOG: not in a rule's params, so that asking for a logger makes nothing again.
LOG = ",".join(config.get("log") or [])
shell.prefix(
    f"export TEPO_LOG={LOG}; "
    "set -euo pipefail; export "
    + " ".join(f"{name}={value}" for name, value in NUMERIC.items())
    + " TEPO_HUB_OFFLINE=${{HF_HUB_OFFLINE:-0}} OMP_WAIT_POLICY=PASSIVE TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1"
    " HF_DATASETS_OFFLINE=1 PYTHONUNBUFFERED=1 PYTHONUTF8=1 MPLCONFIGDIR=${{MPLCONFIGDIR:-.snakemake/matplotlib}} PYTHONPATH=.; "
)


# One process imports torch and TRL for all training and evaluation of this call; the first job that wants it starts it. On a
# cluster (with a number of nodes) jobs run elsewhere, in processes of their own.
if HERE:
    worker.offer(Path(LOGS, "worker.log"))


# No slash in any of them, so that a path has one reading; a model or benchmark that is not planned matches no rule.
wildcard_constraints:
    model="|".join(sorted({checkpoint.run.model for checkpoint in CHECKPOINTS})),
    method=r"[A-Za-z0-9_.+=@-]+",  # a key of the catalog with +options and @variant
    seed=r"\d+",
    step=r"\d+",
    benchmark="|".join(BENCHMARKS),


# Cached: the name holds a hash over the recipe's code, and the rules ask for it once per job.
@cache
def base_folder(model, seed):
    return CACHE / "models" / matrix.base_name(config, model, int(seed))


@cache
def prompts_file(model, seed):
    return CACHE / "prompts" / matrix.prompts_name(config, model, int(seed))


def weights_folder(wc):
    """The folder that `generate` loads: a trained checkpoint, or the base model in the cache."""
    if wc.method == BASE:
        return base_folder(wc.model, wc.seed)
    return RESULTS.weights(
        Checkpoint.parse(f"{wc.model}/{wc.method}/seed{wc.seed}/step{wc.step}")
    )


def weights_ready(wc):
    """The file whose presence says that those weights are finished."""
    if wc.method == BASE:
        return base_folder(wc.model, wc.seed) / "base.json"
    return f"{RESULTS.root}/runs/{wc.model}/{wc.method}/seed{wc.seed}/run.json"


def planned_of(wc):
    return PLAN[f"{wc.model}/{wc.method}/seed{wc.seed}"]


def train_code(planned):
    return code_hashes.train(
        planned.run.key,
        matrix.trainer(config, planned),
        *matrix.rewards(config, planned).values(),
    )


# From the run's own settings: size of the model, cluster and variant decide what it needs.
def train_need(wc):
    return resources.train(matrix.training(config, planned_of(wc)))


def specification(wc, input):
    base = base_folder(wc.model, wc.seed).as_posix()
    return json.dumps(
        matrix.specification(config, planned_of(wc), base, input.prompts),
        sort_keys=True,
    )


# Snakemake's own notes say what made a file. They are gone with `.snakemake`, and are another tree's where one was moved
# here: then what records of results say decides. Not for a target that makes nothing.
if workflow.is_main_process and not {"plan", "verify"} & set(command_line.TARGETS):
    EXPECTED = {
        f"{RESULTS.run(entry.run)}/run.json": train_code(entry)
        for entry in PLAN.values()
    }
    for checkpoint in CHECKPOINTS:
        for stage, folder in (("generate", RESULTS.samples), ("grade", RESULTS.grades)):
            record = f"{folder(checkpoint)}/{'samples' if stage == 'generate' else 'grades'}.json"
            EXPECTED[record] = code_hashes.of_benchmarks(f"evals.{stage}", *BENCHMARKS)
    command_line.FORCED.update(tree.made_otherwise(EXPECTED, RESULTS, MATRIX))


# `snakemake --report` shows these outputs with the words of report/captions: one caption file for all reads this.
def caption(name):
    return "\n\n".join([*captions.lead(MATRIX)[:1], *captions.paragraphs(name)])


# A function, because few jobs need it: the names hold hashes over the recipe's code.
@cache
def builds():
    return matrix.builds(config)


def clean_number(wc):
    clean = f"{wc.model}-clean-{wc.recipe}"
    return next(build.number for build in builds().values() if build.clean == clean)
