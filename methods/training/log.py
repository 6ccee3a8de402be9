"""A run's curve while it grows, for people who watch a logger: `TEPO_LOG=tensorboard python -m methods.train ...`.

    <run>/log/<logger>/      what the logger wrote; made anew by each process that trains the run

A thread reads state/curve.csv, as `report.show runs` does, and hands each new row to the loggers. So a resumed run has
every step once: its rows are read again from the first. The run itself knows nothing of it: nothing below log/ is
hashed, listed in a manifest or part of a result, and a logger that fails costs one line on stderr and no run.

In a logger a figure of a rollout has the rollout as its step, `rollout/reward`; a figure of an update has the update,
`update/loss`, counted from 0 as in curve.csv.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from records.errors import ConfigError, unknown
from records.files import read_growing_csv

DECIDES_NO_NUMBER = "it copies rows of curve.csv into files that nothing of ours reads"

VARIABLE = "TEPO_LOG"  # names of loggers, with commas between them
FOLDER = "log"
EVERY = 2.0  # seconds between two looks at the curve
INDEX = ("rollout", "update", "minibatch")
BY_ROLLOUT = (  # columns of curve.csv that are the same, or given once, on all rows of a rollout
    "reward", "reward_kept", "reward_given", "groups_sampled", "groups_kept", "groups_discarded", "response_tokens",
    "truncated_fraction", "seconds_rollout",
)  # fmt: skip

Row = Mapping[str, str]


class Logger(Protocol):
    """Takes the figures of one row of curve.csv; `rollout` is empty except on a rollout's first row."""

    def add(self, update: int, rollout: int, of_update: dict[str, float], of_rollout: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    def __init__(self, folder: Path, name: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder), flush_secs=1)

    def add(self, update: int, rollout: int, of_update: dict[str, float], of_rollout: dict[str, float]) -> None:
        for kind, step, figures in (("update", update, of_update), ("rollout", rollout, of_rollout)):
            for column, value in figures.items():
                self.writer.add_scalar(f"{kind}/{column}", value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class Wandb:
    """Offline: `wandb sync <run>/log/wandb/wandb/offline-*` uploads it."""

    def __init__(self, folder: Path, name: str) -> None:
        import wandb

        quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True, save_code=False, disable_git=True)
        self.run: Any = wandb.init(project="tepo-bench", name=name, dir=str(folder), mode="offline", settings=quiet)

    def add(self, update: int, rollout: int, of_update: dict[str, float], of_rollout: dict[str, float]) -> None:
        self.run.log(_together(rollout, of_update, of_rollout), step=update)

    def close(self) -> None:
        self.run.finish()


class Trackio:
    def __init__(self, folder: Path, name: str) -> None:
        os.environ["TRACKIO_DIR"] = str(folder)  # read when the package is imported
        import trackio

        self.run: Any = trackio.init(project="tepo-bench", name=name)

    def add(self, update: int, rollout: int, of_update: dict[str, float], of_rollout: dict[str, float]) -> None:
        self.run.log(_together(rollout, of_update, of_rollout), step=update)

    def close(self) -> None:
        self.run.finish()


LOGGERS: Mapping[str, Callable[[Path, str], Logger]] = {"tensorboard": TensorBoard, "wandb": Wandb, "trackio": Trackio}


def _together(rollout: int, of_update: Mapping[str, float], of_rollout: Mapping[str, float]) -> dict[str, float]:
    """For loggers with one step for everything: the rollout is a figure too, and may be chosen as the axis."""
    figures = {"rollout": float(rollout)}
    figures |= {f"update/{column}": value for column, value in of_update.items()}
    return figures | {f"rollout/{column}": value for column, value in of_rollout.items()}


def chosen(text: str, where: str = VARIABLE) -> tuple[str, ...]:
    """The loggers that `text` names; ConfigError for an unknown one, and for one whose package is not installed."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in LOGGERS:
            raise unknown(where, "log", name, LOGGERS)
        if find_spec(name) is None:
            raise ConfigError(f"{where}: log: {name} is not installed here: pip install {name}")
    return names


def figures(row: Row, *, first: bool) -> tuple[int, int, dict[str, float], dict[str, float]]:
    """What `Logger.add` takes. An empty cell is no figure."""
    known = {column: float(text) for column, text in row.items() if text and column not in INDEX}
    of_rollout = {column: known[column] for column in BY_ROLLOUT if column in known} if first else {}
    of_update = {column: value for column, value in known.items() if column not in BY_ROLLOUT}
    return int(row["update"]), int(row["rollout"]), of_update, of_rollout


class Copy:
    """The rows of one curve in one logger, brought up to date by `update`."""

    def __init__(self, logger: str, folder: Path, name: str) -> None:
        self.logger, self.folder, self.name = logger, folder, name
        self.rows: list[Row] = []
        self.open: Logger | None = None

    def update(self, rows: Sequence[Row]) -> None:
        if self.open is None or rows[: len(self.rows)] != self.rows:
            # Of an earlier process, or of rows that were cut off when the run went on from its last state.
            self.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            self.rows, self.open = [], LOGGERS[self.logger](self.folder, self.name)
        for row in rows[len(self.rows) :]:
            first = not self.rows or self.rows[-1]["rollout"] != row["rollout"]
            self.open.add(*figures(row, first=first))
            self.rows.append(row)

    def close(self) -> None:
        if self.open is not None:
            self.open.close()
        self.open = None


@contextmanager
def following(run: Path, names: Sequence[str]) -> Iterator[None]:
    """While the block trains the run in the folder `run`, its curve is copied into these loggers."""
    if not names:
        yield
        return
    title = "/".join(run.resolve().parts[-3:])  # model, method, seed
    copies = [Copy(name, run / FOLDER / name, title) for name in names]
    over = threading.Event()

    def each(act: Callable[[Copy], None]) -> None:
        for copy in list(copies):
            try:
                act(copy)
            except Exception as error:  # whatever a logger does, the run goes on without it
                copies.remove(copy)
                print(f"{run}: {copy.logger} failed and is left out: {type(error).__name__}: {error}", file=sys.stderr)

    def look() -> None:
        rows = read_growing_csv(run / "state" / "curve.csv")
        if rows:
            each(lambda copy: copy.update(rows))

    def follow() -> None:
        while not over.wait(EVERY):
            look()

    thread = threading.Thread(target=follow, name="log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look()  # rows since the last look
        each(Copy.close)
