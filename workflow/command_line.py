"""Check and convert the options of `snakemake` before it applies them and reads the Snakefile.

profiles/default, which every call in this folder reads, imports this module and calls `attach`. Jobs that Snakemake
starts get the converted options and do not read a profile.

- a dotted key of `--config` (`training.passes=1`), which Snakemake refuses, becomes the equivalent mapping;
- a value of `--config` is the text as typed: Snakemake would make 12 of `1_2`, and 7 of `007`;
- errors in files, folders, targets and programs are one line and exit code 2, not a traceback;
- a run prints a line for each finished job, a dry run counts jobs; with `-p` both print every job.
"""

import gc
import json
import os
import re
import shlex
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Never

import yaml
from pydantic import Field
from snakemake.settings.enums import Quietness

from core.declared import Declared, validated
from core.errors import BenchError, BusyError, ConfigError, MissingInputError, end_with, unknown
from core.files import read_yaml

COMMAND_LINE = "command line"
JOBS_PER_SECOND = (100, 1)  # Snakemake's default: jobs, seconds
KEY = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")
QUIET = {Quietness.RULES, Quietness.HOST}  # output that Snakemake leaves out

# Snakemake reads the Snakefile before its DAG settings exist, so the Snakefile reads them from here.
TARGETS: list[str] = []  # as typed
FORCED: set[str] = set()  # the set behind `--forcerun`, which the Snakefile extends
OF_THE_SITE: list[str] = []  # entries of `--config` that the site's file adds before the user's


class Site(Declared):
    """Settings of one cluster, which profiles/slurm reads; site.example.yaml explains them."""

    jobs: dict[str, str | int] = Field(default_factory=dict)  # resources of every job
    gpu_jobs: dict[str, str | int] = Field(default_factory=dict)  # of training and of generation
    environment: dict[str, str | int] = Field(default_factory=dict)  # variables, unless they are set
    results: str | None = None  # `results` of the configuration
    data: str | None = None  # `evaluation.data` of the configuration


def site(path: Path = Path("profiles/slurm/site.yaml")) -> Site:
    """Return the site's settings, empty without the file, and set its variables; end the process on a wrong one."""
    with one_line():
        read = read_yaml(path, "site") if path.is_file() else {}
        found = validated(Site, {key: value for key, value in read.items() if value is not None}, str(path))
        if "slurm_extra" in found.gpu_jobs:  # it would replace the signal that makes training save
            raise ConfigError(f"{path}: gpu_jobs.slurm_extra: set it in profiles/slurm/config.yaml, beside --signal")
    for name, value in found.environment.items():
        os.environ.setdefault(name, str(value))
    folders = {"results": found.results, "evaluation.data": found.data}
    OF_THE_SITE[:] = [f"{key}={folder}" for key, folder in folders.items() if folder is not None]
    return found


@contextmanager
def one_line() -> Iterator[None]:
    """End the process on a user's or the system's error as every command does, not with a traceback."""
    try:
        yield
    except (BenchError, OSError) as error:
        end_with(error)


def _locked() -> Never:
    """End the process where Snakemake would explain a lock in several lines, without a command to type."""
    python = sys.executable.removeprefix(f"{os.getcwd()}/")  # `make demo` is typed without an active environment
    command = shlex.join([python, "-m", "snakemake", "--unlock", *sys.argv[1:]])
    line = "this folder cannot be locked: another snakemake works here, or was killed; if none does, unlock it"
    end_with(BusyError(f"{line}: {command}"))


def attach() -> None:
    """Pass Snakemake's options through `check_arguments`, once."""
    from snakemake import cli, exceptions

    convert: Callable[..., Any] = cli.args_to_api
    if convert.__module__ == __name__:
        return
    exceptions.LockException = _locked  # Snakemake raises what this call returns, and it does not return
    # Snakemake prints paths and our titles in the locale's encoding, which may lack some of their letters.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")

    def converted(args: Namespace, parser: Any) -> Any:
        with one_line():
            check_arguments(args)
        if args.dryrun:
            gc.disable()  # no part of the job graph is freed before the end
        FORCED.update(args.forcerun or ())
        args.forcerun = FORCED
        return convert(args, parser)

    cli.args_to_api = converted


