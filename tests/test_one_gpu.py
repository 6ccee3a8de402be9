"""config/one_gpu.yaml and docs/scale.md: planned, accepted, run on a CPU with all but the weights."""

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core.files import read_json
from methods import catalog
from methods.training import spec as specs
from models import registry
from tests.merged_config import load
from tests.models.test_prompts import parquet
from tests.workflow.conftest import copy_of
from workflow import cost
from workflow.plan import Plan

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/scale.md"
CARDS = {"24 GB": (), "48 GB or more": ("one_gpu_48gb.yaml",)}
CONFIGS = {
    card: load([ROOT / "config" / name for name in ("embedded.yaml", "one_gpu.yaml", *over)])
    for card, over in CARDS.items()
}
MODELS = {"q7": "qwen2.5_0.5b", "q14": "qwen2.5_1.5b"}  # who stands in which place of Table 1
with open(ROOT / "paper/tables/rows.csv", encoding="utf-8", newline="") as stream:
    TABLE1 = [row for row in csv.DictReader(stream) if row["row"].startswith("T1.") and row["kind"] == "run"]


def commands(page: Path, heading: str) -> list[str]:
    """The lines of a section that a reader types: those of `console` blocks that start with `$ `."""
    text = page.read_text(encoding="utf-8")
    (text,) = (part for part in re.split(r"^## ", text, flags=re.MULTILINE) if part.startswith(f"{heading}\n"))
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("card", CARDS)
def test_every_method_of_table_1_is_planned_and_accepted_and_the_page_states_memory_and_disk(
    card: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 10**12))
    asked = Plan(CONFIGS[card] | {"results": str(tmp_path)})
    models = MODELS if card != "24 GB" else {"q7": MODELS["q7"]}
    found = {(p.run.model, p.row) for p in asked.planned}
    assert found == {(models[row["model"]], row["method"]) for row in TABLE1 if row["model"] in models}
    assert (cost.problems(asked, 1), asked.trainer(asked.planned[0])) == ([], "trl")
    text = "\n".join(cost.lines(asked, 1))
    peaks = [max(map(float, re.findall(r"([\d.]+) \(", line))) for line in text.splitlines() if "GiB of a" in line]
    (row,) = re.findall(rf"^\| {card} \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    sizes = [*map(str, peaks), ""][:2]
    assert [cell.strip() for cell in row.split("|")][1:] == [
        *sizes,
        f"{sum(cost.disk(asked, 1).values()) / 1e9:.0f} GB",
    ]


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    """Each phase by the setting that decides it; copies and states by the parameter."""
    config, shape = CONFIGS["24 GB"] | {"results": str(tmp_path)}, registry.model(MODELS["q7"]).shape
    assert shape is not None
    for changes, phase in (
        ({"prompts_per_rollout": 64}, "sampling"),
        ({"minibatches": 1, "micro_batches": 1}, "update"),
    ):
        (said,) = cost.problems(Plan(config | {"training": config["training"] | changes}), 1)
        assert re.search(rf"GiB in the phase `{phase}`, and RTX4090-24GB has 23.5; raise training.micro_batches", said)
    asked = Plan(config)
    run = specs.check(asked.specification(asked.planned[0], "base", "prompts"))
    phases = cost.trl_memory(shape, run.training, catalog.parse("tepo"), 23.5)
    assert phases["optimiser step"] == pytest.approx(1 + 1.08 * 24 * shape.parameters / 2**30)


# --- The whole way on a CPU -------------------------------------------------------------------------------------------

# What follows from the lack of a GPU and of time; models, data, trainer, methods and rules are the page's.
SMALL = """
matrix:
  - models: [qwen2.5_0.5b]
    methods: [grpo, tepo]
    seeds: [1]
    steps: [2]
prompts: {count: 24}
training:
  rollouts: 2
  prompts_per_rollout: 4
  samples_per_prompt: 4
  minibatches: 2
  micro_batches: 1
  learning_rate: 1.0e-3
  max_completion_tokens: 12
  save_every: 1
  device: cpu
  precision: float32
evaluation:
  benchmarks: [syn_as3, syn_seq1]
  table_step: 2
"""


def model_folder(folder: Path) -> Path:
    """A model that has learnt nothing but to answer with a box, a digit of 0 to 2 and an end: a third of its answers
    are right."""
    import torch

    from tests.gpu.models import TOY, build, tokenizer

    reader = tokenizer(TOY.vocab_size)
    model = build(TOY, positions=2048, spread=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    draw = torch.Generator().manual_seed(0)
    asked = reader.encode("<|im_start|>assistant\n")
    for _ in range(60):
        answers = [[*reader.encode(rf"\boxed{{{int(n)}}}"), 0] for n in torch.randint(3, (16,), generator=draw)]
        before = torch.randint(3, 259, (16, 24), generator=draw)  # bytes of a question: the answer depends on none
        tail = torch.tensor([[*asked, *answer] for answer in answers])
        ids = torch.cat([before, tail], 1)
        labels = ids.clone()
        labels[:, : 24 + len(asked)] = -100
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(str(folder))
    reader.save_pretrained(str(folder))
    return folder


@pytest.mark.slow
def test_the_page_runs_to_the_tables_and_trains_what_it_states(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The page's commands typed into one shell, in a copy of the repository."""
    folder = tmp_path_factory.mktemp("one gpu")
    clone = copy_of(folder / "clone", "README.md", "tests")
    (clone / "config/small.yaml").write_text(SMALL, encoding="utf-8")
    (folder / "downloads").mkdir()
    model_folder(folder / "downloads" / "Qwen2.5-0.5B")
    problems = [
        {"problem": f"What is ${n}$ modulo $3$?", "level": "Level 1", "type": "Number Theory",
         "solution": f"It is $\\boxed{{{n % 3}}}$."}
        for n in range(60)
    ]  # fmt: skip
    parquet(folder / "downloads" / "train-00000-of-00001.parquet", problems)  # in the form of MATH's training file
    lines = []
    for command in commands(PAGE, "One GPU"):
        if "Qwen2.5-1.5B" in command or "evals.fetch" in command:
            continue  # not in this test's matrix; the real benchmarks are nowhere in the repository
        lines.append(f"printf '\\n$ %s\\n' {shlex.quote(command)}; {command}")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DOWNLOADS": str(folder / "downloads"),
        "CARD": "config/small.yaml",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)], cwd=clone, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
    results = clone / "results/one_gpu"
    for path in ("report.html", "manifest.json", "claims.csv", "figures/figure2.svg", "tables/table1.md"):
        assert (results / path).is_file(), path
    assert "standing for Qwen2.5-7B" in (results / "tables/table1.md").read_text(encoding="utf-8")
    for method in ("grpo", "tepo"):
        record = read_json(clone / f"results/one_gpu/runs/qwen2.5_0.5b/{method}/seed1/run.json")
        assert (record["spec"]["trainer"], record["spec"]["training"]["rollouts"]) == ("trl", 2)
        assert registry.model("qwen2.5_0.5b").revision in record["spec"]["base"]
