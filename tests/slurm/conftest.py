"""One real Slurm for all tests here, a copy of the repository with a small experiment, and the page typed as it is."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.recipe import base_name, name_of_clean, recipe
from tests.slurm.cluster import Cluster, cluster, missing
from tests.workflow.conftest import ROOT, copy_of, run_snakemake

REQUIRED = "TEPO_BENCH_REQUIRE_SLURM"  # set where these tests must run, as .ci/run does
SMALL = ("--configfile", "config/quick.yaml", "tests/slurm/small.yaml")
# No conda here: jobs run in this interpreter's environment, as they do where the environment is loaded by hand.
PROFILE = ("--profile", "slurm", "--sdm", "env-modules", "--slurm-init-seconds-before-status-checks", "5")


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """A running cluster, or a skip that says why there is none."""
    reason = missing()
    if reason:
        assert not os.environ.get(REQUIRED), f"{REQUIRED} is set: {reason}"
        pytest.skip(f"no Slurm here: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: sockets lie in it
    try:
        with cluster(folder) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def made_bases() -> list[str]:
    """The quick base model and its clean model, if `make demo` has made them here."""
    clean = name_of_clean(recipe("tiny_qwen2", "quick", 1).start)
    folders = [f"results/cache/models/{name}" for name in (clean, base_name("tiny_qwen2", "quick", 1))]
    return folders if (ROOT / folders[1] / "base.json").exists() else []


def clone(target: Path) -> Path:
    """The repository with the small configuration, and `made_bases`."""
    return copy_of(target, "slurm", "tests/slurm/small.yaml", *made_bases())


def snakemake(slurm: Cluster, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`snakemake WORDS` typed in `folder` by a user of the cluster."""
    return run_snakemake(folder, *words, environment=slurm.environment, timeout=1200)


# The commands of docs/scale.md, typed from an empty folder. A command is a line of a `console` block that starts with
# `$ `. All are typed into one shell, so that `cd` and `source` last. Two shortcuts: `make install` finds this
# interpreter's environment already there, and the base model of the quick run is taken from the cache if it is in it.

PAGE = ROOT / "docs" / "scale.md"


def commands(page: Path, heading: str = "") -> list[str]:
    """The lines a reader types; with a heading, those of its section."""
    text = page.read_text(encoding="utf-8")
    if heading:
        (text,) = (part for part in re.split(r"^## ", text, flags=re.MULTILINE) if part.startswith(f"{heading}\n"))
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def shortcuts() -> list[str]:
    """Typed after `cd tepo-bench`."""
    lines = [f"ln -s {shlex.quote(sys.prefix)} .venv", "touch --date 2000-01-01 pyproject.toml requirements/*.txt"]
    return lines + [f"mkdir -p results/cache/models && cp -a {ROOT / base} {base}" for base in made_bases()]


def follow(slurm: Cluster, folder: Path) -> str:
    """Type the page in `folder`, which is also the home of whoever types. All that was said; raises at a failure."""
    lines = []
    for command in commands(PAGE, "On a cluster"):
        lines.append(f"printf '\\n$ %s\\n' {shlex.quote(command)}; {command}")
        if command == "cd tepo-bench":
            lines += [f"echo 'shortcut: {line}'; {line}" for line in shortcuts()]
    environment = slurm.environment | {"REPOSITORY": str(ROOT), "HOME": str(folder)}
    # the tests' own environment is not the reader's
    path = [part for part in environment["PATH"].split(":") if not part.startswith(sys.prefix)]
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)], cwd=folder, env=environment | {"PATH": ":".join(path)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{PAGE.name}: exit code {done.returncode} after\n{done.stdout[-8000:]}")
    return done.stdout
