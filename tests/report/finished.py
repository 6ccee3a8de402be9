"""An invented results tree whose hashes hold from run.json to scores.csv, as after a real run."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core import digests
from core.files import read_csv, write_text
from core.layout import BASE, Checkpoint
from core.provenance import sha256_file
from evals.tree import Tree
from tests.report import synthetic

COMMIT = "0123456789abcdef0123456789abcdef01234567"


BASE_FOLDER, PROMPTS, DATA = (f"results/cache/{name}" for name in ("models/invented", "prompts/p.jsonl", "benchmarks"))


def write_inputs(checkout: Path) -> dict[str, str]:
    """A base model, prompts and benchmarks, as their makers leave them; what run.json says of them."""
    base = checkout / BASE_FOLDER
    (base / "clean").mkdir(parents=True, exist_ok=True)
    for name in ("model.safetensors", "clean/model.safetensors", "config.json", "tokenizer.json", "base.json"):
        (base / name).write_text(f"invented {name}")
    digests.write_folder(base)
    write_text(checkout / PROMPTS, "invented prompts")
    for benchmark in synthetic.BENCHMARKS:
        item = json.dumps({"problem": f"an invented item of {benchmark['key']}", "answer": "1"})
        write_text(checkout / DATA / f"{benchmark['key']}.jsonl", f"{item}\n")
    found = digests.of_folder(base)
    return {
        "base": digests.tree(found, "*.safetensors"),
        "base_files": digests.beside_weights(found),
        "prompts": sha256_file(checkout / PROMPTS),
    }


def finish(tree: Tree) -> Tree:
    """Give a synthetic tree inputs and checkpoints, and the records of its runs and samples true hashes."""
    inputs = write_inputs(tree.root.parent.parent)
    for run in tree.runs:
        folder = tree.layout.run(run)
        outputs = {"curve.csv": sha256_file(folder / "curve.csv")}
        for checkpoint in (c for c in tree.checkpoints if c.run == run):
            weights = tree.layout.weights(checkpoint)
            weights.mkdir(parents=True)
            (weights / "model.safetensors").write_text(f"invented weights of {checkpoint.path}")
            (weights / "config.json").write_text("{}")
            digests.write_folder(weights)
            outputs[f"checkpoints/{weights.name}"] = digests.tree(digests.of_folder(weights))
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        edit(
            folder / "run.json",
            outputs=outputs,
            finished_at="2026-01-02T03:04:05Z",
            spec=record["spec"] | {"base": BASE_FOLDER, "prompts": PROMPTS},
            inputs=record["inputs"] | inputs,
        )
        (folder / "state").mkdir()
        (folder / "state/curve.csv").write_text("")
    environment = json.loads((folder / "run.json").read_text())["environment"]
    for checkpoint in tree.checkpoints:
        drawn_from = {"model": BASE_FOLDER, "weights_sha256": inputs["base"], "files_sha256": inputs["base_files"]}
        if checkpoint.run.method != BASE:
            weights = tree.layout.weights(checkpoint)
            digest = digests.tree(digests.of_folder(weights), "*.safetensors")
            model = f"results/{tree.root.name}/{weights.relative_to(tree.root)}"
            drawn_from = {"model": model, "weights_sha256": digest, "files_sha256": None}
        edit(
            tree.layout.samples(checkpoint) / "samples.json",
            **drawn_from,
            benchmarks=_with_data(tree, checkpoint),
            environment=environment,
            engine={"backend": "hf", "device": "cpu"},
            seed=1234,
        )
    return Tree(tree.root)


def edit(path: Path, **changes: Any) -> None:
    """Overwrite top-level keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def rewrite(path: Path, change: Callable[[dict[str, str]], dict[str, str] | None]) -> None:
    """Change rows of a CSV file; None: the row goes."""
    rows = [changed for row in read_csv(path, "rows", []) if (changed := change(row)) is not None]
    synthetic.write_csv(path, rows)


def replace(path: Path, pattern: str, by: str | Callable[[re.Match[str]], str]) -> None:
    """Replace the first match in a text file; there must be one."""
    text, count = re.subn(pattern, by, path.read_text(encoding="utf-8"), count=1)
    assert count == 1, f"{path}: no {pattern}"
    path.write_text(text, encoding="utf-8")


def cut(path: Path) -> None:
    """Leave a file as a writer does that was stopped: the second half is not there."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2].rstrip(b"\n"))


def _with_data(tree: Tree, checkpoint: Checkpoint) -> dict[str, Any]:
    """The benchmarks of a samples.json, each with the file of its items."""
    path = tree.layout.samples(checkpoint) / "samples.json"
    entries = json.loads(path.read_text(encoding="utf-8"))["benchmarks"]
    for key, entry in entries.items():
        file = f"{DATA}/{key}.jsonl"
        entry["data"] = {"file": file, "sha256": sha256_file(tree.root.parent.parent / file)}
    return entries
