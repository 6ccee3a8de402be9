# Shared by all stages: the plan of this call, the paths, the environment of jobs.
import re
import signal
import sys
from functools import cache
from pathlib import Path

from snakemake.settings.enums import Quietness

from core import worker
from core.code import Code
from core.files import write_text
from core.layout import Checkpoint
from methods.adapters import trl
from methods.training.run_folder import restore_curve
from workflow import command_line, matrix, plan as planning, sweep

MAIN = workflow.is_main_process  # False in a job of a cluster, whose Snakemake reads the Snakefile again
HERE = MAIN and workflow.global_resources["_nodes"].value is None  # a cluster has a number of nodes
MAKES = MAIN and not {"plan", "verify"}.issuperset(command_line.TARGETS or ["all"])
DRY = workflow.output_settings.dryrun

# With both quiet, Snakemake ends a dry run after the job counts, in a quarter of the time. An equally quiet logger
# would not print them, so this setting changes after the logger was created.
if DRY and workflow.output_settings.quiet == command_line.QUIET:
    workflow.output_settings.quiet = {Quietness.RULES, Quietness.PROGRESS}

# Snakemake caps every request at these; `--resources gpu=N` takes precedence. One GPU: jobs are not assigned
# separate GPUs, so each would use the first.
LIMITS = {"gpu": 1} if HERE else {}

with command_line.one_line():
    # Snakemake lists the command line's files first, in order, and the Snakefile's default last.
    GIVEN = len(workflow.config_settings.configfiles)
    FILES = [str(path) for path in workflow.configfiles]
    PLAN = planning.plan(FILES[GIVEN:] + FILES[:GIVEN], workflow.config_settings.config, job=not MAIN, here=HERE)
    config, RESULTS = PLAN.config, PLAN.results
    if MAKES:
        PLAN.check_folder()
    # A model's `size` decides, so all its runs use several nodes.
    SEVERAL_NODES = {planned.run.model for planned in PLAN.planned if PLAN.need(planned).nodes > 1}
    NOTES = list(PLAN.notes)
    if MAKES and not DRY:
        for planned in PLAN.planned:  # before damaged files are looked for: Snakemake would remove the copies
            restore_curve(RESULTS.run(planned.run))
    if MAKES:  # results of changed code and damaged ones are rebuilt
        command_line.FORCED.update(PLAN.forced)
        NOTES = PLAN.reasons + NOTES
    if HERE and MAKES and not DRY:
        from workflow import cost  # imports modules that a dry run does not need

        LIMITS |= cost.memory_limit(PLAN)
if MAIN and NOTES:
    print(*NOTES, sep="\n", file=sys.stderr)
if "plan" in command_line.TARGETS:  # what will run, its cost, and what is missing; no rule runs
    with command_line.one_line():
        from workflow import cost

        sys.exit(cost.show(PLAN))
for resource, amount in LIMITS.items():
    if resource not in workflow.global_resources:
        workflow.register_resource(resource, amount)

LOGS, CACHE = f"logs/{config['scale']}", PLAN.cache
BENCHMARKS, DATA = config["evaluation"]["benchmarks"], str(PLAN.benchmark_data)
NAMES = config["evaluation"]["names"]  # of the same: keys, or files of a user's problems
# The final records of runs, samples and grades. Jobs request only records, which are written last: Snakemake checks
# every input and output of every job, and thousands of curves and parquet files would dominate a dry run.
RUNS = [str(PLAN.record(planned)) for planned in PLAN.planned]
SAMPLES = [str(PLAN.samples(checkpoint)) for checkpoint in PLAN.checkpoints]
GRADES = [str(PLAN.grades(checkpoint)) for checkpoint in PLAN.checkpoints]

# Slurm's warning before the time limit goes to every process of a job. The Snakemake inside the job, its shell and tee
# inherit this setting, because they must outlive training's last save.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)

# Environment of a job's shell, in place of Snakemake's strict mode: without pipefail, `| tee {log}` would hide
# that a command failed. One thread per process and parallelism by jobs: OpenMP threads that spin against each other
# cost 3-30x on busy cores.
VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",  # everything a job needs is on disk
    "HF_DATASETS_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONUTF8": "1",  # libraries open files in the locale's encoding, which is ASCII under LC_ALL=C
    "PYTHONPATH": ".",
}
OF_THE_SHELL = {
    "TEPO_HUB_OFFLINE": "${{HF_HUB_OFFLINE:-0}}",  # rules that fetch use the user's HF_HUB_OFFLINE
    "TEPO_REWARD_TIMEOUT": f"{config.get('reward_timeout', 120):g}",  # likewise not in params: it changes no number
    "TEPO_LOG": ",".join(config.get("log") or []),  # not in a rule's params: adding a logger does not rebuild anything
    "MPLCONFIGDIR": "${{MPLCONFIGDIR:-.snakemake/matplotlib}}",  # the home folder may be read-only in a container
}
EXPORTS = " ".join(f"{name}={value}" for name, value in (OF_THE_SHELL | VARIABLES).items())
# Long or watched jobs print to terminal and log (tee); a cheap job (`quiet LOG COMMAND`) prints its log on failure.
QUIET = 'quiet() {{ local log=$1; shift; "$@" > "$log" 2>&1 || {{ cat "$log" >&2; exit 1; }}; }}; '
shell.prefix(f"set -euo pipefail; export {EXPORTS}; {QUIET}")

# One process imports torch and TRL for all training and evaluation of this call.
if HERE and MAKES and not DRY:
    worker.start(Path(LOGS, "worker.log"), {**VARIABLES, **trl.VARIABLES})


# A param of scores, tables and pages, which are cheap: Snakemake rebuilds them when it changes. Trained, generated and
# graded results have the hash in their record instead (`Plan.forced`). A function: few cluster jobs need it.
@cache
def made_by(stage):
    return Code(stage).hash


# None contains a slash, so that a path parses in only one way; a model or benchmark outside the plan matches no rule.
def any_of(names):
    return "|".join(sorted(map(re.escape, names))) or "(?!)"  # without names it never matches


wildcard_constraints:
    model=any_of({checkpoint.run.model for checkpoint in PLAN.checkpoints}),
    method=r"[A-Za-z0-9_.+=@-]+",  # a key of the catalog with +options and @variant
    seed=r"\d+",
    step=r"\d+",
    benchmark=any_of(BENCHMARKS),


def planned_of(wc):
    return PLAN.runs[f"{wc.model}/{wc.method}/seed{wc.seed}"]


def checkpoint_of(wc):
    return Checkpoint.parse(f"{wc.model}/{wc.method}/seed{wc.seed}/step{wc.step}")
