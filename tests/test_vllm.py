"""The real vLLM, on a CPU, with SmolLM2-135M: `make test-vllm`, in an environment of its own.

vLLM's attention on a CPU has no kernel for heads of 16 and 20, so only a wider one of the tiny models can be sampled.

Two workers (`--dist worksteal`) begin with the first and the second half of this file. The first test is one that does
not need SmolLM2, which the other worker makes meanwhile.
"""

import json
import os
import re
import subprocess
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from core.caches import VARIABLE
from core.files import locked, read_growing_csv, read_json
from core.provenance import ROOT
from evals.generation.engine import per_sample_seed
from methods.adapters import SHORT, temporary_folder
from methods.adapters.reward import Reward
from methods.training.spec import check
from tests.adapters import worlds
from tests.evals.conftest import read_responses

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed here: make test-vllm"),
]
EAGER = ("--engine", "enforce_eager=true")  # compiling takes minutes on a CPU
QUESTIONS, SAMPLES, SEED = ("syn_q_words", "syn_q_next"), 4, 3
LIMIT, PROMPTS = 44, 64  # syn_q_next has 20
NEAR = 1e-4  # nats: float32 over 30 layers; measured for two engines 9e-6 in the mean, 2e-5 at the 99th percentile


def run(*command: str, mark: str = "") -> None:
    """Run `python <command>` in a process of its own, which must end well, and quietly."""
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "TEPO_TEST_MARK": mark}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert not re.search("kill|leaked|Traceback", done.stderr), done.stderr[-3000:]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of this session, the same for all workers of pytest-xdist."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="module", autouse=True)
def _nothing_compiled_twice(shared: Path) -> Iterator[None]:
    """For every process. vLLM inspects a model's class in a process of its own, 10 s each time, unless its caches are
    kept; and of an eager engine it still compiles the ranks of log-probs, with a C++ compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(shared / "engine-cache"))
        patch.setenv("TORCH_COMPILE_DISABLE", "1")
        yield


@pytest.fixture(scope="module")
def smollm(shared: Path) -> Path:
    """The model, made once for all workers."""
    folder = shared / "smollm"
    with locked(shared / "smollm.lock", "another worker has not made the model in 900 s", wait=900):
        if not (folder / "base.json").is_file():  # written last
            run("-m", "models.fetch", "--model", "smollm2_135m", "--out", str(folder))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    run("-m", "evals.fetch", "--benchmarks", *QUESTIONS, "--data", str(folder))
    return folder


def options(backend: str, model: Path, data: Path, out: Path, *more: str) -> list[str]:
    """Return options of `evals.generate` for a backend in float32."""
    of_backend = EAGER if backend == "vllm" else ("--device", "cpu")
    return [
        "--backend", backend, "--model", str(model), "--benchmarks", *QUESTIONS, "--data", str(data), "--out", str(out),
        "--dtype", "float32", *of_backend, *more,
    ]  # fmt: skip


def drawn(out: Path) -> list[SimpleNamespace]:
    """Return the responses in a folder, in the order of the files."""
    return [row for key in QUESTIONS for row in read_responses(out / f"{key}.parquet")]


# --- Training: verl's own `main_ppo` and its vLLM server --------------------------------------------------------------


def verls_vllm(extension: str) -> dict[str, Any]:
    """verl's keys for its own sampler in place of that of `verl_cpu`. extension: a class of `verl_cpu.vllm`."""
    rollout = "actor_rollout_ref.rollout"
    return {
        f"{rollout}.name": "vllm",
        f"{rollout}.enforce_eager": True,
        f"{rollout}.engine_kwargs.vllm.enable_sleep_mode": False,
        f"{rollout}.engine_kwargs.vllm.worker_extension_cls": f"tests.adapters.verl_cpu.vllm.{extension}",
        f"{rollout}.checkpoint_engine.update_weights_bucket_megabytes": 256,  # SmolLM2 needs three of these
        "actor_rollout_ref.model.external_lib": "tests.adapters.verl_cpu.engine",
    }


# `external_lib` of the run below. On a GPU it is `verl_register` itself.
EXTERNAL_LIB = """import verl_register
import tests.adapters.verl_cpu.engine
verl_register.register("tepo+dh-def=theorem+beta=0.5")
"""


