"""Draw the responses of an inference engine to one benchmark.

In the order of this file: the engines' common interface and the registry of backends, the engines in this process, the
plan (prompts, effective decoding), the responses, and how different the samples of an item are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import logging
import re
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from core import digests
from core.errors import ConfigError, MissingInputError, unknown
from core.progress import Progress
from core.provenance import sha256_bytes, version
from evals.benchmark import Benchmark, Decoding, Item
from evals.generation import prompts
from evals.generation.prompts import Prompt
from evals.store import clean

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROMPT_LIMIT = 2048  # tokens; longer prompts are cut on the left and kept, as in the paper's evaluation
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
    more: Mapping[str, str | int | float | bool] = field(default_factory=dict)  # further arguments of the engine


class Request(NamedTuple):
    """One response to be drawn."""

    item_id: str
    sample: int  # from 0
    prompt: str
    seed: int


class Drawn(NamedTuple):
    """One response."""

    text: str
    tokens: int | None  # without the end token; None when unknown
    stop: str  # one of `evals.store.STOPS`


class Engine(ABC):
    """A model that draws responses. Nothing expensive happens before `open` and `generate`."""

    backend: str  # its key in `BACKENDS`
    packages: tuple[str, ...] = ("transformers", "tokenizers")
    default_batch_size: int
    own_seeds = True  # each sample of an item is drawn under its own seed; False: one seed for all
    chat = False  # prompts are conversations as JSON, rendered by the engine's own template
    earlier_seconds = 0.0  # that earlier calls spent on the last responses

    def __init__(self, settings: Settings):
        self.settings = settings

    def open(self, max_length: int | None) -> None:  # noqa: B027 - an endpoint has nothing to load
        """Load the model, at the first call. max_length: most tokens of prompt and response together."""

    @cached_property
    def served(self) -> dict[str, Any]:
        """What tells a served model from another of its name, for samples.json; empty for weights, which are hashed."""
        return {}

    def refuse_another(self, served: Mapping[str, Any] | None, kept: str) -> None:
        """Raise ConfigError if the server now serves another model than `served`, that of the responses `kept`."""
        for name, old in (served or {}).items():
            if name != "at" and (new := self.served.get(name, old)) != old:
                raise ConfigError(
                    f"{self.settings.endpoint}: {self.settings.model}: another model now, with {name} {new!r}; that of "
                    f"{kept} has {old!r} (seen {(served or {}).get('at')}); choose another --out"
                )

    @abstractmethod
    def generate(
        self, requests: Sequence[Request], decoding: Decoding, folder: Path, progress: Progress
    ) -> Sequence[Drawn]:
        """Return one response per request, in order; `folder` may keep responses until all are complete."""

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size or self.default_batch_size

    @property
    def tokenizer_folder(self) -> Path | None:
        return self.folder

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
        return getattr(AutoConfig.from_pretrained(str(self.tokenizer_folder)), "max_position_embeddings", None)

    @cached_property
    def folder(self) -> Path:
        """The model folder. Raises MissingInputError unless it holds a model."""
        folder = Path(self.settings.model)
        if not (folder / "config.json").is_file():
            hub = re.fullmatch(r"[\w.-]+/[\w.-]+", str(folder)) is not None and not folder.exists()
            fetch = f", or fetch it: python -m models.fetch --hub {folder} --revision main --out models/{folder.name}"
            raise MissingInputError(
                f"{folder}: no {'model there (config.json is missing)' if folder.is_dir() else 'folder there'};"
                f" give the folder of a checkpoint{fetch * hub}"
            )
        if not any(folder.glob("*.safetensors")):
            raise MissingInputError(f"{folder}: no weights there (*.safetensors); the checkpoint is incomplete")
        return folder

    @cached_property
    def identity(self) -> dict[str, str | None]:
        """Digests of the weights and of the files read with them, for samples.json; None where inaccessible.

        Raises MissingInputError or CorruptInputError for a folder that is not a model or differs from its record.
        """
        found = digests.check_model(self.folder, self.settings.record)
        return {
            "weights_sha256": digests.tree(found, "*.safetensors"),
            "files_sha256": digests.beside_weights(found),  # configuration, tokenizer, template
        }

    def describe(self) -> dict[str, Any]:
        """Return the inputs of a response other than model and task: part of samples.json and of the store's key."""
        return {
            "backend": self.backend,
            "batch_size": self.batch_size,
            "device": self.settings.device,
            "dtype": self.settings.dtype,
            "more": dict(self.settings.more),
            "versions": {name: version(name) for name in self.packages},
        }


