"""A run as verl's configuration: config.yaml merged into verl's files, composed and validated as in `main_ppo`.

This module imports neither verl nor torch, because `workflow.cost` uses the sizes below too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError
from core.provenance import ROOT
from methods import catalog
from methods.adapters import loggers
from methods.method import Method
from methods.training.spec import Spec, Training

if TYPE_CHECKING:
    from omegaconf import DictConfig

OURS = ROOT / "methods/adapters/verl/config.yaml"

PROMPTS = "prompts.parquet"  # in the run's folder of states

# Names in config.yaml under which the adapter's parts are registered with verl.
TRAINER = ADVANTAGE = "methods"
AGENT_LOOP = "methods_prompt"
CPU_ROLLOUT = "transformers"

# For device cpu: verl's platform (the package) and inference engine (`rollout`), which stand for CUDA and vLLM.
CPU_PLUGIN = "tests.adapters.verl_cpu"

# Tokens whose logits the output head computes at a time. At a vocabulary of 152,000 they take 1.2 GB; smaller chunks
# are slower, because each reads the whole head.
CHUNK = 1024

# Imported by every process of a run before verl builds anything in it (`actor_rollout_ref.model.external_lib`).
EXTERNAL_LIB = {"cuda": "methods.adapters.verl.worker", "cpu": f"{CPU_PLUGIN}.rollout"}

# verl or Ray reads these, but verl's YAML files do not list them, so they must be added rather than set.
_ADDED = (
    "actor_rollout_ref.actor.fsdp_config.mixed_precision",
    "actor_rollout_ref.ref.fsdp_config.mixed_precision",
    "actor_rollout_ref.model.override_config",
    "actor_rollout_ref.rollout.engine_kwargs.vllm",
    "ray_kwargs.ray_init",
)


def overrides(spec: Spec, folder: Path, resume: Path | None = None, ray_temp: Path | None = None) -> dict[str, Any]:
    """Return dotted verl key -> our value if it differs from verl's default. Reads config.yaml, not verl's files.

    folder: `state` of the run, for everything that verl writes; resume: the `global_step_<N>` to resume from; ray_temp:
    a folder for Ray, short, because socket paths are limited in length.
    """
    from omegaconf import OmegaConf

    values = OmegaConf.create(
        {
            "spec": {"base": spec.base, "seed": spec.seed},
            "training": spec.training.model_dump(),
            "files": {
                "prompts": str(folder / PROMPTS),
                "checkpoints": str(folder),
                "log": str(folder / "verl.jsonl"),
                "resume": None if resume is None else str(resume),
                "resume_mode": "disable" if resume is None else "resume_path",
            },
            "derived": derived(spec) | {"loggers": ["file", *loggers(folder.parent, spec)]},
        }
    )
    ours = OmegaConf.load(OURS)
    merged: Any = OmegaConf.to_container(OmegaConf.merge(ours, values), resolve=True)
    sections = {name: section for name, section in merged.items() if name in ours}
    start = sections["ray_kwargs"]["ray_init"]
    if spec.training.device == "cpu":
        # One simulated GPU, because verl places its workers by GPUs. More CPUs than a small machine has, because Ray
        # starts an actor only if it counts a free one.
        start |= {"num_cpus": 16, "num_gpus": 1, "include_dashboard": False}
    if ray_temp is not None:
        start["_temp_dir"] = str(ray_temp)
    return dict(_leaves(sections))


def derived(spec: Spec) -> dict[str, Any]:
    """Return the values of config.yaml that are neither constant nor fields of the specification."""
    t, method = spec.training, catalog.parse(spec.method)
    cuda = t.device == "cuda"
    by_tokens = packs_by_tokens(t, method)
    longest = t.max_prompt_tokens + t.max_completion_tokens
    return {
        "name": spec.name,
        "cuda": cuda,
        "reward_module": str(ROOT / "methods/adapters/verl/dataset.py"),  # verl loads it by path
        "external_lib": EXTERNAL_LIB[t.device],
        "rollout_engine": "vllm" if cuda else CPU_ROLLOUT,
        "workers": 8 if cuda else 1,  # of sampling, and of rewards
        "storage_units": storage_units(t),  # of the queue between processes
        "prompts_drawn": t.prompts_drawn,
        "prompts_per_minibatch": t.prompts_per_rollout // t.minibatches,
        "packs_by_tokens": by_tokens,
        "micro_batch_rows": None if by_tokens else micro_batch_rows(t, method),
        "needs_reference": "ref_logp" in method.needs,
        "pass_dtype": "bf16" if t.precision == "bfloat16" else "fp32",
        "longest_sequence": longest,
        "engine_batch_tokens": max(8192, longest),  # vLLM requires room for one sequence
    }


def packs_by_tokens(t: Training, method: Method) -> bool:
    """Return whether verl splits micro-batches by tokens; False if a method's statistics would depend on the split."""
    follows_cut = method.scope == "batch" and (t.cov_scope == "microbatch" or not method.splittable)
    return t.device == "cuda" and not follows_cut


def micro_batch_rows(t: Training, method: Method) -> int:
    """Return sequences per micro-batch and device: as many as fit on a GPU if statistics are per micro-batch."""
    if t.device == "cuda" and t.cov_scope == "microbatch":
        fitting = max(1, t.max_tokens_per_gpu // (t.max_prompt_tokens + t.max_completion_tokens))
        return min(fitting, t.rows_per_minibatch // t.gpus)
    return t.rows_per_minibatch // t.micro_batches


def storage_units(t: Training) -> int:
    """Return the number of parts of the queue for rows, each with a process and a CPU: one per GPU, at most 8."""
    return min(8, t.gpus)


def check_cpus(t: Training, counted: float, where: str) -> None:
    """Raise `ConfigError` if Ray would wait for missing CPUs. counted: the CPUs of `where`, over all nodes."""
    # The queue's parts and controller, and three per GPU that verl reserves for processes other than the trainer's. One
    # more must be free, or Ray does not start actors that require none.
    queue = storage_units(t) + 1
    needed = queue + 3 * t.gpus + 1
    if counted < needed:
        raise ConfigError(
            f"environment: CPUs: {where} has {counted:g}; a run on {t.gpus} GPU{'s' * (t.gpus > 1)} needs {needed} "
            f"({queue} for the queue between its processes, 3 for each GPU, 1 to start them), and Ray would hang; "
            "allowed: a job with more CPUs, or fewer gpus_per_node"
        )


def compose(overrides: Mapping[str, Any]) -> DictConfig:
    """Compose verl's defaults with Hydra as `main_ppo` does, apply `overrides`, and run verl's checks.

    Raises ValueError and others from verl's checks; omegaconf's errors for a key that verl does not have.
    """
    import verl
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    with initialize_config_dir(str(Path(verl.__file__).parent / "trainer/config"), version_base=None):
        config = hydra_compose("ppo_trainer")
    OmegaConf.set_struct(config, True)
    for key, value in overrides.items():
        # Replaced, not merged: an empty mapping of ours must clear verl's.
        OmegaConf.update(config, key, value, merge=False, force_add=key.startswith(_ADDED))
    validate_config(config, need_reference_policy(config), need_critic(config))
    return config


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted key and value of every leaf; an empty mapping is a leaf."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
