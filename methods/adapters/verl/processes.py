"""Processes of a run: a private Ray, or the cluster's by RAY_ADDRESS; watched, and always shut down."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.caches import engine_caches
from core.errors import BenchError
from core.provenance import ROOT
from methods.adapters.verl.config import CPU_PLUGIN
from methods.training.spec import Training

if TYPE_CHECKING:
    from omegaconf import DictConfig

# Time limit of a single wait: starting, sampling a rollout, its updates, a save. TEPO_VERL_WAIT_SECONDS overrides it.
SECONDS = 4 * 3600.0
LAST_SECONDS = 120.0  # from the end of a wait to the end of the process
# A run with its private Ray is on one machine, and nothing outside has to reach its processes.
LOOPBACK = {
    # Makes Ray use the loopback address for its node (documented for firewalls of other systems; `_node_ip_address`
    # does not work: Ray replaces a loopback address with the machine's). verl and the transfer queue get the address
    # from Ray, so their sockets and vLLM's HTTP servers use it too.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "VLLM_HOST_IP": "127.0.0.1",
}


class LostRunError(BenchError, RuntimeError):
    """A process of the run died, most often for lack of memory, or a step exceeded the time limit for one wait."""


class Watchdog:
    """Time limit on every wait of the driver, and a check of workers that it does not wait for directly.

    A signal interrupts the wait with `LostRunError`. Python may fail to handle it, or Ray's shutdown may hang:
    LAST_SECONDS later `faulthandler` then ends the process, with the traceback of every thread.
    """

    def __init__(self, seconds: float | None = None):
        self.seconds = seconds or float(os.environ.get("TEPO_VERL_WAIT_SECONDS", SECONDS))
        self.stalled: LostRunError | None = None
        self._what = ""
        self._pings: dict[Any, Any] = {}  # actor -> its pending answer

    def restart(self, what: str) -> None:
        """End the current wait and start the next one."""
        self._what = what
        signal.setitimer(signal.ITIMER_REAL, self.seconds)
        faulthandler.dump_traceback_later(self.seconds + LAST_SECONDS, exit=True, file=2)

    def check_alive(self, actors: Sequence[Any]) -> None:
        """Raise the error that killed the first dead one of these Ray actors. A busy actor counts as alive."""
        import ray

        for actor in actors:
            # An unanswered ping is kept and checked again, so that pings do not accumulate at a busy actor.
            ping = self._pings.setdefault(actor, None) or actor.__ray_ready__.remote()
            answered, _ = ray.wait([ping], timeout=0)
            if answered:
                ray.get(answered)
            self._pings[actor] = None if answered else ping

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the waits of the block; the first one starts immediately. The previous signal handler is restored."""
        before = signal.signal(signal.SIGALRM, self._expire)
        self.restart("starting")
        try:
            yield
        except Exception:
            if self.stalled is not None:  # Ray's code may have converted it to another error
                raise self.stalled from None
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            faulthandler.cancel_dump_traceback_later()

    def _expire(self, *_: object) -> None:
        line = f"verl: {self._what}: no end after {self.seconds:g} s; run the same command to go on"
        self.stalled = LostRunError(line)
        raise self.stalled


def workers_cpu_seconds() -> float:
    """Return CPU seconds of this process's running descendants, on this machine only, not on other nodes."""
    import psutil

    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def environment(training: Training, folder: Path) -> dict[str, str]:
    """Return environment variables of the run's processes: no network, our code; on a CPU our platform, one thread.

    folder: for files not needed after the run, such as compiled kernels unless the user keeps them elsewhere.
    """
    variables = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "VERL_LOGGING_LEVEL": "WARN",
        "VERL_USE_EXTERNAL_PLUGINS": "none",  # verl would log a plugin's failure at DEBUG only
    }
    if training.device == "cpu":
        variables |= {
            # imported at the end of `import verl` in every process, before the platform is looked up
            "VERL_USE_EXTERNAL_MODULES": CPU_PLUGIN,
            "VERL_PLATFORM": "cpu",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            # an idle worker of Ray that spins would occupy a core of a small machine
            "OMP_WAIT_POLICY": "PASSIVE",
            "TQ_NUM_THREADS": "1",
        }
    if "RAY_ADDRESS" not in os.environ:
        # of sockets: vLLM's, and that of the weights (`vllm.in_own_folder`); removed with the folder
        variables |= LOOPBACK | {"VLLM_RPC_BASE_PATH": str(folder)}
    return variables | engine_caches(folder / "caches")


@contextmanager
def ray_for(config: DictConfig, variables: dict[str, str]) -> Iterator[None]:
    """Start or join Ray for this run. Its processes end with the block, or when this process is killed."""
    import ray
    from omegaconf import OmegaConf
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    arguments: dict[str, Any] = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)
    runtime, ours = get_ppo_ray_runtime_env(config), arguments.pop("runtime_env")
    os.environ.update(ours["env_vars"])
    runtime["env_vars"] |= {**ours["env_vars"], **variables, "TRANSFER_QUEUE_ENABLE": "1"}
    address = os.environ.get("RAY_ADDRESS")
    # A launcher's cluster has its sizes. Workers of a private one would get, at Ray's default niceness of 15, about a
    # thirtieth of a core that another job uses fully.
    arguments = {} if address else arguments | {"_system_config": {"worker_niceness": 0}}
    try:
        for attempts_left in (2, 1, 0):
            try:
                ray.init(address=address or "local", runtime_env=runtime, **arguments)
                break
            except Exception as error:  # Ray raises nothing more specific
                ray.shutdown()
                # Ray's limit of 30 s is too short on a busy machine.
                if "timed out during startup" not in str(error) or not attempts_left:
                    raise
                print("verl: Ray did not start within its 30 s; trying again", flush=True)
        for number, handler in handlers.items():  # Ray's handlers would end the process immediately, without saving
            signal.signal(number, handler)
        yield
    finally:
        ray.shutdown()
