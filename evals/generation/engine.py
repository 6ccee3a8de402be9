"""The inference engines: their common interface, and the registry of backends."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import digests
from core.errors import MissingInputError, unknown
from core.progress import Progress
from core.provenance import version

if TYPE_CHECKING:
    from lm_eval.api.model import LM
    from transformers import PretrainedConfig, PreTrainedTokenizerBase


# Observed by an engine and not returned by lm-eval: a response's token count and why it stopped.
#
# lm-eval returns texts. Encoding a text again undercounts where the model spelled a token by its bytes and overcounts
# where it wrote broken UTF-8, so a response cut at the limit could pass for a finished one. Engines therefore record
# observations under the text they return. Repeated texts return their observations in order.


class Observations:
    """Observations of an engine over one benchmark."""

    def begin(self, progress: Progress, folder: Path) -> None:
        """Reset for the next benchmark. folder: where an engine may keep responses until all are complete."""
        self._notes: dict[str, deque[tuple[int | None, str]]] = defaultdict(deque)
        self._tokens = 0
        self.progress, self.folder = progress, folder
        self.earlier_seconds = 0.0  # of earlier calls whose responses were kept

    def note(self, text: str, tokens: int | None, stop: str) -> None:
        """Record a response, with the text exactly as lm-eval will return it.

        tokens: without the end token; None when unknown. stop: stop | length | unknown.
        """
        self._notes[text].append((tokens, stop))

    def show_progress(self, responses: int, tokens: int) -> None:
        """Report one batch: its responses and tokens."""
        self._tokens += tokens
        seconds = max(time.monotonic() - self.progress.began, 1e-9)
        self.progress.update(self.progress.done + responses, tokens_per_second=round(self._tokens / seconds))

    def take(self, text: str) -> tuple[int | None, str] | None:
        """Return and remove the oldest observation of this text; None when there is none."""
        notes = self._notes.get(text)
        return notes.popleft() if notes else None


JOURNAL = "responses.jsonl"  # in the folder of an unfinished benchmark: its responses so far

BACKENDS = {
    "hf": "evals.generation.hf:HuggingFace",
    "vllm": "evals.generation.vllm:Vllm",
    "openai": "evals.generation.openai:Endpoint",
}


@dataclass(frozen=True)
class Settings:
    """Which model to load or query, and how."""

    model: str  # a folder, or for an endpoint the name it serves
    seed: int
    record: str | None = None  # run.json or base.json that lists the folder's required contents
    batch_size: int | None = None  # responses at once (endpoint: requests); None: the engine's default
    device: str | None = None  # hf only; None: a GPU if there is one
    dtype: str = "auto"  # hf and vllm; auto: as stored
    endpoint: str | None = None  # openai only: the server's address
    tokenizer: str | None = None  # openai only: a folder
    chat: bool = False  # openai only: the server applies its own chat template
    empty_limit: float = 0.05  # openai only: largest share of empty responses in a benchmark
    more: Mapping[str, str | int | float | bool] = field(default_factory=dict)  # arguments of lm-eval's model class


class Engine(ABC):
    """A model that lm-eval can query. Expensive work starts only when `lm` is called."""

    backend: str  # its key in `BACKENDS`
    packages: tuple[str, ...] = ("lm-eval", "transformers", "tokenizers")
    extras: dict[str, Any] = {}  # noqa: RUF012 - a constant per class: sampling arguments beyond lm-eval's common ones
    default_batch_size: int

    def __init__(self, settings: Settings):
        self.settings = settings
        self.seen = Observations()
        self._lm: LM | None = None

    def lm(self, max_length: int | None) -> LM:
        """Return the model, loaded once. max_length: the most tokens of prompt and response together."""
        if self._lm is None:
            self._lm = self.load(max_length)
        return self._lm

    @abstractmethod
    def load(self, max_length: int | None) -> LM:
        """Return a new lm-eval model that records its generations in `seen`."""

    @property
    def chat(self) -> bool:
        """Whether prompts are conversations, rendered by the engine's own template."""
        return False

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size or self.default_batch_size

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(self.tokenizer_folder)) if self.tokenizer_folder else None

    @cached_property
    def positions(self) -> int | None:
        """The longest text that the model can hold, in tokens; None when unspecified."""
        from transformers import AutoConfig

        if self.tokenizer_folder is None or not (self.tokenizer_folder / "config.json").is_file():
            return None
        config: PretrainedConfig = AutoConfig.from_pretrained(str(self.tokenizer_folder))
        return getattr(config, "max_position_embeddings", None)

    @property
    def tokenizer_folder(self) -> Path | None:
        return self.folder

    @cached_property
    def folder(self) -> Path:
        """The model folder. Raises MissingInputError unless it holds a model."""
        folder = Path(self.settings.model)
        if not (folder / "config.json").is_file():
            hub = re.fullmatch(r"[\w.-]+/[\w.-]+", str(folder)) is not None and not folder.exists()
            fetch = f", or fetch it: python -m models.fetch --hub {folder} --revision main --out models/{folder.name}"
            raise MissingInputError(
                f"{folder}: no model there (config.json is missing); give the folder of a checkpoint"
                + (fetch if hub else "")
            )
        if not any(folder.glob("*.safetensors")):
            raise MissingInputError(f"{folder}: no weights there (*.safetensors); the checkpoint is incomplete")
        return folder

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digests of all files of the model folder, read once and verified against SHA256SUMS and record if present."""
        return digests.check_model(self.settings.model, self.settings.record)

    @cached_property
    def weights_sha256(self) -> str | None:
        """Digest of the weights; None where they are not accessible."""
        some = any(Path(self.settings.model).glob("*.safetensors"))
        return digests.tree(self.digests, "*.safetensors") if some else None

    @cached_property
    def files_sha256(self) -> str | None:
        """Digest of the files read with the weights: configuration, tokenizer, template; None as for the weights."""
        return None if self.weights_sha256 is None else digests.beside_weights(self.digests)

    def sample_seed(self, sample: int) -> int:
        """Return the seed under which the sample-th response of every item is drawn."""
        return self.settings.seed

    def describe(self) -> dict[str, Any]:
        """Return the inputs of a response besides the task: they go into samples.json and into the store's key."""
        return {
            "backend": self.backend,
            "batch_size": self.batch_size,
            "device": self.settings.device,
            "dtype": self.settings.dtype,
            "more": dict(self.settings.more),
            "versions": {name: version(name) for name in self.packages},
        }

    def identity(self) -> list[str]:
        """Return the model's identity: weights and files read with them. Raises for a missing or damaged folder."""
        _ = self.folder  # raises for a folder that is not a model folder
        return [str(self.weights_sha256), str(self.files_sha256)]


