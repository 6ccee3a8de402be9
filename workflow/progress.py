"""What Snakemake says while it runs: one line for each job that is done, with the share of all, and one for a failure.

A dry run, `--verbose` and Snakemake's log file keep its own account of jobs.
"""

import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

# Beginnings of messages that say nothing about the run.
NOISE = (
    "Select jobs", "Execute ", "Building DAG", "Using shell", "Provided cores", "Rules claiming", "Conda environments",
    "Assuming unrestricted", "Shutting down", "Exiting because", "Complete log", "Elapsed time", "Config file",
)  # fmt: skip
FAILED = ("RuleException", "CalledProcessError", "WorkflowError:\nAt least one job")  # said by the job's own line


class Lines(logging.Formatter):
    """Filter and formatter of Snakemake's terminal output; it pairs a job's start with its end."""

    def __init__(self) -> None:
        super().__init__()
        self.started: dict[int, tuple[str, float]] = {}  # job -> its name, and when it started
        self.ended: list[str] = []  # finished since the last count
        self.last = ""
        self.interrupted = False  # by Ctrl-C

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is a line of ours; notes the jobs on the way."""
        said = record.__dict__
        match getattr(said.get("event"), "name", None):
            case "JOB_INFO":
                self.started[said["jobid"]] = (_name(said), time.monotonic())
                return False
            case "JOB_FINISHED":
                name, start = self.started.pop(said["job_id"], (f"job {said['job_id']}", time.monotonic()))
                seconds = time.monotonic() - start
                took = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
                self.ended.append(f"{name} ({took})")
                return False
            case "PROGRESS":
                return bool(self.ended)
            case "JOB_ERROR" | "GROUP_ERROR":
                return True
            case "ERROR":
                return not record.getMessage().startswith(FAILED)
            case "RUN_INFO" | None:
                text = str(record.msg or "").strip()
                # Snakemake says what a signal or a busy scheduler made it do once for every turn of its loop.
                new, self.last = text != self.last, text
                self.interrupted |= text.startswith("Terminating processes on user request")
                return bool(text) and new and not text.startswith(NOISE)
            case "RESOURCES_INFO" | "SHELLCMD" | "JOB_STARTED" | "WORKFLOW_STARTED" | "GROUP_INFO":
                return False
            case _:
                return record.levelno >= logging.WARNING

    def format(self, record: logging.LogRecord) -> str:
        said = record.__dict__
        match getattr(said.get("event"), "name", None):
            case "PROGRESS":
                total, ended = said["total"], self.ended
                self.ended = []
                return "\n".join(
                    f"[{done:>{len(str(total))}} of {total}, {100 * done // total:>3} %] {line}"
                    for done, line in enumerate(ended, said["done"] - len(ended) + 1)
                )
            case "JOB_ERROR":
                logs = ", ".join(map(str, said.get("log") or []))
                name = self.started.get(said["jobid"], (_name(said), 0.0))[0]
                if self.interrupted:
                    return f"stopped: {name}; the same command goes on"
                return f"failed: {name}" + (f"; the reason is above and in {logs}" if logs else "")
            case _:
                return str(record.msg or "")


def attach(settings: Any, *, main: bool) -> None:
    """Put `Lines` on Snakemake's terminal output, unless more was asked for or this is a cluster's job (not `main`).

    settings: Snakemake's output settings.
    """
    # Snakemake prints paths and our titles in the locale's encoding, which may lack some of their letters.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if not main or settings.dryrun or settings.verbose or settings.debug_dag or settings.printshellcmds:
        return
    for handler in logging.getLogger("snakemake.logging").handlers:
        if handler.name == "DefaultStreamHandler":
            lines = Lines()
            handler.addFilter(lines)
            handler.setFormatter(lines)


def _name(said: Mapping[str, Any]) -> str:
    """`train tiny_qwen2/grpo/seed1`: rule and wildcards."""
    name = said.get("rule_name") or said.get("name") or "job"
    given = said.get("wildcards") or {}
    return f"{name} {'/'.join(str(value) for _, value in given.items())}".strip()
