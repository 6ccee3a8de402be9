"""The openai backend: an endpoint with the OpenAI protocol, through lm-eval's API models.

Prompts, stops and the form of a request are lm-eval's. The requests are sent here, for three reasons. lm-eval sends the
same seed with all, so that a server that honours it returns k equal samples; it keeps no response before all are
complete; and it stops at the first request that fails three times.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import urllib.request
from collections import Counter, deque
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import PositiveInt

from core import digests, lock
from core.declared import Declared, Recorded, validated
from core.errors import ConfigError, CorruptInputError, MissingInputError, unknown
from core.files import parse_json, write_text
from evals.generation.engine import JOURNAL, Engine, Observations, Settings, per_sample_seed, sample_numbers
from evals.store import STOPS, clean

if TYPE_CHECKING:
    from lm_eval.api.model import LM


KEY = "OPENAI_API_KEY"  # the environment variable that lm-eval reads the key from


class Arguments(Declared):
    """Arguments of --engine: those of lm-eval's model class that have an effect here."""

    max_retries: PositiveInt = 6  # attempts per request; the waits between them add up to half a minute
    timeout: PositiveInt = 3600  # seconds; a busy server queues requests, and a slow response is not an error
    verify_certificate: bool = True


class ChatArguments(Arguments):
    """The arguments for a chat endpoint."""

    think_end_token: str | None = None  # the text before it is removed from the response


