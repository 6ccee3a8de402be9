"""The quick matrix under random faults: `python -m tests.soak --minutes 30 [--seed 1] [--small]`.

Runs the matrix once undisturbed to its manifest. Then the matrix
again and again to Table 1 while it kills, stops and damages what it can reach, each time until Snakemake says that all
is done. Prints what was injected, jobs lost (expected results that are missing), cells of scores, tables and curves,
times apart, that differ from the undisturbed run, and logs with a traceback. Exit code 1 if any.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests import at_rest
from tests.slurm.cluster import processes
from tests.slurm.conftest import SMALL, clone

MARK = "TEPO_BENCH_SOAK"
TARGET = "table1"
QUICK = ("--configfile", "config/quick.yaml")
OVER_SMALL = "tests/soak.yaml"


@dataclass
class World:
    """A copy of the repository in which things go wrong."""

    folder: Path
    words: tuple[str, ...]
    draw: random.Random
    injected: Counter[str] = field(default_factory=Counter)
    runner: subprocess.Popen[bytes] | None = None

    @property
    def results(self) -> Path:
        return self.folder / "results" / self.scale

    @property
    def scale(self) -> str:
        return "quick" if self.words == QUICK else "small"

    def start(self, target: str = TARGET) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, MARK: str(self.folder), "OMP_NUM_THREADS": "1"}
        for words in (["--unlock"], ["--keep-going", "--retries", "2"]):
            with open(self.folder / "log", "ab") as log:
                self.runner = subprocess.Popen(
                    ["snakemake", target, *words, *self.words],
                    cwd=self.folder, env=environment, stdout=log, stderr=log,
                )  # fmt: skip
            if words == ["--unlock"]:
                self.runner.wait()

    def pids(self, *words: str) -> list[int]:
        """Processes of this copy whose command line holds all of `words`."""
        return [pid for pid in processes({MARK: str(self.folder)}) if all(word in command_line(pid) for word in words)]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def send(number: signal.Signals, *words: str) -> Callable[[World], bool]:
    """A fault: the signal to a process whose command line has these words; False if there is none."""

    def fault(world: World) -> bool:
        found = world.pids(*words)
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(world.draw.choice(found), number)
        return bool(found)

    return fault


def kill_snakemake(world: World) -> bool:
    """Its jobs run on; the next one meets them."""
    if world.runner is None or world.runner.poll() is not None:
        return False
    world.runner.kill()
    world.runner.wait()
    world.start()
    return True


def second_snakemake(world: World) -> bool:
    if world.runner is None or world.runner.poll() is not None:
        return False
    done = subprocess.run(
        [str(Path(sys.executable).with_name("snakemake")), TARGET, *world.words],
        cwd=world.folder, env=os.environ | {MARK: str(world.folder)}, capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode != 0


def pause(world: World) -> bool:
    """A trainer that gets no processor for a while."""
    found = world.pids("-m methods.train")
    if found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(found[0], signal.SIGSTOP)
            time.sleep(3)
            os.kill(found[0], signal.SIGCONT)
    return bool(found)


def damaged(pattern: str, damage: at_rest.Damage) -> Callable[[World], bool]:
    """A fault: all trainers are killed, and a file of a run that is not finished is damaged; False if there is none."""

    def fault(world: World) -> bool:
        trainers = world.pids("-m methods.train")
        for pid in trainers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        unfinished = [run for run in world.results.glob("runs/*/*/*") if not (run / "run.json").is_file()]
        files = [path for run in unfinished for path in sorted(run.glob(pattern)) if path.is_file()]
        with contextlib.suppress(FileNotFoundError):  # a state that has just been replaced by a later one
            return bool(trainers and files) and damage(world.draw.choice(files), world.draw, ())
        return False

    return fault


def jump(world: World) -> bool:
    """A finished file's time, a day ahead or a day back."""
    found = [path for path in world.results.rglob("*.json") if "state" not in path.parts]
    if found:
        with contextlib.suppress(FileNotFoundError):
            os.utime(world.draw.choice(found), (time.time() + world.draw.choice([-86_400, 86_400]),) * 2)
    return bool(found)


def back_to_now(world: World) -> None:
    """What docs/cluster.md says to do about times in the future: Snakemake refuses outputs older than their inputs."""
    now = time.time()
    for path in world.results.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime > now:
                os.utime(path)


