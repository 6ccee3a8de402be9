"""`python -m report.reference --results results/embedded --out results/reference/embedded`: a result small enough to
be committed, to look at without running anything.

Kept: plan, scores, tables, figures, claims, audit, every run's record, its curve by rollout, a sample of the responses,
and a manifest of how samples and grades came to be. Not kept: checkpoints, other samples and grades, forms for print.
What people read is plain CSV, Markdown and PNG, which a forge shows.
`report.show`, `report.tables`, `report.figure`, `report.build` and `report.compare` read it like any results tree.
"""

import gzip
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from core import errors, packed
from core.errors import ConfigError, CorruptInputError, Parser
from core.files import content, read_json, to_csv, write_json, write_text
from core.layout import Results
from core.provenance import ROOT
from core.results_tree import ORIGINS, Tree, open_tree, read_manifest
from evals.learning_curves import read_curve, rollout_rows
from report import manifest, verify
from report.site import samples

LIMIT = 3_000_000  # bytes
IN_ONE_FILE = ("run record", "curve")  # of all runs: `core.packed`
KEPT = ("plan", "scores", "table", "figure", "sweep", "claims", "audit")
COMPRESSED, COMPRESSED_FROM = (".csv", ".svg", ".html"), 40_000  # bytes; shorter ones are read in a browser
PRINT = (".pdf", ".tex")  # `report.figure` and `report.tables` make them again
IN_ORIGINS = ("runs", "checkpoints", "weights", "inputs")  # of the manifest; long, and few people read them
ROOM = 60_000  # bytes for README and manifest, which list what was chosen
PACKAGES = ("torch", "trl", "transformers", "lm-eval")  # named in the README; the manifest has them all


class Reference(NamedTuple):
    sizes: Mapping[str, int]  # bytes by kind
    left_out: tuple[str, ...]  # kinds that the source has


