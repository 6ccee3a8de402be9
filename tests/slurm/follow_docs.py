"""Type the commands of docs/cluster.md, from an empty folder, on a real Slurm: `python -m tests.slurm.follow_docs`.

A command is a line of a `console` block that starts with `$ `. All are typed into one shell, so that `cd` and `source`
last. Two shortcuts, both printed: `make install` finds this interpreter's environment already there, and the base model
of the quick run is taken from the cache if it is in it. `--whole` does without them.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.slurm.cluster import Cluster, cluster, missing
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


def follow(slurm: Cluster, folder: Path, page: Path = PAGE, *, whole: bool = False) -> str:
    """Type the page in `folder`, which is also the home of whoever types. All that was said; raises at a failure."""
    lines = []
    for command in commands(page):
        lines.append(f"printf '\\n$ %s\\n' {shlex.quote(command)}; {command}")
        if command == "cd tepo-bench" and not whole:
            lines += [f"echo 'shortcut: {line}'; {line}" for line in shortcuts()]
    environment = slurm.environment | {"REPOSITORY": str(ROOT), "HOME": str(folder)}
    # the tests' own environment is not the reader's
    path = [part for part in environment["PATH"].split(":") if not part.startswith(sys.prefix)]
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)], cwd=folder, env=environment | {"PATH": ":".join(path)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{page.name}: exit code {done.returncode} after\n{done.stdout[-8000:]}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", action="store_true", help="without shortcuts: installs and trains everything")
    whole = parser.parse_args().whole
    reason = missing()
    if reason:
        sys.exit(f"error: {reason}")
    with (
        tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as place,
        tempfile.TemporaryDirectory(prefix="home-") as home,
        cluster(Path(place)) as slurm,
    ):
        print(follow(slurm, Path(home), whole=whole))


if __name__ == "__main__":
    main()
