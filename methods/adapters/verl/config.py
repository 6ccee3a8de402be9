"""A run as verl's configuration: every key that acts, with our value; composed and validated as `main_ppo` does it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from methods import catalog
from methods.adapters.verl import actor_keys, keys
from methods.adapters.verl.files import Files
from records.errors import ConfigError, MissingInputError, nearest

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from methods.training.spec import Spec

# Read by verl or by Ray, but not in verl's YAML files.
_ADDED = (
    "actor_rollout_ref.actor.fsdp_config.mixed_precision",
    "actor_rollout_ref.ref.fsdp_config.mixed_precision",
    "actor_rollout_ref.model.override_config",
    "ray_kwargs.ray_init",
)


def overrides(spec: Spec, files: Files) -> dict[str, Any]:
    """verl key -> value, for every key that acts. Pure: nothing is read."""
    t, method = spec.training, catalog.parse(spec.method)
    sections = {
        "data": keys.data(spec, files),
        "actor_rollout_ref": {
            "hybrid_engine": True,
            "nccl_timeout": 600,
            "model": actor_keys.model(spec),
            "actor": actor_keys.actor(spec, method),
            "ref": actor_keys.reference(spec, method),
            "rollout": keys.rollout(spec, method),
        },
        "algorithm": keys.algorithm(t),
        "reward": keys.reward(t, files),
        "trainer": keys.trainer(spec, files),
        "transfer_queue": keys.transfer_queue(t),
        "ray_kwargs": keys.ray(t, files),
    }
    return {**dict(_leaves(sections)), **dict(keys.OFF.values())}


def compose(overrides: Mapping[str, Any]) -> DictConfig:
    """verl's defaults with `overrides` laid over them, validated by verl. `ConfigError` names the key."""
    from omegaconf import OmegaConf

    config = _defaults().copy()
    OmegaConf.set_struct(config, True)
    for key, value in overrides.items():
        added = any(key == name or key.startswith(f"{name}.") for name in _ADDED)
        if not added and not _known(config, key):
            known = [name for name, _ in _leaves(OmegaConf.to_container(config, resolve=False))]
            hit = nearest(key, known)
            raise ConfigError(f"verl: {key}: verl has no such key" + (f"; nearest: {hit}" if hit else ""))
        OmegaConf.update(config, key, value, merge=False, force_add=added)
    validate(config)
    return config


def validate(config: DictConfig) -> None:
    """verl's own checks: those of `main_ppo`, and conversions its trainer starts with. `ConfigError` with one line."""
    import contextlib
    import io
    import warnings

    from hydra.errors import InstantiationException
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            validate_config(config, need_reference_policy(config), need_critic(config))
            for section in ("actor_rollout_ref.ref.fsdp_config", "actor_rollout_ref.rollout", "algorithm"):
                node: Any = config
                for part in section.split("."):
                    node = node[part]
                omega_conf_to_dataclass(node)
    except (AssertionError, ValueError, NotImplementedError, InstantiationException) as error:
        raise ConfigError(f"verl: refuses its configuration: {' '.join(str(error).split())}") from error


@cache
def _defaults() -> DictConfig:
    """What verl's YAML files say, composed by Hydra as `main_ppo` does; once per process."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    found = find_spec("verl")
    if found is None or found.origin is None:
        raise MissingInputError("environment: verl: the package is not installed")
    with initialize_config_dir(str(Path(found.origin).parent / "trainer" / "config"), version_base=None):
        return hydra_compose("ppo_trainer")


def _known(config: DictConfig, key: str) -> bool:
    node: Any = config
    for part in key.split("."):
        if not hasattr(node, "keys") or part not in node.keys():  # noqa: SIM118 - a missing value `???` is a key too
            return False
        node = None if node._get_node(part)._is_none() else node._get_node(part)
    return True


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and value of every leaf; an empty mapping is one."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
