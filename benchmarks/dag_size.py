"""How long a dry run and the plan of a large matrix take: `python -m benchmarks.dag_size [--seeds 12]`.

34 pairs of method and model x 12 seeds: 408 runs x 7 benchmarks. Prints wall and CPU seconds and peak memory of each.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from records.files import write_text

ROOT = Path(__file__).resolve().parents[1]


def configuration(seeds: int) -> str:
    """Laid over config/paper.yaml: every pair of its matrix with so many seeds."""
    from records.files import read_yaml

    blocks = read_yaml(ROOT / "config" / "paper.yaml")["matrix"]
    lines = [
        f"  - {{models: {block['models']}, methods: {block['methods']}, seeds: {list(range(1, seeds + 1))},"
        f" steps: {block['steps']}}}"
        for block in blocks
    ]
    return "\n".join(["scale: large", "title: Large", "note: To measure planning.", "matrix:", *lines, ""])


def measure(words: list[str]) -> tuple[float, float, float, str]:
    """Wall and CPU seconds, peak memory in MB, and what was printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=300, check=False
    )
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, after.ru_maxrss / 1024, done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=12)
    seeds = parser.parse_args().seeds
    print(f"{'':<34} {'wall s':>7} {'CPU s':>7} {'peak MB':>8}  jobs or runs")
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.yaml"
        write_text(large, configuration(seeds))
        files = ["config/paper.yaml", str(large)]
        for name, chosen in (("paper", files[:1]), (f"{seeds} seeds of it", files)):
            for what, words in (("dry run", ["-n", "-q", "rules"]), ("plan", ["plan", "-q"])):
                wall, cpu, peak, text = measure(["snakemake", *words, "--configfile", *chosen])
                mark = "total" if what == "dry run" else "unique runs"
                line = next((line for line in text.splitlines() if mark in line), text[-200:])
                print(f"{name + ', ' + what:<34} {wall:>7.1f} {cpu:>7.1f} {peak:>8.0f}  {' '.join(line.split())}")


if __name__ == "__main__":
    main()
