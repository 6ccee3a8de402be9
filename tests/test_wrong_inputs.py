"""What people mistype: each line ends with exit code 2 and one line that names the right place, and leaves no file.

`snakemake` lines go through the code that Snakemake calls, without starting it; `tests/workflow/test_config.py`
types one of them. Commands run as they are, in this process.
"""

import argparse
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from snakemake.cli import parse_config
from snakemake.settings.types import DeploymentMethod

from core import errors
from workflow import command_line, plan

ROOT = Path(__file__).resolve().parents[1]
RULES = {
    name
    for file in [ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")]
    for name in re.findall(
        r'^(?:rule|use rule \w+ as|   (?= "\w+":)) "?(\w+)', file.read_text(encoding="utf-8"), re.MULTILINE
    )
}
CLI = r"command line \(--config\): "
QUICK = "--configfile config/quick.yaml"

# A user's files, and what is said of them as training data.
ROWS = "; write UTF-8 JSON lines without a mark at the start, such as "
OWN_FILES = {
    "field.jsonl": "row 1: must have a `problem` .* found: q, a; rename them",
    "none.jsonl": f"training problems holds no rows{ROWS}", "marked.jsonl": f"line 1 .* is not valid JSON .*{ROWS}",
    "table.csv": f"line 1 .* is not valid JSON .*{ROWS}", "packed.jsonl.gz": f"training problems is not UTF-8 .*{ROWS}",
    "large.jsonl": f"line 1 .* does not fit into 64 bits.*{ROWS}", "list.json": f"line 1 .* must be an object.*{ROWS}",
    "nowhere.jsonl": "no such file; set it to JSON lines with problem and answer",
}  # fmt: skip
CONTENT = {
    "field.jsonl": b'{"q": "1+1?", "a": 2}', "none.jsonl": b"", "table.csv": b"problem,answer\n1+1?,2\n",
    "marked.jsonl": b'\xef\xbb\xbf{"problem": "1+1?", "answer": 2}', "packed.jsonl.gz": b"\x1f\x8b\x08\x00",
    "large.jsonl": b'{"problem": "9!", "answer": %d}' % 10**400, "list.json": b'[{"problem": "1", "answer": 1}]',
    "few.jsonl": b'{"problem": "1+1?", "answer": 2}\n' * 60, "lora/adapter_config.json": b"{}",
    "mamba/config.json": b'{"model_type": "mamba"}',
}  # fmt: skip

# Typed after `snakemake`, in a folder where bad.yaml holds what stands third.
SNAKEMAKE = [
    ("tabel1", r"command line: target: unknown value 'tabel1'; .*nearest: table1"),
    ("--configfile config/quik.yaml", r"command line: --configfile: .*'config/quik.yaml'; .*nearest: config/quick"),
    (f"{QUICK} table1", "command line: --configfile table1: no such file; a target stands before --configfile"),
    (f"{QUICK} config", r"command line: --configfile config: is a folder; a target stands before --configfile"),
    (f"{QUICK} --config methods=grpo config", CLI + "config: must be key=value; a target stands before --config"),
    (f"{QUICK} --config methods=tpeo", CLI + "methods: .*'tpeo'.*nearest: tepo"),
    (f"{QUICK} --config methods=grpo@coin", CLI + "methods: 'grpo@coin': names a variant; set variant of a block"),
    (f"{QUICK} --config methods=tepo+beta=high", CLI + "methods: method tepo: beta: got 'high', allowed: a number"),
    (f"{QUICK} --config learning_rate=1e-4", CLI + "learning_rate: unknown key; .*nearest: training.learning_rate"),
    (f"{QUICK} --config methods=", CLI + "methods: is empty"),
    (f"{QUICK} --config seeds=1,two", CLI + r"seeds\.1: must be a whole number, got 'two'"),
    (f"{QUICK} --config training.minibatches=7", CLI + "training.minibatches: 7 does not divide prompts"),
    (f"{QUICK} --config training.device=cuda", CLI + "training.device: 'cuda': this machine has no GPU; allowed: cpu"),
    (f"{QUICK} --config scale=-n", CLI + "scale: must match pattern .*, got '-n'"),
    (f"{QUICK} --config name=cache", CLI + "name: results/cache holds something else"),
    (f"{QUICK} --config evaluation.benchmarks=syn_mix33", CLI + "evaluation.benchmarks: .*'syn_mix33'.*nearest: syn"),
    (f"{QUICK} --config evaluation.benchmarks=aime24,aime24", CLI + "evaluation.benchmarks: aime24 is given twice"),
    (f"{QUICK} --config sweep.training.lr=1,2", CLI + "sweep: .*'training.lr'.*nearest: training.learning_rate"),
    (f"{QUICK} --config sweep.beta=1,1", CLI + "sweep.beta: 1 is given twice"),
    (f"{QUICK} --config training=fast", CLI + "training: must be keys and values, got 'fast'"),
    (f"{QUICK} --config =3", CLI + "'': must be a key"),
    (f"{QUICK} --config 'results=my folder'", CLI + "results: 'my folder' has a space .*; set it to a path without"),
    (f"{QUICK} --config training={{passes", CLI + "training: not valid YAML"),
    # one's own data, reward, model, benchmark and method
    *((f"{QUICK} --config prompts.file={file}", f"{file}: {said}") for file, said in OWN_FILES.items()),
    (f"{QUICK} --config benchmarks=field.jsonl", "row 1: problem: expected text, got None; set it, or rename"),
    (f"{QUICK} --config benchmarks=./table.csv", r"benchmarks: ./table.csv: set it to a file named \*.jsonl"),
    (f"{QUICK} --config prompts.file=few.jsonl", "1 problems .* 48 different ones; add problems, or set training"),
    (f"{QUICK} --config reward=nosuch:f", CLI + "reward: 'nosuch:f' cannot be imported .*; correct .*PYTHONPATH"),
    (f"{QUICK} --config reward=coin", CLI + "reward: 'coin' is not of the form .*, such as mine:score"),
    (f"{QUICK} --config reward=json:decoder", CLI + "reward: 'json:decoder' is a module, not a function; name one"),
    (f"{QUICK} --config reward=textwrap:dedent", CLI + "reward: textwrap:dedent: cannot be called .*; allowed arg"),
    (f"{QUICK} --config reward=asyncio:sleep", CLI + "reward: asyncio:sleep: is async; allowed: a function"),
    (f"{QUICK} --config model=./lora", "./lora: no config.json there: a LoRA adapter; merge it .*; set it to a folder"),
    (f"{QUICK} --config model=Qwen/Qwen3", "Qwen/Qwen3: no config.json there; set it .* or add a model of the hub as"),
    (f"{QUICK} --config model=./mamba", r"shape.model_type: unknown value 'mamba'; allowed: llama, mistral, qwen2"),
    (f"{QUICK} --config seeds=1..3", CLI + "'1..3': must be whole numbers; set them as 1,2,3 or 1-3"),
    (f"{QUICK} --config seeds=3-1", CLI + "'3-1': must be whole numbers; set them as 1,2,3 or 1-3"),
    (f"{QUICK} --config sweep.beta=1", CLI + "sweep.beta: one value leaves nothing to choose; set two or more"),
    (f"{QUICK} --config prompts.files=x", CLI + "prompts.files: unknown key; .*nearest: file"),
    (f"{QUICK} --config methods=grpo+lr=1", CLI + "methods: method: grpo: unknown value 'lr'; allowed: adv-std"),
    ("--profile slurm", "conda: not found, .*--sdm env-modules"),
    ("--profile slurm --sdm env-modules", "sbatch: not found: run on a login node"),
]  # fmt: skip
PLANNED = "matrix: [{models: [tiny_qwen2], methods: [grpo], seeds: [1], steps: [4]}]"
# The same in a file of one's own.
FILES = [
    ("seeds: [1", r"not valid YAML"),
    ("- seeds", r"must hold keys and values, got list"),
    ("scale: a\nscale: b", r"scale: given twice"),
    (PLANNED.replace("[4]", "[40]"), r"matrix\.0\.steps: 40 lies beyond training\.rollouts = 12"),
    (PLANNED.replace("[4]", "[4], variant: cold"), r"matrix\.variant: unknown value 'cold'"),
    ("evaluation: {table_step: 5}", r"evaluation\.table_step: unknown value 5; allowed: 4"),
    ("variants: {warm: {title: a, training: {passe: 1}}}", r"variants\.warm\.training\.passe: .*nearest: passes"),
    ("variants: {a@b: {title: x}}", r"variants\.a@b: must match pattern .*, got 'a@b'"),
    (
        f"trainer: verl\n{PLANNED}".replace("[4]", "[4], variant: coin"),
        r"variants\.coin\.reward: coin: has no meaning with trainer: verl",
    ),
    ("prompts: {source: dapo_math_17k}", r"prompts: count: is missing"),
    ("cluster: {gpus: 8}", r"cluster\.gpu: is missing"),
    ("settings: {tepo: {bta: 1}}", r"settings: .*'bta'.*nearest: beta"),
    (PLANNED.replace("[1]", '["1"]'), r"matrix\.0\.seeds\.0: must be .*, got '1'"),
    (PLANNED.replace(", steps: [4]", ""), r"matrix\.0\.steps: is missing; add this key"),
    # a word of a shell line
    (
        "prompts: {source: math_train, ladder: null, count: 1, seed: 0, sha256: null, revision: 'main; rm x'}",
        r"prompts\.revision: must match pattern",
    ),
]
COMMANDS = [
    ("evals.run --modle config", "--modle: unknown option; nearest: --model"),
    ("report.compare tepo grpo --results x --compared choosen", "'choosen'; allowed: chosen, own; nearest: chosen"),
    ("report.compare 0.367:30 0.346:30", "0.367:30: no file or folder there; .* such as 0.367:30:32"),
    ("report.compare 36.7:30:32 0.346:30:32", r"36.7:30:32: score \(a fraction\): must be a number from 0 to 1"),
    ("report.show runs --results config", "config: no results there; trees in it: none; snakemake makes one"),
    ("report.show table1 --results tree", "tree/matrix.json: the list of planned runs is not valid JSON .*"),
    ("report.page --results tree", "tree/matrix.json: the list of planned runs is not valid JSON .*"),
    ("evals.run --model nofolder --benchmarks syn_mix33 --out x", "'syn_mix33'; .*nearest: syn_mix3"),
    ("evals.adopt --from lm_eval half.jsonl --out x", "'lm_eval'; .*nearest: lm-eval"),
    ("evals.adopt --from lm-eval other.jsonl --out x", "other.jsonl: row 1: response: none of .* set --fields"),
    ("evals.adopt --from jsonl other.jsonl --out x --fields answer=a", "--fields: unknown value 'answer'"),
    ("evals.adopt --from jsonl good.jsonl --benchmark b --out good.jsonl", "a file stands where a folder is needed"),
    ('methods.train --spec \'{"scale": "quick"}\' --out x', "spec: model: is missing; add this key"),
    ("models.fetch --hub a/b --revision main --from nofolder --out x", "nofolder: model folder is missing"),
    ("report.show tabel1 --results results/quick", "unknown value 'tabel1'; .*nearest: table1"),
    ("methods.train --spec missing.json --out run", "missing.json: run specification is missing"),
    ("models.build --model tiny_lama --ladder quick --seed 1 --out x", "'tiny_lama'.*nearest: tiny_llama"),
    ("evals.score --results nope --checkpoints a --benchmarks b --out c", "a: not of the form <model>/"),
]

GOOD = '{"id": 1, "sample": 0, "problem": "1+1", "gold": "2", "prompt": "1+1", "response": "2"}'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the project's configuration; what is typed there must leave it as it is."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    for name, content in CONTENT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def snakemake(words: list[str]) -> None:
    """What happens before Snakemake builds its graph."""
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--configfile", nargs="+", action="extend")
    parser.add_argument("--config", nargs="+", action="extend")
    parser.add_argument("--profile")
    parser.add_argument("--sdm")
    args = parser.parse_args(words)
    args.executor = args.profile or "local"
    args.dryrun = args.quiet = args.verbose = args.printshellcmds = False
    args.max_jobs_per_timespan = None
    # As profiles/slurm says, unless the command line does.
    conda = args.profile is not None and args.sdm is None
    args.software_deployment_method = {DeploymentMethod.CONDA} if conda else set()
    with command_line.one_line():
        command_line.check_arguments(args)
        plan.plan(["config/embedded.yaml", *(args.configfile or [])], parse_config(args.config), here=True)
        command_line.check_targets(RULES)


def wrong(call: Any, folder: Path, capsys: pytest.CaptureFixture[str], message: str) -> str | None:
    """What is not as it should be where a call should end in one line; None: it is."""
    before = sorted(folder.rglob("*"))
    try:
        call()
    except SystemExit as ended:
        said = capsys.readouterr().err
        if ended.code == 2 and said.count("\n") == 1 and re.search(f"^error: .*(?:{message})", said):
            return None if sorted(folder.rglob("*")) == before else "leaves a file"
        return f"exit code {ended.code}, {said}"
    return "is accepted"


def test_typed_after_snakemake(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_line.shutil, "which", lambda name: None)
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: not str(path).startswith("/dev/") and exists(path))
    found = {}
    for line, message in SNAKEMAKE:
        words = shlex.split(line)
        found[line] = wrong(lambda words=words: snakemake(words), folder, capsys, message)
    assert {line: why for line, why in found.items() if why} == {}


