"""The engines that answer: what they have in common, and the table of them."""

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


# What an engine observes of a response and lm-eval does not hand on: its token count and why it stopped.
#
# lm-eval returns texts. Encoding a text again undercounts where the model spelled a token by its bytes and overcounts
# where it wrote broken UTF-8, so a response cut at the limit could pass for a finished one. Engines therefore note what
# they saw under the text they return. A text seen twice gives its notes in turn.


class Observations:
    """What an engine observed over one benchmark."""

    def begin(self, progress: Progress, folder: Path) -> None:
        """Forget the benchmark before. folder: where an engine may keep responses until all are there."""
        self._notes: dict[str, deque[tuple[int | None, str]]] = defaultdict(deque)
        self._tokens = 0
        self.progress, self.folder = progress, folder
        self.earlier_seconds = 0.0  # of earlier calls, whose responses an engine kept

    def note(self, text: str, tokens: int | None, stop: str) -> None:
        """Called by the engine for each response, with the text exactly as lm-eval will return it.

        tokens: without the end token; None when the engine does not know. stop: stop | length | unknown.
        """
        self._notes[text].append((tokens, stop))

    def show_progress(self, responses: int, tokens: int) -> None:
        """Called once per batch, with what it adds."""
        self._tokens += tokens
        seconds = max(time.monotonic() - self.progress.began, 1e-9)
        self.progress.update(self.progress.done + responses, tokens_per_second=round(self._tokens / seconds))

    def take(self, text: str) -> tuple[int | None, str] | None:
        """The oldest note under this text that was not taken yet; None when there is none."""
        notes = self._notes.get(text)
        return notes.popleft() if notes else None


JOURNAL = "responses.jsonl"  # in the folder of a benchmark that is not finished: its responses so far

BACKENDS = {
    "hf": "evals.generation.hf:HuggingFace",
    "vllm": "evals.generation.vllm:Vllm",
    "openai": "evals.generation.openai:Endpoint",
}


@dataclass(frozen=True)
class Settings:
    """Which model to load or ask, and how."""

    model: str  # a folder, or for an endpoint the name it serves
    seed: int
    record: str | None = None  # run.json or base.json that says what the folder must hold
    batch_size: int | None = None  # responses at once (endpoint: requests); None: the engine's default
    device: str | None = None  # hf only; None: a GPU if there is one
    dtype: str = "auto"  # hf and vllm; auto: as stored
    endpoint: str | None = None  # openai only: the server's address
    tokenizer: str | None = None  # openai only: a folder
    chat: bool = False  # openai only: the server applies its own chat template
    empty_limit: float = 0.05  # openai only: most empty responses, as a share of a benchmark's
    more: Mapping[str, str | int | float | bool] = field(default_factory=dict)  # arguments of lm-eval's model class


class Engine(ABC):
    """A model that lm-eval can query. Nothing expensive happens before `lm` is called."""

    backend: str  # its key in `BACKENDS`
    packages: tuple[str, ...] = ("lm-eval", "transformers", "tokenizers")
    extras: dict[str, Any] = {}  # noqa: RUF012 - a constant per class: sampling arguments beyond lm-eval's common ones
    default_batch_size: int

    def __init__(self, settings: Settings):
        self.settings = settings
        self.seen = Observations()
        self._lm: LM | None = None

    def lm(self, max_length: int | None) -> LM:
        """The model, loaded once. max_length: the most tokens of prompt and response together."""
        if self._lm is None:
            self._lm = self.load(max_length)
        return self._lm

    @abstractmethod
    def load(self, max_length: int | None) -> LM:
        """A new object of lm-eval's that notes in `seen` what it generates."""

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
        """The longest text the model can hold, in tokens; None when nothing says so."""
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
        """Of every file of the model folder, read once and held against SHA256SUMS and record, where it has them."""
        return digests.check_model(self.settings.model, self.settings.record)

    @cached_property
    def weights_sha256(self) -> str | None:
        """Digest of the weights; None where they cannot be seen."""
        some = any(Path(self.settings.model).glob("*.safetensors"))
        return digests.tree(self.digests, "*.safetensors") if some else None

    @cached_property
    def files_sha256(self) -> str | None:
        """Digest of what is read beside the weights: configuration, tokenizer, template; None as for the weights."""
        return None if self.weights_sha256 is None else digests.beside_weights(self.digests)

    def sample_seed(self, sample: int) -> int:
        """The seed under which the sample-th response of every item is drawn."""
        return self.settings.seed

    def describe(self) -> dict[str, Any]:
        """What decides a response besides the task: goes into samples.json and into the key of the store."""
        return {
            "backend": self.backend,
            "batch_size": self.batch_size,
            "device": self.settings.device,
            "dtype": self.settings.dtype,
            "more": dict(self.settings.more),
            "versions": {name: version(name) for name in self.packages},
        }

    def identity(self) -> list[str]:
        """What the model is: weights and what is read beside them. Raises for a folder that is missing or damaged."""
        _ = self.folder  # says what is no model folder at all
        return [str(self.weights_sha256), str(self.files_sha256)]


def per_sample_seed(seed: int, sample: int) -> int:
    """31 bits that differ between samples and between seeds (seed + sample would repeat the next seed's samples)."""
    return int.from_bytes(hashlib.sha256(f"{seed} {sample}".encode()).digest()[:4], "big") >> 1


def sample_numbers(requests: Sequence[Any]) -> list[int]:
    """The sample of its item that each request is for: lm-eval repeats one and the same request object k times."""
    counts = Counter[int]()
    numbers = []
    for request in requests:
        numbers.append(counts[id(request)])
        counts[id(request)] += 1
    return numbers


def construct(observed: type[LM], more: Mapping[str, Any], *given: Any, **own: Any) -> LM:
    """An object of our subclass of lm-eval's model class, with the arguments of --engine (`more`) beside our own.

    Raises ConfigError for an argument that is set here already, or that neither lm-eval nor the library below it takes.
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
    """The engine of a backend. ConfigError for an unknown one."""
    if backend not in BACKENDS:
        raise unknown("generate", "--backend", backend, BACKENDS)
    module, name = BACKENDS[backend].split(":")
    make: Callable[[Settings], Engine] = getattr(importlib.import_module(module), name)
    return make(settings)