def per_sample_seed(seed: int, sample: int) -> int:
    """Return 31 bits that differ between samples and between seeds (seed + sample would collide with the next seed)."""
    return int.from_bytes(hashlib.sha256(f"{seed} {sample}".encode()).digest()[:4], "big") >> 1


def sample_numbers(requests: Sequence[Any]) -> list[int]:
    """Return the sample number of each request: lm-eval repeats the same request object k times per item."""
    counts = Counter[int]()
    numbers = []
    for request in requests:
        numbers.append(counts[id(request)])
        counts[id(request)] += 1
    return numbers


def construct(observed: type[LM], more: Mapping[str, Any], *given: Any, **own: Any) -> LM:
    """Return our subclass of lm-eval's model class, built with the arguments of --engine (`more`) and our own.

    Raises ConfigError for an argument that is already set here, or that neither lm-eval nor its library accepts.
    """
    wrong = next((name for name in more if name in own), None)
    try:
        if wrong is None:
            return observed(*given, **own, **more)
    except TypeError as error:
        named = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if named is None or named[1] not in more:
            raise
        wrong = named[1]
    names = inspect.signature(observed.__mro__[1]).parameters  # of lm-eval's class
    raise unknown("generate", "--engine", wrong, names.keys() - own.keys() - {"kwargs"})


def engine(backend: str, settings: Settings) -> Engine:
    """Return the engine of a backend. Raises ConfigError for an unknown one."""
    if backend not in BACKENDS:
        raise unknown("generate", "--backend", backend, BACKENDS)
    module, name = BACKENDS[backend].split(":")
    make: Callable[[Settings], Engine] = getattr(importlib.import_module(module), name)
    return make(settings)
