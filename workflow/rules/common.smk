# What every stage needs: the plan of this call, the paths, the environment of jobs.
import signal
import sys

from core import worker
from core.layout import Checkpoint
from report import captions
from workflow import (
    code_hashes,
    command_line,
    matrix,
    plan as planning,
    preflight,
    resources,
    sweep,
)

MAIN = workflow.is_main_process  # False in a job of a cluster, whose Snakemake reads the Snakefile again

# On a cluster (with a number of nodes) jobs run elsewhere.
ONE_MACHINE = workflow.global_resources["_nodes"].value is None
HERE = MAIN and ONE_MACHINE

with command_line.one_line():
    # Snakemake lists the files of the command line first, in their order, and the Snakefile's own last.
    GIVEN = len(workflow.config_settings.configfiles)
    FILES = [str(path) for path in workflow.configfiles]
    PLAN = planning.plan(FILES[GIVEN:] + FILES[:GIVEN], workflow.config_settings.config, job=not MAIN)
    resources.check(PLAN.config, PLAN.runs.values(), PLAN.where, here=HERE)
    SEVERAL_NODES = resources.several_nodes(PLAN.config, PLAN.runs.values())
    if MAIN and command_line.makes_files():  # what differs in its code is made again
        command_line.FORCED.update(PLAN.outdated())
    if MAIN and PLAN.notes:
        print(*PLAN.notes, sep="\n", file=sys.stderr)

config = PLAN.config
RESULTS, LOGS, CHECKPOINTS = PLAN.results, PLAN.logs, PLAN.checkpoints
CACHE = planning.CACHE
BENCHMARKS = config["evaluation"]["benchmarks"]
DATA = config["evaluation"]["data"]

# Snakemake lowers every request to what there is; `--resources gpu=N` wins.
if HERE:
    with command_line.one_line():
        LIMITS = preflight.limits(PLAN, check=command_line.makes_files() and not workflow.output_settings.dryrun)
    for resource, amount in LIMITS.items():
        if resource not in workflow.global_resources:
            workflow.register_resource(resource, amount)
    # One process imports torch and TRL for all training and evaluation of this call; the first job that wants it starts it.
    worker.offer(Path(LOGS, "worker.log"))

# Slurm's warning before the time limit goes to every process of a job. The Snakemake inside the job, its shell and tee have to
# outlive training's last save, and inherit this.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)

shell.prefix(resources.shell_prefix(config.get("log") or []))


# No slash in any of them, so that a path has one reading; a model or benchmark that is not planned matches no rule.
wildcard_constraints:
    model="|".join(sorted({checkpoint.run.model for checkpoint in CHECKPOINTS})),
    method=r"[A-Za-z0-9_.+=@-]+",  # a key of the catalog with +options and @variant
    seed=r"\d+",
    step=r"\d+",
    benchmark="|".join(BENCHMARKS),


def planned_of(wc):
    return PLAN.runs[f"{wc.model}/{wc.method}/seed{wc.seed}"]


def checkpoint_of(wc):
    return Checkpoint.parse(f"{wc.model}/{wc.method}/seed{wc.seed}/step{wc.step}")


def train_need(wc):
    return PLAN.need(planned_of(wc))


# `snakemake --report` shows outputs with the words of report/captions: one caption file for all reads this.
def caption(name):
    return "\n\n".join([*captions.lead(PLAN.matrix)[:1], *captions.paragraphs(name)])
