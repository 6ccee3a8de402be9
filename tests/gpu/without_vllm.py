"""`methods.train` for verl with the tests' sampler on the CPU in vLLM's place, also where it trains on a GPU."""

from core import errors
from methods import train
from methods.adapters import verl
from methods.adapters.verl import config

SAMPLER = {"external_lib": config.EXTERNAL_LIB["cpu"], "rollout_engine": config.CPU_ROLLOUT, "workers": 1}

if __name__ == "__main__":
    derived, check_versions = config.derived, verl.check_versions
    config.derived = lambda spec: derived(spec) | SAMPLER
    verl.check_versions = lambda _: check_versions("cpu")
    errors.run(train.main)
