"""Train one run: `python -m methods.train --spec JSON_OR_FILE --out RUN_DIR`.

After a kill at any moment, the same command resumes and produces the same curve and weights, on a CPU bit for bit (on
a GPU nobody has measured it). Exit codes:
0 finished (now or before), 2 invalid input, 75 run again to continue (stopped by SIGTERM or SIGUSR1 after saving, or
another process was still training this run after `--wait` seconds).
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

from core import errors, worker
from core.errors import BusyError, MissingInputError, NoSpaceError, Parser, real

STOPPED = 75  # sysexits' EX_TEMPFAIL: try again
FULL = 64 * 2**20  # bytes: a failure with less free space is reported as a full disk


class StopRequest:
    """Stop flag set by a signal handler and polled by the trainer between updates.

    A handler that raised an exception would interrupt an update halfway.
    """

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._set)

    def _set(self, number: int, _frame: object) -> None:
        if self.signal is None:  # keep the first: near a time limit SIGTERM soon follows SIGUSR1
            self.signal = number


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser()
    parser.add_argument(
        "--spec", required=True, help="run specification: JSON, or a file holding it (docs/architecture.md)"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder of the run")
    parser.add_argument(
        "--wait",
        type=real(least=0, most=1e9),
        default=0.0,
        help="seconds to wait while another process trains this run (default 0)",
    )
    parser.add_argument(
        "--force", action="store_true", help="train over a finished run of another specification in this folder"
    )
    parser.add_argument("--plan", action="store_true", help="check everything, print what would be done, and stop")
    return parser.parse_args(argv)


def execute(
    text: str, out: Path, stop: StopRequest, wait: float = 0.0, *, plan: bool = False, force: bool = False
) -> int:
    """Train the run that `text` (JSON or a path) specifies into `out`; return the exit code."""
    from core.files import locked
    from methods import adapters, catalog
    from methods.adapters.reward import Reward
    from methods.training import rollouts
    from methods.training.run_folder import RunFolder
    from methods.training.spec import read

    spec = read(text)
    run = RunFolder(out, spec)
    # before the adapter is loaded: a finished run must not require its trainer to be installed
    if not plan and run.finished(force):
        return _already(out)
    method = catalog.parse(spec.method)
    adapter = adapters.adapter(spec.trainer)
    adapter.preflight(spec)
    if plan:
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise MissingInputError(f"environment: transformers: {error}; see docs/scale.md") from error
        Reward(spec.rewards, spec.reward_weights)
        if spec.placebo is not None:
            adapters.resolved(spec.placebo, "placebo")
        prompts = [row["prompt"] for row in rollouts.prompts(spec)]
        rollouts.check_readable(spec, prompts, AutoTokenizer.from_pretrained(spec.base))
        sizes = f"{spec.training.rollouts} rollouts of {spec.training.prompts_per_rollout} prompts"
        print(f"{out}: {spec.trainer} would train {method.key} for {sizes}; settings, model and prompts are checked")
        return 0
    with locked(run.state / "lock", f"{out}: another process holds this run", wait):
        if run.finished(force):  # again: the process that held the lock may have finished it
            return _already(out)
        try:
            outcome = adapter.train(spec, run, stop)
        except Exception as error:
            # A full disk causes many different errors (torch reports an unexpected position), so the free space is
            # measured instead.
            free = shutil.disk_usage(out).free
            if free > FULL:
                raise
            raise NoSpaceError(
                f"{out}: its disk is full ({free / 2**20:.1f} MiB free): {type(error).__name__}: {error}; make room "
                "and run the same command to go on"
            ) from error
        if not outcome.finished:
            name = signal.Signals(stop.signal).name if stop.signal else "a stop request"
            line = f"{out}: stopped by {name} at update {outcome.updates}; run the same command to go on"
            print(line, file=sys.stderr)
            return STOPPED
        entry = {name: getattr(method, name) for name in ("key", "title", "source", "scope")}
        entry |= {"params": dict(method.params), "readings": dict(method.readings), "needs": sorted(method.needs)}
        if idle := run.finish(entry, outcome.updates, outcome.collapsed_at, outcome.unanswered):
            print(f"{out}: {idle}", file=sys.stderr)
        if (at := outcome.collapsed_at) is not None:
            later = ", ".join(f"step{step}" for step in spec.checkpoints if step > at)
            tail = f"; {later}: weights of rollout {at}" if later else ""
            print(
                f"{out}: collapsed at rollout {at} of {spec.training.rollouts}: mean rewards of the last "
                f"{rollouts.COLLAPSE_ROLLOUTS} nearly {run.extremes[0]:g}, the lowest seen; training ended{tail}",
                file=sys.stderr,
            )
    return 0


def _already(out: Path) -> int:
    print(f"{out}: finished already, outputs verified")
    return 0


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    if worker.VARIABLE in os.environ:
        from methods import adapters
        from methods.training.spec import read

        if libraries := getattr(adapters.adapter(read(args.spec).trainer), "LIBRARIES", None):
            worker.hand_over("methods.train", libraries)
    stop = StopRequest()
    stop.install()
    try:
        return execute(args.spec, args.out, stop, args.wait, plan=args.plan, force=args.force)
    except BusyError as error:
        print(f"error: {error}", file=sys.stderr)
        return STOPPED


if __name__ == "__main__":
    # The tokenizers library warns and disables its threads when a process that used them is forked.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    errors.run(main)
