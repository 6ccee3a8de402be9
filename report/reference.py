"""`python -m report.reference --results results/embedded --out results/reference/embedded`: a result small enough to
be committed, to look at without running anything.

Kept: plan, scores, tables, figures, claims, audit, every run's record and curve, a sample of the responses, and a
manifest that says how samples and grades came to be. Not kept: checkpoints, the other samples and grades.
`report.show`, `report.table`, `report.figure`, `report.build` and `report.compare` read it like any results tree.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from records import errors
from records.errors import ConfigError, CorruptInputError, Parser
from records.files import write_json, write_text
from records.provenance import ROOT
from records.results_tree import Tree, open_tree

LIMIT = 6_000_000  # bytes
ALWAYS = ("plan", "scores", "table", "figure", "figure data", "claims", "audit", "run record", "curve")
IF_IT_FITS = ("report", "picture")  # in this order; pictures are drawn again from the figures' data
COMPRESSED = ("curve", "figure data")  # most of the bytes; equal content gives equal files
PACKAGES = ("torch", "trl", "transformers", "lm-eval")  # named in the README; the manifest has them all


@dataclass(frozen=True)
class Reference:
    """What was written: bytes by kind, and the kinds that were left out although the source has them."""

    sizes: Mapping[str, int]
    left_out: tuple[str, ...]

    @property
    def total(self) -> int:
        return sum(self.sizes.values())


def make(tree: Tree, out: Path, *, partial: bool = False, data: Path | None = None) -> Reference:
    """Copy a verified results tree to `out`, replacing an earlier reference there.

    data: folder of the benchmarks' problems, for the golds of the sample of responses; None: where the manifest says.
    partial: take a tree although runs are missing or uncommitted code made them; its README then says so.
    Raises ConfigError for such a tree without `partial` and for files that do not fit, CorruptInputError for a tree
    that its manifest does not describe and for a file that names a folder of this machine.
    """
    from report import verify  # imports scipy: not for --help
    from report.provenance import manifest
    from report.site import samples

    source = manifest.read(tree.root)
    broken = verify.problems(tree)
    if broken:
        raise CorruptInputError(
            f"{tree.root}: {broken[0]} ({len(broken)} problems; python -m report.verify lists them)"
        )
    doubts = list(_doubts(source))
    if doubts and not partial:
        raise ConfigError(f"{tree.root}: {'; '.join(doubts)}; --partial takes it all the same and says so")
    _refuse_others_files(out)
    planned = {run.path.as_posix() for run in tree.runs}
    source["runs"] = {name: entry for name, entry in source["runs"].items() if name in planned}
    where = out.resolve().relative_to(ROOT).as_posix() if out.resolve().is_relative_to(ROOT) else out.name
    machine = [folder for folder in (ROOT, tree.root.resolve().parent.parent, Path.home()) if len(folder.parts) > 1]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        folder = Path(scratch, out.name)
        sampled = samples.keep(tree, folder, data or _data(tree, source))
        names, left_out = _chosen(tree.root, source["files"], planned, sampled)
        if "responses" in left_out:
            shutil.rmtree(folder / "responses")
        for name in names:
            _refuse_machine_paths(tree.root / name, machine)
            _copy(tree.root / name, folder / name, compress=_is_packed(name, _kind(name, source["files"])))
        write_text(folder / "README.md", _readme(source, where, doubts, left_out))
        content = {**source, "left_out": left_out, "files": {}}
        content["files"] = {
            path.relative_to(folder).as_posix(): manifest.file_entry(folder, path) for path in manifest.walk(folder)
        }
        write_json(folder / manifest.NAME, content)
        sizes = Counter({"manifest": (folder / manifest.NAME).stat().st_size})
        for entry in content["files"].values():
            sizes[entry["kind"]] += entry["bytes"]
        if sum(sizes.values()) > LIMIT:
            large = ", ".join(f"{kind} {size:,}" for kind, size in sizes.most_common(4))
            raise ConfigError(f"{tree.root}: {sum(sizes.values()):,} bytes would be kept, {LIMIT:,} may be; {large}")
        if out.exists():
            shutil.rmtree(out)
        os.replace(folder, out)
    return Reference(dict(sizes), tuple(left_out))


def _refuse_others_files(out: Path) -> None:
    """Raise ConfigError unless `out` is absent, empty, or an earlier reference with its own files alone."""
    from report.provenance import manifest

    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ConfigError(f"{out}: is no folder; remove it or name another one")
    if not out.exists() or not any(out.iterdir()):
        return
    listed: set[str] = set()
    if (out / manifest.NAME).is_file():
        content = manifest.read(out)
        if "left_out" in content:  # a results tree, which has all its weights, has a manifest too
            listed = {manifest.NAME, *content["files"]}
    for path in sorted(out.rglob("*")):
        if (path.is_symlink() or not path.is_dir()) and path.relative_to(out).as_posix() not in listed:
            first = path.relative_to(out)
            raise ConfigError(
                f"{out}: holds other things than a reference, first {first}; remove it or name another folder"
            )


def _is_packed(name: str, kind: str) -> bool:
    return kind in COMPRESSED and name.endswith(".csv")


def _packed(source: Path) -> bytes:
    return gzip.compress(source.read_bytes(), mtime=0)


def _copy(source: Path, target: Path, *, compress: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if compress:
        target.with_name(f"{target.name}.gz").write_bytes(_packed(source))
    else:
        shutil.copyfile(source, target)


def _doubts(source: Mapping[str, Any]) -> Iterator[str]:
    if source["dirty"] is not False:
        yield "made with uncommitted changes" if source["dirty"] else "it is unknown whether its code was committed"
    for what, names in source["missing"].items():
        if names:
            yield f"{len(names)} {what} missing, first {names[0]}"


def _kind(name: str, files: Mapping[str, Mapping[str, Any]]) -> str:
    """As in the manifest, but a figure's PNG, PDF and data stand apart from what is looked at, its SVG."""
    if files[name]["kind"] != "figure" or name.endswith((".svg", ".md")):
        return str(files[name]["kind"])
    return "picture" if name.endswith((".png", ".pdf")) else "figure data"


