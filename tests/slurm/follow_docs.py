"""Type the commands of docs/cluster.md, from an empty folder, on a real Slurm.

A command is a line of a `console` block that starts with `$ `. All are typed into one shell, so that `cd` and `source`
last. Two shortcuts: `make install` finds this interpreter's environment already there, and the base model of the quick
run is taken from the cache if it is in it.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.slurm.cluster import Cluster
from tests.slurm.conftest import made_bases
from tests.workflow.conftest import ROOT

PAGE = ROOT / "docs" / "cluster.md"


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
    for command in commands(PAGE):
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