def make(tree: Tree, out: Path, *, partial: bool = False, data: Path | None = None) -> Reference:
    """Copy a verified results tree to `out`, replacing an earlier reference there.

    data: folder of the benchmarks' problems, for the golds of the sample of responses; None: where the manifest says.
    partial: take a tree although runs are missing or uncommitted code made them; its README then says so.
    Raises ConfigError for such a tree without `partial` and for files that do not fit, CorruptInputError for a tree
    that its manifest does not describe and for a file that names a folder of this machine.
    """
    source = read_manifest(tree.root)
    if source["left_out"]:
        raise ConfigError(f"{tree.root}: is a reference already, without {source['left_out'][0]}: name a results tree")
    broken = verify.problems(tree)
    if broken:
        raise CorruptInputError(
            f"{tree.root}: {broken[0]} ({len(broken)} problems; python -m report.verify lists them)"
        )
    doubts = [f"{len(names)} {what} missing, first {names[0]}" for what, names in source["missing"].items() if names]
    if source["dirty"] is not False:
        unknown = "it is unknown whether its code was committed"
        doubts.insert(0, "made with uncommitted changes" if source["dirty"] else unknown)
    if doubts and not partial:
        raise ConfigError(f"{tree.root}: {'; '.join(doubts)}; --partial takes it all the same and says so")
    _refuse_others_files(out)
    planned = {run.path.as_posix() for run in tree.runs}
    source["runs"] = {name: entry for name, entry in source["runs"].items() if name in planned}
    inside = out.resolve().is_relative_to(ROOT)
    where = out.resolve().relative_to(ROOT).as_posix() if inside else f"results/reference/{out.name}"
    machine = [folder for folder in (ROOT, tree.root.resolve().parent.parent, Path.home()) if len(folder.parts) > 1]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        folder = Path(scratch, out.name)
        kinds = {
            name: "forms for print" if Path(name).suffix in PRINT else entry["kind"]
            for name, entry in source["files"].items()
            if not name.startswith("runs/") or entry.get("of") in planned
        }
        for name, kind in kinds.items():
            if kind in (*KEPT, *IN_ONE_FILE):
                _refuse_machine_paths(tree.root / name, machine)
        _write_runs(tree, folder)
        origins = json.dumps(
            {key: source[key] for key in IN_ORIGINS}, sort_keys=True, separators=(",", ":"), allow_nan=False
        )
        (folder / f"{ORIGINS}.gz").write_bytes(gzip.compress(origins.encode("utf-8"), mtime=0))
        for name in (name for name, kind in kinds.items() if kind in KEPT):
            text = (tree.root / name).read_bytes()
            long = Path(name).suffix in COMPRESSED and len(text) >= COMPRESSED_FROM
            target = folder / (f"{name}.gz" if long else name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(gzip.compress(text, mtime=0) if long else text)  # equal content, equal files
        room = LIMIT - ROOM - sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        left = {*kinds.values(), "weights", "inputs", "curves by update"} - {*KEPT, *IN_ONE_FILE, "hashes"}
        kept = samples.keep(tree, data or _data(tree, source))
        size, responses = next((one for one in kept if len(one[1]) <= room), (None, b""))  # from the largest on
        if size is None:
            left.add("responses")
        else:
            Results(folder).responses.write_bytes(responses)
        left_out = sorted(left)
        write_text(folder / "README.md", _readme(source, where, doubts, left_out, size) + _contents(folder))
        listed = {key: value for key, value in source.items() if key not in IN_ORIGINS} | {"left_out": left_out}
        files = {
            path.relative_to(folder).as_posix(): manifest.file_entry(folder, path) for path in manifest.walk(folder)
        }
        write_json(folder / manifest.NAME, listed | {"files": files})
        sizes = Counter({"manifest": (folder / manifest.NAME).stat().st_size})
        for entry in files.values():
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
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ConfigError(f"{out}: is no folder; remove it or name another one")
    if not out.exists() or not any(out.iterdir()):
        return
    listed: set[str] = set()
    if (out / manifest.NAME).is_file():
        content = read_json(out / manifest.NAME, "manifest")
        if content["left_out"]:  # a results tree, which has all its weights, has a manifest too
            listed = {manifest.NAME, *content["files"]}
    for path in sorted(out.rglob("*")):
        if (path.is_symlink() or not path.is_dir()) and path.relative_to(out).as_posix() not in listed:
            first = path.relative_to(out)
            raise ConfigError(
                f"{out}: holds other things than a reference, first {first}; remove it or name another folder"
            )


def _write_runs(tree: Tree, folder: Path) -> None:
    """Records and curves by rollout of the planned runs, each in one file. A curve of other columns than most is kept
    as it is, compressed."""
    planned = [run for run in tree.runs if tree.record(run) is not None]
    (folder / "runs").mkdir(parents=True)
    packed.write_records(folder / "runs", {run.path.as_posix(): tree.record(run) for run in planned})
    rows = {run: rollout_rows(read_curve(tree.layout.run(run) / "curve.csv")) for run in planned}
    curves = {run.path.as_posix(): to_csv(list(some[0]), some).encode("utf-8") for run, some in rows.items()}
    for run in packed.write_curves(folder / "runs", curves):
        target = folder / "runs" / run / "curve.csv.gz"
        target.parent.mkdir(parents=True)
        target.write_bytes(gzip.compress(content(tree.root / "runs" / run / "curve.csv"), mtime=0))


def _data(tree: Tree, source: Mapping[str, Any]) -> Path | None:
    """The folder of the problems that the responses were drawn for, if it is still there."""
    keys = {f"{benchmark['key']}.jsonl" for benchmark in tree.benchmarks}
    found = [manifest.located(tree, name) for name in source.get("inputs", {}) if Path(name).name in keys]
    return next((path.parent for path in found if path.is_file()), None)


def _refuse_machine_paths(path: Path, folders: Sequence[Path]) -> None:
    """A committed file must not say where on somebody's disk it was made."""
    text = b"" if path.suffix == ".png" else path.read_bytes()
    for folder in folders:
        if f"{folder}/".encode() in text:
            raise CorruptInputError(f"{path}: names a folder of this machine ({folder}/)")


def _readme(
    source: Mapping[str, Any],
    where: str,
    doubts: Sequence[str],
    left_out: Sequence[str],
    size: tuple[int, int] | None,
) -> str:
    runs, environments = source["runs"].values(), source["environments"].values()
    times = sorted(entry["finished_at"] for entry in runs if entry["finished_at"])
    hours = sum(entry["cpu_seconds"] or 0 for entry in runs) / 3600
    machines = {f"{e.get('cpu') or 'unknown CPU'}, {e.get('cores') or 'unknown number of'} cores" for e in environments}
    packages = {f"{name} {(e.get('packages') or {}).get(name)}" for e in environments for name in PACKAGES}
    counts = {what: f"{len(source[what])} of {len(source[what]) + len(source['missing'][what])}" for what in
              ("runs", "checkpoints")}  # fmt: skip
    sample = "none: not even the smallest sample fits"
    if size is not None:
        sample = f"`responses.parquet`, the first {size[1]} to each of {size[0]} problems of each benchmark, of every "
        sample += "checkpoint that was evaluated; its page shows them"
    doubtful = f"**Not a complete run of committed code: {'; '.join(doubts)}.**\n\n" if doubts else ""
    return f"""# Reference result: {source["scale"]}

Written by `python -m report.reference`; `manifest.json` lists every file with its sha256.

{doubtful}- what: {counts["runs"]} planned training runs, {counts["checkpoints"]} planned checkpoints evaluated
- when: {f"{times[0]} to {times[-1]}" if times else "not recorded"}; {hours:.1f} CPU hours of training
- on: {"; ".join(sorted(machines)) or "not recorded"}; {", ".join(sorted(packages)) or "packages not recorded"}
- commit: {", ".join(source["commits"]) or "not recorded"}
- left out: {", ".join(left_out)}
- responses: {sample}
- runs: `runs/{packed.RECORDS}` holds every run.json, `runs/{packed.ROLLOUTS}` every curve by rollout
- where runs and checkpoints come from: `{ORIGINS}.gz`

Look at it (the second line writes its page into results/pages), compare your results with it, or check that nobody
edited it, from the repository root:

    python -m report.show table1 --results {where}
    python -m report.build --results {where}
    python -m report.compare {where} results/{source["scale"]}
    python -m report.verify --results {where}

What the files hold and what the comparison means: `docs/results.md`.
"""


def _contents(folder: Path) -> str:
    """What a forge shows of the files, as links and pictures."""
    pages, pictures = (sorted(path.relative_to(folder).as_posix() for path in folder.rglob(f"*{suffix}")) for suffix in
                       (".md", ".png"))  # fmt: skip
    links = [f"[{page.removesuffix('.md')}]({page})" for page in pages]
    return "\n".join(["", f"To read here: {', '.join(links)}.", "", *(f"![{path}]({path})" for path in pictures), ""])


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
    print(f"{sum(reference.sizes.values()):>10,}  bytes in {args.out}; left out: {', '.join(reference.left_out)}")


if __name__ == "__main__":
    errors.run(main)
