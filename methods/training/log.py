"""Write the curves of finished runs to a logger: `python -m methods.training.log --results results/quick --to wandb`.

A run is skipped if the logger has its curve: written by this command, or by TRL while the run trained without a pause.
Transformers' own callbacks write, so that project, group, name and configuration are those of a run that trains.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from core import errors
from core.errors import MissingInputError, Parser
from core.files import read_growing_csv, read_json, read_text
from core.provenance import sha256_bytes
from methods.adapters import COLUMN, LOGGERS, logged, loggers, mark_logged, remove_events
from methods.training.spec import check


def write(run: Path, logger: str) -> bool:
    """Write a finished run's curve, unless the logger has it; return whether it was written."""
    curve, marked = read_text(run / "curve.csv", "learning curve"), logged(run, logger)
    if marked.is_file() and read_text(marked) == sha256_bytes(curve.encode()):
        return False

    from transformers import TrainerControl, TrainerState, TrainingArguments
    from transformers.integrations import get_reporting_integration_callbacks

    record = run / "run.json"
    spec = check(read_json(record, "run record")["spec"], str(record))
    loggers(run, spec, [logger])
    # Not beside what a run that was interrupted has logged, which may have some updates twice.
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(run / "log" / "curve")
    if logger == "tensorboard":
        remove_events(run / "log" / "curve")  # of an earlier training

    class Arguments(TrainingArguments):
        """Arguments without transformers' defaults, with which the run was not trained."""

        def to_dict(self) -> dict[str, Any]:
            return {"specification": dict(spec.document)}

    named = {"run_name": os.environ["WANDB_NAME"], "project": os.environ["WANDB_PROJECT"]}
    given = Arguments(output_dir=str(run / "state"), report_to="none", use_cpu=True, **named)
    state, control = TrainerState(), TrainerControl()
    (callback,) = (kind() for kind in get_reporting_integration_callbacks([logger]))
    callback.on_train_begin(given, state, control)
    for row in read_growing_csv(run / "curve.csv"):
        state.global_step = int(row["update"]) + 1
        callback.on_log(given, state, control, logs={COLUMN.format(name): float(x) for name, x in row.items() if x})
    callback.on_train_end(given, state, control)
    if logger == "wandb":  # its callback leaves the run open, and it reads its variables once
        import wandb

        wandb.finish()
        wandb.teardown()
    mark_logged(run, [logger], curve)
    return True


def main() -> int:
    parser = Parser()
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--to", required=True, choices=LOGGERS)
    args = parser.parse_args()
    runs = sorted(record.parent for record in args.results.glob("runs/*/*/*/run.json"))
    if not runs:
        raise MissingInputError(f"{args.results}: no finished run there")
    written, before = 0, dict(os.environ)
    for run in runs:
        written += write(run, args.to)
        os.environ.clear()  # the next run has another name
        os.environ.update(before)
    print(f"{args.results}: {args.to} has the curves of {len(runs)} runs, {written} of them written now")
    return 0


if __name__ == "__main__":
    errors.run(main)
