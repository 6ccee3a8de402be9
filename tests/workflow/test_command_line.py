"""What is typed after `snakemake` is looked at before Snakemake acts on it; and what a run says while it runs.

tests/test_wrong_inputs.py has what is refused.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from snakemake.cli import parse_args, parse_config
from snakemake.logging import LogEvent

from core.errors import BenchError
from workflow import command_line, progress


def typed(**given: Any) -> Namespace:
    usual: dict[str, Any] = {"targets": [], "configfile": None, "config": None, "executor": "local", "dryrun": False}
    return Namespace(**usual | {"software_deployment_method": set(), "max_jobs_per_timespan": None} | given)


@pytest.mark.parametrize(
    ("words", "limit"),
    [([], None), (["--max-jobs-per-timespan", "7/1m"], (7, 60)), (["--max-jobs-per-timespan", "100/1m"], (100, 60))],
)
def test_snakemakes_own_limit_of_jobs_is_taken_off_and_a_users_stays(words: list[str], limit: Any) -> None:
    """Its default is the one that this module knows: a new Snakemake with another one fails here."""
    _, args = parse_args(["--cores", "2", "--workflow-profile", "none", *words])
    command_line.check_arguments(args)
    left = args.max_jobs_per_timespan
    assert limit == (left and (left.max_jobs, left.timespan))


@pytest.mark.parametrize(
    ("entries", "config"),
    [
        (["training.learning_rate=3e-5"], {"training": {"learning_rate": "3e-5"}}),
        (["training.passes=2", "training.filter=none"], {"training": {"passes": "2", "filter": "none"}}),
        (["seeds=1,2", "name=mine"], {"seeds": "1,2", "name": "mine"}),
        (["methods=tepo+beta=1,grpo"], {"methods": "tepo+beta=1,grpo"}),
        (["training={learning_rate: 0.001}"], {"training": {"learning_rate": "0.001"}}),
        (["sweep.training.passes=1,2"], {"sweep": {"training": {"passes": "1,2"}}}),
        (["sweep={training.passes: [1, 2]}"], {"sweep": {"training.passes": ["1", "2"]}}),
        (["trainer=null"], {"trainer": "null"}),
    ],
)
def test_snakemake_reads_a_converted_entry_as_what_was_meant(entries: list[str], config: dict[str, Any]) -> None:
    once = [command_line.converted_entry(entry) for entry in entries]
    assert parse_config(once) == config
    # A job's own Snakemake gets the converted entries; converting these again would change nothing.
    assert [command_line.converted_entry(entry) for entry in once] == once


class _Conda:
    name = "CONDA"


def test_a_dry_run_needs_no_conda_and_no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line.shutil, "which", lambda name: None)
    args = typed(dryrun=True, executor="slurm", software_deployment_method={_Conda()})
    command_line.check_arguments(args)
    assert args.software_deployment_method == set()


def test_a_folder_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command_line.os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(BenchError, match=f"{tmp_path}: cannot be written"):
        command_line.check_arguments(typed())
    assert not list(tmp_path.iterdir())


def record(message: str | None, level: int = logging.INFO, **said: Any) -> logging.LogRecord:
    made = logging.LogRecord("snakemake.logging", level, __file__, 1, message, None, None)
    made.__dict__.update(said)
    return made


def said_by(records: list[logging.LogRecord]) -> list[str]:
    lines = progress.Lines()
    return [lines.format(entry) for entry in records if lines.filter(entry)]


def test_a_run_says_one_line_a_job_with_its_share() -> None:
    start = [
        record(
            "...", event=LogEvent.JOB_INFO, jobid=n, rule_name="train", wildcards={"model": "m", "seed": str(n)}, log=[]
        )
        for n in (1, 2)
    ]
    ended = [record("Finished jobid", event=LogEvent.JOB_FINISHED, job_id=n) for n in (2, 1)]
    counts = [record(None, event=LogEvent.PROGRESS, done=n, total=12) for n in (3, 4)]
    lines = said_by(
        [
            record("Building DAG of jobs..."), record("Select jobs to execute..."), record("Execute 2 jobs..."),
            *start, ended[0], counts[0], ended[1], counts[1], record("Complete log(s): x"),
        ]
    )  # fmt: skip
    assert lines == ["[ 3 of 12,  25 %] train m/2 (0 s)", "[ 4 of 12,  33 %] train m/1 (0 s)"]


def test_a_failure_is_one_line_and_other_errors_stay() -> None:
    started = record("...", event=LogEvent.JOB_INFO, jobid=3, rule_name="grade", wildcards={"step": "4"}, log=[])
    failed = record("...", logging.ERROR, event=LogEvent.JOB_ERROR, jobid=3, rule_name="grade", log=["logs/grade.log"])
    closing = [
        record("RuleException:\nCalledProcessError in file", logging.ERROR, event=LogEvent.ERROR),
        record("WorkflowError:\nAt least one job did not complete", logging.ERROR, event=LogEvent.ERROR),
    ]
    other = record("LockException:\nDirectory cannot be locked", logging.ERROR, event=LogEvent.ERROR)
    twice = [record("Will exit after finishing currently running jobs (scheduler).")] * 3
    assert said_by([started, failed, *closing, other, *twice]) == [
        "failed: grade 4; it said why above and in logs/grade.log",
        "LockException:\nDirectory cannot be locked",
        "Will exit after finishing currently running jobs (scheduler).",
    ]


def test_ctrl_c_stops_jobs_and_is_no_failure() -> None:
    started = record("...", event=LogEvent.JOB_INFO, jobid=3, rule_name="train", wildcards={"seed": "4"}, log=["a.log"])
    asked = record("Terminating processes on user request, this might take some time.")
    stopped = record("...", logging.ERROR, event=LogEvent.JOB_ERROR, jobid=3, rule_name="train", log=["a.log"])
    assert said_by([started, asked, stopped])[1:] == ["stopped: train 4; the same command goes on"]
