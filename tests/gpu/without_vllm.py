"""`methods.train` for verl with the tests' sampler on the CPU in vLLM's place, also where it trains on a GPU."""

from typing import Any

from core import errors
from methods import train
from methods.adapters import verl
from methods.adapters.verl import config
from methods.training.spec import Spec

derived = config.derived


def sampled_on_the_cpu(spec: Spec) -> dict[str, Any]:
    sampler = {"external_lib": config.EXTERNAL_LIB["cpu"], "rollout_engine": config.CPU_ROLLOUT, "workers": 1}
    return derived(spec) | sampler


if __name__ == "__main__":
    config.derived = sampled_on_the_cpu
    check_versions = verl.check_versions
    verl.check_versions = lambda _: check_versions("cpu")
    errors.run(train.main)
