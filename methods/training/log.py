"""Copies of a run's curve in loggers: `TEPO_LOG=tensorboard,wandb python -m methods.train ...`.

    <run>/log/<logger>/      made anew by each process that trains the run: a resumed run has every step once

Nothing below log/ is hashed, listed in a manifest or part of a result. A logger that fails costs one line on stderr and
no run. A figure of a rollout has the rollout as its step (`rollout/reward`), a figure of an update the update
(`update/loss`), counted from 0 as in curve.csv. wandb and trackio have one step for both: the update.
"""

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.errors import ConfigError, unknown

AFFECTS_RESULTS = False  # it copies rows of curve.csv into files that nothing of ours reads

VARIABLE = "TEPO_LOG"  # names of loggers, with commas between them
FOLDER = "log"
INDEX = ("rollout", "update", "minibatch")
BY_ROLLOUT = (  # columns of curve.csv that are the same, or given once, on all rows of a rollout
    "reward", "reward_kept", "reward_given", "groups_sampled", "groups_kept", "groups_discarded", "response_tokens",
    "truncated_fraction", "seconds_rollout",
)  # fmt: skip

Write = Callable[[Mapping[str, float], int, int], object]  # figures, update, rollout


def tensorboard(folder: Path, name: str) -> tuple[Write, Callable[[], object]]:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder), flush_secs=1)

    def write(figures: Mapping[str, float], update: int, rollout: int) -> None:
        for column, value in figures.items():
            writer.add_scalar(column, value, rollout if column.startswith("rollout/") else update)
        writer.flush()

    return write, writer.close


def wandb(folder: Path, name: str) -> tuple[Write, Callable[[], object]]:
    """Offline: `wandb sync <run>/log/wandb/wandb/offline-*` uploads it."""
    import wandb

    quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True, save_code=False, disable_git=True)
    run: Any = wandb.init(project="tepo-bench", name=name, dir=str(folder), mode="offline", settings=quiet)
    return lambda figures, update, rollout: run.log({**figures, "rollout": rollout}, step=update), run.finish


def trackio(folder: Path, name: str) -> tuple[Write, Callable[[], object]]:
    os.environ["TRACKIO_DIR"] = str(folder)  # read when the package is imported
    import trackio

    run: Any = trackio.init(project="tepo-bench", name=name)
    return lambda figures, update, rollout: run.log({**figures, "rollout": rollout}, step=update), run.finish


LOGGERS = {"tensorboard": tensorboard, "wandb": wandb, "trackio": trackio}


def chosen(text: str, where: str = VARIABLE) -> tuple[str, ...]:
    """The loggers that `text` names; ConfigError for an unknown one, and for one whose package is not installed."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in LOGGERS:
            raise unknown(where, "log", name, LOGGERS)
        if find_spec(name) is None:
            raise ConfigError(f"{where}: log: {name} is not installed here: pip install {name}")
    return names


class Log:
    """Sends rows of a curve to loggers. folders: of each logger, made anew."""

    def __init__(self, folders: Mapping[str, Path], title: str):
        self.folders, self.title = dict(folders), title
        self.open: dict[str, tuple[Write, Callable[[], object]]] = {}
        self.rollout: int | None = None  # of the last row

    def add(self, row: Mapping[str, Any]) -> None:
        """Send one row: what the update has, and on a rollout's first row what the rollout has. No cell, no figure."""
        rollout, update = int(row["rollout"]), int(row["update"])
        known = {name: float(x) for name, x in row.items() if name not in INDEX and x not in (None, "")}
        figures = {f"update/{name}": x for name, x in known.items() if name not in BY_ROLLOUT}
        if rollout != self.rollout:
            figures |= {f"rollout/{name}": x for name, x in known.items() if name in BY_ROLLOUT}
        self.rollout = rollout
        self._each(lambda name: self._opened(name)[0](figures, update, rollout))

    def close(self) -> None:
        self._each(lambda name: self.open.pop(name)[1]() if name in self.open else None)

    def _opened(self, name: str) -> tuple[Write, Callable[[], object]]:
        if name not in self.open:
            shutil.rmtree(self.folders[name], ignore_errors=True)
            self.folders[name].mkdir(parents=True)
            self.open[name] = LOGGERS[name](self.folders[name], self.title)
        return self.open[name]

    def _each(self, act: Callable[[str], object]) -> None:
        for name in list(self.folders):
            try:
                act(name)
            except Exception as error:  # whatever a logger does, the run goes on without it
                folder = self.folders.pop(name)
                print(f"{folder}: {name} failed and is left out: {type(error).__name__}: {error}", file=sys.stderr)


def of_run(run: Path, names: Sequence[str]) -> Log | None:
    """The loggers of the run in this folder; its model, method and seed are the title."""
    folders = {name: run / FOLDER / name for name in names}
    return Log(folders, "/".join(run.resolve().parts[-3:])) if names else None