def engine(backend: str, settings: Settings) -> Engine:
    """Return the engine of a backend. Raises ConfigError for an unknown one."""
    if backend not in BACKENDS:
        raise unknown("generate", "--backend", backend, BACKENDS)
    module, name = BACKENDS[backend].split(":")
    made: Engine = getattr(importlib.import_module(module), name)(settings)
    return made


def per_sample_seed(seed: int, sample: int) -> int:
    """Return 31 bits that differ between samples and between seeds (seed + sample would collide with the next seed)."""
    return int.from_bytes(hashlib.sha256(f"{seed} {sample}".encode()).digest()[:4], "big") >> 1


# Engines in this process: one of lm-eval's model classes, observed while it generates. lm-eval returns texts. Encoding
# a text again undercounts where the model spelled a token by its bytes and overcounts where it wrote broken UTF-8, so a
# response cut at the limit could pass for a finished one. Token counts and stop reasons are therefore recorded under
# the text that lm-eval will return; repeated texts have theirs in order.


def arguments(decoding: Decoding) -> dict[str, Any]:
    """Return generation arguments for lm-eval. A seed among them would make all samples of an item identical."""
    # top_k: transformers' default would be 50
    sampling = {"temperature": float(decoding.temperature), "top_p": decoding.top_p, "top_k": 0}
    return {
        "do_sample": not decoding.greedy,
        "max_gen_toks": decoding.max_tokens,
        "until": [],  # only end tokens: without this key lm-eval stops at a blank line
        **({} if decoding.greedy else sampling),
    }


class Local(Engine):
    """A model in this process, through lm-eval."""

    packages = ("lm-eval", *Engine.packages)
    lm: Any = None  # lm-eval's model
    # In place of lm-eval's method for a batch (`_model_generate`), now `theirs`: calls `observe` after it.
    batch: Callable[..., Any]

    @abstractmethod
    def load(self, max_length: int | None) -> Any:
        """Return lm-eval's model, from `construct`."""

    def construct(self, kind: Callable[..., Any], **own: Any) -> Any:
        """Return lm-eval's model of that class, built with the arguments of --engine and our own, its batches observed.

        Raises ConfigError for an argument that is already set here, or that neither lm-eval nor its library accepts.
        """
        own |= {"pretrained": str(self.folder), "dtype": self.settings.dtype}
        own["add_bos_token"] = False  # the prompts already hold it
        more = self.settings.more
        reason = "".join(f"{name} is set by another option" for name in [*(more.keys() & own.keys())][:1])
        try:
            if not reason:
                lm = kind(**own, **more)
                self.theirs, lm._model_generate = lm._model_generate, self.batch
                return lm
        except TypeError as error:
            if not any(f"'{name}'" in str(error) for name in more):
                raise
            reason = str(error)
        raise ConfigError(f"generate: --engine: {reason}")

    def open(self, max_length: int | None) -> None:
        self.lm = self.lm or self.load(max_length)

    def arguments(self, request: Request, decoding: Decoding) -> dict[str, Any]:
        """Return lm-eval's generation arguments of one request."""
        return arguments(decoding)

    def observe(self, batch: Iterable[Drawn]) -> None:
        """Record a batch of responses, with texts exactly as lm-eval will return them."""
        for one in batch:
            self.seen[one.text].append(one)
            self.progress.done += 1
        self.progress.update(self.progress.done)

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, folder: Path, progress: Progress
    ) -> Sequence[Drawn]:
        from lm_eval.api.instance import Instance
        from transformers import set_seed

        set_seed(self.settings.seed)
        self.progress, self.seen = progress, defaultdict[str, deque[Drawn]](deque)
        texts: list[str] = self.lm.generate_until(
            [
                Instance("generate_until", {}, (request.prompt, self.arguments(request, decoding)), place)
                for place, request in enumerate(requests)
            ],
            disable_tqdm=True,
        )
        return [self.seen[text].popleft() if self.seen[text] else Drawn(text, None, "unknown") for text in texts]


