"""Jobs stopped, cancelled or lost with their node, and a Snakemake that is killed."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.adapters import worlds
from tests.slurm.cluster import Cluster, wait_for
from tests.slurm.conftest import PROFILE, SMALL, clone, made_bases, snakemake
from tests.test_one_gpu import commands
from tests.workflow.conftest import ROOT

pytestmark = pytest.mark.slow
METHODS = ("grpo", "gspo", "tepo")
RUNS = Path("results/small/runs/tiny_qwen2")
TARGETS = [f"{RUNS}/{method}/seed1/run.json" for method in METHODS]
LONG = """
matrix:
  - {models: [tiny_qwen2], methods: [grpo, gspo, tepo], seeds: [1], steps: [30]}
training: {rollouts: 30}
evaluation: {table_step: 30}
"""


def prepared(folder: Path) -> Path:
    """A clone for three runs of 30 rollouts, with retries enough for what comes."""
    folder = clone(folder)
    (folder / "long.yaml").write_text(LONG)
    profile = folder / "profiles/slurm/config.yaml"
    text = profile.read_text().replace("USR1@900'\"", "USR1@90'\"\n    runtime: 30", 1)
    profile.write_text(text.replace("retries: 2", "retries: 9"))
    return folder


WORDS = (*PROFILE, *SMALL, "long.yaml")


@pytest.fixture(scope="module")
def straight(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed runs, on this machine."""
    folder = prepared(tmp_path_factory.mktemp("straight") / "clone")
    done = snakemake(slurm, folder, *TARGETS, *SMALL, "long.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@contextmanager
def running(slurm: Cluster, folder: Path, log: str = "log") -> Iterator[subprocess.Popen[bytes]]:
    """Snakemake on its way; it is ended if the test fails."""
    with open(folder / log, "w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            ["snakemake", *TARGETS, *WORDS], cwd=folder, env=slurm.environment, stdout=stream, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def said(folder: Path, method: str) -> str:
    """What all jobs of the method's run have printed."""
    logs = (folder / ".snakemake/slurm_logs").glob(f"rule_train*/*_{method}_*/*.log")
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in sorted(logs))


def jobs_of(slurm: Cluster, method: str) -> list[str]:
    """The method's jobs in the queue, found as docs/scale.md says."""
    return re.findall(rf"^(\d+) \S+_{method}_1 ", slurm.run("squeue", "-h", "-o", "%i %k %T"), re.MULTILINE)


def assert_same(folder: Path, straight: Path) -> None:
    for method in METHODS:
        worlds.assert_same(*(root / RUNS / method / "seed1" for root in (folder, straight)), 30)


def frozen(slurm: Cluster, folder: Path, method: str) -> bool:
    """Whether the method's trainer is stopped after a whole state; it is stopped here."""
    states = (folder / RUNS / method / "seed1/state").glob("checkpoint-*")
    if len(list(states)) < 2:  # the newer one may be half written
        return False
    os.kill(trainer(slurm, method), signal.SIGSTOP)
    return True


def trainer(slurm: Cluster, method: str) -> int:
    """The process that trains; of duplicates, which wait, the one that began first."""
    out, pids = str(RUNS / method / "seed1"), set(slurm.processes())
    found = [one for one in psutil.process_iter(["pid", "cmdline", "create_time"]) if one.pid in pids]
    mine = [one.info for one in found if {"methods.train", out} <= set(one.info["cmdline"] or ())]
    return min((info["create_time"], info["pid"]) for info in mine)[1]


def go_on(pid: int) -> None:
    with suppress(ProcessLookupError):  # Slurm's own SIGCONT may have let it end
        os.kill(pid, signal.SIGCONT)


def told(pid: int, number: signal.Signals) -> bool:
    """True if the signal is pending, or has moved the process: Slurm may send SIGCONT with it."""
    with suppress(FileNotFoundError):
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)$", text, re.MULTILINE)
        return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)
    return True


def near_its_limit(slurm: Cluster, method: str) -> None:
    """Let the method's job end in one to two minutes, as an administrator can, so that Slurm sends its signal at once.

    The signal comes 90 s before the end (`prepared`); Slurm looks twice a minute, and might skip it in less than one.
    """
    (job,) = jobs_of(slurm, method)
    ran = re.search(r"RunTime=(\d+):(\d+):", slurm.run("scontrol", "show", "job", job))
    assert ran is not None
    slurm.run("scontrol", "update", f"JobId={job}", f"TimeLimit={60 * int(ran[1]) + int(ran[2]) + 2}")