class Endpoint(Engine):
    """A running server. Its weights are not accessible, so their digest is recorded as unknown."""

    backend, default_batch_size = "openai", 16

    def __init__(self, settings: Settings):
        super().__init__(settings)
        if not settings.endpoint:
            raise ConfigError("generate: --endpoint: backend openai needs the server's address (http://host:port/v1)")
        _check_address(settings.endpoint)
        for name in ("header", "auth_token", "api_key"):  # arguments of lm-eval's model class
            if name in settings.more:
                raise ConfigError(f"generate: --engine: {name}: would be recorded; give the key as variable {KEY}")
        key = os.environ.get(KEY, "")
        if not (key.isascii() and key.isprintable()):  # the libraries' own errors would quote it
            raise ConfigError(
                f"generate: variable {KEY}: holds a line break or another sign that no HTTP header can hold"
            )
        kind = ChatArguments if settings.chat else Arguments
        self.arguments = validated(kind, dict(settings.more), "generate: --engine").model_dump()
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
        """Return the settings without those that cannot affect a response, which may change after an error: the number
        of requests in flight, the timeout of each, and its attempts."""
        more = {name: value for name, value in self.settings.more.items() if name not in Arguments.model_fields}
        facts = super().describe() | {"endpoint": self.settings.endpoint, "chat": self.chat, "more": more}
        del facts["batch_size"]
        return facts

    def load(self, max_length: int | None) -> LM:
        """Connect and load. Raises MissingInputError for an unreachable server, ConfigError for another model."""
        url = f"{str(self.settings.endpoint).rstrip('/')}/models"
        request = urllib.request.Request(url)
        if key := os.environ.get(KEY):
            # unredirected: urllib would send an ordinary header to the host of any redirect
            request.add_unredirected_header("Authorization", f"Bearer {key}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                served = [entry["id"] for entry in json.load(answer)["data"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MissingInputError(f"{url}: no OpenAI-compatible server answers there ({error})") from error
        if self.settings.model not in served:
            raise unknown(url, "--model", self.settings.model, served)
        path = "chat/completions" if self.chat else "completions"
        # With a tokenizer, prompts go out as token ids: a server would add a begin token to a text that has one.
        tokens = {"tokenizer_backend": "huggingface", "tokenizer": self.settings.tokenizer, "tokenized_requests": True}
        return _observed_api(self.chat)(
            self.seen,
            self.settings,
            self.tokenizer is None,
            model=self.settings.model,
            base_url=f"{str(self.settings.endpoint).rstrip('/')}/{path}",
            **({"tokenizer_backend": None} if self.chat else tokens),
            num_concurrent=self.batch_size,
            **self.arguments,
        )


def _check_address(address: str) -> None:
    """Raise ConfigError for an invalid address, or one that may hold a secret: samples.json and errors contain it.

    Such an address is not printed. Any @ counts: without http://, a parser finds no user in `user:key@host`.
    """
    if any(sign in address for sign in "@?#"):
        raise ConfigError(
            f"generate: --endpoint: a user, a password or a query would be recorded; give http://host:port/v1 alone,"
            f" and the key as variable {KEY}"
        )
    try:
        parts = urlsplit(address)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an unmatched bracket, a port that is not a number
        valid = False
    if not valid:
        raise ConfigError(f"generate: --endpoint: not an address like http://host:port/v1: {address!r}")


# Responses on disk, as they arrive


class Line(Recorded):
    """One response in the journal."""

    item_id: str
    sample: int
    text: str
    tokens: int | None
    stop: Literal["stop", "length", "unknown"]
    seconds: float  # from the first request to this response, without the time between calls


class Journal:
    """The responses to one plan, one JSON line each; a kill loses at most those in flight.

    The folder's name identifies the plan. A line that is not a response is reported and requested again; an incomplete
    last line is dropped. most_empty: if the previous call ended with more empty responses, they are requested again.
    """

    def __init__(self, path: Path, most_empty: float):
        self.path = path
        self.lines: dict[tuple[str, int], Line] = {}
        data = path.read_bytes() if path.is_file() else b""
        for number, line in enumerate(data.split(b"\n")[:-1], 1):
            where = f"{path}: line {number}"
            try:
                found = validated(Line, parse_json(line.decode(), where), where, error=CorruptInputError)
                self.lines[found.item_id, found.sample] = found
            except (CorruptInputError, UnicodeDecodeError) as error:
                print(f"requested again: {where}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
        if self.empty > most_empty:
            self.lines = {key: line for key, line in self.lines.items() if line.text.strip()}
        if data:
            write_text(path, "".join(line.model_dump_json() + "\n" for line in self.lines.values()))

    @property
    def empty(self) -> int:
        return sum(not line.text.strip() for line in self.lines.values())

    def add(self, line: Line) -> None:
        self.lines[line.item_id, line.sample] = line
        with open(self.path, "ab") as stream:
            stream.write(line.model_dump_json().encode() + b"\n")


# Requests

RETRIED = (408, 409, 425, 429, 500, 502, 503, 504)  # HTTP status: a retry may succeed
FIRST_WAIT = 1.0  # seconds before the second try; doubled for each further one
LONGEST_WAIT = 60  # seconds, even if the server requests more
UNFINISHED = ("abort", "error", "cancelled")  # finish_reason of a response that the server broke off
LONGEST_BODY = 2**24  # bytes; a response of 8,192 tokens has some 40,000


@cache
def _observed_api(chat: bool) -> type[LM]:
    import aiohttp
    from lm_eval.models.api_models import JsonChatStr
    from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

    stock: type[Any] = LocalChatCompletion if chat else LocalCompletionsAPI

    class ObservedAPI(stock):
        def __init__(self, seen: Observations, settings: Settings, trust_usage: bool, **arguments: Any):
            super().__init__(**arguments)
            self.seen, self.settings = seen, settings
            self.trust_usage = trust_usage  # the server's token counts: only without a local tokenizer

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            """Return the responses in order. Raises BusyError; MissingInputError for missing or too many empty ones."""
            numbered = zip(requests, sample_numbers(requests), strict=True)
            wanted = {(request.doc["item_id"], sample): request for request, sample in numbered}
            path, most_empty = self.seen.folder / JOURNAL, self.settings.empty_limit * len(wanted)
            with lock.held(path.with_suffix(".lock"), f"{path.parent}: another command draws these responses"):
                journal = Journal(path, most_empty)
                asyncio.run(self._fill(journal, wanted, most_empty))
            lines = [journal.lines[key] for key in wanted]
            for line in lines:  # only now: equal texts are distinguished by order
                self.seen.note(line.text, line.tokens, line.stop)
            return [line.text for line in lines]

        async def _fill(self, journal: Journal, wanted: dict[tuple[str, int], Any], most_empty: float) -> None:
            """Request each response that the journal lacks, `num_concurrent` at any time."""
            earlier = self.seen.earlier_seconds = max((line.seconds for line in journal.lines.values()), default=0.0)
            self.seen.progress.start = self.seen.progress.done = len(journal.lines)
            began, empty, failures = time.monotonic() - earlier, journal.empty, Counter[str]()
            missing = deque(key for key in wanted if key not in journal.lines)

            async def send(session: aiohttp.ClientSession) -> None:
                """Send requests one after another until the first failure: where a server refuses some of many,
                fewer stay in flight; where one prompt always fails, the others still get their responses."""
                nonlocal empty
                while missing and empty <= most_empty:
                    item_id, sample = key = missing.popleft()
                    found = await self._response(session, self._request(wanted[key], sample))
                    if isinstance(found, str):
                        failures[found] += 1
                        return
                    seconds = time.monotonic() - began
                    journal.add(Line(item_id=item_id, sample=sample, seconds=seconds, **found))
                    empty += not found["text"].strip()
                    self.seen.show_progress(1, found["tokens"] or 0)

            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._concurrent, ssl=self.verify_certificate),
                timeout=aiohttp.ClientTimeout(total=self.timeout),
            ) as session:
                await asyncio.gather(*(send(session) for _ in range(self._concurrent)))
            count = f"{len(wanted) - len(journal.lines)} of {len(wanted)} responses are missing"
            kept = f"{len(journal.lines)} are kept in {journal.path}"
            if empty > most_empty:
                raise MissingInputError(
                    f"{self.base_url}: {empty} responses are empty, more than {self.settings.empty_limit:.0%}, and"
                    f" {count}; {kept}; if the server puts the text elsewhere (reasoning_content), change that and run"
                    " the same command to go on; else set --empty-limit to 1"
                )
            if failures:
                why = failures.most_common(1)[0][0]
                raise MissingInputError(f"{self.base_url}: {count} ({why}); {kept}; run the same command to go on")

        def _request(self, request: Any, sample: int) -> dict[str, Any]:
            """Return lm-eval's request body, with a different seed for each sample."""
            text, arguments = request.args
            # without an empty stop list
            arguments = {name: value for name, value in arguments.items() if name != "until" or value}
            prompt = self.create_message([JsonChatStr(text) if chat else self.tok_encode(text)])
            seed = per_sample_seed(self.settings.seed, sample)
            body: dict[str, Any] = self._create_payload(prompt, generate=True, gen_kwargs=arguments, seed=seed)
            return body

        async def _response(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> dict[str, Any] | str:
            """Return text, tokens and stop reason of one request, or the error after `max_retries` attempts."""
            wait, failure = 0.0, ""
            for attempt in range(self.max_retries):
                await asyncio.sleep(min(wait, LONGEST_WAIT))
                wait, content = FIRST_WAIT * 2 ** min(attempt, 9), bytearray()
                try:
                    async with session.post(self.base_url, json=body, headers=self.header) as answer:
                        async for part in answer.content.iter_any():
                            content += part
                            if len(content) > LONGEST_BODY:
                                raise ValueError(f"a response of more than {LONGEST_BODY} bytes")
                    if answer.ok:
                        return self._read(content)
                    failure = f"HTTP {answer.status} {answer.reason}: {content.decode(errors='replace')}"
                    if answer.status not in RETRIED:
                        break
                    if (after := answer.headers.get("Retry-After", "")).isdecimal():
                        wait = max(wait, int(after[:3]))
                except (aiohttp.ClientError, ValueError) as error:
                    failure = str(error) or type(error).__name__
                except TimeoutError:  # not sent again: it may already be billed
                    failure = f"no response within {self.timeout} s"
                    break
            return _shown(failure)

        def _read(self, content: bytearray) -> dict[str, Any]:
            """Return text, tokens and stop reason. Raises ValueError for an incomplete completion."""
            try:
                value = json.loads(content)
                (choice,) = value["choices"]
                text = choice["message"]["content"] if chat else choice["text"]
                if not isinstance(text, str | None):
                    raise TypeError(text)
                choice["index"] = 0  # lm-eval reads it, and some servers leave it out
                (text,) = self.parse_generations(value)
                stop, usage = choice.get("finish_reason"), value.get("usage")
                tokens = usage.get("completion_tokens") if self.trust_usage and isinstance(usage, dict) else None
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise ValueError(f"no completion: {content.decode(errors='replace')}") from error
            if stop in UNFINISHED:
                raise ValueError(f"the server broke off its response (finish_reason {stop!r})")
            known = type(tokens) is int and 0 <= tokens < 2**31
            stop = stop if stop in STOPS else "unknown"
            return {"text": clean(text or ""), "tokens": tokens if known else None, "stop": stop}

    return ObservedAPI


def _shown(text: str) -> str:
    """Return the beginning of a server's text, on one line and without the key, which some servers echo."""
    key = os.environ.get(KEY)
    line = " ".join((text.replace(key, f"({KEY})") if key else text).split())[:200]
    return "".join(letter if letter.isprintable() else "?" for letter in line).rstrip(": ")
