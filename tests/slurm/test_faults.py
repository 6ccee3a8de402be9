"""Jobs stopped, cancelled or lost with their node, a Snakemake that is killed, and Ray over two nodes."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pandas as pd
import pytest

from tests.slurm.cluster import Cluster, wait_for
from tests.slurm.conftest import PROFILE, SMALL, clone, follow, snakemake
from tests.workflow.conftest import ROOT, copy_of
from workflow.resources import Need, launch

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


def events(folder: Path, method: str) -> list[dict[str, str]]:
    path = folder / RUNS / method / "seed1/state/events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def said(folder: Path, method: str) -> list[str]:
    return [event["event"] for event in events(folder, method)]


def jobs_of(slurm: Cluster, method: str) -> list[str]:
    """The method's jobs in the queue, found as docs/cluster.md says."""
    return re.findall(rf"^(\d+) \S+_{method}_1 ", slurm.run("squeue", "-h", "-o", "%i %k %T"), re.MULTILINE)


def assert_same(folder: Path, straight: Path) -> None:
    """Curves but for their times, and the weights."""
    for method in METHODS:
        here, there = (pd.read_csv(root / RUNS / method / "seed1/curve.csv", dtype=str) for root in (folder, straight))
        numbers = [column for column in here if not str(column).startswith("seconds_")]
        pd.testing.assert_frame_equal(here[numbers], there[numbers])
        weights = [
            json.loads((root / RUNS / method / "seed1/run.json").read_text())["outputs"]["checkpoints/step30"]
            for root in (folder, straight)
        ]
        assert weights[0] == weights[1]


def frozen(folder: Path, method: str) -> bool:
    """Whether the method's trainer stands still after a state of its own; it is stopped there."""
    if "save" not in said(folder, method):
        return False
    os.kill(trainer(folder, method), signal.SIGSTOP)
    return True


def trainer(folder: Path, method: str) -> int:
    return int([event for event in events(folder, method) if event["event"] in ("start", "resume")][-1]["pid"])


def told(pid: int, number: signal.Signals) -> bool:
    """Whether the signal waits for the process to move again, or has moved it: Slurm may send SIGCONT with it."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return True
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)$", text, re.MULTILINE)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def near_its_limit(slurm: Cluster, method: str) -> None:
    """Let the method's job end in one to two minutes, as an administrator can, so that Slurm tells it at once.

    Slurm tells it 90 s before (`prepared`) and looks twice a minute; in less than a minute it might end it untold.
    """
    (job,) = jobs_of(slurm, method)
    ran = re.search(r"RunTime=(\d+):(\d+):", slurm.run("scontrol", "show", "job", job))
    assert ran is not None
    slurm.run("scontrol", "update", f"JobId={job}", f"TimeLimit={60 * int(ran[1]) + int(ran[2]) + 2}")


def test_time_limit_scancel_and_a_lost_node_in_one_run(slurm: Cluster, straight: Path, tmp_path: Path) -> None:
    """Trainers stand still until their fault comes, so that none is over before, however fast the machine."""
    folder = prepared(tmp_path / "clone")
    with running(slurm, folder) as process:
        wait_for(lambda: sum(frozen(folder, method) for method in METHODS) == 3, "a state of every run")
        slurm.run("scancel", *jobs_of(slurm, "tepo"))
        os.kill(trainer(folder, "tepo"), signal.SIGCONT)
        near_its_limit(slurm, "grpo")
        wait_for(lambda: told(trainer(folder, "grpo"), signal.SIGUSR1), "grpo to be told of its time limit")
        with suppress(ProcessLookupError):
            os.kill(trainer(folder, "grpo"), signal.SIGCONT)
        wait_for(lambda: "stopped" in said(folder, "grpo"), "grpo to stop")
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
    stopped = [event["signal"] for event in events(folder, "grpo") if event["event"] == "stopped"]
    assert "SIGUSR1" in stopped
    assert "stopped" not in said(folder, "gspo")[: said(folder, "gspo").index("resume")]
    for method in METHODS:
        assert said(folder, method).count("start") == 1
        assert "resume" in said(folder, method)
    assert_same(folder, straight)
    starts = sum(said(folder, method).count(word) for method in METHODS for word in ("start", "resume"))
    print(f"{starts} starts of three runs")


def test_snakemake_killed_started_again_and_started_twice(slurm: Cluster, straight: Path, tmp_path: Path) -> None:
    """Jobs outlive it; the next one submits them again, and the duplicates wait for the first and do nothing.

    Trainers stand still until all of that has happened.
    """
    folder = prepared(tmp_path / "clone")
    with running(slurm, folder) as first:
        wait_for(lambda: sum(frozen(folder, method) for method in METHODS) == 3, "a state of every run")
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
            os.kill(trainer(folder, method), signal.SIGCONT)
        wait_for(lambda: again.poll() is not None, "Snakemake to end")
    assert again.returncode == 0, (folder / "log of the next").read_text()[-6000:]
    for method in METHODS:
        assert (said(folder, method).count("start"), said(folder, method).count("end")) == (1, 1)
        assert "resume" not in said(folder, method)
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

    for name in ("scores.csv", "tables/table1.csv", "tables/table1.tidy.csv", "tables/table1.md", "matrix.json"):
        assert (remote / RESULTS / name).read_bytes() == (local / RESULTS / name).read_bytes(), name
    curves = sorted((local / RESULTS / "runs").glob("*/*/seed*/curve.csv"))
    assert len(curves) == 2
    for path in curves:
        here, there = (pd.read_csv(p, dtype=str) for p in (path, remote / path.relative_to(local)))
        numbers = [column for column in here if not str(column).startswith("seconds_")]
        pd.testing.assert_frame_equal(there[numbers], here[numbers])

    submitted = Counter(re.findall(r"slurm_logs/rule_([a-z_]+)/", said))
    assert submitted - Counter(base=1) == {"train": 2, "generate": 3, "grade": 3}, "cheap jobs run at once"
    for folder in (remote / RESULTS / "runs").glob("*/*/seed*"):  # a run names its job, and the job's log is there
        events = pd.read_json(folder / "state/events.jsonl", lines=True, dtype=False)
        assert events["event"].iloc[-1] == "end"
        logs = list((remote / ".snakemake/slurm_logs/rule_train").glob(f"*/{events['slurm_job_id'].iloc[0]}.log"))
        assert [folder.parent.name in log.parent.name for log in logs] == [True]

    again = snakemake(slurm, remote, "table1", "-n", *PROFILE, *SMALL)
    assert "Nothing to be done" in again.stdout + again.stderr


def test_the_page_can_be_followed_from_an_empty_folder(slurm: Cluster, tmp_path: Path) -> None:
    said = follow(slurm, tmp_path)
    assert "| TEPO" in said
    assert (tmp_path / "tepo-bench/results/small/tables/table1.md").exists()


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