def test_the_example_trains_in_verls_own_main_ppo(tmp_path: Path) -> None:
    """Two rollouts with two updates each. Only the settings, the example and the stand-in for a GPU are ours."""
    import pyarrow.parquet
    from omegaconf import OmegaConf

    from methods.adapters.verl import dataset, processes
    from methods.adapters.verl.config import PROMPTS, compose, overrides

    world = worlds.build(tmp_path / "world", hidden=64)  # two attention heads of 32, for which vLLM has a kernel
    spec = check(worlds.spec(world, trainer="verl", filter="none", passes=1, max_prompt_tokens=48))
    table, log = tmp_path / PROMPTS, tmp_path / "verl.jsonl"
    prompts = [json.loads(line) for line in Path(spec.prompts).read_text(encoding="utf-8").splitlines()]
    dataset.write_parquet(prompts, Reward(spec.rewards).text, table)
    rows = pyarrow.parquet.read_table(table)
    # for our agent loop; our own trainer adds the column
    pyarrow.parquet.write_table(rows.append_column("run_seed", [[1] * len(rows)]), table)
    (tmp_path / "own_methods.py").write_text(EXTERNAL_LIB)
    name = "tepo_bench/tepo+beta=0.5+dh-def=theorem"
    with temporary_folder(tmp_path, SHORT) as short:
        config = compose(overrides(spec, tmp_path, ray_temp=short / "ray") | verls_vllm("Own"))
        OmegaConf.set_struct(config, False)
        config.actor_rollout_ref.model.external_lib = "own_methods"
        config.actor_rollout_ref.actor.policy_loss.loss_mode = config.algorithm.adv_estimator = name
        config.trainer.v1.trainer_mode = "sync"
        config.trainer.save_freq = -1
        config.data.gen_batch_size = None
        OmegaConf.save(config, tmp_path / "run.yaml")
        variables = os.environ | processes.environment(spec.training, short) | {"VLLM_CPU_KVCACHE_SPACE": "1"}
        # as in our own runs; at Ray's default of 15 the processes would wait for every other program of the machine
        variables["RAY_worker_niceness"] = "0"
        variables["VERL_FILE_LOGGER_PATH"] = str(log)
        folders = str(ROOT / "examples"), str(tmp_path), variables["PYTHONPATH"]
        variables["PYTHONPATH"] = os.pathsep.join(folders)
        line = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-path", str(tmp_path), "--config-name", "run"]
        line += [f"hydra.run.dir={tmp_path}", "hydra.output_subdir=null"]
        done = subprocess.run(line, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    steps = [json.loads(text) for text in log.read_text(encoding="utf-8").splitlines()]
    assert [step["step"] for step in steps] == [1, 2]
    for data in (step["data"] for step in steps):
        assert data["actor/grad_norm"] > 0
        assert data["actor/tepo_bench/mask_fraction"] > 0  # theorem: tokens of positive advantage
        assert data["actor/tepo_bench/kl_old"] > 0  # the second update of a rollout is off-policy


# --- Evaluation -------------------------------------------------------------------------------------------------------


def test_greedy_responses_are_those_of_transformers(smollm: Path, data: Path, tmp_path: Path) -> None:
    """Equal texts, lengths and stop reasons. Where a text differs, the first other token must be one that float32
    cannot tell from transformers' choice; after it the two texts have nothing in common any more."""
    greedy = ("--temperature", "0", "--samples", "1", "--limit", str(LIMIT), "--max-tokens", "7")
    for backend in ("vllm", "hf"):
        run("-m", "evals.generate", *options(backend, smollm, data, tmp_path / backend, *greedy))
    ours, theirs = drawn(tmp_path / "vllm"), drawn(tmp_path / "hf")
    assert len(ours) == len(theirs) == PROMPTS
    assert {row.stop for row in theirs} == {"stop", "length"}  # both ends are tested
    other = 0
    for own, hf in zip(ours, theirs, strict=True):
        assert own.prompt_sha256 == hf.prompt_sha256
        if (own.response, own.tokens, own.stop) != (hf.response, hf.tokens, hf.stop):
            other += 1
            assert gap_at_first_difference(smollm, hf.prompt, hf.response, own.response) < NEAR, (own, hf)
    assert other <= PROMPTS // 8


def gap_at_first_difference(model: Path, prompt: str, one: str, other: str) -> float:
    """Return the difference of log-probs, after their common beginning, of the first tokens that differ."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    encode = partial(tokenizer.encode, add_special_tokens=False)
    end = [tokenizer.eos_token_id]
    a, b = encode(one) + end, encode(other) + end
    first = next(place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    with torch.no_grad():
        ids = torch.tensor([encode(prompt) + a[:first]])
        logp = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)(ids).logits[0, -1].log_softmax(-1)
    return abs(float(logp[a[first]] - logp[b[first]]))


# Two commands, each with an engine of its own; vLLM is imported once.
IN_ONE_PROCESS = """import json
import sys
from evals import generate
for sys.argv[1:] in json.loads(sys.argv[1]):
    assert generate.main() == 0
"""


def test_seeds_repeat_their_samples_and_differ_between_samples(smollm: Path, data: Path, tmp_path: Path) -> None:
    """Afterwards no process of the engine is left."""
    sampling = ("--temperature", "1", "--samples", str(SAMPLES), "--limit", "8", "--max-tokens", "12")
    seeds = {"once": SEED, "again": SEED, "other": SEED + 1}
    commands = {
        name: options("vllm", smollm, data, tmp_path / name, "--seed", str(seed), *sampling)
        for name, seed in seeds.items()
    }
    mark = uuid.uuid4().hex
    run("-m", "evals.generate", *commands["once"], mark=mark)
    assert not [process for process in psutil.process_iter() if carries(process, mark)]
    run("-c", IN_ONE_PROCESS, json.dumps([commands["other"], commands["again"]]))
    once, again, other = (drawn(tmp_path / name) for name in seeds)
    texts = [[row.response for row in rows] for rows in (once, again, other)]
    assert texts[0] == texts[1]
    assert sum(x == y for x, y in zip(texts[0], texts[2], strict=True)) < len(once) / 2
    assert {row.seed for row in once} == {per_sample_seed(SEED, sample) for sample in range(SAMPLES)}
    samples = defaultdict(set)
    for row in once:
        samples[row.item_id].add(row.response)
    assert sum(len(texts) > 1 for texts in samples.values()) > len(samples) / 2
    for row in once:
        assert (row.stop == "length") == (row.tokens == 12)
    versions = read_json(tmp_path / "once/samples.json")["engine"]["versions"]
    assert versions["vllm"].endswith("+cpu")


def carries(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("TEPO_TEST_MARK") == mark
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return False


# --- Training: `training.sampler: vllm` -------------------------------------------------------------------------------

QUESTION = "<|im_start|>user\nName a number between {} and 99.<|im_end|>\n<|im_start|>assistant\n"


def train(smollm: Path, out: Path, main: str, mark: str = "", **changes: Any) -> subprocess.CompletedProcess[str]:
    """Train GRPO for two rollouts with `python -c main`."""
    prompts = out.with_suffix(".jsonl")
    lines = [json.dumps({"prompt": QUESTION.format(n), "answer": str(n)}) for n in range(12)]
    prompts.write_text("\n".join(lines), encoding="utf-8")
    training: dict[str, Any] = {
        "rollouts": 2,
        "minibatches": 1,
        "passes": 1,
        "oversample": 1.0,
        "learning_rate": 1e-5,
        "sampler": "vllm",
        "save_every": 3,
    }
    spec = worlds.spec(out, "grpo", base=str(smollm), prompts=str(prompts), filter="none", **training | changes)
    return subprocess.run(
        [sys.executable, "-c", main, "--spec", json.dumps(spec), "--out", str(out)], cwd=ROOT, check=False,
        env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "TEPO_TEST_MARK": mark},
        capture_output=True, text=True, timeout=1800,
    )  # fmt: skip


MAIN = "import sys; from core import errors; from methods import train; sys.exit(errors.run(train.main))"
# As if TRL forgot to give the engine the new weights.
FORGETFUL = (
    "from trl.generation import vllm_generation as v; v.VLLMGeneration.sync_weights = lambda self: None; " + MAIN
)


def test_a_run_sampled_by_vllm_learns_from_the_policy_it_trains(smollm: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = train(smollm, out, MAIN)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = read_growing_csv(out / "curve.csv")
    assert [int(row["rollout"]) for row in rows] == [1, 2]
    for row in rows:
        assert float(row["kl_step"]) > 0
        # The sampler's own log-probs, against the trainer's of the same weights: float32 apart.
        assert float(row["sampling_gap_mean"]) < NEAR
        assert float(row["sampling_correlation"]) > 1 - 1e-6
    assert read_json(out / "run.json")["spec"]["training"]["sampler"] == "vllm"


def test_weights_that_do_not_reach_the_sampler_end_the_run(smollm: Path, tmp_path: Path) -> None:
    done = train(smollm, tmp_path / "run", FORGETFUL, learning_rate=1e-4)
    assert done.returncode == 2, done.stdout[-3000:] + done.stderr[-3000:]
    assert "rollout 2: the sampler has another policy than the trainer" in done.stderr


# --- Training: verl's own vLLM server -------------------------------------------------------------------------------


def test_verls_vllm_samples_from_the_policy_until_its_weights_are_lost(smollm: Path, tmp_path: Path) -> None:
    """Two rollouts with the trainer's weights; those for the third are received and lost, and the run ends."""
    main = f"""from methods.adapters import verl
ours = verl.overrides
verl.overrides = lambda *arguments: ours(*arguments) | {verls_vllm("Forgetful")}
{MAIN}"""
    out, mark = tmp_path / "run", uuid.uuid4().hex
    changes = {"trainer": "verl", "sampler": None, "rollouts": 3, "checkpoints": (3,), "learning_rate": 1e-4}
    done = train(smollm, out, main, mark, **changes)
    assert done.returncode == 2, done.stdout[-3000:] + done.stderr[-3000:]
    assert "rollout 3: the sampler has another policy than the trainer" in done.stderr
    rows = [row for row in read_growing_csv(out / "state/curve.csv") if row["rollout"] != "3"]
    assert len(rows) == 2
    for row in rows:
        assert float(row["kl_step"]) > 0
        assert float(row["sampling_gap_mean"]) < NEAR
        assert float(row["sampling_correlation"]) > 1 - 1e-6
    assert not [process for process in psutil.process_iter() if carries(process, mark)]