def check_arguments(args: Namespace) -> None:
    """Check and convert Snakemake's parsed options in place; raise `BenchError` for the first problem."""
    TARGETS[:] = [target for target in args.targets or [] if isinstance(target, str)]
    for path in map(Path, args.configfile or []):
        if path.is_dir() or not (path.exists() or path.suffix in (".yaml", ".yml", ".json")):
            what = "is a folder" if path.is_dir() else "no such file"
            raise ConfigError(f"{COMMAND_LINE}: --configfile {path}: {what}; a target stands before --configfile")
        if not path.exists():
            raise unknown(COMMAND_LINE, "--configfile", str(path), map(str, Path("config").glob("*.yaml")))
        read_yaml(path, "configuration")
    if OF_THE_SITE or args.config is not None:
        args.config = [converted_entry(entry) for entry in (*OF_THE_SITE, *(args.config or ()))]
    if not (args.quiet or args.verbose or args.printshellcmds):
        # A job's inputs may be hundreds of lines; its output and "3 of 12 steps (25%) done" show the progress.
        args.quiet = QUIET
    # With a limit, each job that ends sets a timer, and each timer sets the next one while any job waits
    # (Snakemake 9.27): after 300 jobs the scheduler keeps a core busy. A limit other than the default is the user's.
    limit = args.max_jobs_per_timespan
    if limit is not None and (limit.max_jobs, limit.timespan) == JOBS_PER_SECOND:
        args.max_jobs_per_timespan = None
    _check_machine(args)


def converted_entry(entry: str) -> str:
    """Return `a=4` as `a= "4" ` and `a.b=4` as `a= {"b": "4"} `: Snakemake reads text, which `workflow.config` types.

    The spaces keep Snakemake from removing the quotes. A converted entry stays as it is.
    """
    key, equals, text = entry.partition("=")
    text = text.strip()
    where = f"{COMMAND_LINE} (--config)"
    if not equals:
        raise ConfigError(f"{where}: {entry}: must be key=value; a target stands before --config")
    if not KEY.fullmatch(key):
        raise ConfigError(f"{where}: {key!r}: must be a key, such as seeds or training.learning_rate")
    if not text:
        raise ConfigError(f"{where}: {key}: is empty")
    try:
        value = yaml.load(text, Loader=yaml.BaseLoader) if text[0] in "{[\"'" else text
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: {key}: not valid YAML ({' '.join(str(error).split())})") from error
    first, *rest = key.split(".")
    for name in reversed(rest):
        value = {name: value}
    return f"{first}= {json.dumps(value, ensure_ascii=False)} "


def keep(rules: Container[str]) -> None:
    """Stop Snakemake from comparing finished jobs of these rules with its notes: command, params, inputs, environment.

    Their files are made again where they are missing or forced, or where an input is made again.
    """
    from snakemake.persistence import PersistenceBase
    from snakemake.workflow import Workflow

    has_metadata: Callable[..., bool] = PersistenceBase.has_metadata
    PersistenceBase.has_metadata = lambda self, job: job.rule.name not in rules and has_metadata(self, job)
    Workflow.log_missing_metadata_info = lambda self: None  # would list these rules as a defect of the tree


def check_targets(rules: Iterable[str]) -> None:
    """Raise for a target that is neither a rule's name nor a path, before Snakemake does so in several lines."""
    names = set(rules)
    for target in TARGETS:
        if target not in names and "/" not in target and not Path(target).exists():
            raise unknown(COMMAND_LINE, "target", target, names)


def _check_machine(args: Namespace) -> None:
    """Raise if a program that the call needs is not on this machine."""
    conda = {method for method in args.software_deployment_method if method.name == "CONDA"}
    if shutil.which("conda") is None:
        if conda and not args.dryrun:
            raise MissingInputError(
                "conda: not found, and the profile's jobs enter conda environments (docs/scale.md); install it, or let "
                "jobs run in the environment that is active: --sdm env-modules"
            )
        args.software_deployment_method -= conda  # a dry run does not activate environments
    if args.executor == "slurm" and not args.dryrun and shutil.which("sbatch") is None:
        raise MissingInputError("sbatch: not found: run on a login node of the cluster, or leave out the profile")