FAULTS: dict[str, Callable[[World], bool]] = {
    "kill -9 Snakemake": kill_snakemake,
    "second Snakemake": second_snakemake,
    "kill -9 trainer": send(signal.SIGKILL, "-m methods.train"),
    "SIGTERM trainer": send(signal.SIGTERM, "-m methods.train"),
    "SIGUSR1 trainer": send(signal.SIGUSR1, "-m methods.train"),
    "trainer paused": pause,
    "state cut short": damaged("state/checkpoint-*/*", at_rest.cut),
    "a bit of a state flipped": damaged("state/checkpoint-*/*", at_rest.flip),
    "a digit of kept curve rows changed": damaged("state/curve.csv", at_rest.digit),
    "a bit of a checkpoint flipped before its run's end": damaged("checkpoints/*/*", at_rest.flip),
    "kill -9 generation": send(signal.SIGKILL, "-m evals.generate"),
    "kill -9 grading": send(signal.SIGKILL, "-m evals.grade "),
    "kill -9 grader worker": send(signal.SIGKILL, "evals.grading.pool"),
    "time of a file jumps": jump,
}


def cells(results: Path) -> dict[tuple[str, int, str], str]:
    """Every cell of scores, tables and curves by file, row and column, without those of times."""
    found: dict[tuple[str, int, str], str] = {}
    for path in files(results):
        with open(path, encoding="utf-8", newline="") as stream:
            for number, row in enumerate(csv.DictReader(stream)):
                for column, value in row.items():
                    if not str(column).startswith("seconds_"):
                        found[path.relative_to(results).as_posix(), number, str(column)] = str(value)
    return found


def files(results: Path) -> Iterator[Path]:
    yield from (
        results / "scores.csv",
        *sorted(results.glob("tables/*.csv")),
        *sorted(results.glob("runs/*/*/*/curve.csv")),
    )


def expected(results: Path) -> set[str]:
    """What the jobs of a finished tree have left."""
    kinds = ("runs/*/*/*/run.json", "samples/*/*/*/*/samples.json", "grades/*/*/*/*/grades.json", "scores.csv")
    return {path.relative_to(results).as_posix() for kind in kinds for path in results.glob(kind)}


def round_of_faults(world: World, until: float) -> None:
    """One whole run of the matrix from nothing; faults come every few seconds until it is done or time is over."""
    shutil.rmtree(world.results, ignore_errors=True)
    world.start()
    while True:
        assert world.runner is not None
        pause_seconds = world.draw.uniform(1, 12) if time.monotonic() < until else 3600
        with contextlib.suppress(subprocess.TimeoutExpired):
            if world.runner.wait(pause_seconds) == 0:
                return
            back_to_now(world)
            world.start()  # a job failed more often than it is retried: again, as a user would
            continue
        name = world.draw.choice(list(FAULTS))
        if FAULTS[name](world):
            world.injected[name] += 1
            with open(world.folder / "log", "a", encoding="utf-8") as log:
                log.write(f"soak: {time.strftime('%T')} {name}\n")


def tracebacks(folder: Path) -> int:
    """In the log of Snakemake, which repeats what failed jobs said, and in those of all jobs."""
    texts = [
        path.read_text(encoding="utf-8", errors="replace") for path in (folder / "log", *folder.glob("logs/**/*.log"))
    ]
    return sum("Traceback (most recent call last)" in text for text in texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.0, help="after which no fault is injected any more")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="two short runs instead of the quick matrix")
    given = parser.parse_args()
    words = (*SMALL, OVER_SMALL) if given.small else QUICK
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what it started ends with it
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as place:
        world = World(clone(Path(place) / "clone"), words, random.Random(given.seed))
        shutil.copy(OVER_SMALL, world.folder / OVER_SMALL)
        rounds, lost, differing, sofar = 0, 0, 0, "no faults"
        try:
            world.start(TARGET)
            assert world.runner is not None
            if world.runner.wait():
                sys.exit(f"error: the undisturbed run failed:\n{(world.folder / 'log').read_text()[-3000:]}")
            right, wanted = cells(world.results), expected(world.results)
            print(f"undisturbed: {len(wanted)} results, {time.monotonic() - began:.0f} s", flush=True)
            until = time.monotonic() + 60 * given.minutes
            while time.monotonic() < until:
                round_of_faults(world, until)
                rounds += 1
                lost += len(wanted - expected(world.results))
                got = cells(world.results)
                differing += sum(got.get(key) != right.get(key) for key in got.keys() | right.keys())
                sofar = f"{world.injected.total()} faults, {lost} jobs lost, {differing} cells differing"
                print(f"after round {rounds}: {sofar}", flush=True)
            broken = tracebacks(world.folder)
        finally:
            for pid in world.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    for name, count in world.injected.most_common():
        print(f"{count:6d}  {name}")
    print(f"{rounds} rounds of {len(wanted)} results and {len(right)} cells: {sofar}, {broken} logs with a traceback")
    print(f"{world.injected.total()} faults, seed {given.seed}, {time.monotonic() - began:.0f} s")
    return int(bool(lost or differing or broken))


if __name__ == "__main__":
    sys.exit(main())