def test_written_in_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--configfile", "config/quick.yaml", "bad.yaml"]
    found = {}
    for text, message in FILES:
        (folder / "bad.yaml").write_text(text + "\n")
        found[text] = wrong(lambda: snakemake(words), folder, capsys, rf"(?:bad|embedded)\.yaml: (?:{message})")
    assert {text: why for text, why in found.items() if why} == {}


@pytest.mark.slow  # the imports of a dozen commands
def test_typed_after_python(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tree").mkdir()
    files = {"tree/matrix.json": '{"scale": "q', "half.jsonl": '{"a": 1', "other.jsonl": '{"a": 1}', "good.jsonl": GOOD}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    found = {}
    for line, message in COMMANDS:
        module, *words = shlex.split(line)
        monkeypatch.setattr(sys, "argv", [module, *words])
        main = importlib.import_module(module).main
        found[line] = wrong(lambda main=main: errors.run(main), folder, capsys, message)
    assert {line: why for line, why in found.items() if why} == {}


def test_the_snakefile_is_no_module_of_another(tmp_path: Path) -> None:
    text = f'module tepo:\n    snakefile: "{ROOT}/Snakefile"\n    config: config\n\nuse rule * from tepo as tepo_*\n'
    (tmp_path / "Snakefile").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "snakemake", "-n", "-c1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 2
    assert re.fullmatch("error: Snakefile: cannot be a module; run snakemake in its own folder.*\n", done.stderr)


@pytest.mark.parametrize("module", ["report.show", "models.build"])
def test_without_its_environment_a_command_says_what_to_activate(module: str) -> None:
    """-S: an interpreter without the environment's packages."""
    command = [sys.executable, "-S", "-m", module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"error: No module named '\w+', .*activate the environment: source .*\n", done.stderr), (
        done.stderr
    )
