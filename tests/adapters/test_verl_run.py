"""C5, C6: verl's own trainer, buffer, engine and checkpoints under Ray on a CPU, on the demo's base model."""

from __future__ import annotations

import ipaddress
import json
import os
import pickle
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from methods.adapters.verl import processes
from methods.train import STOPPED
from records.digests import SUMS
from records.files import read_growing_csv
from records.layout import Results, Run
from records.provenance import ROOT
from tests import planted
from tests.adapters import worlds
from tests.adapters.test_trl_resume import events
from tests.records.test_digests import flip

pytestmark = pytest.mark.slow
DEMO = Results(ROOT / "results/quick").run(Run("tiny_qwen2", "tepo", 1)) / "run.json"


TRAIN = ("-m", "methods.train")
# the same command, with a sampler that keeps the base model's weights
UNSYNCED = (
    "from methods.adapters.verl import config; from methods.train import main; from records import errors; "
    "config.EXTERNAL_LIB['cpu'] = 'tests.adapters.verl_unsynced'; errors.run(main)"
)


def command(
    spec: dict[str, Any], out: Path, program: Sequence[str] = TRAIN, **environment: str
) -> subprocess.Popen[str]:
    line = [sys.executable, *program, "--spec", json.dumps(spec), "--out", str(out)]
    home = Path(f"{out}.home")
    home.mkdir(exist_ok=True)
    # By itself a run that stalls ends after four hours. The slowest wait here takes a minute.
    patience = {"TEPO_VERL_WAIT_SECONDS": "600", "PYTHONFAULTHANDLER": "1", "OMP_NUM_THREADS": "1"}
    variables = {**os.environ, **planted.ENVIRONMENT, "HOME": str(home), **patience, **environment}
    with open(f"{out}.log", "a", encoding="utf-8") as log:  # not a pipe: workers that outlive the driver would hold it
        return subprocess.Popen(line, cwd=ROOT, env=variables, stdout=log, stderr=log, text=True)