def test_time_limit_scancel_and_a_lost_node_in_one_run(slurm: Cluster, straight: Path, tmp_path: Path) -> None:
    """Trainers stand still until their fault comes, so that none is over before, however fast the machine."""
    folder = prepared(tmp_path / "clone")
    with running(slurm, folder) as process:
        wait_for(lambda: sum(frozen(slurm, folder, method) for method in METHODS) == 3, "a state of every run")
        tepo, grpo = trainer(slurm, "tepo"), trainer(slurm, "grpo")
        slurm.run("scancel", *jobs_of(slurm, "tepo"))
        go_on(tepo)
        near_its_limit(slurm, "grpo")
        wait_for(lambda: told(grpo, signal.SIGUSR1), "the signal before grpo's time limit")
        go_on(grpo)
        wait_for(lambda: "stopped by" in said(folder, "grpo"), "grpo to stop")
        node = re.search(r"BatchHost=(\S+)", slurm.run("scontrol", "show", "job", *jobs_of(slurm, "gspo")))
        assert node is not None
        slurm.kill_node(node[1])
        wait_for(lambda: "down" in slurm.run("sinfo", "-h", "-n", node[1], "-o", "%T"), "the node to be down")
        slurm.start_node(node[1])

        def over() -> bool:
            for job in slurm.run("squeue", "-h", "-t", "PENDING", "-o", "%i").split():  # else held for two minutes
                slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
            return process.poll() is not None

        wait_for(over, "Snakemake to end")
        assert process.returncode == 0, (folder / "log").read_text()[-6000:]
    assert "stopped by SIGUSR1" in said(folder, "grpo")
    assert "stopped by" not in said(folder, "gspo")
    for method in METHODS:
        assert "resuming from" in said(folder, method)
    assert_same(folder, straight)


def test_snakemake_killed_started_again_and_started_twice(slurm: Cluster, straight: Path, tmp_path: Path) -> None:
    """Jobs outlive it; the next one submits them again, and the duplicates wait for the first and do nothing.

    Trainers stand still until all of that has happened.
    """
    folder = prepared(tmp_path / "clone")
    with running(slurm, folder) as first:
        wait_for(lambda: sum(frozen(slurm, folder, method) for method in METHODS) == 3, "a state of every run")
        second = snakemake(slurm, folder, *TARGETS, *WORDS)
        assert second.returncode != 0
        assert "cannot be locked" in second.stdout + second.stderr
        assert first.poll() is None
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    assert [len(jobs_of(slurm, method)) for method in METHODS] == [1, 1, 1]
    assert snakemake(slurm, folder, "--unlock", *WORDS).returncode == 0
    with running(slurm, folder, "log of the next") as again:
        wait_for(lambda: all(len(jobs_of(slurm, method)) == 2 for method in METHODS), "the jobs' duplicates")
        for method in METHODS:
            go_on(trainer(slurm, method))
        wait_for(lambda: again.poll() is not None, "Snakemake to end")
    assert again.returncode == 0, (folder / "log of the next").read_text()[-6000:]
    for method in METHODS:
        assert "resuming from" not in said(folder, method)
        assert "finished already" in said(folder, method)
    assert_same(folder, straight)


RESULTS = Path("results/small")


@pytest.mark.chain
def test_the_cluster_gives_the_local_numbers(slurm: Cluster, tmp_path: Path) -> None:
    local, remote = (clone(tmp_path / name) for name in ("local", "cluster"))
    said = ""
    for folder, profile in ((local, ()), (remote, PROFILE)):
        done = snakemake(slurm, folder, "table1", *profile, *SMALL)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-8000:]

    for name in ("scores.csv", "tables/table1.tidy.csv", "tables/table1.md", "matrix.json"):
        assert (remote / RESULTS / name).read_bytes() == (local / RESULTS / name).read_bytes(), name
    curves = sorted((local / RESULTS / "runs").glob("*/*/seed*/curve.csv"))
    assert len(curves) == 2
    for path in curves:
        assert worlds.numbers(remote / path.parent.relative_to(local)) == worlds.numbers(path.parent)

    submitted = Counter(re.findall(r"slurm_logs/rule_([a-z_]+)/", said))
    assert submitted - Counter(base=1) == {"train": 2, "generate": 3, "grade": 3}, "cheap jobs run at once"
    again = snakemake(slurm, remote, "table1", "-n", *PROFILE, *SMALL)
    assert "Nothing to be done" in again.stdout + again.stderr


def test_the_page_can_be_typed_from_an_empty_folder(slurm: Cluster, tmp_path: Path) -> None:
    """docs/scale.md, in one shell, so that `cd` and `source` last. Two shortcuts after `cd`: `make install` finds this
    interpreter's environment there, and the base model comes from the cache if it is in it."""
    lines = []
    for command in commands(ROOT / "docs/scale.md", "On a cluster"):
        lines.append(f"printf '\\n$ %s\\n' {shlex.quote(command)}; {command}")
        if command == "cd tepo-bench":
            lines += [f"ln -s {shlex.quote(sys.prefix)} .venv", "touch -d 2000-01-01 pyproject.toml requirements/*.txt"]
            lines += [f"mkdir -p results/cache/models && cp -a {ROOT / base} {base}" for base in made_bases()]
    assert len(lines) > 8
    # the tests' own environment is not the reader's
    path = [part for part in slurm.environment["PATH"].split(":") if not part.startswith(sys.prefix)]
    environment = {"REPOSITORY": str(ROOT), "HOME": str(tmp_path), "PATH": ":".join(path)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)], cwd=tmp_path, env=slurm.environment | environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
    assert "| TEPO" in done.stdout
