"""TRL against verl: the same method on the same tiny model, several seeds each; do the reward curves agree?

    python -m benchmarks.trainer_agreement --out FOLDER [--method tepo] [--seeds 1 2 3] [--rollouts 12]

Prompts and their order are equal for equal seeds; sampling noise is not, so curves differ as two seeds do. Printed, per
window of rollouts: mean reward of each trainer over seeds, their difference with the 95 % interval of a paired t-test,
and, as a ruler, how far one trainer's seeds lie apart. Finished runs in FOLDER are kept. Needs a finished `make demo`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import evals.stats.compare as over
from records import errors
from records.errors import MissingInputError, whole
from records.files import read_growing_csv, write_json
from records.layout import Results, Run
from records.provenance import ROOT

DEMO = Results(ROOT / "results/quick").run(Run("tiny_qwen2", "tepo", 1)) / "run.json"
TRAINERS = ("trl", "verl")
WINDOWS = 4
FIGURES = ("reward", "entropy", "response_tokens", "mask_fraction")


def specification(method: str, trainer: str, seed: int, rollouts: int) -> dict[str, Any]:
    """The demo's run with another method, trainer, seed and length."""
    if not DEMO.is_file():
        raise MissingInputError(f"{DEMO}: is missing: run make demo first")
    spec: dict[str, Any] = json.loads(DEMO.read_text(encoding="utf-8"))["spec"]
    training = spec["training"] | {"rollouts": rollouts}
    return spec | {
        "method": method,
        "trainer": trainer,
        "seed": seed,
        "checkpoints": [rollouts],
        "training": training,
        "base": str(ROOT / spec["base"]),
        "prompts": str(ROOT / spec["prompts"]),
    }


def train(spec: dict[str, Any], out: Path) -> list[dict[str, str]]:
    """The run's curve; trained in a process of its own, its output beside it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    line = [sys.executable, "-m", "methods.train", "--spec", json.dumps(spec), "--out", str(out)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with open(f"{out}.log", "w", encoding="utf-8") as log:
        subprocess.run(line, cwd=ROOT, env=variables, stdout=log, stderr=log, check=True)
    return read_growing_csv(out / "curve.csv")


def windows(curve: list[dict[str, str]], figure: str, rollouts: int) -> list[float]:
    """Mean of a column over each quarter of the run's rollouts; rows without a value are left out."""
    parts: list[list[float]] = [[] for _ in range(WINDOWS)]
    for row in curve:
        if row[figure]:
            parts[(int(row["rollout"]) - 1) * WINDOWS // rollouts].append(float(row[figure]))
    return [fmean(part) for part in parts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--method", default="tepo")
    parser.add_argument("--seeds", type=whole(0), nargs="+", default=[1, 2, 3])
    parser.add_argument("--rollouts", type=whole(1), default=12)
    args = parser.parse_args()
    curves = {
        (trainer, seed): train(
            specification(args.method, trainer, seed, args.rollouts), args.out.resolve() / trainer / f"seed{seed}"
        )
        for seed in args.seeds
        for trainer in TRAINERS
    }
    print(f"{args.method}, {len(args.seeds)} seeds, {args.rollouts} rollouts; verl - trl with its 95 % interval\n")
    print("| figure | rollouts | trl | verl | difference | interval | spread of trl's seeds |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for figure in FIGURES:
        parts = {run: windows(curve, figure, args.rollouts) for run, curve in curves.items()}
        for window in range(WINDOWS):
            ends = [args.rollouts * w // WINDOWS for w in (window, window + 1)]
            trl, verl = ({seed: parts[trainer, seed][window] for seed in args.seeds} for trainer in TRAINERS)
            difference = over.compare_seeds(verl, trl, bounds=(float("-inf"), float("inf")))
            spread = stdev(trl.values()) if len(trl) > 1 else float("nan")
            interval = "-" if difference.low is None else f"{difference.low:+.3f} to {difference.high:+.3f}"
            means = fmean(trl.values()), fmean(verl.values())
            print(
                f"| {figure} | {ends[0] + 1}-{ends[1]} | {means[0]:.3f} | {means[1]:.3f} | {means[1] - means[0]:+.3f} "
                f"| {interval} | {spread:.3f} |"
            )
            rows.append({"figure": figure, "from": ends[0] + 1, "to": ends[1], "trl": trl, "verl": verl})
    write_json(args.out / "agreement.json", {"method": args.method, "rollouts": args.rollouts, "rows": rows})


if __name__ == "__main__":
    errors.run(main)