def said(out: Path) -> str:
    return Path(f"{out}.log").read_text(encoding="utf-8", errors="replace")


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def left_over(started: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those still there after waiting so long."""
    return psutil.wait_procs(started, timeout=seconds)[1]


def told(out: Path) -> set[tuple[str, str]]:
    """(file, secret) of the planted secrets in all that a run wrote; the home folder must be left as it was."""
    home = Path(f"{out}.home")
    assert not (home / ".ray").exists(), "Ray's own token, for every program of the user"
    return planted.told_by_files(out, Path(f"{out}.log"), home)


def short_folder_of(process: subprocess.Popen[str]) -> Path:
    """The folder that a run in progress has in /tmp, as soon as it holds all that it needs."""
    deadline = time.monotonic() + 900
    while process.poll() is None and time.monotonic() < deadline:
        for token in processes.PLACE.glob("tepo-*/token"):
            with suppress(OSError, ValueError):
                if json.loads((token.parent / processes.OWNER).read_text())["pid"] == process.pid:
                    return token.parent
        time.sleep(0.1)
    raise AssertionError("the run has made no folder")


def sockets(process: psutil.Process) -> set[tuple[str, str, int]]:
    """(program, address, port) of what a process listens to, and of its sockets without connections."""
    found = set()
    with suppress(psutil.Error):
        for one in process.net_connections("inet"):
            if one.laddr and (one.status == psutil.CONN_LISTEN or (one.status == psutil.CONN_NONE and not one.raddr)):
                found.add((" ".join(process.cmdline())[:60].strip(), one.laddr.ip, one.laddr.port))
    return found


def is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


class Touch:
    """Creates a file wherever it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def send_to_queue(port: int, message: Any) -> None:
    """As a stranger who knows the transfer queue's protocol."""
    import zmq
    from transfer_queue.utils import serial_utils

    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.setsockopt(zmq.IDENTITY, b"TQ_STORAGE_stranger")
        stranger.setsockopt(zmq.LINGER, 5000)
        stranger.connect(f"tcp://127.0.0.1:{port}")
        stranger.send_multipart([serial_utils._PICKLE_FALLBACK_SENTINEL, pickle.dumps(message)])


@pytest.fixture
def no_stray_processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Whatever a failing test started is ended."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            for child in descendants(process):
                child.kill()
            process.kill()
            process.wait()


def until(process: subprocess.Popen[str], out: Path, rows: int) -> list[dict[str, str]]:
    """The curve's rows as soon as there are so many."""
    deadline = time.monotonic() + 900
    while len(found := read_growing_csv(out / "state" / "curve.csv")) < rows:
        assert process.poll() is None, said(out)[-3000:]
        assert time.monotonic() < deadline, said(out)[-3000:]
        time.sleep(0.01)
    return found


def untimed(row: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in row.items() if not name.startswith("seconds_")}


def test_killed_resumed_and_evaluated(tmp_path: Path, no_stray_processes: list[subprocess.Popen[str]]) -> None:
    """Four rollouts of TEPO. Killed after the third, and the newest state damaged: goes on from the one before it.

    Meanwhile: nothing listens to another machine, a stranger on this one is not heard, no secret is told.
    """
    assert DEMO.is_file(), "results/quick is missing: run make demo"
    spec = json.loads(DEMO.read_text())["spec"]
    sizes = {"rollouts": 4, "prompts_per_rollout": 8, "samples_per_prompt": 4, "minibatches": 2, "save_every": 1}
    spec |= {"trainer": "verl", "checkpoints": [4], "training": spec["training"] | sizes}
    out = tmp_path / "runs" / "tiny_qwen2" / "tepo" / "seed1"
    out.parent.mkdir(parents=True)

    first = command(spec, out)
    no_stray_processes.append(first)
    before = until(first, out, 3 * 4)
    children = descendants(first)
    first.kill()
    first.wait()
    assert not (out / "run.json").exists()
    older, newest = sorted((out / "state").glob(f"checkpoint-*/{SUMS}"), key=lambda p: int(p.parent.name[11:]))[-2:]
    (moments,) = newest.parent.glob("global_step_*/actor/optim_world_size_1_rank_0.pt")
    flip(moments, 0.5)

    second = command(spec, out)
    no_stray_processes.append(second)
    own: dict[int, psutil.Process] = {}
    short, stranger = short_folder_of(second), tmp_path / "stranger was heard"
    token = {"the run's token": (short / "token").read_bytes()}
    assert [stat.S_IMODE(path.stat().st_mode) for path in (short, short / "token")] == [0o700, 0o600]
    listening: set[tuple[str, str, int]] = set()
    logged: set[tuple[str, str]] = set()
    queue: set[int] = set()  # ports of the transfer queue
    with planted.told_by_arguments(second.pid) as in_arguments:
        deadline = time.monotonic() + 900
        while second.poll() is None:
            if time.monotonic() > deadline:  # the traceback of every thread goes to its log
                second.send_signal(signal.SIGABRT)
                second.wait()
                raise AssertionError(said(out)[-9000:])
            own |= {child.pid: child for child in descendants(second)}
            for process in [psutil.Process(second.pid), *own.values()]:
                listening |= sockets(process)
            new = {port for name, _, port in listening if "Queue" in name or "StorageUnit" in name} - queue
            for port in new:
                send_to_queue(port, Touch(stranger))
            queue |= new
            # os.walk, because Ray removes folders meanwhile: rglob would raise.
            logs = [Path(folder, name) for folder, _, names in os.walk(short) for name in names if name != "token"]
            logged |= planted.told_by_files(*logs, secrets=planted.WORDS | token)
            time.sleep(0.5)
    assert second.returncode == 0, said(out)[-3000:]
    assert [name for name in listening if not is_loopback(name[1])] == []
    assert len(queue) >= 3, listening
    assert not stranger.exists()
    assert (logged, in_arguments, told(out)) == (set(), set(), set())
    assert planted.told_by_files(out, Path(f"{out}.log"), secrets=token) == set()
    assert not short.exists()
    assert len(own) > 5, "Ray's processes were not seen"
    assert left_over(list(own.values()), 30) == []
    assert left_over(children, 90) == []
    assert f"{newest.parent}: not resumed from: {moments}: differs from its sha256 in {newest}" in said(out)
    assert f"{out}: resuming from {older.parent}" in said(out)
    assert (events(out).count("resume"), events(out).count("damaged")) == (1, 1)

    after = read_growing_csv(out / "curve.csv")
    for one, other in zip(before, after, strict=False):
        assert untimed(one) == untimed(other)
    trained = [row for row in after if row["tokens"] != "0"]
    assert len({row["rollout"] for row in trained}) == 4
    for row in trained:
        on_policy = (row["mask_fraction"], row["kl_old"], row["ratio_spread"]) == ("0.0", "0.0", "0.0")
        assert on_policy == (row["minibatch"] == "0"), row
    assert sum(float(row["mask_fraction"]) > 0 for row in trained) >= 4

    arguments = ["--benchmarks", "syn_add2q", "--backend", "hf", "--limit", "4", "--out", str(tmp_path / "scores")]
    model = out / "checkpoints" / "step4"
    line = [sys.executable, "-m", "evals.run", "--model", str(model), *arguments]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "syn_add2q" in (tmp_path / "scores" / "scores.csv").read_text()


def test_a_correction_acts_on_the_engines_log_probs(
    world: Path, tmp_path: Path, no_stray_processes: list[subprocess.Popen[str]]
) -> None:
    """Engine and trainer agree, at another temperature too, so that a bound below 1 rejects every token."""
    out = tmp_path / "run"
    process = command(
        worlds.spec(world, "grpo+correction=token-rs+correction-cap=0.5", trainer="verl", temperature=0.7), out
    )
    no_stray_processes.append(process)
    assert process.wait(timeout=300) == 0, said(out)[-3000:]
    trained = [row for row in read_growing_csv(out / "curve.csv") if row["tokens"] != "0"]
    assert trained
    for row in trained:
        assert 0 < float(row["sampling_gap_mean"]) <= float(row["sampling_gap_p99"]) < 1e-5, row
        assert float(row["sampling_correlation"]) > 0.9999999, row
        assert float(row["grad_norm"]) == 0.0, row


def test_a_sampler_that_never_gets_the_weights_ends_the_run(
    world: Path, tmp_path: Path, no_stray_processes: list[subprocess.Popen[str]]
) -> None:
    """In the second rollout, the first that is sampled with old weights, at a small learning rate.

    The other runs here are synced and end well.
    """
    out = tmp_path / "run"
    spec = worlds.spec(world, "grpo", trainer="verl", learning_rate=1e-4)
    process = command(spec, out, ("-c", UNSYNCED))
    no_stray_processes.append(process)
    assert process.wait(timeout=900) == 2, said(out)[-3000:]
    message = r"^error: .*curve.csv: rollout 2: the sampler has another policy than the trainer: sampling_gap_mean"
    assert re.search(message, said(out), re.MULTILINE), said(out)[-3000:]
    *before, last = read_growing_csv(out / "state" / "curve.csv")
    assert {row["rollout"] for row in before} == {"1"}
    assert all(float(row["sampling_gap_mean"]) < 1e-5 for row in before)
    assert last["rollout"] == "2"


def test_refill_after_oversampling_goes_on_bit_for_bit(
    world: Path, tmp_path: Path, no_stray_processes: list[subprocess.Popen[str]]
) -> None:
    """Most groups are constant: each rollout draws one and a half times its prompts, then more. Killed in the third."""
    changes = {"filter": "refill", "reward": "tests.adapters.worlds:rarely", "refill_rounds": 2, "rollouts": 3}
    spec = worlds.spec(world, "grpo", trainer="verl", checkpoints=(3,), **changes)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for out in (cut, whole):
        no_stray_processes.append(command(spec, out))
    killed, uncut = no_stray_processes
    until(killed, cut, 2 * 4)
    killed.kill()
    killed.wait()
    no_stray_processes.append(command(spec, cut))
    assert no_stray_processes[-1].wait(timeout=900) == 0, said(cut)[-3000:]
    assert uncut.wait(timeout=900) == 0, said(whole)[-3000:]
    assert "resume" in events(cut)
    rows = [read_growing_csv(out / "curve.csv") for out in (whole, cut)]
    assert [untimed(row) for row in rows[0]] == [untimed(row) for row in rows[1]]
    weights = [(out / "checkpoints" / "step3" / "model.safetensors").read_bytes() for out in (whole, cut)]
    assert weights[0] == weights[1]
    sampled = {int(row["groups_sampled"]) for row in rows[0]}
    assert min(sampled) >= 6
    assert max(sampled) > 6


FAILURES = {  # changes of the specification, environment -> what the job says last
    "the reward raises": ({"reward": "tests.adapters.worlds:one_none"}, {}, "reward tests.adapters.worlds:one_none: "),
    "nothing comes back in time": ({}, {"TEPO_VERL_WAIT_SECONDS": "3"}, "verl: .*: no end after 3 s"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_ends_the_job_with_its_cause(
    case: str, world: Path, tmp_path: Path, no_stray_processes: list[subprocess.Popen[str]]
) -> None:
    changes, environment, message = FAILURES[case]
    out = tmp_path / "run"
    process = command(worlds.spec(world, trainer="verl", **changes), out, **environment)
    no_stray_processes.append(process)
    own: dict[int, psutil.Process] = {}
    deadline = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < deadline:
        own |= {child.pid: child for child in descendants(process)}
        time.sleep(0.2)
    # 2, but for native threads of a stalled Ray that may crash the interpreter on its way out
    assert process.poll() not in (None, 0, STOPPED), said(out)[-3000:]
    assert re.search(f"^error: {message}", said(out), re.MULTILINE), said(out)[-3000:]
    # two agents of a Ray that was interrupted while it started take a while to see that it is gone
    assert left_over(list(own.values()), 90) == []
    assert told(out) == set()


@pytest.mark.parametrize("victim", ["AgentLoopWorkerTQ", "WorkerDict"])
def test_a_worker_that_dies_ends_the_job(
    victim: str, world: Path, tmp_path: Path, no_stray_processes: list[subprocess.Popen[str]]
) -> None:
    """The one that samples is waited for by nobody: its prompts would be running for ever."""
    out = tmp_path / "run"
    spec = worlds.spec(world, trainer="verl", checkpoints=(400,), rollouts=400, save_every=400)
    process = command(spec, out)
    no_stray_processes.append(process)
    until(process, out, 4)
    killed = [child for child in descendants(process) if f"ray::{victim}" in " ".join(child.cmdline())]
    assert len(killed) == 1
    assert killed[0].nice() == 0, "it would stand still beside any busy process"
    killed[0].kill()
    assert process.wait(timeout=120) not in (0, STOPPED)
    assert re.search(r"^error: verl: a worker died \(", said(out), re.MULTILINE), said(out)[-3000:]
    assert told(out) == set()


def test_a_stop_request_saves_and_exits_75(
    world: Path, tmp_path: Path, no_stray_processes: list[subprocess.Popen[str]]
) -> None:
    """Half of the groups are constant here: minibatches are filled up, some are not trained on at all."""
    changes = {"filter": "mask", "reward": "tests.adapters.worlds:rarely", "rollouts": 400, "save_every": 400}
    spec = worlds.spec(world, trainer="verl", checkpoints=(400,), **changes)
    out = tmp_path / "run"
    process = command(spec, out)
    no_stray_processes.append(process)
    until(process, out, 8)
    process.terminate()
    assert process.wait(timeout=120) == STOPPED, said(out)[-3000:]
    assert events(out)[-2:] == ["save", "stopped"]
    rows = read_growing_csv(out / "state" / "curve.csv")
    assert {row["groups_sampled"] for row in rows} == {"4"}
    for row in rows:
        kept = int(row["groups_kept"])
        assert int(row["sequences"]) == 4 * len(range(int(row["minibatch"]) % 2, kept, 2))
        assert (row["loss"] == "") == (row["sequences"] == "0")
