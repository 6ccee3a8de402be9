"""Does the paper's path run on this GPU? `python -m tests.gpu.accept`, or `make gpu`: 20 minutes, no network.

Runs every check of `tests.gpu.checks` in a separate process and writes results/gpu/acceptance.json after each: figures,
limits, and which limits could not be applied. Without a GPU the same checks run at toy size on the CPU, as far as they
can. Exit code 0 if every limit that was applied holds, else 1.
"""

import importlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core import errors
from core.caches import engine_caches
from core.errors import ConfigError, MissingInputError, Parser, real, whole
from core.files import read_json, write_json
from core.provenance import ROOT, environment
from tests.gpu.checks import CHECKS, SPEED, Check, Figures, Place, holds, nvidia_smi

OUT = Path("results/gpu")
PATIENCE = 4.0  # times its minutes, a check is ended; on a CPU, whose speed nobody knows, an hour
HELD, FAILED, NOT_RUN = "passed", "failed", "not run"


def main() -> int:
    parser = Parser(prog="python -m tests.gpu.accept", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT, help=f"for acceptance.json (default: {OUT})")
    parser.add_argument("--checks", type=whole(0), nargs="+", help="these alone, and what they need")
    parser.add_argument(
        "--minutes", type=real(least=0, most=1e6), default=math.inf, help="leave out checks that would take longer"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    parser.add_argument(
        "--work", type=Path, help="where models and runs go, and stay (default: a folder that is removed)"
    )
    parser.add_argument("--model", type=Path, help="model folder to train whole runs with (default: random weights)")
    parser.add_argument("--in-process", type=whole(0), dest="one", help="for the command itself: run this check here")
    args = parser.parse_args()
    device, card = found_device(args.device)
    if (model := args.model and args.model.resolve()) and not (model / "config.json").is_file():
        raise MissingInputError(f"--model: {model}: config.json is missing: not a model folder")
    if args.one is not None:
        run_here(args.one, Place(args.work.resolve(), device, card, model))
        return 0
    chosen = select(args.checks)
    removed = tempfile.TemporaryDirectory(prefix="gpu-", ignore_cleanup_errors=True) if args.work is None else None
    record = {
        "schema": 1,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "card_bytes": card,
        "environment": environment(),
    }
    results = {c.number: {"number": c.number, "title": c.title, "state": NOT_RUN} for c in chosen}
    end = time.monotonic() + 60 * args.minutes
    with removed or nullcontext(args.work) as work:
        Path(work).mkdir(parents=True, exist_ok=True)
        for check in chosen:
            left = end - time.monotonic()
            if 60 * check.minutes <= left and all(results[need]["state"] != NOT_RUN for need in check.needs):
                results[check.number] = run(check, Place(Path(work).resolve(), device, card, model), left)
            states = {result["state"] for result in results.values()}
            passed = False if FAILED in states else None if NOT_RUN in states else True
            write_json(args.out / "acceptance.json", record | {"checks": list(results.values()), "passed": passed})
    print(args.out / "acceptance.json")
    return int(passed is False)


def found_device(wanted: str | None) -> tuple[str, float | None]:
    """cpu or cuda, and the card's bytes."""
    import torch

    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise ConfigError("--device: cuda: torch sees no GPU here; allowed: cpu")
    if wanted == "cpu" or not there:
        return "cpu", None
    said = nvidia_smi("memory.total")
    total = float(said[0]) * 2**20 if said else float(torch.cuda.get_device_properties(0).total_memory)
    return "cuda", total


def select(numbers: Sequence[int] | None) -> list[Check]:
    """In their order, with the checks that they need."""
    known = {check.number: check for check in CHECKS}
    if numbers is not None and (unknown := sorted(set(numbers) - set(known))):
        raise ConfigError(f"--checks: {unknown[0]}: there is no such check; allowed: {', '.join(map(str, known))}")
    wanted = set(known) if numbers is None else set(numbers)
    wanted |= {need for number in wanted for need in known[number].needs}
    return [check for check in CHECKS if check.number in wanted]


def run_here(number: int, place: Place) -> None:
    """The check's figures into a file that the starting process reads."""
    (check,) = (check for check in CHECKS if check.number == number)
    module, _, name = check.function.partition(":")
    write_json(place.folder / f"figures{number}.json", getattr(importlib.import_module(module), name)(place))


def run(check: Check, place: Place, seconds: float = math.inf) -> dict[str, Any]:
    """The check in a process of its own: memory, environment and a crash stay there. Prints a line and what failed."""
    began, why = time.monotonic(), None
    path, log = place.folder / f"figures{check.number}.json", place.folder / f"check{check.number}.log"
    path.unlink(missing_ok=True)
    words = [
        sys.executable, "-m", "tests.gpu.accept", "--in-process", str(check.number), "--work", str(place.folder),
        "--device", place.device, *(["--model", str(place.model)] if place.model else []),
    ]  # fmt: skip
    with open(log, "w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            words, cwd=ROOT, env=variables(place), stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(timeout=min(seconds, 60 * PATIENCE * check.minutes if place.cuda else 3600))
        except subprocess.TimeoutExpired:
            why = f"no end after {time.monotonic() - began:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # a session of our own making
                process.wait()
    figures: Figures = read_json(path) if path.is_file() else {}
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    if not figures and why is None:
        why = f"ended with {process.returncode}: {text.splitlines()[-1][:300] if text else 'no output'}"
    left_out = () if place.cuda else check.on_gpu
    left_out += (SPEED,) if place.model else ()
    states = {
        criterion: NOT_RUN if criterion.split()[0] in left_out else HELD if holds(criterion, figures) else FAILED
        for criterion in check.criteria
    }
    failed = {criterion: figures.get(criterion.split()[0]) for criterion, state in states.items() if state == FAILED}
    state = FAILED if why is not None or failed else HELD
    print(f"{check.number} {state:<8} {check.title}{f': {why}' if why else ''}", flush=True)
    for criterion, value in failed.items():
        print(f"    {criterion}: {value}", flush=True)
    return {
        "number": check.number, "title": check.title, "state": state, "why": why, "figures": figures,
        "criteria": states, "seconds": round(time.monotonic() - began, 1),
        "log": text[-6000:] if state == FAILED else None,  # all there is to find the cause with later
    }  # fmt: skip


def variables(place: Place) -> dict[str, str]:
    """The environment of a check: no network, one thread, everything written under its folder."""
    given = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "NVIDIA_TF32_OVERRIDE": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUTF8": "1",
        **engine_caches(place.folder / "cache"),  # outside of the home folder
    }
    if not place.cuda:
        given |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return {**os.environ, **given}


if __name__ == "__main__":
    errors.run(main)
