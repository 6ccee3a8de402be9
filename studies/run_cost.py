"""What a run and its evaluation cost in CPU seconds: alone, in a worker, and in plain TRL and lm-eval.

    python studies/run_cost.py --base FOLDER --prompts FILE --data DIR [--rollouts N] [--repeats 3]

    train   alone     python -m methods.train
            worker    the same command, handed to a worker (core/worker.py), which has served one run before
            plain     a script with TRL's GRPOTrainer: same model, prompts, reward, sizes; its own loss, and no group
                      filter, so that it samples a third less
    draw    alone, worker: python -m evals.generate on the seven embedded benchmarks; plain: lm-eval's command on the
            same task files, in batches of the same size
    grade   python -m evals.grade

Arms are interleaved. Then a run by stage; its ratio to the limit of arithmetic, which is 2 FLOP per parameter and token
of a forward pass and 4 of a backward pass, at the speed of a large float32 product on this core (attention is left
out); and 100 runs with as many evaluations as the embedded matrix has for them. CPU seconds vary with the load, so that
only the ratios of one call compare.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

VARIABLES = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONPATH": str(ROOT),
}  # fmt: skip


def specification(args: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    """A run of the embedded scale."""
    from workflow import matrix

    return {
        "scale": "benchmark", "model": "tiny_qwen2", "method": "tepo", "seed": 1, "trainer": "trl",
        "base": str(args.base.resolve()), "prompts": str(args.prompts.resolve()), "reward": matrix.REWARD,
        "training": settings["training"] | {"rollouts": args.rollouts}, "checkpoints": [args.rollouts],
    }  # fmt: skip


def spent(*command: str, environment: dict[str, str] | None = None) -> float:
    """CPU seconds of a command and of what it waited for. Its output is thrown away unless it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, cwd=ROOT, env=environment or {**os.environ, **VARIABLES}, capture_output=True, check=False
    )
    if done.returncode or b"going on by itself" in done.stderr:  # a worker refused, and this would be another arm
        sys.exit(f"{' '.join(command)[:300]}\n{done.stderr.decode(errors='replace')[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


class Worker:
    """A worker as the workflow offers it; `spent` counts its children too."""

    def __init__(self, folder: Path):
        from core import worker

        self.log = folder / "worker.log"
        if not worker.offer(self.log):
            sys.exit("run_cost: this machine offers no worker (core/worker.py says where it cannot)")
        offered = os.environ.pop(worker.VARIABLE)  # the other arms are to find none
        self.environment = {**os.environ, **VARIABLES, worker.VARIABLE: offered}

    @property
    def pid(self) -> int:
        return int(self.log.read_text(encoding="utf-8").split()[1])

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # own and waited-for, user and system

    def memory(self) -> float:
        """MiB that are resident; its children share them until they write there."""
        facts = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        return int(facts.partition("VmRSS:")[2].split()[0]) / 1024

    def spent(self, *command: str) -> float:
        before = self.cpu()
        return spent(*command, environment=self.environment) + self.cpu() - before


# --- Plain TRL, and a run by stage: each in a process of its own ------------------------------------------------------


def plain(spec: dict[str, Any], out: Path) -> None:
    """What a user of TRL would write for this run."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from evals.reward import boxed

    t = spec["training"]
    rows = [json.loads(line) for line in Path(spec["prompts"]).read_text(encoding="utf-8").splitlines()]
    needed = t["rollouts"] * t["prompts_per_rollout"]
    rows = (rows * -(-needed // len(rows)))[:needed]

    def reward(prompts: list[str], completions: list[str], answer: list[str], **_: object) -> list[float]:
        return boxed(prompts, completions, answer)

    config = GRPOConfig(
        output_dir=str(out), per_device_train_batch_size=t["prompts_per_rollout"] * t["samples_per_prompt"] // 4,
        steps_per_generation=t["minibatches"], num_iterations=t["passes"], num_generations=t["samples_per_prompt"],
        max_steps=t["rollouts"] * t["minibatches"] * t["passes"], max_completion_length=t["max_completion_tokens"],
        temperature=t["temperature"], learning_rate=t["learning_rate"], lr_scheduler_type="constant", beta=0.0,
        epsilon=0.2, epsilon_high=0.28, use_cpu=True, bf16=False, gradient_checkpointing=False, seed=spec["seed"],
        save_strategy="no", report_to="none", disable_tqdm=True, model_init_kwargs={"dtype": "float32"},
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=spec["base"], reward_funcs=reward, args=config,
        train_dataset=Dataset.from_list([{"prompt": row["prompt"], "answer": row["answer"]} for row in rows]),
        processing_class=AutoTokenizer.from_pretrained(spec["base"], padding_side="left"),
    )  # fmt: skip
    trainer.train()
    trainer.save_model(str(out))


def stages(spec: dict[str, Any], out: Path) -> dict[str, float]:
    """CPU seconds of a run by what they were spent on; stages do not overlap."""
    seconds: dict[str, float] = defaultdict(float)
    running: list[str] = []
    mark = time.process_time()

    def book() -> None:
        nonlocal mark
        now = time.process_time()
        seconds[running[-1] if running else "everything else"] += now - mark
        mark = now

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        book()
        running.append(name)
        try:
            yield
        finally:
            book()
            running.pop()

    def timed(owner: Any, attribute: str, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, attribute)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with stage(name):
                return original(*args, **kwargs)

        setattr(owner, attribute, wrapper)

    with stage("imports"):
        import torch
        from accelerate import Accelerator

        from methods import sampling, train
        from methods.adapters.trl import load, trainer
        from methods.adapters.trl.recorder import Recorder
        from methods.training.run_folder import RunFolder

        load()
    timed(RunFolder, "__init__", "hashes of inputs and code")
    timed(trainer, "build_trainer", "model and trainer built")
    timed(sampling, "sample", "generation: the loop")
    timed(sampling._Decoder, "logits", "generation: the model")
    timed(trainer.MethodTrainer, "_generate_and_score_completions", "generation: TRL, text, reward")
    timed(trainer.MethodTrainer, "_with_old_policy", "old log-probs and entropies")
    timed(trainer.MethodTrainer, "_compute_loss", "updates: forward")
    timed(Accelerator, "backward", "updates: backward")
    timed(torch.optim.AdamW, "step", "AdamW")
    timed(Recorder, "on_step_end", "diagnostics, curve, states")
    train.execute(json.dumps(spec), out, train.StopRequest())
    book()
    return dict(seconds)


def limit(spec: dict[str, Any], out: Path) -> tuple[float, float]:
    """FLOP of the run in `out`, and how many a core does in a second of a large product."""
    import torch
    from safetensors import safe_open
    from transformers import AutoTokenizer

    torch.set_num_threads(1)
    t = spec["training"]
    with safe_open(str(Path(spec["base"], "model.safetensors")), framework="pt") as file:
        parameters = sum(file.get_tensor(name).numel() for name in file.keys())  # noqa: SIM118 - no mapping
    rows = list(csv.DictReader((out / "curve.csv").read_text(encoding="utf-8").splitlines()))
    tokenizer = AutoTokenizer.from_pretrained(spec["base"])
    texts = [json.loads(line)["prompt"] for line in Path(spec["prompts"]).read_text(encoding="utf-8").splitlines()]
    prompt = sum(len(tokenizer(text)["input_ids"]) for text in texts) / len(texts)
    per_rollout = t["minibatches"] * t["passes"]
    drawn = sum(
        int(row["groups_sampled"]) * (prompt + t["samples_per_prompt"] * float(row["response_tokens"]))
        for row in rows[::per_rollout]
    )
    trained = sum(int(row["tokens"]) + int(row["sequences"]) * prompt for row in rows)
    flop = 2 * parameters * (drawn + trained * (3 + 1 / t["passes"]))  # the old policy's pass: once for all passes
    a = torch.randn(2048, 2048)
    a @ a
    began = time.process_time()
    for _ in range(4):
        a @ a
    return flop, 4 * 2 * 2048**3 / (time.process_time() - began)


def main() -> None:
    from core.errors import whole
    from workflow import config, matrix

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--base", required=True, type=Path, help="a tiny base model: results/cache/models/tiny_qwen2-..."
    )
    parser.add_argument("--prompts", required=True, type=Path, help="its prompts: results/cache/prompts/full-...")
    parser.add_argument("--data", required=True, type=Path, help="folder of the embedded benchmarks")
    parser.add_argument("--rollouts", type=whole(1), help="default: the embedded matrix's")
    parser.add_argument("--repeats", type=whole(1), default=3)
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)  # plain or stages, specification, out
    args = parser.parse_args()
    if args.inside:
        what, text, out = args.inside
        print(json.dumps({"plain": plain, "stages": stages}[what](json.loads(text), Path(out))))
        return
    python = [sys.executable, "-m"]
    path = ROOT / "config" / "embedded.yaml"
    settings, _ = config.resolved([path])
    benchmarks = settings["evaluation"]["benchmarks"]
    # of 100 runs of the matrix: some are evaluated twice, and so are the bases
    evaluations = 100 * len(matrix.checkpoints(settings)) / len(matrix.plan(settings))
    args.rollouts = args.rollouts or settings["training"]["rollouts"]
    spec = specification(args, settings)
    folder = Path(tempfile.mkdtemp(prefix="run-cost-"))
    warm = Worker(folder)
    given = ["--base", str(args.base), "--prompts", str(args.prompts), "--data", str(args.data)]
    inside = [sys.executable, "studies/run_cost.py", *given, "--inside"]
    text = json.dumps(spec)
    short = json.dumps(spec | {"training": spec["training"] | {"rollouts": 1}, "checkpoints": [1]})
    spent(*python, "methods.train", "--spec", short, "--out", str(folder / "first"), environment=warm.environment)
    found: dict[str, list[float]] = defaultdict(list)
    for repeat in range(args.repeats):
        here = folder / str(repeat)
        run = [*python, "methods.train", "--spec", text, "--out"]
        found["train alone"].append(spent(*run, str(here / "alone")))
        found["train worker"].append(warm.spent(*run, str(here / "worker")))
        found["train plain"].append(spent(*inside, "plain", text, str(here / "plain")))
        step = here / "alone" / "checkpoints" / f"step{args.rollouts}"
        draw = [*python, "evals.generate", "--model", str(step), "--data", str(args.data), "--benchmarks", *benchmarks]
        if repeat == 0:
            warm.spent(*draw, "--limit", "2", "--out", str(here / "first"))
        found["draw alone"].append(spent(*draw, "--out", str(here / "drawn")))
        found["draw worker"].append(warm.spent(*draw, "--out", str(here / "drawn-worker")))
        tasks = ",".join(str(path) for path in sorted((here / "drawn" / ".work").glob("*/*.yaml")))
        arguments = f"pretrained={step},dtype=float32,add_bos_token=False"
        harness = [str(Path(sys.executable).parent / "lm_eval"), "run", "--model", "hf", "--model_args", arguments]
        more = ["--tasks", tasks, "--batch_size", "256", "--device", "cpu", "--output_path", str(here / "lm-eval")]
        found["draw plain"].append(spent(*harness, *more, "--log_samples"))
        grade = ["--samples", str(here / "drawn"), "--data", str(args.data), "--out", str(here / "graded")]
        found["grade"].append(spent(*python, "evals.grade", *grade))
    mean = {name: sum(times) / len(times) for name, times in found.items()}
    print(f"CPU seconds, mean of {args.repeats}; {args.rollouts} rollouts")
    for name, times in found.items():
        each = " ".join(f"{one:.1f}" for one in times)
        base = mean.get(f"{name.split()[0]} plain")
        ratio = f"ratio to plain {mean[name] / base:.2f}" if base and "plain" not in name else ""
        print(f"  {name:13} {mean[name]:7.2f}  ({each})  {ratio}")
    done = subprocess.run(
        [*inside, "stages", text, str(folder / "stages")], cwd=ROOT, env={**os.environ, **VARIABLES},
        capture_output=True, check=True,
    )  # fmt: skip
    by_stage: dict[str, float] = json.loads(done.stdout.decode().splitlines()[-1])
    print("a run alone by stage:")
    for name, value in sorted(by_stage.items(), key=lambda item: -item[1]):
        print(f"  {name:32} {value:6.2f}  {value / sum(by_stage.values()):5.0%}")
    flop, speed = limit(spec, folder / "0" / "alone")
    seconds = flop / speed
    print(f"arithmetic: {flop / 1e9:.0f} GFLOP at {speed / 1e9:.0f} GFLOP/s = {seconds:.2f} s;", end=" ")
    print(f"ratio alone {mean['train alone'] / seconds:.1f}, worker {mean['train worker'] / seconds:.1f}")
    print(f"100 runs, {evaluations:.0f} evaluations, CPU minutes:")
    for arm in ("alone", "worker", "plain"):
        parts = [100 * mean[f"train {arm}"], evaluations * mean[f"draw {arm}"], evaluations * mean["grade"]]
        print(f"  {arm:7} {sum(parts) / 60:5.1f}  (train, draw, grade: {', '.join(f'{x / 60:.1f}' for x in parts)})")
    print(f"the worker, with all its imports: {warm.memory():.0f} MiB resident")
    os.kill(warm.pid, signal.SIGTERM)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
