"""Whether a framework's gradient depends on how an update is split: over micro-batches, generations and ranks.

A runner gets the splits, takes one optimizer step of 16 responses of unequal length with each, through the framework's
own trainer, and returns the gradients. Here they are compared with that of the whole batch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.errors import BenchError
from core.files import write_json
from core.provenance import ROOT
from methods.adapters.verl.processes import free_port
from report.tables.render import markdown_table

KEPT = ROOT / "docs" / "notebook" / "microbatches.csv"
COLUMNS = ("framework", "version", "loss", "setting", "factor", "cosine")
RUNNERS = Path(__file__).parent / "runners"
WHOLE = "accumulation 1"
EXACT = 1e-6  # of the factor, and of the angle's cosine: float64 leaves 1e-12, TRL's clamps and epsilons less than this
SECONDS = 1800  # a guard


def _setting(accumulation: int = 1, steps_per_generation: int | None = None, ranks: int = 1) -> dict[str, int]:
    steps = accumulation if steps_per_generation is None else steps_per_generation
    return {"accumulation": accumulation, "steps_per_generation": steps, "ranks": ranks}


SETTINGS = {
    **{f"accumulation {k}": _setting(k) for k in (1, 2, 4, 8)},
    "steps_per_generation 4, accumulation 2": _setting(2, 4),
    "steps_per_generation 1, accumulation 2": _setting(2, 1),
    "ranks 2": _setting(ranks=2),
}


def gradients(
    framework: Mapping[str, Any], front: Path | None, work: Path, losses: Sequence[str] = ()
) -> dict[str, NDArray[np.float64]]:
    """`<loss>|<setting>` -> gradient by the parameters, (P,). front: a folder imported first; losses: only these.

    One process for each rank; ranks talk over gloo. Raises BenchError with the runner's last words.
    """
    work.mkdir(parents=True, exist_ok=True)
    asked, found = work / "settings.json", {}
    write_json(asked, {"settings": SETTINGS, "losses": list(losses)})
    folders = [*([str(front)] if front else []), *([str(ROOT)] if framework.get("ours") else [])]
    for ranks in (1, 2):
        out = work / f"{framework['name'].replace(' ', '-')}-{ranks}.npz"
        world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
        world |= {"PYTHONPATH": os.pathsep.join(folders), "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
        world |= {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, str(RUNNERS / f"{framework['runner']}.py"), str(asked), str(out)]
        with ExitStack() as running:
            processes = []
            for rank in range(ranks):
                file = running.enter_context(out.with_suffix(f".{rank}.log").open("w+", encoding="utf-8"))
                environment = {**os.environ, **world, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
                running.callback(process.kill)
                processes.append((process, file))
            end = time.monotonic() + SECONDS
            while time.monotonic() < end and None in (codes := [process.poll() for process, _ in processes]):
                if any(codes):
                    break
                time.sleep(0.1)
            # the rank that failed, before one that waits for it
            for _, file in sorted(
                (pair for pair in processes if pair[0].poll() != 0), key=lambda pair: not pair[0].poll()
            ):
                file.seek(0)
                raise BenchError(f"{framework['name']}: {' '.join(file.read().split())[-400:]}")
        with np.load(out) as stored:
            found.update({key: stored[key].astype(np.float64) for key in stored.files})
    return found


def lines(framework: str, found: Mapping[str, NDArray[np.float64]]) -> Iterator[dict[str, str]]:
    """One line for each loss and setting: the norm over the whole batch's, and the cosine between the two."""
    name, _, version = framework.rpartition(" ")
    for key in sorted(found, key=lambda key: key.rpartition("|")[0]):
        loss, _, setting = key.rpartition("|")
        gradient, whole = found[key], found[f"{loss}|{WHOLE}"]
        norms = float(np.linalg.norm(gradient)), float(np.linalg.norm(whole))
        if not min(norms) > 0:
            raise BenchError(f"{framework}: {key}: the gradient's norm is {norms[0]:g}, the whole batch's {norms[1]:g}")
        cells = norms[0] / norms[1], float(gradient @ whole) / (norms[0] * norms[1])
        yield dict(zip(COLUMNS, (name, version, loss, setting, *(f"{cell:.6f}" for cell in cells)), strict=True))


def departs(row: Mapping[str, str]) -> bool:
    """Whether the split changes the gradient by more than rounding."""
    return not (abs(float(row["factor"]) - 1) <= EXACT and float(row["cosine"]) >= 1 - EXACT)


def table(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """Markdown: a line for the losses of a version that have the same factors and cosines, a column for each split."""
    shown = list(SETTINGS)[1:]
    printed = []
    for (name, version), of_version in groupby(rows, lambda row: (row["framework"], row["version"])):
        cells: dict[str, dict[str, str]] = {}
        for row in of_version:
            text = f"{float(row['factor']):.3f} ({float(row['cosine']):.3f})" if departs(row) else "1"
            cells.setdefault(row["loss"], {})[row["setting"]] = text
        alike: dict[tuple[str, ...], list[str]] = {}
        for loss, by_setting in cells.items():
            alike.setdefault(tuple(by_setting.get(setting, "") for setting in shown), []).append(loss)
        printed += [[f"{name} {version}", "; ".join(losses), *texts] for texts, losses in alike.items()]
    return markdown_table(["framework", "loss", *shown], printed)
