"""Run a command on a Ray cluster over the nodes of a Slurm job: `python -m workflow.ray_nodes ... -- COMMAND`.

Runs on the first node, in the job's own shell. Starts Ray on every node as job steps (its head here), waits until each
has joined with all its GPUs, runs COMMAND as a further step with RAY_ADDRESS set, and stops Ray. Exit code: COMMAND's;
2 and one line if Ray did not come up whole, or a node was lost while COMMAND ran.

Ray's steps ignore Slurm's warning before the time limit (USR1), which goes to every step; COMMAND gets it and can save.
"""

import argparse
import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from core import caches, errors
from core.errors import BenchError, ConfigError, Parser, whole

Process = subprocess.Popen[bytes]
START_SECONDS = 300  # for all nodes to join

# In a process of its own: `ray.init` of an incomplete cluster may hang.
JOINED = """
import ray, sys
ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
print(*(int(node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]))
"""


class NodesError(BenchError, RuntimeError):
    """Ray did not start on all nodes, or a node was lost."""


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = Parser()
    parser.add_argument("--nodes", type=whole(1), required=True, help="nodes that the job must have")
    parser.add_argument("--gpus-per-node", type=whole(1), required=True, help="GPUs that each of them must bring")
    parser.add_argument("--cores", type=whole(1), required=True, help="CPU cores a node")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND")
    return parser.parse_args(argv)


def hosts(job: str) -> list[str]:
    """The job's nodes, the one we run on first. The variables that list them do not reach a rule's shell."""
    node_list = re.search(r"^\s+NodeList=(\S+)", _output("scontrol", "show", "job", job), re.MULTILINE)
    if node_list is None:
        raise NodesError(f"job {job}: scontrol shows no NodeList")
    return _output("scontrol", "show", "hostnames", node_list[1]).split()


def address(host: str) -> str:
    """The IP address under which Slurm itself reaches the node."""
    node_address = re.search(r"NodeAddr=(\S+)", _output("scontrol", "show", "node", "--oneliner", host))
    return socket.gethostbyname(node_address[1] if node_address else host)


def port(job: str) -> int:
    """Of Ray's head: by job, so that two jobs that share a node do not meet. The next one is its client server's."""
    # 20,000 to 29,999: below 32,768, where Linux begins to give ports to outgoing connections.
    return 20_000 + 2 * (int(job) % 5_000)


def step(host: str, cores: int, command: Sequence[str]) -> list[str]:
    """`command` as a job step on `host` that shares the node's cores, memory and GPUs with the other steps there."""
    # Without --overlap a step waits until the other one there ends; --mem=0 is all memory that the job has on the node.
    return [
        "srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}", f"--cpus-per-task={cores}", "--mem=0",
        *command,
    ]  # fmt: skip


def ray_start(host: str, args: argparse.Namespace, *where: str) -> Process:
    """Ray on `host` until it is stopped: `--block` keeps the step alive as long as Ray lives, and no longer."""
    ray = str(Path(sys.executable).with_name("ray"))
    line = [ray, "start", "--block", f"--num-gpus={args.gpus_per_node}", f"--num-cpus={args.cores}", *where]
    line.append(f"--node-ip-address={address(host)}")
    # Made by us, or not used: the name cannot be guessed, so what is there already was made by us for another node that
    # is the same machine. Closed to other users, because Ray opens its own folder, which lies in it, to everybody.
    folder = shlex.quote(args.folder)
    made = f"mkdir -m 700 {folder} 2>/dev/null || {{ test -O {folder} && test ! -L {folder}; }} || exit 2"
    return subprocess.Popen(step(host, args.cores, ["bash", "-c", f"trap '' USR1; {made}; exec {shlex.join(line)}"]))


def start(job: str, nodes: Sequence[str], args: argparse.Namespace, running: dict[str, Process]) -> str:
    """Ray on all nodes, each process put into `running` as soon as it is started; Ray's address."""
    first, number = nodes[0], port(job)
    deadline = time.monotonic() + START_SECONDS
    running[first] = ray_start(
        first, args, "--head", f"--port={number}", f"--ray-client-server-port={number + 1}",
        "--include-dashboard=false", f"--temp-dir={args.folder}/ray",
    )  # fmt: skip
    ray_address, wanted = f"{address(first)}:{number}", " ".join([str(args.gpus_per_node)] * args.nodes)
    while True:
        check_alive(running, args.folder)
        answers, joined = gpus_joined(ray_address)
        if answers and joined == wanted:
            return ray_address
        if time.monotonic() > deadline:
            raise NodesError(
                f"Ray at {ray_address} is not whole after {START_SECONDS} s: GPUs of the nodes that joined: "
                f"wanted {wanted}, got {joined}"
            )
        if answers:  # the head is up: a worker that came before it would give up
            for host in nodes[len(running) :]:
                running[host] = ray_start(host, args, f"--address={ray_address}")
        time.sleep(1)


def gpus_joined(ray_address: str) -> tuple[bool, str]:
    """Whether Ray answers, and the GPUs of each node that has joined, or why it does not."""
    line = [sys.executable, "-c", JOINED, ray_address]
    try:
        answer = subprocess.run(line, capture_output=True, text=True, encoding="utf-8", timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return False, "no answer in 60 s"
    output = (answer.stdout if answer.returncode == 0 else answer.stderr).strip().splitlines()
    return answer.returncode == 0, output[-1] if output else ""


def check_alive(daemons: dict[str, Process], folder: str) -> None:
    for host, process in daemons.items():
        if (code := process.poll()) is not None:
            raise NodesError(f"Ray on {host} ended (exit code {code}); its log is in {folder} there")


def stop(processes: Sequence[Process]) -> None:
    """End steps: srun passes the signal on, and kills what is left after Slurm's KillWait."""
    for process in processes:
        process.terminate()  # nothing where it has ended
    for process in processes:
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()


def run(args: argparse.Namespace) -> int:
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        raise ConfigError("SLURM_JOB_ID: not set; this runs inside a Slurm job (docs/cluster.md, several nodes)")
    nodes = hosts(job)
    if len(nodes) != args.nodes:
        raise NodesError(f"job {job}: has nodes {', '.join(nodes)}, but this run needs {args.nodes}")
    # Ray's folder on every node: short, since sockets lie in it, and of this attempt alone, which may have the job's
    # number from an earlier one.
    args.folder = f"/tmp/ray-{job}-{secrets.token_hex(4)}"
    os.environ.setdefault(caches.VARIABLE, f"{args.folder}/caches")  # on each node's own disk, gone with the folder
    # A token of this job's own: nobody else on the cluster's network can join, or send work to, its Ray.
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_USAGE_STATS_ENABLED="0")
    running: dict[str, Process] = {}
    steps: list[Process] = []
    try:
        ray_address = start(job, nodes, args, running)
        print(f"Ray runs on {', '.join(nodes)} with {args.gpus_per_node} GPUs each, head {ray_address}", flush=True)
        os.environ["RAY_ADDRESS"] = ray_address
        steps.append(subprocess.Popen(step(nodes[0], args.cores, args.command)))
        while steps[0].poll() is None:
            check_alive(running, args.folder)
            time.sleep(0.5)
    finally:
        stop([*steps, *running.values()])
    code = int(steps[0].returncode)
    if code == 0:  # after a failure Ray's logs are of use
        subprocess.run(["srun", "--overlap", f"--nodes={len(nodes)}", "rm", "-rf", args.folder], check=False)
    return code


def _output(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise NodesError(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def main() -> int:
    return run(arguments())


if __name__ == "__main__":
    errors.run(main)
