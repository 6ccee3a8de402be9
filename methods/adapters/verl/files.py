"""The files of a run that verl is told of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Files:
    """What a run reads and writes outside its specification. `checkpoints`: folder of verl's `global_step_<N>`;
    `log`: file of verl's own metrics; `resume`: the `global_step_<N>` to go on from; `ray_temp`: a short path, because
    socket names in it are limited."""

    train_parquet: Path
    val_parquet: Path
    checkpoints: Path
    log: Path
    reward_module: Path
    resume: Path | None = None
    ray_temp: Path | None = None
