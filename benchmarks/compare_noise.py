"""False-alarm rates of `report.compare` on equal code: the table of docs/provenance.md, by simulation.

    python -m benchmarks.compare_noise

Two trees of invented figures from the same distributions, with other random numbers; two seeds each, nine figures.
Printed: the share of comparisons in which any method's figure moved, under a t interval with the spread pooled over all
methods, under the largest difference between seeds, and under the band that the report uses.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence

from records.errors import whole
from report.provenance import seed_noise
from report.provenance.seed_noise import Arm, Noise, Series

FIGURES, SEEDS = 9, (1, 2)
SIZES = ((23, 5), (23, 1), (8, 1))  # methods, models
SHAPES: dict[str, Callable[[random.Random, int], float]] = {
    "all alike": lambda draw, place: draw.gauss(0.8, 0.05),
    "spreads from 0.001 to 0.25": lambda draw, place: draw.gauss(0.6, (0.001, 0.01, 0.03, 0.1, 0.25)[place % 5]),
    "one in eight learns or does not": lambda draw, place: draw.gauss(
        0.9 if place % 8 else draw.choice((0.2, 0.9)), 0.01
    ),
}


def series(draw: random.Random, shape: str, *, methods: int, models: int, shift: float = 0.0) -> Series:
    """One figure of one tree; `shift` is taken off every value."""
    return {
        Arm(f"m{model}", f"k{place}", 8): {seed: SHAPES[shape](draw, place) - shift for seed in SEEDS}
        for model in range(models)
        for place in range(methods)
    }


def alarm_rates(noises: Sequence[Noise], shape: str, methods: int, models: int, repeats: int) -> list[float]:
    """Under each noise, the share of comparisons of equal code in which a method moved."""
    draw, alarms = random.Random(f"{shape} {methods} {models}"), [0] * len(noises)
    for _ in range(repeats):
        pairs = [[series(draw, shape, methods=methods, models=models) for _ in "ab"] for _ in range(FIGURES)]
        for place, noise in enumerate(noises):
            sets = [seed_noise.against(noise, "", a, b, list(a), relative=False) for a, b in pairs]
            alarms[place] += any(cell.moved for cell in seed_noise.corrected([c for s in sets for c in s.values()]))
    return [count / repeats for count in alarms]


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulate false alarms of report.compare.")
    parser.add_argument("--repeats", type=whole(1), default=100)
    args = parser.parse_args()
    noises = seed_noise.pooled_t, seed_noise.band(1.0), seed_noise.band(seed_noise.BAND)
    print(f"{'methods x models':<17} {'shape':<32} {'pooled t':>9} {'1 x':>6} {f'{seed_noise.BAND:g} x':>6}")
    for methods, models in SIZES:
        for shape in SHAPES:
            shares = alarm_rates(noises, shape, methods, models, args.repeats)
            print(
                f"{f'{methods} x {models}':<17} {shape:<32}" + "".join(f"{share:>8.0%}" for share in shares), flush=True
            )


if __name__ == "__main__":
    main()
