"""The how-to pages are run: their files are written into a copy of the repository, their commands are typed there.

In `docs/add-a-*.md` a fenced block with info string `<language> file=<path>` is a file, `<language> append=<path>` is
added to one, and lines of a `console` block that start with `$ ` are commands; one may copy a file to its place.
A page that cannot run is not wanted.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("add-a-*.md"))
BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
MARKDOWN = sorted(
    path for folder in (".", "docs", "docs/notebook", "config", "results") for path in ROOT.glob(f"{folder}/*.md")
)
ROOMS = "core|methods|tepo_bench|evals|models|paper|report|workflow|studies|tests"
COMMAND = re.compile(r"python -m ([a-z_]+(?:\.[a-z_]+)+)")
NAME = re.compile(rf"(?<![\w./-])((?:{ROOMS})(?:\.[A-Za-z_]\w*)+)(?![\w/])")
FILE = re.compile(rf"(?<![\w./-])((?:{ROOMS}|docs|config|profiles)/[\w./-]+\.(?:py|md|yaml|smk))(?!\w)")


def _copy(target: Path) -> Path:
    """The files git knows or would add: what a clone plus the current edits would hold."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def _run_page(page: Path, root: Path) -> list[str]:
    ran = []
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    for info, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if match := re.search(r"\b(file|append)=(\S+)", info):
            path = root / match[2]
            path.parent.mkdir(parents=True, exist_ok=True)
            old = path.read_text(encoding="utf-8") if match[1] == "append" else ""
            path.write_text(old + body, encoding="utf-8")
        elif info.strip() == "console":
            for line in body.splitlines():
                if line.startswith("$ "):
                    done = subprocess.run(
                        ["bash", "-euo", "pipefail", "-c", line[2:]],
                        cwd=root, env=environment, capture_output=True, text=True, timeout=1800, check=False,
                    )  # fmt: skip
                    assert done.returncode == 0, (
                        f"{page.name}: $ {line[2:]}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
                    )
                    ran.append(line[2:])
    return ran


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_runs_as_written(page: Path, tmp_path: Path) -> None:
    ran = _run_page(page, _copy(tmp_path))
    assert ran, f"{page.name}: no command in it was run"


def test_there_is_a_page_for_each_thing_a_user_adds() -> None:
    assert {page.stem for page in PAGES} >= {"add-a-method", "add-a-benchmark", "add-a-table", "add-a-model"}


def test_links_lead_somewhere() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: link to {target}"
        for page in MARKDOWN
        for target in LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))
        if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists()
    ]
    assert dead == []


def _module(name: str) -> Path | None:
    """The file of a module of this project."""
    path = ROOT / name.replace(".", "/")
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def _exists(name: str) -> bool:
    """Whether the dotted name is a module, or a name in one; read, not imported, since that would load torch."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = _module(".".join(parts[:length]))
        if module is not None:
            return (
                length == len(parts)
                or re.search(rf"\b{parts[length]}\b", module.read_text(encoding="utf-8")) is not None
            )
    return False


def test_what_a_page_names_is_there() -> None:
    """Commands, modules and files; a how-to page may also name what it makes. The notebook keeps names of its time."""
    kept = [page for page in MARKDOWN if page.name != "CHANGELOG.md" and page.parent.name != "notebook"]
    assert {str(page.relative_to(ROOT)): dead for page in kept if (dead := _dead_names(page))} == {}


def _dead_names(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    made = {
        Path(match[2]).stem for info, _ in BLOCK.findall(text) if (match := re.search(r"\b(file|append)=(\S+)", info))
    }
    made |= {Path(name).stem for name in re.findall(r"^\$ cp \S+ (\S+)$", text, re.MULTILINE)}
    text = LINK.sub("", text)  # links are tested above
    commands = [name for name in COMMAND.findall(text) if re.match(ROOMS, name)]
    names = [name for name in NAME.findall(text) if name.rpartition(".")[2] not in ("csv", "html", "md", "json")]
    dead = [f"python -m {name}" for name in commands if _module(name) is None]
    dead += [name for name in names if not _exists(name)]
    dead += [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    return [name for name in dead if not any(stem in name for stem in made)]