# One benchmark


class Plan(NamedTuple):
    """The prompts and the decoding of one benchmark for one engine."""

    benchmark: Benchmark
    items: Sequence[Item]
    prompts: Sequence[Prompt]
    decoding: Decoding  # the registry's, with fewer tokens where the model's context is too short
    task_hash: str  # of everything that decides the requests: items and prompts in order, decoding, seed


def make_plan(
    engine: Engine,
    benchmark: Benchmark,
    items: Sequence[Item],
    *,
    changes: Mapping[str, float] | None = None,
    reading: str | None = None,
) -> Plan:
    """Make the plan for the given items; `reading` None takes the registry's prompt, and no `changes` its decoding."""
    tokenizer = None if engine.chat else engine.tokenizer
    built = [prompts.build(tokenizer, reading or benchmark.prompt, item.problem, PROMPT_LIMIT) for item in items]
    # A prompt that was cut, or whose length only the server can count, gets the whole limit.
    longest = max(PROMPT_LIMIT if prompt.cut or prompt.tokens is None else prompt.tokens for prompt in built)
    drawn, positions = decoding(benchmark, changes or {}), engine.positions
    if positions is not None and longest + drawn.max_tokens > positions:
        if longest >= positions:
            raise ConfigError(f"{benchmark.key}: a prompt of {longest} tokens, the model has {positions} positions")
        drawn = dataclasses.replace(drawn, max_tokens=positions - longest)
    facts = {
        "benchmark": benchmark.key,
        "content": [[item.item_id, prompt.text] for item, prompt in zip(items, built, strict=True)],
        "decoding": dataclasses.asdict(drawn),
        "seed": engine.settings.seed,
        "chat": engine.chat,
    }
    return Plan(benchmark, items, built, drawn, hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest())


def decoding(benchmark: Benchmark, changes: Mapping[str, Any]) -> Decoding:
    """Return the registry's decoding with fields replaced; ConfigError for greedy copies, with the options to set."""
    try:
        return dataclasses.replace(benchmark.decoding, **changes)
    except ConfigError as error:
        raise ConfigError(f"{benchmark.key}: {error}; set --samples 1, or --temperature above 0") from error


def draw(engine: Engine, plan: Plan, folder: Path, label: str) -> list[dict[str, Any]]:
    """Return all responses, by the columns of `evals.store.SAMPLES`: items in order, samples in order within an item.

    folder: where an engine may keep responses until all are complete.
    """
    import transformers

    # no progress reports; warnings of lm-eval and transformers stay
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    seed, samples = engine.settings.seed, range(plan.decoding.samples)
    requests = [
        Request(item.item_id, sample, prompt.text, per_sample_seed(seed, sample) if engine.own_seeds else seed)
        for item, prompt in zip(plan.items, plan.prompts, strict=True)
        for sample in samples
    ]
    progress = Progress(f"{label} {plan.benchmark.key}", len(requests))
    rows = []
    for request, found in zip(requests, engine.generate(requests, plan.decoding, folder, progress), strict=True):
        tokens, stop = found.tokens, found.stop
        if tokens is None and engine.tokenizer is not None:  # not observed: counted by encoding the text again
            tokens = len(engine.tokenizer.encode(found.text, add_special_tokens=False))
        if stop == "unknown" and tokens is not None:
            stop = "length" if tokens >= plan.decoding.max_tokens else "stop"
        row = request._asdict() | {"prompt_sha256": sha256_bytes(request.prompt.encode())}
        rows.append(row | {"response": clean(found.text), "stop": stop, "tokens": tokens})
    return rows


def distinct_fraction(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the item mean of (distinct responses - 1) / (samples - 1): 0 all equal, 1 all distinct; None at k = 1."""
    texts: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        texts[row["item_id"]].append(row["response"])
    shares = [(len(set(own)) - 1) / (len(own) - 1) for own in texts.values() if len(own) > 1]
    return sum(shares) / len(shares) if shares else None
