"""The openai backend: an endpoint that speaks the OpenAI protocol, through lm-eval's API models.

lm-eval sends the same seed with every request, so a server that honours it returns k equal samples. Here the samples
are requested in k rounds, each with its own seed: all items once, then all items again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import urllib.request
from collections import Counter, defaultdict
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from evals.generation.engine import Engine, Observations, Settings, per_sample_seed
from records import digests
from records.errors import ConfigError, MissingInputError, unknown

if TYPE_CHECKING:
    from lm_eval.api.model import LM


KEY = "OPENAI_API_KEY"  # the environment variable that lm-eval reads the key from
_WITH_A_KEY = ("header", "auth_token", "api_key")  # arguments of lm-eval's model class, as --engine would take them


class Endpoint(Engine):
    """A running server. Its weights cannot be seen, so their digest is recorded as unknown."""

    default_batch_size = 16

    def __init__(self, settings: Settings):
        super().__init__(settings)
        if not settings.endpoint:
            raise ConfigError("generate: --endpoint: backend openai needs the server's address (http://host:port/v1)")
        _check_address(settings.endpoint)
        for name in _WITH_A_KEY:
            if name in settings.more:
                raise ConfigError(f"generate: --engine: {name}: would be recorded; give the key as variable {KEY}")
        _check_key(os.environ.get(KEY, ""))
        if not settings.chat and not settings.tokenizer:
            raise ConfigError(
                "generate: --tokenizer: give a folder, prompts are built here; or --chat, to leave that to the server"
            )

    @property
    def chat(self) -> bool:
        return self.settings.chat

    @property
    def tokenizer_folder(self) -> Path | None:
        return Path(self.settings.tokenizer) if self.settings.tokenizer else None

    @cached_property
    def weights_sha256(self) -> str | None:
        return None

    def sample_seed(self, sample: int) -> int:
        return per_sample_seed(self.settings.seed, sample)

    def identity(self) -> list[str]:
        if self.settings.tokenizer:
            digests.check_model(self.settings.tokenizer)
        return [str(self.settings.endpoint), self.settings.model]

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"endpoint": self.settings.endpoint, "chat": self.chat}

    def _tokenizer_arguments(self, max_length: int | None) -> dict[str, Any]:
        """With a tokenizer, prompts go out as token ids: a server would add a begin token to a text that has one."""
        if self.chat:
            return {"tokenizer_backend": None}
        return {
            "tokenizer_backend": "huggingface",
            "tokenizer": self.settings.tokenizer,
            "tokenized_requests": True,
            # lm-eval takes one token off, and would cut prompts to the rest; they are cut already, so it never binds
            "max_length": max_length + 1 if max_length else 1 << 30,
        }

    def _check_served(self) -> None:
        """Raises MissingInputError when nothing answers, ConfigError when the server has another model."""
        url = f"{str(self.settings.endpoint).rstrip('/')}/models"
        request = urllib.request.Request(url)
        if key := os.environ.get(KEY):
            # unredirected: urllib would send an ordinary header to whatever host a redirect names
            request.add_unredirected_header("Authorization", f"Bearer {key}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                served = [entry["id"] for entry in json.load(answer)["data"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MissingInputError(f"{url}: no OpenAI-compatible server answers there ({error})") from error
        if self.settings.model not in served:
            raise unknown(url, "--model", self.settings.model, served)

    def load(self, max_length: int | None) -> LM:
        self._check_served()
        path = "chat/completions" if self.chat else "completions"
        return _observed_api(self.chat)(
            self.seen,
            self.settings.seed,
            self.tokenizer is None,
            model=self.settings.model,
            base_url=f"{str(self.settings.endpoint).rstrip('/')}/{path}",
            **self._tokenizer_arguments(max_length),
            num_concurrent=self.batch_size,
            max_retries=3,
            timeout=3600,  # seconds; a busy server queues requests, and a long response is no error
            **self.settings.more,
        )


def _check_address(address: str) -> None:
    """ConfigError for what is no address, or one that may hold a secret: it stands in samples.json and in errors.

    Such an address is not shown. An @ anywhere counts: without http://, a parser finds no user in `user:key@host`.
    """
    if any(sign in address for sign in "@?#"):
        raise ConfigError(
            f"generate: --endpoint: a user, a password or a query would be recorded; give http://host:port/v1 alone,"
            f" and the key as variable {KEY}"
        )
    try:
        parts = urlsplit(address)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket without its other, a port that is no number
        valid = False
    if not valid:
        raise ConfigError(f"generate: --endpoint: not an address like http://host:port/v1: {address!r}")


def _check_key(key: str) -> None:
    """ConfigError for a key that no header can hold: the libraries' own errors would quote it."""
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"generate: variable {KEY}: holds a line break or another sign that no HTTP header can hold")


@cache
def _observed_api(chat: bool) -> type[LM]:
    from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

    stock: type[Any] = LocalChatCompletion if chat else LocalCompletionsAPI

    class ObservedAPI(stock):
        def __init__(self, seen: Observations, base_seed: int, trust_usage: bool, **arguments: Any):
            super().__init__(**arguments)
            self.seen, self.base_seed = seen, base_seed
            self.trust_usage = trust_usage  # the server's token counts: only where no tokenizer can count here

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            answers: list[str] = [""] * len(requests)
            for sample, places in rounds(requests).items():
                self._seed = per_sample_seed(self.base_seed, sample)
                texts = super().generate_until([_sent(requests[place], chat) for place in places], disable_tqdm=True)
                for place, answer in zip(places, texts, strict=True):
                    answers[place] = answer
            return answers

        def parse_generations(self, outputs: Any, **arguments: Any) -> list[str]:
            texts: list[str] = super().parse_generations(outputs, **arguments)
            for output in outputs if isinstance(outputs, list) else [outputs]:
                usage = output.get("usage") or {}
                tokens = usage.get("completion_tokens") if self.trust_usage and len(output["choices"]) == 1 else None
                for text, choice in zip(texts, output["choices"], strict=True):
                    stop = choice.get("finish_reason")
                    self.seen.note(text, tokens, stop if stop in ("stop", "length") else "unknown")
            self.seen.show_progress()
            return texts

    return ObservedAPI


def _sent(request: Any, chat: bool) -> Any:
    """The request as lm-eval's API model wants it: a conversation is marked as one."""
    from lm_eval.models.api_models import JsonChatStr

    text, arguments = request.args
    arguments = {name: value for name, value in arguments.items() if name != "until" or value}  # no empty stop list
    return dataclasses.replace(request, arguments=(JsonChatStr(text) if chat else text, arguments))


def rounds(requests: list[Any]) -> dict[int, list[int]]:
    """Places of the requests by round: lm-eval repeats one and the same request object k times."""
    repeats = Counter[int]()
    places = defaultdict[int, list[int]](list)
    for place, request in enumerate(requests):
        places[repeats[id(request)]].append(place)
        repeats[id(request)] += 1
    return dict(places)
