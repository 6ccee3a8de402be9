"""`curve.csv`: one row per update, numbers written so that they read back to the same bits."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path

from methods.diagnostics import NAMES
from records.errors import CorruptInputError
from records.write import atomic

Figure = float | int | None

COLUMNS = (
    "rollout", "update", "minibatch", "reward", "reward_kept", "groups_sampled", "groups_kept", "groups_discarded",
    "response_tokens", "truncated_fraction", "loss", "grad_norm", "learning_rate", *NAMES, "tokens", "sequences",
    "seconds_update", "seconds_rollout",
)  # fmt: skip


class Curve:
    """The curve of a run in progress: `rows` rows are kept from an earlier process, later ones are appended."""

    def __init__(self, path: Path, rows: int):
        self.path = path
        kept = read(path)[:rows] if rows else []
        if len(kept) < rows:
            raise CorruptInputError(
                f"{path}: holds {len(kept)} rows, the state to resume from says {rows}; remove {path.parent}"
            )
        self.rewards = {int(row["rollout"]): float(row["reward"]) for row in kept}
        with atomic(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept)
        self._stream = open(path, "a", encoding="utf-8", newline="")  # noqa: SIM115  open as long as the run
        self._writer = csv.DictWriter(self._stream, COLUMNS, lineterminator="\n")
        self.rows = rows

    def append(self, row: Mapping[str, Figure]) -> None:
        """Add one row; every column must be there, None is written as an empty cell."""
        if row.keys() != set(COLUMNS):
            raise CorruptInputError(f"{self.path}: a row with columns {sorted(row)}, expected {sorted(COLUMNS)}")
        self._writer.writerow({name: _spell(value) for name, value in row.items()})
        self._stream.flush()
        self.rows += 1
        self.rewards[int(row["rollout"] or 0)] = float(row["reward"] or 0.0)

    def sync(self) -> None:
        """Make sure that the rows so far survive a crash of the machine."""
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        if not self._stream.closed:
            self.sync()
            self._stream.close()


def read(path: Path) -> list[dict[str, str]]:
    """The complete rows of a curve as text, without a line cut off by a kill. Raises if the header is another one."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    lines = text[: text.rfind("\n") + 1].splitlines()
    rows = list(csv.DictReader(lines))
    if lines and tuple(lines[0].split(",")) != COLUMNS:
        raise CorruptInputError(f"{path}: columns {lines[0]!r} are not those of a curve")
    return rows


def _spell(value: Figure) -> str:
    return "" if value is None else repr(value)