def _data(tree: Tree, source: Mapping[str, Any]) -> Path | None:
    """The folder of the problems that the responses were drawn for, if it is still there."""
    from report.provenance import manifest

    keys = {f"{benchmark['key']}.jsonl" for benchmark in tree.benchmarks}
    found = [manifest.located(tree, name) for name in source.get("inputs", {}) if Path(name).name in keys]
    return next((path.parent for path in found if path.is_file()), None)


def _chosen(
    root: Path, files: Mapping[str, Mapping[str, Any]], planned: Collection[str], sampled: int
) -> tuple[list[str], list[str]]:
    """Names of the files to copy, and the kinds that stay behind. Runs left over from another plan are not copied.

    sampled: bytes of the sample of responses, which stays behind when it does not fit.
    """
    kinds = {name: _kind(name, files) for name in files if not name.startswith("runs/") or files[name]["of"] in planned}

    def size(names: Iterable[str]) -> int:
        return sum(
            len(_packed(root / name)) if _is_packed(name, kinds[name]) else int(files[name]["bytes"]) for name in names
        )

    chosen = [name for name in kinds if kinds[name] in ALWAYS]
    reserve = 100_000 + 4_000 * sum(kind == "grades record" for kind in kinds.values())  # for README and manifest
    room = LIMIT - reserve - size(chosen)
    without = ["responses"] if sampled > room else []
    room -= 0 if without else sampled
    for kind in IF_IT_FITS:
        names = [name for name in kinds if kinds[name] == kind]
        if size(names) <= room:
            chosen += names
            room -= size(names)
    return sorted(chosen), sorted(
        {"weights", "inputs", *without, *(kinds[name] for name in kinds if name not in chosen)} - {"hashes"}
    )


def _refuse_machine_paths(path: Path, folders: Sequence[Path]) -> None:
    """A committed file must not say where on somebody's disk it was made."""
    content = b"" if path.suffix in (".png", ".pdf") else path.read_bytes()
    for folder in folders:
        if f"{folder}/".encode() in content:
            raise CorruptInputError(f"{path}: names a folder of this machine ({folder}/)")


def _readme(source: Mapping[str, Any], where: str, doubts: Sequence[str], left_out: Sequence[str]) -> str:
    runs, environments = source["runs"].values(), source["environments"].values()
    times = sorted(entry["finished_at"] for entry in runs if entry["finished_at"])
    hours = sum(entry["cpu_seconds"] or 0 for entry in runs) / 3600
    machines = {f"{e.get('cpu') or 'unknown CPU'}, {e.get('cores') or 'unknown number of'} cores" for e in environments}
    packages = {f"{name} {(e.get('packages') or {}).get(name)}" for e in environments for name in PACKAGES}
    counts = {what: f"{len(source[what])} of {len(source[what]) + len(source['missing'][what])}" for what in
              ("runs", "checkpoints")}  # fmt: skip
    doubtful = f"**Not a complete run of committed code: {'; '.join(doubts)}.**\n\n" if doubts else ""
    return f"""# Reference result: {source["scale"]}

Written by `python -m report.reference`; `manifest.json` lists every file with its sha256.

{doubtful}- what: {counts["runs"]} planned training runs, {counts["checkpoints"]} planned checkpoints evaluated
- when: {f"{times[0]} to {times[-1]}" if times else "not recorded"}; {hours:.1f} CPU hours of training
- on: {"; ".join(sorted(machines)) or "not recorded"}; {", ".join(sorted(packages)) or "packages not recorded"}
- commit: {", ".join(source["commits"]) or "not recorded"}
- left out: {", ".join(left_out)}
- responses: {"none" if "responses" in left_out else "a sample, `responses/`: see its page"}

Look at it (the second line writes the page), hold your own results against it, or check that nobody edited it, from
the repository root:

    python -m report.show table1 --results {where}
    python -m report.build --results {where}
    python -m report.compare {where} results/{source["scale"]}
    python -m report.verify --results {where}

What the files hold: `docs/results.md`. What the comparison means: `docs/provenance.md`.
"""


def main() -> None:
    parser = Parser(description="Copy what a visitor needs of a finished results tree.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>, with its manifest")
    parser.add_argument("--out", required=True, type=Path, help="such as results/reference/<scale>")
    parser.add_argument(
        "--data", type=Path, help="folder of the benchmarks' problems (default: as the manifest names it)"
    )
    parser.add_argument("--partial", action="store_true", help="also with runs missing or from uncommitted code")
    args = parser.parse_args()
    reference = make(open_tree(args.results), args.out, partial=args.partial, data=args.data)
    for kind, size in sorted(reference.sizes.items(), key=lambda item: -item[1]):
        print(f"{size:>10,}  {kind}")
    print(f"{reference.total:>10,}  bytes in {args.out}; left out: {', '.join(reference.left_out)}")


if __name__ == "__main__":
    errors.run(main)
