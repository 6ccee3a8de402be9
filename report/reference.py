"""`python -m report.reference --results results/embedded --out results/reference/embedded`: a result small enough to
commit, to be viewed without running anything.

Kept in one archive (`evals.tree`): plan, scores, tables, figures, claims, every run's record, its curve by rollout, a
sample of the responses, and the manifest. Not kept: checkpoints, other samples and grades, print formats. Next to it,
for the web view: README, Markdown tables, PNG figures.
`report.show`, `report.page` and `report.compare` read it like any results tree.
"""

import io
import os
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

from core import errors
from core.errors import ConfigError, CorruptInputError, Parser
from core.files import json_text, to_csv, write_all
from core.provenance import ROOT, sha256_bytes
from evals.learning_curves import read_curve
from evals.tree import ARCHIVE, MANIFEST, Tree, open_tree, read_manifest
from report import manifest, page, responses, verify
from report.markdown import HERE, environment

LIMIT = 3_000_000  # bytes
KEPT = ("matrix.json", "scores.csv", "tables/*", "figures/*", "sweep/*", "claims.*", "paper/*")
PRINT = (".pdf", ".tex")  # `report.figures` and `report.tables` rebuild them
WEB = (".png", ".md")  # next to the archive
LEFT_OUT = ("forms for print", "grades", "inputs", "curves by update", "samples", "weights")


def make(tree: Tree, out: Path) -> dict[str, int]:
    """Copy a verified results tree to `out`, replacing an earlier reference there; return bytes by file.

    Raises ConfigError for an unfinished tree or uncommitted code, above the size limit or if `out` has other files;
    CorruptInputError for a tree that differs from its manifest and for a file that contains a local path.
    """
    if tree.kept is not None:
        raise ConfigError(f"{tree.kept}: is a kept tree already: name a results tree")
    source = read_manifest(tree.root)
    if broken := [*verify.problems(tree), *verify.warnings(tree)]:
        raise CorruptInputError(f"{tree.root}: {broken[0]} ({len(broken)} lines; python -m report.verify prints them)")
    doubts = [f"{len(names)} {what} missing, first {names[0]}" for what, names in source["missing"].items() if names]
    if source["dirty"] is not False:
        unknown = "it is unknown whether its code was committed"
        doubts.insert(0, "made with uncommitted changes" if source["dirty"] else unknown)
    if doubts:
        raise ConfigError(f"{tree.root}: {'; '.join(doubts)}")
    _refuse_other_files(out)
    content = _content(tree, source)
    web = [name for name in content if Path(name).suffix in WEB]
    # The folder of the problems that the responses answer, if it still exists.
    keys = {f"{benchmark['key']}.jsonl" for benchmark in tree.benchmarks}
    problems = [manifest.located(tree, name) for name in source["inputs"] if Path(name).name in keys]
    data = next((path.parent for path in problems if path.is_file()), None)
    facts = {key: source[key] for key in ("scale", "commits", "dirty", "missing", "weights", "inputs")}
    for size, sampled in responses.keep(tree, data):  # largest first
        content[tree.layout.responses.name] = sampled
        files = {name: sha256_bytes(data) for name, data in content.items()}
        listed = json_text({**facts, "left_out": list(LEFT_OUT), "files": files}).encode()
        kept = {name: content[name] for name in web} | {"README.md": _readme(tree, out, size, web).encode()}
        kept[ARCHIVE] = _packed({MANIFEST: listed} | {n: content[n] for n in content if not n.endswith(".png")})
        sizes = {name: len(data) for name, data in kept.items()}
        if sum(sizes.values()) <= LIMIT:
            break
    else:
        largest = ", ".join(f"{name} {sizes[name]:,}" for name in sorted(sizes, key=lambda name: -sizes[name])[:4])
        raise ConfigError(f"{tree.root}: {sum(sizes.values()):,} bytes would be kept, {LIMIT:,} may be; {largest}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        write_all({Path(scratch, "ready", name): data for name, data in kept.items()})
        if out.exists():
            shutil.rmtree(out)
        os.replace(Path(scratch, "ready"), out)
    return sizes


def _content(tree: Tree, source: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the kept files without the responses, by name. Raises CorruptInputError for a file that contains a path of
    this machine."""
    kept = [name for name in source["files"] if any(fnmatchcase(name, pattern) for pattern in KEPT)]
    content = {name: (tree.root / name).read_bytes() for name in kept if Path(name).suffix not in PRINT}
    for run in (run for run in tree.finished if run in tree.runs):
        folder = f"runs/{run.path.as_posix()}"
        content[f"{folder}/run.json"] = (tree.root / folder / "run.json").read_bytes()
        rows = read_curve(tree.root / folder / "curve.csv").by_rollout()
        content[f"{folder}/curve.csv"] = to_csv(list(rows[0]), rows).encode()
    places = [ROOT, tree.root.resolve().parent.parent, Path.home()]
    for name, place in product(sorted(content, key=Path), places):
        if not name.endswith(".png") and len(place.parts) > 1 and f"{place}/".encode() in content[name]:
            raise CorruptInputError(f"{name}: contains a path of this machine ({place}/)")
    return {name: content[name] for name in sorted(content, key=Path)}


def _packed(content: Mapping[str, bytes]) -> bytes:
    """Return files as an archive; equal files give an equal archive."""
    packed = io.BytesIO()
    # Files of one kind are adjacent: they are similar and compress to a third.
    ordered = sorted(content, key=lambda name: (name.startswith("runs/"), name.rpartition("/")[2], name))
    with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as tar:
        for name in ordered:
            entry = tarfile.TarInfo(name)
            entry.size = len(content[name])
            tar.addfile(entry, io.BytesIO(content[name]))
    return packed.getvalue()


def _refuse_other_files(out: Path) -> None:
    """Raise ConfigError unless `out` is absent, empty, or an earlier reference without other files."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ConfigError(f"{out}: is not a folder; remove it or name another one")
    own = {ARCHIVE, "README.md"}
    own |= set(read_manifest(Tree(out).root)["files"]) if (out / ARCHIVE).is_file() else set()
    names = [p.relative_to(out).as_posix() for p in sorted(out.rglob("*")) if p.is_symlink() or not p.is_dir()]
    others = [name for name in names if name not in own or ARCHIVE not in names]
    if others:
        raise ConfigError(f"{out}: holds files that are not a reference's, first {others[0]}; name another folder")


def _readme(tree: Tree, out: Path, size: tuple[int, int], web: Sequence[str]) -> str:
    inside = out.resolve().is_relative_to(ROOT)
    where = out.resolve().relative_to(ROOT).as_posix() if inside else f"results/reference/{out.name}"
    return (
        environment(HERE)
        .get_template("reference.md.j2")
        .render(
            scale=tree.scale,
            archive=ARCHIVE,
            facts=page.facts(tree),
            evaluated=len(tree.checkpoints),
            left_out=LEFT_OUT,
            size=size,
            where=shlex.quote(where),
            own=shlex.quote(f"results/{tree.scale}"),
            pages=[name for name in web if name.endswith(".md")],
            pictures=[name for name in web if name.endswith(".png")],
        )
    )


def main() -> None:
    parser = Parser(description="Copy what a visitor needs of a finished results tree.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>, with its manifest")
    parser.add_argument("--out", required=True, type=Path, help="such as results/reference/<scale>")
    args = parser.parse_args()
    sizes = make(open_tree(args.results), args.out)
    print(f"{sum(sizes.values()):,} bytes in {args.out}; left out: {', '.join(LEFT_OUT)}")


if __name__ == "__main__":
    errors.run(main)
