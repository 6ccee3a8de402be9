"""A real Slurm on this machine: munged, slurmctld and two slurmd with four fake GPUs each, all in one folder.

    with cluster(folder) as slurm:
        subprocess.run(["sbatch", ...], env=slurm.environment)

Debian's packages `slurm-wlm` and `munge` (Slurm 22.05), root, no systemd, no cgroups, no name service. Nothing outside
`folder` is read or written, and the daemons are stopped by their pid files.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

NODES = ("n1", "n2")
GPUS = 4  # a node
SBIN = "/usr/sbin"  # not on every user's PATH
SEARCH = f"{os.environ['PATH']}:{SBIN}"
CLIENTS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo", "sacct", "sacctmgr", "sshare")
PROGRAMS = ("munged", "slurmctld", "slurmd", *CLIENTS)
MARK = "TEPO_BENCH_TEST_CLUSTER"  # in the environment of everything that runs on the cluster

# Two nodes on one machine. `config_overrides`: the sizes are invented; linuxproc and task/none: no cgroups; accounting
# off, so `sacct` cannot answer; requeue and short limits, so that failures are over in seconds.
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
JobRequeue=1
KillWait=5
SlurmdTimeout=20
SlurmctldTimeout=30
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 RealMemory=64000 Gres=gpu:h100:{gpus}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 RealMemory=64000 Gres=gpu:h100:{gpus}
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why no cluster can be started here, or None."""
    if os.geteuid() != 0:
        return "starting Slurm's daemons needs root"
    absent = [name for name in PROGRAMS if not shutil.which(name, path=SEARCH)]
    return f"{', '.join(absent)} not installed (Debian: apt-get install slurm-wlm munge)" if absent else None


@dataclass
class Cluster:
    """A running cluster. `environment` is what a user's shell has there."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str, check: bool = True, **options: object) -> str:
        """Run a command as a user of the cluster; its standard output."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=False, timeout=1800, **options
        )  # type: ignore[call-overload]
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return str(done.stdout)

    def start_node(self, node: str) -> None:
        self.run(f"{SBIN}/slurmd", "-f", str(self.conf), "-N", node)

    def kill_node(self, node: str) -> None:
        """What a power cut does: the node's daemon and all that runs on it are gone, without a message."""
        self.stop(f"slurmd-{node}.pid", signal.SIGKILL)
        for pid in self.processes(SLURMD_NODENAME=node):
            _kill(pid)

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End the daemon with this pid file, if it runs."""
        with contextlib.suppress(FileNotFoundError, ValueError, psutil.NoSuchProcess, psutil.TimeoutExpired):
            daemon = psutil.Process(int((self.folder / name).read_text(encoding="utf-8")))
            daemon.send_signal(number)
            daemon.wait(timeout=10)

    def processes(self, **variables: str) -> list[int]:
        """Pids of everything that runs on this cluster, told by its environment, and has `variables` there."""
        wanted = {f"{key}={value}".encode() for key, value in {MARK: str(self.folder), **variables}.items()}
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                        found.append(int(folder.name))
        return found

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster in `folder` (new, short path: sockets lie in it) and stop everything that ran on it."""
    folder = folder.resolve()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "SNAKEMAKE"))}
    path = f"{folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    made = Cluster(folder, {**environment, MARK: str(folder), "PATH": path})
    try:
        _write(folder)
        munge = folder / "munge"
        made.run(
            f"{SBIN}/munged", "--force", f"--key-file={munge}/key", f"--socket={munge}/socket",
            f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed",
        )  # fmt: skip
        made.run(f"{SBIN}/slurmctld", "-f", str(made.conf), "-c")
        for node in NODES:
            made.start_node(node)
        wait_for(lambda: made.run("sinfo", "-h", "-o", "%T", check=False).split() == ["idle"], "nodes to be idle")
        yield made
    finally:
        _stop(made)


def wait_for(condition: Callable[[], object], what: str, seconds: float = 1800) -> None:
    """Return as soon as `condition()` is true; an error after `seconds`, which only a test that fails waits out."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)


def _write(folder: Path) -> None:
    for name in ("state", "munge", "bin", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    (folder / "munge/key").write_bytes(os.urandom(1024))
    (folder / "munge/key").chmod(0o400)
    for number in range(GPUS):  # null devices under other names
        os.mknod(folder / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    for name in CLIENTS:  # not SLURM_CONF in the environment: jobs of the executor plugin lose it
        client = folder / "bin" / name
        client.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which(name, path=SEARCH)} "$@"\n')
        client.chmod(0o755)
    host = socket.gethostname().split(".")[0]
    ports = random.sample(range(20_000, 32_768), 3)  # Linux gives connections higher ones
    (folder / "slurm.conf").write_text(CONF.format(folder=folder, host=host, ports=ports, gpus=GPUS))
    device = f"File={folder}/gpu[0-{GPUS - 1}]"
    (folder / "gres.conf").write_text("".join(f"NodeName={node} Name=gpu Type=h100 {device}\n" for node in NODES))


def _stop(made: Cluster) -> None:
    """Cancel every job, stop the daemons by their pid files, and end what jobs left behind."""
    if (made.folder / "slurmctld.pid").exists():
        made.run("scancel", "--user=root", "--state=PENDING", check=False)
        made.run("scancel", "--user=root", check=False)
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: not made.run("squeue", "-h", check=False).strip(), "jobs to end", 15)
    for name in ("slurmctld.pid", *(f"slurmd-{node}.pid" for node in NODES), "munge/pid"):
        made.stop(name)
    for pid in made.processes():
        _kill(pid)
    for number in range(GPUS):
        (made.folder / f"gpu{number}").unlink(missing_ok=True)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
