"""Ray over two nodes, started and stopped by our launcher on a real Slurm; a few lines stand in for the training."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, wait_for
from tests.slurm.conftest import PROFILE, snakemake
from tests.workflow.conftest import ROOT, copy_of
from workflow.resources import Need, launch

pytestmark = pytest.mark.slow
NEED = Need(gpus=8, nodes=2, cores=2, memory=8000, minutes=10)

# `train_nodes` with its resources, so that the profile's own entry for it applies, and something cheap to run. An hour,
# as a run's shortest: within the 15 minutes before its limit Slurm would tell the driver to end.
SNAKEFILE = """
rule train_nodes:
    output: "done"
    threads: 2
    resources: mpi="srun", nodes=2, tasks=2, mem_mb=8000, runtime=60
    shell: "export PYTHONPATH=.; {launch} python -m tests.slurm.ray_driver 0 2>&1 | tee said; touch {{output}}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The repository with a profile for this cluster, whose nodes have four GPUs."""
    folder = copy_of(tmp_path / "clone", "slurm", "tests/__init__.py", "tests/slurm")
    profile = folder / "profiles/slurm/config.yaml"
    profile.write_text(profile.read_text().replace("--gpus-per-node=8", "--gpus-per-node=h100:4"))
    return folder


def submit(slurm: Cluster, output: Path, command: str, *, nodes: int = 2) -> str:
    """A job of two nodes with four GPUs each that runs `command` in the repository; its id."""
    shape = [f"--nodes={nodes}", "--ntasks-per-node=1", "--gpus-per-node=4", "--cpus-per-task=2", "--mem=8000"]
    return slurm.run(
        "sbatch", "--parsable", *shape, f"--chdir={ROOT}", f"--output={output}", f"--wrap={command}"
    ).strip()


def ended(slurm: Cluster, job: str) -> int | None:
    """The job's exit code once it is over."""
    shown = slurm.run("scontrol", "show", "job", job)
    over = re.search(r"JobState=(COMPLETED|FAILED|CANCELLED)", shown)
    code = re.search(r"ExitCode=(\d+):", shown)
    return int(code[1]) if over and code else None


def left_of(slurm: Cluster, job: str) -> list[str]:
    """Command lines of Ray's processes that outlived the job."""
    lines = (cmdline(pid).replace(b"\0", b" ").decode() for pid in slurm.processes())
    return [line for line in lines if f"ray-{job}" in line or "raylet" in line]


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def folders(job: str) -> list[Path]:
    """Ray's, on this machine, which all nodes of the cluster share."""
    return list(Path("/tmp").glob(f"ray-{job}-*"))


def remove_logs(job: str) -> None:
    """What a failed job leaves; nobody else can have looked into it."""
    for folder in folders(job):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        shutil.rmtree(folder)


def test_snakemake_starts_ray_on_both_nodes_and_nothing_of_it_is_left(slurm: Cluster, folder: Path) -> None:
    (folder / "Snakefile").write_text(SNAKEFILE.format(launch=launch(NEED)))
    done = snakemake(slurm, folder, "done", *PROFILE)
    said = (folder / "said").read_text() if (folder / "said").exists() else ""
    assert done.returncode == 0, said + done.stdout + done.stderr
    assert "Trying to restart" not in done.stdout + done.stderr, done.stdout + done.stderr
    assert "Ray runs on n1, n2 with 4 GPUs each" in said
    assert "reached [('n1', 4), ('n2', 4)]" in said
    job = re.search(r"SLURM jobid (\d+)", done.stdout + done.stderr)
    assert job is not None
    wait_for(lambda: not left_of(slurm, job[1]), "Ray's processes to end")
    assert folders(job[1]) == []


def test_a_lost_node_ends_the_job_with_one_line(slurm: Cluster, tmp_path: Path) -> None:
    """Not a training that waits for it until the time limit."""
    output = tmp_path / "out"
    job = submit(slurm, output, f"{launch(NEED)} python -m tests.slurm.ray_driver wait")
    wait_for(lambda: output.exists() and "reached" in output.read_text(), "the driver to run")
    lost = [pid for pid in slurm.processes(SLURMD_NODENAME="n2") if b"raylet/raylet" in cmdline(pid)]
    assert lost
    for pid in lost:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: ended(slurm, job) is not None, "the job to end")
    assert ended(slurm, job) == 2
    assert re.search(r"error: Ray on n2 ended \(exit code \d+\)", output.read_text())
    wait_for(lambda: not left_of(slurm, job), "Ray's processes to end")
    remove_logs(job)


# nodes, what is asked for, command, exit code of the job, what it says
DRIVER = "python -m tests.slurm.ray_driver"
ENDS = {
    "saved and to be continued, which must reach Snakemake": (2, NEED, f"{DRIVER} 75", 75, "reached"),
    "too few nodes": (1, NEED, "touch {ran}", 2, "has nodes n1, but this run needs 2"),
    "more GPUs than the nodes have": (2, Need(16, 2, 2, 8000, 10), "touch {ran}", 2, "Ray on n1 ended"),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_jobs_exit_code_is_the_commands_or_says_what_does_not_fit(
    case: str, slurm: Cluster, tmp_path: Path
) -> None:
    nodes, need, command, code, message = ENDS[case]
    output, ran = tmp_path / "out", tmp_path / "ran"
    job = submit(slurm, output, f"{launch(need)} {command.format(ran=ran)}", nodes=nodes)
    wait_for(lambda: ended(slurm, job) is not None, "the job to end")
    assert ended(slurm, job) == code, output.read_text()
    assert message in output.read_text()
    assert not ran.exists(), "the command was started"
    remove_logs(job)
